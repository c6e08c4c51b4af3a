"""What tells the values of a template from others, so that no loop is rendered twice; and what was made of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

from kgqa.types import Passage

T = TypeVar("T")
Told = Literal["value", "passage", "parts", "identity", "nothing"]
_WORDS = attrgetter("id", "title", "text", "sentences", "place")  # all that a passage says
_TOLD: dict[type, Told] = {}


def known(value: Any) -> Any:
    """What tells a value from others: a text or a passage by what it says, another frozen one by being the same object.

    It holds for as long as the value lives. None: the value may change, and with it what a template makes of it.
    """
    kind = type(value)
    match told_by(kind):
        case "value":
            return kind, value
        case "passage":
            return _WORDS(value)
        case "identity":
            return kind, id(value)
        case "parts":
            return _of_parts(tuple(value.items()) if isinstance(value, dict) else value)
    return None


def _of_parts(values: tuple[Any, ...]) -> Any:
    """Of one kind, as demonstrations and passages are, they are told apart without a step of ours for each."""
    kinds = set(map(type, values))
    if len(kinds) == 1:
        (kind,) = kinds
        match told_by(kind):
            case "value":
                return kind, values
            case "passage":
                return kind, tuple(map(_WORDS, values))
            case "identity":
                return kind, tuple(map(id, values))
    parts = tuple(map(known, values))
    return None if None in parts else parts


def told_by(kind: type) -> Told:
    """How values of a type are told apart: asked ten times a prompt, of the same ten types."""
    told = _TOLD.get(kind)
    if told is None:
        told = _TOLD[kind] = _found_out(kind)
    return told


def _found_out(kind: type) -> Told:
    if issubclass(kind, (str, int, float, type(None))):
        return "value"
    if issubclass(kind, Passage):
        return "passage"
    if issubclass(kind, (dict, tuple)):
        return "parts"
    parameters = getattr(kind, "__dataclass_params__", None)
    return "identity" if parameters and parameters.frozen else "nothing"


class Kept(Generic[T]):
    """What was made, by what it was made of; the least recently asked for goes first. Safe to use from threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, tuple[T, object]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            found = self._made.get(key)
            if found is None:
                return None
            self._made.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, made: T, alive: object = None) -> T:
        """`alive`: what the key tells by identity, which must not make room for another object meanwhile."""
        with self._lock:
            self._made[key] = made, alive
            while len(self._made) > self._most:
                self._made.popitem(last=False)
        return made
