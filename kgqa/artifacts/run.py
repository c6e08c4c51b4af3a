"""A finished run's folder: what it holds beside its questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.schema import Artifact, read

IDENTITY = "identity.json"
SETTINGS = "settings.json"
NAMED = ("method", "dataset", "retriever", "reranker", "model", "engine")  # in a report's title
SCRIPTED = "scripted"  # the engine without a model, as its identity says
SCRIPTED_TARGET = "kgqa.engines.scripted.Scripted"  # and its configuration
MADE_UP = "made up: engine=scripted answers without a model, so these figures say nothing of one"
# roles that came after runs had names: where they have no model of their own, the reader's answers
AS_READER = ("explorer", "completer", "verifier", "teacher")
Setting = tuple[str, str, str]  # key, value, where the value comes from


class Chosen(Artifact):
    """`settings.json`: of the groups the run made use of, what was chosen, and every value with its source."""

    choices: Mapping[str, str]
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class FinishedRun:
    folder: Path
    choices: Mapping[str, str]
    settings: tuple[Setting, ...]
    manifest: Manifest
    metrics: Metrics

    @classmethod
    def read(cls, folder: Path) -> FinishedRun:
        """Read the folder of a finished run. Raises DataError if it is not one, or a file is damaged."""
        metrics, manifest = Metrics.read(folder), Manifest.read(folder)
        chosen = read(Chosen, folder / SETTINGS)
        return cls(folder, chosen.choices, chosen.settings, manifest, metrics)

    @property
    def title(self) -> str:
        named = [self.choices[group] for group in NAMED[2:] if group in self.choices]
        return f"{self.choices['method']} on {self.choices['dataset']}" + (f" with {', '.join(named)}" if named else "")

    @property
    def simulation_note(self) -> str:
        """Return a warning if replies came from no model, else ""."""
        return MADE_UP if SCRIPTED in (identity.get("engine") for identity in self.manifest.models.values()) else ""
