"""`python -m kgqa.training.trainers.merging BASE ADAPTER OUT`: merge an adapter into its base."""

from __future__ import annotations

import sys
from pathlib import Path

from kgqa.training.trainers.seq2seq import copy_tokenizer


def merge(base: Path, adapter: Path, out: Path) -> None:
    """Write a transformers folder in the base's own precision. It appears complete or not at all."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from kgqa.training.trainers.library import replace_folder

    network = AutoModelForCausalLM.from_pretrained(base, dtype="auto", local_files_only=True)
    merged = PeftModel.from_pretrained(network, str(adapter)).merge_and_unload()

    def save(folder: Path) -> None:
        merged.save_pretrained(folder)
        copy_tokenizer(base, folder)

    replace_folder(out, save)


if __name__ == "__main__":
    merge(*map(Path, sys.argv[1:4]))
