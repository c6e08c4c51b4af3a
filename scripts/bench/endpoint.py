"""Simulate an OpenAI-compatible server, to measure its clients: `python -m scripts.bench.endpoint`.

`slots` calls are answered in parallel, further ones wait, first in, first out. A call takes `prefill` seconds and
`step` for each token of its reply, each `grow` longer for every other parallel call, and `choice` more where
probabilities are requested. All are 0 by default, so that only the client is measured. `/v1/reset?slots=32&step=0.008`
changes them and clears the statistics. `/v1/stats` returns the statistics.

With `/v1/reset?owner=vllm` it is a vLLM server: it accepts prompts as tokens and has `/tokenize`, which takes
`tokenize` seconds. A token is four characters.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from scripts.bench.replies import choice, reply

MODEL = "simulated"
# the end of a rendered conversation
ASSISTANT = "\nassistant\n"
PIECE = 4  # characters of a token
# log-probability of a token that starts no label
UNLISTED = -30.0


@dataclass(frozen=True)
class Service:
    """Times in seconds."""

    slots: int = 32
    prefill: float = 0.0
    step: float = 0.0
    grow: float = 0.0
    choice: float = 0.0
    tokenize: float = 0.0  # of a request to /tokenize
    # as in the list of models: "vllm" is used as vLLM
    owner: str = "bench"

    def seconds(self, tokens: int, busy: int, *, chooses: bool) -> float:
        """Return the time of a call that starts as one of `busy` calls."""
        writing = self.step * tokens * (1 + self.grow * (busy - 1))
        return self.prefill + writing + (self.choice if chooses else 0.0)


class Endpoint:
    """The server, and what was measured since the last reset."""

    def __init__(self) -> None:
        self.pieces: list[str] = []  # the text of each token
        self.ids: dict[str, int] = {}
        self.start(Service())

    def start(self, service: Service) -> None:
        """Set the times and clear the statistics."""
        self.service, self.slots = service, asyncio.Semaphore(service.slots)
        self.busy = self.answered = self.peak = self.tokenized = 0
        # seconds that all calls would take in a full batch
        self.full = 0.0
        self.occupied = 0.0  # seconds of all slots together
        self.first: float | None = None  # when the first call came
        self.last = 0.0  # when the last reply left

    async def complete(self, request: web.Request) -> web.Response:
        """Answer a call as soon as a slot is free."""
        self.first = self.first or time.monotonic()
        answer = self.answer(await request.json(), chat="/chat/" in request.path)
        tokens, chooses = (
            answer["usage"]["completion_tokens"],
            bool(answer["choices"][0]["logprobs"]),
        )
        async with self.slots:
            self.busy += 1
            self.peak = max(self.peak, self.busy)
            seconds = self.service.seconds(tokens, self.busy, chooses=chooses)
            self.full += self.service.seconds(tokens, self.service.slots, chooses=chooses)
            self.occupied += seconds
            await asyncio.sleep(seconds)
            self.busy -= 1
        self.answered += 1
        self.last = time.monotonic()
        return web.json_response(answer)

    def answer(self, body: dict[str, Any], *, chat: bool) -> dict[str, Any]:
        """Return the answer to a request, whose prompt can be tokens."""
        if isinstance(body.get("prompt"), list):
            body["prompt"] = "".join(self.pieces[token] for token in body["prompt"])
        answer = completion(body, chat=chat)
        if wanted := body.get("logprob_token_ids"):
            listed = answer["choices"][0]["logprobs"]["top_logprobs"][0]
            scores = {
                f"token_id:{token}": listed.get(self.pieces[token].strip(), UNLISTED)
                for token in wanted
            }
            answer["choices"][0]["logprobs"]["top_logprobs"] = [scores]
        return answer

    async def tokenize(self, request: web.Request) -> web.Response:
        """Return the tokens of a text or of a conversation."""
        body = await request.json()
        self.tokenized += 1
        text = body.get("prompt")
        if text is None:
            text = "\n".join(message["content"] for message in body["messages"]) + ASSISTANT
        tokens = [self.number(text[start : start + PIECE]) for start in range(0, len(text), PIECE)]
        await asyncio.sleep(self.service.tokenize)
        return web.json_response({"tokens": tokens, "count": len(tokens)})

    async def detokenize(self, request: web.Request) -> web.Response:
        """Return the text of tokens."""
        body = await request.json()
        return web.json_response(
            {"prompt": "".join(self.pieces[token] for token in body["tokens"])}
        )

    def number(self, piece: str) -> int:
        """Return the token of a piece of text."""
        if piece not in self.ids:
            self.ids[piece] = len(self.pieces)
            self.pieces.append(piece)
        return self.ids[piece]

    async def reset(self, request: web.Request) -> web.Response:
        """Set the times of the query, and keep the others."""
        given = {
            name: type(value)(request.query.get(name, value))
            for name, value in asdict(self.service).items()
        }
        self.start(Service(**given))
        return web.json_response(given)

    async def stats(self, _: web.Request) -> web.Response:
        """Return `efficiency`: the seconds of calls in full batches, divided by those from the first to the last."""
        span = max(0.0, self.last - (self.first or 0.0))
        measured = {
            "answered": self.answered,
            "span": span,
            "peak": self.peak,
            "slots": self.service.slots,
        }
        measured["tokenized"] = self.tokenized
        if whole := self.service.slots * span:
            measured |= {"efficiency": self.full / whole, "occupied": self.occupied / whole}
        return web.json_response(measured)

    async def models(self, _: web.Request) -> web.Response:
        model = {"id": MODEL, "object": "model", "owned_by": self.service.owner}
        return web.json_response({"object": "list", "data": [model]})

    async def serve(self, port: int) -> None:
        """Serve until the process ends. The first line of output is the port."""
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_post("/v1/completions", self.complete)
        app.router.add_post("/tokenize", self.tokenize)
        app.router.add_post("/detokenize", self.detokenize)
        for name in ("models", "stats", "reset"):
            app.router.add_get(f"/v1/{name}", getattr(self, name))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()


def completion(request: Mapping[str, Any], *, chat: bool) -> dict[str, Any]:
    """Return the answer to a request."""
    text = "\n".join(turn["content"] for turn in request["messages"]) if chat else request["prompt"]
    listed = choice(text) if request.get("logprobs") else None
    words = next(iter(listed), "") if listed else reply(text, request.get("max_tokens") or 100)
    stops = request.get("stop") or ()
    for stop in (stops,) if isinstance(stops, str) else stops:
        words = words.partition(stop)[0]
    tokens = 1 if listed else len(words) // 4 + 1
    content = {"message": {"role": "assistant", "content": words}} if chat else {"text": words}
    logprobs = format_logprobs(listed, chat=chat) if listed else None
    first = {"index": 0, "finish_reason": "stop", "logprobs": logprobs, **content}
    usage = {
        "prompt_tokens": len(text) // 4,
        "completion_tokens": tokens,
        "total_tokens": len(text) // 4 + tokens,
    }
    return {
        "id": "1",
        "object": "completion",
        "created": 0,
        "model": MODEL,
        "choices": [first],
        "usage": usage,
    }


def format_logprobs(listed: Mapping[str, float], *, chat: bool) -> dict[str, Any]:
    """Return those of the first token, as OpenAI writes them in chats and in completions."""
    likeliest, logprob = next(iter(listed.items()))
    if not chat:
        return {
            "tokens": [likeliest],
            "token_logprobs": [logprob],
            "top_logprobs": [listed],
            "text_offset": [0],
        }
    entries = [
        {"token": token, "logprob": logprob, "bytes": None} for token, logprob in listed.items()
    ]
    return {
        "content": [
            {"token": likeliest, "logprob": logprob, "bytes": None, "top_logprobs": entries}
        ]
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--port", type=int, default=0, help="0: a free one, which the first line of output names"
    )
    await Endpoint().serve(parser.parse_args().port)


if __name__ == "__main__":
    asyncio.run(main())
