"""Adapters on every engine: two of them and the base, on one loaded model, each as if it were alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kgqa.artefacts.adapter import Adapter
from kgqa.engines.weights import Model
from kgqa.training.gguf_adapter import Attention, write_gguf
from tests.adapters_for_tests import write_lora
from tests.engines.asking import FACTS, TOWNS, ask, choose, largest_difference, texts, write
from tests.engines.conftest import LOCAL, NEEDS, VLLM, build, vllm_engine
from tests.engines.test_exactness import by_hand
from tests.engines.tiny import tiny
from tests.engines.tiny_gguf import as_gguf

pytestmark = pytest.mark.weights
ALL = {
    "q_proj": (64, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 64),
    "gate_proj": (128, 64), "up_proj": (128, 64), "down_proj": (64, 128),
}  # fmt: skip
TOLERANCE = {"llamacpp": 0.02}  # nats; it keeps keys and values in float16, the others compute in float32
CALLS: list[Any] = [
    choose("Which letter?", 21, "Answer:"),
    write("Tell me a story.", 12),
    choose(f"{FACTS} Which one is first?", 5),
    write(f"{FACTS} Who lives where?", 9),
]


class Small(NamedTuple):
    """A tiny model as a folder and as a GGUF file, and two adapters on all its layers, with their GGUF files."""

    folder: Model
    gguf: Model
    one: Adapter
    two: Adapter

    def of(self, engine: str) -> Model:
        return self.gguf if engine == "llamacpp" else self.folder


def made(folder: Path, smollm2: Model, architecture: str = "llama", **config: Any) -> Small:
    plain = tiny(folder / "tiny", smollm2, architecture, **config)
    file = as_gguf(plain, smollm2.locate(), folder / "tiny.gguf")
    attention = Attention.of_config(json.loads((plain / "config.json").read_text()))
    adapters = [
        Adapter(name, str(write_lora(folder / name, seed=seed, rank=rank, shapes=ALL)))
        for seed, (name, rank) in enumerate({"one": 4, "two": 9}.items())
    ]
    for adapter in adapters:
        write_gguf(adapter, attention, adapter.gguf)
    here = replace(smollm2, name="tiny", path=str(plain), sha256=None, packages=())
    return Small(here, replace(here, path=str(file)), *adapters)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Small:
    for library in NEEDS["transformers"]:
        pytest.importorskip(library, reason=f"the tiny model needs {library}", exc_type=ImportError)
    return made(tmp_path_factory.mktemp("adapters"), model)


def engine_on(name: str, model: Model) -> Any:
    if name == "transformers":
        pytest.importorskip("peft", reason="adapters under engine transformers need peft", exc_type=ImportError)
    return vllm_engine(model) if name in VLLM else build(name, model)


@pytest.fixture(scope="module", params=LOCAL)
def engines(request: pytest.FixtureRequest, small: Small) -> Iterator[dict[str, Any]]:
    """The base and its two adapted views, by name."""
    base = engine_on(request.param, small.of(request.param))
    yield {"": base, "one": base.adapted(small.one), "two": base.adapted(small.two)}
    base.close()


def merged(small: Small, adapter: Adapter | None) -> tuple[Any, Any]:
    """Tokenizer and network in plain transformers, the adapter added to its weights: W + alpha / r · B A."""
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    plain = AutoModelForCausalLM.from_pretrained(small.folder.path, dtype="float32").eval()
    if adapter:
        matrices = load_file(adapter.folder / "adapter_model.safetensors")
        for name in {name.rsplit(".", 2)[0] for name in matrices}:
            weight = plain.get_submodule(name.removeprefix("base_model.model.")).weight
            scale = adapter.alpha / adapter.rank
            weight.data += scale * matrices[f"{name}.lora_B.weight"] @ matrices[f"{name}.lora_A.weight"]
    return AutoTokenizer.from_pretrained(small.folder.path), plain


def kind(engine: Any) -> str:
    return str(engine.identity()["engine"])


def test_an_adapter_answers_as_if_it_were_merged_and_the_base_as_if_there_were_none(
    engines: dict[str, Any], small: Small
) -> None:
    near = TOLERANCE.get(kind(engines[""]), 1e-4)
    answers = {}
    for name, adapter in {"one": small.one, "": None, "two": small.two}.items():
        [reply] = ask(engines[name], CALLS[:1])
        assert not isinstance(reply, Exception), reply
        answers[name] = reply
        assert list(reply.logprobs) == pytest.approx(by_hand(CALLS[0], merged(small, adapter))[0], abs=near)  # type: ignore[union-attr]
    differences = [largest_difference(answers[a], answers[b]) for a, b in (("", "one"), ("one", "two"), ("two", ""))]
    assert min(differences) > 0.1


def test_asked_in_turns_each_answers_as_when_it_is_alone(engines: dict[str, Any], small: Small) -> None:
    """The same prompts, so that what is kept of one's must not serve another."""
    name = kind(engines[""])
    near = TOLERANCE.get(name, 1e-4)
    alone = {}
    for which, adapter in {"": None, "one": small.one, "two": small.two}.items():
        engine = engine_on(name, small.of(name))
        alone[which] = ask(engine.adapted(adapter) if adapter else engine, CALLS)
        engine.close()
    assert len({text for replies in alone.values() for text in texts(replies[1::2])}) == 6
    others = [write(f"Tell me about {town}.", 3) for town in TOWNS[:3]]
    for round_ in (["", "one", "two"], ["one", "", "two"], ["two", "one", ""]):
        for which in round_:
            for call, expected in zip(CALLS, alone[which], strict=True):
                [reply] = ask(engines[which], [call])
                same(reply, expected, near)
        ask(engines[round_[0]], others)


def same(reply: Any, expected: Any, near: float) -> None:
    assert not isinstance(reply, Exception), reply
    if hasattr(expected, "logprobs"):
        assert largest_difference(reply, expected) < near
    else:
        assert reply.text == expected.text
