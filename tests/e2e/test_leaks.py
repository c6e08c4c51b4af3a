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
BUT_FIRST = f"ids=[{SECOND},3hop1__demo_03]"


def artefact(ids: Sequence[str] = (), texts: Sequence[str] = (), name: str = "outputs/trained/evaluator/abc") -> Path:
    """As training leaves it: an adapter, and the hashes of the questions in its manifest."""
    folder = Path(name)
    write_lora(folder / "adapter")
    hashes = {"question_hashes": [id_hash("demo", id_) for id_ in ids], "text_hashes": [*map(text_hash, texts)]}
    (folder / "manifest.json").write_text(json.dumps({"examples": hashes}), encoding="utf-8")
    return folder


def test_a_run_over_a_trained_question_stops_with_count_and_key(kgqa: Kgqa) -> None:
    artefact([FIRST])
    asked = ("run", "method=no_context", "dataset=demo", "limit=3", "roles.reader=+evaluator", *QUICK)
    refused = kgqa(*asked)
    assert refused.code == 2
    assert (
        "of 3 questions roles.reader=+evaluator was trained on 1. Scores on training questions are meaningless"
        in refused.err
    )
    assert len(refused.err.strip().splitlines()) == 1
    assert kgqa(*asked, "dry_run=true").code == 2
    assert kgqa(*asked[:3], BUT_FIRST, *asked[4:]).code == 0


def test_what_is_allowed_is_flagged_in_the_headline_and_asked_about_again(kgqa: Kgqa) -> None:
    artefact([FIRST, SECOND])
    asked = ("run", "method=no_context", "dataset=demo", "limit=3", "roles.reader=+evaluator", *QUICK)
    ran = kgqa(*asked, "allow_trained_questions=true")
    assert ran.code == 0, ran.err
    assert ran.json("metrics.json")["trained_questions"] == {"roles.reader=+evaluator": 2}
    assert "TRAINED ON" in ran.out
    report = (ran.folder / "report.md").read_text(encoding="utf-8")
    assert "**roles.reader=+evaluator was trained on 2 of 3 questions.**" in report
    assert kgqa(*asked).code == 2
    assert kgqa("evaluate", str(ran.folder)).code == 2
    assert kgqa("evaluate", str(ran.folder), "allow_trained_questions=true").code == 0


def test_the_same_words_under_another_id_are_the_same_question(kgqa: Kgqa) -> None:
    artefact(texts=["In  which town was the architect of the candle bridge BORN?"])
    refused = kgqa("run", "method=no_context", "dataset=demo", "limit=1", "roles.reader=+evaluator", *QUICK)
    assert "was trained on 1" in refused.err


def test_an_encoder_and_a_judge_are_looked_at_too(kgqa: Kgqa) -> None:
    folder = artefact([FIRST])
    (folder / "encoder").mkdir()
    searching = ("run", "method=retrieve_only", "dataset=demo", "limit=2", "retriever=minilm")
    refused = kgqa(*searching, f"retriever.encoder.model={folder}/encoder")
    assert "retriever.encoder.model was trained on 1" in refused.err
    judged = kgqa(
        "run", "method=no_context", "dataset=demo", "limit=2", "judge=three_way", "roles.judge=+evaluator", *QUICK
    )
    assert "roles.judge=+evaluator was trained on 1" in judged.err


def test_a_template_that_has_changed_since_is_told(kgqa: Kgqa) -> None:
    folder = artefact()
    asked = ("run", "method=no_context", "dataset=demo", "limit=1", "roles.reader=+evaluator", *QUICK)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for templates, told in (
        ({"safe/judge": template_hash("safe/judge")}, []),
        ({"safe/judge": "0" * 16}, ["safe/judge"]),
        ({"gone/with_it": "0" * 16}, ["gone/with_it"]),
    ):
        manifest["examples"]["templates"] = templates
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        ran = kgqa(*asked)
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
