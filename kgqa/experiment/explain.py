"""Explain the wrong answers of a run: their causes and signs, next to those of a baseline on the same questions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artifacts.metrics import UNDEFINED, Estimate
from kgqa.artifacts.trace import TracedCall, TracedQuestion, read_trace
from kgqa.experiment.compare import (
    collect_verdicts,
    count_questions,
    name_runs,
    open_rows,
    show_folders,
)
from kgqa.experiment.evaluate import AnsweredQuestions
from kgqa.report.columns import JUDGE_ACCURACY
from kgqa.report.evaluation import MCNEMAR, difference_text, p_text, short_difference_text
from kgqa.report.page import Tables
from kgqa.report.section import MarkedCell, Section, Value, markdown
from kgqa.scoring.citations import CitationScores, cite_passages, cite_sentences
from kgqa.scoring.comparison import ALPHA, Difference, explain_direction
from kgqa.scoring.intervals import estimate
from kgqa.scoring.normalization import normalize
from kgqa.scoring.questions import METRICS, Metric, ScoredQuestion, find_failed_metrics
from kgqa.scoring.repeats import Rows, compare_rows, repeated_estimate
from kgqa.scoring.summary import UNKNOWN
from kgqa.types import Json
from kgqa.util.fs import replace_file
from kgqa.util.text import pluralize, score_text

CAUSES = {
    "right": "exact match",
    "failed": "the question failed",
    "no answer": "empty, or an abstention",
    "format": "the answer contains a gold answer, but is longer or has another form",
    "no evidence": "wrong, and no passage was used: the method does not search, or found none",
    "retrieval": "wrong, and a gold passage is not among the evidence",
    "reading": "wrong, although all gold passages are among the evidence, or the evidence is unknown",
}
SIGNS = {
    "abstained": "says that there is no answer",
    "cut": "the last reply or the context was truncated",
    "forced": "the method forced the answer at its limit",
    "echo": "wrong, and found only in the part of the prompt that all questions share, such as its demonstrations",
    "yes or no": "yes or no to a question with wh-words and another gold answer",
}
DIFFERENCES = (
    "Differences in points. p of N: {test}, with Holm's correction over N tests, the rows of the table that occur. "
    "*: p < {alpha:g}. The row right is EM. kgqa compare corrects it together with other scores, so that p can differ."
)
ONCE = "Percent of all questions, with Wilson's 95 % intervals."
REPEATS = "Percent of the answers of all repeats. Intervals (95 %) and tests contain the spread between them."
EXAMPLES = 3
# to see what the prompts of all questions share
FEWEST_PROMPTS = 3
MOST_PROMPTS = 50
_WH = re.compile(r"\b(what|which|who|whom|whose|where|when|why|how)\b", re.IGNORECASE)
_CLOSED = {"yes", "no"}


@dataclass(frozen=True)
class Explained:
    """A question of the run with its cause and its signs."""

    row: ScoredQuestion
    cause: str
    signs: frozenset[str]
    passages: CitationScores
    sentences: CitationScores
    # by the judge. None: no verdict
    verdict: float | None

    def has(self, name: str) -> bool:
        return name == self.cause or name in self.signs


# a share, None: the question does not define it
Measure = Callable[[Explained], float | None]
# the questions of a run, or of each of its repeats, in the same order
Side = Sequence[Sequence[Explained]]


class Explanation(Tables):
    """The causes of wrong answers."""

    @property
    def rows(self) -> list[dict[str, Json]]:
        """Return one row per row of the tables: the title of its `table`, its `name` and its other cells by column.

        A score is in percent, and its interval is in `percent_low` and `percent_high`. Differences are texts.
        """
        return [
            {"table": section.title, **dict(_read_cells(section.header, cells))}
            for section in self.sections
            if not isinstance(section.values, Mapping)
            for cells in section.values
        ]

    def write(self, folder: Path) -> Path:
        """Write explain.md into a run's folder."""
        title, *notices = self.heading.split("\n")
        return replace_file(
            folder / "explain.md", markdown(title, [Section("", (), ()), *self.sections], notices)
        )


