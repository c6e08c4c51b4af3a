"""Compare finished runs on the same questions: who wins where, and which questions flipped."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice, permutations, product
from pathlib import Path
from string import ascii_uppercase

from kgqa.artifacts.evaluation import read_judged_metrics
from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.run import MADE_UP, UPPER_BOUNDS, find_cell, read_method
from kgqa.artifacts.sweep import Cell, find_row
from kgqa.artifacts.verdicts import VERDICTS, judge_of, list_verdicts, read_verdicts
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.experiment.evaluate import AnsweredQuestions, open_run
from kgqa.report.columns import JUDGE_ACCURACY, SEPARATOR, group_texts, list_missing
from kgqa.report.comparison import ComparisonTable
from kgqa.report.evaluation import ANSWERED, answered_section, comparison_section, count_tests
from kgqa.report.names import title_row
from kgqa.report.page import Tables, sections_page
from kgqa.report.paper import name_entries, read_entry
from kgqa.report.section import Section, Value, latex, markdown
from kgqa.report.warnings import find_doubts
from kgqa.scoring.comparison import ALPHA, DIFFERENCE, HOLM, Difference, pair_runs
from kgqa.scoring.corrected import share
from kgqa.scoring.metrics import exact_match
from kgqa.scoring.questions import BUILT_IN, METRICS, ScoredQuestion, find_failed_metrics
from kgqa.scoring.repeats import Rows, average_rows, compare_rows
from kgqa.types import Json
from kgqa.util.fs import json_text, replace_file
from kgqa.util.text import pluralize

# of files that a comparison is written to
SUFFIXES = (".md", ".tex", ".html", ".json")
# A to Z, then AA to ZZ
LETTERS = (*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2)))
# named A to Z
MAX_RUNS = 26
FOLLOWED = "Followed the evidence"
JUDGE = "judge"
JUDGE_ALL = "Run kgqa evaluate RUN … judge=NAME with all of them"
PAIR = " – "  # between the letters of two runs
FLIPS_HINT = (
    "Flipped questions: compare two of these runs to list them, or add --all for every pair."
)
REPEATS_TEXT = (
    "Repeats: the means of each question over the repeats are compared, with the spread between repeats in intervals, "
    "p and the questions needed."
)
FATES = ("followed", "own knowledge", "abstained", "another answer")
# by metric and by letter: a share per question, for each repeat
Scores = Mapping[str, Mapping[str, Rows]]
# the repeats of each run by letter: one, or several
Runs = Mapping[str, Sequence[AnsweredQuestions]]


@dataclass(frozen=True, repr=False)
class Comparison(Tables):
    """`runs`: the folders of each run and its repeats by letter. arguments: what names them in a command."""

    runs: Mapping[str, Sequence[str]]
    arguments: Mapping[str, str]
    differences: Sequence[Difference]
    profile: str
    correction: str = HOLM
    # the cells of sweeps without results
    missing: Sequence[Cell] = ()
    # the letter of the run that all others are compared with
    baseline: str | None = None
    # over the questions that both answered, see `compare_answered`
    answered: Sequence[Difference] = ()

    @property
    def table(self) -> ComparisonTable:
        """Return the table for a paper. Raises DataError: a file of a run is damaged."""
        entries = {
            letter: read_entry(list(map(Path, names))) for letter, names in self.runs.items()
        }
        return ComparisonTable(
            self.differences, entries, self.profile, self.correction, self.missing, self.baseline
        )

    @property
    def rows(self) -> list[dict[str, Json]]:
        """Return one row per metric and pair of runs: folders, means, difference, interval, p, effect, wins.

        Of repeats, first and second are the folder of the first one.
        """
        return self._list_rows(self.differences)

    @property
    def answered_rows(self) -> list[dict[str, Json]]:
        """Return such rows over the questions that both answered, if one of both failed some. p is not corrected."""
        return self._list_rows(self.answered)

    def _list_rows(self, differences: Sequence[Difference]) -> list[dict[str, Json]]:
        rows = []
        for each in differences:
            row = asdict(each)
            names: dict[str, Json] = {}
            for side, letter in (("first", each.first), ("second", each.second)):
                names |= {side: self.runs[letter][0], f"{side}_runs": len(self.runs[letter])}
            means = dict(zip(("first_mean", "second_mean"), row.pop("means"), strict=True))
            wins = dict(zip(("first_wins", "second_wins"), row.pop("wins"), strict=True))
            rows.append({**row, **names, **means, **wins})
        return rows

    def choose_explained(self) -> tuple[str, ...]:
        """Return the arguments of kgqa explain: the best run and the baseline, or the second best.

        The best one is by the first score, without upper bounds if there are other runs. Empty: no score has a
        difference.
        """
        first = [each for each in self.differences if each.metric == self.differences[0].metric]
        pairs = [each for each in first if not each.upper_bound] or first
        means = dict[str, float]()
        for each in pairs:
            means |= dict(zip((each.first, each.second), each.means, strict=True))
        sign = 1 if pairs and pairs[0].lower_is_better else -1
        ranked = sorted(means, key=lambda letter: sign * means[letter])
        others = [letter for letter in ranked if letter != self.baseline]
        chosen = [others[0], self.baseline or others[1]] if others else []
        return tuple(self.arguments[letter] for letter in chosen)

    def write(self, file: Path) -> Path:
        """Write the comparison as Markdown, LaTeX, HTML or JSON, by its suffix. Raises ConfigError for another one."""
        check_suffix(file)
        title, *notices = self.heading.split("\n")
        table = self.table
        match file.suffix:
            case ".md":
                text = markdown(title, [table.section(), *self.sections], notices)
            case ".html":
                text = sections_page(title, "", [table.section(), *self.sections], notices)
            case ".tex":
                tables = [
                    _name_pairs(each, table.names) if each.title == FOLLOWED else each
                    for each in self.sections
                    if each.title in (ANSWERED, FOLLOWED)
                ]
                text = table.latex() + (latex(title, tables) if tables else "")
            case _:
                rows = [
                    {
                        **row,
                        "first_name": table.names[each.first],
                        "second_name": table.names[each.second],
                    }
                    for row, each in zip(self.rows, self.differences, strict=True)
                ]
                heading: list[Json] = [title, *notices]
                text = json_text(
                    {
                        "heading": heading,
                        "caption": table.caption,
                        "correction": self.correction,
                        "differences": rows,
                        "answered": self.answered_rows,
                    }
                )
        return replace_file(file, text)


def check_suffix(file: Path) -> None:
    """Raise a ConfigError for a file that a comparison cannot be written to."""
    if file.suffix not in SUFFIXES:
        raise ConfigError(f"--out {file}: choose a name that ends in .md, .tex, .html or .json")


def compare_answers(
    rows: Mapping[str, Sequence[Path]],
    profile: str | None = None,
    *,
    seed: int = 0,
    difference: float = DIFFERENCE,
    alpha: float = ALPHA,
    correction: str = HOLM,
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    in_all: bool = False,
    flips: int | None = None,
    missing: Sequence[Cell] = (),
) -> Comparison:
    """Compare every pair of runs in the tested metrics and, if one judge judged all of them, its verdicts.

    Args:
        rows: the folders of each run, and of its repeats, by what names them in a command, see `find_rows`. The means
            of repeats are compared, see `compare_rows`.
        difference: the points for equality, and for which the number of questions is estimated.
        alpha: a difference with a lower corrected p-value is significant.
        correction: holm, bh (Benjamini and Hochberg) or none.
        baseline: compare only pairs with this run: its letter, its name in the heading, its method or its folder.
        metrics: compare only these, in this order: tested ones of `METRICS`, or judge. Empty: all.
        in_all: compare only the questions that all runs have.
        flips: the maximum number of flipped questions of a single pair; None: all of every pair.
        missing: the cells of sweeps that are not among the folders, as they have no results.

    Raises:
        ConfigError: the runs have different questions or profiles, or there is no such baseline or metric.
        DataError: one is not the folder of a finished run.
    """
    check_metrics(metrics)
    opened = open_rows([*rows.values()], profile)
    runs = name_runs(opened, common=in_all)
    scores, notes = collect_shares(runs, metrics)
    tested = choose_metrics(scores, metrics)
    labels = name_by_differences(runs)
    reference = None if baseline is None else find_baseline(baseline, runs, labels)
    pairs = pair_runs(list(runs), reference)
    differences = compare_rows(
        tested,
        seed,
        alpha=alpha,
        correction=correction,
        baseline=reference,
        bounds=find_bounds(runs),
        lower_is_better=find_lower_better(),
    )
    require_pairs(differences)
    scored_by = runs["A"][0].profile
    title = f"{count_questions(runs)}, profile {scored_by}"
    title += f", {count_tests(differences, correction)}"
    shared = len(runs["A"][0].questions)
    sizes = {
        letter: max(len(run.questions) for run in repeats)
        for letter, repeats in zip(runs, opened, strict=True)
    }
    if larger := [f"{letter} has {size:,}" for letter, size in sizes.items() if size > shared]:
        title += f" (those that all runs have; {', '.join(larger)})"
    lines = [*describe_runs(runs, labels), *count_failed(runs), *_warn_of_data(runs)]
    lines += [f"baseline: {reference}  {labels[reference]}"] if reference else []
    lines += [list_missing(missing)] if missing else []
    # of many pairs, the flipped questions would push the tests off the screen
    has_flips = flips is None or len(pairs) == 1
    tests = comparison_section(
        differences,
        difference,
        label_runs(labels),
        correction,
        reference,
        questions=len(runs["A"][0].questions),
    )
    notes_below = [
        *([REPEATS_TEXT] if has_repeats(runs) else []),
        *([] if has_flips else [FLIPS_HINT]),
    ]
    tests = replace(tests, text=(*tests.text, *notes_below))
    answered = compare_answered(runs, tested, differences, seed, reference)
    failed = {letter: len(questions) for letter, questions in find_failed(runs).items()}
    sections = [
        tests,
        *([answered_section(answered, label_runs(labels), failed)] if answered else []),
        *_followed(runs),
        *(
            _flips(runs, scores.get(JUDGE_ACCURACY, scores["EM"]), flips, pairs)
            if has_flips
            else []
        ),
    ]
    names = {letter: [run.name for run in repeats] for letter, repeats in runs.items()}
    arguments = dict(zip(runs, rows, strict=True))
    heading = "\n".join([title, *lines, *notes])
    return Comparison(
        heading,
        sections,
        names,
        arguments,
        differences,
        scored_by,
        correction,
        missing,
        reference,
        answered,
    )


def compare_answered(
    runs: Runs,
    scores: Scores,
    differences: Sequence[Difference],
    seed: int,
    baseline: str | None = None,
) -> list[Difference]:
    """Return the differences over the questions that both runs answered, in all repeats.

    This sensitivity analysis shows how much of a difference comes from failed questions. p is not corrected. Pairs
    without failed questions, and scores that do not count them, are omitted.
    """
    failed = find_failed(runs)
    compared = list[Difference]()
    for pair in dict.fromkeys((each.first, each.second) for each in differences):
        omitted = failed[pair[0]] | failed[pair[1]]
        masked = {
            metric: {
                letter: [
                    [None if n in omitted else share for n, share in enumerate(row)]
                    for row in rows[letter]
                ]
                for letter in pair
            }
            for metric, rows in scores.items()
        }
        compared += compare_rows(
            masked,
            seed,
            correction="none",
            baseline=baseline if baseline in pair else None,
            lower_is_better=find_lower_better(),
        )
    places = {(each.metric, each.first, each.second): n for n, each in enumerate(differences)}
    compared.sort(key=lambda each: places[each.metric, each.first, each.second])
    return [
        each
        for each in compared
        if each.n < differences[places[each.metric, each.first, each.second]].n
    ]


def find_failed(runs: Runs) -> dict[str, set[int]]:
    """Return the numbers of the questions that failed in some repeat of each run."""
    return {
        letter: {n for run in repeats for n, row in enumerate(run.scored) if row.answer is None}
        for letter, repeats in runs.items()
    }


def open_rows(
    rows: Sequence[Sequence[Path]], profile: str | None = None
) -> list[list[AnsweredQuestions]]:
    """Read each run and its repeats. Raises ConfigError: they have different profiles, or share no question.

    Raises as `open_run`.
    """
    opened = [[open_run(folder, profile) for folder in folders] for folders in rows]
    # with runs of two datasets, a profile would not help
    _find_common([run for repeats in opened for run in repeats])
    if len(profiles := sorted({run.profile for repeats in opened for run in repeats})) > 1:
        raise ConfigError(f"scored by {' and '.join(profiles)}. Choose one with scoring=")
    return opened


def find_bounds(runs: Runs) -> set[str]:
    """Return the letters of the runs that are upper bounds."""
    methods = {letter: read_method(Path(repeats[0].name)) for letter, repeats in runs.items()}
    return {letter for letter, method in methods.items() if method in UPPER_BOUNDS}


def find_lower_better() -> set[str]:
    """Return the labels of the metrics of which a lower value is better."""
    return {metric.label for metric in METRICS.values() if metric.lower_is_better}


def has_repeats(runs: Runs) -> bool:
    return any(len(repeats) > 1 for repeats in runs.values())


def count_questions(runs: Runs) -> str:
    """Return the number of questions, and of the repeats of the runs if there are any."""
    questions = pluralize(len(runs["A"][0].questions), "question")
    counts = sorted({len(repeats) for repeats in runs.values()})
    return f"{questions} × {' or '.join(map(str, counts))} repeats" if counts[-1] > 1 else questions


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise a ConfigError for a metric that has no test."""
    tested = [name for name, metric in METRICS.items() if metric.tested]
    known = [*tested, JUDGE]
    for name in metrics:
        if name not in known:
            raise ConfigError(f"metrics={name}: no score with a test. {nearest(name, known)}")


