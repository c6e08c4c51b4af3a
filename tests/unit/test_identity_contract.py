"""Test every field of every component: it changes the identity unless it is marked with `NotIdentity`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

from kgqa.config.composing import compose
from kgqa.config.files import groups
from kgqa.config.keys import load_node
from kgqa.config.run_keys import RunSettings
from kgqa.config.settings import read_settings
from kgqa.config.targets import import_target
from kgqa.errors import UsageError
from kgqa.identity.component import identity_of
from kgqa.identity.program_code import program_hash, user_code
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.util.settings import AddedLater, NotIdentity, declared_fields
from tests.composed import build_choice, composed_node
from tests.unit.files import write

# a file that must exist, and a limit that needs a model with prices
NOT_VARIED = ("Scripted.rules", "OpenAI.budget_usd", "Anthropic.budget_usd", "Gemini.budget_usd")
GROUPS = ("engine", "ranker", "reranker", "retriever", "graph", "judge", "kg")
REQUIRED: dict[str, dict[str, Any]] = {
    "imported": {"path": "triples.jsonl"},
    "server": {"model": "any", "encoder": {"model": "any"}},
}


def build_component(group: str, name: str) -> Any:
    node = {
        key: value for key, value in composed_node(group, name).items() if key != "require_existing"
    }
    for key, value in REQUIRED.get(name, {}).items():
        if key in node:
            node[key] = {**node[key], **value} if isinstance(value, dict) else value
    return build_choice(node, group)


def list_fields() -> Iterator[Any]:
    """Yield each field of each class once, with the first choice that has it."""
    classes = set[type]()
    for group in GROUPS:
        for name in groups()[group]:
            # not built: every process collects the tests, and few run them
            kind: Any = import_target(load_node(group, name)["_target_"], group)
            if kind not in classes:
                classes.add(kind)
                ids = {field: f"{kind.__name__}.{field}" for field in declared_fields(kind)}
                yield from (
                    pytest.param(group, name, field, id=ids[field])
                    for field in ids
                    if ids[field] not in NOT_VARIED
                )


def other_values(value: Any, expected: Any) -> Iterator[Any]:
    """Yield values of a type that differ from this one."""
    if hasattr(expected, "__metadata__"):
        yield from other_values(value, expected.__origin__)
    elif get_origin(expected) in (Union, UnionType):
        for each in get_args(expected):
            yield from other_values(value, each)
    elif get_origin(expected) is Literal:
        yield from (each for each in get_args(expected) if each != value)
    else:
        yield from other_plain_values(value)


def other_plain_values(value: Any) -> Iterator[Any]:
    match value:
        case bool():
            yield not value
        case int() | float():
            yield from (value + 1, value / 2, value - 1)
        case str():
            yield from (f"{value}x", "16", "OTHER_NAME")
        case dict():
            yield {**dict.fromkeys(value, 2.0), "text": 7.0}
        case tuple():
            yield from (value[1:], value[::-1], (*value, "three_way:other"))
        case None:
            yield from ("http://127.0.0.1:9/v1", 8, "other", 0.5, {"key": 1})


@pytest.mark.parametrize(("group", "name", "field"), [*list_fields()])
def test_field_changes_identity_unless_marked(
    group: str, name: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = build_component(group, name)
    # what they load is not on every machine
    for kind in (type(component), SentenceTransformer):
        monkeypatch.setattr(kind, "loads", lambda _: {}, raising=False)
    declared = declared_fields(type(component))[field]
    value = getattr(component, field)
    if hasattr(value, "__dataclass_fields__"):
        pytest.skip("a component of its own")
    changed = None
    for other in other_values(value, declared.type):
        try:
            changed = replace(component, **{field: other})
            break
        except (UsageError, ValueError, TypeError, AttributeError):
            continue
    assert changed is not None, f"no other value of {field} fits"
    assert (identity_of(changed) == identity_of(component)) is bool(declared.marks)


def test_part_of_a_component_changes_its_identity() -> None:
    first, second = (build_component("retriever", name) for name in ("bm25", "bm25_text"))
    graph = build_component("retriever", "entity_graph")
    assert identity_of(replace(graph, passages=first)) != identity_of(
        replace(graph, passages=second)
    )


COMPONENT = """
from dataclasses import dataclass
from typing import Annotated

from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.util.settings import Setting


@dataclass(frozen=True)
class Mine:
    depth: Annotated[int, Setting("{meaning}", ours="{source}")] = {default}
"""


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize(
    ("meaning", "default", "is_same"),
    [("Number of steps.", 3, True), ("Nubmer of steps.", 4, False)],
    ids=["corrected text", "other default"],
)
def test_corrected_help_text_renames_no_run(meaning: str, default: int, is_same: bool) -> None:
    write("counted.py", COMPONENT.format(meaning="Nubmer of steps.", source="a gues", default=3))
    before = user_code("counted")
    write("counted.py", COMPONENT.format(meaning=meaning, source="a guess", default=default))
    assert (user_code("counted") == before) is is_same


@dataclass(frozen=True)
class Printing:
    depth: int = 3
    prints: Annotated[bool, NotIdentity("prints only")] = False


@pytest.mark.parametrize(
    ("change", "is_same"), [({"prints": True}, True), ({"depth": 4}, False)], ids=["marked", "not"]
)
def test_marked_setting_of_a_method_renames_no_run(change: dict[str, Any], is_same: bool) -> None:
    assert (program_hash(Printing()) == program_hash(replace(Printing(), **change))) is is_same


@dataclass(frozen=True)
class Extended:
    depth: int = 3
    tables: Annotated[int | None, AddedLater()] = None


def test_a_later_setting_at_its_default_keeps_keys() -> None:
    assert "tables" not in identity_of(Extended())


def test_later_setting_off_its_default_changes_keys() -> None:
    assert identity_of(Extended(tables=2))["tables"] == 2


def test_settings_of_older_runs_lack_later_keys() -> None:
    later = {
        name: declared.default
        for name, declared in declared_fields(RunSettings).items()
        if declared.is_added_later
    }
    config = {key: value for key, value in compose([]).items() if key not in later}
    settings = read_settings(config)
    assert {name: getattr(settings, name) for name in later} == later
    assert later
