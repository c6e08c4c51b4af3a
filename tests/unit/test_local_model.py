"""Which model answers where nobody names one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kgqa.config import building as parts
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError, MissingWeights
from kgqa.experiment.check import check, find_warnings
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.session import Session
from kgqa.system import defaults, models


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Sizes in bytes of the presets whose weights are on this machine, which has every engine and 100 GB."""
    sizes: dict[str, int] = {}

    def at_hand(model: Model) -> tuple[Path, ...]:
        return (tmp_path / model.name,) if model.name in sizes else ()

    monkeypatch.setattr(Model, "at_hand", at_hand)
    monkeypatch.setattr(models, "_bytes", lambda weights: sizes[weights.name])
    for module in (models, defaults):
        monkeypatch.setattr(module, "missing_libraries", lambda engine: [])
    monkeypatch.setattr(models, "gpus", lambda: ())
    monkeypatch.setattr(models, "memory", lambda: 100e9)
    return sizes


def chosen(*overrides: str) -> tuple[str, str]:
    experiment = Experiment.of(["method=no_context", *overrides])
    return experiment.name("model"), experiment.name("engine")


def test_default_is_the_largest_model_that_a_cpu_can_run(here: dict[str, int]) -> None:
    here.update(smollm2_135m=98_000_000, qwen2_5_coder_1_5b=1_100_000_000, flan_t5_xl=2_000_000_000)
    assert chosen() == ("qwen2_5_coder_1_5b", "llamacpp")
    here["qwen3_8b"] = 16_000_000_000
    assert chosen() == ("qwen2_5_coder_1_5b", "llamacpp")
    assert chosen("engine=vllm") == ("qwen3_8b", "vllm")
    here.pop("qwen2_5_coder_1_5b")
    here.pop("smollm2_135m")
    assert chosen() == ("flan_t5_xl", "transformers")


def test_default_is_stored_by_name_and_reported(here: dict[str, int]) -> None:
    here.update(qwen2_5_coder_1_5b=1_100_000_000)
    experiment = Experiment.of(["method=no_context"])
    assert experiment.remarks[0].startswith("model: qwen2_5_coder_1_5b (1.1 GB), the best on this machine.")
    named = Experiment.of(["method=no_context", "model=qwen2_5_coder_1_5b", "engine=llamacpp"])
    assert (experiment.identity, named.remarks) == (named.identity, ())


@pytest.mark.parametrize(("method", "names_model"), [("no_context", True), ("retrieve_only", False)])
def test_model_is_named_if_the_run_calls_it(
    method: str, names_model: bool, here: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    here.update(qwen2_5_coder_1_5b=1_100_000_000)
    lines: list[str] = []
    monkeypatch.setattr(Session, "say_once", lambda _, line: lines.append(line))
    monkeypatch.setattr(Session, "engines", SimpleNamespace(identities=dict))
    with Session(Experiment.of([f"method={method}", "dataset=demo"])) as session:
        check(session)
    assert [line.startswith("model: qwen2_5_coder_1_5b") for line in lines] == [True] * names_model


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("model=flan_t5_xl", ("flan_t5_xl", "transformers")),
        ("model=qwen3_8b", ("qwen3_8b", "vllm")),
        ("model=qwen3_8b engine=transformers", ("qwen3_8b", "transformers")),
        ("model=Qwen/Qwen3-8B", ("qwen3_8b", "vllm")),
        ("model=owner/Other-Model", ("Other-Model", "vllm")),
        ("model=owner/Other-GGUF:other.Q4.gguf", ("Other-GGUF-other.Q4", "llamacpp")),
        ("model=my/models/own.gguf", ("own", "llamacpp")),
        ("model=/models/folder/", ("folder", "vllm")),
        ("engine=scripted", ("smollm2_135m", "scripted")),
    ],
)
def test_engine_follows_the_model(overrides: str, expected: tuple[str, str], here: dict[str, int]) -> None:
    here.update(qwen2_5_coder_1_5b=1_100_000_000)
    assert chosen(*overrides.split()) == expected


def test_model_without_preset_has_the_context_of_its_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 4096}}')
    experiment = Experiment.of(["method=no_context", f"model={tmp_path}", "engine=transformers"])
    assert parts.model(experiment.config["model"]).window == 4096
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"Set it: model.context=N"):
        _ = parts.model(experiment.config["model"]).window


@pytest.mark.parametrize("name", ["", "qwen2_5_coder_1_5b"])
def test_missing_weights_name_the_models_that_are_here(
    name: str, here: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    here.update({name: 1_100_000_000} if name else {})
    absent = Experiment.of(["method=no_context", "model=owner/absent", "engine=transformers"])
    remedies = r"Do one of: \(1\) let kgqa download owner/absent: .*\(2\) model=PATH .*\(3\) server=URL .*"
    shown = f"model={name}" if name else "no model"
    message = rf"^model=owner/absent: the weights are not on this machine\. {remedies} On this machine: {shown}\.$"
    with Session(absent) as session, pytest.raises(MissingWeights, match=message):
        check(session)


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        ("method=trace dataset=musique model=smollm2_135m", "warning: model=smollm2_135m is a toy model"),
        ("method=trace dataset=demo model=smollm2_135m", ""),
        ("method=trace dataset=demo retriever=dense", "warning: retriever=dense has no effect: method=trace uses no"),
        ("method=trace dataset=demo retriever.fields.title=2", "warning: retriever.fields.title=2 has no effect"),
        ("method=retrieve_read dataset=demo retriever=dense", ""),
        ("method=retrieve_read dataset=demo reranker=null", ""),
    ],
)
def test_settings_without_use_are_warned_of(overrides: str, warning: str) -> None:
    words = [*overrides.split(), *([] if "model=" in overrides else ["engine=scripted"])]
    warnings = list(find_warnings(Experiment.of(words)))
    assert [text for text in warnings if not text.startswith(warning)] == []
    assert bool(warnings) == bool(warning)
