"""Identify a run by everything that can change its answers, and find its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.run import (
    AS_READER,
    DEPLOYMENT,
    IDENTITY,
    SCRIPTED,
    SCRIPTED_TARGET,
    read_identity,
)
from kgqa.config import building as parts
from kgqa.config.building import changing_settings
from kgqa.config.files import flatten
from kgqa.config.overrides import parse_role
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.engines import Engines, Pool
from kgqa.experiment.experiment import RANKERS, Experiment
from kgqa.identity.component import corpus_identity_of, identity_of
from kgqa.identity.program_code import program_hash, user_code
from kgqa.judge import ROLE
from kgqa.protocols import Ranker
from kgqa.runtime.folder import refuse_foreign_files, run_name
from kgqa.types import Json, JsonObject
from kgqa.util.digests import ids_digest
from kgqa.util.places import outputs, use_prompts

_DEPLOYMENT = "answering.default.deployment"
Identify = Callable[[Experiment], dict[str, Json]]


def identify(experiment: Experiment) -> dict[str, Json]:
    """Return every setting that can change an answer, and the hashes of code and data.

    A setting that cannot is declared so in its field, see `NotIdentity`.
    """
    with use_prompts(experiment.settings.prompts):
        return _identify(experiment)


def _identify(experiment: Experiment) -> dict[str, Json]:
    config, uses = experiment.config, experiment.method.uses
    # first: it reports missing weights, and the rest takes longer
    answering = identify_engines(experiment)
    kg: dict[str, Json] | None = None
    if "triples" in uses:
        kg = (
            {"imported": experiment.triple_file.sha256} if experiment.triple_file else experiment.kg
        )
    components = {
        **{
            group: _build_ranker(experiment, group)
            for group in RANKERS
            if group in experiment.choices
        },
        "collection": experiment.data.collection,
        "graph": experiment.linker if "graph" in uses else None,
        "retriever": experiment.retriever if experiment.searches else None,
    }
    return {
        **experiment.settings.identity(),
        "method": {
            **changing_settings(config["method"], "method"),
            **_hash_method_files(experiment),
        },
        "code": hash_programs(experiment),
        "dataset": experiment.data.identity(),
        "corpus": corpus_identity_of(experiment.data.corpus) if "search" in uses else None,
        "roles": _identify_roles(experiment) if experiment.asks_models else {},
        "answering": answering,
        "kg": kg,
        **{name: identity_of(part) for name, part in components.items() if part is not None},
    }


def _build_ranker(experiment: Experiment, group: str) -> Ranker:
    return parts.build_part(experiment.chosen(group), group, Ranker)


def hash_programs(experiment: Experiment) -> dict[str, str]:
    """Return the hash of the method's program, and of the extractor's if the method uses triples."""
    programs: dict[str, object] = {"method": experiment.method}
    if "triples" in experiment.method.uses:
        # the identity has the hash of an imported file, so its path does not count
        programs["kg"] = (
            replace(experiment.triple_file, path=None)
            if experiment.triple_file
            else experiment.triples
        )
    hashes = {name: program_hash(program) for name, program in programs.items()}
    if dataset := user_code(type(experiment.data.whole).__module__):
        hashes["dataset"] = dataset
    return hashes


def identify_engines(experiment: Experiment) -> dict[str, Json]:
    """Return what each role's engine says of itself: the hash of its weights, the served model, rules."""
    with closing(Pool()) as pool:
        return Engines(experiment.role_nodes, pool).identities()


def note_moved_server(experiment: Experiment, identity: Mapping[str, Json], folder: Path) -> str:
    """Return a line for a new run if one next to it differs only in the address of the server, or "".

    Another server can have another model with the same name, so only the user knows whether the replies are the same.
    """
    engine = experiment.config["engine"] if experiment.asks_models else {}
    if (folder / IDENTITY).exists() or engine.get("deployment", "") is not None:
        return ""
    # as it is read from the file of another run
    own = flatten(json.loads(json.dumps(identity)))
    files = sorted(folder.parent.glob(f"*/{IDENTITY}"), key=lambda file: -file.stat().st_mtime)
    for file in files:
        with suppress(DataError):
            other = flatten(read_identity(file.parent))
            differing = {key for key in own.keys() | other.keys() if own.get(key) != other.get(key)}
            if differing == {_DEPLOYMENT}:
                return (
                    f"note: the server has another address than in {file.parent}. "
                    f"If it serves the same model, reuse these replies with {DEPLOYMENT}={other[_DEPLOYMENT]}"
                )
    return ""


