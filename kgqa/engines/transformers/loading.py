"""Load a transformers folder as a network on one or several devices, and adapters for it."""

from __future__ import annotations

import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kgqa.artifacts.adapter import Adapter
from kgqa.engines.base import check_layers
from kgqa.engines.weights import let_waiting_threads_sleep, read_settings
from kgqa.errors import ConfigError, DataError
from kgqa.util.optional_deps import install_command, keep_four_bits

# torch is imported late and not checked
Network = Any


def load(folder: Path, dtype: str, device: str, quantization: str | None) -> Network:
    """Return the loaded network. Its `device` is the one for inputs.

    device: "auto" uses the available GPUs, with the layers spread over several, otherwise the CPU.

    Raises:
        ConfigError: torch cannot use the device, or a library or device for the quantization is missing.
        DataError: the folder contains no such model.
    """
    let_waiting_threads_sleep()
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
    from transformers.utils.logging import disable_progress_bar

    # standard error belongs to the command line
    disable_progress_bar()
    spread = device == "auto" and torch.cuda.device_count() > 1
    place = None if spread else _device(device)
    settings: dict[str, Any] = {"dtype": getattr(torch, dtype), "local_files_only": True}
    # accelerate places the layers while it loads
    if spread or quantization is not None:
        settings["device_map"] = "auto" if spread else {"": place}
    if quantization is not None:
        settings["quantization_config"] = _quantization_config(quantization, dtype)
    is_encoder_decoder = read_settings(folder / "config.json").get("is_encoder_decoder")
    family: Any = AutoModelForSeq2SeqLM if is_encoder_decoder else AutoModelForCausalLM
    try:
        network = family.from_pretrained(folder, **settings)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder}: transformers cannot load the model: {error}") from error
    keep_four_bits(network)
    return network.eval() if "device_map" in settings else network.to(place).eval()


class AdapterSwitch:
    """The adapters of a network, loaded through PEFT. At most one of them is active. Not thread-safe."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.active: Adapter | None = None
        self._network, self._folder = network, folder
        self._names: dict[Adapter, str] = {}
        # PEFT's model around the network; it replaces the network's layers in place
        self._peft: Any = None

    def activate(self, adapter: Adapter | None) -> None:
        """Use this adapter, or none, from now on. Load it the first time.

        Raises:
            ConfigError: the adapter is of another model, or PEFT is missing.
            DataError: its file is damaged.
        """
        if adapter is not None and adapter not in self._names:
            self._load(adapter)
        if adapter == self.active:
            return
        if adapter is None:
            self._peft.base_model.disable_adapter_layers()
        else:
            self._peft.base_model.enable_adapter_layers()
            self._peft.base_model.set_adapter(self._names[adapter])
        self.active = adapter

    def _load(self, adapter: Adapter) -> None:
        if find_spec("peft") is None:
            raise ConfigError(
                f"engine=transformers needs peft for an adapter. Run: {install_command('train')}"
            )
        from peft import PeftModel

        # PEFT uses a name that transformers 5 deprecates. Filters are global, so they are not restored.
        warnings.filterwarnings(
            "ignore", message="`is_gradient_checkpointing`", category=FutureWarning
        )
        check_layers(adapter, self._folder)
        name = str(len(self._names))
        settings = {"adapter_name": name, "torch_device": str(self._network.device)}
        try:
            if self._peft is None:
                self._peft = PeftModel.from_pretrained(
                    self._network, str(adapter.folder), **settings
                ).eval()
            else:
                self._peft.load_adapter(str(adapter.folder), **settings)
        except (ValueError, TypeError, KeyError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())[:300]
            raise DataError(
                f"adapter {adapter.name}: PEFT cannot load {adapter.folder}: {reason}"
            ) from error
        self._names[adapter] = name
        self._peft.base_model.disable_adapter_layers()  # PEFT activates a new one
        self.active = None


def _device(name: str) -> Any:
    import torch

    if name == "auto":
        name = (
            "cuda"
            if torch.cuda.is_available()
            else "mps"
            if torch.backends.mps.is_available()
            else "cpu"
        )
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"engine.device={name}: torch cannot use it ({error}). Use auto or cpu."
        ) from error


def _quantization_config(quantization: str, dtype: str) -> Any:
    import torch
    from transformers import BitsAndBytesConfig

    if find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"engine.quantization={quantization} needs bitsandbytes. Set it to null, or run: "
            f"{install_command('quantization')}"
        )
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it logs every cast
    if quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    # QLoRA (Dettmers et al., 2023), section 3: 4-bit NormalFloat with double quantization
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )
