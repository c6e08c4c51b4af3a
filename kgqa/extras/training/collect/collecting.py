"""Run a recipe of `kgqa collect`, and write its folder of examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgqa.artifacts.examples import (
    DROPPED,
    EXAMPLES,
    STAGE,
    TEACHER,
    Collected,
    Dropped,
    Example,
    Instances,
    Made,
    Positive,
    Recipe,
    Source,
    hash_questions,
    text_hash,
)
from kgqa.artifacts.metrics import Costs
from kgqa.artifacts.predictions import NOISE, PREDICTIONS, question_ids
from kgqa.artifacts.run import IDENTITY, SETTINGS, Chosen
from kgqa.artifacts.schema import read, read_json
from kgqa.artifacts.trace import read_questions
from kgqa.calls import Program
from kgqa.config import building
from kgqa.config.files import config_file
from kgqa.config.overrides import format_override, override_key, override_values, parse_override
from kgqa.config.targets import load_run_config
from kgqa.datasets.verified import read_labels
from kgqa.errors import ConfigError, DataError, UsageError
from kgqa.experiment.dry_run import Plan, Planner, Shared
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.manifest import origin
from kgqa.experiment.session import Session
from kgqa.extras.training.report import example_sections
from kgqa.extras.training.role_calls import is_failure, role_engines, run_programs
from kgqa.identity.component import identity_of
from kgqa.identity.program_code import program_hash
from kgqa.prompting import template_hash
from kgqa.report.section import markdown
from kgqa.runtime.display import Display
from kgqa.runtime.folder import ArtifactDir
from kgqa.runtime.monitor import monitor_work
from kgqa.types import Json, Question
from kgqa.util.fs import digest, outputs, sha256, text_digest
from kgqa.util.redaction import describe_error

REPORT = "report.md"
Key = tuple[str, str]  # a dataset and a question's id


@dataclass
class Tally:
    """The counts of all examples that passed through `count`."""

    labels: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # dataset, question, label
    made_by: Counter[str] = field(default_factory=Counter)
    templates: set[str] = field(default_factory=set)
    dropped: list[Dropped] = field(default_factory=list)
    first: Example | Positive | None = None
    cost: Costs | None = None  # of a teacher

    def count(self, made: Iterable[Made]) -> Iterator[Example | Positive]:
        """Yield the examples, and count them."""
        for one in made:
            if isinstance(one, Dropped):
                self.dropped.append(one)
                continue
            self.labels[one.origin.dataset, one.question, one.label] += 1
            self.made_by[one.origin.made_by] += 1
            if isinstance(one, Example):
                self.templates.add(one.prompt.name)
            self.first = self.first or one
            yield one

    def summarize(self, name: str, recipe: Recipe, sources: Sequence[Source]) -> Collected:
        """Return the figures of the folder. Raises DataError: there is not one example."""
        if self.first is None:
            why = "; ".join(dict.fromkeys(one.why for one in self.dropped)) or "there are no questions"
            raise DataError(f"collect {name}: no examples: {why}")
        texts = {(each.dataset, one.id): one.text for each in sources for one in (*each.questions, *each.noise)}
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
            datasets={dataset: Instances(examples=n, questions=unique[dataset]) for dataset, n in examples.items()},
            labels=labels,
            held_out_labels=held_out_labels,
            held_out=tuple(sorted("/".join(key) for key in out)),
            dropped=Counter(one.why for one in self.dropped),
            templates={template: template_hash(template) for template in sorted(self.templates)},
            question_hashes=hash_questions((*key, texts[key]) for key in questions if key not in out),
            figures=recipe.figures(sources),
            made_by=self.made_by,
            cost=self.cost,
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
    sources: tuple[Source, ...]
    stage: ArtifactDir

    @classmethod
    def of(cls, name: str, overrides: Sequence[str], runs: Sequence[Path] = ()) -> Collecting:
        """Compose the recipe and its sources.

        Raises:
            ConfigError: there is no such recipe, or it accepts other sources.
            DataError: a dataset's file is missing or broken, or a run is not finished.
        """
        config_file("collect", name)  # raises ConfigError for an unknown recipe
        experiments = _experiments(name, overrides)
        first = experiments[0]
        recipe = building.build_part(first.config["collect"], "collect", Recipe)
        values = override_values(overrides)
        if not recipe.uses_teacher and values.get(f"roles.{TEACHER}", "null") != "null":
            raise ConfigError(f"collect {name}: roles.{TEACHER}: rules use no teacher. Set collect.teacher=model")
        if "collection" in values:
            raise ConfigError("collection: its passages are not the question's own. Remove collection=")
        if runs and recipe.no_runs:
            raise ConfigError(f"--from {runs[0]}: collect {name} {recipe.no_runs}")
        if not recipe.sources and not runs:
            raise ConfigError(
                f"collect {name}: needs finished runs. Name them: --from RUN (kgqa train: train.examples=FOLDER)"
            )
        sources, identities = list[Source](), list[Json]()
        for each in experiments if recipe.sources else ():
            noise = noise_questions(each) if recipe.uses_noise else ()
            sources.append(Source(each.name("dataset"), each.questions, each.method, noise=noise))
            if recipe.method and not isinstance(each.method, recipe.method):
                raise ConfigError(f"method: collect={name} always uses the same method. Remove method=")
            flagged = {"noise": digest([question.id for question in noise])} if noise else {}
            ids = digest([question.id for question in each.questions])
            identities.append(
                {"dataset": each.name("dataset"), "sha256": each.data_sha256, "questions": ids, **flagged}
            )
        for run in runs:
            order = {id_: number for number, id_ in enumerate(question_ids(run))}
            questions = sorted(read_questions(run), key=lambda question: order.get(question.id, len(order)))
            method = building.method(load_run_config(run)["method"]) if recipe.sources else None
            sources.append(Source(read(Chosen, run / SETTINGS).choices["dataset"], questions, method, run))
            identities.append({"run": digest(read_json(run / IDENTITY)), "predictions": sha256(run / PREDICTIONS)})
        identity = _identity(name, recipe, first, identities)
        parent, output_dir = outputs() / "examples" / name, first.settings.output_dir
        return cls(
            name, recipe, first, tuple(sources),
            ArtifactDir.for_identity(f"{STAGE} {name}", parent, identity, output_dir),
        )  # fmt: skip

    @property
    def finished(self) -> Collected | None:
        return self.stage.outcome(Collected)

    def collect(self, display: Display, command: Sequence[str]) -> Collected:
        """Write the folder, unless it is finished, and return its figures.

        Raises:
            DataError: no example can be made. The folder stays without a manifest.
            UsageError: calls of the teacher failed. All replies are saved.
        """
        if collected := self.finished:
            display.line(f"{self.stage.path}: already complete")
            return collected
        tally = Tally()

        def call_teacher(programs: Sequence[tuple[str, Program[Any]]]) -> Mapping[str, object]:
            with Session(self.experiment) as session:
                results, tally.cost = run_programs(session, TEACHER, programs, len(programs), shown)
            if failed := {key: result for key, result in results.items() if is_failure(result)}:
                key, first = next(iter(failed.items()))
                raise UsageError(
                    f"{len(failed):,} of {len(programs):,} questions failed, the first: {describe_error(first)} "  # type: ignore[arg-type]
                    f"({key}). All replies are saved, and the same command repeats what failed"
                )
            return results

        with self.stage.lock():
            with monitor_work(display, STAGE, self.stage.path) as shown:
                self.stage.write_lines(EXAMPLES, tally.count(self.recipe.collect(self.sources, call_teacher)))
                self.stage.write_lines(DROPPED, tally.dropped)
            collected = tally.summarize(self.name, self.recipe, self.sources)
            self.stage.write(REPORT, [markdown(f"Examples: {self.name}", example_sections(collected))])
            self.stage.finish(collected, origin(command))
        return collected

    def plan(self) -> tuple[Collected, Example | Positive, Plan]:
        """Return the figures, the first example and the planned calls of a teacher, without writing anything."""
        tally, plan = Tally(), Plan()

        def call_teacher(programs: Sequence[tuple[str, Program[Any]]]) -> Mapping[str, object]:
            with Session(self.experiment) as session:
                planner = Planner(session, Shared())
                results = planner.imagine(programs, role_engines(session, TEACHER))
            plan.update(planner.plan)
            return results

        for _ in tally.count(self.recipe.collect(self.sources, call_teacher)):
            pass
        collected = tally.summarize(self.name, self.recipe, self.sources)
        assert tally.first is not None
        return collected, tally.first, plan


def _experiments(name: str, overrides: Sequence[str]) -> list[Experiment]:
    """Return an experiment for each dataset of `dataset=A,B` or of the recipe, or one without dataset."""
    others = [override for override in overrides if override_key(override) != "dataset"]
    node = Experiment.of([f"collect={name}", *others]).config["collect"]
    if len(others) < len(overrides):
        wanted = [[f"dataset={dataset}"] for dataset in (override_values(overrides).get("dataset") or "").split(",")]
    else:
        declared = building.build_part(node, "collect", Recipe).sources
        wanted = [[f"dataset={dataset}", f"dataset.split={split}"] for dataset, split in declared.items()]
    for words in wanted:
        if folder := node.get("verdicts", {}).get(parse_override(words[0]).value):
            words.append(format_override("dataset.verified", folder))
    return [Experiment.of([f"collect={name}", *dataset, *others]) for dataset in wanted or [[]]]


def noise_questions(experiment: Experiment) -> tuple[Question, ...]:
    """Return the questions that the verification of the dataset found to be noise, in the order of the file.

    Raises ConfigError: no verification is named, or it flagged none.
    """
    name, folder = experiment.name("dataset"), experiment.config["dataset"].get("verified")
    if folder is None or experiment.verified is None:
        raise ConfigError(
            f"collect.noise: which questions of {name} are noise? Set dataset.verified=RUN of method=verify, "
            f"or of several datasets 'collect.verdicts={{{name}:RUN,…}}'"
        )
    labels = read_labels(Path(folder), experiment.data_sha256)
    noise = {id_ for id_, label in labels.items() if label == NOISE}
    if not noise:
        raise ConfigError(f"collect.noise: {folder} marks no question of {name}. Set collect.noise=0")
    return tuple(question for question in experiment.whole.questions() if question.id in noise)


def _identity(name: str, recipe: Recipe, experiment: Experiment, sources: Sequence[Json]) -> dict[str, Json]:
    """Return everything that can change an example."""
    settings = {key: value for key, value in experiment.config["collect"].items() if key not in ("sources", "verdicts")}
    identity: dict[str, Json] = {"recipe": name, "collect": settings, "program": program_hash(recipe)}
    if recipe.sources:
        identity |= {"method": experiment.config["method"], "code": experiment.code["method"]}
    if recipe.uses_teacher:
        with Session(experiment) as session:
            identity["teacher"] = identity_of(role_engines(session, TEACHER)(TEACHER))
    return {**identity, "sources": [*sources]}
