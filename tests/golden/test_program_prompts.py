"""The first prompt of every template that a configured method asks, compared with texts under `tests/golden/programs/`.

After an intended change, write the texts anew with `KGQA_UPDATE_GOLDEN=1 pytest tests/golden/test_program_prompts.py`
and read the difference.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.examples import Recipe
from kgqa.calls import Call, CountTokens, Facts, Generate, Rank, Search
from kgqa.config import building as parts
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.methods.safe import Safe
from kgqa.methods.safe_teaching import Teacher
from kgqa.methods.steps.safe_verdict import CORRECT
from kgqa.testing import drive
from kgqa.training.collect.safe import JudgedSteps
from kgqa.types import Completion, Passage, Prompt, Question

FOLDER = Path(__file__).parent / "programs"
OPERA = Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "Asbjarne Lyngholt was born in Fauskenes.")
QUESTION = Question("q", "In which town was the composer of The Herring Queen born?", ("Fauskenes",), (OPERA, COMPOSER))
BY = "<The Herring Queen; composer; Asbjarne Lyngholt>"
STEP = " According to Passage 1, Asbjarne Lyngholt composed The Herring Queen. (Attribution)"
VERDICT = f'{{"error_type": "{CORRECT}", "diagnosis": "Passage 1 says so.", "guidance": "Find the birthplace."}}'
TOOL_CALLS = (
    '<tool_call>{"name": "semantic_search", "arguments": {"query": "composer of The Herring Queen"}}</tool_call>\n'
    '<tool_call>{"name": "read_chunk", "arguments": {"chunk_ids": [2]}}</tool_call>'
)
REPLIES: dict[str, dict[str, str]] = {
    "knowtrace": {"knowtrace/explore": " No\n- The Herring Queen | composer", "knowtrace/complete": BY},
    "knowtrace method.memory=texts": {
        "knowtrace/explore": " No\n- The Herring Queen | composer",
        "knowtrace/complete": BY,
        "knowtrace/rewrite": " Asbjarne Lyngholt composed it.",
    },
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
    "search_o1 method.max_turns=1": {
        "search_agent/search_o1": "I search. <|begin_search_query|>composer of The Herring Queen",
        "search_agent/read": "He is.\n**Final Information**\nAsbjarne Lyngholt composed it.",
    },
    "simple_deep_searcher method.max_turns=1": {
        "search_agent/simple_deep_searcher": "I search. <|begin_search_query|>composer of The Herring Queen",
        "search_agent/read": "He is.\n**Final Information**\nAsbjarne Lyngholt composed it.",
    },
    "tool_agent method.max_turns=1": {"tool_agent/agent": TOOL_CALLS},
    "corag method.max_steps=2": {
        "corag/query": "Query 1: Who composed The Herring Queen?",
        "corag/sub_answer": "Asbjarne Lyngholt",
        "corag/answer": "Fauskenes",
    },
    "safe": {"safe/step": STEP, "safe/judge": VERDICT, "safe/conclude": " Fauskenes"},
}


PLAN = [("Attribution", "Find the composer"), ("Attribution", "Find the town"), ("Logical", "Say which it is")]
CLAIMS = [("Asbjarne Lyngholt composed it", 1), ("he was born in Fauskenes", 2), ("Step 2 holds the town", 0)]
AGREED = '{"agree": true, "why": "so it is"}'
TEACHER = {
    "teach/plan": json.dumps({"plan": [{"kind": kind, "do": do} for kind, do in PLAN]}),
    "teach/solve": json.dumps({"steps": [{"claim": claim, "passage": number} for claim, number in CLAIMS]}),
    "teach/check": AGREED,
    "teach/corrupt": '{"claim": "he was born in Oslo", "passage": 2}',
    "teach/feedback": '{"diagnosis": "Passage 2 says Fauskenes.", "guidance": "Take the town from Passage 2."}',
    "teach/audit": AGREED,
    "teach/first_error": '{"step": 1, "error_type": "Off-topic", "diagnosis": "no", "guidance": "Ask for the town."}',
}


@cache
def prompts(method: str) -> dict[str, Prompt]:
    """The last prompt of each template: it holds what earlier replies added."""
    asked: dict[str, Prompt] = {}

    def reply(call: Call[Any]) -> Any:
        match call:
            case Search():
                return (OPERA, COMPOSER)
            case CountTokens():
                return len(call.text.split())
            case Rank():
                return (0.0,) * len(call.texts)
            case Generate():
                asked[call.prompt.name] = call.prompt
                return Completion(REPLIES[method][call.prompt.name])
        raise AssertionError(call)

    drive(build(compose(f"method={method}".split())["method"], "method").answer(QUESTION), reply)
    return asked


CASES = {
    f"{method.partition(' ')[0]}{'_texts' if 'texts' in method else ''}__{template.partition('/')[2]}": (
        lambda method=method, template=template: prompts(method)[template]
    )
    for method, replies in REPLIES.items()
    for template in replies
}


@cache
def taught() -> dict[str, Prompt]:
    """What SAFE's teacher is asked of the question, and of a wrong answer to it."""
    config = compose(["collect=safe"])
    recipe, method = parts.build_part(config["collect"], "collect", Recipe), parts.method(config["method"])
    assert isinstance(recipe, JudgedSteps)
    assert isinstance(method, Safe)
    teacher = Teacher(replace(method, passages=2), replace(recipe, errors_each=1, correct_each=1))
    asked: dict[str, Prompt] = {}

    def reply(call: Call[Any]) -> Any:
        assert isinstance(call, Generate)
        asked[call.prompt.name] = call.prompt
        return Completion(TEACHER[call.prompt.name])

    question = replace(QUESTION, support=frozenset(passage.id for passage in QUESTION.passages))
    drive(teacher.teach(question, random.Random(0)), reply)
    verdict = {"error_type": CORRECT, "diagnosis": "Passage 1 says so.", "guidance": "Answer with her opera."}
    attempts = [{"step": 1, "text": STEP.strip(), "accepted": True, "verdict": verdict}]
    drive(teacher.hard_case(question, "The Herring Queen", attempts), reply)
    return asked


