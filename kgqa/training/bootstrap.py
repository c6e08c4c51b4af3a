"""Knowledge bootstrapping (KnowTrace, §3.3): `kgqa bootstrap`, rounds of run, collect and train.

Each step is what its command calls, so a finished one is not repeated, and an interrupted one continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from kgqa.artifacts.metrics import Estimate, Metrics
from kgqa.artifacts.schema import as_json, read
from kgqa.artifacts.trained import BOOTSTRAP, ROUND, Round, Rounds
from kgqa.cache.store import CallCache
from kgqa.config.building import build, identity_of
from kgqa.config.files import Config, load_node
from kgqa.config.overrides import format_override, override_group, override_key, parse_override
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.check import check
from kgqa.experiment.dry_run import Shared, plan_calls
from kgqa.experiment.estimates import Estimated, Range, estimate_plan, format_range, format_time
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.manifest import origin
from kgqa.experiment.run import execute_unless_finished
from kgqa.experiment.session import Session
from kgqa.report.page import sections_page
from kgqa.report.plots import svg
from kgqa.report.section import Section, markdown
from kgqa.report.training import rounds_plot, rounds_sections
from kgqa.runtime.display import Display
from kgqa.runtime.folder import ArtifactDir
from kgqa.runtime.monitor import monitor_work
from kgqa.system.models import find_adapter
from kgqa.training.collect.collecting import Collecting
from kgqa.training.collect.knowtrace import FA, HIGH, LOW, RIGHT
from kgqa.training.train.examples import prepare_examples
from kgqa.training.train.export import export_gguf
from kgqa.training.train.grid import estimate_seconds
from kgqa.training.train.request import TrainRequest
from kgqa.training.train.run import train
from kgqa.types import Json
from kgqa.util.fs import ids_digest, json_text, outputs, training_folder
from kgqa.util.validators import Count, NotIdentity

Filter = Literal["backtracing", "none"]
FILTER = "bootstrap.filter"
# keys that each run and training gets from the bootstrapping
OWN_KEYS = ("run_name", "output_dir", "allow_trained_questions", "train.name", "collect.filter", "collect.role")
PLANNED = 5  # questions of a run that a plan looks at
PLAN_TEXT = (
    f"Runs: planned with simulated replies to the first {PLANNED} questions, times their number, with no call cached.",
    "Trainings: on one H100, upper bounds, as if every answer were right and every reply became an example.",
)


@dataclass(frozen=True)
class Bootstrapping:
    """Fields as in conf/bootstrap/knowtrace.yaml, which cites the source of each value."""

    rounds: Annotated[Count, NotIdentity("more rounds continue in the same folder")]
    filter: tuple[Filter, ...]
    split: str | None
    sample: Count | None
    limit: Count | None
    ids: tuple[str, ...] | None
    fewest: Annotated[Count, NotIdentity("decides when to stop")]
    collect: str
    train: Mapping[str, str]


@dataclass(frozen=True)
class Bootstrap:
    """One bootstrapping, with the overrides of every run, collection and training."""

    settings: Bootstrapping
    config: Config
    overrides: tuple[str, ...]
    collect_overrides: tuple[str, ...]
    train_overrides: tuple[str, ...]

    @classmethod
    def of(cls, overrides: Sequence[str]) -> Bootstrap:
        """Raise ConfigError: a key or value that is wrong, or that is set by the bootstrapping itself."""
        chosen = [_list_filters(word) for word in overrides]
        keys = [override_key(word) for word in chosen]
        for word, key in zip(chosen, keys, strict=True):
            if key in OWN_KEYS:
                raise ConfigError(f"{word}: is set by kgqa bootstrap for each run and training. Remove it")
        defaults = {"method": "method=knowtrace", BOOTSTRAP: f"{BOOTSTRAP}=knowtrace"}
        chosen = [*(word for key, word in defaults.items() if key not in keys), *chosen]
        groups = {group: [word for word in chosen if override_group(word) == group] for group in ("collect", "train")}
        others = [word for word in chosen if override_group(word) not in groups]
        config = Experiment.of(others).config
        words = [word for word in others if override_group(word) != BOOTSTRAP and override_key(word) != "dry_run"]
        return cls(build(config[BOOTSTRAP], BOOTSTRAP), config, tuple(words), *map(tuple, groups.values()))

    @property
    def title(self) -> str:
        choices = self.config["choices"]
        return f"Bootstrapping of {choices['method']} on {choices['dataset']}, {choices['model']}"

    @property
    def name(self) -> str:
        """Return the name of what is trained: knowtrace-hotpotqa."""
        return f"{self.config['choices']['method']}-{self.config['choices']['dataset']}"

    def adapter_name(self, filter_: str, number: int, role: str) -> str:
        """Return knowtrace-hotpotqa/round1/explorer; of Non-Backtracing knowtrace-vanilla-hotpotqa/…"""
        method, dash, dataset = self.name.partition("-")
        name = self.name if filter_ == "backtracing" else f"{method}-vanilla{dash}{dataset}"
        return f"{name}/round{number}/{role}"

    def evaluating(self, adapters: Mapping[str, str]) -> list[str]:
        """Return the overrides of a run on the questions for evaluation."""
        return [*self.overrides, *(f"roles.{role}=+{name}" for role, name in adapters.items())]

    def learning(self, adapters: Mapping[str, str]) -> list[str]:
        """Return the overrides of a run on the training questions, with adapters trained on them, too (Algorithm 2)."""
        split = [format_override("dataset.split", self.settings.split)] if self.settings.split else []
        chosen = [format_override(key, getattr(self.settings, key)) for key in ("sample", "limit", "ids")]
        return [*self.evaluating(adapters), *split, *chosen, "allow_trained_questions=true"]

    def training(self, role: str, name: str) -> TrainRequest:
        """Raise ConfigError: as `TrainRequest.of`, or a folder of examples is named."""
        preset, path = self.config["choices"]["model"], self.config["model"].get("path")
        base = preset if path == load_node("model", preset).get("path") else f"{preset}:{path}"
        request = TrainRequest.of(
            self.settings.train[role], [f"train.base={base}", *self.train_overrides, f"train.name={name}"]
        )
        if request.path is not None:
            raise ConfigError(
                f"train.examples={request.training.examples}: each round makes its own examples. Set a number"
            )
        return request

    @cached_property
    def stage(self) -> ArtifactDir:
        """Return the folder, named by everything that can change a round.

        Raises:
            ConfigError: a question is for training and evaluation.
        """
        evaluated = Experiment.of(self.evaluating({}))
        try:
            learnt = Experiment.of(self.learning({}))
            both = {*evaluated.question_ids} & {*learnt.question_ids}
        except ConfigError as error:  # about a key that the bootstrapping sets
            raise ConfigError(str(error).replace("dataset.split", f"{BOOTSTRAP}.split")) from error
        if both:
            raise ConfigError(
                f"{len(both):,} of {len(evaluated.question_ids):,} questions are used for training and evaluation: set "
                "another bootstrap.split=, or other bootstrap.ids= than ids="
            )
        identity: dict[str, Json] = {
            "runs": [{"run": run.identity, "questions": ids_digest(run.question_ids)} for run in (evaluated, learnt)],
            "bootstrap": identity_of(self.config[BOOTSTRAP], BOOTSTRAP),
            "collect": [*self.collect_overrides],
            "train": {role: [*map(list, self.training(role, "any").settings)] for role in self.settings.train},
        }
        return ArtifactDir.for_identity(BOOTSTRAP, outputs() / BOOTSTRAP / self.name, identity)

    def run(self, display: Display, command: Sequence[str]) -> Rounds:
        """Return all its rounds. The same command continues with the missing ones.

        Raises:
            ConfigError: a round has too few right answers, or more questions failed than `max_failure_rate` allows.
            UsageError, EngineDied: as of a run, a collection and a training. Finished steps stay.
        """
        rounds = Rounds(title=self.title, rounds=())
        adapters: Mapping[str, str] = {}  # of the round before
        with self.stage.lock(), monitor_work(display, BOOTSTRAP, self.stage.path) as shown:
            for filter_, number in self.numbers():
                folder = self.folder(filter_, number)
                if one := read_finished_round(folder):
                    shown.line(f"{folder}: finished")
                else:
                    one = self.make(filter_, number, adapters, shown) if number else self.evaluate("", 0, {}, shown)
                    self.stage.write(str((folder / ROUND).relative_to(self.stage.path)), [json_text(as_json(one))])
                adapters = one.adapters if number < self.settings.rounds else {}
                rounds = rounds.replace(rounds=(*rounds.rounds, one))
                self._report(rounds, command)
            self.stage.finish(rounds, origin(command))
        return rounds

    def _report(self, rounds: Rounds, command: Sequence[str]) -> None:
        sections, plot = rounds_sections(rounds), rounds_plot(rounds)
        curve = Section("EM and FA by round", (), (), plots=[plot])
        page = sections_page(rounds.title, f"kgqa {' '.join(command)}", [curve, *sections])
        self.stage.write("rounds.json", [json_text(as_json(rounds))])
        self.stage.write("report.md", [markdown(rounds.title, sections)])
        self.stage.write("curve.svg", [svg(plot)])
        self.stage.write("report.html", [page])

    def numbers(self) -> list[tuple[str, int]]:
        """Return filter and number of each round. Round 0 is the base model."""
        return [("", 0), *product(self.settings.filter, range(1, self.settings.rounds + 1))]

    def folder(self, filter_: str, number: int) -> Path:
        return self.stage.path / filter_ / f"round{number}"

    def make(self, filter_: str, number: int, adapters: Mapping[str, str], display: Display) -> Round:
        """Run Algorithm 2, lines 4 to 17: answer with the last adapters, then train the base on right answers."""
        settings = self.settings
        run, examples, kept, figures = self.answer(self.learning(adapters), display), {}, {}, {}
        for role in settings.train:
            words = [*self.collect_overrides, f"collect.filter={filter_}", f"collect.role={role}"]
            collecting = Collecting.of(settings.collect, words, [run])
            collected = collecting.collect(display, ["collect", settings.collect, "--from", str(run)])
            examples[role], kept[role] = str(collecting.stage.path), collected.examples
            figures = {**collected.figures}
        asked, right = Metrics.read(run).questions, int(figures.get(RIGHT, 0))
        if right < settings.fewest:
            raise ConfigError(
                f"round {number}: {right:,} of {asked:,} answers are right, fewer than bootstrap.fewest="
                f"{settings.fewest}. Use more questions (bootstrap.sample=), or set bootstrap.fewest="
                f"{max(right, 1)}"
            )
        new = {role: self.train(filter_, number, role, Path(folder), display) for role, folder in examples.items()}
        filtered = Estimate(mean=figures.get(FA), low=figures.get(FA + LOW), high=figures.get(FA + HIGH), n=right)
        return self.evaluate(filter_, number, new, display).replace(
            run=str(run), asked=asked, right=right, examples=examples, kept=kept, filtered=filtered, adapters=new,
        )  # fmt: skip

    def train(self, filter_: str, number: int, role: str, examples: Path, display: Display) -> str:
        """Train an adapter, and return its name."""
        request = self.training(role, self.adapter_name(filter_, number, role))
        display.line(f"round {number}, {filter_}: training the {role}")
        split = prepare_examples(request, display, examples)
        command = ["train", request.recipe, *request.overrides, f"train.examples={examples}"]
        name = train(request, split, display, command).relative_to(training_folder()).as_posix()
        if self.config["choices"]["engine"] == "llamacpp" and not find_adapter(name).gguf.is_file():
            export_gguf(name, None)
        return name

    def evaluate(self, filter_: str, number: int, adapters: Mapping[str, str], display: Display) -> Round:
        dev = self.answer(self.evaluating(adapters), display)
        metrics = Metrics.read(dev)
        return Round(filter=filter_, number=number, dev=str(dev), em=metrics.score("em"), f1=metrics.score("f1"))

    def answer(self, words: Sequence[str], display: Display) -> Path:
        """Return the run's folder. Its engines are closed, so that the next one has the machine to itself."""
        with Session(Experiment.of(words)) as session:
            executed = execute_unless_finished(session, display)
        if executed.failure is not None:
            raise ConfigError(f"{executed.failure}. The same command repeats what failed")
        return executed.folder

    def plan(self) -> list[Section]:
        """Return the cost of each kind of step in all rounds that are not finished."""
        numbers = [number for name, number in self.numbers() if not read_finished_round(self.folder(name, number))]
        trained = sum(number > 0 for number in numbers)
        (learning, tokens), (evaluating, _) = plan_run(self.learning({})), plan_run(self.evaluating({}))
        runs = {f"run, {trained} ×": learning.scaled(trained)}
        runs[f"evaluate, {len(numbers)} ×"] = evaluating.scaled(len(numbers))
        total = Estimated.sum(list(runs.values()))
        whole = total.seconds
        rows = [_row(name, run, run.seconds) for name, run in runs.items()]
        for role in self.settings.train:
            training = self.training(role, "any")
            seen = trained * tokens.get(role, 0)
            seconds = estimate_seconds(training, seen * training.training.epochs)
            time = None if seconds is None else Range(seconds, seconds)
            whole = None if time is None or whole is None else whole + time
            rows.append((f"train {role}, {trained} ×", "–", f"{seen:,}", format_time(time)))
        rows.append(_row("all", total, whole))
        return [Section("Plan", ("stage", "calls", "tokens", "time"), rows, PLAN_TEXT)]


