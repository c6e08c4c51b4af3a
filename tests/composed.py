"""Nodes of configurations for tests, composed only if their files need it."""

from __future__ import annotations

from functools import cache
from typing import Any

from kgqa.config.composing import compose
from kgqa.config.files import load_node


@cache
def composed_node(group: str, name: str) -> Any:
    """Return the node of a choice; do not change it. A file without references is what Hydra composes."""
    node = load_node(group, name)
    return compose([f"{group}={name}"])[group] if "${" in str(node) else node
