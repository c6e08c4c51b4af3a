"""`kgqa collect`: which recipe, of what, and the folder its examples are kept in."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artefacts.collected import STAGE, Collected
from kgqa.artefacts.form import read, read_json
from kgqa.artefacts.predictions import PREDICTIONS, question_ids
from kgqa.artefacts.run import IDENTITY, SETTINGS, Chosen
from kgqa.artefacts.trace import read_questions
from kgqa.errors import ConfigError, DataError
from kgqa.examples import (
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
from kgqa.experiment.collect.counting import Counts, HeldOut
from kgqa.experiment.collect.teaching import (
    Asks,
    asking,
    flagged_questions,
    imagining,
    refusal,
    teacher_identity,
    wants_noise,
)
from kgqa.experiment.config import parts
from kgqa.experiment.config.composing import check_choice
from kgqa.experiment.config.files import groups, load_yaml
from kgqa.experiment.config.overrides import override_group, override_key, override_values, spelt
from kgqa.experiment.run.manifest import origin
from kgqa.experiment.run.planning import Plan
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.method_code import program_hash
from kgqa.report.examples import example_sections, review_csv
from kgqa.report.markdown import document
from kgqa.runtime.display import Display
from kgqa.runtime.stages import StageFolder
from kgqa.runtime.watch import watched
from kgqa.storage import digest, outputs, replace_file, sha256
from kgqa.types import Json, Question

REPORT = "report.md"
REVIEW = 50  # examples that people are given
OF_ONE = ("dataset.path", "dataset.files", "dataset.verified")  # keys that cannot be said of several data sets


@dataclass(frozen=True)
class Collecting:
    """A recipe with what it is applied to; nothing is read of it or written before it is asked for."""

    name: str
    recipe: Recipe
    experiment: Experiment  # of the first data set; of none, where runs are the material
    sources: tuple[Source, ...]
    stage: StageFolder

    @classmethod
    def of(cls, name: str, overrides: Sequence[str], runs: Sequence[Path] = ()) -> Collecting:
        """
        Raises:
            ConfigError: no such recipe, or it takes something else.
            DataError: a data set's file is missing or broken, or a run has not ended.
        """
        check_choice(f"collect={name}", groups())
        experiments = _experiments(name, overrides)
        first = experiments[0]
        recipe = parts.recipe(first.config["collect"])
        _refuse(name, recipe, overrides, runs)
        own = experiments if recipe.sources else []
        flagged = [flagged_questions(each) if wants_noise(recipe) else () for each in own]
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
        """Into the folder; what it holds already is read from there.

        Raises:
            DataError: not one example can be made; the folder stays without a manifest.
        """
        if collected := self.finished:
            display.line(f"{self.stage.path}: finished with this code, data and settings")
            return collected
        with self.stage.claimed():
            counts = Counts()
            with (
                watched(display, STAGE, self.stage.path) as told,
                asking(self.recipe, self.experiment, told) as teacher,
            ):
                self.stage.write(EXAMPLES, (_line(example) for example in self._examples(counts, told, teacher)))
                self.stage.write(DROPPED, map(_line, counts.dropped))
            collected = replace(self._collected(counts), cost=teacher.cost if teacher else None)
            self.stage.write(REPORT, [self.report(collected)])
            self.stage.finish(collected, origin(command))
        return collected

    def plan(self, display: Display) -> tuple[Collected, Example | Positive, Plan]:
        """What `collect` would come to, the first example, and what a teacher would be asked; nothing is written."""
        counts = Counts()
        with imagining(self.recipe, self.experiment) as teacher:
            for _ in self._examples(counts, display, teacher):
                pass
        collected = self._collected(counts)
        assert counts.first is not None
        return collected, counts.first, teacher.plan if teacher else {}

    def report(self, collected: Collected) -> str:
        return document(f"Examples: {self.name}", example_sections(collected))

    def review(self, file: Path) -> Path:
        """A sample of the folder's examples as CSV, for people to judge."""
        examples = list(read_examples(self.stage.path / EXAMPLES))
        chance = random.Random(f"{self.recipe.seed}/review")  # noqa: S311 - a sample, not a secret
        sample = [examples[place] for place in sorted(chance.sample(range(len(examples)), min(REVIEW, len(examples))))]
        asked = (
            (source.dataset, question) for source in self.sources for question in (*source.questions, *source.noise)
        )
        return replace_file(file, review_csv(sample, asked))

    def _examples(self, counts: Counts, display: Display, teacher: Asks | None) -> Iterator[Example | Positive]:
        if teacher:
            assert isinstance(self.recipe, Taught)
            yield from counts.through(self.recipe.taught(self.sources, teacher.ask))
            return
        with display.counting("questions") as advance:
            total = sum(len(source.questions) for source in self.sources)
            yield from counts.through(self.recipe.collect(self.sources, lambda: advance(self.name, 1, total)))

    def _collected(self, counts: Counts) -> Collected:
        if not counts.labels:
            why = "; ".join(dict.fromkeys(one.why for one in counts.dropped)) or "there are no questions"
            raise DataError(f"collect {self.name}: not one example: {why}")
        texts = {
            (source.dataset, each.id): each.text
            for source in self.sources
            for each in (*source.questions, *source.noise)
        }
        figures = self.recipe.figures(self.sources) if isinstance(self.recipe, Measuring) else {}
        return counts.collected(self.name, texts, HeldOut(self.recipe.held_out, self.recipe.seed), figures)


