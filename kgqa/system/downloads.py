"""Download and check datasets and corpora, and find them on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kgqa.config import building as parts
from kgqa.config.files import Config, groups, load_yaml
from kgqa.config.keys import load_node
from kgqa.datasets.authors_prompts import write_templates
from kgqa.datasets.base import PACKAGED, data_folders
from kgqa.datasets.download import (
    Cut,
    Download,
    convert,
    cut,
    download,
    is_intact,
    parse_sources,
    read_ids,
    unpack,
    unpack_abstracts,
)
from kgqa.datasets.inventory import count_passages, count_questions
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.runtime.display import Display
from kgqa.util.fs import sha256
from kgqa.util.places import own_prompt_folders, package_conf

FROM_HUB = "hub"

T = TypeVar("T")


def list_sources() -> dict[str, Download]:
    """Return the entries of conf/downloads.yaml by name."""
    return parse_sources(load_yaml(package_conf() / "downloads.yaml"))


def place_of(name: str, source: Download) -> str:
    """Return where files of this source are on this machine."""
    files = [folder / file for folder in data_folders(source.folder) for file in source.makes]
    names = [str(file) for file in files if file.is_file()]
    if not names and name in groups()["dataset"]:
        try:
            names = [str(parts.dataset(load_node("dataset", name)).file)]
        except DataError:
            return "no"
    return "\n".join(names) or "no"


def fetch_dataset(
    name: str, display: Display, *, source_folder: str | None = None, to: Path | None = None
) -> None:
    """Download a dataset or corpus, check it and unpack it, if its files are missing.

    Args:
        source_folder: FROM_HUB, or a folder in Hugging Face's format, to convert.
        to: the folder for its files.

    Raises:
        ConfigError: there is no such dataset, or it is not on the hub.
        DataError: it cannot be downloaded, or has another checksum.
    """
    names = list_sources()
    if name not in names and name in groups()["dataset"]:
        raise ConfigError(
            f"dataset={name}: has no download. Name your own file or folder: dataset.path=PATH"
        )
    if name not in names:
        raise ConfigError(f"dataset={name}: no such dataset. {nearest(name, names)}")
    source = names[name]
    folder = to or data_folders(source.folder)[0]
    display.line(f"{name}: {source.content}; license {source.license}; {source.page}")
    files = [folder / file for file in source.makes]
    in_package = name in groups()["dataset"] and str(
        load_node("dataset", name).get("path")
    ).startswith(PACKAGED)
    if in_package and not source.urls:
        display.line("it is part of kgqa, no download is needed")
        return
    if source_folder is not None:
        _convert(source, source_folder, files[0], display)
        files = files[:1]
    elif not all(file.is_file() for file in files):
        if source.cut:
            _cut(source, source.cut, folder, display)
        else:
            _download(name, source, folder, display)
    for file in files:
        display.line(f"{file}: {file.stat().st_size:,} bytes, sha256 {sha256(file)}")
    for file in write_templates(files[0], source.templates, own_prompt_folders()[-1]):
        display.line(
            f"{file}: method.prompt and the keys of experiment=…_released name it without the ending"
        )
    if source.also and source_folder is None:
        fetch_dataset(source.also, display, to=to)


def _cut(source: Download, part: Cut, folder: Path, display: Display) -> None:
    """Write a part of other entries' files, which are downloaded if they are missing."""
    for entry in part.entries:
        fetch_dataset(entry, display)
    places = {
        file: each for entry in part.entries for each, file in _files_of(list_sources()[entry])
    }
    with display.counting("records") as advance:
        cut(
            [places[name] / name for name in part.files],
            read_ids(part.ids),
            folder / source.file,
            lambda more: advance("", more, None),
        )


def _files_of(source: Download) -> Iterator[tuple[Path, str]]:
    """Yield the folder and name of each final file."""
    for file in source.makes:
        yield (
            next((each for each in data_folders(source.folder) if (each / file).is_file()), Path()),
            file,
        )


def _download(name: str, source: Download, folder: Path, display: Display) -> None:
    """Download the file, unless a user has put it there, and unpack it."""
    archive = folder / source.file
    by_hand = archive.is_file()
    if by_hand and not is_intact(archive, source):
        raise DataError(
            f"{archive}: sha256 is not {source.sha256}. Delete the file and run the same command again"
        )
    remedy = f"put it at {archive} and run the same command again"
    if not by_hand and not source.urls:
        raise DataError(
            f"dataset={name}: kgqa knows no address to download it from. Get {source.file} from {source.page}, {remedy}"
        )
    if not by_hand:
        try:
            with display.counting("bytes") as advance:
                download(source, archive, advance)
        except DataError as error:
            at_hub = " Or add from=hub." if source.hub else ""
            raise DataError(
                f"dataset={name} could not be downloaded. Get {source.file} from {source.page} or {source.urls[0]}, "
                f"{remedy}.{at_hub} ({error})"
            ) from None
    if source.abstracts:
        with display.counting("abstracts") as advance:
            unpack_abstracts(
                archive, folder / source.abstracts, lambda more: advance("", more, None)
            )
    elif source.members:
        unpack(archive, source.members, folder)
    if archive.name not in source.makes and not by_hand:
        archive.unlink()


def _convert(source: Download, source_folder: str, target: Path, display: Display) -> None:
    if source.hub is None:
        raise ConfigError(
            f"from={source_folder}: this one is not on Hugging Face's hub. Remove `from`"
        )
    folder = None if source_folder == FROM_HUB else Path(source_folder).expanduser()
    if folder is not None and not folder.exists():
        raise DataError(
            f"from={source_folder}: no such file or folder. "
            "Name a folder that save_to_disk wrote, or one of .parquet files"
        )
    with display.counting("records") as advance:
        convert(source.hub, folder, target, lambda more: advance("", more, None))


def read_through(config: Config, display: Display) -> None:
    """Read all files of a dataset and show counts of what they contain; raise a DataError for invalid records."""
    dataset: Any = parts.dataset(config["dataset"])
    display.line(f"{dataset.file}: sha256 {sha256(dataset.file)}")
    questions, gold = count_questions(_with_progress(dataset.read(), "questions", display))
    _show(questions, display)
    if dataset.corpus is None and not questions["passages given"]:
        display.line(
            "no corpus: the questions come without passages. Name the file to search in: dataset.corpus=FILE"
        )
        return
    for file in dataset.corpus_files:
        display.line(f"corpus {file}: sha256 {sha256(file)}")
    _show(
        count_passages(_with_progress(dataset.read_passages(), "passages", display), gold), display
    )


def _with_progress(items: Iterable[T], unit: str, display: Display) -> Iterator[T]:
    with display.counting(unit) as advance:
        for item in items:
            advance("", 1, None)
            yield item


def _show(counts: Mapping[str, int], display: Display) -> None:
    width = max(len(f"{count:,}") for count in counts.values())
    for name, count in counts.items():
        display.line(f"  {count:>{width},}  {name}")
