"""The in-process llama.cpp server and the three requests made to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import urlsplit

from kgqa.engines.openmp import let_waiting_threads_sleep
from kgqa.errors import ConfigError, DataError, EngineDied, EngineError
from kgqa.types import Json
from kgqa.util.jsonio import decode_json

# Tokens computed between two looks at whether a call was dropped: seconds, and no slower than the default of 2048
BATCH = 256
PROMPTS_KEPT_MIB = 1024  # of prompts that left their slot, so that two kinds of prompt can take turns


class LlamaServer:
    """A loaded model. Thread-safe: as many requests at once as there are slots; more wait their turn."""

    def __init__(self, weights: Path, slots: int, threads: int, context: int, adapters: Sequence[Path] = ()) -> None:
        """`adapters`: GGUF files, each told by its place."""
        let_waiting_threads_sleep()
        try:
            import xllamacpp
        except ImportError as error:
            raise ConfigError(f"engine=llamacpp needs xllamacpp ({error}); pip install 'kgqa[llamacpp]'") from error

        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.n_parallel = slots
        params.n_ctx = context * slots
        params.n_batch = params.n_ubatch = BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        # a prompt that left its slot is found again by its tokens alone, whatever adapter it was computed with
        params.cache_ram_mib = 0 if adapters else PROMPTS_KEPT_MIB
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(file), 1.0) for file in adapters]
        params.verbosity = -1  # the terminal belongs to the command line
        params.warmup = False
        try:
            self._server: Any = xllamacpp.Server(params)
        except RuntimeError as error:
            with_them = "".join(f" and {file}" for file in adapters)
            raise DataError(
                f"{weights}{with_them}: llama.cpp cannot load it with {slots} × {context} tokens ({error})"
            ) from error
        self._adapters = len(adapters)
        self.address = urlsplit(self._server.listening_address).netloc
        self._lock = threading.Lock()
        self._connections: set[HTTPConnection] = set()
        self._stopping = False

    def tokenize(self, text: str) -> list[int]:
        """Return tokens of a text in which special tokens are written out; none are added."""
        answer = self._post("/tokenize", {"content": text, "add_special": False, "parse_special": True})
        tokens: list[int] = answer["tokens"]
        return tokens

    def template(self, messages: Sequence[Json]) -> str:
        """Return the server's own rendering of a conversation, to compare with ours."""
        return str(self._post("/apply-template", {"messages": messages})["prompt"])

    def complete(self, prompt: Sequence[int], adapter: int | None = None, **settings: Json) -> dict[str, Json]:
        """Return llama.cpp's /completion; the settings are its own. `adapter`: the place of the one to answer through.

        Each request names all adapters: where it names none, llama.cpp lets all of them answer together.
        """
        scales = [{"id": place, "scale": float(place == adapter)} for place in range(self._adapters)]
        lora = {"lora": scales} if scales else {}
        return self._post("/completion", {"prompt": list(prompt), "cache_prompt": True, **lora, **settings})

    def hang_up(self) -> None:
        """Drop all requests, the running ones too; their callers get EngineDied."""
        with self._lock:
            self._stopping = True
            for connection in self._connections:
                if connection.sock is not None:
                    connection.sock.shutdown(SHUT_RDWR)

    def stop(self) -> None:
        """Free the model; waits for the pass in progress."""
        self._server = None

    def _post(self, path: str, request: Json) -> dict[str, Json]:
        with self._connection() as connection:
            try:
                connection.request("POST", path, json.dumps(request), {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer: dict[str, Json] = decode_json(response.read())
            except (OSError, HTTPException, ValueError) as error:
                reason = "the engine was closed while it was answering" if self._stopping else f"no answer: {error!r}"
                raise EngineDied(f"llama.cpp's server: {reason}") from error
        if response.status != 200:
            raise EngineError(f"llama.cpp's server refused the call: {answer.get('error', answer)}")
        return answer

    @contextmanager
    def _connection(self) -> Iterator[HTTPConnection]:
        connection = HTTPConnection(self.address)
        with self._lock:
            if self._stopping:
                raise EngineDied("the engine is closed")
            self._connections.add(connection)
        try:
            connection.connect()
            yield connection
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()
