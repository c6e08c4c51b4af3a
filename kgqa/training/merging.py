"""`python -m kgqa.training.merging BASE ADAPTER OUT`: a base and its adapter as one transformers folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kgqa.training.seq2seq import FILES


def merge(base: Path, adapter: Path, out: Path) -> None:
    """In the base's own precision; `out` appears whole or not at all."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    fresh = out.with_name(f"{out.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    network = AutoModelForCausalLM.from_pretrained(base, dtype="auto", local_files_only=True)
    merged = PeftModel.from_pretrained(network, str(adapter)).merge_and_unload()
    merged.save_pretrained(fresh, safe_serialization=True)
    for name in FILES:
        if (base / name).is_file():
            shutil.copyfile(base / name, fresh / name)
    fresh.replace(out)


if __name__ == "__main__":
    merge(*map(Path, sys.argv[1:4]))
