"""`kgqa bootstrap`: each round answers, collects, trains and is evaluated; what has ended is not done again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artifacts.bootstrap import ROUND, STAGE, Round, Rounds
from kgqa.artifacts.collected import Collected
from kgqa.artifacts.metrics import Estimate, Metrics
from kgqa.artifacts.schema import as_json, read
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.run.executing import execute_unless_finished
from kgqa.experiment.run.manifest import origin
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.report.bootstrap import curve, html, rounds_sections
from kgqa.report.markdown import document
from kgqa.runtime.artifact_dir import ArtifactDir
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.system.adapters import find_adapter
from kgqa.training.bootstrap.request import BootstrapRequest, Filter
from kgqa.training.collect.collecting import Collecting
from kgqa.training.collect.knowtrace import FA, HIGH, LOW, RIGHT
from kgqa.training.train.examples import prepare_examples
from kgqa.training.train.exporting import export_gguf
from kgqa.training.train.running import train
from kgqa.util.fs import explain_storage_errors, json_text, training_folder

WHOLE = "rounds.json"


@dataclass(frozen=True)
class Bootstrap:
    """One bootstrapping with its folder."""

    request: BootstrapRequest
    stage: ArtifactDir
    display: Display

    def run(self, command: Sequence[str]) -> Rounds:
        """Return all its rounds; the same command goes on with those that are missing.

        Raises:
            ConfigError: a round has too few right answers, or more questions failed than `max_failure_rate` lets.
            UsageError, EngineDied: as of a run, a collection and a training; what they made stays.
        """
        with self.stage.lock(), monitor_work(self.display, STAGE, self.stage.path) as told:
            within = replace(self, display=told)
            rounds = Rounds(title=self.title, rounds=())
            for one in within.rounds():
                rounds = rounds.replace(rounds=(*rounds.rounds, one))
                self.write(rounds, command)
            self.stage.finish(rounds, origin(command))
        return rounds

    @property
    def title(self) -> str:
        choices = self.request.config["choices"]
        return f"Bootstrapping of {choices['method']} on {choices['dataset']}, {choices['model']}"

    def rounds(self) -> Iterator[Round]:
        """Yield each as it ends."""
        yield self._once(self.stage.path / "round0", lambda: self._evaluate("", 0, {}))
        for filter_ in self.request.settings.filter:
            adapters: Mapping[str, str] = {}
            for number in range(1, self.request.settings.rounds + 1):
                before = adapters
                folder = self.stage.path / filter_ / f"round{number}"
                one = self._once(folder, lambda: self._make(filter_, number, before))  # noqa: B023 - called at once
                yield one
                adapters = one.adapters

    def _once(self, folder: Path, make: Callable[[], Round]) -> Round:
        """Return what the round came to, where it has ended and all it names is still there; else made now."""
        with suppress(DataError):
            one = read(Round, folder / ROUND)
            places = (one.dev, *([one.run] if one.run else []), *one.examples.values())
            if all(
                map(Path.is_dir, [*map(Path, places), *(training_folder() / name for name in one.adapters.values())])
            ):
                self.display.line(f"{folder}: finished")
                return one
        one = make()
        self.stage.write(str((folder / ROUND).relative_to(self.stage.path)), [json_text(as_json(one))])
        links = {"dev": one.dev, **({"run": one.run} if one.run else {})}
        links |= {f"examples-{role}": place for role, place in one.examples.items()}
        links |= {role: str(training_folder() / name) for role, name in one.adapters.items()}
        for name, place in links.items():
            _link(folder / name, Path(place))
        return one

    def _make(self, filter_: Filter, number: int, adapters: Mapping[str, str]) -> Round:
        """Return algorithm 2, lines 4 to 17: answer with the adapters of the round before, learn on the base from
        what was
        right."""
        run = self._answer(self.request.learning(adapters))
        examples, kept, collected = {}, {}, None
        for role in self.request.settings.train:
            collecting = Collecting.of(self.request.settings.collect, self.request.collecting(filter_, role), [run])
            collected = collecting.collect(self.display, ["collect", self.request.settings.collect, "--from", str(run)])
            examples[role], kept[role] = str(collecting.stage.path), collected.examples
        assert collected is not None
        asked, right = Metrics.read(run).questions, int(collected.figures.get(RIGHT, 0))
        if right < (fewest := self.request.settings.fewest):
            raise ConfigError(
                f"round {number}: {right:,} of {asked:,} answers are right, fewer than bootstrap.fewest={fewest}; "
                f"learn from more questions (bootstrap.sample=), or give bootstrap.fewest={max(right, 1)}"
            )
        new = {role: self._train(filter_, number, role, Path(folder)) for role, folder in examples.items()}
        return self._evaluate(filter_, number, new).replace(
            run=str(run), asked=asked, right=right, examples=examples, kept=kept,
            filtered=_filter(collected, right), adapters=new,
        )  # fmt: skip

    def _train(self, filter_: Filter, number: int, role: str, examples: Path) -> str:
        """Return the adapter's name."""
        request = self.request.training(role, self.request.trained_name(filter_, number, role))
        self.display.line(f"round {number}, {filter_}: training the {role}")
        split = prepare_examples(request, self.display, examples)
        command = ["train", request.recipe, *request.overrides, f"train.examples={examples}"]
        name = train(request, split, self.display, command).relative_to(training_folder()).as_posix()
        if self.request.config["choices"]["engine"] == "llamacpp" and not find_adapter(name).gguf.is_file():
            export_gguf(name, None)
        return name

    def _evaluate(self, filter_: str, number: int, adapters: Mapping[str, str]) -> Round:
        dev = self._answer(self.request.evaluating(adapters))
        scores = Metrics.read(dev).scores
        return Round(filter=filter_, number=number, dev=str(dev), em=scores.em, f1=scores.f1)

    def _answer(self, words: Sequence[str]) -> Path:
        """Return the run's folder; its engines are closed, so that the next one has the machine to itself."""
        with Session(Experiment.of(words)) as session:
            executed = execute_unless_finished(session, self.display)
        if executed.failure is not None:
            raise ConfigError(f"{executed.failure}; the same command asks what failed again")
        return executed.folder

    def write(self, rounds: Rounds, command: Sequence[str]) -> None:
        """What there is so far."""
        self.stage.write(WHOLE, [json_text(as_json(rounds))])
        self.stage.write("report.md", [document(rounds.title, rounds_sections(rounds))])
        self.stage.write("curve.svg", [curve(rounds)])
        self.stage.write("report.html", [html(rounds, " ".join(["kgqa", *command]))])


def _filter(collected: Collected, right: int) -> Estimate:
    figures = collected.figures
    return Estimate(mean=figures.get(FA), low=figures.get(FA + LOW), high=figures.get(FA + HIGH), n=right)


def _link(link: Path, target: Path) -> None:
    with explain_storage_errors(link):
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target.absolute(), link.parent.absolute()))