def choose_metrics(scores: Scores, metrics: Sequence[str]) -> Scores:
    """Return the scores of these metrics by label, or all. Raises ConfigError: the runs share no verdicts."""
    if not metrics:
        return scores
    if JUDGE in metrics and JUDGE_ACCURACY not in scores:
        raise ConfigError(
            f"metrics={JUDGE}: these runs have no verdicts of the same judge. {JUDGE_ALL}"
        )
    labels = [JUDGE_ACCURACY if name == JUDGE else METRICS[name].label for name in metrics]
    return {label: scores[label] for label in labels}


def find_baseline(text: str, runs: Runs, names: Mapping[str, str]) -> str:
    """Return the letter of the run with this letter, name, method, folder, SWEEP/METHOD, or start of a folder's name.

    Raises:
        ConfigError: no run matches, or several do.
    """
    folder = Path(text)
    # the first kind of name that matches is used
    kinds = [
        [each for each in runs if text in (each, names[each], title_row(names[each]))],
        _find_letters(folder, runs),
        [each for each in runs if text in _list_methods(names[each])],
        [
            each
            for each, repeats in runs.items()
            if any(f"/{folder}" in f"/{run.name}" for run in repeats)
        ],
    ]
    letters = next(filter(None, kinds), [])
    if not letters:
        cells = find_row(text) or filter(None, [find_cell(text)])
        letters = [letter for cell in cells for letter in _find_letters(cell, runs)][:1]
    if not letters:
        raise ConfigError(f"baseline={text}: no such run. {nearest(text, set(names.values()))}")
    if len(letters) > 1:
        raise ConfigError(
            f"baseline={text}: matches the runs {', '.join(letters)}. Write the letter of one"
        )
    return letters[0]


