"""Two runs at once on one cache, with a server that never answers alike: no call is paid for twice."""

from __future__ import annotations

import subprocess
from itertools import count
from pathlib import Path

import pytest

from tests.e2e.processes import started
from tests.engines.misbehaving import Body, Conversation, Misbehaving, prompt, reply

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
RUN = ("run", "limit=12", "model=gpt_4o_mini", "engine=openai", "ranker=lexical", "demonstrations_ranker=lexical")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Misbehaving:
    """Counts, and says another thing each time it is asked."""
    numbers, serving = count(1), Misbehaving()

    def answer(conversation: Conversation, body: Body) -> None:
        serving.answered[prompt(body)] += 1
        conversation.answer(200, reply(body, f"number {next(numbers)}"))

    serving.always = answer
    monkeypatch.setenv("OPENAI_API_KEY", "sk-Tr0ub4dor-and-three")
    monkeypatch.setenv("OPENAI_BASE_URL", serving.url)
    return serving


def predictions(running: subprocess.Popen[str], folder: Path) -> bytes:
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    return (folder / out.strip().splitlines()[-1] / "predictions.jsonl").read_bytes()


def test_two_processes_pay_each_call_once(server: Misbehaving, tmp_path: Path) -> None:
    commands = [[*RUN, "method=trace", f"run_name={name}"] for name in ("one", "two")]
    first = [predictions(running, tmp_path) for running in [started(command, tmp_path) for command in commands]]
    asked = sum(server.answered.values())
    assert asked >= 12
    assert set(server.answered.values()) == {1}
    server.stop()
    again = [predictions(started(command, tmp_path), tmp_path) for command in commands]
    assert again == first
    assert first[0] == first[1]
