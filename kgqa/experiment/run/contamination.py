"""Reject a run over questions that one of its models was trained on, and warn about changed templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kgqa.artifacts.question_hashes import QuestionHashes, id_hash, text_hash, training_questions, training_templates
from kgqa.config.files import flatten
from kgqa.config.overrides import parse_override
from kgqa.errors import ConfigError
from kgqa.experiment.run.judge_roles import judge_nodes
from kgqa.experiment.session.engines import RoleBinding, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.judge import ROLE
from kgqa.prompting import has_template, template_hash
from kgqa.types import Question
from kgqa.util.text import pluralize

KEY = "allow_trained_questions"
Leaks = Mapping[str, int]  # by the key of what was trained: how many of the questions


def leaks(experiment: Experiment) -> Leaks:
    """Return the leaks of each artefact that the run makes use of; empty where no question is among those it was
    trained on.

    The questions are read only where there is such an artefact.
    """
    known = {key: hashes for key, folder in artefacts_in_use(experiment) if (hashes := training_questions(folder))}
    return among(known, experiment.name("dataset"), experiment.questions) if known else {}


def among(known: Mapping[str, QuestionHashes], dataset: str, questions: Iterable[Question]) -> Leaks:
    """Return how many of the questions each of them was trained on, by id or by their words; those of none are left
    out.
    """
    asked = [(id_hash(dataset, question.id), text_hash(question.text)) for question in questions]
    counts = {}
    for key, hashes in known.items():
        ids, texts = frozenset(hashes.ids), frozenset(hashes.texts)
        counts[key] = sum(id_ in ids or text in texts for id_, text in asked)
    return {key: count for key, count in counts.items() if count}


def refuse_trained(experiment: Experiment) -> Leaks:
    """Return the leaks that are allowed. Raises ConfigError: there are some, and none are."""
    found = leaks(experiment)
    if found and not experiment.settings.allow_trained_questions:
        raise ConfigError(refusal(found, len(experiment.questions)))
    return found


def refusal(found: Leaks, questions: int) -> str:
    """Return the refusal in one line: how many, by which key, and what to do."""
    said = "; ".join(f"{key} was trained on {count:,}" for key, count in found.items())
    return (
        f"of {pluralize(questions, 'question')} {said}: scores on these mean nothing; take others "
        f"(dataset.split=, ids=), or give {KEY}=true, which flags them"
    )


def stale(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each template that is another one than something in use was trained with."""
    for key, folder in artefacts_in_use(experiment):
        for name, then in training_templates(folder).items():
            if not has_template(name) or template_hash(name) != then:
                yield f"{key} was trained with another template {name} than there is now: train it again"


def artefacts_in_use(experiment: Experiment) -> Iterator[tuple[str, Path]]:
    """Yield every folder that a key of the run names, or that a role's adapter lies in."""
    config = experiment.config
    for group in experiment.choices:
        if group != "dataset" and isinstance(config.get(group), Mapping):  # its folders hold questions
            yield from _folders(group, config[group])
    own = role_nodes(config) if experiment.asks_models else {}
    for role, answering in own.items():
        if role:  # the run's own model is among the groups
            yield from _of_role(f"roles.{role}", answering)
    if experiment.judge is not None:
        for role, answering in judge_nodes(config, experiment.judge).items():
            yield from _of_role(parse_override(answering.key).key or f"{ROLE}.{role}", answering)


def _of_role(key: str, answering: RoleBinding) -> Iterator[tuple[str, Path]]:
    if answering.adapter is not None and answering.adapter.path is not None:
        yield answering.key or key, answering.adapter.folder
    if path := answering.model.get("path"):
        yield answering.key or key, Path(path)


def _folders(group: str, node: Mapping[str, object]) -> Iterator[tuple[str, Path]]:
    for key, value in flatten(node).items():
        if isinstance(value, str) and value and Path(value).is_dir():
            yield f"{group}.{key}", Path(value)
