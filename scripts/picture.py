"""Write README's picture, docs/sweep.png: the report of its sweep, replayed from the archive of calls.

    KGQA_DATA=data/results python scripts/picture.py

Needs Chromium, and the extra sentence-transformers for TRACE's ranker. No model is called.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
METHODS = "no_context,all_documents,golden,retrieve_read,ircot,trace"
COMMANDS = (
    ["cache", "import", str(ROOT / "docs/results/calls.jsonl.zst")],
    [
        "run",
        "-m",
        f"method={METHODS}",
        "dataset=musique",
        "sample=80",
        "experiment=results",
        "sweep.name=readme",
    ],
)
# pixels: the table and the charts, without the section below them
SIZE = "1180,860"


def main() -> int:
    browser = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if browser is None:
        raise SystemExit("no Chromium on this machine. Install it and run the same command again")
    data = Path(os.environ.get("KGQA_DATA") or ROOT / "data").resolve()
    with tempfile.TemporaryDirectory(prefix="kgqa-picture-") as folder:
        cache = str(Path(folder) / "cache")
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "KGQA_CACHE": cache,
            "KGQA_DATA": str(data),
        }
        for words in COMMANDS:
            subprocess.run(
                [sys.executable, "-m", "kgqa", *words], cwd=folder, env=environment, check=True
            )
        page = Path(folder) / "outputs/sweeps/readme/report.html"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}"]
        picture = f"--screenshot={ROOT / 'docs/sweep.png'}"
        subprocess.run([browser, *options, picture, page.as_uri()], check=True, capture_output=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
