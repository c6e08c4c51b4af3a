"""The profiles give what the official scorers gave on 300 real predictions."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kgqa.scoring.metrics import score

FIXTURE = Path("questions") / "metric_fixture_musique_probtree_300.jsonl.gz"
REFERENCES = {
    "hotpotqa": "hotpot_v1_first_gold",
    "2wiki": "2wiki_v1.1_all_golds",
    "musique": "musique_all_golds",
    "drop": "drop_ircot_all_golds",
}


def read_fixture() -> list[dict[str, Any]]:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folders = [Path(os.environ["KGQA_DATA"]), beside] if os.environ.get("KGQA_DATA") else [beside]
    for folder in folders:
        if (folder / FIXTURE).is_file():
            with gzip.open(folder / FIXTURE, "rt", encoding="utf-8") as lines:
                return [json.loads(line) for line in lines]
    pytest.skip(f"no {FIXTURE} under KGQA_DATA or ../shared/data")


def test_every_profile_scores_the_fixture_as_published() -> None:
    """TRACE has MuSiQue's exact match and HotpotQA's F1."""
    rows, differing = read_fixture(), []
    for row in rows:
        official = {
            profile: row["reference"][reference] for profile, reference in REFERENCES.items()
        }
        official["trace"] = {"em": official["musique"]["em"], "f1": official["hotpotqa"]["f1"]}
        for profile, expected in official.items():
            ours = score(row["prediction"], row["golds"], profile)
            if (ours["em"], round(ours["f1"], 6)) != (
                expected["em"],
                expected["f1"],
            ):  # written with 6 digits
                differing.append((row["id"], profile, ours, expected))
    assert len(rows) == 300
    assert not differing, f"{len(differing)} scores differ: {differing[:5]}"


@pytest.mark.parametrize("profile", [*REFERENCES, "trace", "kgp"])
def test_failed_question_scores_zero_in_every_profile(profile: str) -> None:
    scores = [score(None, row["golds"], profile) for row in read_fixture()]
    assert scores == [{"em": 0.0, "f1": 0.0}] * 300
