"""Run README.md's commands and write their output under them.

    python scripts/regenerate_readme.py [--check] [FILE …]

A block of `console` behind a comment `<!-- run: last N lines -->` (or `first N lines`) is run, in the order of the file
and in one empty folder for all of them; the lines under each command are replaced. Names of runs and sweeps are left
out: they are hashes of code and configuration, and the text is to hold after an edit of either. `--check` runs the same
and writes nothing: it fails where a command does. Other blocks show what needs data, weights or a server that are not
in the package; `tests/unit/test_readme.py` checks every command in either kind for unknown keys, names and commands.

The kgqa that runs is that beside this Python, or, with PYTHONPATH=., that of the checkout.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"(?<=/)[0-9a-f]{8}(-\d+-[0-9a-f]{4})?\b")  # of a run or sweep, as the last part of its folder
BLOCK = re.compile(r"(<!-- run: (first|last) (\d+) lines -->\n```console\n)(.*?)(```\n)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("files", nargs="*", type=Path, default=[ROOT / "README.md"])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for file in chosen.files:
            text = BLOCK.sub(lambda block: rerun(block, Path(folder)), file.read_text(encoding="utf-8"))
            if not chosen.check:
                file.write_text(text, encoding="utf-8")
    return 0


def rerun(block: re.Match[str], folder: Path) -> str:
    """The block with fresh output. Ends the program where a command fails."""
    head, end, count, body, foot = block.groups()
    shown = []
    for command in re.findall(r"^\$ (.+)$", body, flags=re.MULTILINE):
        lines = [without_name(line) for line in output(command, folder)]
        kept = lines[-int(count) :] if end == "last" else lines[: int(count)]
        elided = ["…"] if len(kept) < len(lines) else []
        shown += [f"$ {command}", *(elided if end == "last" else []), *kept, *(elided if end == "first" else [])]
    return f"{head}{chr(10).join(shown)}\n{foot}"


def without_name(line: str) -> str:
    """The line with … for the name of a run, in a table with as many columns as before."""
    return NAME.sub(lambda name: "…" + " " * (len(name[0]) - 1) if line[name.end() :].startswith("  ") else "…", line)


def output(command: str, folder: Path) -> list[str]:
    """The lines a command prints, without blank ones and blanks at their ends."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    print(f"$ {command}", flush=True)
    ended = subprocess.run(  # a command of our own README
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path, "COLUMNS": "110"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if ended.returncode:
        raise SystemExit(f"{command}: exit code {ended.returncode}\n{ended.stdout}")
    return [line.rstrip() for line in ended.stdout.splitlines() if line.strip()]


if __name__ == "__main__":
    sys.exit(main())
