"""The first prompt of every template that a configured method asks, compared with texts under `tests/golden/programs/`.

After an intended change, write the texts anew with `KGQA_UPDATE_GOLDEN=1 pytest tests/golden/test_program_prompts.py`
and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.methods.steps.safe_verdict import CORRECT
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Prompt, Question

FOLDER = Path(__file__).parent / "programs"
OPERA = Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "Asbjarne Lyngholt was born in Fauskenes.")
QUESTION = Question("q", "In which town was the composer of The Herring Queen born?", ("Fauskenes",), (OPERA, COMPOSER))
BY = "<The Herring Queen; composer; Asbjarne Lyngholt>"
STEP = " According to Passage 1, Asbjarne Lyngholt composed The Herring Queen. (Attribution)"
VERDICT = f'{{"error_type": "{CORRECT}", "diagnosis": "Passage 1 says so.", "guidance": "Find the birthplace."}}'
REPLIES: dict[str, dict[str, str]] = {
    "knowtrace": {"knowtrace/explore": " No\n- The Herring Queen | composer", "knowtrace/complete": BY},
    "knowtrace method.memory=texts": {
        "knowtrace/explore": " No\n- The Herring Queen | composer",
        "knowtrace/complete": BY,
        "knowtrace/rewrite": " Asbjarne Lyngholt composed it.",
    },
    "iter_retgen": {"iter_retgen/answer": " He did.\nAnswer: Fauskenes"},
    "self_ask": {"self_ask/ask": " Who composed The Herring Queen?"},
    "react": {"react/step": " I search.\nAction 1: Search[The Herring Queen]"},
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
    "safe": {"safe/step": STEP, "safe/judge": VERDICT, "safe/conclude": " Fauskenes"},
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
