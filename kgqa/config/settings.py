"""The keys of a run that belong to no component, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

from kgqa.config.building import check_value, identity_of, is_identity
from kgqa.config.files import Config
from kgqa.types import Json
from kgqa.util.validators import Count, NotIdentity, Share, Validator

SCOPE = NotIdentity("the same answers to fewer or more questions")
PLACE = NotIdentity("where the files are", reported=False)
UNREPORTED = ("choices", "tracker")  # groups that change no file of a run
FolderName = Annotated[
    str,
    Validator(
        "must be a plain folder name, without slashes or a leading dot",
        lambda name: name != "" and name == Path(name).name and not name.startswith("."),
    ),
]
Folder = Annotated[
    str,
    Validator("set the run's folder, or leave it out", bool),
    Validator(
        "a run needs its own folder. Name one in it",
        lambda folder: Path(folder).resolve() not in (Path("/"), Path.home().resolve()),
    ),
]


@dataclass(frozen=True)
class RunSettings:
    """`conf/config.yaml` without its groups; see there for what each key means."""

    limit: Annotated[Count | None, SCOPE]
    sample: Annotated[Count | Literal["trace_paper"] | None, NotIdentity("no questions are sampled", (None,))]
    ids: Annotated[tuple[str, ...] | None, SCOPE]
    seed: int
    max_parallel_questions: Annotated[Count | None, NotIdentity("the order of the work only", reported=False)]
    max_failure_rate: Annotated[Share, NotIdentity("decides when a run counts as failed", reported=False)]
    max_calls: Annotated[Count, NotIdentity("stops a method that makes calls forever", reported=False)]
    run_name: Annotated[FolderName | None, PLACE]
    output_dir: Annotated[Folder | None, PLACE]
    dry_run: Annotated[bool, NotIdentity("a dry run writes no files", reported=False)]
    scoring: Annotated[str | None, NotIdentity("how answers are scored")]
    require_existing: Annotated[bool, NotIdentity("forbids to extract triples")]
    roles: Annotated[dict[str, str | None], NotIdentity("added by the experiment, without the judge's")]
    allow_trained_questions: Annotated[bool, NotIdentity("a permission")]

    @classmethod
    def of(cls, config: Config) -> RunSettings:
        """Check the keys. Raises ConfigError with the key and its value."""
        ids = [config["ids"]] if isinstance(config["ids"], str | int) else config["ids"]
        given = {**config, "ids": ids, "kg.require_existing": config["kg"]["require_existing"]}
        values = {}
        for name, expected in get_type_hints(cls, include_extras=True).items():
            key = "kg.require_existing" if name == "require_existing" else name
            values[name] = check_value(key, given[key], expected)
        return cls(**values)

    def identity(self) -> dict[str, Json]:
        """Return the settings that can change an answer."""
        types, values = get_type_hints(type(self), include_extras=True), vars(self)
        return {key: value for key, value in values.items() if is_identity(types[key], value, values)}


def list_reported_settings(config: Config) -> dict[str, Json]:
    """Return every setting that can change a file of a run: a finished run of these settings need not run again."""
    types = get_type_hints(RunSettings, include_extras=True)
    settings = {
        key: value
        for key, value in config.items()
        if key not in UNREPORTED and is_identity(types.get(key), value, config, reported=True)
    }
    nodes = {key: identity_of(config[key], key, reported=True) for key in ("engine", "retriever") if config.get(key)}
    return {**settings, **nodes}
