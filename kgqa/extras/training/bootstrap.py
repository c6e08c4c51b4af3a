"""Knowledge bootstrapping (KnowTrace, §3.3): `kgqa bootstrap`, rounds of run, collect and train.

Each step is what its command calls, so a finished one is not repeated, and an interrupted one continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.trained import BOOTSTRAP, Round, Rounds
from kgqa.config.building import build, changing_settings
from kgqa.config.files import Config
from kgqa.config.keys import load_node
from kgqa.config.overrides import format_override, override_group, override_key
from kgqa.errors import ConfigError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.identity import identify
from kgqa.experiment.run import execute
from kgqa.experiment.session import Session
from kgqa.extras.training.bootstrap_settings import Bootstrapping
from kgqa.extras.training.collect.collecting import Collecting
from kgqa.extras.training.collect.knowtrace import FA, HIGH, LOW, RIGHT
from kgqa.extras.training.report import rounds_plot, rounds_section
from kgqa.extras.training.train.export import export_gguf
from kgqa.extras.training.train.request import TrainRequest, prepare_examples
from kgqa.extras.training.train.run import train
from kgqa.report.page import sections_page, svg
from kgqa.report.section import Section, markdown
from kgqa.runtime.display import Display
from kgqa.runtime.folder import lock_folder, run_name
from kgqa.runtime.monitor import monitor_work
from kgqa.system.models import find_adapter
from kgqa.types import Json
from kgqa.util.digests import ids_digest
from kgqa.util.fs import json_text, replace_file
from kgqa.util.places import outputs, training_folder

# keys that each run and training gets from the bootstrapping
OWN_KEYS = (
    "run_name",
    "output_dir",
    "allow_trained_questions",
    "train.name",
    "collect.filter",
    "collect.role",
)


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
        keys = [override_key(word) for word in overrides]
        for word, key in zip(overrides, keys, strict=True):
            if key in OWN_KEYS:
                raise ConfigError(
                    f"{word}: is set by kgqa bootstrap for each run and training. Remove it"
                )
        defaults = {"method": "method=knowtrace", BOOTSTRAP: f"{BOOTSTRAP}=knowtrace"}
        complete = [*(word for key, word in defaults.items() if key not in keys), *overrides]
        groups = {
            group: [word for word in complete if override_group(word) == group]
            for group in ("collect", "train")
        }
        others = [word for word in complete if override_group(word) not in groups]
        config = compose_experiment(others).config
        words = [
            word
            for word in others
            if override_group(word) != BOOTSTRAP and override_key(word) != "dry_run"
        ]
        return cls(
            build(config[BOOTSTRAP], BOOTSTRAP), config, tuple(words), *map(tuple, groups.values())
        )

    @property
    def title(self) -> str:
        choices = self.config["choices"]
        return f"Bootstrapping of {choices['method']} on {choices['dataset']}, {choices['model']}"

    @property
    def name(self) -> str:
        """Return the name of what is trained: knowtrace-hotpotqa, of Non-Backtracing knowtrace-vanilla-hotpotqa."""
        vanilla = "" if self.settings.filter == "backtracing" else "-vanilla"
        return f"{self.config['choices']['method']}{vanilla}-{self.config['choices']['dataset']}"

    def adapter_name(self, number: int, role: str) -> str:
        return f"{self.name}/round{number}/{role}"

    def evaluating(self, adapters: Mapping[str, str]) -> list[str]:
        """Return the overrides of a run on the questions for evaluation."""
        return [*self.overrides, *(f"roles.{role}=+{name}" for role, name in adapters.items())]

    def learning(self, adapters: Mapping[str, str]) -> list[str]:
        """Return the overrides of a run on the training questions, with adapters trained on them, too (Algorithm 2)."""
        split = (
            [format_override("dataset.split", self.settings.split)] if self.settings.split else []
        )
        words = [
            format_override(key, getattr(self.settings, key)) for key in ("sample", "limit", "ids")
        ]
        return [*self.evaluating(adapters), *split, *words, "allow_trained_questions=true"]

    def training(self, role: str, name: str) -> TrainRequest:
        """Raise ConfigError: as `TrainRequest.of`, or a folder of examples is named."""
        preset, path = self.config["choices"]["model"], self.config["model"].get("path")
        base = preset if path == load_node("model", preset).get("path") else f"{preset}:{path}"
        words = [f"train.base={base}", *self.train_overrides, f"train.name={name}"]
        request = TrainRequest.of(self.settings.train[role], words)
        if request.path is not None:
            raise ConfigError(
                f"train.examples={request.training.examples}: each round makes its own examples. Set a number"
            )
        return request

    @cached_property
    def identity(self) -> dict[str, Json]:
        """Return everything that can change a round.

        Raises ConfigError: a question is for training and evaluation.
        """
        evaluated, learning = (
            compose_experiment(self.evaluating({})),
            compose_experiment(self.learning({})),
        )
        if both := {*evaluated.data.ids} & {*learning.data.ids}:
            raise ConfigError(
                f"{len(both):,} of {len(evaluated.data.ids):,} questions are used for training and evaluation: set "
                "another bootstrap.split=, or other bootstrap.ids= than ids="
            )
        return {
            "runs": [
                {"run": identify(run), "questions": ids_digest(run.data.ids)}
                for run in (evaluated, learning)
            ],
            "bootstrap": changing_settings(self.config[BOOTSTRAP], BOOTSTRAP),
            "collect": [*self.collect_overrides],
            "train": {
                role: [*map(list, self.training(role, "any").settings)]
                for role in self.settings.train
            },
        }

    @property
    def folder(self) -> Path:
        return outputs() / BOOTSTRAP / self.name / run_name(self.identity)

    def run(self, display: Display, command: Sequence[str]) -> Rounds:
        """Return all its rounds, of which round 0 is the base model.

        Raises:
            ConfigError: a round has too few right answers, or more questions failed than `max_failure_rate` allows.
            UsageError, EngineDied: as of a run, a collection and a training. Finished steps stay.
        """
        rounds = Rounds(title=self.title, filter=self.settings.filter, rounds=())
        adapters: Mapping[str, str] = {}  # of the round before
        locked = lock_folder(
            self.folder, as_json(self.identity), "this", "another bootstrap.sample="
        )
        with locked, monitor_work(display, BOOTSTRAP, self.folder) as monitor:
            for number in range(self.settings.rounds + 1):
                one = (
                    self.make(number, adapters, monitor)
                    if number
                    else self.evaluate(0, {}, monitor)
                )
                adapters = one.adapters
                rounds = rounds.replace(rounds=(*rounds.rounds, one))
                self._report(rounds, command)
        return rounds

    def _report(self, rounds: Rounds, command: Sequence[str]) -> None:
        section, plot = rounds_section(rounds), rounds_plot(rounds)
        curve = Section("EM and FA by round", (), (), plots=[plot])
        replace_file(self.folder / "rounds.json", json_text(as_json(rounds)))
        replace_file(self.folder / "report.md", markdown(rounds.title, [section]))
        replace_file(self.folder / "curve.svg", svg(plot))
        page = sections_page(rounds.title, f"kgqa {' '.join(command)}", [curve, section])
        replace_file(self.folder / "report.html", page)

    def make(self, number: int, adapters: Mapping[str, str], display: Display) -> Round:
        """Run Algorithm 2, lines 4 to 17: answer with the last adapters, then train the base on right answers."""
        settings = self.settings
        run, examples, counts, figures = self.answer(self.learning(adapters), display), {}, {}, {}
        for role in settings.train:
            words = [
                *self.collect_overrides,
                f"collect.filter={settings.filter}",
                f"collect.role={role}",
            ]
            collecting = Collecting.of(settings.collect, words, [run.folder])
            collected = collecting.collect(
                display, ["collect", settings.collect, "--from", str(run.folder)]
            )
            examples[role], counts[role] = str(collecting.folder), collected.examples
            figures = {**collected.figures}
        asked, right = run.metrics.questions, int(figures.get(RIGHT, 0))
        if right < settings.fewest:
            raise ConfigError(
                f"round {number}: {right:,} of {asked:,} answers are right, fewer than bootstrap.fewest="
                f"{settings.fewest}. Use more questions (bootstrap.sample=), or set bootstrap.fewest="
                f"{max(right, 1)}"
            )
        new = {
            role: self.train(number, role, Path(folder), display)
            for role, folder in examples.items()
        }
        filtered = Estimate(
            mean=figures.get(FA), low=figures.get(FA + LOW), high=figures.get(FA + HIGH), n=right
        )
        return self.evaluate(number, new, display).replace(
            run=str(run.folder), asked=asked, right=right, examples=examples, kept=counts, filtered=filtered,
            adapters=new,
        )  # fmt: skip

    def train(self, number: int, role: str, examples: Path, display: Display) -> str:
        """Train an adapter, and return its name."""
        request = self.training(role, self.adapter_name(number, role))
        display.line(f"round {number}: training the {role}")
        split = prepare_examples(request, display, examples)
        command = ["train", request.recipe, *request.overrides, f"train.examples={examples}"]
        name = train(request, split, display, command).relative_to(training_folder()).as_posix()
        if self.config["choices"]["engine"] == "llamacpp" and not find_adapter(name).gguf.is_file():
            export_gguf(name, None)
        return name

    def evaluate(self, number: int, adapters: Mapping[str, str], display: Display) -> Round:
        dev = self.answer(self.evaluating(adapters), display)
        return Round(
            number=number,
            dev=str(dev.folder),
            em=dev.metrics.score("em"),
            f1=dev.metrics.score("f1"),
        )

    def answer(self, words: Sequence[str], display: Display) -> FinishedRun:
        """Return the run. Its engines are closed, so that the next one has the machine to itself."""
        with Session(compose_experiment(words)) as session:
            executed = execute(session, display)
        if executed.failure is not None:
            raise ConfigError(f"{executed.failure}. The same command repeats what failed")
        return executed.run
