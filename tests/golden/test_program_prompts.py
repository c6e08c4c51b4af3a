"""The first prompt of every template that a configured method uses, compared with texts of `programs/`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest

from kgqa.artifacts.examples import Recipe
from kgqa.calls import Call, CountTokens, Facts, Generate, Program, Rank, Search
from kgqa.config import building as parts
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.extras.training.collect.safe import JudgedSteps
from kgqa.extras.training.collect.safe_teacher import Teacher
from kgqa.methods.safe import Safe
from kgqa.methods.steps.safe_verdict import CORRECT
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Prompt, Question
from tests.composed import built_method, composed_node
from tests.golden.texts import check_names, check_text

OPERA = Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "Asbjarne Lyngholt was born in Fauskenes.")
QUESTION = Question(
    "q",
    "In which town was the composer of The Herring Queen born?",
    ("Fauskenes",),
    (OPERA, COMPOSER),
)
BY = "<The Herring Queen; composer; Asbjarne Lyngholt>"
STEP = " According to Passage 1, Asbjarne Lyngholt composed The Herring Queen. (Attribution)"
VERDICT = f'{{"error_type": "{CORRECT}", "diagnosis": "Passage 1 says so.", "guidance": "Find the birthplace."}}'
TOOL_CALLS = (
    '<tool_call>{"name": "semantic_search", "arguments": {"query": "composer of The Herring Queen"}}</tool_call>\n'
    '<tool_call>{"name": "read_chunk", "arguments": {"chunk_ids": [2]}}</tool_call>'
)
TRIPLES = {"knowtrace/explore": " No\n- The Herring Queen | composer", "knowtrace/complete": BY}
REPLIES: dict[str, dict[str, str]] = {
    "knowtrace": TRIPLES,
    "knowtrace method.memory=texts": TRIPLES
    | {"knowtrace/rewrite": " Asbjarne Lyngholt composed it."},
    "cot": {"cot/answer": " Asbjarne Lyngholt composed it.\nAnswer: Fauskenes"},
    "iter_retgen": {"iter_retgen/answer": " He did.\nAnswer: Fauskenes"},
    "self_ask": {"self_ask/ask": " Who composed The Herring Queen?"},
    "react method.max_steps=1": {"react/step": " I search.\nAction 1: Search[The Herring Queen]"},
    "sg_prompt": {"sg_prompt/extract": BY, "sg_prompt/answer": "\nAnswer: Fauskenes"},
    "ge_reasoning": {
        "ge_reasoning/parse": "<The Herring Queen; composer; ?1>",
        "ge_reasoning/ask": " Who composed The Herring Queen?",
        "ge_reasoning/fill": " Asbjarne Lyngholt",
        "ge_reasoning/confidence": " 9",
        "ge_reasoning/answer": "\nAnswer: Fauskenes",
    },
    "era_cot": {
        "era_cot/entities": "The Herring Queen (work)\n- Fauskenes (place)",
        "era_cot/explicit": BY,
        "era_cot/implicit": "<The Herring Queen's composer; born in; Fauskenes>",
        "era_cot/score": " 9",
        "era_cot/answer": "\nAnswer: Fauskenes",
    },
    **{
        name: {f"search_agent/{prompt}": f"I search. {query}composer of The Herring Queen"}
        for name, prompt, query in (
            ("search_agent method.max_turns=1", "search_r1", "<search>"),
            ("r1_searcher method.max_turns=1", "r1_searcher", "<|begin_of_query|>"),
            ("research method.max_turns=1", "research", "<search>"),
        )
    },
    **{
        f"{name} method.max_turns=1": {
            f"search_agent/{name}": "I search. <|begin_search_query|>composer of The Herring Queen",
            "search_agent/read": "He is.\n**Final Information**\nAsbjarne Lyngholt composed it.",
        }
        for name in ("search_o1", "simple_deep_searcher")
    },
    "tool_agent method.max_turns=1": {"tool_agent/agent": TOOL_CALLS},
    "corag method.max_steps=2": {
        "corag/query": "Query 1: Who composed The Herring Queen?",
        "corag/sub_answer": "Asbjarne Lyngholt",
        "corag/answer": "Fauskenes",
    },
    "safe": {"safe/step": STEP, "safe/judge": VERDICT, "safe/conclude": " Fauskenes"},
}


PLAN = [
    ("Attribution", "Find the composer"),
    ("Attribution", "Find the town"),
    ("Logical", "Say which it is"),
]
CLAIMS = [
    ("Asbjarne Lyngholt composed it", 1),
    ("he was born in Fauskenes", 2),
    ("Step 2 holds the town", 0),
]
AGREED = '{"agree": true, "why": "so it is"}'
TEACHER = {
    "teach/plan": json.dumps({"plan": [{"kind": kind, "do": do} for kind, do in PLAN]}),
    "teach/solve": json.dumps(
        {"steps": [{"claim": claim, "passage": number} for claim, number in CLAIMS]}
    ),
    "teach/check": AGREED,
    "teach/corrupt": '{"claim": "he was born in Oslo", "passage": 2}',
    "teach/feedback": '{"diagnosis": "Passage 2 says Fauskenes.", "guidance": "Take the town from Passage 2."}',
    "teach/audit": AGREED,
    "teach/first_error": '{"step": 1, "error_type": "Off-topic", "diagnosis": "no", "guidance": "Ask for the town."}',
}
FACTS = (
    ("the herring queen", "composed by", "asbjarne lyngholt"),
    ("asbjarne lyngholt", "born in", "fauskenes"),
)
RETRIEVAL = {
    "openie/entities": '{"named_entities": ["The Herring Queen", "Asbjarne Lyngholt"]}',
    "openie/triples": '{"triples": []}',
    "hipporag/filter": "{}",
    "raptor/summarize": "They are places.",
    "lightrag/extract": '{"entities": [{"name": "Ekelby", "description": "a town"}]}',
    "lightrag/glean": '{"entities": [], "relationships": []}',
    "lightrag/keywords": "{}",
}


def record(program: Program[Any], replies: Mapping[str, str]) -> dict[str, Prompt]:
    """The last prompt of each template: it holds what earlier replies added."""
    asked: dict[str, Prompt] = {}

    def reply(call: Call[Any]) -> Any:
        match call:
            case Search():
                return (OPERA, COMPOSER)
            case Facts():
                return FACTS
            case CountTokens():
                return len(call.text.split())
            case Rank():
                return (0.0,) * len(call.texts)
            case Generate():
                asked[call.prompt.name] = call.prompt
                return Completion(replies[call.prompt.name])
        raise AssertionError(call)

    drive(program, reply)
    return asked


@cache
def prompts(method: str) -> dict[str, Prompt]:
    name, *changes = method.split()
    program = built_method(name, *(change.removeprefix("method.") for change in changes)).answer(
        QUESTION
    )
    return record(program, REPLIES[method])


@cache
def taught() -> dict[str, Prompt]:
    """The prompts of SAFE's teacher about the question, and about a wrong answer to it."""
    config = compose(["collect=safe"])
    recipe, method = (
        parts.build_part(config["collect"], "collect", Recipe),
        parts.method(config["method"]),
    )
    assert isinstance(recipe, JudgedSteps)
    assert isinstance(method, Safe)
    teacher = Teacher(replace(method, passages=2), replace(recipe, errors_each=1, correct_each=1))
    question = replace(QUESTION, support=frozenset(passage.id for passage in QUESTION.passages))
    verdict = {
        "error_type": CORRECT,
        "diagnosis": "Passage 1 says so.",
        "guidance": "Answer with her opera.",
    }
    attempts = [{"step": 1, "text": STEP.strip(), "accepted": True, "verdict": verdict}]
    hard_case = teacher.hard_case(question, "The Herring Queen", attempts)
    return record(teacher.teach(question, random.Random(0)), TEACHER) | record(hard_case, TEACHER)


