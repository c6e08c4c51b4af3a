"""The model presets, and which of them can run here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kgqa.engines.weights import FOLDER_FILES, Model
from kgqa.errors import ConfigError
from kgqa.experiment.config import parts
from kgqa.experiment.config.files import config_file, groups, node
from kgqa.experiment.machine.hardware import GB, gpus, memory
from kgqa.extras import missing_libraries

SPARE = 1.2  # times the weights: room for keys and values
BFLOAT16, MXFP4 = 2.0, 0.55  # bytes of a parameter; the latter: 4 bits and its share of a scale
INT4 = 0.3  # of the bytes that bfloat16 takes: layers are quantised, embeddings are not
LARGE = 3 * GB  # weights that a CPU takes seconds a token for


@dataclass(frozen=True)
class Preset:
    """A file of conf/model. Its first comment says what the model is: "# Title, size (licence): what for".

    Where only some engines can run it, the comment names them: "engine=transformers".
    """

    name: str
    model: Model
    comment: str

    @property
    def licence(self) -> str:
        """Empty for a hosted model."""
        found = re.search(r"\(([^)]*)\)", self.comment)
        return found[1] if found and not self.hosted else ""

    @property
    def parameters(self) -> str:
        found = re.search(r", ([\d.]+ B) parameters", self.comment)
        return found[1] if found else ""

    @property
    def hosted(self) -> bool:
        """Without weights: a server answers."""
        return self.model.path is None and self.model.hub is None and not self.model.packages

    @property
    def engines(self) -> tuple[str, ...]:
        """Those that can run it, the likeliest first."""
        if named := re.findall(r"engine=(\w+)", self.comment):
            return tuple(named)
        gguf = any(".gguf" in place for place in (self.model.hub or "", *self.model.packages))
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
        if not self.parameters:
            return None
        each = MXFP4 if "parameters in MXFP4" in self.comment else BFLOAT16
        return float(self.parameters.split()[0]) * GB * each


def presets() -> list[Preset]:
    """All of them, by name."""
    return [_preset(name) for name in groups()["model"]]


def _preset(name: str) -> Preset:
    file = config_file("model", name)
    comment = re.match(r"(?:#.*\n)*", file.read_text(encoding="utf-8"))
    text = " ".join(line.lstrip("# ") for line in comment[0].splitlines()) if comment else ""
    try:
        return Preset(name, parts.model(node("model", name)), text)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error


def fitness(preset: Preset) -> str:
    """Whether the preset can run on this machine, and if not, what is in the way."""
    if preset.hosted:
        return f"through a server: engine={preset.engines[0]}"
    size, at_hand = preset.size(), bool(preset.model.at_hand())
    room = max(sum(gpu.memory for gpu in gpus()), memory())
    if size is not None and size * SPARE > room:
        quarter = size * INT4 * SPARE
        fits = quarter < room and preset.engines[0] != "llamacpp" and "MXFP4" not in preset.comment
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
