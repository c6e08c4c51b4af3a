"""The adapters on a network: any number of them loaded through PEFT, at most one of them on."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kgqa.artifacts.adapter import Adapter
from kgqa.engines.adapted import check_layers
from kgqa.errors import ConfigError, DataError

Network = Any  # torch is imported late and not checked
NONE_ON = -1


class Worn:
    """Not thread-safe. `on`: the place of the adapter that answers now, `NONE_ON` for the network alone."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.on = NONE_ON
        self._network, self._folder = network, folder
        self._places: dict[Adapter, int] = {}
        self._peft: Any = None  # PEFT's model around the network, whose layers it replaces in place

    def put_on(self, adapter: Adapter | None) -> None:
        """What is asked from now on is answered through it; the first time it is loaded.

        Raises:
            ConfigError: the adapter is of another model, or PEFT is missing.
            DataError: its file is damaged.
        """
        if adapter is not None and adapter not in self._places:
            self._load(adapter)
        on = NONE_ON if adapter is None else self._places[adapter]
        if on == self.on:
            return
        if on == NONE_ON:
            self._peft.base_model.disable_adapter_layers()
        else:
            self._peft.base_model.enable_adapter_layers()
            self._peft.base_model.set_adapter(str(on))
        self.on = on

    def _load(self, adapter: Adapter) -> None:
        if find_spec("peft") is None:
            raise ConfigError("engine=transformers needs peft for an adapter; pip install 'kgqa[train]'")
        from peft import PeftModel

        # PEFT's use of a name that transformers 5 gives up; for good: another thread's filters cannot be put back
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        check_layers(adapter, self._folder)
        place, where = len(self._places), str(self._network.device)
        try:
            if self._peft is None:
                self._peft = PeftModel.from_pretrained(
                    self._network, str(adapter.folder), adapter_name=str(place), torch_device=where
                ).eval()
            else:
                self._peft.load_adapter(str(adapter.folder), adapter_name=str(place), torch_device=where)
        except (ValueError, TypeError, KeyError, RuntimeError, OSError) as error:
            told = " ".join(str(error).split())[:300]
            raise DataError(f"adapter {adapter.name}: PEFT cannot load {adapter.folder}: {told}") from error
        self._places[adapter] = place
        self._peft.base_model.disable_adapter_layers()  # PEFT turns a new one on
        self.on = NONE_ON
