"""The 1,597 released transcripts of R1-Searcher, repeated by our agent with their replies and passages.

Once in this process, and once at a stand-in for a chat server that cannot continue a reply. There, and in
tests/serve, are a third of the transcripts. KGQA_FUZZ=1 sends all of them.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from http.server import BaseHTTPRequestHandler
from itertools import islice
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
from kgqa.types import Answer, Passage, Question
from tests.engines.asking import ask
from tests.http_server import serve_json

FOLDER = Path(os.environ.get("KGQA_DATA", "")) / "field" / "search_agent_transcripts"
STEP = 1 if os.environ.get("KGQA_FUZZ") else 3
DOCUMENTS = re.compile(r"<\|begin_of_documents\|>\n(.*?)<\|end_of_documents\|>", re.DOTALL)
DOCUMENT = re.compile(r"\(\d+\)(.*?)\n(?=\(\d+\)|\Z)", re.DOTALL)
QUERY = re.compile(
    r"<\|begin_of_query\|>((?:(?!<\|begin_of_query\|>).)*?)<\|end_of_query\|>", re.DOTALL
)
# the two corpora of these runs: file, number of transcripts, how a passage is shown, and what separates title and text
FILES = [
    ("2wiki_qwen", 421, "({number}){title}   {text}\n", "   "),
    ("bamboogle_llama", 125, "({number}){title}   {text}\n", "   "),
    ("bamboogle_qwen", 125, "({number}){title}   {text}\n", "   "),
    ("hotpotqa_llama", 463, "({number}){title} Text: {text}\n", " Text: "),
    ("hotpotqa_qwen", 463, "({number}){title} Text: {text}\n", " Text: "),
]
# the larger files need a second each
CASES = [
    pytest.param(*row, id=row[0], marks=[] if "bamboogle" in row[0] else pytest.mark.slow)
    for row in FILES
]
# one transcript was recorded with another answer than in its text
OTHER_ANSWER = ("27 July 1953", "July 27, 1953")


AGENTS = {"default": "method=r1_searcher", "released": "experiment=r1_searcher_released"}


@pytest.mark.parametrize("setting", AGENTS.values(), ids=AGENTS)
@pytest.mark.parametrize(("name", "count", "form", "separator"), CASES)
def test_transcripts_are_repeated_byte_for_byte(
    name: str, count: int, form: str, separator: str, setting: str, tmp_path: Path
) -> None:
    method: SearchAgent = build(compose([setting])["method"], "method")
    agent = replace(method, prompt="search_agent/r1_searcher", passage=form, scope="own")
    queries, expected = [], []
    for row in _read_rows(f"r1searcher_{name}.jsonl.gz"):
        question, results = _question(row, separator)
        start = agent.continue_prompt(question, "", ()).messages[0].content
        engine = _engine(start, row["gen_text_store"], tmp_path / "rules.jsonl")
        answer = drive(agent.answer(question), partial(_reply, engine, iter(results)))
        _check_answer(row, answer, len(results))
        queries.append([query for query, _ in answer.notes["searches"]])
        expected.append(_read_queries(row["gen_text_store"], agent))
    assert queries == expected
    assert len(queries) == count


@pytest.mark.parametrize(("name", "count", "form", "separator"), CASES)
def test_transcripts_are_repeated_at_a_chat_server(
    name: str, count: int, form: str, separator: str
) -> None:
    pytest.importorskip("aiohttp")
    # R1-Searcher's own prompt is plain text
    chat = ["method=r1_searcher", "method.prompt=search_agent/research"]
    agent: SearchAgent = replace(
        build(compose(chat)["method"], "method"), passage=form, scope="own"
    )
    rows = list(read_some_rows(f"r1searcher_{name}.jsonl.gz"))
    transcripts = {row["question"]: row["gen_text_store"] for row in rows}
    with serve_json(partial(_continue, transcripts), {}) as address:
        settings = compose(["engine=openai"])["engine"] | {
            "base_url": f"{address}/v1",
            "served_model": "stand-in",
        }
        with closing(build(settings, "engine", model=_model())) as engine:
            for row in rows:
                question, results = _question(row, separator)
                answer = drive(agent.answer(question), partial(_reply, engine, iter(results)))
                _check_answer(row, answer, len(results))
    assert len(rows) == -(-count // STEP)


def _continue(
    transcripts: Mapping[str, str], handler: BaseHTTPRequestHandler, body: bytes
) -> tuple[int, Any]:
    """Answer as a chat server: write what follows the longest start of the transcript in the user's last message."""
    if handler.command == "GET":
        return 200, {"data": [{"id": "stand-in"}]}
    request = json.loads(body)
    content = request["messages"][-1]["content"]
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    transcript = transcripts[content.partition("\n\nYou have already")[0]]
    start = next(
        transcript[:end]
        for end in reversed(_ends(transcript))
        if content.endswith(transcript[:end])
    )
    text = transcript[len(start) :]
    text = text[
        : min((place for stop in request["stop"] if (place := text.find(stop)) >= 0), default=None)
    ]
    usage = {"prompt_tokens": len(content) // 4 + 1, "completion_tokens": 1}
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    return 200, {"model": "stand-in", "choices": [choice], "usage": usage}


def _question(row: Mapping[str, Any], separator: str) -> tuple[Question, list[tuple[Passage, ...]]]:
    """Return a question, and the passages that each search of its transcript found."""
    results = [
        tuple(Passage.of(*text.split(separator, 1)) for text in DOCUMENT.findall(documents))
        for documents in DOCUMENTS.findall(row["gen_text_store"])
    ]
    pool = tuple({passage.id: passage for result in results for passage in result}.values())
    return Question("q", row["question"], (row["answer"],), pool), results


def _check_answer(row: Mapping[str, Any], answer: Answer, searches: int) -> None:
    assert answer.notes["transcript"] == row["gen_text_store"]
    recorded = row["pred_ans"].strip()
    assert answer.text.strip() == recorded or (answer.text.strip(), recorded) == OTHER_ANSWER
    assert answer.figures["searches"] == searches
    assert set(answer.flags) <= {"repeated_search"}


def _read_queries(transcript: str, agent: SearchAgent) -> list[str]:
    """Return the queries of a transcript as the program sends them, or stripped by default."""
    queries = QUERY.findall(transcript)
    if agent.strip_query:
        return [query.strip() for query in queries]
    return [
        query.replace('"', "").replace("'", "").replace("\t", " ").replace("...", "")
        for query in queries
    ]


def _reply(engine: Any, results: Iterator[tuple[Passage, ...]], call: Call[Any]) -> Any:
    if isinstance(call, CountTokens):
        return engine.count_tokens(call.text)
    if isinstance(call, Search):
        result = next(results)
        assert call.pool is not None
        assert {passage.id for passage in result} <= {passage.id for passage in call.pool}
        return result
    assert isinstance(call, Generate)
    (reply,) = ask(engine, [call])
    return reply


def _engine(prompt: str, transcript: str, file: Path) -> Scripted:
    """Return an engine that continues the transcript where a prompt ends, up to the next documents."""
    # compared by length and end: long patterns are slow
    prompts = {end: prompt + transcript[:end] for end in _ends(transcript)}
    rules = [
        {"match": rf"\A.{{{len(text) - 60}}}{re.escape(text[-60:])}\n\Z", "reply": transcript[end:]}
        for end, text in prompts.items()
    ]
    file.write_text("".join(f"{json.dumps(rule)}\n" for rule in rules), encoding="utf-8")
    return Scripted(_model(), str(file), 0.0, 1)


def _ends(transcript: str) -> list[int]:
    """Return the places at which the model continues."""
    return [0, *(match.end() for match in re.finditer(r"<\|end_of_documents\|>\n\n", transcript))]


@cache
def _model() -> Model:
    model = build(compose(["engine=scripted"])["model"], "model")
    assert isinstance(model, Model)
    return model


def read_some_rows(name: str) -> Iterator[dict[str, Any]]:
    """Yield every third transcript, because 4,000 requests take a minute."""
    return islice(_read_rows(name), 0, None, STEP)


def _read_rows(name: str) -> Iterator[dict[str, Any]]:
    if not (FOLDER / name).is_file():
        pytest.skip(f"no {name}; set KGQA_DATA")
    with gzip.open(FOLDER / name, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
