"""Compute the settings that define a run, and the folder of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.run import AS_READER, SCRIPTED, SCRIPTED_TARGET
from kgqa.calls import Call, Choose, CountTokens, Generate, Rank
from kgqa.config.files import Config, Node
from kgqa.config.overrides import parse_role
from kgqa.config.settings import NOT_IDENTITY, REACHING
from kgqa.engines.thinking import thinks_not
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.session.engines import Engines, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.protocols import Index
from kgqa.runtime.folder import run_name
from kgqa.types import Json
from kgqa.util.fs import ids_digest, outputs

VLLM_TARGET = "kgqa.engines.vllm.Vllm"

SINCE = {("kgqa.methods.safe.Safe", "labels"): "paper"}


def answerers(session: Session, engines: Engines, index: Index | None) -> Callable[[Call[Any]], Mapping[str, Json]]:
    """Return who answers a call, as the key of its reply in the call cache has it; nothing is loaded for it."""

    def identify(call: Call[Any]) -> Mapping[str, Json]:
        if isinstance(call, Generate | Choose | CountTokens):
            return engines(call.role).identity()
        if isinstance(call, Rank):
            return session.ranker(call.scorer).identity()
        return index.identity() if index is not None else {}

    return identify


def counted(engines: Engines, call: CountTokens) -> int | None:
    """Return a text's tokens where counting them is arithmetic, which no cache keeps."""
    engine = engines(call.role)
    return engine.count_tokens(call.text) if engine.counts_freely else None


def run_identity(session: Session) -> dict[str, Json]:
    """Return everything that can change an answer: configuration and code, with the data's hash in place of its
    path.
    """
    experiment = session.experiment
    config, uses = experiment.config, experiment.method.uses
    apart = ("graph", "collection", "demonstrations_ranker", *(() if experiment.settings.sample else ("sample",)))
    kept = {key: value for key, value in config.items() if key not in (*NOT_IDENTITY, *apart)}
    # in the hash, or without influence on answers
    elsewhere = ("path", "split", "files", "questions_file", "corpus", "aliases", "profile", "family", "verified")
    dataset = {key: value for key, value in config["dataset"].items() if key not in elsewhere}
    if experiment.verified is not None:
        dataset["verified"] = ids_digest(sorted(experiment.verified))
    silent = ("thinking",) if thinks_not(config["model"]["thinking"]) else ()
    model = {key: value for key, value in config["model"].items() if key not in ("prices", "about", *silent)}
    # a server that is named may move
    reaching = (*REACHING, "base_url") if config["engine"].get("deployment") else REACHING
    unused = ("extra",) if not config["engine"].get("extra") else ()
    engine = {key: value for key, value in config["engine"].items() if key not in (*reaching, *unused)}
    if engine["_target_"] == VLLM_TARGET:
        engine["lora"] = None  # a key that it had, so that runs keep their names
    asks_models = experiment.asks_models
    return {
        **kept,
        "method": _method(config["method"]),
        "code": experiment.code,
        "engine": engine if asks_models else None,
        "dataset": {**dataset, "sha256": experiment.data_sha256},
        **({"collection": dict(experiment.collection.identity())} if experiment.collection else {}),
        "model": model if asks_models else None,
        "roles": _roles(experiment.config) if asks_models else {},
        "kg": _triples(experiment) if "triples" in uses else None,
        "ranker": kept["ranker"] if "ranker" in experiment.choices else None,
        **{key: config[key] for key in ("demonstrations_ranker",) if key in experiment.choices},
        "reranker": kept.get("reranker") if "reranker" in uses else None,
        "retriever": dict(session.retriever.identity()) if experiment.searches else None,
        **({"graph": dict(session.linker.identity())} if "graph" in uses else {}),
        "corpus": dict(experiment.dataset.corpus_identity()) if "search" in uses else None,
    }


def _method(node: Node) -> dict[str, Json]:
    """Return a key that a method has got since runs have names counts where it is not as it was."""
    return {key: value for key, value in node.items() if SINCE.get((node["_target_"], key), ...) != value}


def _roles(config: Config) -> dict[str, Json]:
    """Return the choice of each role but the judge's, an adapter by its digest, as its name says nothing of what it
    holds.

    A role that runs had no key for counts where it has a model of its own.
    """
    choices = {role: choice for role, choice in config["roles"].items() if role != "judge"}
    roles = {role: choice for role, choice in choices.items() if choice is not None or role not in AS_READER}
    for role, format_answer in role_nodes(config).items():
        if format_answer.adapter is not None:
            preset, _, _, engine = parse_role(str(roles[role]))
            roles[role] = f"{preset}+{format_answer.adapter.digest()}@{engine}"
    return roles


def _triples(experiment: Experiment) -> dict[str, Json]:
    """Return what extracts them, or the hash of the file they are in."""
    from kgqa.kg.imported import ImportedFile, ImportedTriples

    if isinstance(experiment.triples, ImportedTriples):
        return {"imported": ImportedFile(experiment.triples.path).sha256}
    return {key: value for key, value in experiment.config["kg"].items() if key != "require_existing"}


def run_folder(session: Session) -> Path:
    """Return where the run is or will be: `out=`, else a place named after its data, its method and what it answers
    with.

    Fewer questions never replace more: where the place holds answers to others, too, a run of some questions gets one
    beside it, named after how many and which.

    Raises:
        ConfigError: the place was chosen by the person, so that no other can be taken.
    """
    experiment, settings = session.experiment, session.experiment.settings
    place = Path(settings.out) if settings.out is not None else _default_folder(session)
    if settings.limit is None and settings.ids is None:
        return place
    ids = experiment.question_ids
    answered = _read_answered_ids(place)
    if answered <= set(ids):
        return place
    if settings.out is not None or settings.name is not None:
        raise ConfigError(
            f"{place}: {len(answered):,} questions are answered here, and a run of {len(ids):,} would replace "
            "them; give another out= or name=, or ask all of them"
        )
    return place.with_name(f"{place.name}-{len(ids)}-{ids_digest(ids)[:4]}")


def _default_folder(session: Session) -> Path:
    experiment = session.experiment
    format_answer = "model" if experiment.asks_models else "retriever"
    parts = [experiment.name(group) for group in ("dataset", "method", format_answer)]
    if experiment.asks_models and experiment.config["engine"]["_target_"] == SCRIPTED_TARGET:
        parts[-1] = SCRIPTED  # no model answers, so none is credited
    return outputs().joinpath(*parts, experiment.settings.name or run_name(run_identity(session)))


def _read_answered_ids(folder: Path) -> set[str]:
    """Return the questions of a run that has ended there; none where it is damaged or there is none."""
    try:
        return set(question_ids(folder))
    except DataError:
        return set()
