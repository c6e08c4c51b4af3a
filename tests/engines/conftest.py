"""The engines under contract, on SmolLM2's real weights; what is not installed is skipped with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import pytest

from kgqa.config.building import build as configured
from kgqa.config.composing import compose
from kgqa.config.keys import load_node
from kgqa.engines.llamacpp import LlamaCpp, start_server
from kgqa.engines.openai import OpenAI
from kgqa.engines.scripted import Scripted
from kgqa.engines.transformers import Transformers
from kgqa.engines.vllm import Vllm
from kgqa.engines.weights import Model, let_waiting_threads_sleep
from kgqa.errors import ConfigError
from kgqa.protocols import Engine
from kgqa.util.machine import count_cores
from tests.engines.asking import CONTEXT
from tests.engines.misbehaving import SECRET, Fault, Misbehaving, Serving
from tests.engines.small import Small, make_small

let_waiting_threads_sleep()
os.environ.setdefault("HF_HUB_OFFLINE", "1")

BUILD: dict[str, Callable[[Model], Engine]] = {
    "scripted": lambda model: Scripted(model, rules=None, delay=0.0, batch_size=8),
    "transformers": lambda model: Transformers(
        model, "float32", None, batch_size=8, device="cpu", max_model_len=CONTEXT
    ),
    "llamacpp": lambda model: LlamaCpp(model, max_num_seqs=1, threads=None, max_model_len=CONTEXT),
    "openai": lambda model: server_engine(model),
}
NEEDS = {
    "scripted": (), "transformers": ("torch", "transformers", "gguf", "accelerate", "llguidance"),
    "llamacpp": ("xllamacpp",), "openai": ("xllamacpp", "aiohttp", "llguidance"),
}  # fmt: skip
# in an environment of its own, see the Makefile and test_vllm.py
VLLM = ("vllm",) if find_spec("vllm") else ()
BUILD |= {name: lambda model: vllm_engine(model) for name in VLLM}
NEEDS |= dict.fromkeys(VLLM, ("vllm", "llguidance"))
REAL = ("transformers", "llamacpp", "openai", *VLLM)
# in float32, whose replies can be computed by hand
EXACT = ("transformers", *VLLM)
# those that have the weights, and so the chat template, themselves
LOCAL = ("transformers", "llamacpp", *VLLM)


def build(name: str, model: Model) -> Engine:
    for library in NEEDS[name]:
        pytest.importorskip(library, reason=f"engine {name} needs {library}", exc_type=ImportError)
    return BUILD[name](model)


@cache
def served(model: Model) -> Any:
    """llama.cpp's own server on a loopback port, one slot."""
    threads = count_cores()
    return start_server(model.locate(), slots=1, threads=threads, context=CONTEXT)


def server_engine(model: Model, **fields: Any) -> OpenAI:
    """engine=openai at that server; the fields of its configuration can be set."""
    url = f"{served(model).listening_address}/v1"
    here = {"base_url": url, "server": "llamacpp", "served_model": str(model.locate())}
    engine: OpenAI = configured(
        compose(["engine=openai"])["engine"] | here | fields, "engine", model=model
    )
    return engine


def vllm_engine(model: Model, **fields: Any) -> Vllm:
    """engine=vllm in float32, small; the fields of its configuration can be set."""
    small = {"dtype": "float32", "max_model_len": CONTEXT, "max_num_seqs": 16, "cache": 1.0}
    engine: Vllm = configured(
        compose(["engine=vllm"])["engine"] | small | fields, "engine", model=model
    )
    return engine


def lend(request: pytest.FixtureRequest, model: Model) -> Iterator[Any]:
    """The engine a fixture's parameter names; vLLM, which takes a minute to start, is the same for all tests."""
    if request.param in VLLM:
        yield request.getfixturevalue("vllm")
        return
    engine = build(request.param, model)
    yield engine
    engine.close()


@pytest.fixture(scope="session", autouse=True)
def _served() -> Iterator[None]:
    """Ends the server with the session, if there was one."""
    yield
    served.cache_clear()


@pytest.fixture(scope="session")
def model() -> Model:
    """SmolLM2-135M-Instruct as configured."""
    model: Model = configured(load_node("model", "smollm2_135m"), "model")
    try:
        model.locate()
    except ConfigError as error:
        pytest.skip(str(error))
    return model


def every(names: Iterable[str]) -> Any:
    """A fixture with each of these engines in turn."""

    @pytest.fixture(scope="module", params=list(names))
    def lent(request: pytest.FixtureRequest, model: Model) -> Iterator[Any]:
        yield from lend(request, model)

    return lent


def one(name: str, scope: Literal["module", "session"] = "module") -> Any:
    """A fixture with this engine."""

    @pytest.fixture(scope=scope)
    def built(model: Model) -> Iterator[Any]:
        engine = build(name, model)
        yield engine
        engine.close()

    return built


engine, real, local, exact = every(BUILD), every(REAL), every(LOCAL), every(EXACT)
transformers, llamacpp, vllm = one("transformers"), one("llamacpp"), one("vllm", "session")


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """Starts servers: `serving(fault, fault, always=fault)`."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    started: list[Misbehaving] = []

    def start(*faults: Fault, always: Fault | None = None) -> Misbehaving:
        started.append(Misbehaving(*faults, always=always))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="module")
def reference(transformers: Any) -> tuple[Any, Any]:
    """The same weights in plain transformers: tokenizer and model in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = transformers._tokens.folder
    return AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(
        folder, dtype="float32"
    ).eval()


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Small:
    for library in NEEDS["transformers"]:
        pytest.importorskip(library, reason=f"the tiny model needs {library}", exc_type=ImportError)
    return make_small(tmp_path_factory.mktemp("adapters"), model)
