"""Send the model calls of a finished run again as a plain aiohttp loop, without prompts, searches or results.

All questions start at once. The calls of a question are sent in rounds, as the run made them: the calls of a round in
parallel, one round after the other. A call that another question has made is not sent again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import aiohttp

from kgqa.artifacts.trace import TracedCall, read_trace
from scripts.bench.endpoint import MODEL

MODEL_CALLS = ("generate", "choose")
Rounds = list[list[bytes]]  # bodies of requests


def read_rounds(folder: Path) -> list[Rounds]:
    """Return the rounds of each question."""
    questions = []
    for traced in read_trace(folder):
        rounds: dict[int, list[bytes]] = defaultdict(list)
        for call in traced.calls:
            if call.kind in MODEL_CALLS:
                # the number of the await: a program makes one after the other
                rounds[call.path[0]].append(write_body(call))
        questions.append([rounds[number] for number in sorted(rounds)])
    return questions


def write_body(call: TracedCall) -> bytes:
    """Return the request of a call, as a client of OpenAI's chat API sends it."""
    messages = [
        {"role": role, "content": content} for role, content in call.request["prompt"]["messages"]
    ]
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "temperature": 0}
    if call.kind == "choose":
        body |= {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    else:
        body |= {"max_tokens": call.request["max_tokens"], "stop": call.request["stop"] or None}
    return json.dumps(body).encode()


async def send_all(url: str, questions: list[Rounds], slots: int) -> None:
    """Send the rounds of all questions, at most `slots` requests at once."""
    places = asyncio.Semaphore(slots)
    replies: dict[bytes, asyncio.Task[None]] = {}
    endless = aiohttp.ClientTimeout(total=None, sock_connect=None)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=endless
    ) as session:

        async def send(body: bytes) -> None:
            headers = {"Content-Type": "application/json"}
            async with (
                places,
                session.post(f"{url}/chat/completions", data=body, headers=headers) as response,
            ):
                await response.json()

        async def answer(rounds: Rounds) -> None:
            for bodies in rounds:
                for body in bodies:
                    if body not in replies:
                        replies[body] = asyncio.create_task(send(body))
                await asyncio.gather(*(replies[body] for body in bodies))

        await asyncio.gather(*map(answer, questions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--run", type=Path, required=True, help="its folder")
    parser.add_argument("--slots", type=int, required=True, help="parallel calls")
    options = parser.parse_args()
    asyncio.run(send_all(options.url, read_rounds(options.run), options.slots))


if __name__ == "__main__":
    main()
