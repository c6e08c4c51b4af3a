"""Inspect AI on the race's questions, each asked as it stands, run by an environment of its own."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import inspect_ai
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--places", type=int, required=True, help="its max_connections")
    given = parser.parse_args()
    os.environ["OPENAI_API_KEY"] = "none"
    rows = [json.loads(line) for line in given.questions.read_text(encoding="utf-8").splitlines()]
    samples = [Sample(input=f"\nQ: {row['question']}\nA:", target="none", id=row["id"]) for row in rows]
    [log] = inspect_ai.eval(
        inspect_ai.Task(dataset=MemoryDataset(samples), solver=generate(), scorer=match()),
        model="openai/simulated",
        model_base_url=given.url,
        model_args={"responses_api": False},
        max_connections=given.places,
        max_samples=2 * given.places,
        max_tokens=100,
        temperature=0.0,
        log_dir=str(given.folder),
        display="none",
    )
    if log.status != "success" or log.samples is None:
        raise SystemExit(f"inspect: {log.status}: {log.error}")
    json.dump([sample.output.completion for sample in log.samples], sys.stdout)


if __name__ == "__main__":
    main()
