"""A tiny model as a folder and as a GGUF file, with two random adapters on it, for the tests of adapters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kgqa.artifacts.adapter import Adapter
from kgqa.engines.weights import Model
from kgqa.extras.training.train.export import Attention, write_gguf
from tests.adapters_for_tests import write_lora
from tests.engines.tiny import tiny
from tests.engines.tiny_gguf import as_gguf

ALL = {
    "q_proj": (64, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 64),
    "gate_proj": (128, 64), "up_proj": (128, 64), "down_proj": (64, 128),
}  # fmt: skip


class Small(NamedTuple):
    """A tiny model as a folder and as a GGUF file, and two adapters on all its layers, with their GGUF files."""

    folder: Model
    gguf: Model
    one: Adapter
    two: Adapter

    def of(self, engine: str) -> Model:
        return self.gguf if engine == "llamacpp" else self.folder


def make_small(folder: Path, smollm2: Model, architecture: str = "llama", **config: Any) -> Small:
    plain = tiny(folder / "tiny", smollm2, architecture, **config)
    file = as_gguf(plain, smollm2.locate(), folder / "tiny.gguf")
    attention = Attention.of(plain)
    adapters = [
        Adapter(name, str(write_lora(folder / name, seed=seed, rank=rank, shapes=ALL)))
        for seed, (name, rank) in enumerate({"one": 4, "two": 9}.items())
    ]
    for adapter in adapters:
        write_gguf(adapter, attention, adapter.gguf)
    here = replace(smollm2, name="tiny", path=str(plain), sha256=None, packages=())
    return Small(here, replace(here, path=str(file)), *adapters)


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
            weight.data += (
                scale * matrices[f"{name}.lora_B.weight"] @ matrices[f"{name}.lora_A.weight"]
            )
    return AutoTokenizer.from_pretrained(small.folder.path), plain
