"""HotpotQA (Yang et al., EMNLP 2018), distractor and fullwiki, and 2WikiMultiHopQA (Ho et al., COLING 2020).

2Wiki's files are HotpotQA's format with `evidences` and `answer_id` added, so one reader reads all three;
what differs between them (question types and their hops, the alias file) is in the YAML.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field, StrictInt

from kgqa.datasets import contexts, files
from kgqa.datasets.base import FileDataset
from kgqa.datasets.schema import Gold, looks_like, parse_record
from kgqa.errors import DataError
from kgqa.types import Hop, Passage, Question
from kgqa.util import fs, jsonio
from kgqa.util.validators import Count

MISSING = "missing:"  # + title: support that is not among the passages (fullwiki), so that recall counts it


class HotpotRecord(Gold):
    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    context: tuple[tuple[str, list[str]], ...] = ()  # none: a question for open retrieval
    supporting_facts: tuple[tuple[str, StrictInt], ...] = ()
    type: str = ""
    evidences: tuple[tuple[str, str, str], ...] = ()
    answer_id: str | None = None


class Aliases(BaseModel):
    entity: str = Field(alias="Q_id")
    aliases: list[str] = []
    demonyms: list[str] = []


@dataclass(frozen=True)
class HotpotQA(FileDataset):
    """Questions of a HotpotQA or 2Wiki file.

    Gold titles without a passage are in `support` as "missing:<title>", unless the question has no passages at all.
    Where two passages share a gold title, the one that has the supporting sentences is gold, the first if both have.
    Supporting sentences out of range are ignored. `hops` comes from the question's type by the table of the config;
    evidences are kept as hops "subject, relation" → object, with the passage whose title is the subject.
    """

    hops: Mapping[str, Count]  # by question type
    aliases: str | None  # 2Wiki's id_aliases.json

    @property
    def file(self) -> Path:
        """Return refused where the alias file is wanted and missing: the questions are not whole without it."""
        file = super().file
        self._alias_file(file)
        return file

    @property
    def sha256(self) -> str:
        """Return the sha256 of the data file; with an alias file, of both hashes one after the other."""
        aliases = self._alias_file(self.file)
        return fs.text_digest(f"{super().sha256}\n{fs.sha256(aliases)}") if aliases else super().sha256

    def records(self, file: Path) -> Iterator[tuple[str, Question | None]]:
        aliases = self._aliases(file)
        for where, raw in jsonio.stream_records(file):
            record = parse_record(HotpotRecord, raw, where)
            if record.type and record.type not in self.hops:
                raise DataError(
                    f"{where}: type={record.type!r}: {self.name} has {', '.join(self.hops)}; "
                    f"name the dataset this file is of (it looks like {looks_like(raw)}), "
                    f"or add the type: '+dataset.hops.{record.type}=2'"
                )
            answers = record.golds(where, aliases.get(record.answer_id or "", ()))
            yield where, _question(record, answers, self.hops.get(record.type))

    def _aliases(self, file: Path) -> dict[str, list[str]]:
        """Return other names of the answers by Wikidata id, demonyms last, as 2Wiki's evaluation program (v1.1) takes
        them.
        """
        aliases = self._alias_file(file)
        lines = jsonio.stream_records(aliases) if aliases else ()
        entries = [parse_record(Aliases, record, where) for where, record in lines]
        return {entry.entity: [*entry.aliases, *entry.demonyms] for entry in entries}

    def _alias_file(self, file: Path) -> Path | None:
        return None if self.aliases is None else files.find_aliases(self.name, self.aliases, file)


def _question(record: HotpotRecord, answers: tuple[str, ...], hops: int | None) -> Question:
    passages = tuple(contexts.of_sentences(title, sentences) for title, sentences in record.context)
    by_title = {passage.title: passage.id for passage in reversed(passages)}
    support = frozenset(_support(record, passages)) if passages else frozenset()
    return Question(
        id=record.id,
        text=record.question,
        answers=answers,
        passages=passages,
        support=support,
        facts=tuple(_facts(record, passages, support)),
        support_titles=record.gold_titles(title for title, _ in record.supporting_facts),
        hops=hops,
        type=record.type,
        decomposition=tuple(
            Hop(f"{subject.strip()}, {relation}", value, by_title.get(subject.strip(), ""))
            for subject, relation, value in record.evidences
        ),
    )


def _support(record: HotpotRecord, passages: tuple[Passage, ...]) -> Iterator[str]:
    cited: dict[str, list[int]] = {}
    for title, sentence in record.supporting_facts:
        cited.setdefault(contexts.plain(title), []).append(sentence)
    for title, sentences in cited.items():
        candidates = [passage for passage in passages if passage.title == title]
        if not candidates:
            yield MISSING + title
            continue
        present = [sum(sentence < len(passage.sentences) for sentence in sentences) for passage in candidates]
        yield candidates[present.index(max(present))].id


def _facts(record: HotpotRecord, passages: tuple[Passage, ...], support: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the supporting sentences of the gold passages, in the order they are cited; blank ones are left out."""
    gold = {passage.title: passage for passage in reversed(passages) if passage.id in support}
    for title, sentence in record.supporting_facts:
        passage = gold.get(contexts.plain(title))
        if passage and sentence < len(passage.sentences) and passage.sentences[sentence].strip():
            yield passage.id, passage.sentences[sentence].strip()
