"""Adapters by name: what was trained here, what conf/adapter/ names, or a folder that PEFT wrote anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from kgqa.artefacts.adapter import ADAPTER, CONFIG, MANIFEST, Adapter
from kgqa.artefacts.trained import finished, refuse_begun
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.building import build
from kgqa.experiment.config.files import config_files, node
from kgqa.storage import trained

GROUP = "adapter"  # of conf/; kgqa itself ships none
TARGET = "kgqa.artefacts.adapter.Adapter"


def adapter(name: str) -> Adapter:
    """The adapter that stands behind a + in a role's choice.

    Raises:
        ConfigError: there is none of that name, or training it has not ended.
    """
    if not name:
        raise ConfigError("no adapter behind the +; give its name or folder")
    if name in config_files(GROUP):
        return _preset(name)
    for folder in (trained() / name, Path(name).expanduser()):
        if (folder / CONFIG).is_file():
            return Adapter(name, str(folder))
    ended = finished(name)
    if adapting := [folder for folder in ended if _adapts(folder)]:
        return Adapter(name, str(adapting[0]))
    if ended:
        raise ConfigError(f"{name}: whole weights, no adapter; give them as PRESET:{ended[0] / 'model'}, or model.path")
    refuse_begun(name)
    known = [each.name for each in adapters()]
    raise ConfigError(
        f"no adapter {name}: neither a file of conf/adapter, nor below {trained()}, nor a folder with {CONFIG}; "
        f"{nearest(name, known) if known else 'kgqa trained list shows what there is'}"
    )


def adapters() -> list[Adapter]:
    """All that have a name: those of conf/adapter, then those trained here, of one name the newest."""
    return [*map(_preset, config_files(GROUP)), *_trained_here()]


def _preset(name: str) -> Adapter:
    empty = {field.name: None for field in fields(Adapter)}
    built: Adapter = build({**empty, "name": name, **node(GROUP, name), "_target_": TARGET}, GROUP)
    return built


def _trained_here() -> Iterator[Adapter]:
    found = [file.parent for file in trained().rglob(MANIFEST) if _adapts(file.parent)]
    for name in sorted({folder.parent.relative_to(trained()).as_posix() for folder in found}):
        yield adapter(name)


def _adapts(folder: Path) -> bool:
    return (folder / ADAPTER / CONFIG).is_file()
