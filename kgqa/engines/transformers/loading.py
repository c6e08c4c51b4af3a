"""A transformers folder -> a network on its device, or spread over several."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kgqa.engines.openmp import let_waiting_threads_sleep
from kgqa.errors import ConfigError, DataError
from kgqa.util.jsonio import decode_json
from kgqa.util.optional_deps import keep_four_bits

Network = Any  # torch is imported late and not checked


def is_encoder_decoder(folder: Path) -> bool:
    """Return whether one half of the model reads and the other writes, as the folder's config.json says."""
    try:
        return bool(decode_json((folder / "config.json").read_bytes()).get("is_encoder_decoder"))
    except ValueError as error:
        raise DataError(f"{folder / 'config.json'}: not JSON ({error}); get the model's folder again") from error


def load(folder: Path, dtype: str, device: str, quantization: str | None) -> Network:
    """Return the network, ready to answer; its `device` is where its input goes.

    device: "auto" takes the GPUs there are, spreading the layers over several, else the CPU.

    Raises:
        ConfigError: torch cannot use the device, or a library or device for the quantization is missing.
        DataError: the folder holds no such model.
    """
    let_waiting_threads_sleep()
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # standard error belongs to the command line
    spread = device == "auto" and torch.cuda.device_count() > 1
    chosen = None if spread else _device(device)
    settings: dict[str, Any] = {"dtype": getattr(torch, dtype), "local_files_only": True}
    if spread or quantization is not None:  # accelerate places the layers while it loads
        settings["device_map"] = "auto" if spread else {"": chosen}
    if quantization is not None:
        settings["quantization_config"] = _quantization_config(quantization, dtype)
    if is_encoder_decoder(folder):
        family: Any = AutoModelForSeq2SeqLM
    else:
        family = AutoModelForCausalLM
        settings["attn_implementation"] = "sdpa"
    try:
        network = family.from_pretrained(folder, **settings)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder}: transformers cannot load the model: {error}") from error
    keep_four_bits(network)
    return network.eval() if "device_map" in settings else network.to(chosen).eval()


def _device(name: str) -> Any:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"engine.device={name}: torch cannot use it ({error}); use auto or cpu") from error


def _quantization_config(quantization: str, dtype: str) -> Any:
    import torch
    from transformers import BitsAndBytesConfig

    if find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"engine.quantization={quantization} needs bitsandbytes; pip install 'kgqa[quantization]', or leave it null"
        )
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it tells of every cast between two number formats
    if quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    # QLoRA (Dettmers et al., 2023), section 3: 4-bit NormalFloat with double quantisation
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )
