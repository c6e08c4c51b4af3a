"""A run over questions that something in use was trained on is refused, or flagged where it is allowed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kgqa.artifacts.examples import TrainedWith, hash_questions, id_hash, text_hash
from kgqa.experiment.check import count_leaks
from kgqa.prompting import template_hash
from kgqa.types import Question
from tests.adapters_for_tests import write_lora
from tests.e2e.conftest import QUICK, Kgqa

FIRST, SECOND = "2hop__demo_01", "2hop__demo_02"
ASKED = ("run", "method=no_context", "dataset=demo", "roles.reader=+evaluator", *QUICK)


def artefact(ids: Sequence[str] = (), texts: Sequence[str] = (), name: str = "outputs/trained/evaluator/abc") -> Path:
    """As training leaves it: an adapter, and the hashes of the questions in its manifest."""
    folder = Path(name)
    write_lora(folder / "adapter")
    hashes = {"question_hashes": [id_hash("demo", id_) for id_ in ids], "text_hashes": [*map(text_hash, texts)]}
    (folder / "manifest.json").write_text(json.dumps({"examples": hashes}), encoding="utf-8")
    return folder


def test_a_run_over_a_trained_question_stops_unless_allowed_and_is_flagged(kgqa: Kgqa) -> None:
    folder = artefact([FIRST])
    refused = kgqa(*ASKED, "limit=3")
    assert refused.code == 2
    trained = "roles.reader=+evaluator was trained on 1. Scores on training questions are meaningless"
    assert f"of 3 questions {trained}" in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert kgqa(*ASKED, "limit=3", "dry_run=true").code == 2
    assert kgqa(*ASKED, f"ids=[{SECOND},3hop1__demo_03]").code == 0
    ran = kgqa(*ASKED, "limit=3", "allow_trained_questions=true")
    assert ran.code == 0, ran.err
    assert ran.json("metrics.json")["trained_questions"] == {"roles.reader=+evaluator": 1}
    assert "TRAINED ON" in ran.out
    report = (ran.folder / "report.md").read_text(encoding="utf-8")
    assert "**roles.reader=+evaluator was trained on 1 of 3 questions.**" in report
    assert kgqa(*ASKED, "limit=3").code == 2
    assert kgqa("evaluate", str(ran.folder)).code == 2
    assert kgqa("evaluate", str(ran.folder), "allow_trained_questions=true").code == 0
    (folder / "encoder").mkdir()
    searching = ("run", "method=retrieve_only", "dataset=demo", "limit=2", "retriever=minilm")
    refused = kgqa(*searching, f"retriever.encoder.model={folder}/encoder")
    assert "retriever.encoder.model was trained on 1" in refused.err
    judged = kgqa(*ASKED[:3], "limit=2", "judge=three_way", "roles.judge=+evaluator", *QUICK)
    assert "roles.judge=+evaluator was trained on 1" in judged.err


def test_a_template_that_has_changed_since_is_told(kgqa: Kgqa) -> None:
    folder = artefact()
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for templates, told in (
        ({"safe/judge": template_hash("safe/judge")}, []),
        ({"safe/judge": "0" * 16}, ["safe/judge"]),
        ({"gone/with_it": "0" * 16}, ["gone/with_it"]),
    ):
        manifest["examples"]["templates"] = templates
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        ran = kgqa(*ASKED, "limit=1")
        assert ran.code == 0, ran.err
        said = [line for line in ran.out.splitlines() if "was trained with another template" in line]
        assert [line.split("template ")[1].partition(". ")[0] for line in said] == told


def trained_on(*questions: tuple[str, str, str]) -> TrainedWith:
    hashes = hash_questions(questions)
    return TrainedWith(question_hashes=tuple(hashes), text_hashes=tuple(hashes.values()))


def test_questions_are_known_by_data_set_and_id_or_by_their_words() -> None:
    asked = [Question(str(n), f"What is {n}?", ("it",)) for n in range(4)]
    known = trained_on(("mine", "0", asked[0].text), ("other", "1", asked[1].text))
    moved = [Question("9", "what  is 2?", ("it",))]
    assert count_leaks({"key": known}, "mine", asked) == {"key": 2}
    assert count_leaks({"key": known}, "mine", asked[2:]) == {}
    assert count_leaks({"key": trained_on(("mine", "2", asked[2].text))}, "mine", moved) == {"key": 1}
    assert count_leaks({"key": known.replace(text_hashes=())}, "theirs", asked) == {}
