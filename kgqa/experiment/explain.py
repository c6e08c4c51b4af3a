"""Explain the wrong answers of a run: their causes and signs, next to those of a baseline on the same questions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artifacts.trace import TracedCall, TracedQuestion, read_trace
from kgqa.experiment.compare import collect_verdicts, share_questions
from kgqa.experiment.evaluate import AnsweredQuestions, open_run
from kgqa.report.columns import JUDGE_ACCURACY
from kgqa.report.evaluation import difference_text, p_text
from kgqa.report.page import Tables
from kgqa.report.section import MarkedCell, Section, Value, markdown
from kgqa.scoring.citations import CitationScores, cite_passages, cite_sentences
from kgqa.scoring.comparison import Difference, compare, explain_direction
from kgqa.scoring.corrected import share
from kgqa.scoring.intervals import estimate
from kgqa.scoring.normalisation import normalise
from kgqa.scoring.questions import METRICS, Metric, ScoredQuestion
from kgqa.scoring.summary import UNKNOWN
from kgqa.util.fs import replace_file
from kgqa.util.text import pluralize

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
    "Differences in points. p: McNemar's test, with Holm's correction over the rows that occur."
)
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


class Explanation(Tables):
    """The causes of wrong answers."""

    def write(self, folder: Path) -> Path:
        """Write explain.md into a run's folder."""
        title, *notices = self.heading.split("\n")
        return replace_file(
            folder / "explain.md", markdown(title, [Section("", (), ()), *self.sections], notices)
        )


