"""Run a recipe of `kgqa collect`, and write its folder of examples."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.collected import STAGE, Collected
from kgqa.artifacts.examples import (
    DROPPED,
    EXAMPLES,
    Example,
    Made,
    Measuring,
    Positive,
    Recipe,
    Source,
    Taught,
    line,
    read_examples,
)
from kgqa.artifacts.predictions import PREDICTIONS, question_ids
from kgqa.artifacts.run import IDENTITY, SETTINGS, Chosen
from kgqa.artifacts.schema import read, read_json
from kgqa.artifacts.trace import read_questions
from kgqa.config import factories as parts
from kgqa.config.composing import check_choice
from kgqa.config.files import groups, load_yaml
from kgqa.config.overrides import format_override, override_group, override_key, override_values, parse_override
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.run.manifest import origin
from kgqa.experiment.run.planning import Plan
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.method_code import program_hash
from kgqa.report.examples import example_sections, review_csv
from kgqa.report.markdown import document
from kgqa.runtime.artifact_dir import ArtifactDir
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.training.collect.counting import Counts, HeldOut
from kgqa.training.collect.teacher import (
    TeacherCalls,
    find_conflict,
    noise_questions,
    open_teacher,
    simulate_teacher,
    teacher_identity,
    uses_noise,
)
from kgqa.types import Json, Question
from kgqa.util.fs import digest, outputs, replace_file, sha256

REPORT = "report.md"
REVIEW = 50  # examples for people to judge
OF_ONE = ("dataset.path", "dataset.files", "dataset.verified")  # keys that cannot be set for several datasets


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
        check_choice(f"collect={name}", groups())
        experiments = _experiments(name, overrides)
        first = experiments[0]
        recipe = parts.recipe(first.config["collect"])
        _refuse(name, recipe, overrides, runs)
        own = experiments if recipe.sources else []
        flagged = [noise_questions(each) if uses_noise(recipe) else () for each in own]
        asked = [
            Source(each.name("dataset"), each.questions, each.method, noise=noise)
            for each, noise in zip(own, flagged, strict=True)
        ]
        sources = (*asked, *(_run_source(run, recipe) for run in runs))
        made_of = [_data_identity(each, noise) for each, noise in zip(own, flagged, strict=True)]
        identity = _identity(name, recipe, first, [*made_of, *map(_run_identity, runs)])
        return cls(name, recipe, first, sources, _folder(name, first, identity))

    @property
    def finished(self) -> Collected | None:
        return self.stage.outcome(Collected)

    def collect(self, display: Display, command: Sequence[str]) -> Collected:
        """Write the folder, unless it is finished, and return its figures.

        Raises:
            DataError: no example can be made. The folder stays without a manifest.
        """
        if collected := self.finished:
            display.line(f"{self.stage.path}: finished with this code, data and settings")
            return collected
        with self.stage.lock():
            counts = Counts()
            with (
                monitor_work(display, STAGE, self.stage.path) as told,
                open_teacher(self.recipe, self.experiment, told) as teacher,
            ):
                self.stage.write(EXAMPLES, (_line(example) for example in self._examples(counts, told, teacher)))
                self.stage.write(DROPPED, map(_line, counts.dropped))
            collected = self._summarize(counts).replace(cost=teacher.cost if teacher else None)
            self.stage.write(REPORT, [self.report(collected)])
            self.stage.finish(collected, origin(command))
        return collected

    def plan(self, display: Display) -> tuple[Collected, Example | Positive, Plan]:
        """Return the figures, the first example and the planned calls of a teacher, without writing anything."""
        counts = Counts()
        with simulate_teacher(self.recipe, self.experiment) as teacher:
            for _ in self._examples(counts, display, teacher):
                pass
        collected = self._summarize(counts)
        assert counts.first is not None
        return collected, counts.first, teacher.plan if teacher else {}

    def report(self, collected: Collected) -> str:
        return document(f"Examples: {self.name}", example_sections(collected))

    def review(self, file: Path) -> Path:
        """Write a sample of the examples as CSV, for people to judge."""
        examples = list(read_examples(self.stage.path / EXAMPLES))
        chance = random.Random(f"{self.recipe.seed}/review")  # noqa: S311 - a sample, not a secret
        sample = [examples[place] for place in sorted(chance.sample(range(len(examples)), min(REVIEW, len(examples))))]
        asked = (
            (source.dataset, question) for source in self.sources for question in (*source.questions, *source.noise)
        )
        return replace_file(file, review_csv(sample, asked))

    def _examples(self, counts: Counts, display: Display, teacher: TeacherCalls | None) -> Iterator[Example | Positive]:
        if teacher:
            assert isinstance(self.recipe, Taught)
            yield from counts.count(self.recipe.taught(self.sources, teacher.ask))
            return
        with display.counting("questions") as advance:
            total = sum(len(source.questions) for source in self.sources)
            yield from counts.count(self.recipe.collect(self.sources, lambda: advance(self.name, 1, total)))

    def _summarize(self, counts: Counts) -> Collected:
        if not counts.labels:
            why = "; ".join(dict.fromkeys(one.why for one in counts.dropped)) or "there are no questions"
            raise DataError(f"collect {self.name}: not one example: {why}")
        texts = {
            (source.dataset, each.id): each.text
            for source in self.sources
            for each in (*source.questions, *source.noise)
        }
        figures = self.recipe.figures(self.sources) if isinstance(self.recipe, Measuring) else {}
        return counts.summarize(self.name, texts, HeldOut(self.recipe.held_out, self.recipe.seed), figures)


def _line(made: Made) -> str:
    return json.dumps(line(made), ensure_ascii=False) + "\n"


def _experiments(name: str, overrides: Sequence[str]) -> list[Experiment]:
    """Return an experiment for each dataset of `dataset=A,B` or of the recipe, or one without dataset."""
    chosen = override_values(overrides).get("dataset") if any(map(_names_dataset, overrides)) else None
    others = [override for override in overrides if not _names_dataset(override)]
    node = Experiment.of([f"collect={name}", *others]).config["collect"]
    if chosen is not None:
        wanted = [[f"dataset={dataset}"] for dataset in chosen.split(",")]
    else:
        declared = parts.recipe(node).sources
        wanted = [[f"dataset={dataset}", f"dataset.split={split}"] for dataset, split in declared.items()]
    for words in wanted:
        if folder := node.get("verdicts", {}).get(parse_override(words[0]).value):
            words.append(format_override("dataset.verified", folder))
    if len(wanted) > 1 and (own := [o for o in others if override_key(o) in OF_ONE]):
        raise ConfigError(f"{own[0]}: applies to one dataset; choose it with dataset=NAME")
    return [Experiment.of([f"collect={name}", *dataset, *others]) for dataset in wanted or [[]]]


def _names_dataset(override: str) -> bool:
    return override_key(override) == "dataset"


def _refuse(name: str, recipe: Recipe, overrides: Sequence[str], runs: Sequence[Path]) -> None:
    if isinstance(recipe, Taught):
        if why := find_conflict(recipe, overrides, runs):
            raise ConfigError(f"collect {name}: {why}")
    elif recipe.sources and runs:
        raise ConfigError(f"--from {runs[0]}: collect {name} needs questions, not runs; give dataset=NAME")
    if not recipe.sources and not runs:
        raise ConfigError(f"collect {name}: needs finished runs; give --from RUN")
    if "collection" in map(override_group, overrides):
        raise ConfigError("collection: its passages are not the question's own; remove collection=")


def _run_source(run: Path, recipe: Recipe) -> Source:
    order = {id_: place for place, id_ in enumerate(question_ids(run))}
    questions = sorted(read_questions(run), key=lambda question: order.get(question.id, len(order)))
    method = parts.method(load_yaml(run / "config.yaml")["method"]) if recipe.sources else None
    return Source(read(Chosen, run / SETTINGS).choices["dataset"], questions, method, run)


def _run_identity(run: Path) -> Json:
    return {"run": digest(read_json(run / IDENTITY)), "predictions": sha256(run / PREDICTIONS)}


def _data_identity(experiment: Experiment, noise: Sequence[Question]) -> Json:
    ids = digest([question.id for question in experiment.questions])
    flagged = {"noise": digest([question.id for question in noise])} if noise else {}
    return {"dataset": experiment.name("dataset"), "sha256": experiment.data_sha256, "questions": ids, **flagged}


def _identity(name: str, recipe: Recipe, experiment: Experiment, made_of: Sequence[Json]) -> dict[str, Json]:
    settings = {key: value for key, value in experiment.config["collect"].items() if key not in ("sources", "verdicts")}
    asked = {} if not recipe.sources else {"method": experiment.config["method"], "code": experiment.code["method"]}
    taught = {"teacher": teacher_identity(experiment)} if isinstance(recipe, Taught) and recipe.asks else {}
    return {
        "recipe": name, "collect": settings, "program": program_hash(recipe), **asked, **taught, "sources": [*made_of],
    }  # fmt: skip


def _folder(name: str, experiment: Experiment, identity: dict[str, Json]) -> ArtifactDir:
    stage, settings = f"{STAGE} {name}", experiment.settings
    if settings.out is not None:
        return ArtifactDir(stage, Path(settings.out), identity)
    parent = outputs() / "examples" / name
    if settings.name is not None:
        return ArtifactDir(stage, parent / settings.name, identity)
    return ArtifactDir.for_identity(stage, parent, identity)
