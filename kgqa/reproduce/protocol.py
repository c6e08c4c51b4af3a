"""The papers' own protocols: which questions choose hyperparameters and which are asked, and what is averaged over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from kgqa.config.files import flatten, load_yaml
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.session.experiment import Experiment
from kgqa.util.plugins import package_conf

SETS = "method.demonstration_set"
Among = Mapping[str, Sequence[int]]  # values by key


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tuned(_Entry):
    when: tuple[str, ...]  # choices of groups and values that a cell has
    among: dict[str, tuple[int, ...]]


class Protocol(_Entry):
    """An entry of conf/reproduce/protocols.yaml."""

    source: str
    tables: tuple[str, ...]
    dev: int | None
    dev_split: str | None
    test: int | None
    seed: int
    metric: str
    metrics: dict[str, str]  # by table
    sets: tuple[str, ...]
    tune: tuple[Tuned, ...]

    def among(self, experiment: Experiment) -> Among:
        """Return what is chosen among for a cell."""
        if self.dev is None:
            return {}
        config = experiment.config
        has = {f"{key}={value}" for key, value in {**flatten(config), **config["choices"]}.items()}
        return next((entry.among for entry in self.tune if has.issuperset(entry.when)), {})

    def sets_of(self, experiment: Experiment) -> tuple[str, ...]:
        return self.sets if SETS in flatten(experiment.config) else ()

    def decides(self) -> set[str]:
        """Return the keys that are the paper's by it."""
        return {"limit", *(key for entry in self.tune for key in entry.among), *([SETS] if self.sets else [])}

    def short(self) -> str:
        """Return what is left out without it."""
        said = ["nothing chosen on development questions" if self.tune and self.dev else ""]
        said += ["one set of demonstrations" if self.sets else "", "all questions, or the first limit= of them"]
        return ", ".join(text for text in said if text)

    def words(self) -> str:
        """Return what it says, on one line."""
        split = f" of the {self.dev_split} split" if self.dev_split else ""
        said = [f"hyperparameters chosen on {self.dev:,} questions{split}" if self.dev else ""]
        said += [f"{self.test:,} questions asked" if self.test else "all questions asked"]
        said += [f"the mean over {len(self.sets)} sets of demonstrations" if self.sets else ""]
        return f"{', '.join(text for text in said if text)} ({self.source})"


def protocol_of(table_id: str) -> Protocol | None:
    """Return the paper's protocol, if it says how the cells of this table were made."""
    found = _protocols().get(table_id.partition("/")[0])
    return found if found and (not found.tables or table_id in found.tables) else None


@cache
def _protocols() -> dict[str, Protocol]:
    file = package_conf() / "reproduce" / "protocols.yaml"
    try:
        return TypeAdapter(dict[str, Protocol]).validate_python(load_yaml(file, "reinstall kgqa"))
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error


def find_protocol(table_id: str, wanted: str, changed: Mapping[str, int]) -> Protocol | None:
    """Return the paper's protocol where `protocol=paper` asks for it, with other numbers of questions where some are
    given.

    Raises:
        ConfigError: neither short nor paper, or the paper has none for this table.
    """
    if wanted not in ("short", "paper"):
        raise ConfigError(f"protocol={wanted}: choose from: short (nothing is chosen, limit= counts), paper")
    if wanted == "short":
        for key in changed:
            raise ConfigError(f"protocol.{key}: goes with protocol=paper")
        return None
    protocol = protocol_of(table_id)
    if protocol is None:
        raise ConfigError(f"protocol=paper: nothing is known for {table_id} beyond its settings; leave it out")
    return protocol.model_copy(update=dict(changed))