@cache
def of_retrieval() -> dict[str, Prompt]:
    """The two prompts of OpenIE about a passage, HippoRAG 2's filter of facts and RAPTOR's summary of a cluster."""
    kg = {
        key: value
        for key, value in composed_node("kg", "openie").items()
        if key != "require_existing"
    }
    hipporag = build(composed_node("retriever", "hipporag"), "retriever")
    raptor = build(composed_node("retriever", "raptor") | {"dimensions": 1}, "retriever")
    summaries = raptor.expand([OPERA, COMPOSER, OPERA], None, lambda _: None)
    lightrag = build(composed_node("retriever", "lightrag"), "retriever")
    programs = (
        lightrag.expand([OPERA], None, lambda _: None),
        lightrag.search(Search(QUESTION.text, 5)),
        build(kg, "kg").extract(OPERA),
        hipporag.search(Search(QUESTION.text, 5)),
        summaries,
    )
    return {
        name: prompt for program in programs for name, prompt in record(program, RETRIEVAL).items()
    }


def program_of(method: str) -> str:
    return method.partition(" ")[0] + ("_texts" if "texts" in method else "")


CASES: dict[str, Callable[[], Prompt]] = {
    f"{program_of(method)}__{name.partition('/')[2]}": partial(
        lambda *case: prompts(case[0])[case[1]], method, name
    )
    for method, replies in REPLIES.items()
    for name in replies
}
CASES |= {name.replace("/", "__"): partial(lambda name: taught()[name], name) for name in TEACHER}
CASES |= {
    name.replace("/", "__"): partial(lambda name: of_retrieval()[name], name) for name in RETRIEVAL
}


@pytest.mark.parametrize("name", CASES)
def test_a_prompt_is_the_golden_text(name: str) -> None:
    check_text("programs", name, CASES[name]())
    check_names("programs", CASES)
