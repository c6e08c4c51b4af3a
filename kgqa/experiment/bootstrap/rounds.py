"""`kgqa bootstrap`: each round answers, collects, trains and is evaluated; what has ended is not done again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artefacts.bootstrap import ROUND, STAGE, Round, Rounds
from kgqa.artefacts.collected import Collected
from kgqa.artefacts.form import as_json, read
from kgqa.artefacts.metrics import Estimate, Metrics
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.bootstrap.request import BootstrapRequest, Filter
from kgqa.experiment.collect.collecting import Collecting
from kgqa.experiment.collect.knowtrace import FA, HIGH, LOW, RIGHT
from kgqa.experiment.machine.adapters import adapter
from kgqa.experiment.run.executing import execute_unless_finished
from kgqa.experiment.run.manifest import origin
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.experiment.train.exporting import export_gguf
from kgqa.experiment.train.preparing import prepared
from kgqa.experiment.train.running import train
from kgqa.report.bootstrap import curve, html, rounds_sections
from kgqa.report.markdown import document
from kgqa.runtime.display import Display
from kgqa.runtime.stages import StageFolder
from kgqa.runtime.watch import watched
from kgqa.storage import json_text, storing, trained

WHOLE = "rounds.json"


@dataclass(frozen=True)
class Bootstrap:
    """One bootstrapping with its folder."""

    request: BootstrapRequest
    stage: StageFolder
    display: Display

    def run(self, command: Sequence[str]) -> Rounds:
        """All its rounds; the same command goes on with those that are missing.

        Raises:
            ConfigError: a round has too few right answers, or more questions failed than `fail_above` lets.
            UsageError, EngineDied: as of a run, a collection and a training; what they made stays.
        """
        with self.stage.claimed(), watched(self.display, STAGE, self.stage.path) as told:
            within = replace(self, display=told)
            rounds = Rounds(title=self.title, rounds=())
            for one in within.rounds():
                rounds = replace(rounds, rounds=(*rounds.rounds, one))
                self.write(rounds, command)
            self.stage.finish(rounds, origin(command))
        return rounds

    @property
    def title(self) -> str:
        choices = self.request.config["choices"]
        return f"Bootstrapping of {choices['method']} on {choices['dataset']}, {choices['model']}"

    def rounds(self) -> Iterator[Round]:
        """Each as it ends."""
        yield self._once(self.stage.path / "round0", lambda: self._evaluated("", 0, {}))
        for filter_ in self.request.settings.filter:
            adapters: Mapping[str, str] = {}
            for number in range(1, self.request.settings.rounds + 1):
                before = adapters
                folder = self.stage.path / filter_ / f"round{number}"
                one = self._once(folder, lambda: self._made(filter_, number, before))  # noqa: B023 - called at once
                yield one
                adapters = one.adapters

    def _once(self, folder: Path, make: Callable[[], Round]) -> Round:
        """What the round came to, where it has ended and all it names is still there; else made now."""
        with suppress(DataError):
            one = read(Round, folder / ROUND)
            places = (one.dev, *([one.run] if one.run else []), *one.examples.values())
            if all(map(Path.is_dir, [*map(Path, places), *(trained() / name for name in one.adapters.values())])):
                self.display.line(f"{folder}: finished")
                return one
        one = make()
        self.stage.write(str((folder / ROUND).relative_to(self.stage.path)), [json_text(as_json(one))])
        links = {"dev": one.dev, **({"run": one.run} if one.run else {})}
        links |= {f"examples-{role}": place for role, place in one.examples.items()}
        links |= {role: str(trained() / name) for role, name in one.adapters.items()}
        for name, place in links.items():
            _link(folder / name, Path(place))
        return one

    def _made(self, filter_: Filter, number: int, adapters: Mapping[str, str]) -> Round:
        """Algorithm 2, lines 4 to 17: answer with the adapters of the round before, learn on the base from what was
        right."""
        run = self._answered(self.request.learning(adapters))
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
        new = {role: self._learnt(filter_, number, role, Path(folder)) for role, folder in examples.items()}
        return replace(
            self._evaluated(filter_, number, new), run=str(run), asked=asked, right=right, examples=examples, kept=kept,
            filtered=_filtered(collected, right), adapters=new,
        )  # fmt: skip

    def _learnt(self, filter_: Filter, number: int, role: str, examples: Path) -> str:
        """The adapter's name."""
        request = self.request.training(role, self.request.trained_name(filter_, number, role))
        self.display.line(f"round {number}, {filter_}: training the {role}")
        parted = prepared(request, self.display, examples)
        command = ["train", request.recipe, *request.overrides, f"train.examples={examples}"]
        name = train(request, parted, command, self.display).relative_to(trained()).as_posix()
        if self.request.config["choices"]["engine"] == "llamacpp" and not adapter(name).gguf.is_file():
            export_gguf(name, None)
        return name

    def _evaluated(self, filter_: str, number: int, adapters: Mapping[str, str]) -> Round:
        dev = self._answered(self.request.evaluating(adapters))
        scores = Metrics.read(dev).scores
        return Round(filter=filter_, number=number, dev=str(dev), em=scores.em, f1=scores.f1)

    def _answered(self, words: Sequence[str]) -> Path:
        """The run's folder; its engines are closed, so that the next one has the machine to itself."""
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


def _filtered(collected: Collected, right: int) -> Estimate:
    figures = collected.figures
    return Estimate(mean=figures.get(FA), low=figures.get(FA + LOW), high=figures.get(FA + HIGH), n=right)


def _link(link: Path, target: Path) -> None:
    with storing(link):
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target.absolute(), link.parent.absolute()))
