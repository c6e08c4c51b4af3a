"""The engines under contract, on SmolLM2's real weights; what is not installed is skipped with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from kgqa.engines.llamacpp import LlamaCpp
from kgqa.engines.openmp import let_waiting_threads_sleep
from kgqa.engines.scripted import Scripted
from kgqa.engines.transformers import Transformers
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError
from kgqa.protocols import Engine
from tests.engines.asking import CONTEXT

let_waiting_threads_sleep()
os.environ.setdefault("HF_HUB_OFFLINE", "1")

BUILD: dict[str, Callable[[Model], Engine]] = {
    "scripted": lambda model: Scripted(model, rules=None, delay=0.0, batch_size=8),
    "transformers": lambda model: Transformers(model, "float32", batch_size=8, device="cpu", context=CONTEXT),
    "llamacpp": lambda model: LlamaCpp(model, slots=1, threads=None, context=CONTEXT),
}
NEEDS = {"scripted": (), "transformers": ("torch", "transformers", "gguf", "accelerate"), "llamacpp": ("xllamacpp",)}
REAL = ("transformers", "llamacpp")


def build(name: str, model: Model) -> Engine:
    for library in NEEDS[name]:
        pytest.importorskip(library, reason=f"engine {name} needs {library}", exc_type=ImportError)
    return BUILD[name](model)


@pytest.fixture(scope="session")
def model() -> Model:
    """SmolLM2-135M-Instruct as configured."""
    file = Path(__file__).parents[2] / "conf" / "model" / "smollm2_135m.yaml"
    fields: Any = OmegaConf.to_container(OmegaConf.load(file))
    fields.pop("_target_")
    model = Model(**{**fields, "packages": tuple(fields["packages"])})
    try:
        model.locate()
    except ConfigError as error:
        pytest.skip(str(error))
    return model


@pytest.fixture(scope="module", params=BUILD)
def engine(request: pytest.FixtureRequest, model: Model) -> Iterator[Any]:
    """Every engine."""
    engine = build(request.param, model)
    yield engine
    engine.close()


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest, model: Model) -> Iterator[Any]:
    """Every engine that has a model."""
    engine = build(request.param, model)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def transformers(model: Model) -> Iterator[Any]:
    engine = build("transformers", model)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def llamacpp(model: Model) -> Iterator[Any]:
    engine = build("llamacpp", model)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def reference(transformers: Any) -> tuple[Any, Any]:
    """The same weights in plain transformers: tokenizer and model in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = transformers._folder
    return AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
