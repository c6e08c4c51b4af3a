"""Texts to fine-tune KGP's agent with (supplement 8.1, Listing 1), for `kgqa kgp export-instructions`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kgqa.errors import ConfigError, DataError
from kgqa.experiment.session.experiment import Experiment
from kgqa.methods.kgp import Kgp
from kgqa.retrieval.graphs.keywords import bare_title
from kgqa.types import Passage, Question


@dataclass(frozen=True)
class Instructions:
    lines: list[dict[str, str]]  # each with instruction, input and output
    questions: int  # that they are from
    left_out: int  # questions that name fewer than two facts in order


def instructions(experiment: Experiment) -> Instructions:
    """A line for each fact but the first: instruction, input (question and the facts so far) and output (the fact).

    Raises:
        ConfigError: another method's configuration, or collections, which have no order of facts.
        DataError: no question says in which order its facts are needed.
    """
    method = experiment.method
    if not isinstance(method, Kgp):
        raise ConfigError(f"method={experiment.name('method')}: the texts are for method=kgp; leave method= out")
    if experiment.config.get("collection"):
        raise ConfigError("collection: its passages have no order of facts; leave collection= out")
    lines: list[dict[str, str]] = []
    ordered = 0
    for question in experiment.questions:
        facts = ordered_facts(question)
        ordered += len(facts) > 1
        lines += _lines(question, facts, method.instruction)
    if not lines:
        dataset = experiment.name("dataset")
        raise DataError(f"dataset={dataset}: no question says in which order its facts are needed")
    return Instructions(lines, ordered, len(experiment.questions) - ordered)


def ordered_facts(question: Question) -> tuple[str, ...]:
    """What supports the answer, in the order a person would need it; fewer than two where the data does not give it.

    Supporting sentences, those of one passage joined, by the passages' order (HotpotQA, 2Wiki); else the passages of
    the decomposition, each where it is first needed (MuSiQue).
    """
    passages = {passage.id: passage for passage in question.passages}
    steps = dict.fromkeys(hop.passage_id for hop in question.decomposition if hop.passage_id in passages)
    sentences: dict[str, list[str]] = {}
    for passage_id, sentence in question.facts:
        sentences.setdefault(passage_id, []).append(sentence.strip())
    if not sentences:
        return tuple(passages[passage_id].wording for passage_id in steps)
    named = [passage_id for passage_id in steps if passage_id in sentences]
    order = named if len(named) == len(sentences) else _reading_order(question, [passages[id_] for id_ in sentences])
    return tuple(" ".join(sentences[passage_id]) for passage_id in order)


def _reading_order(question: Question, cited: Sequence[Passage]) -> list[str]:
    """Of two passages the one with the answer comes last; where both or neither have it, the one the other names.

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


def _lines(question: Question, facts: Sequence[str], instruction: str) -> Iterator[dict[str, str]]:
    for known in range(1, len(facts)):
        so_far = f"{question.text} {' '.join(facts[:known])}"
        yield {"instruction": instruction, "input": so_far, "output": facts[known]}
