"""A random model of three million parameters with SmolLM2's tokenizer: it loads and answers in no time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kgqa.engines.weights import Model, convert_weights


def tiny(folder: Path, smollm2: Model, architecture: str = "llama", **config: Any) -> Path:
    """Written into `folder` in float32, with large random weights: its distributions are far from flat."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    settings = AutoConfig.for_model(
        architecture, vocab_size=49152, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=32, max_position_embeddings=8192,
        tie_word_embeddings=True, initializer_range=0.2, bos_token_id=1, eos_token_id=2, **config,
    )  # fmt: skip
    network = AutoModelForCausalLM.from_config(settings, dtype=torch.float32)
    for name, bias in network.named_parameters():
        if name.endswith("bias"):  # of Qwen2: made as zeros
            torch.nn.init.normal_(bias, std=0.2)
    network.save_pretrained(folder)
    source = convert_weights(smollm2.locate())
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / file, folder / file)
    return folder