def _read_cells(header: Sequence[str], cells: Sequence[Value]) -> Iterator[tuple[str, Json]]:
    """Yield the cells of a row by column, with three of an estimate."""
    # below the name of a column can be the number of its tests
    columns = ["name", *(column.partition("\n")[0] for column in header[1:])]
    for column, cell in zip(columns, cells, strict=True):
        if isinstance(cell, Estimate):
            yield column, cell.mean
            yield from ((f"{column}_low", cell.low), (f"{column}_high", cell.high))
        else:
            yield column, cell


def explain(
    folders: Sequence[Path],
    baseline: Sequence[Path] = (),
    profile: str | None = None,
    *,
    seed: int = 0,
) -> Explanation:
    """Explain a run, and compare each share with that of a baseline on the questions that both have.

    folders, baseline: of a run, or of all its repeats: their means are compared as by `compare_rows`.

    Raises:
        ConfigError: the runs have no question in common, or different profiles.
        DataError: one is not the folder of a finished run.
    """
    opened = open_rows([row for row in (folders, baseline) if row], profile)
    named = name_runs(opened, common=True)
    runs = dict(zip(("the run", "the baseline"), named.values(), strict=False))
    judged, notes = collect_verdicts(runs)
    explained = [
        [
            explain_answers(run, judged[name][place] if judged else None)
            for place, run in enumerate(repeats)
        ]
        for name, repeats in runs.items()
    ]
    first = runs["the run"][0]
    heading = [
        f"{show_folders(runs['the run'])}: {count_questions(named)}, profile {first.profile}"
    ]
    if baseline:
        shared = _describe_shared([repeats[0] for repeats in opened], len(first.questions))
        heading.append(f"baseline: {show_folders(runs['the baseline'])}, on {shared}")
    heading += notes
    heading += [
        f"warning: {show_folders(simulated)}{simulated[0].simulation_note}"
        for repeats in runs.values()
        if (simulated := [run for run in repeats if run.simulation_note])
    ]
    sections = [
        *_shares_sections(explained, folders, seed),
        *_citation_sections(explained, seed),
        *_group_sections(explained, seed),
    ]
    # the scores of groups have called the metrics
    answers = (each.row for each in _flatten(explained))
    heading += [f"warning: {failure}" for failure in find_failed_metrics(answers).values()]
    return Explanation("\n".join(heading), sections)


def _describe_shared(opened: Sequence[AnsweredQuestions], shared: int) -> str:
    """Return the number of questions that both runs have, if they have others too."""
    own, other = (len(run.questions) for run in opened)
    if own == other == shared:
        return "the same questions"
    return f"the {pluralize(shared, 'question')} that both have: {shared:,} of {own:,} and of {other:,}"


def explain_answers(
    run: AnsweredQuestions, verdicts: Sequence[float | None] | None = None
) -> list[Explained]:
    """Return the cause and the signs of each answer, in the order of the questions. verdicts: shares by the judge."""
    last, cited = dict[str, TracedCall](), dict[str, tuple[CitationScores, CitationScores]]()
    for traced in read_trace(Path(run.name)):
        cited[traced.question.id] = (cite_passages(traced), cite_sentences(traced))
        if call := _last_reply(traced):
            last[traced.question.id] = call
    if not any(row.prediction.evidence for row in run.scored):
        # as in tables: a method that reads no passages has no scores of them
        cited = {key: (CitationScores(), sentences) for key, (_, sentences) in cited.items()}
    shared = _find_parts(last.values())
    return [
        Explained(
            row,
            find_cause(row),
            frozenset(_find_signs(row, last.get(row.id), shared)),
            *cited[row.id],
            verdict,
        )
        for row, verdict in zip(run.scored, verdicts or [None] * len(run.questions), strict=True)
    ]


def find_cause(row: ScoredQuestion) -> str:
    """Return the first of `CAUSES` that applies to an answer."""
    if row.em == 1:
        return "right"
    if row.answer is None:
        return "failed"
    if not row.answer.strip() or row.abstained:
        return "no answer"
    if row.containment:
        return "format"
    # without used passages it is 0
    if row.support.recall is not None and row.support.precision is None:
        return "no evidence"
    return "retrieval" if row.support.recall is not None and row.support.recall < 1 else "reading"


