"""What a configuration builds, and that no value in it ends in a traceback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kgqa.errors import UsageError
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.experiment.config.files import groups

BUILT = ("method", "retriever", "ranker", "reranker", "graph", "engine", "kg", "judge", "tracker", "collection")
CHOICES = [(group, name) for group in BUILT for name in groups()[group]]


def keys(node: Mapping[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    for name, value in node.items():
        if name != "_target_":
            yield (*above, name)
        if isinstance(value, Mapping):
            yield from keys(value, *above, name)


def changed(node: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    first, *rest = path
    return {**node, first: changed(node[first], tuple(rest), value) if rest else value}


def refusal(node: Mapping[str, Any], group: str) -> str | None:
    try:
        build(node, group)
    except UsageError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_a_wrong_value_of_any_key_fits_or_is_refused_in_one_line(group: str, name: str) -> None:
    node = compose([f"{group}={name}"])[group]
    for path in keys(node) if isinstance(node, Mapping) and "_target_" in node else ():
        for value in ("abc", -1, {"a": 1}):
            assert "\n" not in (refusal(changed(node, path, value), group) or "")


@pytest.mark.parametrize(
    ("choice", "key", "said"),
    [
        ("graph=knn", "encoder", "no settings of a ranker; choose a preset with ranker@graph.encoder=NAME"),
        ("retriever=knn", "dense", "no settings of a retriever; choose a preset with retriever@retriever.dense=NAME"),
        ("method=ircot", "few_shot", "has settings of its own; change one of them, method.few_shot.KEY=VALUE"),
    ],
)
def test_a_name_where_settings_belong_is_told_how_to_choose_them(choice: str, key: str, said: str) -> None:
    group = choice.partition("=")[0]
    assert refusal(changed(compose([choice])[group], (key,), "x"), group) == f"{group}.{key}=x: {said}"
