"""The facts that a question needs, in reading order. KGP's agents and MDR are trained on them."""

from __future__ import annotations

from collections.abc import Sequence

from kgqa.retrieval.graphs.keywords import bare_title
from kgqa.types import Passage, Question


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
    steps = [id_ for id_ in dict.fromkeys(hop.passage_id for hop in question.decomposition) if id_ in passages]
    cited = _sentences(question)
    if not cited:
        return tuple(passages[id_] for id_ in steps)
    named = [id_ for id_ in steps if id_ in cited]
    order = named if len(named) == len(cited) else _reading_order(question, [passages[id_] for id_ in cited])
    return tuple(passages[id_] for id_ in order)


def is_comparison(question: Question) -> bool:
    """Return whether its facts have no order."""
    return question.type == "comparison"


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
    if len(cited) != 2 or is_comparison(question):
        return order
    first, second = cited
    holding = [question.answers[0] in f"{passage.title} {passage.text}" for passage in cited]
    named = [bare_title(first.title) in second.text, bare_title(second.title) in first.text]
    last = holding if holding[0] != holding[1] else named
    return order[::-1] if last == [True, False] else order
