"""Find adapters by name: trained here, in conf/adapter/, or a folder of PEFT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from kgqa.artifacts.adapter import ADAPTER, CONFIG, MANIFEST, Adapter
from kgqa.artifacts.trained import finished, refuse_begun
from kgqa.config.building import build
from kgqa.config.files import config_files, load_node
from kgqa.errors import ConfigError, nearest
from kgqa.util.fs import training_folder

GROUP = "adapter"  # of conf/; kgqa itself ships none
TARGET = "kgqa.artifacts.adapter.Adapter"


def find_adapter(name: str) -> Adapter:
    """Return the adapter behind the + of a role's choice.

    Raises:
        ConfigError: there is none of that name, or training it has not ended.
    """
    if not name:
        raise ConfigError("no adapter behind the +; give its name or folder")
    if name in config_files(GROUP):
        return _preset(name)
    for folder in (training_folder() / name, Path(name).expanduser()):
        if (folder / CONFIG).is_file():
            return Adapter(name, str(folder))
    ended = finished(name)
    if adapting := [folder for folder in ended if _adapts(folder)]:
        return Adapter(name, str(adapting[0]))
    if ended:
        raise ConfigError(f"{name}: whole weights, no adapter; give them as PRESET:{ended[0] / 'model'}, or model.path")
    refuse_begun(name)
    known = [each.name for each in list_adapters()]
    raise ConfigError(
        f"no adapter {name}: neither a file of conf/adapter, nor in {training_folder()}, nor a folder with {CONFIG}; "
        f"{nearest(name, known) if known else 'kgqa models trained lists them'}"
    )


def list_adapters() -> list[Adapter]:
    """Return all adapters with a name: those of conf/adapter, then the newest of each name trained here."""
    return [*map(_preset, config_files(GROUP)), *_list_trained()]


def _preset(name: str) -> Adapter:
    empty = {field.name: None for field in fields(Adapter)}
    built: Adapter = build({**empty, "name": name, **load_node(GROUP, name), "_target_": TARGET}, GROUP)
    return built


def _list_trained() -> Iterator[Adapter]:
    found = [file.parent for file in training_folder().rglob(MANIFEST) if _adapts(file.parent)]
    for name in sorted({folder.parent.relative_to(training_folder()).as_posix() for folder in found}):
        yield find_adapter(name)


def _adapts(folder: Path) -> bool:
    return (folder / ADAPTER / CONFIG).is_file()
