"""The common parts of all engines: adapters, context length, tokens of prompts, delivery of replies."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Event, Lock
from typing import Annotated, Any, ClassVar

from kgqa.artifacts.adapter import Adapter, read_tensors
from kgqa.calls import ModelCall, ModelReply
from kgqa.engines.chat import ChatTemplate, Tokens
from kgqa.engines.thinking import Thinking
from kgqa.engines.weights import Model, is_gguf
from kgqa.errors import ConfigError, EngineDied, as_call_error
from kgqa.protocols import Deliver
from kgqa.types import JsonObject
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

# flag of a reply: the adapter was trained on another file of the same model
BASE_DIFFERS = "base_differs"
# of a layer (out, in) and of a matrix, which must be equal
DIMENSIONS = {"lora_A": (1, -1), "lora_B": (0, 0)}
# tensors of other types do not have the shape of their layer
UNQUANTIZED = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class BaseEngine(ABC):
    """An engine with any number of adapters."""

    model: Model

    _closing: Event = field(default_factory=Event, init=False, repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    _views: dict[Adapter, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    streaming: ClassVar[bool]

    @property
    def base(self) -> Any:
        return self

    @property
    def estimates_tokens(self) -> bool:
        return False

    def with_adapter(self, adapter: Adapter) -> Any:
        """Return the engine with an adapter. Raise ConfigError if it does not fit."""
        if adapter not in self._views:
            differs = self._check_adapter(adapter)
            with self._lock:
                self._views[adapter] = AdaptedEngine(self, adapter, differs)
            self._unload()
        return self._views[adapter]

    def _check_adapter(self, adapter: Adapter) -> bool:  # noqa: ARG002 - there are no weights to compare
        """Return whether the weights are another file than the adapter was trained on."""
        return False

    def _unload(self) -> None:  # noqa: B027 - most engines have nothing to do
        """Free what must be loaded again with a new adapter."""

    def _deliver(self, future: Future[ModelReply], deliver: Deliver) -> None:
        """Deliver a reply or the call's error. A closed engine delivers nothing."""
        if not self._closing.is_set() and not future.cancelled():
            error = future.exception()
            deliver(future.result() if error is None else as_call_error(error))

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise EngineDied("the engine has been closed")


@dataclass(frozen=True, eq=False)
class AdaptedEngine:
    """An engine with an adapter: the same loaded weights with another identity.

    differs: the weights are another file than the adapter was trained on.
    """

    base: Any
    adapter: Adapter
    differs: bool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def loads(self) -> JsonObject:
        return {**self.base.loads(), "lora": self.adapter.digest()}

    def answer(self, calls: Sequence[ModelCall]) -> Sequence[ModelReply | Exception]:
        return [self._flag(reply) for reply in self.base.answer(calls, self.adapter)]

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        self.base.submit(call, lambda reply: deliver(self._flag(reply)), self.adapter)

    def _flag(self, reply: ModelReply | Exception) -> ModelReply | Exception:
        if isinstance(reply, Exception) or not self.differs:
            return reply
        return replace(reply, flags=(*reply.flags, BASE_DIFFERS))


@dataclass(frozen=True)
class LocalEngine(BaseEngine):
    """An engine that loads the weights on this machine."""

    # tokens of prompt and reply (of one slot of llama.cpp); None: the model's own
    max_model_len: Annotated[
        Count | None,
        Setting(
            "Maximum tokens of prompt and reply, of each parallel call. null: the model's own."
        ),
    ] = field(default=None, kw_only=True)

    lists_logprobs: ClassVar[bool] = True  # see `Generate.logprobs`

    def __post_init__(self) -> None:
        _ = self._thinking

    @property
    def calls_functions(self) -> bool:
        """Return whether calls can have tools, see `Generate.tools`."""
        return False

    def render(self, call: ModelCall) -> str:
        return self._template.render(call)

    def count_tokens(self, text: str) -> int:
        return len(self._tokens.encode(text))

    def loads(self) -> JsonObject:
        """Return the hash of the weights, or their revision on the hub.

        Raises:
            MissingWeights: they are not on this machine.
            ConfigError: the engine cannot read them.
        """
        # report a wrong file before the first call
        if self.model.path is not None:
            self.check_weights(self.model.locate())
        return {"weights": self.model.identify()}

    def _check_adapter(self, adapter: Adapter) -> bool:
        """Return whether the adapter was trained on another file of this preset.

        Raises:
            ConfigError: it was trained on another model, or is not plain LoRA.
        """
        if adapter.path is None:
            return False
        adapter.check_plain()
        preset, digests = adapter.trained_on()
        if not digests or (actual := self.model.digest()) in digests:
            return False
        if preset == self.model.name and is_gguf(self.model.locate()):
            return True
        raise ConfigError(
            f"adapter {adapter.name}: trained on {preset or 'weights'} with sha256 {digests[0]}, but {self.model.name} "
            f"has {actual}. Choose the same model={preset or 'PRESET'}, or train the adapter on {self.model.name}."
        )

    @property
    def _limit(self) -> int:
        return min(self.max_model_len or self.model.window, self.model.window)

    def check_weights(self, weights: Path) -> None:
        """Raise a ConfigError if the engine cannot read this file or folder."""
        if weights.is_dir() and not (weights / "tokenizer.json").is_file():
            raise ConfigError(
                f"{weights}: no tokenizer.json. Save the fast tokenizer there: "
                "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)"
            )

    @cached_property
    def _weights(self) -> Path:
        weights = self.model.locate()
        self.check_weights(weights)
        return weights

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate.of(self._weights, self._thinking)

    @cached_property
    def _tokens(self) -> Tokens:
        return Tokens(self._template, self._weights, self._limit)

    @cached_property
    def _thinking(self) -> Thinking:
        return Thinking.of(self.model.thinking).check_fits(self._limit)


def check_layers(adapter: Adapter, folder: Path) -> None:
    """Raise ConfigError if a transformers folder lacks layers of the adapter, or has them in another size."""
    files = sorted(folder.glob("*.safetensors"))
    layers = {name: tensor for file in files for name, tensor in read_tensors(file).items()}
    modules = {name.rpartition(".")[0] for name in layers}
    for name, tensor in adapter.matrices().items() if layers else ():
        module, _, matrix = name.rpartition(".")
        wrong = ""
        if module not in modules or matrix not in DIMENSIONS:
            wrong = "a layer that the model lacks"
        elif (layer := layers.get(f"{module}.weight")) and layer.kind in UNQUANTIZED:
            here, there = (
                shape[n]
                for shape, n in zip((layer.shape, tensor.shape), DIMENSIONS[matrix], strict=True)
            )
            wrong = f"for a size of {there:,}, and the model has {here:,}" if here != there else ""
        if wrong:
            raise ConfigError(
                f"adapter {adapter.name}: of another model than {folder}: it has {name}, {wrong}. Choose the model it "
                "was trained on."
            )
