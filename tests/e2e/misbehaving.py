"""A program that does what kgqa must not, as its first argument says."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    what = argv[0]
    if what == "traceback":
        raise ValueError("unforeseen")
    if what == "leak":
        Path("metrics.json").write_text(os.environ["OPENAI_API_KEY"].replace("/", "\\/"), encoding="utf-8")
    if what == "hang":
        time.sleep(600)
    if what == "predict":
        Path("run").mkdir()
        Path("run/predictions.jsonl").write_text("something else", encoding="utf-8")
    sys.stdout.write("\x1b[31mred\n" if what == "colour" else "all is well\n")
    return 7 if what == "code" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
