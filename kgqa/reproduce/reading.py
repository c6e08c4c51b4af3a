"""Reading the papers' tables: one file each under conf/reproduce, see docs/REPRODUCE.md for the form."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from kgqa.config.overrides import merge_overrides
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.reproduce.published import Availability, PublishedCell, PublishedTable, Setting
from kgqa.scoring.published_delta import Metric, Value
from kgqa.types import Json
from kgqa.util.plugins import package_conf

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")
TABLES = ("table", "figure")  # how their files are called; others are what tables name as their base
_KEY = re.compile(r"[+~]*[\w@./-]+=")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Measured(_Strict):
    path: str | None
    unit: str = "%"
    why: str = ""


class _Fate(_Strict):
    """Of a row, or of one cell of it: what a cell does not say is as its row says it, then as their kinds do."""

    kind: str = ""  # one of the table's kinds
    availability: Availability | None = None
    why: str = ""
    overrides: tuple[str, ...] = ()
    substitute: str | tuple[str, ...] = ()
    trained: dict[str, str] = {}  # with "needs training": keys, and the artefact each needs; given, the cell runs
    differs: dict[str, tuple[str, str]] = {}  # settings that are never the paper's here: its value, and ours


class _Row(_Fate):
    name: str
    published: dict[str, tuple[float | str | None, ...] | None] | None = None  # None: every column, nothing given
    spread: dict[str, tuple[float | None, ...]] = {}  # standard deviations of the published values
    cells: dict[str, _Fate] = {}
    mean_of: tuple[str, ...] = ()  # rows: it shows their means and runs nothing itself


class _Table(_Strict):
    title: str
    paper: str
    place: str
    source: Literal["text", "plot", "mixed"]
    given: tuple[str, ...] = ()
    metrics: dict[str, str | _Measured]
    settings: dict[str, tuple[str, str] | tuple[str, str, str]]
    kinds: dict[str, _Fate] = {}  # what many rows or cells say
    axis: str = ""
    against: str = ""
    columns: dict[str, tuple[str, ...]]
    average: str = ""
    rows: tuple[_Row, ...]


def table_ids() -> list[str]:
    """Return `paper/table1`, papers by name, tables before figures, both in the order of their numbers."""
    folder = package_conf() / "reproduce"
    files = [file.relative_to(folder).with_suffix("") for kind in TABLES for file in folder.glob(f"*/{kind}*.yaml")]

    def position(file: Path) -> tuple[str, bool, int, str]:
        number = re.search(r"\d+", file.name)
        return file.parent.name, not file.name.startswith("table"), int(number[0]) if number else 0, file.name

    return [file.as_posix() for file in sorted(files, key=position)]


def load_table(table_id: str) -> PublishedTable:
    """
    Raises:
        ConfigError: there is none of that id.
        DataError: its file is not what docs/REPRODUCE.md describes; the message names file and key.
    """
    known = table_ids()
    if table_id not in known:
        raise ConfigError(f"{table_id}: no such table or figure; {nearest(table_id, known)}; see kgqa reproduce --list")
    return read_table(package_conf() / "reproduce" / f"{table_id}.yaml", table_id)


def read_table(file: Path, table_id: str) -> PublishedTable:
    """Raise DataError , as `load_table`."""
    try:
        parsed = _Table.model_validate(_with_base(_yaml(file), file))
    except ValidationError as error:
        # an unknown key first: it is likely the missing one, misspelt
        first = min(error.errors(), key=lambda wrong: wrong["type"] != "extra_forbidden")
        key = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("tuple[", "function-", "_")))
        raise DataError(f"{file}: {key}: {first['msg'].lower()}, not {first.get('input')!r:.80}") from error
    for complaint in _complaints(parsed, table_id):
        raise DataError(f"{file}: {complaint}")
    return PublishedTable(
        table_id,
        parsed.title,
        parsed.place,
        parsed.source,
        tuple(_metric(name, measured) for name, measured in parsed.metrics.items()),
        tuple(Setting(name, *(*texts, "")[:3]) for name, texts in parsed.settings.items()),
        parsed.axis,
        parsed.against,
        tuple(parsed.columns) + ((parsed.average,) if parsed.average else ()),
        parsed.average,
        tuple(row.name for row in parsed.rows),
        tuple(_cells(parsed)),
    )


def _with_base(table: Json, file: Path) -> Json:
    """Return the table merged with the file that its key `base` names. Its own keys win, and settings are merged by
    name.
    """
    if not isinstance(table, dict) or "base" not in table:
        return table
    name = table.pop("base")
    if not isinstance(name, str) or not isinstance(base := _yaml(file.with_name(name)), dict):
        raise DataError(f"{file}: base: {name!r}: the name of a file beside it with keys of a table")
    return {**base, **table, "settings": {**base.get("settings", {}), **table.get("settings", {})}}


def _yaml(file: Path) -> Json:
    """Return the file's content with every key as text; a key given twice is refused, for YAML would drop the first."""
    import yaml

    try:
        text = file.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=_loader())
        _refuse_repeated_keys(node, file)
        content = yaml.load(text, Loader=_loader())  # noqa: S506 - a safe loader
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    return _with_text_keys(content)


