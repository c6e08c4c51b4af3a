"""Check everything that can be wrong with a run before its first call.

A run over questions that one of its models was trained on is wrong, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.artifacts.examples import TrainedWith, id_hash, text_hash, training_of
from kgqa.artifacts.run import SCRIPTED, SCRIPTED_TARGET, SMALL_MODEL
from kgqa.cache.stored import StoredCalls
from kgqa.config.files import flatten
from kgqa.config.overrides import override_group, parse_override
from kgqa.config.run_keys import SEARCH_GROUPS, RunSettings
from kgqa.config.scaffolding import find_unused_templates
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.capabilities import check_capabilities, check_servers
from kgqa.experiment.devices import find_devices
from kgqa.experiment.engines import RoleBinding, judge_nodes
from kgqa.experiment.experiment import DEMONSTRATIONS_RANKER, RANKERS, Experiment
from kgqa.experiment.session import Session
from kgqa.identity.component import identity_of
from kgqa.identity.program_code import list_templates
from kgqa.judge import ROLE
from kgqa.prompting import find_missing_values, find_unsent_text, list_own_templates
from kgqa.scoring.metrics import profile_formula
from kgqa.scoring.questions import METRICS
from kgqa.types import Question
from kgqa.util.places import SHIPPED
from kgqa.util.registry import load_registered
from kgqa.util.text import pluralize

if TYPE_CHECKING:
    from kgqa.judge.judges import AnyJudge

# choices that compute nothing with a model
WITHOUT_MODEL = {"retriever": "bm25", "ranker": "lexical", DEMONSTRATIONS_RANKER: "lexical"}
# its questions are made for small models
DEMO = "demo"
# by the key of what was trained: how many of the questions
Leaks = Mapping[str, int]


def check(session: Session, *, servers: bool = False) -> Leaks:
    """Raise UsageError for the first thing that would stop the run. Nothing is loaded.

    Return how many of the questions something in use was trained on.

    Args:
        servers: also check that libraries are installed and servers answer, which a plan does not need.
    """
    experiment = session.experiment
    if experiment.judge and not experiment.has_answers:
        names = f"judge={experiment.name('judge')}: method={experiment.name('method')}"
        raise ConfigError(f"{names} does not answer questions. Remove judge=")
    if experiment.judge:
        # not needed without a judge
        from kgqa.experiment.judging import check_prompts

        check_prompts(experiment.judge)
    profile_formula(experiment.profile)
    list(METRICS)  # reads those of the user
    if experiment.config.get("tracker") is not None:
        load_registered("check_tracker")(experiment.config)
    for remark in experiment.remarks if experiment.asks_models else ():
        session.say_once(remark)
    session.engines.identities()
    session.judge_engines.identities()
    check_capabilities(session)
    refuse_perturbed_search(experiment)
    leaks = refuse_trained(experiment)
    needed = experiment.choices.keys() | experiment.method.uses
    if "retriever" in needed:
        session.retriever  # noqa: B018 - builds it
    if "graph" in needed:
        session.linker  # noqa: B018 - builds it
    _check_rankers(session, needed)
    try_own_prompts(session)
    lacking = count_without_passages(experiment)
    if servers:
        check_servers(session)
    # after all errors, because a warning next to an error hides it
    for warning in [*_find_remarks(experiment, lacking)]:
        session.say_once(warning)
    return leaks


def _find_remarks(experiment: Experiment, lacking: int) -> Iterator[str]:
    """Yield warnings and notes on settings and on questions. lacking: the number of those without passages."""
    yield from find_warnings(experiment)
    if lacking:
        yield (
            f"warning: {pluralize(lacking, 'question')} of {len(experiment.data.questions):,} came without passages. "
            f"method={experiment.name('method')} answers without them"
        )
    yield from note_real_rankers(experiment)
    count = len(experiment.data.questions)
    if (note := note_unreached_limit(experiment.settings, count)) is not None:
        yield note
    if (check_questions := getattr(experiment.method, "check", None)) is not None:
        for warning in check_questions(experiment.data.whole.questions()):
            yield f"warning: {warning}"


def try_own_prompts(session: Session) -> None:
    """Raise PromptError if the method's prompts of the user are invalid. A replay makes no calls to try them with."""
    if list_own_templates() and not isinstance(session.cache, StoredCalls):
        # slow to import, and only for the user's prompts
        from kgqa.experiment.dry_run import check_templates

        check_templates(session)


def _check_rankers(session: Session, needed: Collection[str]) -> None:
    """Build the rankers. Raise ConfigError if packages or weights are missing, which a plan does not need."""
    for group in RANKERS:
        if group in needed:
            ranker = session.ranker(group)
            if not session.experiment.settings.dry_run:
                identity_of(ranker)


