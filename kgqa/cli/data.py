"""`kgqa data`: list, download, check and index datasets."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.artifacts.metrics import LACKS
from kgqa.cli.dry_run import show_plan
from kgqa.cli.terminal import Terminal
from kgqa.config.composing import compose
from kgqa.config.overrides import override_values
from kgqa.errors import ConfigError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.dry_run import plan_index
from kgqa.experiment.prepare import indexes
from kgqa.experiment.session import Session
from kgqa.system.downloads import fetch_dataset, list_sources, place_of, read_through
from kgqa.types import Json

if TYPE_CHECKING:
    from kgqa.retrieval.vector_import import VectorImport


def show_datasets(_: Namespace, terminal: Terminal) -> None:
    """Show every dataset and corpus with its source and local copy."""
    for name, source in list_sources().items():
        terminal.heading(name)
        size = "size unknown" if source.bytes is None else f"{source.bytes:,} bytes"
        checksum = "unknown" if source.sha256 is None else source.sha256
        hub = [f"on the hub: {source.hub.id}"] if source.hub else []
        places = place_of(name, source).splitlines()
        facts = [
            *(f"here: {place}" for place in places),
            f"license: {source.license}",
            *(source.page, *source.urls, *hub),
            f"{size}, sha256 {checksum}",
        ]
        terminal.line(source.content)
        terminal.lines(f"  {fact}" for fact in facts)


def download(args: Namespace, terminal: Terminal) -> None:
    """Download a dataset. A name alone means dataset=NAME."""
    settings = override_values(
        word if "=" in word else f"dataset={word}" for word in args.overrides
    )
    for key, value in settings.items():
        if not value:
            raise ConfigError(f"{key}=: expected a value")
    if "dataset" not in settings:
        raise args.command.missing("dataset=")
    to = Path(settings["to"]).expanduser() if "to" in settings else None
    fetch_dataset(settings["dataset"], terminal, source_folder=settings.get("from"), to=to)


def check_dataset(args: Namespace, terminal: Terminal) -> None:
    """Read all files of a dataset."""
    read_through(compose(args.overrides), terminal)


def build_index(args: Namespace, terminal: Terminal) -> None:
    """Build the index of a run and print its folder last."""
    with Session(compose_experiment(args.overrides)) as session:
        if session.experiment.settings.dry_run:
            passages = sum(1 for _ in session.experiment.data.corpus.passages())
            show_plan(plan_index(session), passages, terminal, unit="passage")
            return
        folder, started = indexes.index_folder(session), time.monotonic()
        imported = _find_import(session, vars(args)["import"])
        manifest, is_new = indexes.build_index(session, terminal, imported)
    took = f"built in {time.monotonic() - started:,.1f} s" if is_new else "already exists"
    terminal.line(f"{_describe(manifest)}, {took}")
    if warning := indexes.explain_lacks(manifest["corpus"], folder.command):
        terminal.line(warning, alarm=True)
    terminal.result(folder.path)


def _find_import(session: Session, file: Path | None) -> VectorImport | None:
    """Return the vectors of `--import`, or None without this option."""
    if file is None:
        return None
    # only this option needs encoders
    from kgqa.datasets.base import FileDataset
    from kgqa.retrieval.vector_import import VectorImport

    corpus = session.experiment.data.corpus
    if not isinstance(corpus, FileDataset):
        raise ConfigError(f"--import {file}: set the file of its passages, dataset.corpus=FILE")
    return VectorImport.of(file, session.retriever, corpus.read_passages)


def check_index(args: Namespace, terminal: Terminal) -> None:
    """Compare every file of the index with its hash."""
    with Session(compose_experiment(args.overrides)) as session:
        folder = indexes.index_folder(session)
        terminal.line(f"{_describe(folder.verify())}, all files are unchanged")
    terminal.result(folder.path)


def _describe(manifest: Mapping[str, Json]) -> str:
    corpus = manifest["corpus"]
    size = sum(file["bytes"] for file in manifest["files"].values()) / 1e6
    parts = [f"{corpus['count']:,} passages", f"{size:,.1f} MB"]
    for key, label in (
        ("added", "written by the model"),
        *LACKS.items(),
        ("duplicates", "identical ones skipped"),
        ("equal_texts", "with the same text as another passage"),
        ("without_text", "without text"),
    ):
        if corpus.get(key):
            parts.append(f"{corpus[key]:,} {label}")
    return ", ".join(parts)
