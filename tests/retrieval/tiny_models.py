"""Random transformers of a few thousand weights, saved as the folders that encoders and rerankers read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEXT = """a aunt berlin born castle document directed film general hello in is lighthouse long lund maria of painter
passage query question relevant river the there true false who x : ? ."""
WORDS = TEXT.split()
# of the weights: wide enough that texts get different scores
SPREAD = 0.3
BERT = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "initializer_range": SPREAD,
}  # fmt: skip
LLAMA = {**BERT, "num_key_value_heads": 1, "head_dim": 8}


def tokenizer(kind: str) -> Any:
    """Words as tokens. bert: [CLS] … [SEP]; llama: <s> … without an end; t5: "▁word" … </s>."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = {
        "bert": {
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "pad_token": "[PAD]",
        },
        "llama": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
        "t5": {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
    }[kind]
    mark = "▁" if kind == "t5" else ""
    vocabulary = {
        word: at for at, word in enumerate([*special.values(), *(mark + word for word in WORDS)])
    }
    model = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    model.normalizer = normalizers.Lowercase()
    model.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), *_marking(kind)])
    around = {"bert": "[CLS] $A [SEP]", "llama": "<s> $A", "t5": "$A </s>"}[kind]
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1" if kind == "bert" else None
    model.post_processor = processors.TemplateProcessing(
        single=around,
        pair=pair,
        special_tokens=[(token, vocabulary[token]) for token in special.values()],
    )
    return PreTrainedTokenizerFast(tokenizer_object=model, **special)


def saved(model: Any, folder: Path, kind: str) -> Path:
    """The model and its tokeniser in a folder."""
    model.save_pretrained(folder)
    tokenizer(kind).save_pretrained(folder)
    return folder


def seeded() -> int:
    """Fix the weights that the next model starts with; gives the size of the vocabularies."""
    import torch

    torch.manual_seed(7)
    return len(WORDS) + 8


def _marking(kind: str) -> list[Any]:
    from tokenizers import pre_tokenizers

    return [pre_tokenizers.Metaspace(prepend_scheme="always")] if kind == "t5" else []
