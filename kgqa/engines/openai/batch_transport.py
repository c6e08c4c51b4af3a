"""Send requests for replies through OpenAI's Batch API, see `engines.batches`."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from kgqa.engines.batches import WAIT, BatchFailed, BatchNotes, BatchQueue, Outcome
from kgqa.engines.openai.transport import Failure, Transport
from kgqa.errors import ConfigError, EngineError, ServerLost
from kgqa.types import Json
from kgqa.util.places import home

T = TypeVar("T")
MOST_BYTES = 2**31  # of the results of a batch
BOUNDARY = "kgqa-batch-of-requests"
# the path of requests
VERSION = "/v1"
# a batch has no further results then
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})


class BatchTransport(Transport):
    """A connection to a server that answers requests in batches. All other requests are sent at once."""

    # seconds, see `BatchQueue`
    wait: float = WAIT

    async def post(
        self,
        path: str,
        body: Mapping[str, Json],
        read: Callable[[Json], T],
        make_test: Callable[[], Mapping[str, Json]] | None = None,
        salt: str = "",
    ) -> tuple[T, float]:
        """Return what `read` makes of the JSON in the results of a batch. The time of a call is not known."""
        if path.startswith(".."):
            return await super().post(path, body, read, make_test, salt)
        outcome = await self._queue(path).send(dict(body), salt)
        try:
            return read(self._read(outcome.status, {}, json.dumps(outcome.content).encode())), 0.0
        except (Failure, ValueError) as error:
            raise EngineError(f"the batch has no reply to this call: {error}") from error

    async def close(self) -> None:
        for queue in self._queues.values():
            queue.close()
        await super().close()

    def _queue(self, path: str) -> BatchQueue:
        """Return the queue of an endpoint: a batch has requests of one."""
        if path not in self._queues:
            name = hashlib.sha256(f"{self.url}{path}".encode()).hexdigest()[:16]
            notes = BatchNotes(home() / "batches" / f"{name}.jsonl")
            self._queues[path] = BatchQueue(OpenAIBatches(self, path), notes, self.wait)
        return self._queues[path]

    @property
    def _queues(self) -> dict[str, BatchQueue]:
        queues: dict[str, BatchQueue] = self.__dict__.setdefault("_queues_by_path", {})
        return queues


class OpenAIBatches:
    """OpenAI's files and batches."""

    def __init__(self, transport: BatchTransport, path: str) -> None:
        self._transport, self._path = transport, path

    async def submit(self, wave: str, requests: Mapping[str, Json]) -> str:
        lines = [
            json.dumps(
                {"custom_id": name, "method": "POST", "url": f"{VERSION}{self._path}", "body": body}
            )
            for name, body in requests.items()
        ]
        file = await self._upload(f"{wave}.jsonl", "\n".join(lines).encode())
        body = {
            "input_file_id": file,
            "endpoint": f"{VERSION}{self._path}",
            "completion_window": "24h",
            "metadata": {"kgqa_wave": wave},
        }
        attempt = partial(self._exchange, "POST", "/batches", json.dumps(body).encode())
        try:
            return str((await attempt())["id"])
        except ServerLost:
            # the server can have accepted it
            batch = await self.find(wave, frozenset(requests), 0.0)
            return batch or str((await attempt())["id"])

    async def find(self, wave: str, ids: frozenset[str], since: float) -> str | None:  # noqa: ARG002 - it has metadata
        path = "/batches?limit=100"
        while True:
            listed = await self._exchange("GET", path)
            for each in listed["data"]:
                if (each.get("metadata") or {}).get("kgqa_wave") == wave:
                    return str(each["id"])
            if not listed.get("has_more"):
                return None
            path = f"/batches?limit=100&after={listed['data'][-1]['id']}"

    async def fetch(self, batch: str) -> Mapping[str, Outcome] | None:
        state = await self._exchange("GET", f"/batches/{batch}")
        if state["status"] not in ENDED:
            return None
        outcomes: dict[str, Outcome] = {}
        for key in ("output_file_id", "error_file_id"):
            if state.get(key):
                content = await self._send("GET", f"/files/{state[key]}/content", most=MOST_BYTES)
                outcomes |= dict(_read_line(line) for line in content.splitlines() if line.strip())
        if state["status"] == "failed" and not outcomes:
            errors = (state.get("errors") or {}).get("data") or [{}]
            raise BatchFailed(
                f"batch {batch} failed: {errors[0].get('message', 'no reason given')}"
            )
        return outcomes

    async def _upload(self, name: str, content: bytes) -> str:
        """Upload the requests as a form, which is what this endpoint accepts."""
        purpose = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        file = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        head = f"{purpose}{file}Content-Type: application/jsonl\r\n\r\n"
        form = head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
        uploaded = await self._exchange(
            "POST", "/files", form, f"multipart/form-data; boundary={BOUNDARY}"
        )
        return str(uploaded["id"])

    async def _exchange(
        self, method: str, path: str, content: bytes | None = None, kind: str = ""
    ) -> Json:
        return json.loads(await self._send(method, path, content, kind))

    async def _send(
        self, method: str, path: str, content: bytes | None = None, kind: str = "", most: int = 0
    ) -> bytes:
        """Return the body of a successful response. A request that can be repeated is repeated."""
        transport, failures = self._transport, 0
        while True:
            try:
                return await transport.exchange(method, path, content, kind, most)
            except Failure as error:  # noqa: PERF203 - the next attempt is another request
                failures += 1
                if error.denied:
                    raise ConfigError(error.denied) from error
                if failures > transport.policy.retries or path == "/batches":
                    raise ServerLost(f"{transport.url}{path.partition('?')[0]}: {error}") from error
                await asyncio.sleep(max(error.after, transport.policy.pause(failures)))


def _read_line(line: bytes) -> tuple[str, Outcome]:
    row = json.loads(line)
    response = row.get("response")
    if response is None:
        return str(row["custom_id"]), Outcome(
            500, {"error": row.get("error") or {"message": "no response"}}
        )
    return str(row["custom_id"]), Outcome(int(response["status_code"]), response["body"])