def refuse_perturbed_search(experiment: Experiment) -> None:
    """Raise ConfigError if `dataset.perturb` changes passages, and the method searches a corpus."""
    searches = "search" in experiment.method.uses or experiment.config.get("collection") is not None
    if experiment.data.perturbation is not None and searches:
        raise ConfigError(
            f"dataset.perturb={experiment.config['dataset']['perturb']}: it changes the passages that come with a "
            f"question, and method={experiment.name('method')} searches a corpus. Choose a method that reads its "
            "question's passages"
        )


def count_without_passages(experiment: Experiment) -> int:
    """Read the questions, and count those that lack the passages that the method reads.

    Raises DataError: all of them lack passages. The method would only see the questions.
    """
    questions, method = experiment.data.questions, experiment.method
    reads_passages = (
        getattr(method, "reads_passages", False)
        or method.uses & {"pool", "triples"}
        or getattr(method, "scope", None) == "own"
    )
    if not reads_passages:
        return 0
    lacking = sum(not (question.passages or question.pinned) for question in questions)
    if questions and lacking == len(questions):
        raise DataError(
            f"method={experiment.name('method')} reads the passages of a question, but the questions of "
            f"dataset={experiment.name('dataset')} came without passages. Add them, or choose a method that searches "
            "(method=retrieve_read dataset.corpus=FILE) or reads none (method=no_context)"
        )
    return lacking


def find_warnings(experiment: Experiment) -> Iterator[str]:
    """Yield a warning for a toy model, prompts without use or without their input, and overrides without effect."""
    dataset, model = experiment.name("dataset"), experiment.choices.get("model")
    is_real = (
        experiment.given is None
        and dataset != DEMO
        and experiment.choices.get("engine") != SCRIPTED
    )
    if model == SMALL_MODEL and is_real:
        yield (
            f"warning: model={model} is a toy model for quick tests. Its scores on dataset={dataset} do not show "
            "how good a method is. Choose another model: model=NAME (see kgqa models), or server=URL."
        )
    if _has_silent_judge(experiment):
        yield (
            f"warning: engine=scripted gives no verdicts, so judge={experiment.name('judge')} leaves answers unscored. "
            "Choose a model for it: roles.judge=NAME, or write verdicts to engine.rules=FILE."
        )
    if (prompts := experiment.settings.prompts) is not None and not _renders_own(experiment):
        yield (
            f"warning: prompts={prompts} has no effect: method={experiment.name('method')} renders none of its "
            "templates. Those that it renders: kgqa new prompt"
        )
    for file, hint in find_unused_templates().items():
        yield f"warning: {file}: no method renders this template. {hint}"
    yield from warn_of_missing_values(experiment.judge)
    for file, (outside, block) in find_unsent_text().items():
        yield (
            f"warning: {file}: {outside!r} is outside of the blocks, so the model does not see it. Move it into "
            f"{{% block {block} %}} … {{% endblock %}}."
        )
    # a key of a sweep is for the cells that use it
    groups = experiment.sweep_groups.union(experiment.choices)
    for text, _, key, value in map(parse_override, experiment.overrides):
        if f"{key}.".startswith(f"roles.{ROLE}.") and ROLE not in experiment.choices:
            yield f"warning: {text} has no effect without a judge. Add judge=NAME, e.g. judge=three_way."
        group = override_group(text)
        if group in SEARCH_GROUPS and group not in groups and value != "null":
            yield f"warning: {text} has no effect: method={experiment.name('method')} uses no {group}."


def warn_of_missing_values(
    judge: AnyJudge | None, names: Collection[str] | None = None
) -> Iterator[str]:
    """Yield a warning for each prompt of the user without a value that kgqa's prompt shows, or that the judge needs.

    names: only these templates.
    """
    needs = getattr(judge, "prompt_values", None)
    for file, values in find_missing_values(needs, names).items():
        pronoun = "it" if len(values) == 1 else "them"
        yield f"warning: {file} does not use {', '.join(values)}. The model does not see {pronoun}."


def _renders_own(experiment: Experiment) -> bool:
    """Return whether prompts= names kgqa's templates, or some that the method, its triples or the judge can render."""
    if experiment.settings.prompts == SHIPPED or experiment.searches:
        # the templates of retrievers are not listed
        return True
    programs: list[object] = [experiment.method, experiment.judge]
    programs += [experiment.triples] if "triples" in experiment.method.uses else []
    names = {name for program in programs if program for name in list_templates(program)}
    folder = Path(str(experiment.settings.prompts)).expanduser()
    return any((folder / f"{name}.j2").is_file() for name in names)


def _has_silent_judge(experiment: Experiment) -> bool:
    """Return whether a role of the judge calls engine=scripted without rules, whose replies are no verdicts."""
    engines = [binding.engine for binding in experiment.judge_nodes.values()]
    return any(
        engine["_target_"] == SCRIPTED_TARGET and not engine.get("rules") for engine in engines
    )


