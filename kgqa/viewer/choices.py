"""What the ask tab may choose: folders of documents, methods, models. A page names one of these and no path."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.artefacts.asked import FOLDER
from kgqa.datasets.documents import KINDS
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.config.files import groups
from kgqa.experiment.config.listing import about
from kgqa.experiment.config.overrides import override_key, override_values
from kgqa.experiment.machine.local_model import ready_here
from kgqa.inert import inert
from kgqa.types import Json

FIRST = ("trace", "kgp", "knowtrace")
NEEDS_GOLD = ("golden",)


@dataclass(frozen=True)
class Choices:
    """root: whose runs are shown. given: folders of the command line. overrides: its key=value, for every question."""

    root: Path
    given: tuple[Path, ...]
    overrides: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raises DataError: a folder is none."""
        for folder in self.given:
            if not folder.is_dir():
                raise DataError(f"--documents {folder}: no such folder; name one with documents")

    def folders(self) -> dict[str, Path]:
        """By name: those of the command line, then those in the folder that is shown which hold documents."""
        root = self.root.resolve()
        below = [each for each in sorted(self.root.iterdir()) if each.name != FOLDER and not each.name.startswith(".")]
        own = [each for each in below if each.resolve().is_relative_to(root) and _holds_documents(each)]
        return {inert(str(folder)): folder for folder in (*self.given, *own)}

    def folder(self, name: str) -> Path:
        """Raises DataError: it is not among them."""
        known = self.folders()
        if name not in known:
            raise DataError(f"{name!r:.80}: no such folder of documents; give it: kgqa view --documents FOLDER")
        return known[name]

    @cached_property
    def methods(self) -> dict[str, str]:
        """Those that can answer a question without gold, with a line about each."""
        asking = {name: about("method", name).partition(" Needs ") for name in groups()["method"]}
        able = {name: said for name, (said, _, needs) in asking.items() if "model" in needs.partition(".")[0]}
        order = [*FIRST, *(name for name in able if name not in (*FIRST, *NEEDS_GOLD))]
        return {name: able[name] for name in order if name in able}

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Whose weights are here, the best first; none to choose where the command line says which."""
        named = override_values(self.overrides)
        fixed = "model" in named or any(key.startswith("model.") for key in named)
        if fixed or named.get("engine") in ("openai", "scripted"):
            return ()
        return tuple(preset.name for preset in ready_here(named.get("engine", "")))

    def words(self, method: str, model: str) -> tuple[str, ...]:
        """For `kgqa ask`; no model: the one that it chooses.

        Raises:
            ConfigError: one of them is not among those that can be chosen.
        """
        if method not in self.methods:
            raise ConfigError(f"method {method!r:.40}: not one that can be chosen here")
        if model and model not in self.models:
            raise ConfigError(f"model {model!r:.40}: not one that can be chosen here")
        others = [word for word in self.overrides if override_key(word) != "method"]
        return (*others, f"method={method}", *([f"model={model}"] if model else []))

    def json(self) -> dict[str, Json]:
        method = override_values(self.overrides).get("method", FIRST[0])
        given = " ".join(word for word in self.overrides if override_key(word) != "method")
        return {
            "folders": list(self.folders()),
            "methods": [[name, said] for name, said in self.methods.items()],
            "method": method,
            "models": list(self.models),
            "given": given,
        }


def _holds_documents(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    return any(file.suffix.lower() in KINDS and file.is_file() for file in folder.iterdir())
