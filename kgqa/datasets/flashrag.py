"""Question files in FlashRAG's form (Jin et al., 2024): NQ, TriviaQA, PopQA, Bamboogle and about 30 other datasets.

A record:

    {"id": "dev_0", "question": "Who wrote Birch?", "golden_answers": ["Alder", "A. Alder"], "metadata": {}}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from kgqa.datasets.base import FileDataset
from kgqa.datasets.schema import LocatedQuestions, parse_record
from kgqa.errors import DataError
from kgqa.types import Question
from kgqa.util import jsonio

RELEASED = "https://huggingface.co/datasets/RUC-NLPIR/FlashRAG_datasets"


class FlashRAGRecord(BaseModel):
    id: str
    question: str
    golden_answers: list[str]


@dataclass(frozen=True)
class FlashRAG(FileDataset):
    """Questions with gold answers, all of equal rank, and without passages. The corpus is another file.

    Files of multiple-choice questions are rejected: their gold answers are positions. `metadata` is not read.
    """

    @property
    def remedy(self) -> str:
        return f"get it from {RELEASED} (kgqa data list: the files that kgqa downloads)"

    def records(self, file: Path) -> LocatedQuestions:
        for where, raw in jsonio.stream_records(file):
            record = parse_record(FlashRAGRecord, raw, where)
            answers = tuple(
                dict.fromkeys(answer for answer in record.golden_answers if answer.strip())
            )
            if not answers:
                raise DataError(
                    f"{where}: golden_answers={record.golden_answers}: no gold answer. Remove the question, "
                    "or use a split that has answers"
                )
            yield where, Question(id=record.id, text=record.question, answers=answers)
