"""Data sets and corpora: what there is, how it gets here, and what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kgqa.config import factories as parts
from kgqa.config.composing import compose
from kgqa.config.files import Config, groups, load_yaml
from kgqa.datasets import huggingface as hub
from kgqa.datasets.fetching import Advance, fetch, mismatch
from kgqa.datasets.files import roots
from kgqa.datasets.inventory import count_passages, count_questions
from kgqa.datasets.sources import Source, parse
from kgqa.datasets.unpacking import unpack, unpack_abstracts
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.runtime.display import BYTES, Display
from kgqa.util.fs import sha256
from kgqa.util.plugins import package_conf

FROM_HUB = "hub"

T = TypeVar("T")


def sources() -> dict[str, Source]:
    """Return what conf/downloads.yaml knows, by name."""
    return parse(load_yaml(package_conf() / "downloads.yaml", "reinstall kgqa"))


def place_of(name: str, source: Source) -> str:
    """Return where files of this source are on this machine."""
    files = [root / source.folder / file for root in roots() for file in source.makes]
    shown = [str(file) for file in files if file.is_file()]
    if not shown and name in groups()["dataset"]:
        try:
            shown = [str(parts.dataset(compose([f"dataset={name}"])["dataset"]).file)]
        except DataError:
            return "no"
    return "\n".join(shown) or "no"


def bring(name: str, display: Display, *, place: str | None = None, to: Path | None = None) -> None:
    """Fetch a data set or corpus, check it, unpack it; done once it is there.

    `place`: FROM_HUB, or a folder in Hugging Face's form, to convert. `to`: where it goes.

    Raises:
        ConfigError: there is no such data set, or it is not on the hub.
        DataError: it cannot be fetched, or is not what it should be.
    """
    known = sources()
    if name not in known:
        raise ConfigError(f"dataset={name}: no such data set; {nearest(name, known)}")
    source = known[name]
    folder = to or roots()[0] / source.folder
    display.line(f"{name}: {source.content}; licence {source.licence}; {source.page}")
    made = [folder / file for file in source.makes]
    if not source.urls:
        display.line("there is nothing to fetch: it ships with kgqa")
        return
    if place is not None:
        made = [_convert(source, place, folder, display)]
    elif not all(file.is_file() for file in made):
        _fetch(name, source, folder, display)
    for file in made:
        display.line(f"{file}: {file.stat().st_size:,} bytes, sha256 {sha256(file)}")


def read_through(config: Config, display: Display) -> None:
    """Read a data set's files from end to end and tell how much of what is in them.

    Raises:
        DataError: what is wrong with one, by file:line.
    """
    dataset: Any = parts.dataset(config["dataset"])  # of a kind that is read from files, or it says so itself
    display.line(f"{dataset.file}: sha256 {sha256(dataset.file)}")
    with display.counting("questions") as advance:
        questions, gold = count_questions(_count_questions(dataset.read(), lambda more: advance("", more, None)))
    _tell(questions, display)
    if dataset.corpus is None and not questions["passages given"]:
        display.line("no corpus: the questions come without passages; name the file to search in: dataset.corpus=FILE")
        return
    for file in dataset.corpus_files:
        display.line(f"corpus {file}: sha256 {sha256(file)}")
    with display.counting("passages") as advance:
        counts = count_passages(_count_questions(dataset.read_passages(), lambda more: advance("", more, None)), gold)
    _tell(counts, display)


def _fetch(name: str, source: Source, folder: Path, display: Display) -> None:
    """Download, unless the file was put there by hand, and unpack."""
    archive = folder / source.file
    by_hand = archive.is_file()
    if by_hand and (wrong := mismatch(archive, source)):
        raise DataError(f"{archive}: {wrong}; delete the file and run the same command again")
    if not by_hand:
        try:
            with _transfer(display, source.file) as advance:
                fetch(source, archive, advance)
        except DataError as error:
            raise DataError(
                f"dataset={name} could not be fetched; get {source.file} from {source.page} or {source.urls[0]}, "
                f"put it at {archive} and run the same command again ({error})"
            ) from None
    if source.abstracts:
        with display.counting("abstracts") as counted:
            unpack_abstracts(archive, folder / source.abstracts, lambda more: counted("", more, None))
    elif source.members:
        unpack(archive, source.members, folder)
    if archive.name not in source.makes and not by_hand:
        archive.unlink()


def _convert(source: Source, place: str, folder: Path, display: Display) -> Path:
    """Return the file made of a data set in Hugging Face's form."""
    if source.hub is None:
        raise ConfigError(f"from={place}: this one is not on Hugging Face's hub; leave `from` out")
    given = None if place == FROM_HUB else Path(place).expanduser()
    if given is not None and not given.exists():
        raise DataError(
            f"from={place}: no such file or folder; a folder that save_to_disk wrote, or one of .parquet files"
        )
    target = folder / source.makes[0]
    with display.counting("records") as advance:
        hub.write(hub.rows(given, source.hub), target, lambda more: advance("", more, None))
    return target


def _count_questions(items: Iterable[T], advance: Callable[[int], None]) -> Iterator[T]:
    for item in items:
        advance(1)
        yield item


@contextmanager
def _transfer(display: Display, file: str) -> Iterator[Advance]:
    """Return the transfer from bytes there are now, as `fetch` counts, to bytes more."""
    before = 0
    with display.counting(BYTES) as advance:

        def arrived(have: int, total: int | None) -> None:
            nonlocal before
            advance(file, have - before, total)
            before = have

        yield arrived


def _tell(counts: Mapping[str, int], display: Display) -> None:
    width = max(len(f"{count:,}") for count in counts.values())
    for what, count in counts.items():
        display.line(f"  {count:>{width},}  {what}")