def _find_letters(folder: Path, runs: Runs) -> list[str]:
    """Return the letters of the runs in this folder."""
    place = folder.resolve()
    return [
        letter
        for letter, repeats in runs.items()
        if place in [Path(run.name).resolve() for run in repeats]
    ]


def _list_methods(name: str) -> list[str]:
    """Return the method of a run's name, as in commands and as in papers."""
    return [each.partition(SEPARATOR)[0] for each in (name, title_row(name))]


def name_runs(opened: Sequence[Sequence[AnsweredQuestions]], *, common: bool) -> Runs:
    """Return the runs with their repeats by letter, over the same questions. Raises as `share_questions`."""
    every = [run for repeats in opened for run in repeats]
    shared = iter(share_questions(every, common=common, repeated=len(every) > len(opened)))
    rows = [list(islice(shared, len(repeats))) for repeats in opened]
    return dict(zip(LETTERS, rows, strict=False))


def list_runs(runs: Runs, names: Mapping[str, str]) -> list[str]:
    """Return a line per run with its letter, its name among these runs and its folder."""
    width = max(map(len, names.values()))
    return [
        f"{letter}  {names[letter]:{width}}  {show_folders(repeats)}"
        for letter, repeats in runs.items()
    ]


def show_folders(repeats: Sequence[AnsweredQuestions]) -> str:
    """Return the folder of a run, or of the first of its repeats with the number of the others."""
    first, *others = repeats
    return f"{first.name} and {pluralize(len(others), 'repeat')}" if others else first.name


