"""One pool a data set: every method shows the same questions, each in its own form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.config.files import load_node
from kgqa.datasets.demonstrations import load_thoughts
from kgqa.errors import DataError
from kgqa.methods.steps.examples import Example
from kgqa.prompting import render_dry_run_reply
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Question

METHODS = (
    "retrieve_read", "ircot", "self_ask", "react", "iter_retgen", "sg_prompt", "ge_reasoning", "era_cot",
)  # fmt: skip
FAMILIES = ("hotpotqa", "2wiki", "musique", "iirc")
BIRCH = Passage.of("Birch", "Birch is a book of 1901 by Alder.")
QUESTION = Question("q", "When did Birch appear?", ("1901",), (BIRCH,), pinned=(Passage.of("Elm", "Elm read Birch."),))


def prompts(method: Any) -> list[str]:
    """All that a method asks for one question."""
    asked: list[str] = []

    def reply(call: Call[Any]) -> Any:
        if isinstance(call, Search):
            return (BIRCH,)
        if isinstance(call, CountTokens):
            return len(call.text.split())
        assert isinstance(call, Generate)
        asked.append(call.prompt.messages[0].content)
        return Completion(render_dry_run_reply(call.prompt, len(asked)))

    drive(method.answer(QUESTION), reply)
    return asked


def questions_shown(method: str, family: str, *changes: str) -> set[str]:
    overrides = [f"method={method}", f"method.few_shot_path={family}", "method.demonstration_count=4", *changes]
    asked = "\n".join(prompts(build(compose(overrides)["method"], "method")))
    return {each.question for each in load_thoughts(family) if each.question in asked}


@pytest.mark.parametrize("family", ["2wiki", "iirc"])
def test_every_method_shows_the_same_questions(family: str) -> None:
    shown = {method: questions_shown(method, family) for method in METHODS}
    assert len(shown["react"]) == 4
    assert {frozenset(questions) for questions in shown.values()} == {frozenset(shown["react"])}


def test_the_pool_is_that_of_the_data_set() -> None:
    families = {name: load_node("dataset", name)["family"] for name in DATASETS}
    assert families == DATASETS
    raw = {method: load_node("method", method)["few_shot_path"] for method in METHODS}
    assert set(raw.values()) == {"${dataset.family}"}


DATASETS = {
    "hotpotqa": "hotpotqa", "hotpotqa_fullwiki": "hotpotqa", "2wiki": "2wiki", "musique": "musique", "iirc": "iirc",
    "demo": "musique", "folder": "hotpotqa", "pdf": "hotpotqa", "nq": "hotpotqa", "flashrag": "hotpotqa",
}  # fmt: skip


@pytest.mark.parametrize("method", ["self_ask", "react", "sg_prompt", "ge_reasoning", "era_cot"])
def test_questions_without_what_a_method_shows_are_refused(method: str, tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(
        '{"question": "Who?", "answer": "A", "thoughts": ["So the answer is: A."], '
        '"passages": [{"title": "T", "text": "A."}]}\n'
    )
    node = compose([f"method={method}", f"method.few_shot_path={file}"])["method"]
    with pytest.raises(DataError, match=r"own.jsonl: the demonstration 'Who\?' has no '(steps|triples)'"):
        build(node, "method")


@pytest.fixture(scope="module")
def film() -> Example:
    return Example(next(each for each in load_thoughts("2wiki") if "The Painted Tollgate" in each.question))


def test_the_graph_of_a_question_names_nothing_that_has_to_be_found(film: Example) -> None:
    assert list(map(str, film.masked)) == [
        "<The Painted Tollgate; director; ?1>",
        "<?1; date of birth; ?2>",
        "<Midnight at Orbury; director; ?3>",
        "<?3; date of birth; ?4>",
    ]
    assert str(film.filled[3]) == "<Patrice Vaucelin; date of birth; 21 July 1926>"


@pytest.mark.parametrize("family", FAMILIES)
def test_transcripts_of_react_differ_in_length_and_show_failed_searches(family: str) -> None:
    transcripts = [Example(each).actions(place % 4) for place, each in enumerate(load_thoughts(family))]
    lengths = {len(actions) for actions in transcripts}
    assert len(lengths) >= 3, lengths
    assert all(actions[-1].action.startswith("Finish[") for actions in transcripts)
    failed = [step for actions in transcripts for step in actions if step.thought.startswith("The passages do not say")]
    assert len(failed) == 10
    searches = [step.observation for actions in transcripts for step in actions[:-1]]
    assert all(observation.count("Title: ") >= 2 for observation in searches)


def test_a_search_that_finds_all_passages_is_the_only_one(film: Example) -> None:
    assert [len(film.actions(place)) for place in range(4)] == [5, 6, 2, 6]
    first, last = film.actions(2)
    assert all(passage.text in first.observation for passage in film.shown.context(0))
    assert last.action == f"Finish[{film.answer}]"


def test_the_documented_record_has_all_that_methods_show(tmp_path: Path) -> None:
    documented = Path(__file__).parents[2] / "docs" / "OWN_CODE.md"
    _, _, rest = documented.read_text(encoding="utf-8").partition("## Few-shot examples")
    record = rest.partition("```json\n")[2].partition("```")[0]
    file = tmp_path / "my_pool.jsonl"
    file.write_text(record.replace("\n", ""), encoding="utf-8")
    [shown] = load_thoughts(str(file), needs=("steps", "triples", "implied", "entities"))
    assert shown.steps[0].answer == "Ida Vos"