def _find_signs(
    row: ScoredQuestion, last: TracedCall | None, shared: Mapping[str, str]
) -> Iterable[str]:
    if row.answer is None:
        return
    marks = [
        *row.prediction.flags,
        *(name for name, value in row.prediction.figures.items() if value),
    ]
    if row.abstained and row.answer.strip():
        yield "abstained"
    if any("cut" in mark or "truncated" in mark for mark in row.prediction.flags) or (
        last and _is_cut(last)
    ):
        yield "cut"
    if any("forced" in mark for mark in marks):
        yield "forced"
    if answers_yes_no(row):
        yield "yes or no"
    elif (
        last
        and row.em < 1
        and not row.containment
        and is_echo(row.answer, _prompt(last), shared[_template(last)])
    ):
        yield "echo"


def answers_yes_no(row: ScoredQuestion) -> bool:
    """Return whether the answer is yes or no, and the question is not one that can have such an answer."""
    golds = {normalize(gold) for gold in row.question.answers}
    is_closed = normalize(row.answer or "") in _CLOSED
    return is_closed and not golds & _CLOSED and _WH.search(row.question.text) is not None


def is_echo(answer: str, prompt: str, shared: str) -> bool:
    """Return whether an answer occurs in the shared start of the prompts, and not in the rest of its own prompt."""
    words = f" {normalize(answer)} "
    if len(words) < 5 or not prompt.startswith(shared):
        return False
    return (
        words in f" {normalize(shared)} " and words not in f" {normalize(prompt[len(shared) :])} "
    )


def _find_parts(calls: Iterable[TracedCall]) -> dict[str, str]:
    """Return the start that the prompts of a template share, "" for few prompts."""
    prompts: dict[str, list[str]] = {}
    for call in calls:
        prompts.setdefault(_template(call), []).append(_prompt(call))
    return {
        template: _common_start(texts[:MOST_PROMPTS]) if len(texts) >= FEWEST_PROMPTS else ""
        for template, texts in prompts.items()
    }


def _common_start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    length = next(
        (n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other),
        len(first),
    )
    return first[:length]


def _last_reply(traced: TracedQuestion) -> TracedCall | None:
    """Return the call with the last generated text."""
    calls = [call for call in traced.calls if call.kind == "generate" and call.error is None]
    return max(calls, key=lambda call: call.path, default=None)


def _is_cut(call: TracedCall) -> bool:
    return bool(call.reply.get("finish") == "length")


def _template(call: TracedCall) -> str:
    return call.template or ""


def _prompt(call: TracedCall) -> str:
    return "\n".join(str(message[1]) for message in call.request["prompt"]["messages"])


def _shares_sections(
    explained: Sequence[Side], folders: Sequence[Path], seed: int
) -> list[Section]:
    """Return the tables of causes and of signs, with what both have in common below the second one."""
    causes = _shares_section("Causes, one per question", CAUSES, explained, folders, seed)
    signs = _shares_section("Signs, any number per question", SIGNS, explained, folders, seed)
    has_repeats = any(len(side) > 1 for side in explained)
    text = REPEATS if has_repeats else ONCE
    if len(explained) > 1:
        test = "the paired test of kgqa compare" if has_repeats else MCNEMAR
        text += f" {DIFFERENCES.format(test=test, alpha=ALPHA)}"
    return [causes, replace(signs, text=(text, *_show_example(explained[0], folders)))]


