"""The implementation of attention that a model is loaded with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.transformers.loading import load

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("torch", reason="torch is not installed")

SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 100,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("family", "sizes", "attention"),
    [("LlamaConfig", SIZES, "sdpa"), ("GptOssConfig", SIZES | EXPERTS, "eager")],
    ids=["llama", "gpt_oss"],
)
def test_model_is_loaded_with_attention_it_supports(
    family: str, sizes: dict[str, Any], attention: str, tmp_path: Path
) -> None:
    import transformers

    config = getattr(transformers, family)(**sizes)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    network = load(tmp_path, "float32", "cpu", None)
    assert network.config._attn_implementation == attention