CASES |= {name.replace("/", "__"): partial(lambda template: taught()[template], name) for name in TEACHER}


@cache
def extracted() -> dict[str, Prompt]:
    """The two prompts of OpenIE about a passage."""
    node = {key: value for key, value in compose(["kg=openie"])["kg"].items() if key != "require_existing"}
    replies = {
        "openie/entities": '{"named_entities": ["The Herring Queen", "Asbjarne Lyngholt"]}',
        "openie/triples": '{"triples": []}',
    }
    asked: dict[str, Prompt] = {}

    def reply(call: Call[Any]) -> Any:
        assert isinstance(call, Generate)
        asked[call.prompt.name] = call.prompt
        return Completion(replies[call.prompt.name])

    drive(build(node, "kg").extract(OPERA), reply)
    return asked


CASES |= {
    f"openie__{name}": partial(lambda name: extracted()[f"openie/{name}"], name) for name in ("entities", "triples")
}


def filtered(*_: Any) -> Prompt:
    """HippoRAG 2's filter of facts."""
    facts = (("the herring queen", "composed by", "asbjarne lyngholt"), ("asbjarne lyngholt", "born in", "fauskenes"))
    asked: list[Prompt] = []

    def reply(call: Call[Any]) -> Any:
        if isinstance(call, Generate):
            asked.append(call.prompt)
        return facts if isinstance(call, Facts) else Completion("{}") if isinstance(call, Generate) else ()

    drive(build(compose(["retriever=hipporag"])["retriever"], "retriever").search(Search(QUESTION.text, 5)), reply)
    return asked[0]


def summarized(*_: Any) -> Prompt:
    """RAPTOR's summary of a cluster."""
    raptor = build(compose(["retriever=raptor", "retriever.dimensions=1"])["retriever"], "retriever")
    asked: list[Prompt] = []

    def reply(call: Call[Any]) -> Any:
        assert isinstance(call, Generate)
        asked.append(call.prompt)
        return Completion("They are places.")

    drive(raptor.expand([OPERA, COMPOSER, OPERA], None, lambda _: None), reply)
    return asked[0]


CASES |= {"hipporag__filter": filtered, "raptor__summarize": summarized}


@pytest.mark.parametrize("name", CASES)
def test_a_prompt_is_the_golden_text(name: str) -> None:
    case: Callable[[], Prompt] = CASES[name]
    prompt = case()
    shown = "".join(f"=== {message.role}\n{message.content}\n" for message in prompt.messages)
    shown += f"=== prefill\n{prompt.prefill}\n"
    file = FOLDER / f"{name}.txt"
    if os.environ.get("KGQA_UPDATE_GOLDEN"):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


def test_no_golden_text_is_left_over() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(CASES)
