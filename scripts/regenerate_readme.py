"""Run README.md's commands and write their output under them.

    python scripts/regenerate_readme.py [FILE …]

A block of `console` behind a comment `<!-- run: all lines -->` (or `last N lines`, `first N lines`) is run, in the
order of the file and in one empty folder for all of them; the lines under each command are replaced. Names of runs and
sweeps are left out: they are hashes of code and configuration, and the text is to hold after an edit of either. Other
blocks show what needs data, weights or a server. `tests/e2e/test_shown_commands.py` runs all of them on stand-ins and
compares what the marked ones print, but for those `with weights` (`<!-- run: last 9 lines, with weights -->`).

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
BLOCK = re.compile(r"(<!-- run: ([^\n]+) -->\n```console\n)(.*?)(```\n)", re.DOTALL)
KEPT = re.compile(r"(all|first|last)(?: (\d+))? lines(, with weights)?")
COMMAND = r"^\$ ((?:.*\\\n)*.*)$"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, default=[ROOT / "README.md"])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for file in chosen.files:
            text = BLOCK.sub(lambda block: rerun(block, Path(folder)), file.read_text(encoding="utf-8"))
            file.write_text(text, encoding="utf-8")
    return 0


def rerun(block: re.Match[str], folder: Path) -> str:
    """The block with fresh output. Ends the program where a command fails."""
    head, kept, body, foot = block.groups()
    shown = []
    for command in re.findall(COMMAND, body, flags=re.MULTILINE):
        shown += [f"$ {command}", *shortened(output(command, folder), kept)]
    return f"{head}{chr(10).join(shown)}\n{foot}"


def shortened(printed: str, kept: str) -> list[str]:
    """The lines of an output that the words of a comment keep, and … for the others; blank ones go.

    Ends the program where the words mean nothing.
    """
    lines = [without_name(line.rstrip()) for line in printed.splitlines() if line.strip()]
    said = KEPT.fullmatch(kept)
    if not said or (said[1] == "all") != (said[2] is None):
        raise SystemExit(f"<!-- run: {kept} -->: write all lines, first N lines or last N lines")
    count = int(said[2] or len(lines))
    if count >= len(lines):
        return lines
    return ["…", *lines[-count:]] if said[1] == "last" else [*lines[:count], "…"]


def without_name(line: str) -> str:
    """The line with … for the name of a run, in a table with as many columns as before."""
    return NAME.sub(lambda name: "…" + " " * (len(name[0]) - 1) if line[name.end() :].startswith("  ") else "…", line)


def output(command: str, folder: Path) -> str:
    """What a command prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    print(f"$ {command}", flush=True)
    ended = subprocess.run(  # a command of our own README
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path, "COLUMNS": "110"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if ended.returncode:
        raise SystemExit(f"{command}: exit code {ended.returncode}\n{ended.stdout}")
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main())
