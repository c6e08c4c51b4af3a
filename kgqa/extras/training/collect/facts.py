"""Examples from the facts that a question needs, in reading order: KGP's agents, MDR and DPR (KGP, supplement 8.1)."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from kgqa.artifacts.examples import (
    CallTeacher,
    Dropped,
    ExampleOrigin,
    ExampleSource,
    Made,
    Positive,
    Recipe,
    TrainingExample,
)
from kgqa.methods.kgp import Kgp
from kgqa.methods.kgp_baselines import MdrPairs
from kgqa.retrieval.graphs.keywords import bare_title
from kgqa.types import Passage, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural


@dataclass(frozen=True)
class FactRecipe(Recipe):
    """A recipe that makes the examples of each question by itself."""

    no_example: ClassVar[str] = "fewer than two passages in an order"  # why a question has none

    def collect(
        self, sources: Sequence[ExampleSource], call_teacher: CallTeacher
    ) -> Iterator[Made]:
        """Yield the examples of each question, or why it has none."""
        del call_teacher
        for source in sources:
            for question in source.questions:
                examples = list(self.examples(question, source))
                if not examples:
                    yield Dropped(
                        question.id,
                        "question",
                        self.no_example,
                        ExampleOrigin(source.dataset, 0, "gold"),
                    )
                yield from examples

    @abstractmethod
    def examples(
        self, question: Question, source: ExampleSource
    ) -> Iterator[TrainingExample | Positive]:
        """Yield the examples of one question."""


@dataclass(frozen=True)
class NextFacts(FactRecipe):
    """KGP's agents: the question and the facts so far, then the next fact (Listing 1)."""

    no_example: ClassVar[str] = "fewer than two facts in an order"
    method: ClassVar[type] = Kgp

    agent: Annotated[
        Literal["t5", "llama"],
        Setting(
            "Form of the examples: t5, the instruction before the input | llama, as in Listing 1.",
            paper="supplement 8.1",
        ),
    ] = "t5"

    def examples(self, question: Question, source: ExampleSource) -> Iterator[TrainingExample]:
        """Yield an example for each fact except the first."""
        assert isinstance(source.method, Kgp)
        method, facts = replace(source.method, agent=self.agent), ordered_facts(question)
        for count in range(1, len(facts)):
            yield TrainingExample(
                id=f"{source.dataset}/{question.id}/fact {count + 1}",
                question=question.id,
                role="agent",
                prompt=method.evidence_prompt(question.text, " ".join(facts[:count])),
                target=facts[count].strip(),
                label="fact",
                origin=ExampleOrigin(source.dataset, count + 1, "gold"),
            )


@dataclass(frozen=True)
class PairRecipe(FactRecipe):
    """A recipe of pairs for an encoder. `negatives_each`: number of the question's other passages, at random."""

    negatives_each: Annotated[
        Natural,
        Setting("Random passages of the question as negatives per example.", code="released code"),
    ] = 1

    def pair(
        self,
        question: Question,
        anchor: str,
        passage: Passage,
        label: str,
        origin: ExampleOrigin,
        chance: random.Random,
    ) -> Positive:
        """Return the pair with its negatives."""
        gold = {passage.id for passage in ordered_passages(question)} | question.support
        others = list(
            {
                passage.id: passage for passage in question.passages if passage.id not in gold
            }.values()
        )
        sample = chance.sample(others, min(self.negatives_each, len(others)))
        return Positive(
            id=f"{origin.dataset}/{question.id}/{label.partition(' ')[0]} {origin.place}",
            question=question.id,
            anchor=anchor,
            positive=passage.wording,
            negatives=tuple(each.wording for each in sample),
            label=label,
            origin=origin,
        )

    def chance(self, question: Question) -> random.Random:
        return random.Random(f"{self.seed}/{question.id}")  # noqa: S311 - a sample, not a secret