def explain(folder: Path, baseline: Path | None = None, *, seed: int = 0) -> Explanation:
    """Explain a run, and compare each share with that of a baseline on the questions that both have.

    Raises:
        ConfigError: the runs have no question in common.
        DataError: one is not the folder of a finished run.
    """
    opened = [open_run(place) for place in (folder, *([baseline] if baseline else []))]
    runs = share_questions(opened, common=True)
    sides = dict(zip(("the run", "the baseline"), [[run] for run in runs], strict=False))
    judged, notes = collect_verdicts(sides)
    verdicts = [rows[0] for rows in judged.values()] if judged else [None] * len(runs)
    explained = list(map(explain_answers, runs, verdicts))
    heading = [
        f"{folder}: {pluralize(len(runs[0].questions), 'question')}, profile {runs[0].profile}"
    ]
    if baseline:
        heading.append(
            f"baseline: {baseline}, on {_describe_shared(opened, len(runs[0].questions))}"
        )
    heading += notes
    heading += [f"warning: {run.name}{run.simulation_note}" for run in runs if run.simulation_note]
    sections = [
        *_shares_sections(explained, folder, seed),
        *_citation_sections(explained, seed),
        *_group_sections(explained, seed),
    ]
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
    shared = _find_parts(last.values())
    return [
        Explained(
            row,
            find_cause(row),
            frozenset(_find_signs(row, last.get(row.id), shared)),
            *cited[row.id],
            # the judge's accuracy counts a failed question as wrong
            0.0 if verdicts and row.answer is None else verdict,
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
    golds = {normalise(gold) for gold in row.question.answers}
    is_closed = normalise(row.answer or "") in _CLOSED
    return is_closed and not golds & _CLOSED and _WH.search(row.question.text) is not None


def is_echo(answer: str, prompt: str, shared: str) -> bool:
    """Return whether an answer occurs in the shared start of the prompts, and not in the rest of its own prompt."""
    words = f" {normalise(answer)} "
    if len(words) < 5 or not prompt.startswith(shared):
        return False
    return (
        words in f" {normalise(shared)} " and words not in f" {normalise(prompt[len(shared) :])} "
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
    explained: Sequence[Sequence[Explained]], folder: Path, seed: int
) -> list[Section]:
    """Return the tables of causes and of signs, with what both have in common below the second one."""
    causes = _shares_section("Causes, one per question", CAUSES, explained, folder, seed)
    signs = _shares_section("Signs, any number per question", SIGNS, explained, folder, seed)
    text = "Percent of all questions, with Wilson's 95 % intervals."
    if len(explained) > 1:
        text += f" {DIFFERENCES}"
    column = causes.header.index("examples")
    ids = [id_ for row in (*causes.rows, *signs.rows) for id_ in row[column].split(", ") if id_]
    return [causes, replace(signs, text=(text, *_show_example(folder, ids)))]


def _shares_section(
    title: str,
    names: Mapping[str, str],
    explained: Sequence[Sequence[Explained]],
    folder: Path,
    seed: int,
) -> Section:
    """Return a row per name: its share, the baseline's share and the difference, and examples with links."""
    own, *others = explained
    differences = _differences(names, own, others[0], seed) if others else {}
    rows = []
    for name, meaning in names.items():
        matches = [each for each in own if each.has(name)]
        row: list[Value] = [name, len(matches), share(len(matches), len(own))]
        if others:
            row += [
                share(sum(each.has(name) for each in others[0]), len(own)),
                show_difference(differences.get(name)),
            ]
        ids = [each.row.id for each in matches[:EXAMPLES]] if name != "right" else []
        link = f"{folder.resolve().as_posix()}/report.html#q={ids[0]}" if ids else ""
        rows.append((*row, MarkedCell(", ".join(ids), link=link), meaning))
    header = [
        "",
        "questions",
        "percent",
        *(["baseline", "difference"] if others else []),
        "examples",
        "meaning",
    ]
    meanings = [
        f"{name}: {meaning}"
        for name, meaning in names.items()
        if name != "right" and any(each.has(name) for side in explained for each in side)
    ]
    return Section(title, header, rows, optional=2, instead={"meaning": meanings})


def _show_example(folder: Path, ids: Sequence[str]) -> list[str]:
    """Return the command that shows the first example, if there are examples."""
    if not ids:
        return []
    command = shlex.join(["kgqa", "show", str(folder), ids[0]])
    return [f"Links open questions in the report. To show one here: {command}"]


def _differences(
    names: Iterable[str], own: Sequence[Explained], other: Sequence[Explained], seed: int
) -> dict[str, Difference]:
    """Return the tested differences. Names that occur in neither run cannot differ, so that they are no tests."""
    shares = {
        name: {
            "run": [float(each.has(name)) for each in own],
            "baseline": [float(each.has(name)) for each in other],
        }
        for name in names
        if any(each.has(name) for each in (*own, *other))
    }
    return {difference.metric: difference for difference in compare(shares, seed)}


def show_difference(difference: Difference | None) -> str:
    """Return a difference in points with its corrected p-value, marked if it is significant."""
    if difference is None:
        return "–"
    mark = "*" if difference.significant else ""
    return f"{difference.difference:+.1f} (p {p_text(difference.adjusted)}){mark}"


def _citation_sections(explained: Sequence[Sequence[Explained]], seed: int) -> list[Section]:
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


def _list_compared(explained: Sequence[Sequence[Explained]]) -> list[str]:
    """Return the columns of a baseline, if there is one."""
    return ["baseline", "difference"] if len(explained) > 1 else []


def _explain_differences(explained: Sequence[Sequence[Explained]]) -> list[str]:
    text = "Differences in points with 95 % intervals, over the questions that define both. They are not tested."
    return [text] if len(explained) > 1 else []


def _measure_rows(
    measures: Mapping[str, Measure], explained: Sequence[Sequence[Explained]], seed: int
) -> list[tuple[Value, ...]]:
    """Return a row per measure that the run defines: its questions, its percent, and those of the baseline."""
    rows: list[tuple[Value, ...]] = []
    for name, measure in measures.items():
        shares = [list(map(measure, questions)) for questions in explained]
        own, *others = map(estimate, shares)
        if own.n:
            compared = compare({name: dict(zip("AB", shares, strict=True))}, seed) if others else []
            differences = [_brief_difference(compared[0]) if compared else None] if others else []
            rows.append((name, own.n, own, *others, *differences))
    return rows


def _brief_difference(difference: Difference) -> MarkedCell:
    """Return a difference, in a narrow terminal with an interval without decimals, as those of scores."""
    ends = f"[{difference.low:+.0f}, {difference.high:+.0f}]"
    return MarkedCell(difference_text(difference), brief=f"{difference.difference:+.1f} {ends}")


def _group_sections(explained: Sequence[Sequence[Explained]], seed: int) -> list[Section]:
    """Return the scores and the causes by hops and by type, next to those of a baseline."""
    groupings: dict[str, Callable[[ScoredQuestion], object]] = {
        "hops": lambda row: row.question.hops,
        "type": lambda row: row.question.type,
    }
    sections = []
    for name, group_of in groupings.items():
        groups: dict[str, list[tuple[Explained, ...]]] = {}
        for each in zip(*explained, strict=True):
            groups.setdefault(str(group_of(each[0].row) or UNKNOWN), []).append(each)
        if len(groups) > 1:
            sides = {
                group: [list(side) for side in zip(*groups[group], strict=True)]
                for group in sorted(groups)
            }
            sections.append(_groups_section(name, sides, seed))
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


def _groups_section(
    name: str, sides: Mapping[str, Sequence[Sequence[Explained]]], seed: int
) -> Section:
    """Return a row per score or cause and group, next to that of a baseline and the difference."""
    every = [each for side in sides.values() for questions in side for each in questions]
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
        *explain_direction(row[0] for row in rows),
        *_explain_differences(any_side),
    )
    return Section(f"By {name}", header, rows, texts)
