"""List the commands of README's quickstart, and write the output of marked commands under them.

    PYTHONPATH=. python scripts/readme.py [FILE …]

The kgqa that runs is that of the checkout. `scripts/newcomer.py` runs the quickstart. It skips blocks behind
`<!-- needs: … -->`.

It runs the blocks of `console` behind a comment `<!-- run: all lines -->` (or `last N lines`, `first N lines`) in
the order of the file and in one empty folder. The lines under each command are replaced. Names of runs and sweeps are
left out, because they are hashes of code and configuration. `tests/e2e/test_shown_commands.py` runs all shown commands
on stand-ins and compares the output of the marked ones, except those `with weights` (`<!-- run: last 9 lines, with
weights -->`).
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
README = ROOT / "README.md"
BLOCK = re.compile(
    r"(?P<head>(?:<!-- (?P<note>[^\n]+) -->\n)?```(?P<kind>console|bash)\n)(?P<body>.*?)(?P<foot>```)",
    re.DOTALL,
)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
KEPT = re.compile(r"(all|first|last)(?: (\d+))? lines(, with weights)?")
# of a run or sweep, as the last part of its folder
NAME = re.compile(r"(?<=/)[0-9a-f]{8}(-\d+-[0-9a-f]{4})?\b")


def run_command(
    command: str, folder: str, output: int | None = None
) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    # a page shows all columns
    environment.pop("COLUMNS", None)
    return subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=environment,
        text=True,
        check=False,
        stdout=output,
        stderr=output,
    )


def quickstart() -> list[tuple[str, str]]:
    """Return the commands of README's quickstart, each with what it needs that not every machine has, or ""."""
    text = (
        README.read_text(encoding="utf-8").partition("\n## Quickstart\n")[2].partition("\n## ")[0]
    )
    commands = []
    for block in BLOCK.finditer(text):
        needs = (block["note"] or "").partition("needs: ")[2]
        typed = COMMAND.findall(block["body"]) if block["kind"] == "console" else [block["body"]]
        commands += [(command.strip(), needs) for command in typed]
    return commands


def renew_block(block: re.Match[str], folder: str) -> str:
    """Return a marked block with fresh output, and others unchanged. End the program if a command fails."""
    mark, _, kept = (block["note"] or "").partition("run: ")
    if mark or not kept:
        return block[0]
    lines = []
    for command in COMMAND.findall(block["body"]):
        print(f"$ {command}", flush=True)
        process = run_command(f"exec 2>&1; {command}", folder, subprocess.PIPE)
        if process.returncode:
            raise SystemExit(f"{command}: exit code {process.returncode}\n{process.stdout}")
        lines += [f"$ {command}", *shorten(process.stdout, kept)]
    return "\n".join([block["head"] + lines[0], *lines[1:], block["foot"]])


def shorten(printed: str, kept: str) -> list[str]:
    """Return the lines of an output that the words of a comment keep, and … for the others. Blank ones are left out.

    End the program if the words mean nothing.
    """
    lines = [hide_name(line.rstrip()) for line in printed.splitlines() if line.strip()]
    words = KEPT.fullmatch(kept)
    if not words or (words[1] == "all") != (words[2] is None):
        raise SystemExit(f"<!-- run: {kept} -->: write all lines, first N lines or last N lines")
    count = int(words[2] or len(lines))
    if count >= len(lines):
        return lines
    return ["…", *lines[-count:]] if words[1] == "last" else [*lines[:count], "…"]


def hide_name(line: str) -> str:
    """Return the line with … for the name of a run, in a table with as many columns as before."""
    return NAME.sub(
        lambda name: "…" + " " * (len(name[0]) - 1) if line[name.end() :].startswith("  ") else "…",
        line,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "files", nargs="*", type=Path, default=[README], help="pages (default: README.md)"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kgqa-readme-") as folder:
        for file in chosen.files:
            text = BLOCK.sub(
                lambda block: renew_block(block, folder), file.read_text(encoding="utf-8")
            )
            file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
