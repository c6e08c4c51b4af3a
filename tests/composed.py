"""Nodes of configurations for tests, composed only if their files need it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml
from omegaconf import OmegaConf

from kgqa.config.building import build, dataset
from kgqa.config.composing import compose
from kgqa.config.keys import load_node

_defaults = cache(lambda: compose([]))


@cache
def composed_node(group: str, name: str) -> Any:
    """Return the node of a choice, with its references resolved; do not change it.

    A file without references is what Hydra composes. Those of recipes and extractions are to choices of other groups.
    """
    node = load_node(group, name)
    if "${" not in str(node):
        return node
    if group in ("collect", "kg"):
        return compose([f"{group}={name}"])[group]
    return OmegaConf.to_container(
        OmegaConf.create({**_defaults(), group: node})[group], resolve=True
    )


def build_choice(node: Mapping[str, Any], group: str) -> Any:
    """Build a choice of any group, with the model or dataset that it is built with."""
    options: dict[str, Any] = {}
    if group == "engine":
        options["model"] = build(composed_node("model", "smollm2_135m"), "model")
    elif group == "collection":
        options["dataset"] = dataset(composed_node("dataset", "demo"))
    return build(node, group, **options)


@cache
def built_method(name: str, *overrides: str) -> Any:
    """Return a method with some of its own keys changed, such as `beam=3`, without composing a configuration."""
    changes = {
        key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in overrides)
    }
    node = composed_node("method", name)
    assert changes.keys() <= node.keys()
    return build({**node, **changes}, "method")
