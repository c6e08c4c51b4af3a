"""The questions of the race, in each runner's form: real ones of HotpotQA where `KGQA_DATA` has them, else made up.

Where more are wanted than there are, a question comes again with a number behind it, so that no call is asked twice.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from scripts.bench_memory import write_questions

REAL = "questions/hotpotqa_dev.json.gz"


@dataclass(frozen=True)
class Files:
    """Of the same questions."""

    dataset: str  # kgqa's name for the form of `asked`
    asked: Path
    questions: Path  # JSONL: id, question
    corpus: Path  # JSONL: id, title, text
    what: str


def written(folder: Path, count: int) -> Files:
    real = Path(os.environ.get("KGQA_DATA") or "data") / REAL
    if real.is_file():
        known = json.loads(gzip.decompress(real.read_bytes()))
        cases = list(_repeated(known, count))
        asked = folder / f"hotpotqa_{count}.json"
        asked.write_text(json.dumps(cases), encoding="utf-8")
        passages = [(title, "".join(text)) for case in known[:count] for title, text in case["context"]]
        dataset, what = "hotpotqa", f"{min(count, len(known))} real ones of HotpotQA"
        rows = [{"id": case["_id"], "question": case["question"]} for case in cases]
    else:
        dataset, what = "musique", f"{count:,} made-up questions in MuSiQue's form"
        asked = write_questions(folder / f"made_up_{count}.jsonl", count)
        read = [json.loads(line) for line in asked.read_text(encoding="utf-8").splitlines()]
        passages = [(each["title"], each["paragraph_text"]) for case in read for each in case["paragraphs"]]
        rows = [{"id": case["id"], "question": case["question"]} for case in read]
    distinct = dict.fromkeys(passages)
    corpus = [{"id": str(number), "title": title, "text": text} for number, (title, text) in enumerate(distinct)]
    files = Files(dataset, asked, folder / f"questions_{count}.jsonl", folder / f"corpus_{count}.jsonl", what)
    for file, lines in ((files.questions, rows), (files.corpus, corpus)):
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return files


def _repeated(cases: list[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    for number, case in zip(range(count), cycle(cases), strict=False):
        turn = number // len(cases)
        again = {"_id": f"{case['_id']}_{turn}", "question": f"{case['question']} ({turn + 1})"} if turn else {}
        yield {**case, **again}
