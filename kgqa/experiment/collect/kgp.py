"""KGP's agents learn the next fact from the question and the facts so far (Wang et al., supplement 8.1, Listing 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kgqa.constraints import Share
from kgqa.errors import ConfigError
from kgqa.examples import Dropped, Example, Made, Origin, Source
from kgqa.experiment.collect.facts import ordered_facts
from kgqa.methods.kgp import Kgp
from kgqa.types import Question

FEW = "fewer than two facts in an order"


@dataclass(frozen=True)
class NextFacts:
    """Fields as in conf/collect/kgp.yaml, which cites the source of each value."""

    sources: Mapping[str, str]
    agent: Literal["t5", "llama"]
    held_out: Share
    seed: int

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """An example for each fact but the first."""
        for source in sources:
            if not isinstance(source.method, Kgp):
                raise ConfigError("method: these examples are asked as method=kgp asks; leave method= out")
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
