"""llama.cpp's server inside this process, through xllamacpp. It reads quantized files and needs no torch.

Calls use HTTP on the loopback port, because the server drops a call only if its connection is closed. The protocol is
the one of engine=openai, but kgqa renders the prompts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from kgqa.artifacts.adapter import GGUF_SOURCE, Adapter
from kgqa.calls import ModelCall, ModelReply
from kgqa.engines.base import LocalEngine
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.event_loop import EventLoopThread
from kgqa.engines.openai.connection import Connection
from kgqa.engines.openai.hold import RetryPolicy
from kgqa.engines.openai.token_prompts import LlamaPrompts
from kgqa.engines.openai.token_protocol import TokenProtocol
from kgqa.engines.openai.transport import Transport
from kgqa.engines.weights import is_gguf, let_waiting_threads_sleep, read_header
from kgqa.errors import ConfigError, DataError
from kgqa.protocols import Deliver
from kgqa.util.machine import count_cores
from kgqa.util.optional_deps import install_command
from kgqa.util.settings import ORDER_OF_SUMS, Setting
from kgqa.util.validators import Count

# Tokens between two checks for dropped calls: these take seconds. The default of 2048 is not faster.
BATCH = 256
# for prompts that left their slot, so that two kinds of prompts can alternate
PROMPT_CACHE_MIB = 1024
ONCE = RetryPolicy(timeout=86_400.0, retries=0, backoff=0.0, server_timeout=0.0)


KvCache = Literal["f16", "q8_0", "q4_0"]


@dataclass(frozen=True)
class LlamaCpp(LocalEngine):
    """A .gguf file under llama.cpp, `max_num_seqs` calls in parallel.

    The server's cache and the calls that share a pass change log-probabilities in the third decimal, so near-ties can
    differ between two runs. With one slot and calls in the same order they do not.
    """

    max_num_seqs: Annotated[
        Count,
        Setting(
            "Number of parallel calls. On few cores, more are slower. Only 1 makes replies reproducible byte by byte."
        ),
        ORDER_OF_SUMS,
    ] = 1
    threads: Annotated[
        Count | None, Setting("Number of threads. null: all cores of this process."), ORDER_OF_SUMS
    ] = None

    kv_cache: Annotated[
        KvCache,
        Setting(
            "Number type of the cache of keys and values: f16 | q8_0 | q4_0, a half or a quarter of its memory."
        ),
    ] = "f16"

    # while the server runs, by adapter
    _protocols: dict[Adapter | None, LlamaProtocol] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    # raise it when equal calls get other replies than before
    version: ClassVar[int] = 1
    streaming: ClassVar[bool] = True

    @property
    def max_concurrency(self) -> int:
        return self.max_num_seqs

    def count_tokens(self, text: str) -> int:
        return self._loop.submit(self._count(text)).result()

    def submit(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None = None) -> None:
        """Submit a call, with an adapter if there is one. Calls with different adapters share no pass."""
        self._check_open()
        self._loop.submit(self._reply(call, adapter)).add_done_callback(
            lambda future: self._deliver(future, deliver)
        )

    def close(self) -> None:
        """Drop all calls and their connections, then stop the server."""
        self._closing.set()
        self._loop.close(self._stop)
        # a server that was still loading
        self._protocols.clear()

    def _unload(self) -> None:
        """Stop the server, which loads adapters together with the weights."""
        if self._protocols:
            self._loop.submit(self._stop()).result()

    async def _count(self, text: str) -> int:
        return await (await self._protocol(None)).prompts.count(text)

    async def _reply(self, call: ModelCall, adapter: Adapter | None) -> ModelReply:
        reply = await (await self._protocol(adapter)).answer(call)
        # the protocol flags a missing thought, too
        flags = dict.fromkeys((*self._template.flags(call), *reply.flags))
        return replace(reply, flags=tuple(flags))

    async def _protocol(self, adapter: Adapter | None) -> LlamaProtocol:
        """Return the protocol of an adapter. The first call loads the weights."""
        if not self._protocols:
            await asyncio.to_thread(self._load)
        return self._protocols[adapter]

    def _load(self) -> None:
        with self._lock:
            self._check_open()
            if self._protocols:
                return
            files = [_gguf_adapter(adapter) for adapter in self._views]
            server = start_server(
                self._weights,
                self.max_num_seqs,
                self.threads or count_cores(),
                self._limit,
                files,
                self.kv_cache,
            )
            transport = Transport(f"{server.listening_address}/v1", None, ONCE)
            for adapter in (*self._views, None):
                # each request names all adapters: otherwise llama.cpp would apply all of them together
                scales = [
                    {"id": number, "scale": float(each == adapter)}
                    for number, each in enumerate(self._views)
                ]
                connection = Connection(
                    transport,
                    "llamacpp",
                    self.model.name,
                    self._limit,
                    adapter,
                    extra={"lora": scales} if scales else {},
                    # a reply has a path of the weights
                    names_model=False,
                )
                prompts = TemplatePrompts(connection, self._thinking, template=self._template)
                self._protocols[adapter] = LlamaProtocol(
                    connection, self._thinking, prompts, self._template, server
                )

    async def _stop(self) -> None:
        while self._protocols:
            _, protocol = self._protocols.popitem()
            await protocol.connection.transport.close()

    @cached_property
    def _loop(self) -> EventLoopThread:
        return EventLoopThread("llamacpp")

    def check_weights(self, weights: Path) -> None:
        """Raise a ConfigError if the engine cannot read this file or folder."""
        if not is_gguf(weights):
            raise ConfigError(
                f"{weights}: engine=llamacpp reads .gguf files only. Use engine=transformers or vllm."
            )


@dataclass
class TemplatePrompts(LlamaPrompts):
    """Prompts that are rendered with the template from the weights."""

    template: ChatTemplate = field(kw_only=True)

    async def turn(self, call: ModelCall, *, thinks: bool) -> tuple[list[int], str]:  # noqa: ARG002 - the template knows
        text = self.template.render(call)
        return await self.tokenize(text), text


@dataclass
class LlamaProtocol(TokenProtocol):
    """The protocol of the server in this process."""

    template: ChatTemplate
    # the server, which ends with its last reference
    process: Any

    def thinks(self, call: ModelCall) -> bool:
        return self.template.thinks(call)


def start_server(
    weights: Path,
    slots: int,
    threads: int,
    context: int,
    adapters: Sequence[Path] = (),
    kv_cache: KvCache = "f16",
) -> Any:
    """Load a model and start its server. slots: parallel requests."""
    let_waiting_threads_sleep()
    try:
        import xllamacpp
    except ImportError as error:
        raise ConfigError(
            f"engine=llamacpp needs xllamacpp ({error}). Run: {install_command('llamacpp')}"
        ) from error

    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.n_parallel = slots
    params.n_ctx = context * slots
    params.n_batch = params.n_ubatch = BATCH
    params.cache_type_k = params.cache_type_v = getattr(
        xllamacpp.ggml_type, f"GGML_TYPE_{kv_cache.upper()}"
    )
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # this cache finds prompts by their tokens only, even if they were computed with another adapter
    params.cache_ram_mib = 0 if adapters else PROMPT_CACHE_MIB
    params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(file), 1.0) for file in adapters]
    # the terminal belongs to the command line
    params.verbosity = -1
    params.warmup = False
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        files = " and ".join(map(str, (weights, *adapters)))
        raise DataError(
            f"{files}: llama.cpp cannot load it with {slots} × {context} tokens ({error})"
        ) from error


def _gguf_adapter(adapter: Adapter) -> Path:
    """Return the adapter's GGUF file. Raise ConfigError if it is missing or from another training."""
    file = adapter.gguf
    if not file.is_file() or read_header(file).get(GGUF_SOURCE) != adapter.digest():
        wrong = "comes from another training than" if file.is_file() else "is missing next to"
        raise ConfigError(
            f"adapter {adapter.name}: {file} {wrong} {adapter.folder}. Run: kgqa models trained {adapter.name} --gguf"
        )
    return file