def _line(made: Made) -> str:
    return json.dumps(line(made), ensure_ascii=False) + "\n"


def _experiments(name: str, overrides: Sequence[str]) -> list[Experiment]:
    """One for each data set: those of `dataset=A,B`, else the recipe's own. Without these one, not read."""
    chosen = override_values(overrides).get("dataset") if any(map(_names_dataset, overrides)) else None
    others = [override for override in overrides if not _names_dataset(override)]
    node = Experiment.of([f"collect={name}", *others]).config["collect"]
    if chosen is not None:
        wanted = [[f"dataset={dataset}"] for dataset in chosen.split(",")]
    else:
        declared = parts.recipe(node).sources
        wanted = [[f"dataset={dataset}", f"dataset.split={split}"] for dataset, split in declared.items()]
    for words in wanted:
        if folder := node.get("verdicts", {}).get(words[0].partition("=")[2]):
            words.append(spelt("dataset.verified", folder))
    if len(wanted) > 1 and (own := [o for o in others if override_key(o) in OF_ONE]):
        raise ConfigError(f"{own[0]}: of which data set? Name one with dataset=NAME")
    return [Experiment.of([f"collect={name}", *dataset, *others]) for dataset in wanted or [[]]]


def _names_dataset(override: str) -> bool:
    return override_key(override) == "dataset"


def _refuse(name: str, recipe: Recipe, overrides: Sequence[str], runs: Sequence[Path]) -> None:
    if isinstance(recipe, Taught):
        if why := refusal(recipe, overrides, runs):
            raise ConfigError(f"collect {name}: {why}")
    elif recipe.sources and runs:
        raise ConfigError(f"--from {runs[0]}: collect {name} takes questions, not runs; give dataset=NAME")
    if not recipe.sources and not runs:
        raise ConfigError(f"collect {name}: takes finished runs; give --from RUN")
    if "collection" in map(override_group, overrides):
        raise ConfigError("collection: its passages are not the question's own; leave collection= out")


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


def _folder(name: str, experiment: Experiment, identity: dict[str, Json]) -> StageFolder:
    stage, settings = f"{STAGE} {name}", experiment.settings
    if settings.out is not None:
        return StageFolder(stage, Path(settings.out), identity)
    parent = outputs() / "examples" / name
    if settings.name is not None:
        return StageFolder(stage, parent / settings.name, identity)
    return StageFolder.named(stage, parent, identity)
