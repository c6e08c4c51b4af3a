"""Small LoRA adapters, written as PEFT writes them, without PEFT."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from struct import pack
from typing import Any

# (out, in) of the tiny model's layers, see tests/engines/tiny.py
SHAPES = {"q_proj": (64, 64), "v_proj": (32, 64)}


def write_lora(
    folder: Path,
    seed: int = 1,
    rank: int = 4,
    shapes: Mapping[str, tuple[int, int]] | None = None,
    **config: Any,
) -> Path:
    """Random matrices on the named projections of two layers; `config`: further settings of adapter_config.json."""
    generator = random.Random(seed)
    matrices: dict[str, tuple[tuple[int, int], bytes]] = {}
    for layer in range(2):
        for name, (out, into) in (SHAPES if shapes is None else shapes).items():
            block = "mlp" if name in ("gate_proj", "up_proj", "down_proj") else "self_attn"
            place = f"base_model.model.model.layers.{layer}.{block}.{name}"
            for matrix, shape in (("lora_A", (rank, into)), ("lora_B", (out, rank))):
                values = [generator.gauss(0, 0.25) for _ in range(shape[0] * shape[1])]
                matrices[f"{place}.{matrix}.weight"] = shape, pack(f"<{len(values)}f", *values)
    folder.mkdir(parents=True)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 2 * rank,
        "bias": "none",
    }
    targets = sorted(SHAPES if shapes is None else shapes)
    (folder / "adapter_config.json").write_text(
        json.dumps(settings | {"target_modules": targets} | config)
    )
    header, place_in_file = {}, 0
    for name, (shape, stored) in sorted(matrices.items()):
        header[name] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [place_in_file, place_in_file + len(stored)],
        }
        place_in_file += len(stored)
    text = json.dumps(header).encode()
    body = b"".join(stored for _, (_, stored) in sorted(matrices.items()))
    (folder / "adapter_model.safetensors").write_bytes(pack("<Q", len(text)) + text + body)
    return folder


def write_artefact(folder: Path, base: str, base_sha256: str, **lora: Any) -> Path:
    """As training leaves it: adapter/ and, written last, manifest.json."""
    write_lora(folder / "adapter", **lora)
    manifest = {"base": base, "base_sha256": base_sha256, "rank": lora.get("rank", 4)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
