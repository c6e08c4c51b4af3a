"""Run every command of README's quickstart in order, in the environment that `make demo` made.

python scripts/walk_readme.py

A block behind `<!-- needs: … -->` is skipped and named. The exit code is 1 if a command fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(?:<!-- (?P<note>[^\n]+) -->\n)?```(?P<kind>console|bash)\n(?P<body>.*?)```", re.DOTALL)


def read_commands(text: str) -> list[tuple[str, str]]:
    """Return the commands of the quickstart, each with what it needs that is not here ("" for nothing)."""
    quickstart = text.partition("\n## Quickstart\n")[2].partition("\n## ")[0]
    commands = []
    for block in BLOCK.finditer(quickstart):
        needs = (block["note"] or "").partition("needs: ")[2]
        if block["kind"] == "bash":
            commands.append((block["body"], needs))
        else:
            commands += [(line[2:], needs) for line in block["body"].splitlines() if line.startswith("$ ")]
    return commands


def main() -> int:
    """Run the commands and return the exit code."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="kgqa-readme-") as folder:
        for command, needs in read_commands((ROOT / "README.md").read_text(encoding="utf-8")):
            if needs:
                print(f"skipped (needs {needs}): {command.strip()}")
                continue
            start = time.monotonic()
            process = subprocess.run(["bash", "-ec", command], cwd=folder, env=environment, check=False)
            print(f"{'ok' if process.returncode == 0 else 'FAILED'} in {time.monotonic() - start:.0f} s: {command}")
            failed += process.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
