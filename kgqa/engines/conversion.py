"""GGUF file -> transformers folder, once."""

from __future__ import annotations

import io
import logging
import os
import shutil
from contextlib import redirect_stderr
from pathlib import Path

from kgqa.engines.openmp import let_waiting_threads_sleep
from kgqa.engines.weights import digest
from kgqa.errors import DataError, StorageError
from kgqa.util.fs import HOME_ELSEWHERE, explain_storage_errors, home

log = logging.getLogger(__name__)


def convert_weights(file: Path) -> Path:
    """Return a bfloat16 folder with the file's dequantised weights, tokenizer and chat template; takes a minute at
    first.

    It lies in the cache under the file's hash. Rounding to bfloat16 costs far less than quantising did.
    """
    folder = home() / "models" / f"{file.stem}-{digest(file)[:12]}-bf16"
    if (folder / "config.json").is_file():
        return folder
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    try:
        with explain_storage_errors(folder, HOME_ELSEWHERE):
            partial.mkdir(parents=True, exist_ok=True)
            with redirect_stderr(io.StringIO()):  # progress bars: the terminal belongs to the command line
                _convert(file, partial)
            partial.replace(folder)
    except StorageError:
        if not (folder / "config.json").is_file():  # else another process was faster
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _convert(file: Path, folder: Path) -> None:
    let_waiting_threads_sleep()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    log.info("converting %s for transformers; this happens once and takes a minute", file.name)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            quantization_config=GgufConfig(dequantize=True),  # without it transformers 5 refuses to save
            dtype=torch.bfloat16,
        )
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except (ValueError, KeyError) as error:
        raise DataError(f"{file}: transformers cannot read this GGUF file ({error}); use engine=llamacpp") from error
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
