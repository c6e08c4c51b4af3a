"""Renew the calls with which `kgqa demo --recorded` shows the demo to a machine without a model.

    python scripts/record_demo.py [--out FOLDER] [--remark "on a busy machine"]

Runs `kgqa demo` with the weights of qwen2_5_coder_1_5b in FOLDER (else a new one, where every call is asked), replays
it from its call cache, and writes kgqa/demos/recorded.json and recorded.jsonl.zst. Commit what decides answers first:
the record names the commit it was made at.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from kgqa.artifacts.manifest import Manifest
from kgqa.cache.maintenance import export_calls
from kgqa.cli.terminal import Terminal
from kgqa.experiment.replay import replay
from kgqa.extras.demo.command import show_demo
from kgqa.extras.demo.recording import CALLS, RECORDING, Recording
from kgqa.extras.demo.running import DemoResult, demo_experiments, run_demo
from kgqa.runtime.display import QUIET, log_lines
from kgqa.util.fs import json_text, replace_file
from kgqa.util.places import call_cache


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--remark", default="", help="what else is to be known of the machine")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kgqa-demo-") as fresh:
        os.environ.pop("KGQA_CACHE", None)
        place = given.out or Path(fresh)
        place.mkdir(parents=True, exist_ok=True)
        os.chdir(place)
        terminal = Terminal()
        with log_lines(terminal):
            shown = list(run_demo(demo_experiments(), terminal))
        show_demo(shown, terminal)
        recording, calls = record(shown, given.remark)
    print(f"{RECORDING}: {sum(map(len, recording.answers.values()))} answers")
    print(f"{CALLS}: {calls} calls, {CALLS.stat().st_size:,} bytes")
    return 0


def record(shown: list[DemoResult], remark: str) -> tuple[Recording, int]:
    """Write both files of runs that have just ended in this folder."""
    folders = [each.folder for each in shown]
    keys = {key for folder in folders for key in replay(folder, QUIET).keys}
    trace = Manifest.read(folders[-1])
    if trace.kgqa.commit is None or trace.ranker is None:
        raise SystemExit("run this in a checkout of kgqa, with the ranker of experiment=demo")
    recording = Recording(
        made=datetime.now(timezone.utc).date().isoformat(),
        kgqa=trace.kgqa.version,
        commit=trace.kgqa.commit,
        platform=trace.platform,
        cores=trace.cores or 0,
        remark=remark,
        model=trace.models["default"],
        ranker=trace.ranker,
        answers={each.method: answers(each) for each in shown},
    )
    if trace.kgqa.dirty:
        print(
            "kgqa/ or conf/ has changes that are in no commit: commit them and record again",
            file=sys.stderr,
        )
    exported = export_calls(call_cache(), CALLS, keys)
    replace_file(RECORDING, json_text(recording.json()))
    return recording, exported["calls"]


def answers(shown: DemoResult) -> dict[str, str]:
    """By question. Ends the program where one failed: an error is no answer to show."""
    failed = [each.prediction for each in shown.questions if each.prediction.answer is None]
    if failed:
        raise SystemExit(f"{shown.method}: {failed[0].question_id} failed: {failed[0].error}")
    return {each.question.id: each.prediction.answer or "" for each in shown.questions}


if __name__ == "__main__":
    sys.exit(main())