def _row(name: str, run: Estimated, seconds: Range | None) -> tuple[str, ...]:
    return name, f"{run.calls:,}", format_range(run.tokens, "{:,.0f}"), format_time(seconds)


def read_finished_round(folder: Path) -> Round | None:
    """Return the round of a folder if it is finished and everything that it names still exists."""
    with suppress(DataError):
        one = read(Round, folder / ROUND)
        paths = [one.dev, *([one.run] if one.run else []), *one.examples.values()]
        adapters = (training_folder() / name for name in one.adapters.values())
        if all(path.is_dir() for path in (*map(Path, paths), *adapters)):
            return one
    return None


def plan_run(words: Sequence[str]) -> tuple[Estimated, dict[str, int]]:
    """Plan a run from its first questions, with an empty cache, and return the tokens of each role, too.

    Raises:
        ConfigError: it cannot be run.
    """
    experiment = Experiment.of(words)
    share = max(1.0, len(experiment.questions) / PLANNED)
    with (
        TemporaryDirectory(prefix="kgqa-plan-") as folder,
        closing(CallCache(Path(folder))) as cache,
        Session(experiment, calls=cache) as session,
    ):
        check(session)
        plan = plan_calls(session, Shared(), PLANNED)
    by_role = {name: round(share * (role.prompt_tokens + role.output_tokens)) for name, role in plan.items()}
    return estimate_plan(plan, experiment.choices["method"]).scaled(share), by_role


def _list_filters(word: str) -> str:
    """Return `bootstrap.filter=backtracing,none` as Hydra writes a list."""
    value = parse_override(word).value
    return f"{FILTER}=[{value}]" if word.startswith(f"{FILTER}=") and not value.startswith("[") else word
