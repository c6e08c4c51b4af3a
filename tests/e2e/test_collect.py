"""`kgqa collect`: folders of examples, made once, whole or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kgqa.artifacts.examples import Collected, Positive, id_hash, read_examples
from kgqa.artifacts.manifest import StageManifest
from tests.e2e.conftest import Kgqa

KGP = ("collect", "kgp", "dataset=demo", "limit=8")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def outcome(folder: Path, recipe: str) -> Collected:
    return StageManifest.read(folder, f"collect {recipe}").read_outcome(Collected, folder)


def test_examples_are_made_once(kgqa: Kgqa) -> None:
    first = kgqa(*KGP)
    written = (first.folder / "examples.jsonl").stat().st_mtime_ns
    again = kgqa(*KGP)
    assert again.folder == first.folder
    assert f"{first.folder}: already complete" in again.out
    assert (again.folder / "examples.jsonl").stat().st_mtime_ns == written
    assert kgqa(*KGP, "collect.agent=llama").folder != first.folder


def test_held_out_are_questions_with_all_their_examples(kgqa: Kgqa) -> None:
    folder = kgqa(*KGP, "collect.held_out=0.5").folder
    collected = outcome(folder, "kgp")
    asked = {f"demo/{line['question']}" for line in lines(folder / "examples.jsonl")}
    out = set(collected.held_out)
    assert out < asked
    assert len(out) == round(0.5 * len(asked))
    hashes = {id_hash("demo", question.removeprefix("demo/")) for question in asked - out}
    assert set(collected.question_hashes) == hashes


def test_an_encoder_learns_both_hops_against_the_questions_other_passages(kgqa: Kgqa) -> None:
    folder = kgqa("collect", "mdr", "dataset=demo", "limit=6", "collect.negatives=bm25").folder
    examples = [example for example in read_examples(folder / "examples.jsonl") if isinstance(example, Positive)]
    firsts, seconds = ([e for e in examples if e.label == f"hop {hop}"] for hop in (1, 2))
    for first, second in zip(firsts, seconds, strict=True):
        assert second.anchor == f"{first.anchor} {first.positive}"
        assert not {first.positive, second.positive} & {*first.negatives, *second.negatives}
        assert len(first.negatives) == 2