def describe_runs(runs: Runs, names: Mapping[str, str]) -> list[str]:
    """Return a line per run with its letter, its name among these runs and its folder, then warnings about scores."""
    lines = list_runs(runs, names)
    warnings = (
        (letter, text)
        for letter, repeats in runs.items()
        for run in repeats
        for text in (
            *([MADE_UP] if run.is_simulated else []),
            *find_doubts(read_judged_metrics(Path(run.name))),
        )
    )
    for text, letters in group_texts(warnings).items():
        which = "" if len(letters) == len(runs) else f" ({', '.join(letters)})"
        lines.append(f"warning: {text}{which}")
    return lines


def name_by_differences(runs: Runs) -> dict[str, str]:
    """Return the method of each run, with the settings that differ. The method alone if a file of a run is damaged."""
    try:
        entries = {
            letter: read_entry([Path(run.name) for run in repeats])
            for letter, repeats in runs.items()
        }
    except DataError:
        return {letter: _find_method(repeats[0]) for letter, repeats in runs.items()}
    names = name_entries(list(entries.values()))
    return {letter: names[id(entry)] for letter, entry in entries.items()}


def label_runs(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names by letter without the method that all share, and with the letter before equal ones."""
    methods = {name.partition(SEPARATOR)[0] for name in names.values()}
    rests = {letter: name.partition(SEPARATOR)[2] for letter, name in names.items()}
    short = rests if len(methods) == 1 and all(rests.values()) else names
    counts = Counter(short.values())
    return {
        letter: f"{letter} {name}" if counts[name] > 1 else name for letter, name in short.items()
    }


def _find_method(run: AnsweredQuestions) -> str:
    choices = (run.config or {}).get("choices", {})
    return str(choices.get("method", Path(run.name).name))


def compare_share_tests(runs: Runs, metrics: Sequence[str] = ()) -> dict[str, dict[str, Rows]]:
    """Return the shares of each question by tested metric and run, for each of its repeats.

    metrics: the names of the user's metrics to compute. Empty: all.
    """
    return {
        metric.label: {
            letter: [[metric.share(row) for row in run.scored] for run in repeats]
            for letter, repeats in runs.items()
        }
        for name, metric in METRICS.items()
        if metric.tested and (not metrics or name in metrics or name in BUILT_IN)
    }


def _find_common(runs: Sequence[AnsweredQuestions]) -> set[str]:
    """Return the ids of the questions that all runs have. Raises ConfigError if there are none."""
    shared = set.intersection(*({question.id for question in run.questions} for run in runs))
    if not shared:
        raise ConfigError(
            "these runs have no question in common. Compare runs over the same dataset"
        )
    return shared


def share_questions(
    runs: list[AnsweredQuestions], *, common: bool, repeated: bool = False
) -> list[AnsweredQuestions]:
    """Return the runs over the same questions, in the order of the first. `common`: over those that all have.

    repeated: whether some are repeats of others.

    Raises:
        ConfigError: the questions differ, or no question is common to all.
        DataError: a question has another text or other gold answers in another run.
    """
    first, *others = runs
    by_run = [{question.id: question for question in run.questions} for run in runs]
    shared = _find_common(runs)
    for run, own in zip(others, by_run[1:], strict=True):
        if not common and own.keys() != by_run[0].keys():
            sides = {
                first.name: sorted(by_run[0].keys() - own.keys()),
                run.name: sorted(own.keys() - by_run[0].keys()),
            }
            only = [
                f"{len(ids):,} only in {name}: {', '.join(ids[:3])}{' …' if len(ids) > 3 else ''}"
                for name, ids in sides.items()
                if ids
            ]
            command = shlex.join(["kgqa", "compare", *(each.name for each in runs), "--common"])
            # the folders of repeats would be single runs
            remedy = "add --common" if repeated else command
            hint = f"Compare the {len(shared):,} they share: {remedy}"
            raise ConfigError(f"different questions, {'; '.join(only)}. {hint}")
        for key in sorted(shared):
            if own[key].text != by_run[0][key].text or (
                own[key].answers != by_run[0][key].answers
                and not (run.perturbation or first.perturbation)
            ):
                raise DataError(
                    f"question {key}: its text or gold answers differ between {run.name} and {first.name}"
                )
    order = [question.id for question in first.questions if question.id in shared]
    return [
        replace(run, questions=tuple(own[key] for key in order))
        for run, own in zip(runs, by_run, strict=True)
    ]


def require_pairs(differences: Sequence[Difference]) -> None:
    """Raise a ConfigError if no score is defined in two runs."""
    if not differences:
        raise ConfigError("no question has a score in two of these runs. Choose other metrics=")


def count_failed(runs: Runs) -> list[str]:
    """Return a line on the questions that some run failed."""
    failed = {
        name: [row.answer is None for run in repeats for row in run.scored]
        for name, repeats in runs.items()
    }
    counts = [
        f"{name} failed on {sum(each):,} of {len(each):,}"
        for name, each in failed.items()
        if any(each)
    ]
    return [f"{', '.join(counts)} questions, which count as wrong"] if counts else []


def _warn_of_data(runs: Runs) -> list[str]:
    """Return a warning if the runs read different data files: equal questions can have other passages."""
    hashes = dict[tuple[str, str], None]()
    for name, repeats in runs.items():
        for run in repeats:
            with suppress(DataError):  # an old or damaged manifest
                hashes[name, Manifest.read(Path(run.name)).dataset.sha256] = None
    if len({sha256 for _, sha256 in hashes}) < 2:
        return []
    listed = ", ".join(f"{name} {sha256[:12]}" for name, sha256 in hashes)
    return [f"warning: these runs read different data files ({listed}). Their passages can differ"]


def collect_shares(runs: Runs, metrics: Sequence[str] = ()) -> tuple[Scores, list[str]]:
    """Return the shares of `compare_share_tests` and, if one judge judged all runs, of its verdicts, and notes.

    A metric of the user that fails on an answer is a note. Raises ConfigError: it is one of `metrics`.
    """
    # a note on verdicts that are not compared belongs to no other metric
    is_judged = not metrics or JUDGE in metrics
    verdicts, notes = collect_verdicts(runs) if is_judged else (None, [])
    judged = {JUDGE_ACCURACY: verdicts} if verdicts else {}
    scores = compare_share_tests(runs, metrics)
    rows = (row for repeats in runs.values() for run in repeats for row in run.scored)
    for name, failure in find_failed_metrics(rows).items():
        if name in metrics:
            raise ConfigError(failure)
        del scores[METRICS[name].label]
        notes.append(f"warning: {failure}")
    return {**scores, **judged}, notes


def collect_verdicts(runs: Runs) -> tuple[Mapping[str, Rows] | None, list[str]]:
    """Return the shares by run if one judge judged all present answers, and a note."""
    named = [(name, run) for name, repeats in runs.items() for run in repeats]
    without = [name for name, run in named if not (Path(run.name) / VERDICTS).is_file()]
    if len(without) == len(named):
        return None, []
    if without:
        listed = ", ".join(dict.fromkeys(without))
        return None, [_explain_no_verdicts(f"there are no verdicts of {listed}")]
    read = {run.name: read_verdicts(Path(run.name)) for _, run in named}
    judges = group_texts((name, judge_of(read[run.name])) for name, run in named)
    if len(judges) > 1:
        listed = ", ".join(f"{judge} ({', '.join(names)})" for judge, names in judges.items())
        return None, [_explain_no_verdicts(f"the runs have different judges: {listed}")]
    for name, run in named:
        if stale := run.find_stale(read[run.name]):
            reason = f"{name} answered question {stale} again after it was judged"
            return None, [_explain_no_verdicts(reason)]
    by_run = {folder: list_verdicts(verdicts.values()) for folder, verdicts in read.items()}
    shares = {
        name: [[by_run[run.name][question.id] for question in run.questions] for run in repeats]
        for name, repeats in runs.items()
    }
    return shares, [f"judge: {next(iter(judges))}"]


def _explain_no_verdicts(reason: str) -> str:
    return f"{JUDGE_ACCURACY} is not compared, because {reason}. {JUDGE_ALL}"


def _followed(runs: Runs) -> list[Section]:
    """Return how the answers of each plain run change with the passages: with the evidence, or not. Without repeats."""
    rows: list[tuple[Value, ...]] = []
    single = [(name, repeats[0]) for name, repeats in runs.items() if len(repeats) == 1]
    for (plain, first), (perturbed, second) in permutations(single, 2):
        if first.perturbation or not second.perturbation or not _is_same_program(first, second):
            continue
        pairs = [
            (one, other)
            for one, other in zip(first.scored, second.scored, strict=True)
            if one.em == 1
        ]
        pairs = [(one, other) for one, other in pairs if other.answer is not None]
        fates = [_fate(one, other) for one, other in pairs]
        shares = [share(fates.count(fate), len(fates)) for fate in FATES]
        rows.append((f"{plain}{PAIR}{perturbed}", second.perturbation, len(fates), *shares))
    if not rows:
        return []
    text = (
        "Questions that the plain run has right, in percent. Followed: the answer is the one that the changed passages "
        "give. Own knowledge: still the original answer, although no passage gives it. For shuffle and distractors the "
        "passages still give the original answer, so that it follows them."
    )
    header = ("runs", "changed passages", "questions", *FATES)
    return [Section(FOLLOWED, header, rows, (text,))]


def _is_same_program(first: AnsweredQuestions, second: AnsweredQuestions) -> bool:
    """Return whether two runs have the same method, model and ranker, so that only the passages change the answers."""
    one, other = first.config or {}, second.config or {}
    return all(
        one.get(key) == other.get(key) for key in ("method", "model", "roles", "ranker", "kg")
    )


def _name_pairs(section: Section, names: Mapping[str, str]) -> Section:
    """Return a section with the names of runs instead of their letters in its first column."""
    rows = [
        (PAIR.join(names[letter] for letter in pair.split(PAIR)), *others)
        for pair, *others in section.rows
    ]
    return replace(section, values=rows)


def _fate(plain: ScoredQuestion, perturbed: ScoredQuestion) -> str:
    """Return the first of `FATES` that applies to a question that the plain run has right."""
    ids = {passage.id for passage in perturbed.question.passages}
    if perturbed.em == 1 and perturbed.question.support <= ids:
        return "followed"
    if any(exact_match(perturbed.answer or "", gold) for gold in plain.question.answers):
        return "own knowledge"
    return "abstained" if perturbed.abstained else "another answer"


def _flips(
    runs: Runs,
    right: Mapping[str, Rows],
    limit: int | None,
    pairs: Sequence[tuple[str, str]],
) -> list[Section]:
    """Return, for each of these pairs, the questions that one run has right more often than the other, in order."""
    means = {name: average_rows(repeats) for name, repeats in right.items()}
    sections = []
    for first, second in pairs:
        rows = []
        questions = runs[first][0].questions
        for question, a, b in zip(questions, means[first], means[second], strict=True):
            if a is not None and b is not None and a != b:
                answers = [_list_answers(runs[name], question.id) for name in (first, second)]
                rows.append(
                    (
                        question.id,
                        question.text,
                        first if a > b else second,
                        *answers,
                        question.answers[0],
                    )
                )
        if rows:
            more = (
                [f"{len(rows) - limit:,} more (--all shows them)"]
                if limit is not None and len(rows) > limit
                else []
            )
            header = ("question", "text", "right", f"{first} answers", f"{second} answers", "gold")
            title = f"Flipped between {first} and {second}: {len(rows):,}"
            text = header.index("text")
            sections.append(Section(title, header, rows[:limit], tuple(more), stack=text))
    return sections


def _list_answers(repeats: Sequence[AnsweredQuestions], question: str) -> str:
    """Return the answer to a question, or the different ones of the repeats."""
    answers = (run.predictions[question].answer or "" for run in repeats)
    return " | ".join(dict.fromkeys(answers))
