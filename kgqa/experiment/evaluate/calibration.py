"""Measure how well a judge agrees with exact match, another judge and humans."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.metrics import Agreement
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.verdicts import RIGHT, WRONG, Judgement, judge_of, read_verdicts
from kgqa.config.files import groups
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.experiment.evaluate.answered import AnsweredQuestions, open_run
from kgqa.experiment.evaluate.evaluation import score_run
from kgqa.experiment.session.experiment import Experiment
from kgqa.report.content import Section, agreement_section
from kgqa.report.spreadsheet import text_of
from kgqa.runtime.display import Display
from kgqa.scoring.agreement import agreement
from kgqa.util.fs import json_text, replace_file

HUMAN = {**dict.fromkeys(("1", "true", "yes", RIGHT), RIGHT), **dict.fromkeys(("0", "false", "no", WRONG), WRONG)}
Labels = Mapping[str, str | None]


@dataclass(frozen=True)
class Calibration:
    """Agreement of a run's judge with each of the others: percent, kappa and confusion."""

    run: Path
    judge: str
    agreements: Mapping[str, Agreement]  # by whom it was compared with

    def sections(self) -> list[Section]:
        return [_section(name, agreement) for name, agreement in self.agreements.items()]

    def write(self) -> Path:
        """Return calibration.json, in the run's folder."""
        return replace_file(self.run / "calibration.json", json_text({"judge": self.judge, **as_json(self.agreements)}))


def calibrate_judge(
    folder: Path, human: Path | None, other: str | None, overrides: Sequence[str], display: Display
) -> Calibration:
    """Return the run's verdicts against exact match, and people's or another judge's if they are given.

    human: a file of verdicts, see `read_human`. other: another run's folder, or a judge, asked now as the overrides
    say.

    Raises:
        ConfigError: `other` is neither, or is judged already and overrides are given.
        DataError: the run was not judged, or is judged no longer as it answers.
    """
    run = open_run(folder)
    verdicts = read_verdicts(folder)
    mine = _labels(run, verdicts, folder)
    others: dict[str, Labels] = {"EM": _exact(run)}
    if other is not None:
        others["second judge"] = _second(run, other, overrides, display)
    if human is not None:
        others["human"] = read_human(human, {question.id for question in run.questions})
    ids = [question.id for question in run.questions]
    judged = [mine[key] for key in ids]
    agreements = {name: agreement(judged, [labels.get(key) for key in ids]) for name, labels in others.items()}
    return Calibration(folder, judge_of(verdicts), agreements)


def read_human(file: Path, known: set[str]) -> dict[str, str | None]:
    """Return a CSV with the columns question_id and correct (1, 0, true, false, yes, no); an empty cell is no verdict.

    Raises:
        DataError: naming file:line: a column is missing, an id unknown or there twice, or a verdict none of these.
    """
    verdicts: dict[str, str | None] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as source:
            reader = csv.DictReader(source)
            if not {"question_id", "correct"} <= set(reader.fieldnames or ()):
                raise DataError(f"{file}:1: the columns question_id and correct are wanted, not {reader.fieldnames}")
            for row in reader:
                where, key, verdict = (
                    f"{file}:{reader.line_num}",
                    text_of(row["question_id"] or ""),
                    (row["correct"] or "").strip(),
                )
                if key not in known:
                    raise DataError(f"{where}: question {key}: not a question of this run; correct the id")
                if key in verdicts:
                    raise DataError(f"{where}: question {key} is there twice; remove one of them")
                if verdict and verdict.casefold() not in HUMAN:
                    raise DataError(
                        f"{where}: correct={verdict}: expected 1 or 0, or nothing where there is no verdict"
                    )
                verdicts[key] = HUMAN[verdict.casefold()] if verdict else None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"human={file}: cannot be read ({error}); name a CSV file in UTF-8") from error
    if not any(verdicts.values()):
        raise DataError(f"{file}: no verdicts in this file")
    return verdicts


def _second(run: AnsweredQuestions, other: str, overrides: Sequence[str], display: Display) -> Labels:
    """Return the verdicts of another judge on the same answers: kept in a folder, or given now."""
    if Path(other).is_dir():
        if overrides:
            raise ConfigError(f"{overrides[0]}: other={other} is judged already; leave it out, or name a judge")
        return _labels(run, read_verdicts(Path(other)), Path(other))
    if other not in groups()["judge"]:
        raise ConfigError(f"other={other}: neither a run's folder nor a judge; {nearest(other, groups()['judge'])}")
    _, judged = score_run(Experiment.of([f"judge={other}", *overrides]), run, display)
    assert judged is not None
    return _labels(run, {line.question_id: line for line in judged.lines}, Path(other))


def _labels(run: AnsweredQuestions, verdicts: Mapping[str, Judgement], source: Path) -> dict[str, str | None]:
    """Return right or wrong by question; None where unscored, failed, or taken for correct without being sent.

    Raises:
        DataError: a question was not judged, or has another answer now.
    """
    labels: dict[str, str | None] = {}
    for row in run.rows():
        line = verdicts.get(row.id)
        if line is None or line.answer != row.answer:
            wrong = "no verdict on" if line is None else "another answer was judged for"
            raise DataError(f"{source}: {wrong} question {row.id}; judge it again: kgqa evaluate RUN judge=…")
        labels[row.id] = line.label
    return labels


def _exact(run: AnsweredQuestions) -> Labels:
    return {row.id: RIGHT if row.em else WRONG for row in run.rows()}


def _section(name: str, measured: Agreement) -> Section:
    section = agreement_section(f"Judge against {name}", ("judge", name), measured)
    return section if section.rows else Section(section.title, (), [("nothing to compare", "")], section.text)
