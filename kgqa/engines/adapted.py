"""View an engine through an adapter, with the same loaded weights and its own identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from kgqa.artifacts.adapter import GGUF_SOURCE, Adapter, read_tensors
from kgqa.calls import ModelCall, ModelReply
from kgqa.engines.gguf_header import read_header
from kgqa.engines.weights import Model, is_gguf
from kgqa.errors import ConfigError
from kgqa.protocols import Deliver, Engine, StreamingEngine
from kgqa.types import Json

FLAG = "base_differs"  # of a reply: the adapter was trained on the same model's weights in another file
SIDES = {"lora_A": (1, -1), "lora_B": (0, 0)}  # of a layer (out, in) and of a matrix: what has to be equal
FLOATS = ("F32", "F16", "BF16")  # types of tensors that have their layer's own shape


class Adapting(Engine, Protocol):
    """An engine as any of its adapted views asks it."""

    def with_adapter(self, adapter: Adapter) -> Engine: ...


class AdaptingBatch(Adapting, Protocol):
    """A batch engine as its adapted views ask it."""

    @property
    def batch_size(self) -> int: ...

    def answer_with(self, calls: Sequence[ModelCall], adapter: Adapter | None) -> Sequence[ModelReply | Exception]: ...


class AdaptingStream(Adapting, StreamingEngine, Protocol):
    """A streaming engine as its adapted views ask it."""

    def submit_with(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None) -> None: ...


B = TypeVar("B", bound=Adapting)


@dataclass(frozen=True, eq=False)
class _View(Generic[B]):
    """An engine through an adapter. `differs`: its weights are not the file that the adapter was trained on."""

    base: B
    adapter: Adapter
    differs: bool

    @property
    def counts_freely(self) -> bool:
        return self.base.counts_freely

    def identity(self) -> Mapping[str, Json]:
        return {**self.base.identity(), "lora": self.adapter.digest()}

    def render(self, call: ModelCall) -> str:
        return self.base.render(call)

    def count_tokens(self, text: str) -> int:
        return self.base.count_tokens(text)

    def with_adapter(self, adapter: Adapter) -> Engine:
        """Return the same engine with another adapter."""
        return self.base.with_adapter(adapter)

    def close(self) -> None:
        self.base.close()


class AdaptedBatch(_View[AdaptingBatch]):
    """A batch engine through an adapter."""

    streaming: ClassVar[bool] = False

    @property
    def batch_size(self) -> int:
        return self.base.batch_size

    def answer(self, calls: Sequence[ModelCall]) -> Sequence[ModelReply | Exception]:
        replies = self.base.answer_with(calls, self.adapter)
        return [flag_adapter(reply) for reply in replies] if self.differs else replies


class AdaptedStream(_View[AdaptingStream]):
    """A streaming engine through an adapter."""

    streaming: ClassVar[bool] = True

    @property
    def places(self) -> int:
        return self.base.places

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        handed = (lambda reply: deliver(flag_adapter(reply))) if self.differs else deliver
        self.base.submit_with(call, handed, self.adapter)


def flag_adapter(reply: ModelReply | Exception) -> ModelReply | Exception:
    return reply if isinstance(reply, Exception) else replace(reply, flags=(*reply.flags, FLAG))


def base_differs(adapter: Adapter, model: Model) -> bool:
    """Return whether the model's weights are another file than the adapter was trained on: the preset's, quantised.

    Raises:
        ConfigError: they are those of another model, or the adapter is more than plain LoRA.
    """
    if adapter.path is None:
        return False  # the server that has it has its base
    adapter.check_plain()
    preset, digests = adapter.trained_on()
    if not digests or (here := model.digest()) in digests:
        return False
    if preset == model.name and is_gguf(model.locate()):
        return True
    raise ConfigError(
        f"adapter {adapter.name}: trained on {preset or 'weights'} with sha256 {digests[0]}, and {model.name} here has "
        f"{here}; choose model={preset or 'PRESET'} as it was then, or train the adapter on {model.name}"
    )


def exported(adapter: Adapter) -> Path:
    """Return the adapter as llama.cpp reads it.

    Raises:
        ConfigError: it was not written yet, or from another training of that name.
    """
    file = adapter.gguf
    if not file.is_file() or read_header(file).get(GGUF_SOURCE) != adapter.digest():
        wrong = "is of another training than" if file.is_file() else "is missing beside"
        raise ConfigError(
            f"adapter {adapter.name}: {file} {wrong} {adapter.folder}; run: kgqa models trained {adapter.name} --gguf"
        )
    return file


def check_layers(adapter: Adapter, folder: Path) -> None:
    """Compare with the shapes in a transformers folder, whose tensors may be quantised: those say nothing of shapes.

    Raises:
        ConfigError: the adapter has matrices for layers that are not there, or have another size.
    """
    files = sorted(folder.glob("*.safetensors"))
    there = {name: tensor for file in files for name, tensor in read_tensors(file).items()}
    modules = {name.rpartition(".")[0] for name in there}
    for name, tensor in adapter.matrices().items() if there else ():
        module, _, matrix = name.rpartition(".")
        if module not in modules or matrix not in SIDES:
            raise _of_another(adapter, folder, f"{name}, a layer that is not there")
        of_layer, of_matrix = SIDES[matrix]
        layer = there.get(f"{module}.weight")
        if layer and layer.kind in FLOATS and layer.shape[of_layer] != tensor.shape[of_matrix]:
            sizes = f"{tensor.shape[of_matrix]:,}, which is {layer.shape[of_layer]:,} there"
            raise _of_another(adapter, folder, f"{name} for a size of {sizes}")


def _of_another(adapter: Adapter, folder: Path, what: str) -> ConfigError:
    return ConfigError(
        f"adapter {adapter.name}: of another model than {folder}: it has {what}; choose the model it was trained on"
    )
