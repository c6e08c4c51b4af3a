"""Adapters as GGUF, for llama.cpp.

llama.cpp reads an adapter as one GGUF file of float32 matrices. It keeps the rows of a LLaMA's query and key weights in
another order (pairs of a head's two halves side by side, for its rotary embedding), so an adapter's are put in that
order, too. Those of Qwen2 and Qwen3 stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgqa.artifacts.adapter import GGUF_SOURCE, MATRICES, Adapter, StoredTensor
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.schema import read
from kgqa.artifacts.trained import Trained
from kgqa.engines.weights import is_gguf, read_header
from kgqa.errors import ConfigError, DataError
from kgqa.extras.training.train.request import Base
from kgqa.system.models import find_adapter
from kgqa.types import Json
from kgqa.util.fs import replace_atomically
from kgqa.util.optional_deps import install_command

# as both Hugging Face and GGUF call them
ARCHITECTURES = ("llama", "qwen2", "qwen3")
LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# layers of LLaMA with another order of rows, and the number of heads
ROTATED = {
    "attn_q": "heads",
    "attn_k": "kv_heads",
}
MERGE_HINT = "Merge it into its base instead"


def export_gguf(name: str, out: Path | None) -> Path:
    """Write an adapter, trained here or elsewhere, as llama.cpp reads it.

    Raises:
        ConfigError: there is no such adapter, or its base is unknown, missing or of another architecture.
        DataError: its file is damaged.
    """
    adapter = find_adapter(name)
    preset, _ = adapter.trained_on()
    if preset is None:
        raise ConfigError(f"adapter {name}: its base is unknown. Name it in conf/adapter")
    own = (adapter.folder.parent / MANIFEST).is_file()
    base = _base(Trained.read(adapter.folder.parent)) if own else Base.of(preset, is_encoder=False)
    assert base.model is not None
    target = out or adapter.gguf
    write_gguf(adapter, Attention.of(base.model.locate()), target)
    return target


def _base(trained: Trained) -> Base:
    """Return the base as it was chosen. Raises DataError: its weights have changed."""
    choice = {key: value for key, value, _ in trained.settings}.get("train.base", trained.base)
    base = Base.of(choice.strip("'"), is_encoder=False)
    if base.digest() != trained.base_sha256:
        raise DataError(
            f"{trained.base}: its weights are {base.digest()[:12]} now, {trained.name} was trained on "
            f"{trained.base_sha256[:12]}. Get those again"
        )
    return base


@dataclass(frozen=True)
class Attention:
    """The attention's shape of a base model, which decides the layout of an adapter."""

    architecture: str
    heads: int
    kv_heads: int

    @classmethod
    def of(cls, weights: Path) -> Attention:
        """Read the attention's shape from a GGUF file, or from the config.json of a transformers folder."""
        if is_gguf(weights):
            header = read_header(weights)
            kind = header.get("general.architecture")
            keys = (f"{kind}.attention.head_count", f"{kind}.attention.head_count_kv")
        else:
            header = read(
                dict[str, Json], weights / "config.json", remedy="Get the model's folder again."
            )
            kind, keys = header.get("model_type"), ("num_attention_heads", "num_key_value_heads")
        if kind not in ARCHITECTURES:
            offered = ", ".join(ARCHITECTURES)
            raise ConfigError(
                f"no GGUF adapters on a base of architecture {kind}, only on {offered}. {MERGE_HINT}"
            )
        heads = header.get(keys[0])
        kv_heads = header.get(keys[1]) or heads
        if not isinstance(heads, int) or not isinstance(kv_heads, int):
            raise DataError(
                f"{weights}: no number of attention heads ({heads}, {kv_heads}). Get it again"
            )
        return cls(str(kind), heads, kv_heads)


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
        raise ConfigError(
            f"writing GGUF needs gguf ({error}). Install it: {install_command('train')}"
        ) from error

    adapter.check_plain()
    matrices = {_gguf_name(name, adapter): tensor for name, tensor in adapter.matrices().items()}
    with replace_atomically(target) as fresh:
        writer = gguf.GGUFWriter(fresh, base.architecture)
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, adapter.alpha)
        writer.add_string(GGUF_SOURCE, adapter.digest())
        for name in sorted(matrices):
            writer.add_tensor(
                name, _order(name, _values(adapter.folder / MATRICES, matrices[name]), base)
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _gguf_name(name: str, adapter: Adapter) -> str:
    """Return "blk.3.ffn_up.weight.lora_a" for "model.layers.3.mlp.up_proj.lora_A"."""
    module, _, matrix = name.rpartition(".")
    number, _, layer = module.removeprefix("model.layers.").partition(".")
    if not number.isdigit() or layer not in LAYERS or matrix not in ("lora_A", "lora_B"):
        raise ConfigError(
            f"adapter {adapter.name}: llama.cpp does not support matrices for {module}. {MERGE_HINT}"
        )
    return f"blk.{number}.{LAYERS[layer]}.weight.{matrix.lower()}"


def _values(file: Path, tensor: StoredTensor) -> Any:
    import numpy as np

    with file.open("rb") as source:
        source.seek(tensor.start)
        stored = source.read(tensor.end - tensor.start)
    # the upper half of a float32
    if tensor.kind == "BF16":
        flat = (np.frombuffer(stored, "<u2").astype("<u4") << 16).view("<f4")
    elif tensor.kind in ("F32", "F16"):
        flat = np.frombuffer(stored, "<f4" if tensor.kind == "F32" else "<f2").astype("<f4")
    else:
        raise DataError(
            f"{file}: matrices of type {tensor.kind}. Save them as float32, float16 or bfloat16"
        )
    return flat.reshape(tensor.shape)


def _order(name: str, matrix: Any, base: Attention) -> Any:
    """Return the rows that llama.cpp expects: (out, rank) of a LLaMA's q and k; everything else as it is."""
    _, _, layer, _, side = name.split(".")
    if base.architecture != "llama" or side != "lora_b" or layer not in ROTATED:
        return matrix
    heads = getattr(base, ROTATED[layer])
    halves = matrix.reshape(
        heads, 2, matrix.shape[0] // heads // 2, *matrix.shape[1:]
    )  # (head, half, pair, rank)
    return halves.swapaxes(1, 2).reshape(matrix.shape)
