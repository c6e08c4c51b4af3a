"""Score answers that are there already, a run's or those of others, and put them before a judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError
from kgqa.experiment.arguments import parse, refuse_other_keys
from kgqa.experiment.config.overrides import override_group
from kgqa.experiment.evaluate.answered import AnsweredQuestions, open_predictions, open_run
from kgqa.experiment.run.judging import Judged, judge_answers
from kgqa.experiment.session.session import Session
from kgqa.report.content import Section
from kgqa.report.evaluation import evaluation_sections
from kgqa.report.markdown import document
from kgqa.runtime.display import Display
from kgqa.runtime.folder import IDENTITY, VERDICTS, json_text, jsonl_text, replace_file, storing
from kgqa.scoring.summary import summarise
from kgqa.types import Json

USAGE = "kgqa evaluate RUN [profile=…] [judge=…], or kgqa evaluate --predictions FILE dataset=NAME [--subset]"
OF_SCORES = ("profile", "judge", "model", "engine", "roles", "seed", "width", "out")
OF_QUESTIONS = ("dataset", "limit", "ids")


@dataclass(frozen=True)
class Evaluation:
    """Scores of answers; nothing of it is on disk before `write`."""

    name: str
    figures: dict[str, Json]  # what evaluation.json says
    judged: Judged | None
    folder: Path | None  # to write into; None for predictions of others without `out=`

    def sections(self) -> list[Section]:
        return evaluation_sections(self.figures)

    def write(self) -> Path | None:
        """Into the folder, with the verdicts; gives evaluation.json."""
        if self.folder is None:
            return None
        with storing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        if self.judged:
            replace_file(self.folder / VERDICTS, jsonl_text(self.judged.lines))
        replace_file(self.folder / "evaluation.md", document(self.name, self.sections()))
        return replace_file(self.folder / "evaluation.json", json_text(self.figures))


def evaluate_run(run: Path, overrides: Sequence[str], display: Display) -> Evaluation:
    """A finished run's answers, by `profile=` if it is among the overrides.

    Raises:
        ConfigError: `out=` is the folder of another run.
        DataError: not the folder of a finished run.
    """
    with Session(overrides) as session:
        answered = open_run(run, session.settings.profile)
        folder = _own_folder(session, run) or run
        return Evaluation(answered.name, *scored(session, answered, overrides, display), folder)


def evaluate_predictions(file: Path, overrides: Sequence[str], display: Display, *, subset: bool) -> Evaluation:
    """Answers of others to a data set's questions; `subset`: to those of them that the file answers.

    Raises:
        ConfigError: `out=` is the folder of a run.
        DataError: the file is in no known format, or not for these questions.
    """
    with Session(overrides) as session:
        answered = open_predictions(file, session, subset=subset)
        folder = _own_folder(session, None)
        return Evaluation(answered.name, *scored(session, answered, overrides, display), folder)


def scored(
    session: Session, answered: AnsweredQuestions, overrides: Sequence[str], display: Display
) -> tuple[dict[str, Json], Judged | None]:
    """What evaluation.json says, and the verdicts if a judge was chosen."""
    rows = answered.rows()
    evaluation = {"source": answered.name, **summarise(rows, seed=session.settings.seed), "notes": _notes(answered)}
    if session.judge is None:
        return evaluation, None
    if answered.config is not None:
        session.config |= run_models(answered.config, overrides)
    texts = {question.id: question.text for question in answered.questions}
    judged = judge_answers(session, session.judge, rows, texts, answered.reader)
    return {**evaluation, "judge": judged.summary}, judged


def run_models(config: Any, overrides: Sequence[str]) -> dict[str, Any]:
    """The models of a run, where the command line names none of its own: a judge without a model is the reader."""
    named = {override_group(override) for override in overrides}
    return {} if named & {"model", "engine"} else {"model": config["model"], "engine": config["engine"]}


def _own_folder(session: Session, run: Path | None) -> Path | None:
    """What `out=` says."""
    if session.settings.out is None:
        return None
    out = Path(session.settings.out)
    if (out / IDENTITY).exists() and (run is None or not out.samefile(run)):
        raise ConfigError(f"out={out}: the folder of another run; give a folder of its own")
    return out


def _notes(answered: AnsweredQuestions) -> list[str]:
    if answered.config is not None:
        return []
    said = sum(answered.predictions[question.id].passages_of(question) is not None for question in answered.questions)
    counts = f"{len(answered.questions):,} questions scored, {len(answered.predictions):,} predictions in the file"
    return [f"{counts}; {said:,} of those scored say which passages they rest on."]


def evaluate(arguments: Sequence[str]) -> int:
    """Nothing is written before everything is scored, and only into the run's folder or `out=`."""
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.sections import print_sections

    given = parse(arguments, USAGE, ("--predictions", "--subset"))
    foreign, subset = "--predictions" in given.flags, "--subset" in given.flags
    if len(given.places) != 1 or (subset and not foreign):
        raise ConfigError(f"kgqa evaluate {' '.join(arguments)}: expected {USAGE}")
    refuse_other_keys(given.overrides, (*OF_SCORES, *OF_QUESTIONS) if foreign else OF_SCORES, USAGE)
    (source,) = given.places
    terminal = Terminal(width=120)
    if foreign:
        evaluation = evaluate_predictions(source, given.overrides, terminal, subset=subset)
    else:
        evaluation = evaluate_run(source, given.overrides, terminal)
    print_sections(terminal, evaluation.name, evaluation.sections())
    if written := evaluation.write():
        terminal.line(f"evaluation: {written}")
    return 0
