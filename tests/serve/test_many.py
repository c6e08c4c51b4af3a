"""Two hundred questions at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import requests

import kgqa
from kgqa.runtime.display import QUIET
from kgqa.types import Json

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package)
MANY = 200
together = threading.Barrier(MANY)


def answer_together(question: str, tools: Any) -> str:
    """Wait until all sessions are open, then search and generate over HTTP."""
    together.wait(timeout=120)
    results = requests.post(
        tools.retrieve_url, json={"query": question, "topk": 1}, timeout=120
    ).json()["result"]
    body: Json = {
        "temperature": 0,
        "messages": [{"role": "user", "content": f"{results[0]['text']} {question}"}],
    }
    reply = requests.post(f"{tools.url}/chat/completions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    return str(results[0]["title"])


@pytest.mark.slow
@pytest.mark.usefixtures("own_folder")
def test_two_hundred_sessions_hold() -> None:
    dataset: list[dict[str, Json]] = [
        {
            "question": f"Who built mill {number}?",
            "answer": f"Mill {number}",
            "passages": [(f"Mill {number}", f"mill {number}")],
        }
        for number in range(MANY)
    ]
    finished = kgqa.run(
        f"method.parallel={MANY}", f"max_parallel_questions={MANY}", method=answer_together,
        dataset=dataset, engine="scripted", display=QUIET,
    )  # fmt: skip
    assert finished.metrics.failed == 0
    assert finished.metrics.calls == {"RunAgent": MANY, "Search": MANY, "Generate": MANY}
