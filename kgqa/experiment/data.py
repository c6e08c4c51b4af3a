"""`kgqa data list | prepare | check`: what there is, how it gets here, and what is in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kgqa.datasets import huggingface as hub
from kgqa.datasets.fetching import Advance, fetch, mismatch
from kgqa.datasets.files import roots
from kgqa.datasets.inventory import count_passages, count_questions
from kgqa.datasets.sources import Source, parse
from kgqa.datasets.unpacking import unpack, unpack_abstracts
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose, conf_folder, groups
from kgqa.report.progress import SignOfLife
from kgqa.storage import sha256

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

FROM_HUB = "hub"
SHOWN_EVERY = 1000  # records; drawing each of five million would take longer than reading them

T = TypeVar("T")


def sources() -> dict[str, Source]:
    """What conf/downloads.yaml knows, by name."""
    from omegaconf import OmegaConf

    entries: Any = OmegaConf.to_container(OmegaConf.load(conf_folder() / "downloads.yaml"))
    return parse(entries)


def show_sources() -> int:
    """`kgqa data list`: every data set and corpus, where it comes from, and what of it is here."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_lines=True)
    for heading in ("dataset=", "what it is", "licence and source", "bytes, sha256", "here"):
        table.add_column(heading, overflow="fold")
    for name, source in sources().items():
        size = "size not known" if source.bytes is None else f"{source.bytes:,}"
        checksum = "checksum not known" if source.sha256 is None else source.sha256
        origin = "\n".join([source.licence, source.page, *source.urls])
        shown = f"{origin}\non the hub: {source.hub.id}" if source.hub else origin
        table.add_row(*map(escape, (name, source.content, shown, f"{size}\n{checksum}", _here(name, source))))
    _console().print(table)
    return 0


def prepare(name: str, place: str | None, target: str | None) -> int:
    """`kgqa data prepare`: fetch a data set or corpus, check it, unpack it; done once it is there.

    place: of data in Hugging Face's form, a folder or `FROM_HUB`; None: the data's own source. target: a folder.
    """
    known = sources()
    if name not in known:
        raise ConfigError(f"dataset={name}: no such data set; {nearest(name, known)}")
    source, console = known[name], _console()
    folder = Path(target).expanduser() if target is not None else roots()[0] / source.folder
    _say(console, f"{name}: {source.content}; licence {source.licence}; {source.page}")
    made = [folder / file for file in source.makes]
    if not source.urls:
        _say(console, "there is nothing to fetch: it ships with kgqa")
        return 0
    if place is not None:
        made = [_converted(source, place, folder, console)]
    elif not all(file.is_file() for file in made):
        _fetched(name, source, folder, console)
    for file in made:
        _say(console, f"{file}: {file.stat().st_size:,} bytes, sha256 {sha256(file)}")
    return 0


def check(overrides: Sequence[str]) -> int:
    """`kgqa data check`: read a data set's files from end to end and count what is in them."""
    console = _console()
    config = compose(overrides)
    dataset = build(config["dataset"], "dataset")
    file = dataset.file
    _say(console, f"{file}: sha256 {sha256(file)}")
    with _steps(console, "questions") as advance:
        questions, gold = count_questions(_counted(dataset.read(), advance))
    _show(console, questions)
    if dataset.corpus is None and not questions["passages given"]:
        _say(console, "no corpus: the questions come without passages; name the file to search in: dataset.corpus=FILE")
        return 0
    for each in dataset.corpus_files:
        _say(console, f"corpus {each}: sha256 {sha256(each)}")
    with _steps(console, "passages") as advance:
        counts = count_passages(_counted(dataset.read_passages(), advance), gold)
    _show(console, counts)
    return 0


def _fetched(name: str, source: Source, folder: Path, console: Console) -> None:
    """Download, unless the file was put there by hand, and unpack."""
    archive = folder / source.file
    by_hand = archive.is_file()
    if by_hand and (wrong := mismatch(archive, source)):
        raise DataError(f"{archive}: {wrong}; delete the file and run the same command again")
    if not by_hand:
        try:
            with _transfer(console, source.file) as advance:
                fetch(source, archive, advance)
        except DataError as error:
            raise DataError(
                f"dataset={name} could not be fetched; get {source.file} from {source.page} or {source.urls[0]}, "
                f"put it at {archive} and run the same command again ({error})"
            ) from None
    if source.abstracts:
        with _steps(console, "abstracts") as advance_by:
            unpack_abstracts(archive, folder / source.abstracts, advance_by)
    elif source.members:
        unpack(archive, source.members, folder)
    if archive.name not in source.makes and not by_hand:
        archive.unlink()


def _converted(source: Source, place: str, folder: Path, console: Console) -> Path:
    """The file made of a data set in Hugging Face's form."""
    if source.hub is None:
        raise ConfigError(f"from={place}: this one is not on Hugging Face's hub; leave `from` out")
    given = None if place == FROM_HUB else Path(place).expanduser()
    if given is not None and not given.exists():
        raise DataError(
            f"from={place}: no such file or folder; a folder that save_to_disk wrote, or one of .parquet files"
        )
    target = folder / source.makes[0]
    with _steps(console, "records") as advance:
        hub.write(hub.rows(given, source.hub), target, advance)
    return target


def _here(name: str, source: Source) -> str:
    """Where files of this source are on this machine."""
    found = [root / source.folder / file for root in roots() for file in source.makes]
    shown = [str(file) for file in found if file.is_file()]
    if not shown and name in groups()["dataset"]:
        try:
            shown = [str(build(compose([f"dataset={name}"])["dataset"], "dataset").file)]
        except DataError:
            return "no"
    return "\n".join(shown) or "no"


def _counted(items: Iterable[T], advance: Callable[[int], None]) -> Iterator[T]:
    for item in items:
        advance(1)
        yield item


@contextmanager
def _transfer(console: Console, title: str) -> Iterator[Advance]:
    """Progress of a download: a bar in a terminal, elsewhere a line a minute."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    progress = Progress(TextColumn("{task.description}"), BarColumn(20), *columns, console=console, transient=True)
    with _shown(progress, console, title) as show:
        yield show


@contextmanager
def _steps(console: Console, what: str) -> Iterator[Callable[[int], None]]:
    """Progress of reading or writing many of something; the function takes how many more there are."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    progress = Progress(
        SpinnerColumn(), TextColumn("{task.completed:,.0f} {task.description}"), console=console, transient=True
    )
    done = 0
    with _shown(progress, console, what) as show:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if done % SHOWN_EVERY < count:
                show(done, None)

        yield advance


@contextmanager
def _shown(progress: Progress, console: Console, title: str) -> Iterator[Advance]:
    task, sign = progress.add_task(title, total=None), SignOfLife(console)

    def show(done: int, total: int | None) -> None:
        progress.update(task, completed=done, total=total)
        sign(lambda: f"{title}: {done:,}" + (f" of {total:,}" if total else ""))

    with progress if console.is_terminal else nullcontext():
        yield show


def _show(console: Console, counts: Mapping[str, int]) -> None:
    width = max(len(f"{count:,}") for count in counts.values())
    for what, count in counts.items():
        _say(console, f"  {count:>{width},}  {what}")


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)