def _shares_section(
    title: str,
    names: Mapping[str, str],
    explained: Sequence[Side],
    folders: Sequence[Path],
    seed: int,
) -> Section:
    """Return a row per name: its share, the baseline's share and the difference, and examples with links."""
    own, *others = explained
    differences = _differences(names, own, others[0], seed) if others else {}
    rows = []
    for name, meaning in names.items():
        count = sum(each.has(name) for run in own for each in run)
        estimates = [_estimate(_measure(side, _has(name))) for side in explained]
        row: list[Value] = [name, count, *estimates]
        if others:
            row.append(show_difference(differences.get(name)))
        folder, ids = _find_examples(own, folders, name)
        link = f"{folder.resolve().as_posix()}/report.html#q={ids[0]}" if ids else ""
        rows.append((*row, MarkedCell(", ".join(ids), link=link), meaning))
    header = [
        "",
        "questions" if len(own) == 1 else "answers",
        "percent",
        *(["baseline", f"difference\n(p of {len(differences)})"] if others else []),
        "examples",
        "meaning",
    ]
    meanings = [
        f"{name}: {meaning}"
        for name, meaning in names.items()
        if name != "right" and any(each.has(name) for each in _flatten(explained))
    ]
    return Section(title, header, rows, optional=2, instead={"meaning": meanings})


def _find_examples(side: Side, folders: Sequence[Path], name: str) -> tuple[Path, list[str]]:
    """Return the first questions with a cause or sign, of the first repeat with one, and its folder."""
    matches = [[each.row.id for each in run if each.has(name)] for run in side]
    examples = zip(folders, matches, strict=True)
    folder, ids = next((each for each in examples if each[1]), (folders[0], []))
    return folder, ids[:EXAMPLES] if name != "right" else []


def _show_example(side: Side, folders: Sequence[Path]) -> list[str]:
    """Return the command that shows the first example, if there are examples."""
    for name in (*CAUSES, *SIGNS):
        folder, ids = _find_examples(side, folders, name)
        if ids:
            command = shlex.join(["kgqa", "show", str(folder), ids[0]])
            return [f"Links open questions in the report. To show one here: {command}"]
    return []


def _has(name: str) -> Measure:
    return lambda each: float(each.has(name))


def _flatten(sides: Iterable[Side]) -> list[Explained]:
    return [each for side in sides for run in side for each in run]


def _measure(side: Side, measure: Measure) -> Rows:
    return [list(map(measure, run)) for run in side]


def _estimate(rows: Rows) -> Estimate:
    """Return the mean of a run, or of its repeats with the spread between them in its interval."""
    if len(rows) == 1:
        return estimate(rows[0])
    repeated = repeated_estimate(
        [{f"{place}": share for place, share in enumerate(row)} for row in rows]
    )
    return repeated.estimate if repeated else UNDEFINED


def _differences(names: Iterable[str], own: Side, other: Side, seed: int) -> dict[str, Difference]:
    """Return the tested differences. Names that occur in neither run cannot differ, so that they are no tests."""
    shares = {
        name: {
            "run": _measure(own, _has(name)),
            "baseline": _measure(other, _has(name)),
        }
        for name in names
        if any(each.has(name) for each in _flatten([own, other]))
    }
    return {difference.metric: difference for difference in compare_rows(shares, seed)}


def show_difference(difference: Difference | None) -> str:
    """Return a difference in points with its corrected p-value, marked if it is significant."""
    if difference is None:
        return "–"
    mark = "*" if difference.significant else ""
    return f"{score_text(difference.difference, '+')} (p {p_text(difference.adjusted, difference.alpha)}){mark}"


def _citation_sections(explained: Sequence[Side], seed: int) -> list[Section]:
    """Return precision and recall of the cited passages and sentences of the run, and of the baseline."""
    measures: dict[str, Measure] = {
        "passages: precision": lambda each: each.passages.precision,
        "passages: recall": lambda each: each.passages.recall,
        "sentences: precision": lambda each: each.sentences.precision,
        "sentences: recall": lambda each: each.sentences.recall,
    }
    rows = _measure_rows(measures, explained, seed)
    header = ("", "questions", "percent", *_list_compared(explained))
    text = (
        "Cited passages are those of the chains, or the evidence of a method without chains. Cited sentences share "
        "most words with a triple of the chains. Both are compared with the gold facts of the question."
    )
    texts = (text, *_explain_differences(explained))
    return [Section("Citations", header, rows, texts)] if rows else []


def _list_compared(explained: Sequence[Side]) -> list[str]:
    """Return the columns of a baseline, if there is one."""
    return ["baseline", "difference"] if len(explained) > 1 else []


