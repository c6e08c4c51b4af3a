"""`kgqa evaluate`: score answers that are there already, a run's or those of others, and put them before a judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError
from kgqa.experiment.config.overrides import override_group
from kgqa.experiment.evaluate.answered import Answered, open_predictions, open_run
from kgqa.experiment.run.judging import Judged, judge_answers
from kgqa.experiment.session.session import Session
from kgqa.report.evaluation import evaluation_sections, print_sections
from kgqa.report.markdown import document
from kgqa.runtime.folder import IDENTITY, VERDICTS
from kgqa.scoring.summary import summarise
from kgqa.storage import OUT_ELSEWHERE, json_text, jsonl_text, replace_file, storing
from kgqa.types import Json


def evaluate(source: Path, overrides: Sequence[str], *, foreign: bool, subset: bool) -> int:
    """Nothing is written before everything is scored, and only into the run's folder or `out=`.

    foreign: `source` is a file of predictions, no run. subset: only the questions that it has.
    """
    with Session(overrides) as session:
        if foreign:
            answered = open_predictions(source, session, subset=subset)
        else:
            answered = open_run(source, session.settings.profile)
        target = _target(session, None if foreign else source)
        evaluation, judged = scored(session, answered, overrides)
        sections = evaluation_sections(evaluation)
        print_sections(session.console, answered.name, sections)
        if target is not None:
            with storing(target, OUT_ELSEWHERE):
                target.mkdir(parents=True, exist_ok=True)
            if judged:
                replace_file(target / VERDICTS, jsonl_text(judged.lines))
            replace_file(target / "evaluation.md", document(answered.name, sections))
            written = replace_file(target / "evaluation.json", json_text(evaluation))
            session.console.print(f"evaluation: {written}", highlight=False, markup=False, soft_wrap=True)
    return 0


def scored(session: Session, answered: Answered, overrides: Sequence[str]) -> tuple[dict[str, Json], Judged | None]:
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


def _target(session: Session, run: Path | None) -> Path | None:
    """The folder to write into; None for predictions of others without `out=`."""
    if session.settings.out is None:
        return run
    out = Path(session.settings.out)
    if (out / IDENTITY).exists() and (run is None or not out.samefile(run)):
        raise ConfigError(f"out={out}: the folder of another run; give a folder of its own")
    return out


def _notes(answered: Answered) -> list[str]:
    if answered.config is not None:
        return []
    said = sum(answered.predictions[question.id].passages_of(question) is not None for question in answered.questions)
    counts = f"{len(answered.questions):,} questions scored, {len(answered.predictions):,} predictions in the file"
    return [f"{counts}; {said:,} of those scored say which passages they rest on."]