def note_unreached_limit(settings: RunSettings, count: int) -> str | None:
    """Return a line if `limit` is larger than the number of questions to which it applies, otherwise None."""
    if settings.limit is None or settings.shard is not None or count >= settings.limit:
        return None
    is_selected = settings.ids is not None or settings.sample is not None
    owner = "the selection" if is_selected else "the dataset"
    return f"limit={settings.limit}: {owner} has {pluralize(count, 'question')}"


def note_real_rankers(experiment: Experiment) -> list[str]:
    """Return a line if no model is called, but encoders of this machine rank on its CPU, which can take minutes.

    No lighter ranker is chosen instead: runs of one command would rank differently with another engine.
    """
    if experiment.choices.get("engine") != SCRIPTED:
        return []
    groups = [
        group
        for group in WITHOUT_MODEL
        if group in experiment.choices and _runs_on_cpu(experiment, group)
    ]
    if not groups:
        return []
    rankers = " ".join(f"{group}={experiment.choices[group]}" for group in groups)
    remedy = " ".join(f"{group}={WITHOUT_MODEL[group]}" for group in groups)
    cause = f"engine=scripted calls no model, but {rankers} computes on the CPU"
    return [
        f"note: {cause}, often for seconds per question. For a quick try without a model: {remedy}"
    ]


def _runs_on_cpu(experiment: Experiment, group: str) -> bool:
    """Return whether a ranker, or the encoder of a retriever, runs on this machine without a GPU."""
    # a retriever also has a device for its search
    key = "encoder.device" if group == "retriever" else "device"
    settings = flatten(experiment.config[group])
    devices = {value for name, value in settings.items() if f".{name}".endswith(f".{key}")}
    return "cpu" in devices or ("auto" in devices and find_devices(experiment.settings) is None)


def refuse_trained(experiment: Experiment) -> Leaks:
    """Raise ConfigError if something in use was trained on the questions, unless the user allows it."""
    leaks = find_leaks(experiment)
    if leaks and not experiment.settings.allow_trained_questions:
        raise ConfigError(refusal(leaks, len(experiment.data.questions)))
    return leaks


def refusal(leaks: Leaks, questions: int) -> str:
    """Return the reason in one line: how many questions, which key, and how to fix it."""
    counts = "; ".join(f"{key} was trained on {count:,}" for key, count in leaks.items())
    return (
        f"of {pluralize(questions, 'question')} {counts}. Scores on training questions are meaningless. Use others "
        f"(dataset.split=, ids=), or set allow_trained_questions=true to mark them"
    )


def find_leaks(experiment: Experiment) -> Leaks:
    """Count the questions on which something in use was trained. They are read only if something in use was trained."""
    trained = {
        key: hashes
        for key, folder in _trained_folders(experiment)
        if (hashes := training_of(folder))
    }
    return (
        count_leaks(trained, experiment.name("dataset"), experiment.data.questions)
        if trained
        else {}
    )


def count_leaks(
    trained: Mapping[str, TrainedWith], dataset: str, questions: Iterable[Question]
) -> Leaks:
    """Count the questions on which each was trained, by their id or their text. Zeros are omitted."""
    hashes = [(id_hash(dataset, question.id), text_hash(question.text)) for question in questions]
    counts = {}
    for key, questions_of_adapter in trained.items():
        ids, texts = (
            frozenset(questions_of_adapter.question_hashes),
            frozenset(questions_of_adapter.text_hashes),
        )
        counts[key] = sum(id_ in ids or text in texts for id_, text in hashes)
    return {key: count for key, count in counts.items() if count}


def _trained_folders(experiment: Experiment) -> Iterator[tuple[str, Path]]:
    """Yield each folder that a group or a role of the run uses, with its key."""
    config = experiment.config
    for group in experiment.choices:
        node = config.get(group)
        if group != "dataset" and isinstance(node, Mapping):  # its folders hold questions
            for key, value in flatten(node).items():
                if isinstance(value, str) and value and Path(value).is_dir():
                    yield f"{group}.{key}", Path(value)
    for role, binding in experiment.role_nodes.items():
        # the run's own model is among the groups
        if role:
            yield from _binding_folders(f"roles.{role}", binding)
    if experiment.judge is not None:
        for role, binding in judge_nodes(config, experiment.judge, experiment.choose).items():
            yield from _binding_folders(
                parse_override(binding.key).key or f"{ROLE}.{role}", binding
            )


def _binding_folders(key: str, binding: RoleBinding) -> Iterator[tuple[str, Path]]:
    if binding.adapter is not None and binding.adapter.path is not None:
        yield binding.key or key, binding.adapter.folder
    if path := binding.model.get("path"):
        yield binding.key or key, Path(path)
