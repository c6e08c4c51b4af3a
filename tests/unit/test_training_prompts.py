"""What a model is trained with is what it is asked, byte for byte: chat, completion and prefill, any rendering."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kgqa.artifacts.examples import Example, Source
from kgqa.calls import Call, CountTokens, Generate
from kgqa.config import building as parts
from kgqa.config.composing import compose
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.thinking import Thinking
from kgqa.methods.kgp import Kgp
from kgqa.methods.safe import Safe
from kgqa.methods.steps.safe_verdict import CORRECT
from kgqa.testing import drive
from kgqa.training.collect.facts import NextFacts
from kgqa.types import Completion, Hop, Passage, Question
from tests.unit.test_chat import CHATML
from tests.unit.test_safe_rules import BRIDGE, configured

TEMPLATES = [
    ChatTemplate("{{ bos_token }}" + CHATML, "<s>", "</s>", completion_bos=True),
    ChatTemplate(CHATML, "", "</s>", completion_bos=False, thinking=Thinking()),
    ChatTemplate(None, "<s>", "</s>", completion_bos=True),  # a base model
]
every_template = pytest.mark.parametrize("template", TEMPLATES)


def rendered(template: ChatTemplate, example: Example) -> str:
    """As for training: only the prompt and the role are known."""
    return template.render(Generate(example.prompt, 1, role=example.role))


@every_template
def test_safes_evaluator_is_asked_what_it_was_trained_with(template: ChatTemplate) -> None:
    recipe, method = configured(balance="all")
    made = recipe.collect([Source("mine", [BRIDGE], method)])
    right = [example for example in made if isinstance(example, Example) and example.label == CORRECT]
    steps = [e.prompt.messages[0].content.rpartition("Step to judge: ")[2].partition(": ")[2] for e in right]
    asked: list[Generate] = []

    def world(call: Call[Any]) -> Any:
        if isinstance(call, CountTokens):
            return 1
        assert isinstance(call, Generate)
        if call.role == "feedback":
            asked.append(call)
            return Completion(f" {right[len(asked) - 1].target}")
        return Completion(f" {steps[len(asked)]}")

    assert isinstance(method, Safe)
    answer = drive(replace(method, feedback="model").answer(BRIDGE), world)
    assert answer.text == BRIDGE.answers[0]
    assert [template.render(call) for call in asked] == [rendered(template, example) for example in right]


@every_template
@pytest.mark.parametrize("agent", ["t5", "llama"])
def test_kgps_agent_is_asked_what_it_was_trained_with(template: ChatTemplate, agent: Any) -> None:
    first, second = Passage.of("Reed Lake", "Ada Holm wrote it."), Passage.of("Ada Holm", "She was born in Gorm.")
    hops = (Hop("Who wrote Reed Lake?", "Ada Holm", first.id), Hop("Where was #1 born?", "Gorm", second.id))
    question = Question("q", "Where was the author of Reed Lake born?", ("Gorm",), (first, second), decomposition=hops)
    method = parts.method(compose(["method=kgp"])["method"])
    assert isinstance(method, Kgp)
    recipe = NextFacts({}, 0.1, 0, agent)
    (example,) = (made for made in recipe.collect([Source("mine", [question], method)]))
    assert isinstance(example, Example)
    asked: list[Generate] = []

    def world(call: Call[Any]) -> Any:
        assert isinstance(call, Generate)
        asked.append(call)
        return Completion(example.target)

    written = drive(replace(method, agent=agent).request_evidence(question, (first,), Counter()), world)
    assert written == example.target == second.text
    assert template.render(asked[0]) == rendered(template, example)