@dataclass(frozen=True)
class HopPairs(PairRecipe):
    """MDR: the question with the first passage, and both with the second."""

    method: ClassVar[type] = MdrPairs

    hops: Annotated[
        Count,
        Setting(
            "Hops per question. Later hops of MuSiQue are skipped.",
            paper="supplement 8.1: HotpotQA needs two facts",
        ),
    ] = 2

    def examples(self, question: Question, source: ExampleSource) -> Iterator[Positive]:
        """Yield a pair for each hop."""
        assert isinstance(source.method, MdrPairs)
        chance, chain, anchor = (
            self.chance(question),
            list(ordered_passages(question)),
            question.text,
        )
        if question.type == "comparison":  # its facts have no order
            chance.shuffle(chain)
        if len(chain) < 2:
            return
        for hop, passage in enumerate(chain[: self.hops], start=1):
            yield self.pair(
                question,
                anchor,
                passage,
                f"hop {hop}",
                ExampleOrigin(source.dataset, hop, "gold"),
                chance,
            )
            anchor = source.method.second_query(anchor, passage)


@dataclass(frozen=True)
class SupportPairs(PairRecipe):
    """DPR: the question with each supporting passage."""

    no_example: ClassVar[str] = "no supporting passage"

    def examples(self, question: Question, source: ExampleSource) -> Iterator[Positive]:
        """Yield a pair for each supporting passage, in the order of the file."""
        chance = self.chance(question)
        gold = {
            passage.id: passage for passage in question.passages if passage.id in question.support
        }
        for place, passage in enumerate(gold.values(), start=1):
            origin = ExampleOrigin(source.dataset, place, "gold")
            yield self.pair(question, question.text, passage, "support", origin, chance)


def ordered_facts(question: Question) -> tuple[str, ...]:
    """Return the facts that support the answer, or fewer than two if the data has no order.

    Supporting sentences, those of one passage joined (HotpotQA, 2Wiki), else whole passages (MuSiQue).
    """
    sentences = _sentences(question)
    passages = ordered_passages(question)
    return tuple(" ".join(sentences.get(passage.id, ())) or passage.wording for passage in passages)


def ordered_passages(question: Question) -> tuple[Passage, ...]:
    """Return the passages of the facts.

    These are the passages of the decomposition in its order, if it names all cited ones (MuSiQue, 2Wiki), else the
    cited passages by `_reading_order` (HotpotQA).
    """
    passages = {passage.id: passage for passage in question.passages}
    steps = [
        id_
        for id_ in dict.fromkeys(hop.passage_id for hop in question.decomposition)
        if id_ in passages
    ]
    cited = _sentences(question)
    if not cited:
        return tuple(passages[id_] for id_ in steps)
    named = [id_ for id_ in steps if id_ in cited]
    order = (
        named
        if len(named) == len(cited)
        else _reading_order(question, [passages[id_] for id_ in cited])
    )
    return tuple(passages[id_] for id_ in order)


def _sentences(question: Question) -> dict[str, list[str]]:
    """Return the cited sentences by passage, in the order of citation."""
    sentences: dict[str, list[str]] = {}
    for passage_id, sentence in question.facts:
        sentences.setdefault(passage_id, []).append(sentence.strip())
    return sentences


def _reading_order(question: Question, cited: Sequence[Passage]) -> list[str]:
    """Return two passages with the answer's last. If both or neither have it, the one that the other names is last.

    So MDR orders HotpotQA's bridge questions (facebookresearch/multihop_dense_retrieval, whose files KGP's agents are
    trained on: supplement 8.1); it knows hyperlinks, we look for the title. Otherwise in the file's order.
    """
    order = [passage.id for passage in cited]
    if len(cited) != 2 or question.type == "comparison":
        return order
    first, second = cited
    holding = [question.answers[0] in f"{passage.title} {passage.text}" for passage in cited]
    named = [bare_title(first.title) in second.text, bare_title(second.title) in first.text]
    last = holding if holding[0] != holding[1] else named
    return order[::-1] if last == [True, False] else order
