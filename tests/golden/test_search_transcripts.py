"""The 1,597 released transcripts of R1-Searcher, repeated by our agent with their replies and passages."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.engines.scripted import Scripted
from kgqa.engines.weights import Model
from kgqa.methods.search_agent import SearchAgent
from kgqa.testing import drive
from kgqa.types import Passage, Question

FOLDER = Path(os.environ.get("KGQA_DATA", "")) / "field" / "search_agent_transcripts"
DOCUMENTS = re.compile(r"<\|begin_of_documents\|>\n(.*?)<\|end_of_documents\|>", re.DOTALL)
DOCUMENT = re.compile(r"\(\d+\)(.*?)\n(?=\(\d+\)|\Z)", re.DOTALL)
# the two corpora of these runs: file, number of transcripts, how a passage is shown, and what separates title and text
FILES = [
    ("2wiki_qwen", 421, "({number}){title}   {text}\n", "   "),
    ("bamboogle_llama", 125, "({number}){title}   {text}\n", "   "),
    ("bamboogle_qwen", 125, "({number}){title}   {text}\n", "   "),
    ("hotpotqa_llama", 463, "({number}){title} Text: {text}\n", " Text: "),
    ("hotpotqa_qwen", 463, "({number}){title} Text: {text}\n", " Text: "),
]
OTHER_ANSWER = ("27 July 1953", "July 27, 1953")  # one transcript was recorded with another answer than in its text


@pytest.mark.parametrize(("name", "count", "form", "separator"), FILES, ids=[name for name, *_ in FILES])
def test_transcripts_are_repeated_byte_for_byte(
    name: str, count: int, form: str, separator: str, tmp_path: Path
) -> None:
    agent: SearchAgent = replace(build(compose(["method=r1_searcher"])["method"], "method"), passage=form, scope="own")
    repeated = 0
    for row in _read_rows(f"r1searcher_{name}.jsonl.gz"):
        written = row["gen_text_store"]
        results = [
            tuple(Passage.of(*text.split(separator, 1)) for text in DOCUMENT.findall(shown))
            for shown in DOCUMENTS.findall(written)
        ]
        pool = tuple({passage.id: passage for found in results for passage in found}.values())
        question = Question("q", row["question"], (row["answer"],), pool)
        start = agent.continue_prompt(question, "", ()).messages[0].content
        engine = _engine(start, written, tmp_path / "rules.jsonl")
        answer = drive(agent.answer(question), partial(_reply, engine, iter(results)))
        assert answer.notes["transcript"] == written
        recorded = row["pred_ans"].strip()
        assert answer.text == recorded or (answer.text, recorded) == OTHER_ANSWER
        assert answer.figures["searches"] == len(results)
        assert set(answer.flags) <= {"repeated_search"}
        repeated += 1
    assert repeated == count


def _reply(engine: Scripted, results: Iterator[tuple[Passage, ...]], call: Call[Any]) -> Any:
    if isinstance(call, CountTokens):
        return engine.count_tokens(call.text)
    if isinstance(call, Search):
        found = next(results)
        assert call.pool is not None
        assert {passage.id for passage in found} <= {passage.id for passage in call.pool}
        return found
    assert isinstance(call, Generate)
    return engine.answer([call])[0]


def _engine(prompt: str, transcript: str, file: Path) -> Scripted:
    """Return an engine that continues the transcript where a prompt ends, up to the next documents."""
    ends = [0, *(match.end() for match in re.finditer(r"<\|end_of_documents\|>\n\n", transcript))]
    prompts = {end: prompt + transcript[:end] for end in ends}  # compared by length and end: long patterns are slow
    rules = [
        {"match": rf"\A.{{{len(text) - 60}}}{re.escape(text[-60:])}\n\Z", "reply": transcript[end:]}
        for end, text in prompts.items()
    ]
    file.write_text("".join(f"{json.dumps(rule)}\n" for rule in rules), encoding="utf-8")
    return Scripted(_model(), str(file), 0.0, 1)


@cache
def _model() -> Model:
    model = build(compose(["engine=scripted"])["model"], "model")
    assert isinstance(model, Model)
    return model


def _read_rows(name: str) -> Iterator[dict[str, Any]]:
    if not (FOLDER / name).is_file():
        pytest.skip(f"no {name}; set KGQA_DATA")
    with gzip.open(FOLDER / name, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
