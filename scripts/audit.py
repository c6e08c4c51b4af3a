"""Known vulnerabilities of the pinned versions, by pip-audit; `make audit` runs it.

    python scripts/audit.py FILE [FILE …]      files of constraints

Exit code 1: a pinned version has a known vulnerability. 0: none is known, or no database can be reached, which is said.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

SERVICES = ("pypi", "osv")  # asked in this order until one answers
UNREACHED = "no vulnerability database can be reached from here: nothing was audited"


def told(dependencies: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each known vulnerability."""
    return [
        f"{package['name']} {package['version']}: {flaw['id']}"
        + (f", mended in {', '.join(flaw['fix_versions'])}" if flaw.get("fix_versions") else ", not mended yet")
        for package in dependencies
        for flaw in package.get("vulns", ())
    ]


def audited(answer: str) -> list[Mapping[str, Any]]:
    """The packages that a database knows; empty where none answered."""
    try:
        dependencies = json.loads(answer)["dependencies"]
    except (ValueError, KeyError):
        return []
    return [package for package in dependencies if "skip_reason" not in package]


def ask(file: str, service: str) -> list[Mapping[str, Any]]:
    # --no-deps, --disable-pip: the file names every version, so nothing has to be resolved or downloaded
    command = [sys.executable, "-m", "pip_audit", "--requirement", file, "--no-deps", "--disable-pip"]
    command += ["--vulnerability-service", service, "--format", "json", "--progress-spinner", "off", "--timeout", "30"]
    return audited(subprocess.run(command, capture_output=True, text=True, check=False).stdout)


def main(files: Sequence[str]) -> int:
    found: list[str] = []
    for file in files:
        known = next((answer for service in SERVICES if (answer := ask(file, service))), [])
        print(f"{file}: {len(known)} packages audited" if known else f"{file}: {UNREACHED}")
        found += told(known)
    for line in dict.fromkeys(found):
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
