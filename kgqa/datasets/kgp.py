"""KGP's released collections (Wang et al., AAAI 2024): questions whose documents are split into passages already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kgqa.datasets import contexts, corpus
from kgqa.datasets.base import FileDataset
from kgqa.datasets.hotpotqa import MISSING
from kgqa.datasets.schema import Gold, parse_record
from kgqa.errors import DataError
from kgqa.types import Passage, Question
from kgqa.util import jsonio

RELEASED = "https://github.com/YuWVandy/KG-LLM-MDQA"


class KgpRecord(Gold):
    question: str
    title_chunks: tuple[tuple[str, str], ...]  # title and text of each passage
    supports: tuple[tuple[str, str], ...]  # title and sentence; its sentences are passages of their own, too


@dataclass(frozen=True)
class KgpCollections(FileDataset):
    """Questions of a `test_docs.json`, named by their place in it, each with the passages of its twelve documents.

    A supporting sentence that is no passage is in `support` as "missing:<title>". Passages are the file's own: none is
    split again, and no document is added.
    """

    @property
    def file(self) -> Path:
        try:
            return super().file
        except DataError as error:
            if self.path is not None:
                raise
            raise DataError(
                f"dataset={self.name}: name the authors' file, dataset.path=FILE; see {RELEASED}"
            ) from error

    def records(self, file: Path) -> Iterator[tuple[str, Question | None]]:
        for number, (where, raw) in enumerate(jsonio.stream_records(file)):
            record = parse_record(KgpRecord, raw, where)
            yield where, _question(str(number), record, record.golds(where))

    def read_passages(self) -> Iterator[Passage]:
        if self.corpus is not None:
            return super().read_passages()
        return (passage for question in self.questions() for passage in question.passages)


def _question(id_: str, record: KgpRecord, answers: tuple[str, ...]) -> Question:
    passages = tuple(corpus.distinct(_passage(title, text) for title, text in record.title_chunks))
    known, support = {passage.id for passage in passages}, [_passage(*pair) for pair in record.supports]
    return Question(
        id=id_,
        text=record.question,
        answers=answers,
        passages=passages,
        support=frozenset(gold.id if gold.id in known else MISSING + gold.title for gold in support),
        support_titles=record.gold_titles(title for title, _ in record.supports),
    )


def _passage(title: str, text: str) -> Passage:
    return Passage.of(contexts.plain(title), text.strip())
