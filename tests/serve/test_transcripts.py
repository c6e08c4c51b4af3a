"""Released transcripts of R1-Searcher, repeated by the same agent outside of kgqa, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from kgqa.calls import Call, CountTokens, Generate, Program, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.engines.scripted import Scripted
from kgqa.extras.serve.server import Server
from kgqa.extras.serve.session import AgentSession
from kgqa.methods.search_agent import SearchAgent
from kgqa.testing import drive
from kgqa.types import Completion, Passage
from tests.engines.asking import ask
from tests.golden import test_search_transcripts as released
from tests.serve.worlds import EVERYTHING


class Replay:
    """Replies as a transcript has them: texts of the model, and the passages of its searches."""

    def __init__(self) -> None:
        self.engine: Scripted | None = None
        self.results: Iterator[tuple[Passage, ...]] = iter(())

    def __call__(self, call: Call[Any]) -> Any:
        if isinstance(call, Search):
            return next(self.results)
        assert isinstance(call, Generate)
        (reply,) = ask(self.engine, [call])
        return reply


def send(client: requests.Session, address: str, call: Call[Any]) -> Any:
    """Send a call of the agent as a program of another author would, and return its reply."""
    if isinstance(call, CountTokens):
        return len(call.text)
    if isinstance(call, Search):
        body = {"queries": [call.query], "topk": call.k}
        (results,) = client.post(f"{address}/retrieve", json=body, timeout=60).json()["result"]
        return tuple(Passage.of(each["title"], each["text"]) for each in results)
    assert isinstance(call, Generate)
    assert call.prompt.form == "completion"
    body = {
        "prompt": call.prompt.messages[0].content,
        "max_tokens": call.max_tokens,
        "temperature": call.temperature,
        "stop": list(call.stop),
    }
    (choice,) = client.post(f"{address}/v1/completions", json=body, timeout=60).json()["choices"]
    return Completion(choice["text"], choice["finish_reason"], stopped_by=choice["stop_reason"])


@pytest.mark.parametrize(("name", "count", "form", "separator"), released.CASES)
def test_transcripts_are_repeated_over_http(
    name: str, count: int, form: str, separator: str, tmp_path: Path
) -> None:
    method: SearchAgent = build(compose(["method=r1_searcher"])["method"], "method")
    agent = replace(method, prompt="search_agent/r1_searcher", passage=form, scope="own")
    replay, repeated = Replay(), 0

    def start(program: Program[Any]) -> None:
        drive(program, replay)

    session, server = AgentSession(start, EVERYTHING), Server()
    server.sessions.add(session)
    try:
        address = f"{server.open()}/s/{session.token}"
        with requests.Session() as client:
            for row in released.read_some_rows(f"r1searcher_{name}.jsonl.gz"):
                question, results = released._question(row, separator)
                prompt = agent.continue_prompt(question, "", ()).messages[0].content
                replay.engine = released._engine(
                    prompt, row["gen_text_store"], tmp_path / "rules.jsonl"
                )
                replay.results = iter(results)
                answer = drive(agent.answer(question), partial(send, client, address))
                released._check_answer(row, answer, len(results))
                repeated += 1
    finally:
        server.close()
    assert repeated == -(-count // released.STEP)
