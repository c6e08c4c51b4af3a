"""Calibrate a judge: compare its verdicts with labels, and correct the accuracy that it reports."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.evaluation import Calibration, LengthGroup
from kgqa.artifacts.metrics import UNDEFINED
from kgqa.artifacts.verdicts import RIGHT, WRONG, Judgement
from kgqa.errors import DataError
from kgqa.report.section import csv_text, unquote_formula
from kgqa.scoring.agreement import agreement
from kgqa.scoring.corrected import (
    FEWEST,
    Table,
    correct_by_own_labels,
    correct_by_rates,
    has_unusual_labels,
    kappa_interval,
    labels_to_halve,
    share,
)
from kgqa.scoring.questions import ScoredQuestion
from kgqa.util.digests import text_digest
from kgqa.util.fs import read_small_text
from kgqa.util.text import shorten

VALUES = {
    **dict.fromkeys(("1", "true", "yes", RIGHT), True),
    **dict.fromkeys(("0", "false", "no", WRONG), False),
}
LENGTHS = ((1, 2), (3, 5), (6, 15), (16, None))  # words of an answer
SHEET = ("run", "question_id", "question", "gold", "answer", "correct")
# characters of a wrong value in a message
MAX_SHOWN = 100
_COLUMNS = ("question_id", "run", "answer")
READ = (*_COLUMNS, "correct")
# whether the answer is right, by question
Labels = Mapping[str, bool]


@dataclass(frozen=True)
class Label:
    """A line of a file of labels. `run`, `answer`: "" if the file does not have the column."""

    place: str
    question_id: str
    correct: bool
    run: str
    answer: str


@dataclass(frozen=True)
class JudgedSet:
    """Answers of one run or file, with the verdicts of a judge."""

    name: str
    rows: Sequence[ScoredQuestion]
    verdicts: Mapping[str, Judgement]
    labels: Labels

    @property
    def judged(self) -> list[tuple[ScoredQuestion, bool]]:
        """Return the answers with a verdict, and whether the judge accepts them."""
        pairs = [(row, self.verdicts[row.id]) for row in self.rows if row.answer is not None]
        return [(row, line.share == 1) for row, line in pairs if line.share is not None]

    @property
    def failed(self) -> int:
        return sum(row.answer is None for row in self.rows)

    @property
    def pairs(self) -> list[tuple[bool, bool]]:
        """Return verdict and label of each labeled answer."""
        return [
            (accepted, self.labels[row.id])
            for row, accepted in self.judged
            if row.id in self.labels
        ]


def read_labels(file: Path) -> list[Label]:
    """Read a CSV file with the columns question_id and correct (1, 0, true, false, yes, no; empty: no label).

    It can have the columns run and answer. All others are ignored.

    Raises:
        DataError: a column is missing, a value is invalid, or there is no label. The message has the line.
    """
    labels = []
    try:
        with io.StringIO(read_small_text(file), newline="") as source:
            reader = csv.DictReader(source)
            counts = Counter(reader.fieldnames or ())
            # sheets of two people that were joined
            if repeated := [column for column in READ if counts[column] > 1]:
                raise DataError(f"{file}:1: two columns {repeated[0]}. Remove one of them")
            if not {"question_id", "correct"} <= counts.keys():
                columns = shorten(", ".join(reader.fieldnames or ()), MAX_SHOWN)
                raise DataError(
                    f"{file}:1: expected the columns question_id and correct, found: {columns}"
                )
            for row in reader:
                value, place = (row["correct"] or "").strip(), f"{file}:{reader.line_num}"
                if value and value.casefold() not in VALUES:
                    raise DataError(
                        f"{place}: correct={shorten(value, MAX_SHOWN)}: expected 1 or 0, "
                        "or an empty cell if there is no label"
                    )
                if value:
                    key, run, answer = (unquote_formula(row.get(name) or "") for name in _COLUMNS)
                    labels.append(Label(place, key, VALUES[value.casefold()], run, answer))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"labels={file}: cannot be read ({getattr(error, 'strerror', None) or error}). Name a CSV file in UTF-8"
        ) from error
    if not labels:
        raise DataError(f"{file}: no labels in this file. Fill the column correct with 1 or 0")
    return labels


def match_labels(
    labels: Iterable[Label], answers: Mapping[str, Sequence[ScoredQuestion]]
) -> dict[str, dict[str, bool]]:
    """Return the labels by source of the answers, and then by question.

    Raises:
        DataError: a label is of no answer, of another answer, or repeated, or the file does not say of which run it is.
    """
    matched: dict[str, dict[str, bool]] = {name: {} for name in answers}
    by_id = {name: {row.id: row for row in rows} for name, rows in answers.items()}
    for label in labels:
        name = _find_source(label, list(answers))
        row = by_id[name].get(label.question_id)
        if row is None:
            raise DataError(
                f"{label.place}: question {label.question_id}: not a question of {name}. Correct the id"
            )
        if label.answer and row.answer is not None and label.answer.split() != row.answer.split():
            raise DataError(
                f"{label.place}: question {row.id}: the label is of the answer {label.answer!r}, and {name} answers "
                f"{row.answer!r}. Label this answer, or remove the line"
            )
        if row.id in matched[name]:
            raise DataError(f"{label.place}: question {row.id} occurs twice. Remove one of them")
        matched[name][row.id] = label.correct
    return matched


def _is_same_folder(name: str, other: str) -> bool:
    try:
        return Path(name).resolve() == Path(other).resolve()
    except (OSError, ValueError, RuntimeError):
        # a null character or a loop of links
        return False


def _find_source(label: Label, names: Sequence[str]) -> str:
    if not label.run and len(names) > 1:
        raise DataError(
            f"{label.place}: of which run is this label? Add the column run, for example run={names[0]}"
        )
    matches = [name for name in names if not label.run or _is_same_folder(name, label.run)]
    if not matches:
        raise DataError(
            f"{label.place}: run={label.run}: not among the judged runs. Judge it in the same command"
        )
    return matches[0]


def calibrate(sets: Sequence[JudgedSet]) -> list[Calibration]:
    """Return the calibration of each set of answers. Sets without labels use the error rates of the labeled ones."""
    labeled = Table.count(pair for each in sets for pair in each.pairs)
    return [_calibrate(each, labeled) for each in sets]


def _calibrate(judged: JudgedSet, all_labels: Table) -> Calibration:
    pairs, answers = judged.pairs, judged.judged
    own, right, total = Table.count(pairs), sum(accepted for _, accepted in answers), len(answers)
    calibration = Calibration(
        answers=total,
        labels=len(pairs),
        source="own" if pairs else "other" if all_labels.total else None,
        # without any verdict, failed questions alone define no accuracy
        accuracy=share(right, total + judged.failed) if total else UNDEFINED,
        by_length=_by_length(answers, judged.labels),
    )
    if not all_labels.total or not total:
        return calibration
    used = own if pairs else all_labels
    calibration = calibration.replace(sensitivity=used.sensitivity, specificity=used.specificity)
    if not pairs:
        corrected = correct_by_rates(right, total, used, judged.failed)
        assumed = "corrected by labels of other runs: this assumes that the judge errs as often on these answers"
        return calibration.replace(corrected=corrected, warnings=(assumed,))
    texts = [tuple(RIGHT if each else WRONG for each in pair) for pair in pairs]
    agreed = agreement([verdict for verdict, _ in texts], [label for _, label in texts])
    low, high = kappa_interval(agreed) or (None, None)
    return calibration.replace(
        corrected=correct_by_own_labels(right, total, own, judged.failed),
        agreement=agreed,
        kappa=agreed.kappa,
        kappa_low=low,
        kappa_high=high,
        more_labels=labels_to_halve(right, total, own),
        warnings=tuple(_warn(right, total, own)),
    )


def _warn(right: int, total: int, labels: Table) -> Iterable[str]:
    if labels.total < FEWEST:
        yield f"only {labels.total} labels: with fewer than {FEWEST} the interval is not reliable"
    if has_unusual_labels(right, total, labels):
        yield (
            "the judge accepts another share of the labeled answers than of the others: they are probably no random "
            "sample. Sample the answers to label with --sheet"
        )


def _by_length(
    answers: Sequence[tuple[ScoredQuestion, bool]], labels: Labels
) -> tuple[LengthGroup, ...]:
    """Return the verdicts by the length of the answer. A judge that prefers long answers shows here."""
    groups = []
    for low, high in LENGTHS:
        group = [
            (row, accepted)
            for row, accepted in answers
            if len((row.answer or "").split()) >= (low if low > 1 else 0)
            and (high is None or len((row.answer or "").split()) <= high)
        ]
        verdicts = [labels[row.id] for row, _ in group if row.id in labels]
        if group:
            groups.append(
                LengthGroup(
                    words=f"{low} to {high}" if high else f"{low} and more",
                    judge=share(sum(accepted for _, accepted in group), len(group)),
                    em=share(sum(row.em == 1 for row, _ in group), len(group)),
                    labels=share(sum(verdicts), len(verdicts)),
                )
            )
    return tuple(groups)


def sample_sheet(answers: Mapping[str, Sequence[ScoredQuestion]], count: int, seed: int) -> str:
    """Return a CSV file with answers to label: a random sample of `count` of each source, in file order.

    All sources have the same questions in it if all answered them. Verdicts and scores are not shown to the annotator.
    """
    lines = [SHEET]
    for name, rows in answers.items():
        answered = [row for row in rows if row.answer is not None]
        order = sorted(answered, key=lambda row: text_digest(f"labels {seed} {row.id}"))
        sampled = {row.id for row in order[:count]}
        lines += [
            (name, row.id, row.question.text, row.question.answers[0], row.answer or "", "")
            for row in answered
            if row.id in sampled
        ]
    return csv_text(lines)
