"""What is trained: a preset's weights as a transformers folder, or an encoder's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from kgqa import hub
from kgqa.engines.conversion import converted
from kgqa.engines.weights import Model, digest, is_gguf
from kgqa.errors import ConfigError, EngineDied, nearest
from kgqa.experiment.config import parts
from kgqa.experiment.config.files import groups, node
from kgqa.experiment.config.overrides import role_choice
from kgqa.experiment.machine.presets import NOTHING_SAID, Preset
from kgqa.types import Json


@dataclass(frozen=True)
class Base:
    """`name`: as it was chosen. `model`: None for an encoder, which `encoder` names for the hub, or by its folder."""

    name: str
    model: Model | None
    encoder: str | None
    node: Mapping[str, Json] = field(default_factory=dict)  # the model's, for an engine that renders

    @classmethod
    def of(cls, choice: str, *, encodes: bool) -> Base:
        """`choice`: PRESET or PRESET:PATH of model=; where it encodes, a choice of ranker=, a folder, or a hub's name.

        Raises:
            ConfigError: there is no such preset, or an encoder's names no weights.
        """
        if encodes:
            return cls(choice, None, _encoder(choice))
        preset, path, adapter, engine = role_choice(choice)
        if engine:
            raise ConfigError(f"train.base={choice}: no engine trains; leave @{engine} out")
        if adapter:
            raise ConfigError(f"train.base={choice}: merge the adapter first: kgqa trained export {adapter} --merged")
        if preset not in groups()["model"]:
            raise ConfigError(f"train.base={choice}: no such model; {nearest(preset, groups()['model'])}")
        chosen = {**node("model", preset), **({"path": path, "sha256": None} if path else {})}
        return cls(choice, parts.model(chosen), None, chosen)

    @property
    def preset(self) -> str:
        return self.model.name if self.model else self.name

    @property
    def licence(self) -> str | None:
        return (self.model.about or NOTHING_SAID).licence if self.model else None

    @property
    def parameters(self) -> float | None:
        """How many it has: as its preset says, else reckoned from the size of its weights; None: not known."""
        if self.model is None:
            folder = hub.on_disk(self.encoder or "")
            size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder else 0
            return size / 4 or None
        if self.model.about and self.model.about.parameters:
            return self.model.about.parameters * 1e9
        size_of = Preset(self.name, self.model).size()
        gguf = any(is_gguf(file) for file in self.model.at_hand())
        return None if size_of is None else size_of / (0.65 if gguf else 2)  # bytes a parameter: 4 to 5 bits, bfloat16

    @property
    def here(self) -> bool:
        """Whether the weights are on this machine."""
        return bool(self.model.at_hand()) if self.model else hub.on_disk(self.encoder or "") is not None

    def digest(self) -> str:
        """Of the weights as the preset has them. Raises ConfigError or DataError as `Model.locate`."""
        return self.model.digest() if self.model else hub.weights(self.encoder or "")

    def folder(self, tell: Callable[[str], None]) -> Path:
        """As transformers reads it: a .gguf file is converted once, by a process that may hold torch.

        Raises:
            ConfigError: the weights are not here; how to get them.
            DataError: they are damaged, or no model that can be converted.
        """
        if self.model is None:
            return hub.folder(self.encoder or "")
        weights = self.model.locate()
        if not is_gguf(weights):
            return weights
        tell(f"{weights.name}: as a transformers folder (converted once, a minute)")
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
                return apart.submit(converted, weights).result()
        except BrokenProcessPool as error:
            raise EngineDied(f"{weights}: the process that converts it died, for want of memory perhaps") from error

    @staticmethod
    def folder_digest(folder: Path) -> str:
        return digest(folder)


def _encoder(choice: str) -> str:
    if choice not in groups()["ranker"]:
        return choice
    named = node("ranker", choice).get("model")
    if not isinstance(named, str):
        raise ConfigError(f"train.base={choice}: its file of conf/ranker names no model; give a folder")
    return named
