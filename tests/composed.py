"""Nodes of configurations for tests, composed only if their files need it."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.config.files import load_node


@cache
def composed_node(group: str, name: str) -> Any:
    """Return the node of a choice; do not change it. A file without references is what Hydra composes."""
    node = load_node(group, name)
    return compose([f"{group}={name}"])[group] if "${" in str(node) else node


@cache
def built_method(name: str, *overrides: str) -> Any:
    """Return a method with some of its own keys changed, such as `beam=3`, without composing a configuration."""
    changes = {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in overrides)}
    node = composed_node("method", name)
    assert changes.keys() <= node.keys()
    return build({**node, **changes}, "method")