def _explain_differences(explained: Sequence[Side]) -> list[str]:
    text = (
        "Each row is over the questions that define both. Differences are in points with 95 % intervals, and not "
        "tested."
    )
    return [text] if len(explained) > 1 else []


def _measure_rows(
    measures: Mapping[str, Measure], explained: Sequence[Side], seed: int
) -> list[tuple[Value, ...]]:
    """Return a row per measure that the run defines: its questions, its percent, and those of the baseline."""
    rows: list[tuple[Value, ...]] = []
    for name, measure in measures.items():
        shares = _choose_defined([_measure(side, measure) for side in explained])
        own, *others = map(_estimate, shares)
        if own.n:
            rows_of = {name: dict(zip("AB", shares, strict=False))}
            compared = compare_rows(rows_of, seed) if others else []
            differences = [_brief_difference(compared[0]) if compared else None] if others else []
            rows.append((name, own.n, own, *others, *differences))
    return rows


def _choose_defined(sides: Sequence[Rows]) -> Sequence[Rows]:
    """Return the shares of the questions that all sides define, so that a difference is that of the means next to it.

    If there are none, return all shares.
    """
    columns = zip(*(row for rows in sides for row in rows), strict=True)
    places = [place for place, column in enumerate(columns) if None not in column]
    if not places:
        return sides
    return [[[row[place] for place in places] for row in rows] for rows in sides]


def _brief_difference(difference: Difference) -> MarkedCell:
    return MarkedCell(difference_text(difference), brief=short_difference_text(difference))


def _group_sections(explained: Sequence[Side], seed: int) -> list[Section]:
    """Return the scores and the causes by hops and by type, next to those of a baseline."""
    groupings: dict[str, Callable[[ScoredQuestion], object]] = {
        "hops": lambda row: row.question.hops,
        "type": lambda row: row.question.type,
    }
    sections = []
    for name, group_of in groupings.items():
        groups: dict[str, list[int]] = {}
        for place, each in enumerate(explained[0][0]):
            groups.setdefault(str(group_of(each.row) or UNKNOWN), []).append(place)
        if len(groups) > 1:
            sides = {
                group: [
                    [[run[place] for place in groups[group]] for run in side] for side in explained
                ]
                for group in sorted(groups)
            }
            sections.append(_groups_section(name, sides, seed))
    directions = explain_direction(row[0] for section in sections for row in section.rows)
    if directions:
        sections[-1] = replace(sections[-1], text=(*sections[-1].text, *directions))
    return sections


def _list_scores(explained: Sequence[Explained]) -> dict[str, Measure]:
    """Return EM, F1, your own metrics and the accuracy of the judge, if the questions define them."""

    def measure(metric: Metric) -> Measure:
        return lambda each: metric.share(each.row)

    scores = {metric.title: measure(metric) for metric in METRICS.values() if metric.tested}
    scores[JUDGE_ACCURACY] = lambda each: each.verdict
    return {
        label: score
        for label, score in scores.items()
        if any(score(each) is not None for each in explained)
    }


def _list_causes(explained: Sequence[Explained]) -> dict[str, Measure]:
    """Return the causes of wrong answers that occur in some run."""

    def measure(cause: str) -> Measure:
        return lambda each: float(each.cause == cause)

    causes = {each.cause for each in explained}
    return {cause: measure(cause) for cause in CAUSES if cause in causes and cause != "right"}


def _groups_section(name: str, sides: Mapping[str, Sequence[Side]], seed: int) -> Section:
    """Return a row per score or cause and group, next to that of a baseline and the difference."""
    every = [each for group in sides.values() for each in _flatten(group)]
    rows = [
        (label, group, *row)
        for label, measure in {**_list_scores(every), **_list_causes(every)}.items()
        for group, side in sides.items()
        for _, *row in _measure_rows({label: measure}, side, seed)
    ]
    any_side = next(iter(sides.values()))
    questions = MarkedCell("questions", brief="n")
    header = ("score or cause", name, questions, "percent", *_list_compared(any_side))
    texts = (
        "Causes: percent of the questions.",
        *_explain_differences(any_side),
    )
    return Section(f"By {name}", header, rows, texts)
