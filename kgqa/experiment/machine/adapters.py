"""Adapters by name: what was trained here, what conf/adapter/ names, or a folder that PEFT wrote anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from kgqa.artefacts.adapter import ADAPTER, CONFIG, MANIFEST, Adapter
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
        if (folder / CONFIG).is_file() or _is_artefact(folder):
            return Adapter(name, str(folder))
        if finished := [file.parent for file in folder.glob(f"*/{MANIFEST}") if _is_artefact(file.parent)]:
            return Adapter(name, str(max(finished, key=_made)))
        if (folder / MANIFEST).is_file() or any(folder.glob(f"*/{MANIFEST}")):
            raise ConfigError(f"{folder}: whole weights, no adapter; give them as PRESET:{folder}, or model.path")
        if any(folder.glob("*/checkpoints")):
            raise ConfigError(f"{folder}: its training has not ended; run its command again")
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
    found = [file.parent for file in trained().rglob(MANIFEST) if _is_artefact(file.parent)]
    newest: dict[str, Path] = {}
    for folder in sorted(found, key=_made):
        newest[folder.parent.relative_to(trained()).as_posix()] = folder
    for name, folder in sorted(newest.items()):
        yield Adapter(name, str(folder))


def _is_artefact(folder: Path) -> bool:
    """A finished one, as its manifest is written last, that holds an adapter."""
    return (folder / MANIFEST).is_file() and (folder / ADAPTER / CONFIG).is_file()


def _made(folder: Path) -> tuple[int, str]:
    return (folder / MANIFEST).stat().st_mtime_ns, folder.name
