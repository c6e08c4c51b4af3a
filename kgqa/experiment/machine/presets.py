"""The model presets, and which of them can run here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kgqa.engines.weights import FOLDER_FILES, About, Model
from kgqa.errors import ConfigError
from kgqa.experiment.config import parts
from kgqa.experiment.config.files import config_file, groups, node
from kgqa.experiment.machine.hardware import GB, gpus, memory
from kgqa.extras import missing_libraries

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
    def hosted(self) -> bool:
        """Without weights: a server answers."""
        return self.model.path is None and self.model.hub is None and not self.model.packages

    @property
    def engines(self) -> tuple[str, ...]:
        """Those that can run it, the likeliest first."""
        if self.about.engines:
            return self.about.engines
        gguf = any(".gguf" in place for place in (self.model.path or self.model.hub or "", *self.model.packages))
        return ("llamacpp", "transformers") if gguf else ("vllm", "transformers")

    @property
    def place(self) -> str:
        """Where the weights are."""
        if self.hosted:
            return "none"
        if self.model.at_hand():
            return "here"
        return "in Python packages" if self.model.packages else f"hub: {self.model.hub}"

    def size(self) -> float | None:
        """Bytes of the weights: as they lie here, else reckoned from the parameters; None: not known."""
        files = self.model.at_hand()
        if files:
            return float(sum(_bytes(file) for file in files))
        if self.about.parameters is None:
            return None
        return self.about.parameters * GB * (self.about.bits or BFLOAT16) / 8


def presets() -> list[Preset]:
    """All of them, by name."""
    return [_preset(name) for name in groups()["model"]]


def _preset(name: str) -> Preset:
    try:
        return Preset(name, parts.model(node("model", name)))
    except ConfigError as error:
        raise ConfigError(f"{config_file('model', name)}: {error}") from error


def fitness(preset: Preset) -> str:
    """Whether the preset can run on this machine, and if not, what is in the way."""
    if preset.hosted:
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
