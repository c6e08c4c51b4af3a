"""A run of agents is killed at random moments, and continues without repeating an answered call."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.http_server import serve_json

for package in ("starlette", "uvicorn", "aiohttp"):
    pytest.importorskip(package)
KILLS = int(os.environ.get("KGQA_KILLS", "3"))
# seconds of a reply, so that calls are in flight at a kill
DELAY = 0.1
# lines "sent PROMPT" of the model's server, and "got PROMPT" of agents
LOG = "log"
QUESTIONS, TURNS = 12, 3
LOOP = """
import os
def answer(question, chat, search):
    text = question
    for turn in range(3):
        prompt = f"{turn} {search(text)[:40]} {question}"
        text = chat(prompt)
        with open("log", "a") as log:
            log.write(f"got {prompt!r}" + chr(10))
    return text
"""
OVER_HTTP = """
import json, urllib.request
def post(url, body):
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=60))
def chat(prompt):
    body = {"temperature": 0.7, "messages": [{"role": "user", "content": prompt}]}
    return post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)["choices"][0]["message"]["content"]
"""
BY_RETRIEVE = """
def search(query):
    return post(os.environ["RETRIEVE_URL"], {"query": query, "topk": 1})["result"][0]["title"]
print(answer(os.environ["QUESTION"], chat, search))
"""
BY_MCP = """
def search(query):
    call = {"name": "search", "arguments": {"query": query, "k": 1}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    return post(os.environ["MCP_URL"], body)["result"]["content"][0]["text"]
print(answer(os.environ["QUESTION"], chat, search))
"""
IN_PYTHON = """
import sys, kgqa
def agent(question, tools):
    chat = lambda prompt: tools.generate(prompt, temperature=0.7)
    return answer(question, chat, lambda query: tools.search(query, 1)[0].title)
kgqa.run(*sys.argv[1:], method=agent)
"""
AGENTS = {
    "command": (
        "agent.py",
        LOOP + OVER_HTTP + BY_RETRIEVE,
        ["-m", "kgqa", "run", "method=command"],
    ),
    "mcp": ("agent.py", LOOP + OVER_HTTP + BY_MCP, ["-m", "kgqa", "run", "method=command"]),
    "python": ("main.py", LOOP + IN_PYTHON, ["main.py"]),
}


def answer_slowly(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
    """Answer as a chat server that takes a moment, and log what it gets."""
    if handler.command == "GET":
        return 200, {"data": [{"id": "stand-in"}]}
    request = json.loads(body)
    prompt = request["messages"][-1]["content"]
    with Path(LOG).open("a", encoding="utf-8") as log:
        log.write(f"sent {prompt!r}\n")
    time.sleep(DELAY)
    message = {"role": "assistant", "content": f"reply {request.get('seed')} to {prompt[:20]}"}
    usage = {"prompt_tokens": 9, "completion_tokens": 9}
    return 200, {
        "model": "stand-in",
        "usage": usage,
        "choices": [{"message": message, "finish_reason": "stop"}],
    }


def read_log() -> list[str]:
    return Path(LOG).read_text(encoding="utf-8").splitlines() if Path(LOG).exists() else []


def wait_for_calls(running: subprocess.Popen[bytes], lines: int) -> None:
    """Wait until the log has this many lines, however busy the machine is."""
    deadline = time.monotonic() + 240
    while len(read_log()) < lines and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGENTS)
def test_no_answered_call_is_repeated_after_kills(kind: str, own_folder: Path) -> None:
    if kind == "mcp":
        pytest.importorskip("mcp")
    name, script, command = AGENTS[kind]
    Path(name).write_text(script, encoding="utf-8")
    generator = random.Random(7)
    with serve_json(answer_slowly, {}) as address:
        words = [
            *command, "dataset=demo", "engine=openai", f"engine.base_url={address}/v1", "engine.served_model=stand-in",
            "engine.server=hosted", "model=smollm2_135m", f"limit={QUESTIONS}", "method.parallel=4",
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        for _ in range(KILLS):
            # two lines per call, and so few that calls are left after the last kill
            count = generator.randint(1, 2 * QUESTIONS * TURNS // (KILLS + 1))
            running = subprocess.Popen(
                [sys.executable, *words], env=environment, stdout=-3, stderr=-3
            )
            wait_for_calls(running, len(read_log()) + count)
            running.kill()
            assert running.wait(timeout=60) == -signal.SIGKILL
        finished = subprocess.run(
            [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
        )
    assert finished.returncode == 0, finished.stderr
    answered = set()
    for line in read_log():
        event, prompt = line.split(" ", 1)
        if event == "got":
            answered.add(prompt)
        assert event == "got" or prompt not in answered, f"repeated after its answer: {prompt}"
    assert len(answered) >= QUESTIONS * TURNS
