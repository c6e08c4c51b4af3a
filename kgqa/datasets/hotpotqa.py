"""HotpotQA (Yang et al., EMNLP 2018), distractor and fullwiki, and 2WikiMultiHopQA (Ho et al., COLING 2020).

2Wiki's files are HotpotQA's format with `evidences` and `answer_id` added. The differences between the datasets
(question types and their hops, the alias file) are in the YAML. A record of 2Wiki:

    {"_id": "q1", "type": "compositional", "question": "Where was the author of Birch born?", "answer": "Cedar",
     "context": [["Birch", ["Birch is a book.", " Alder wrote it."]], ["Alder", ["Alder was born in Cedar."]]],
     "supporting_facts": [["Birch", 1], ["Alder", 0]],
     "evidences": [["Birch", "author", "Alder"], ["Alder", "place of birth", "Cedar"]], "answer_id": "Q1"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, Field, StrictInt

from kgqa.datasets.base import HASHED, ContextDataset
from kgqa.datasets.corpus import join_sentences
from kgqa.datasets.schema import Gold, LocatedQuestions, looks_like, parse_record, plain_title
from kgqa.errors import DataError
from kgqa.types import Hop, Passage, Question
from kgqa.util import fs, jsonio
from kgqa.util.digests import text_digest
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

# + title: support that is not among the passages (fullwiki), so that recall counts it
MISSING = "missing:"


class HotpotRecord(Gold):
    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    # none: a question for open retrieval
    context: tuple[tuple[str, list[str]], ...] = ()
    supporting_facts: tuple[tuple[str, StrictInt], ...] = ()
    type: str = ""
    evidences: tuple[tuple[str, str, str], ...] = ()
    answer_id: str | None = None


class Aliases(BaseModel):
    entity: str = Field(alias="Q_id")
    aliases: list[str] = []
    demonyms: list[str] = []


AUTO = "auto"
# in the official archive of 2Wiki
ALIASES = "id_aliases.json"


@dataclass(frozen=True)
class HotpotQA(ContextDataset):
    """Questions of a HotpotQA or 2Wiki file.

    Gold titles without a passage are in `support` as "missing:<title>", unless the question has no passages. Of two
    passages with a gold title, the one with more supporting sentences is gold, or the first. Supporting sentences out
    of range are ignored. Evidences become hops "subject, relation" → object, with the passage titled like the subject.
    """

    hops: Annotated[Mapping[str, Count], Setting("Number of hops per question type.")]
    aliases: Annotated[
        str | None,
        Setting(
            "File of further names of the answers. auto: id_aliases.json if it is there. null: none."
        ),
        HASHED,
    ] = None

    @property
    def file(self) -> Path:
        """Return the data file; raise a DataError also if the alias file is missing."""
        file = super().file
        self._alias_file(file)
        return file

    @property
    def sha256(self) -> str:
        """Return the sha256 of the data file, or with an alias file that of both hashes."""
        aliases = self._alias_file(self.file)
        return text_digest(f"{super().sha256}\n{fs.sha256(aliases)}") if aliases else super().sha256

    def records(self, file: Path) -> LocatedQuestions:
        aliases = self._read_aliases(file)
        for where, raw in jsonio.stream_records(file):
            record = parse_record(HotpotRecord, raw, where)
            if record.type and record.type not in self.hops:
                raise DataError(
                    f"{where}: type={record.type!r}: {self.name} has {', '.join(self.hops)}. "
                    f"Name the dataset of this file (it looks like {looks_like(raw)}), "
                    f"or add the type: '+dataset.hops.{record.type}=2'"
                )
            answers = record.golds(where, aliases.get(record.answer_id or "", ()))
            yield where, _question(record, answers, self.hops.get(record.type))

    def _read_aliases(self, file: Path) -> dict[str, list[str]]:
        """Return other names of the answers by Wikidata id, demonyms last, as 2Wiki's evaluation (v1.1) uses them."""
        aliases = self._alias_file(file)
        records = jsonio.stream_records(aliases) if aliases else ()
        entries = [parse_record(Aliases, record, where) for where, record in records]
        return {entry.entity: [*entry.aliases, *entry.demonyms] for entry in entries}

    def _alias_file(self, file: Path) -> Path | None:
        """Return the alias file: the path itself, next to the questions, or in the folders for data."""
        if self.aliases is None:
            return None
        folders = [file.parent, *self.folders]
        if self.aliases == AUTO:
            return next((path for folder in folders if (path := folder / ALIASES).is_file()), None)
        return self.find("aliases", self.aliases, folders)

    @property
    def missing_golds(self) -> str:
        """Return "without aliases" if the dataset has an alias file that is not there, otherwise ""."""
        return "without aliases" if self.aliases == AUTO and not self._alias_file(self.file) else ""


def _question(record: HotpotRecord, answers: tuple[str, ...], hops: int | None) -> Question:
    passages = tuple(join_sentences(title, sentences) for title, sentences in record.context)
    by_title = {passage.title: passage.id for passage in reversed(passages)}
    facts = [(plain_title(title), sentence) for title, sentence in record.supporting_facts]
    gold = _gold_passages(facts, passages)
    return Question(
        id=record.id,
        text=record.question,
        answers=answers,
        passages=passages,
        support=frozenset(
            passage.id if passage else MISSING + title for title, passage in gold.items()
        ),
        facts=tuple(
            (passage.id, passage.sentences[sentence].strip())
            for title, sentence in facts
            if (passage := gold.get(title))
            and sentence < len(passage.sentences)
            and passage.sentences[sentence].strip()
        ),
        support_titles=record.gold_titles(title for title, _ in facts),
        hops=hops,
        type=record.type,
        decomposition=tuple(
            Hop(f"{subject.strip()}, {relation}", value, by_title.get(subject.strip(), ""))
            for subject, relation, value in record.evidences
        ),
    )


def _gold_passages(
    facts: list[tuple[str, int]], passages: tuple[Passage, ...]
) -> dict[str, Passage | None]:
    """Return the gold passage by title: that with most of the title's supporting sentences, None if there is none."""
    gold: dict[str, Passage | None] = {}
    for title in dict.fromkeys(title for title, _ in facts) if passages else ():
        named = [passage for passage in passages if passage.title == title]
        sentences = [sentence for other, sentence in facts if other == title]
        gold[title] = max(
            named,
            key=lambda passage: sum(number < len(passage.sentences) for number in sentences),
            default=None,
        )
    return gold
