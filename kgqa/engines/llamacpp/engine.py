"""llama.cpp's own server inside this process, through xllamacpp: quantised files as they are, no torch.

Calls go over HTTP to the server's loopback port, because only a closed connection makes it drop a call.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Generate, ModelCall, ModelReply
from kgqa.engines.adapted import AdaptedStream, base_differs, exported
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.grammar import bound_schema
from kgqa.engines.labels import BIAS, ROOT, Spelling, continuation, spell
from kgqa.engines.llamacpp.server import LlamaServer
from kgqa.engines.thinking import Thinking, join_thought, leading, marks, split_thought, thinking_call
from kgqa.engines.weights import Model, is_gguf
from kgqa.errors import ConfigError, EngineDied, EngineError, PromptTooLong, of_one_call
from kgqa.protocols import Deliver, Engine
from kgqa.types import Choice, Completion, Json, Usage
from kgqa.util.validators import Count

ADAPTER = 1  # raise it when equal calls get other replies than before


@dataclass(frozen=True)
class LlamaCpp:
    """A .gguf file under llama.cpp, `slots` calls side by side.

    Which part of a prompt the server still knows, and what shares a pass with it, moves log-probabilities in the
    third decimal, so near-ties can flip between two runs. With one slot and calls in the same order they do not.
    """

    model: Model
    slots: Count
    threads: Count | None  # None: all cores this process may use
    context: Count | None  # tokens of prompt and reply of one slot; None: the model's own

    _views: dict[Adapter, AdaptedStream] = field(default_factory=dict, init=False, repr=False, compare=False)

    streaming: ClassVar[bool] = True
    counts_freely: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = self._closing, self._lock, self._workers  # made before any thread can race for them
        _ = self._thinking

    @property
    def places(self) -> int:
        return self.slots

    def identity(self) -> Mapping[str, Json]:
        return {
            "engine": "llamacpp",
            "adapter": ADAPTER,
            "weights": self.model.digest(),
            "dtype": "as in the file",
            "context": self._limit,
            "template": "from the weights",
            "options": "token sequences with and without a blank, exact",
            **self._thinking.identity(),
        }

    def render(self, call: ModelCall) -> str:
        return self._template.render(call)

    def count_tokens(self, text: str) -> int:
        return len(self._server.tokenize(text))

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        self.submit_with(call, deliver, None)

    def submit_with(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None) -> None:
        """As `submit`, through an adapter."""
        if self._closing.is_set():
            raise EngineDied("the engine is closed")
        place = None if adapter is None else list(self._views).index(adapter)
        self._workers.submit(self._reply, call, place).add_done_callback(lambda done: self._hand_over(done, deliver))

    @property
    def base(self) -> Engine:
        return self

    def with_adapter(self, adapter: Adapter) -> Engine:
        """Return calls through different adapters share no pass. The adapter's GGUF file is read with the weights."""
        if adapter not in self._views:
            view = AdaptedStream(self, adapter, base_differs(adapter, self.model))
            with self._lock:
                self._views[adapter] = view
                server: LlamaServer | None = self.__dict__.pop("_start", None)
            if server is not None:
                server.hang_up()
                server.stop()
        return self._views[adapter]

    def close(self) -> None:
        """Drop waiting calls and the connections of running ones, then stops the server."""
        self._closing.set()
        with self._lock:
            server: LlamaServer | None = self.__dict__.pop("_start", None)
        if server is not None:
            server.hang_up()
        self._workers.shutdown(cancel_futures=True)
        if server is not None:
            server.stop()

    def _hand_over(self, done: Future[ModelReply], deliver: Deliver) -> None:
        """Whatever went wrong becomes that call's error; nobody waits for a closed engine."""
        if self._closing.is_set() or done.cancelled():
            return
        error = done.exception()
        deliver(done.result() if error is None else of_one_call(error))

    def _reply(self, call: ModelCall, adapter: int | None) -> ModelReply:
        server = self._server  # loading is no call's service time
        started = time.perf_counter()
        text = self.render(call)
        prompt = server.tokenize(text)
        if not prompt:
            raise EngineError("the prompt is empty")
        if not isinstance(call, Generate):
            spelling = self._spelling(call.options)
            self._check_length(prompt, spelling.longest)
            return replace(self._choose(prompt, spelling, adapter, started), flags=self._template.flags(call))
        if not self._template.thinks(call):
            self._check_length(prompt, call.max_tokens)
            return split_thought(self._generate(prompt, call, adapter))
        budget = self._thinking.budget
        self._check_length(server.tokenize(leading(text, "", call)), budget + call.max_tokens)
        thought = self._generate(prompt, thinking_call(call, budget, text), adapter, shown=marks(text).end)
        return join_thought(thought, self._generate(server.tokenize(leading(text, thought.text, call)), call, adapter))

    def _check_length(self, prompt: Sequence[int], reply: int) -> None:
        if len(prompt) + reply > self._limit:
            raise PromptTooLong(len(prompt), self._limit - reply)

    def _generate(
        self, prompt: Sequence[int], call: Generate, adapter: int | None, shown: str | None = None
    ) -> Completion:
        """Return `shown`: a special token that is to be seen in the text, where it is a stop string."""
        started = time.perf_counter()
        schema = (
            None if call.schema is None else bound_schema(call.schema)
        )  # one it cannot follow it would silently drop
        answer = self._server.complete(
            prompt,
            adapter,
            **({} if schema is None else {"json_schema": schema}),
            **({} if shown is None else {"preserved_tokens": [shown]}),
            n_predict=call.max_tokens,
            stop=list(call.stop),
            temperature=call.temperature,
            top_p=call.top_p,
            seed=call.seed or 0,
            samplers=["temperature", "top_p"],  # transformers' order
        )
        known = int(answer["timings"]["cache_n"])
        usage = Usage(len(prompt), known, int(answer["tokens_predicted"]), time.perf_counter() - started)
        finish: Literal["stop", "length"] = "length" if answer["stop_type"] == "limit" else "stop"
        free = ("unconstrained",) if call.schema is not None and schema is None else ()
        return Completion(answer["content"], finish, usage, self._template.flags(call) + free)

    def _choose(self, prompt: Sequence[int], spelling: Spelling, adapter: int | None, started: float) -> Choice:
        """Choose an option by walking the tree of the options' tokens. Each step costs one token, because the prompt
        is cached.
        """
        conditional = [0.0] * len(spelling.pairs)
        known = 0
        for place in range(ROOT, len(spelling.tokens)):
            path = [spelling.tokens[step] for step in reversed(spelling.ancestry(place))]
            pairs = [pair for pair, (start, _) in enumerate(spelling.pairs) if start == place]
            wanted = [spelling.pairs[pair][1] for pair in pairs]
            following, cached = self._distribution([*prompt, *path], wanted, adapter)
            known = cached if place == ROOT else known
            for pair, logprob in zip(pairs, following, strict=True):
                conditional[pair] = logprob
        logprobs, mass = spelling.score(conditional)
        return Choice(logprobs, mass, Usage(len(prompt), known, 1, time.perf_counter() - started))

    def _distribution(
        self, prompt: Sequence[int], tokens: Sequence[int], adapter: int | None
    ) -> tuple[list[float], int]:
        """log p of each of the tokens coming next, and how much of the prompt was known.

        llama.cpp lists the likeliest tokens only. With their logits raised by the same amount, ours are the likeliest,
        and their shares among themselves stay what they are. A second call tells the unraised share of the best one.
        """
        raised = {"n_predict": 1, "logit_bias": [[token, BIAS] for token in tokens]}
        shares = self._server.complete(
            prompt,
            adapter,
            **raised,
            temperature=1.0,
            samplers=["temperature"],
            post_sampling_probs=True,
            n_probs=len(tokens),
            seed=0,
        )
        among = {entry["id"]: entry["prob"] for entry in shares["completion_probabilities"][0]["top_probs"]}
        missing = [token for token in tokens if token not in among]
        if missing:
            raise EngineError(f"llama.cpp gave no probability for the tokens {missing}; use engine=transformers")
        likeliest = self._server.complete(prompt, adapter, **raised, temperature=0.0, n_probs=1)
        best = likeliest["completion_probabilities"][0]
        scale = best["logprob"] - math.log(among[best["id"]])
        logprobs = [math.log(max(among[token], 1e-45)) + scale for token in tokens]
        return logprobs, int(shares["timings"]["cache_n"])

    def _spelling(self, options: tuple[str, ...]) -> Spelling:
        if options not in self._spellings:
            self._spellings[options] = spell(options, continuation(self._server.tokenize))
        return self._spellings[options]

    @property
    def _limit(self) -> int:
        return min(self.context or self.model.context, self.model.context)

    @property
    def _server(self) -> LlamaServer:
        with self._lock:
            if self._closing.is_set():
                raise EngineDied("the engine is closed")
            return self._start

    @cached_property
    def _start(self) -> LlamaServer:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        adapters = [exported(adapter) for adapter in self._views]
        return LlamaServer(self._weights, self.slots, self.threads or usable or 1, self._limit, adapters)

    @cached_property
    def _weights(self) -> Path:
        weights = self.model.locate()
        if not is_gguf(weights):
            raise ConfigError(f"model.path={weights}: engine=llamacpp reads a .gguf file; use engine=transformers")
        return weights

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate.of(self._weights, self._thinking)

    @cached_property
    def _thinking(self) -> Thinking:
        return Thinking.of(self.model.thinking).fitting(self._limit)

    @cached_property
    def _spellings(self) -> dict[tuple[str, ...], Spelling]:
        return {}

    @cached_property
    def _workers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.slots, thread_name_prefix="llamacpp")

    @cached_property
    def _closing(self) -> threading.Event:
        return threading.Event()

    @cached_property
    def _lock(self) -> threading.Lock:
        return threading.Lock()