def _hash_method_files(experiment: Experiment) -> JsonObject:
    """Return the hashes of files that the method reads or starts."""
    loads = getattr(experiment.method, "loads", None)
    return {} if loads is None else cast(JsonObject, loads())


def _identify_roles(experiment: Experiment) -> dict[str, Json]:
    """Return the choice of each role except the judge's, with an adapter's digest instead of its name."""
    choices = {role: choice for role, choice in experiment.config["roles"].items() if role != ROLE}
    roles = {
        role: choice
        for role, choice in choices.items()
        if choice is not None or role not in AS_READER
    }
    for role, binding in experiment.role_nodes.items():
        if binding.adapter is not None:
            preset, _, _, engine = parse_role(str(roles[role]))
            roles[role] = f"{preset}+{binding.adapter.digest()}@{engine}"
    return roles


def find_run_folder(experiment: Experiment, identity: Identify = identify) -> Path:
    """Return the folder of the run: `output_dir=`, or one named after its data, its method and its identity.

    Fewer questions never replace more. If the folder has answers to other questions too, a run of some questions
    gets a folder next to it, named after their number and ids.

    Args:
        identity: returns the identity of the experiment. It is not called if the user names the folder.

    Raises ConfigError if the user chose the folder, so that no other can be taken, or `output_dir=` has the user's
    own files.
    """
    settings = experiment.settings
    if settings.output_dir is not None:
        refuse_foreign_files(Path(settings.output_dir))
    folder = (
        Path(settings.output_dir)
        if settings.output_dir is not None
        else _choose_folder(experiment, identity)
    )
    if settings.shard is not None and settings.output_dir is None:
        # parts run at the same time on several machines
        return folder.with_name(f"{folder.name}-shard-{settings.shard.replace('/', '-of-')}")
    if settings.output_dir is not None or settings.run_name is not None:
        refuse_to_replace(experiment, folder)
    elif _count_replaced(experiment, folder):
        ids = experiment.data.ids
        return folder.with_name(f"{folder.name}-{len(ids)}-{ids_digest(ids)[:4]}")
    return folder


def refuse_to_replace(experiment: Experiment, folder: Path) -> None:
    """Raise ConfigError if a folder has answers to questions that this run does not answer."""
    if replaced := _count_replaced(experiment, folder):
        raise ConfigError(
            f"{folder}: {replaced:,} questions are answered in this folder. A run of {len(experiment.data.ids):,} "
            "would replace them. Set another output_dir= or run_name=, or run all questions"
        )


def _count_replaced(experiment: Experiment, folder: Path) -> int:
    """Return the number of answers in a folder if some are to other questions than those of this run, else 0."""
    settings = experiment.settings
    if settings.limit is None and settings.ids is None and settings.shard is None:
        return 0
    try:
        answered = set(question_ids(folder))
    except DataError:
        # no finished run, or a damaged one
        return 0
    return 0 if answered <= set(experiment.data.ids) else len(answered)


def _choose_folder(experiment: Experiment, identity: Identify) -> Path:
    answers = "model" if experiment.asks_models else "retriever"
    names = [experiment.name(group) for group in ("dataset", "method", answers)]
    if not experiment.method.uses:
        names[-1] = "no_model"
    if experiment.asks_models and experiment.config["engine"]["_target_"] == SCRIPTED_TARGET:
        # no model answers, so none is credited
        names[-1] = SCRIPTED
    if experiment.settings.run_name is not None:
        return outputs().joinpath(*names, experiment.settings.run_name)
    # so that a run's scores stay as earlier reports have them
    scoring = (
        ""
        if experiment.profile == experiment.config["dataset"]["profile"]
        else f"-{experiment.profile}"
    )
    return outputs().joinpath(*names, f"{run_name(identity(experiment))}{scoring}")
