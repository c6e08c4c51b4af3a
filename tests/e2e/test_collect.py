"""`kgqa collect`: folders of examples, made once, whole or not there."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.collected import Collected
from kgqa.artifacts.examples import Example, Positive, read_examples
from kgqa.artifacts.question_hashes import id_hash
from kgqa.artifacts.stage import StageManifest
from tests.e2e.conftest import Kgqa

KGP = ("collect", "kgp", "dataset=demo", "limit=8")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def outcome(folder: Path, recipe: str) -> Collected:
    return StageManifest.read(folder, f"collect {recipe}").read_outcome(Collected, folder)


def test_an_agents_examples_lead_from_fact_to_fact(kgqa: Kgqa) -> None:
    ran = kgqa(*KGP)
    assert ran.code == 0, ran.err
    examples = list(read_examples(ran.folder / "examples.jsonl"))
    assert {example.question for example in examples if example.origin.place == 2} == {
        example.question for example in examples
    }
    for example in examples:
        assert isinstance(example, Example)
        assert example.prompt.form == "completion"
        assert example.target not in example.prompt.messages[0].content
    assert len({example.id for example in examples}) == len(examples)


def test_examples_are_made_once(kgqa: Kgqa) -> None:
    first = kgqa(*KGP)
    written = (first.folder / "examples.jsonl").stat().st_mtime_ns
    again = kgqa(*KGP)
    assert again.folder == first.folder
    assert "finished" in again.out
    assert (again.folder / "examples.jsonl").stat().st_mtime_ns == written
    assert kgqa(*KGP, "collect.agent=llama").folder != first.folder


def test_a_changed_file_is_made_anew(kgqa: Kgqa) -> None:
    file = kgqa(*KGP).folder / "examples.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    kgqa(*KGP)
    assert file.read_bytes() == whole


def test_held_out_are_questions_with_all_their_examples(kgqa: Kgqa) -> None:
    folder = kgqa(*KGP, "collect.held_out=0.5").folder
    collected = outcome(folder, "kgp")
    asked = {f"demo/{line['question']}" for line in lines(folder / "examples.jsonl")}
    out = set(collected.held_out)
    assert out < asked
    assert len(out) == round(0.5 * len(asked))
    hashes = {id_hash("demo", question.removeprefix("demo/")) for question in asked - out}
    assert set(collected.question_hashes.ids) == hashes


def test_what_gives_no_example_is_kept_with_the_reason(kgqa: Kgqa) -> None:
    folder = kgqa("collect", "mdr", "dataset=demo").folder
    dropped = lines(folder / "dropped.jsonl")
    assert sum(outcome(folder, "mdr").dropped.values()) == len(dropped)
    asked = {line["question"] for line in lines(folder / "examples.jsonl")}
    assert not asked & {line["question"] for line in dropped}


def test_an_encoder_learns_both_hops_against_the_questions_other_passages(kgqa: Kgqa) -> None:
    folder = kgqa("collect", "mdr", "dataset=demo", "limit=6", "collect.negatives=bm25").folder
    examples = [example for example in read_examples(folder / "examples.jsonl") if isinstance(example, Positive)]
    firsts, seconds = ([e for e in examples if e.label == f"hop {hop}"] for hop in (1, 2))
    for first, second in zip(firsts, seconds, strict=True):
        assert second.anchor == f"{first.anchor} {first.positive}"
        assert not {first.positive, second.positive} & {*first.negatives, *second.negatives}
        assert len(first.negatives) == 2


def test_each_supporting_passage_is_a_positive_of_the_question(kgqa: Kgqa) -> None:
    folder = kgqa("collect", "dpr", "dataset=demo", "limit=4").folder
    examples = [example for example in read_examples(folder / "examples.jsonl") if isinstance(example, Positive)]
    assert {example.label for example in examples} == {"support"}
    assert max(example.origin.place for example in examples) > 1


def test_people_get_a_sample_to_judge(kgqa: Kgqa) -> None:
    kgqa(*KGP, "--review", "review.csv")
    with Path("review.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(row["asked"] and row["target"] and not row["right"] for row in rows)


def test_a_plan_writes_nothing(kgqa: Kgqa) -> None:
    ran = kgqa(*KGP, "dry_run=true")
    assert ran.code == 0
    assert "target" in ran.out
    assert not Path("outputs/examples").exists()


def test_several_data_sets_are_one_folder(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    table = outcome(kgqa("collect", "dpr", "dataset=demo,pdf", "limit=3").folder, "dpr").datasets
    assert list(table) == ["demo", "pdf"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("collect nosuch", "no such collect; choose from"),
        ("collect kgp dataset=demo --from last", "no run in outputs/ has ended"),
        ("collect kgp dataset=demo method=trace", "remove method="),
        ("collect kgp dataset=demo collection=kgp", "remove collection="),
        ("collect kgp dataset=demo collect.agent=oracle", "collect.agent=oracle"),
        ("collect kgp dataset=demo,nosuch", "dataset=nosuch: no such dataset"),
        ("collect kgp dataset=demo,pdf dataset.path=x", "applies to one dataset; choose"),
        ("collect mdr dataset=pdf limit=2", "not one example: fewer than two passages in an order"),
        ("collect mdr dataset=demo collect.held_out=2", "must be between 0 and 1"),
    ],
)
def test_a_mistake_is_one_line(kgqa: Kgqa, command: str, message: str) -> None:
    ran = kgqa(*command.split())
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.strip().splitlines()) == 1
