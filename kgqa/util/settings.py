"""Declare the settings of components: `beam: Annotated[Count, Setting("Chains kept at each step.", paper="§C.4")] = 5`.

A field's annotation holds its type, its limits (`kgqa.util.validators`), its meaning, the source of its default, and
whether it can change an answer. Help, docs, "Settings that differ", the run ID and the keys of the call cache follow
from it. No other place describes a setting.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, cast, get_type_hints

# key of an identity: the name of the component's class
CLASS = "class"
# a source without file and line
RELEASED = "released code"
NOT_IN_PAPER = "not in the paper"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Name who chose a value. All fields are texts for users. They are empty if they do not apply.

    paper: the place in the paper, such as "§C.4". code: the authors' released program, with file and line if known.
    ours: why kgqa has this value, which the paper does not give. other: a model card or the documentation of a library.
    """

    paper: str = ""
    code: str = ""
    ours: str = ""
    other: str = ""

    @property
    def is_published(self) -> bool:
        return bool(self.paper)

    @property
    def is_not_in_paper(self) -> bool:
        return bool(self.code or self.ours) and not self.paper

    @property
    def text(self) -> str:
        """Return the text for brackets: "§C.4; released code", "not in the paper; released code: run.py:12"."""
        code = f"released code: {self.code}" if self.code not in ("", RELEASED) else self.code
        parts = (
            NOT_IN_PAPER if self.is_not_in_paper else "",
            self.paper,
            code,
            self.ours,
            self.other,
        )
        return "; ".join(dict.fromkeys(filter(None, parts)))


@dataclass(frozen=True)
class Setting(Source):
    """Describe a field: `Setting("Number of chains.", paper="§C.4")`.

    meaning: one or two sentences with the allowed values, and what null means.
    only_if: the value of a setting next to it without which this one has no effect, such as "backend=ivf|ivfpq" or
        "reader=cot or scope=corpus".
    """

    meaning: str
    only_if: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class NotIdentity:
    """Mark a setting that cannot change a reply or an answer. All others are part of the run ID and the cache's keys.

    A mark means only that. "Keeps old run names" is no reason.

    reported: the setting changes the files of a run, so a finished run is written again.
    """

    reason: str
    reported: bool = True


HASHED_WEIGHTS = NotIdentity("the identity has the hash of the weights")
# Lowering these after an out-of-memory error must not pay every call again.
ORDER_OF_SUMS = NotIdentity(
    "changes the order of sums only, as other calls at the same time do", reported=False
)


@dataclass(frozen=True)
class AddedLater:
    """Mark a setting whose default does what kgqa did before the setting existed.

    At its default it is not part of an identity, so an update of kgqa loses no stored reply.
    """


@dataclass(frozen=True)
class DeclaredField:
    """A field of a component. default: MISSING if it has none. type: with all annotations."""

    name: str
    type: Any
    default: Any
    setting: Setting
    marks: tuple[NotIdentity, ...]
    is_added_later: bool

    def is_in_identity(self, value: object) -> bool:
        """Return whether the run ID and the cache's keys have this value of the setting."""
        return not self.marks and not (self.is_added_later and value == self.default)

    @property
    def can_change_files(self) -> bool:
        """Return whether it can change a file of a run, such as the report."""
        return all(mark.reported for mark in self.marks)


def name_of(identity: Mapping[str, Any]) -> str:
    """Return the name of a component for users, such as "llamacpp" or "bm25"."""
    return str(identity.get(CLASS, "")).lower()


def declared_fields(kind: Any) -> dict[str, DeclaredField]:
    """Return the fields that a configuration can set, by name. A class that is no dataclass has none.

    Raises:
        NameError: an annotation names what only type checkers import.
    """
    return _read_fields(cast(Hashable, kind)) if is_dataclass(kind) else {}


@cache
def _read_fields(kind: Any) -> dict[str, DeclaredField]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _declare(field, hints[field.name]) for field in fields(kind) if field.init}


def _declare(field: Field[Any], hint: Any) -> DeclaredField:
    metadata = getattr(hint, "__metadata__", ())
    setting = next((each for each in metadata if isinstance(each, Setting)), Setting(""))
    marks = tuple(each for each in metadata if isinstance(each, NotIdentity))
    is_added_later = any(isinstance(each, AddedLater) for each in metadata)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return DeclaredField(field.name, hint, default, setting, marks, is_added_later)
