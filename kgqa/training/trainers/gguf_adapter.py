"""A PEFT adapter as llama.cpp reads it: one GGUF file of float32 matrices.

llama.cpp keeps the rows of a LLaMA's query and key weights in another order (pairs of a head's two halves side by
side, for its rotary embedding), so an adapter's are put in that order, too; Qwen2's and Qwen3's stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgqa.artifacts.adapter import GGUF_SOURCE, MATRICES, Adapter, StoredTensor
from kgqa.errors import ConfigError, DataError
from kgqa.types import Json
from kgqa.util.fs import replace_atomically

ARCHITECTURES = ("llama", "qwen2", "qwen3")  # as both Hugging Face and GGUF call them
LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ROTATED = {"attn_q": "heads", "attn_k": "kv_heads"}  # of LLaMA: whose rows stand in another order, and how many heads
MERGE = "merge it into its base instead"
Array = Any  # numpy's float32


@dataclass(frozen=True)
class Attention:
    """The attention's shape of a base model, which decides the layout of an adapter."""

    architecture: str
    heads: int
    kv_heads: int

    @classmethod
    def of_config(cls, config: Mapping[str, Json]) -> Attention:
        """Read the attention's shape from the config.json of a transformers folder."""
        heads = config.get("num_attention_heads")
        return _check(config.get("model_type"), heads, config.get("num_key_value_heads") or heads)

    @classmethod
    def of_header(cls, header: Mapping[str, Json]) -> Attention:
        """Read the attention's shape from the keys of the base's GGUF file."""
        kind = header.get("general.architecture")
        heads = header.get(f"{kind}.attention.head_count")
        return _check(kind, heads, header.get(f"{kind}.attention.head_count_kv") or heads)


def write_gguf(adapter: Adapter, base: Attention, target: Path) -> None:
    """Replace `target`; equal adapters give equal bytes.

    Raises:
        ConfigError: it has matrices that llama.cpp cannot use, or the package gguf is missing.
        DataError: its file is damaged.
        StorageError: there is no room.
    """
    try:
        import gguf
    except ImportError as error:
        raise ConfigError(f"writing GGUF needs the package gguf ({error}); pip install 'kgqa[train]'") from error

    adapter.check_plain()
    matrices = {_gguf_name(name, adapter): tensor for name, tensor in adapter.matrices().items()}
    with replace_atomically(target) as fresh:
        writer = gguf.GGUFWriter(fresh, base.architecture)
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, adapter.alpha)
        writer.add_string(GGUF_SOURCE, adapter.digest())
        for name in sorted(matrices):
            writer.add_tensor(name, _order(name, _values(adapter.folder / MATRICES, matrices[name]), base))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _check(architecture: Json, heads: Json, kv_heads: Json) -> Attention:
    if architecture not in ARCHITECTURES:
        offered = ", ".join(ARCHITECTURES)
        raise ConfigError(f"no GGUF adapters on a base of architecture {architecture}, only on {offered}; {MERGE}")
    if not isinstance(heads, int) or not isinstance(kv_heads, int):
        raise DataError(f"the base does not say how many attention heads it has ({heads}, {kv_heads}); get it again")
    return Attention(str(architecture), heads, kv_heads)


def _gguf_name(name: str, adapter: Adapter) -> str:
    """ "model.layers.3.mlp.up_proj.lora_A" is "blk.3.ffn_up.weight.lora_a"."""
    module, _, matrix = name.rpartition(".")
    number, _, layer = module.removeprefix("model.layers.").partition(".")
    if not number.isdigit() or layer not in LAYERS or matrix not in ("lora_A", "lora_B"):
        raise ConfigError(f"adapter {adapter.name}: llama.cpp takes no matrices for {module}; {MERGE}")
    return f"blk.{number}.{LAYERS[layer]}.weight.{matrix.lower()}"


def _values(file: Path, tensor: StoredTensor) -> Array:
    import numpy as np

    with file.open("rb") as source:
        source.seek(tensor.start)
        stored = source.read(tensor.end - tensor.start)
    if tensor.kind == "BF16":  # the upper half of a float32
        flat = (np.frombuffer(stored, "<u2").astype("<u4") << 16).view("<f4")
    elif tensor.kind in ("F32", "F16"):
        flat = np.frombuffer(stored, "<f4" if tensor.kind == "F32" else "<f2").astype("<f4")
    else:
        raise DataError(f"{file}: matrices of type {tensor.kind}; save them as float32, float16 or bfloat16")
    return flat.reshape(tensor.shape)


def _order(name: str, matrix: Array, base: Attention) -> Array:
    """Return the rows that llama.cpp expects: (out, rank) of a LLaMA's q and k; everything else as it is."""
    _, _, layer, _, side = name.split(".")
    if base.architecture != "llama" or side != "lora_b" or layer not in ROTATED:
        return matrix
    heads = getattr(base, ROTATED[layer])
    halves = matrix.reshape(heads, 2, matrix.shape[0] // heads // 2, *matrix.shape[1:])  # (head, half, pair, rank)
    return halves.swapaxes(1, 2).reshape(matrix.shape)
