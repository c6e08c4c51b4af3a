"""Describe model presets and whether they can run on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kgqa.config import factories as parts
from kgqa.config.files import config_file, groups, load_node
from kgqa.engines.weights import FOLDER_FILES, About, Model
from kgqa.errors import ConfigError
from kgqa.system.hardware import GB, gpus, memory
from kgqa.util.optional_deps import missing_libraries

SPARE = 1.2  # times the weights: room for keys and values
BFLOAT16 = 16  # bits of a parameter
INT4 = 0.3  # of the bytes that bfloat16 takes: layers are quantised, embeddings are not
NOTHING_SAID = About(licence=None, parameters=None, bits=None, engines=())
LARGE = 3 * GB  # weights that a CPU takes seconds a token for


@dataclass(frozen=True)
class Preset:
    """A file of conf/model, by its name there."""

    name: str
    model: Model

    @property
    def about(self) -> About:
        return self.model.about or NOTHING_SAID

    @property
    def parameters(self) -> str:
        return "" if self.about.parameters is None else f"{self.about.parameters:g} B"

    @property
    def is_hosted(self) -> bool:
        """Return whether the model has no weights because a server answers."""
        return self.model.path is None and self.model.hub is None and not self.model.packages

    @property
    def engines(self) -> tuple[str, ...]:
        """Return the engines that can run it, best first."""
        if self.about.engines:
            return self.about.engines
        gguf = any(".gguf" in place for place in (self.model.path or self.model.hub or "", *self.model.packages))
        return ("llamacpp", "transformers") if gguf else ("vllm", "transformers")

    @property
    def place(self) -> str:
        """Return where the weights are."""
        if self.is_hosted:
            return "none"
        if self.model.at_hand():
            return "here"
        return "in Python packages" if self.model.packages else f"hub: {self.model.hub}"

    def size(self) -> float | None:
        """Return the bytes of the weights: of the files, else estimated from the parameters, else None."""
        files = self.model.at_hand()
        if files:
            return float(sum(_bytes(file) for file in files))
        if self.about.parameters is None:
            return None
        return self.about.parameters * GB * (self.about.bits or BFLOAT16) / 8


def list_presets() -> list[Preset]:
    """Return all presets by name."""
    return [_preset(name) for name in groups()["model"]]


def _preset(name: str) -> Preset:
    try:
        return Preset(name, parts.model(load_node("model", name)))
    except ConfigError as error:
        raise ConfigError(f"{config_file('model', name)}: {error}") from error


def describe_fitness(preset: Preset) -> str:
    """Return whether the preset can run on this machine, or what is missing."""
    if preset.is_hosted:
        return f"through a server: engine={preset.engines[0]}"
    size, at_hand = preset.size(), bool(preset.model.at_hand())
    room = max(sum(gpu.memory for gpu in gpus()), memory())
    if size is not None and size * SPARE > room:
        quarter = size * INT4 * SPARE
        whole = (preset.about.bits or BFLOAT16) >= BFLOAT16  # weights that are quantised already are not again
        fits = quarter < room and preset.engines[0] != "llamacpp" and whole
        way_out = f"; engine.quantization=int4: {quarter / GB:.0f} GB" if fits else ""
        return f"needs about {size * SPARE / GB:.0f} GB of memory{way_out}"
    ready = [engine for engine in preset.engines if not missing_libraries(engine)]
    if not ready:
        return " or ".join(f"pip install 'kgqa[{engine}]'" for engine in preset.engines)
    slow = ", slow without a GPU" if size is not None and size > LARGE and not gpus() else ""
    return f"{'yes' if at_hand else 'once fetched'}: {', '.join(ready)}{slow}"


def _bytes(weights: Path) -> int:
    if weights.is_file():
        return weights.stat().st_size
    return sum(file.stat().st_size for pattern in FOLDER_FILES for file in weights.glob(pattern))