def _loader() -> type[yaml.SafeLoader]:
    import yaml

    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster with libyaml
    return loader


def _refuse_repeated_keys(node: Json, file: Path) -> None:
    for child in node.value if node is not None and isinstance(node.value, list) else ():
        _refuse_repeated_keys(child[1] if isinstance(child, tuple) else child, file)
    if node is not None and node.id == "mapping":
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise DataError(f"{file}:{key.start_mark.line + 1}: {key.value}: given twice")
            seen.add(key.value)


def _with_text_keys(content: Json) -> Json:
    if isinstance(content, dict):
        return {str(key): _with_text_keys(value) for key, value in content.items()}
    return [_with_text_keys(value) for value in content] if isinstance(content, list) else content


def _complaints(table: _Table, table_id: str) -> Iterator[str]:
    """Yield what pydantic cannot see, the worst first."""
    paper, _, name = table_id.partition("/")
    if table.paper != paper or table.place.lower().replace(" ", "") != name:
        yield f"paper, place: {table.paper}, {table.place} stands in the file of {table_id}"
    if table.average in table.columns:
        yield f"average: {table.average}: is a column of its own"
    if table.against and table.against not in table.metrics:
        yield f"against: {table.against}: no such metric; {nearest(table.against, table.metrics)}"
    for name, metric in table.metrics.items():
        if isinstance(metric, _Measured) and (metric.path is None) != bool(metric.why):
            yield f"metrics.{name}: `why` goes with `path: null`, and only with it"
    given = [("given", table.given), *((f"columns.{name}", overrides) for name, overrides in table.columns.items())]
    yield from (complaint for key, overrides in given for complaint in _odd_overrides(key, overrides))
    for name, kind in table.kinds.items():
        yield from _odd_fate(f"kinds.{name}", kind, ())
    names = [row.name for row in table.rows]
    for number, row in enumerate(table.rows):
        if names.index(row.name) != number:
            yield f"rows.{number}.name: {row.name}: given twice"
        yield from _odd_means(f"rows.{number}", row, names)
        yield from _odd_fate(f"rows.{number}", row, table.kinds)
        yield from _odd_columns(f"rows.{number}", row, table)
        yield from _odd_values(f"rows.{number}", row, table)


def _odd_means(key: str, row: _Row, names: Collection[str]) -> Iterator[str]:
    for other in row.mean_of:
        if other not in names or other == row.name:
            yield f"{key}.mean_of: {other}: no other row is called so; {nearest(other, names)}"


