"""A tiny transformers folder as a GGUF file in float32, with the tokenizer of SmolLM2's own GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def as_gguf(folder: Path, smollm2: Path, target: Path) -> Path:
    """The base as llama.cpp's own converter would write it: rows of a LLaMA's q and k are rotated pairs."""
    import gguf
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    config, kind = network.config, network.config.model_type
    writer = gguf.GGUFWriter(target, kind)
    for name, value in {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads, "head_count_kv": config.num_key_value_heads,
        "layer_norm_rms_eps": config.rms_norm_eps, "rope_freq_base": config.rope_parameters["rope_theta"],
        "rope_dimension_count": config.head_dim, "key_length": config.head_dim, "value_length": config.head_dim,
        "vocab_size": config.vocab_size,
    }.items():  # fmt: skip
        getattr(writer, f"add_{name}")(value)
    _copy_tokenizer(writer, gguf.GGUFReader(smollm2))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[kind.upper()], config.num_hidden_layers)
    for name, tensor in network.state_dict().items():
        if name != "lm_head.weight":  # tied
            writer.add_tensor(
                names.get_name(name, (".weight", ".bias")),
                _rows(name, tensor.detach(), config).contiguous().numpy(),
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _rows(name: str, tensor: Any, config: Any) -> Any:
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(
        name.split(".")[-2]
    )
    if config.model_type != "llama" or heads is None:
        return tensor
    return tensor.view(heads, 2, -1, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


def _copy_tokenizer(writer: Any, source: Any) -> None:
    import gguf

    for name, field in source.fields.items():
        if name.startswith("tokenizer."):
            kind = field.types[0]
            if kind == gguf.GGUFValueType.ARRAY:
                writer.add_array(name, field.contents())
            else:
                writer.add_key_value(name, field.contents(), kind)
