"""Examples for KGP's agents: the question and the facts so far, then the next fact (supplement 8.1, Listing 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kgqa.artifacts.examples import Dropped, Example, Made, Origin, Source
from kgqa.errors import ConfigError
from kgqa.methods.kgp import Kgp
from kgqa.training.collect.facts import ordered_facts
from kgqa.types import Question
from kgqa.util.validators import Share

FEW = "fewer than two facts in an order"


@dataclass(frozen=True)
class NextFacts:
    """Fields as in conf/collect/kgp.yaml, which cites the source of each value."""

    sources: Mapping[str, str]
    agent: Literal["t5", "llama"]
    held_out: Share
    seed: int

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """Yield an example for each fact except the first."""
        for source in sources:
            if not isinstance(source.method, Kgp):
                raise ConfigError("method: these examples use the prompts of method=kgp; remove method=")
            method = replace(source.method, agent=self.agent)
            for question in source.questions:
                yield from _examples(method, question, source.dataset)
                advance()


def _examples(method: Kgp, question: Question, dataset: str) -> Iterator[Made]:
    facts = ordered_facts(question)
    if len(facts) < 2:
        yield Dropped(question.id, "question", FEW, Origin(dataset, 0, "gold"))
    for known in range(1, len(facts)):
        yield Example(
            id=f"{dataset}/{question.id}/fact {known + 1}",
            question=question.id,
            role="agent",
            prompt=method.evidence_prompt(question.text, " ".join(facts[:known])),
            target=facts[known].strip(),
            label="fact",
            origin=Origin(dataset, known + 1, "gold"),
        )
