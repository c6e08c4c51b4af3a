"""`kgqa export env`: verifiers rewards an agent with kgqa's EM. `make test-agents` installs verifiers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import kgqa
from kgqa.cli.main import main
from kgqa.runtime.display import QUIET
from tests.http_server import serve_json
from tests.serve.test_remote import open_server

AGENT = """
import json, os, urllib.request

def post(url, body):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=60))

found = post(os.environ["RETRIEVE_URL"], {"query": os.environ["QUESTION"], "topk": 1})["result"][0]["title"]
messages = [{"role": "user", "content": os.environ["QUESTION"] + found}]
body = {"model": os.environ["MODEL"], "messages": messages, "temperature": 0}
reply = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)["choices"][0]["message"]["content"]
print(json.dumps({"answer": reply}))
"""


def answer_bridge(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
    """Answer right on some questions."""
    if handler.command == "GET":
        return 200, {"data": [{"id": "stand-in"}]}
    message = {"role": "assistant", "content": "the Candle Bridge"}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    frame = {"id": "1", "object": "chat.completion", "created": 1, "model": "stand-in"}
    return 200, {**frame, "usage": usage, "choices": choices}


def test_reward_is_the_evaluated_em(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verifiers")
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, "environment"]))
    Path("agent.py").write_text(AGENT, encoding="utf-8")
    with serve_json(answer_bridge, {}) as address:
        finished = kgqa.run(
            "model=smollm2_135m", "engine=openai", f"engine.base_url={address}/v1", "engine.served_model=stand-in",
            "engine.server=hosted", method="command", dataset="demo", limit=4, display=QUIET,
        )  # fmt: skip
        assert main(["export", "env", "dataset=demo", "limit=4", "--out", "environment"]) == 0
        with open_server("retriever=bm25", "dataset=demo") as search:
            command = [
                str(Path(sys.executable).with_name("vf-eval")), "kgqa-demo", "-m", "stand-in", "--client.base-url",
                f"{address}/v1", "--client.api-key-var", "ANY_KEY", "-o", "evaluated", "--push", "False",
                "--env.agent.runtime.type", "subprocess",
            ]  # fmt: skip
            environment = {
                **os.environ,
                "KGQA_RETRIEVE_URL": f"{search}/retrieve",
                "ANY_KEY": "any",
            }
            process = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
    assert process.returncode == 0, process.stderr[-2000:]
    (file,) = Path("evaluated").rglob("traces.jsonl")
    lines = file.read_text(encoding="utf-8").splitlines()
    traces = [trace for line in lines for trace in json.loads(line)["traces"]]
    rewards = {
        trace["task"]["data"]["id"]: 100 * trace["rewards"]["em"]["score"] for trace in traces
    }
    assert set(rewards.values()) == {0, 100}
    assert rewards == {row["question_id"]: row["em"] for row in finished.predictions}
