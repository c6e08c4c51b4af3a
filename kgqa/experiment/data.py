"""`kgqa data prepare`: which files a dataset needs and where they go."""

from __future__ import annotations

from kgqa.errors import ConfigError, nearest
from kgqa.experiment.building import build
from kgqa.experiment.configuration import compose, groups


def describe(chosen: str | None = None) -> int:
    """Print, for one dataset (`dataset=NAME` or the name alone) or for all, where its file is or what to fetch."""
    from rich.console import Console

    console = Console()
    known = groups()["dataset"]
    name = chosen.removeprefix("dataset=") if chosen else None
    if name is not None and name not in known:
        raise ConfigError(f"{name}: no such dataset; {nearest(name, known)}")
    for each in [name] if name else known:
        dataset = build(compose([f"dataset={each}"])["dataset"], "dataset")
        console.print(f"{each}: {dataset.preparation()}", markup=False, highlight=False, soft_wrap=True)
    return 0
