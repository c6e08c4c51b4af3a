"""Run a recipe of `kgqa collect`, and write its folder of examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artifacts.examples import (
    DROPPED,
    EXAMPLES,
    TEACHER,
    Collected,
    CollectManifest,
    Dropped,
    ExampleSource,
    Instances,
    Made,
    Positive,
    Recipe,
    TrainingExample,
    hash_questions,
    text_hash,
)
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.predictions import PREDICTIONS, question_ids
from kgqa.artifacts.run import IDENTITY, SETTINGS, Chosen
from kgqa.artifacts.schema import as_json, extend, read, read_json
from kgqa.artifacts.trace import read_questions, read_trace
from kgqa.config import building
from kgqa.config.files import config_file
from kgqa.config.overrides import (
    format_override,
    override_group,
    override_key,
    override_values,
    parse_override,
)
from kgqa.config.targets import load_run_config
from kgqa.datasets.verified import read_labels
from kgqa.errors import ConfigError, DataError, UsageError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.dry_run import CallPlan, Planner, Shared
from kgqa.experiment.engines import role_nodes
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.identity import hash_programs
from kgqa.experiment.manifest import origin
from kgqa.experiment.run import execute
from kgqa.experiment.session import Session
from kgqa.extras.training.report import example_sections
from kgqa.identity.component import identity_of
from kgqa.identity.program_code import program_hash
from kgqa.prompting import template_hash
from kgqa.report.section import markdown
from kgqa.runtime.display import Display
from kgqa.runtime.folder import lock_folder, refuse_foreign_files, run_name
from kgqa.runtime.monitor import monitor_work
from kgqa.scoring.questions import NOISE
from kgqa.types import Answer, Json, JsonObject, Question
from kgqa.util.digests import digest, text_digest
from kgqa.util.fs import (
    OUT_ELSEWHERE,
    explain_storage_errors,
    json_text,
    jsonl_text,
    replace_file,
    sha256,
)
from kgqa.util.places import outputs, use_prompts

REPORT = "report.md"
# a dataset and a question's id
Key = tuple[str, str]
# groups of overrides that are not of a teacher's run
COLLECT_ONLY = ("collect", "output_dir", "dry_run")
QUESTION_KEYS = ("dataset", "limit", "sample", "ids")


@dataclass
class ExampleTally:
    """The counts of all examples that passed through `count`."""

    labels: Counter[tuple[str, str, str]] = field(
        default_factory=Counter
    )  # dataset, question, label
    made_by: Counter[str] = field(default_factory=Counter)
    templates: set[str] = field(default_factory=set)
    dropped: list[Dropped] = field(default_factory=list)
    first: TrainingExample | Positive | None = None
    teacher: list[str] = field(default_factory=list)  # its runs

    def count(self, examples: Iterable[Made]) -> Iterator[TrainingExample | Positive]:
        """Yield the examples, and count them."""
        for one in examples:
            if isinstance(one, Dropped):
                self.dropped.append(one)
                continue
            self.labels[one.origin.dataset, one.question, one.label] += 1
            self.made_by[one.origin.made_by] += 1
            if isinstance(one, TrainingExample):
                self.templates.add(one.prompt.name)
            self.first = self.first or one
            yield one

    def summarize(self, name: str, recipe: Recipe, sources: Sequence[ExampleSource]) -> Collected:
        """Return the figures of the folder. Raises DataError: there is not one example."""
        if self.first is None:
            why = (
                "; ".join(dict.fromkeys(one.why for one in self.dropped))
                or "there are no questions"
            )
            raise DataError(f"collect {name}: no examples: {why}")
        texts = {
            (each.dataset, one.id): one.text
            for each in sources
            for one in (*each.questions, *each.noise)
        }
        questions = list(dict.fromkeys(key[:2] for key in self.labels))
        out = sample_held_out({key: texts[key] for key in questions}, recipe.held_out, recipe.seed)
        labels, held_out_labels, examples = Counter[str](), Counter[str](), Counter[str]()
        for (dataset, question, label), count in self.labels.items():
            labels[label] += count
            examples[dataset] += count
            if (dataset, question) in out:
                held_out_labels[label] += count
        unique = Counter(dataset for dataset, _ in questions)
        return Collected(
            recipe=name,
            datasets={
                dataset: Instances(examples=n, questions=unique[dataset])
                for dataset, n in examples.items()
            },
            labels=labels,
            held_out_labels=held_out_labels,
            held_out=tuple(sorted("/".join(key) for key in out)),
            dropped=Counter(one.why for one in self.dropped),
            templates={template: template_hash(template) for template in sorted(self.templates)},
            question_hashes=hash_questions(
                (*key, texts[key]) for key in questions if key not in out
            ),
            figures=recipe.figures(sources),
            made_by=self.made_by,
            teacher=tuple(self.teacher),
        )


def sample_held_out(texts: Mapping[Key, str], share: float, seed: int) -> set[Key]:
    """Sample the rounded share of the questions, and at least one of two unless it is 0.

    Questions with the same text are in the sample together.
    """
    by_text: dict[str, list[Key]] = defaultdict(list)
    for key, text in texts.items():
        by_text[text_hash(text)].append(key)
    count = round(share * len(by_text))
    if share and len(by_text) > 1:
        count = max(count, 1)
    sample = sorted(by_text, key=lambda text: text_digest(f"{seed} {text}"))[:count]
    return {key for text in sample for key in by_text[text]}


@dataclass(frozen=True)
class Collecting:
    """A recipe with its sources. Nothing is written before `collect`."""

    name: str
    recipe: Recipe
    experiment: Experiment  # of the first dataset
    sources: tuple[ExampleSource, ...]
    # everything that can change the examples
    identity: Mapping[str, Json]
    folder: Path

    @classmethod
    def of(cls, name: str, overrides: Sequence[str], runs: Sequence[Path] = ()) -> Collecting:
        """Compose the recipe and its sources.

        Raises:
            ConfigError: there is no such recipe, or it accepts other sources.
            DataError: a dataset's file is missing or broken, or a run is not finished.
        """
        # raises ConfigError for an unknown recipe
        config_file("collect", name)
        datasets = _choose_datasets(name, overrides)
        experiments = [compose_experiment([f"collect={name}", *words]) for words in datasets]
        first = experiments[0]
        recipe = building.build_part(first.config["collect"], "collect", Recipe)
        values = override_values(overrides)
        if not recipe.uses_teacher and values.get(f"roles.{TEACHER}", "null") != "null":
            raise ConfigError(
                f"collect {name}: roles.{TEACHER}: rules use no teacher. Set collect.teacher=model"
            )
        if "collection" in values:
            raise ConfigError(
                "collection: its passages are not the question's own. Remove collection="
            )
        if runs and recipe.no_runs:
            raise ConfigError(f"--from {runs[0]}: collect {name} {recipe.no_runs}")
        if not recipe.sources and not runs:
            raise ConfigError(
                f"collect {name}: needs finished runs. Name them: --from RUN (kgqa train: train.examples=FOLDER)"
            )
        sources, identities = list[ExampleSource](), list[Json]()
        for each, words in zip(experiments, datasets, strict=True) if recipe.sources else ():
            noise = noise_questions(each) if recipe.uses_noise else ()
            run_words = tuple(word for word in words if override_group(word) not in COLLECT_ONLY)
            sources.append(
                ExampleSource(
                    each.name("dataset"),
                    each.data.questions,
                    each.method,
                    noise=noise,
                    words=run_words,
                )
            )
            if recipe.method and not isinstance(each.method, recipe.method):
                raise ConfigError(
                    f"method: collect={name} always uses the same method. Remove method="
                )
            flagged = {"noise": digest([question.id for question in noise])} if noise else {}
            ids = digest([question.id for question in each.data.questions])
            identities.append(
                {
                    "dataset": each.name("dataset"),
                    "sha256": each.data.sha256,
                    "questions": ids,
                    **flagged,
                }
            )
        for run in runs:
            order = {id_: number for number, id_ in enumerate(question_ids(run))}
            questions = sorted(
                read_questions(run), key=lambda question: order.get(question.id, len(order))
            )
            config, dataset = load_run_config(run), read(Chosen, run / SETTINGS).choices["dataset"]
            method = building.method(config["method"]) if recipe.sources else None
            values = {key: value for key, value in config["dataset"].items() if key != "_target_"}
            keys = (format_override(f"dataset.{key}", value) for key, value in values.items())
            others = (
                word
                for word in overrides
                if override_group(word) not in (*COLLECT_ONLY, *QUESTION_KEYS)
            )
            sources.append(
                ExampleSource(
                    dataset, questions, method, run, words=(f"dataset={dataset}", *keys, *others)
                )
            )
            identities.append(
                {"run": digest(read_json(run / IDENTITY)), "predictions": sha256(run / PREDICTIONS)}
            )
        identity = _identity(name, recipe, first, identities)
        folder = Path(
            first.settings.output_dir or outputs() / "examples" / name / run_name(identity)
        )
        refuse_foreign_files(folder, (EXAMPLES, DROPPED, REPORT, MANIFEST))
        return cls(name, recipe, first, tuple(sources), identity, folder)

    @property
    def finished(self) -> Collected | None:
        try:
            manifest = CollectManifest.read(self.folder)
        except DataError:
            return None
        return manifest if manifest.identity == as_json(self.identity) else None

    def collect(self, display: Display, command: Sequence[str]) -> Collected:
        """Write the folder, unless it is finished, and return its figures.

        Raises:
            DataError: no example can be made. The folder stays without a manifest.
            UsageError: calls of the teacher failed. All replies are saved.
        """
        if collected := self.finished:
            display.line(f"{self.folder}: already complete")
            return collected
        tally = ExampleTally()

        def call_teacher(words: Sequence[str]) -> dict[str, JsonObject]:
            with Session(compose_experiment(words)) as session:
                run = execute(session, display).run
            if failed := run.metrics.failed:
                counts = f"{failed:,} of {run.metrics.questions:,} questions failed"
                raise UsageError(f"{run.folder}: {counts}. The same command repeats them")
            tally.teacher.append(str(run.folder))
            return {
                traced.question.id: traced.prediction.notes for traced in read_trace(run.folder)
            }

        with lock_folder(self.folder, as_json(self.identity), "this", "output_dir="):
            with explain_storage_errors(self.folder, OUT_ELSEWHERE):
                (self.folder / MANIFEST).unlink(missing_ok=True)
            with monitor_work(display, "collect", self.folder):
                examples = tally.count(self.recipe.collect(self.sources, call_teacher))
                file = replace_file(self.folder / EXAMPLES, _lines(examples))
                replace_file(self.folder / DROPPED, _lines(tally.dropped))
            collected = tally.summarize(self.name, self.recipe, self.sources)
            replace_file(
                self.folder / REPORT,
                markdown(f"Examples: {self.name}", example_sections(collected)),
            )
            manifest = extend(
                CollectManifest,
                collected,
                origin=origin(command),
                identity=self.identity,
                sha256=sha256(file),
            )
            replace_file(self.folder / MANIFEST, json_text(manifest.json()))
        return collected

    def plan(self) -> tuple[Collected, TrainingExample | Positive, CallPlan]:
        """Return the figures, the first example and the planned calls of a teacher, without writing anything."""
        tally, plan, shared = ExampleTally(), CallPlan(), Shared()

        def call_teacher(words: Sequence[str]) -> dict[str, JsonObject]:
            experiment = compose_experiment(words)
            with Session(experiment) as session:
                planner = Planner(session, shared)
                programs = (
                    (question.id, experiment.method.answer(question))
                    for question in experiment.data.questions
                )
                answers = planner.imagine(programs, session.engines)
            plan.update(planner.plan)
            return {
                id_: answer.notes for id_, answer in answers.items() if isinstance(answer, Answer)
            }

        for _ in tally.count(self.recipe.collect(self.sources, call_teacher)):
            pass
        collected = tally.summarize(self.name, self.recipe, self.sources)
        assert tally.first is not None
        return collected, tally.first, plan


def _lines(values: Iterable[object]) -> Iterator[str]:
    return (jsonl_text([as_json(value)]) for value in values)


def _choose_datasets(name: str, overrides: Sequence[str]) -> list[list[str]]:
    """Return the overrides for each dataset of `dataset=A,B` or of the recipe, or those without dataset."""
    others = [override for override in overrides if override_key(override) != "dataset"]
    node = compose_experiment([f"collect={name}", *others]).config["collect"]
    if len(others) < len(overrides):
        wanted = [
            [f"dataset={dataset}"]
            for dataset in (override_values(overrides).get("dataset") or "").split(",")
        ]
    else:
        declared = building.build_part(node, "collect", Recipe).sources
        wanted = [
            [f"dataset={dataset}", f"dataset.split={split}"] for dataset, split in declared.items()
        ]
    for words in wanted:
        if folder := node.get("verdicts", {}).get(parse_override(words[0]).value):
            words.append(format_override("dataset.verified", folder))
    return [[*dataset, *others] for dataset in wanted or [[]]]


def noise_questions(experiment: Experiment) -> tuple[Question, ...]:
    """Return the questions that the verification of the dataset found to be noise, in the order of the file.

    Raises ConfigError: no verification is named, or it flagged none.
    """
    name, folder = experiment.name("dataset"), experiment.config["dataset"].get("verified")
    if folder is None or experiment.data.verified is None:
        raise ConfigError(
            f"collect.noise: which questions of {name} are noise? Set dataset.verified=RUN of method=verify, "
            f"or of several datasets 'collect.verdicts={{{name}:RUN,…}}'"
        )
    labels = read_labels(Path(folder), experiment.data.sha256)
    noise = {id_ for id_, label in labels.items() if label == NOISE}
    if not noise:
        raise ConfigError(
            f"collect.noise: {folder} marks no question of {name}. Set collect.noise=0"
        )
    return tuple(question for question in experiment.data.whole.questions() if question.id in noise)


def _identity(
    name: str, recipe: Recipe, experiment: Experiment, sources: Sequence[Json]
) -> dict[str, Json]:
    """Return everything that can change an example."""
    settings = {
        key: value
        for key, value in experiment.config["collect"].items()
        if key not in ("sources", "verdicts")
    }
    with use_prompts(experiment.settings.prompts):
        identity: dict[str, Json] = {
            "recipe": name,
            "collect": settings,
            "program": program_hash(recipe),
        }
        if recipe.sources:
            identity |= {
                "method": experiment.config["method"],
                "code": hash_programs(experiment)["method"],
            }
    if recipe.uses_teacher:
        with Session(experiment) as session:
            identity["teacher"] = identity_of(
                session.engines_of(role_nodes(experiment.config, experiment.choose))(TEACHER)
            )
    return {**identity, "sources": [*sources]}
