"""The facts that a question needs, in the order a person would need them; what KGP's agents and MDR learn from."""

from __future__ import annotations

from collections.abc import Sequence

from kgqa.retrieval.graphs.keywords import bare_title
from kgqa.types import Passage, Question


def ordered_facts(question: Question) -> tuple[str, ...]:
    """What supports the answer; fewer than two where the data does not give it.

    Supporting sentences, those of one passage joined (HotpotQA, 2Wiki), else whole passages (MuSiQue).
    """
    sentences = _sentences(question)
    passages = ordered_passages(question)
    return tuple(" ".join(sentences.get(passage.id, ())) or passage.wording for passage in passages)


def ordered_passages(question: Question) -> tuple[Passage, ...]:
    """The passages that facts are in: those of the decomposition, each where it is first needed, where it names all
    that are cited (MuSiQue, 2Wiki), else the cited ones by `_reading_order` (HotpotQA)."""
    passages = {passage.id: passage for passage in question.passages}
    steps = [id_ for id_ in dict.fromkeys(hop.passage_id for hop in question.decomposition) if id_ in passages]
    cited = _sentences(question)
    if not cited:
        return tuple(passages[id_] for id_ in steps)
    named = [id_ for id_ in steps if id_ in cited]
    order = named if len(named) == len(cited) else _reading_order(question, [passages[id_] for id_ in cited])
    return tuple(passages[id_] for id_ in order)


def compares(question: Question) -> bool:
    """Whether its facts are needed in no order."""
    return question.type == "comparison"


def _sentences(question: Question) -> dict[str, list[str]]:
    """By passage, in the order in which the passages are cited."""
    sentences: dict[str, list[str]] = {}
    for passage_id, sentence in question.facts:
        sentences.setdefault(passage_id, []).append(sentence.strip())
    return sentences


def _reading_order(question: Question, cited: Sequence[Passage]) -> list[str]:
    """Of two passages the one with the answer comes last; where both or neither have it, the one the other names.

    So MDR orders HotpotQA's bridge questions (facebookresearch/multihop_dense_retrieval, whose files KGP's agents are
    trained on: supplement 8.1); it knows hyperlinks, we look for the title. Otherwise in the file's order.
    """
    order = [passage.id for passage in cited]
    if len(cited) != 2 or compares(question):
        return order
    first, second = cited
    holding = [question.answers[0] in f"{passage.title} {passage.text}" for passage in cited]
    named = [bare_title(first.title) in second.text, bare_title(second.title) in first.text]
    last = holding if holding[0] != holding[1] else named
    return order[::-1] if last == [True, False] else order