def _odd_fate(key: str, fate: _Fate, kinds: Collection[str]) -> Iterator[str]:
    if fate.kind and fate.kind not in kinds:
        yield f"{key}.kind: {fate.kind}: no such kind; {nearest(fate.kind, kinds)}"
    if (fate.availability in (None, "run")) == bool(fate.why):
        yield f"{key}.why: `why` says why a cell is not run, and only that"
    if fate.substitute and fate.availability != "model retired":
        yield f"{key}.substitute: goes with availability: model retired"
    if (fate.availability == "needs training") != bool(fate.trained):
        yield f"{key}.trained: goes with availability: needs training, and only with it"
    yield from _odd_overrides(f"{key}.overrides", fate.overrides)
    yield from _odd_overrides(f"{key}.substitute", _list_names(fate.substitute))


def _odd_columns(key: str, row: _Row, table: _Table) -> Iterator[str]:
    columns = [*table.columns, *([table.average] if table.average else [])]
    for column in [*(row.published or ()), *row.spread, *row.cells]:
        if column not in columns:
            yield f"{key}: {column}: no such column; {nearest(column, columns)}"
    for column, fate in row.cells.items():
        yield from _odd_fate(f"{key}.cells.{column}", fate, table.kinds)


def _odd_values(key: str, row: _Row, table: _Table) -> Iterator[str]:
    for column, spreads in row.spread.items():
        yield from _odd_count(f"{key}.spread.{column}", spreads, table)
    for column, values in (row.published or {}).items():
        if values is not None:
            yield from _odd_count(f"{key}.published.{column}", values, table)
        for text in (value for value in values or () if isinstance(value, str)):
            if not re.fullmatch(r"~-?\d+(\.\d+)?", text):
                yield f"{key}.published.{column}: {text!r}: a number, or one read from a plot, as ~41"
            elif table.source == "text":
                yield f"{key}.published.{column}: {text!r}: read from a plot, but source: text"


def _odd_count(key: str, values: Sequence[object], table: _Table) -> Iterator[str]:
    if len(values) != len(table.metrics):
        yield f"{key}: {len(values)} values for {len(table.metrics)} metrics"


def _odd_overrides(key: str, overrides: Iterable[str]) -> Iterator[str]:
    yield from (f"{key}: {text!r}: expected key=value" for text in overrides if not _KEY.match(text))


def _cells(table: _Table) -> Iterator[PublishedCell]:
    for row in table.rows:
        for column, values in (dict.fromkeys(table.columns) if row.published is None else row.published).items():
            own = row.cells.get(column, _Fate())
            said = [fate for each in (row, own) for fate in (table.kinds.get(each.kind, _Fate()), each)]
            overrides = merge_overrides(table.given, table.columns.get(column, ()), *(fate.overrides for fate in said))
            availability: Availability = _last(fate.availability for fate in said) or "run"
            needed = _last(fate.trained for fate in said) or {}
            trained = needed if availability == "needs training" else {}
            listed = values or (None,) * len(table.metrics)
            spreads = row.spread.get(column) or (None,) * len(table.metrics)
            yield PublishedCell(
                row.name,
                column,
                overrides,
                _list_names(_last(fate.substitute for fate in said) or ()),
                tuple(map(Value.of, listed, spreads)),
                availability,
                _last(fate.why for fate in said) or "",
                tuple((key, name.format(column=column)) for key, name in trained.items()),
                row.mean_of,
                tuple((name, *texts) for name, texts in {**row.differs, **own.differs}.items()),
            )


def _last(said: Iterable[T | None]) -> T | None:
    """Return the last that says anything."""
    return next(filter(None, reversed(list(said))), None)


def _metric(name: str, measured: str | _Measured) -> Metric:
    if isinstance(measured, str):
        return Metric(name, measured, "%", "")
    return Metric(name, measured.path, measured.unit, measured.why)


def _list_names(overrides: str | Sequence[str]) -> tuple[str, ...]:
    return (overrides,) if isinstance(overrides, str) else tuple(overrides)
