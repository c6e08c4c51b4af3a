"""The sections of `kgqa evaluate` and `kgqa compare`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, combinations

from kgqa.artifacts.evaluation import Calibration, Consistency, Evaluation
from kgqa.artifacts.metrics import UNDEFINED, Estimate, ScoreSummary
from kgqa.artifacts.run import UPPER_BOUNDS
from kgqa.report.columns import JUDGE_ACCURACY, count_fewer, measure_score
from kgqa.report.run_report import breakdown_sections, judge_sections, scores_section
from kgqa.report.section import Legend, MarkedCell, Section, Value
from kgqa.scoring.comparison import ALPHA, HOLM, Difference, count_families, explain_direction
from kgqa.scoring.power import ENOUGH, plan_questions
from kgqa.scoring.questions import METRICS, show_score
from kgqa.util.text import pluralize, score_text

_UNCALIBRATED = (
    "**Warning**: this accuracy is not calibrated. It contains the errors of the judge, and its interval does not. "
    "Label a random sample (--sheet 100), and add labels=FILE."
)
_CORRECTED = (
    Legend(
        "corrected",
        "Corrected: the accuracy without the judge's errors, which the labels show. Its 95 % interval contains the "
        "uncertainty of both samples.",
    ),
    Legend("sensitivity", "Sensitivity: right answers that the judge recognizes."),
    Legend("specificity", "Specificity: wrong answers that the judge recognizes."),
    Legend("kappa", "Kappa: Cohen's kappa with the labels."),
    Legend(
        "labels to halve",
        "Labels to halve: how many more labels would halve the width of the interval (–: judge more answers instead).",
    ),
)


def evaluation_sections(evaluation: Evaluation) -> list[Section]:
    calibration = evaluation.calibration
    listed = [
        scores_section(evaluation.scores, evaluation.judge, evaluation.notes),
        *judge_sections(evaluation.judge),
        *(calibration_sections([(evaluation.source, calibration)]) if calibration else ()),
        *breakdown_sections(evaluation.scores, evaluation.judge),
    ]
    return [section for section in listed if section.rows]


def evaluations_section(
    groups: Sequence[Sequence[Evaluation]], bounds: Collection[str] = ()
) -> list[Section]:
    """Return the scores and the calibrations of several sets of answers, and their ranks within each group.

    groups: those over the same questions. bounds: the sources that are upper bounds, and not ranked.
    """
    evaluations = [each for group in groups for each in group]
    measured = [
        name
        for name, metric in METRICS.items()
        if metric.column and any(show_score(each.scores, name).n for each in evaluations)
    ]
    # a narrow terminal omits those that kgqa compare does not test
    lines = sorted(measured, key=lambda name: not METRICS[name].tested)
    untested = sum(not METRICS[name].tested for name in lines)
    header = ("answers", "questions", *(METRICS[name].title for name in lines))
    rows: list[tuple[Value, ...]] = [
        (each.source, each.scores.questions, *(_show_score(each.scores, name) for name in lines))
        for each in evaluations
    ]
    calibrations = [(each.source, each.calibration) for each in evaluations if each.calibration]
    sections = [
        Section("Scores", header, rows, explain_direction(header), optional=untested),
        *(calibration_sections(calibrations) if calibrations else ()),
    ]
    ranked = (
        [_ranking_section(group, bounds) for group in groups if len(group) > 1]
        if calibrations
        else []
    )
    return [*sections, *ranked]


def _show_score(scores: ScoreSummary, name: str) -> Value:
    """Return a score, with its number of questions if not all questions define it."""
    score = show_score(scores, name)
    measured = measure_score(score, scores.questions)
    if measured is None or measured.fewer is None:
        return score
    mean = count_fewer(measured.value, measured.fewer)
    return MarkedCell(f"{mean}  {score.interval}", brief=measured.brief)


def _ranking_section(evaluations: Sequence[Evaluation], bounds: Collection[str]) -> Section:
    """Return the rank of each set of answers under each judge. EM and containment count as judges."""
    judges: dict[str, list[Estimate]] = {
        METRICS[name].label: [each.scores.score(name) for each in evaluations]
        for name in ("em", "containment")
    }
    plain = list(judges)
    judged = [each.judge for each in evaluations if each.judge]
    members = dict.fromkeys(chain.from_iterable(each.members or () for each in judged))
    # EM and containment have their columns
    name = judged[0].judge
    for label in (*members, *([name] if name not in ("em", "containment") else [])):
        judges[label] = [_find_accuracy(each, label) for each in evaluations]
    corrected = [each.calibration.corrected for each in evaluations if each.calibration]
    if any(each.n for each in corrected):
        judges["corrected"] = [
            each.calibration.corrected if each.calibration else UNDEFINED for each in evaluations
        ]
    sources = [each.source for each in evaluations]
    unranked = {source for source in sources if source in bounds}
    unranked = unranked if len(unranked) < len(sources) else set()
    rows = [
        (source, *(_rank(source, sources, scores, unranked) for scores in judges.values()))
        for source in sources
    ]
    texts = [
        "The rank of each row and its mean in percent. If the ranks differ, the order depends on the judge.",
        "Ranks are by means only. kgqa compare tests whether two rows differ.",
    ]
    uncertain = _find_overlaps(
        {
            each.source: each.calibration.corrected
            for each in evaluations
            if each.calibration and each.source not in unranked
        }
    )
    if uncertain:
        names = ", ".join(uncertain)
        texts.append(
            f"corrected: the intervals of {names} overlap, so that their order is uncertain."
        )
    if unranked:
        texts.append(f"{', '.join(unranked)}: an upper bound, and not ranked.")
    for label, scores in judges.items():
        pairs = zip(sources, scores, strict=True)
        without = [source for source, score in pairs if score.mean is None]
        if without and label not in plain:
            texts.append(f"{label}: no accuracy of {', '.join(without)}.")
    return Section("Ranks under each judge", ("answers", *judges), rows, texts)


def _find_overlaps(scores: Mapping[str, Estimate]) -> list[str]:
    """Return the sources with another rank than a source with an overlapping interval."""
    pairs = [
        (one, other)
        for (one, a), (other, b) in combinations(scores.items(), 2)
        if a.mean != b.mean and _overlap(a, b)
    ]
    overlapping = {*chain.from_iterable(pairs)}
    return [name for name in scores if name in overlapping]


def _overlap(one: Estimate, other: Estimate) -> bool:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.low <= other.high and other.low <= one.high


def _find_accuracy(evaluation: Evaluation, judge: str) -> Estimate:
    """Return the accuracy by a judge, or by a member of a panel."""
    judged = evaluation.judge
    if judged is None:
        return UNDEFINED
    return (
        judged.accuracy if judge == judged.judge else (judged.members or {}).get(judge, UNDEFINED)
    )


def _rank(
    source: str, sources: Sequence[str], scores: Sequence[Estimate], unranked: Collection[str]
) -> str:
    means = {name: score.mean for name, score in zip(sources, scores, strict=True)}
    mean = means[source]
    if mean is None:
        return "–"
    if source in unranked:
        return f"({score_text(mean)})"
    above = [
        each
        for name, each in means.items()
        if name not in unranked and each is not None and each > mean
    ]
    return f"{1 + len(above)}. ({score_text(mean)})"


def calibration_sections(calibrations: Sequence[tuple[str, Calibration]]) -> list[Section]:
    """Return the corrected accuracy of each set of answers, and for a single one the checks of the judge."""
    header = (
        *(
            "answers",
            "judged",
            JUDGE_ACCURACY,
            "corrected",
            "labels",
            "sensitivity",
            "specificity",
            "kappa",
        ),
        "labels to halve",
    )
    rows = [(name, *_calibration_cells(each)) for name, each in calibrations]
    warnings = dict.fromkeys(
        f"**Warning**: {text}." for _, each in calibrations for text in each.warnings
    )
    calibrated = any(each.source for _, each in calibrations)
    text = (*warnings, *(_CORRECTED if calibrated else [_UNCALIBRATED]))
    sections = [Section("Judge accuracy", header, rows, text, optional=4)]
    if len(calibrations) == 1:
        sections.append(_length_section(calibrations[0][1]))
    checked = [(name, each.consistency) for name, each in calibrations if each.consistency]
    return [*sections, _consistency_section(checked)] if checked else sections


def _calibration_cells(each: Calibration) -> tuple[Value, ...]:
    more = None if each.more_labels is None else each.more_labels
    measured = (
        each.corrected,
        each.labels,
        each.sensitivity,
        each.specificity,
        each.kappa_text,
        more,
    )
    return (each.answers, each.accuracy, *measured)


def _length_section(calibration: Calibration) -> Section:
    """Return what the judge, EM and the labels say of short and of long answers."""
    rows = [
        (each.words, each.judge.n, each.judge, each.em, each.labels)
        for each in calibration.by_length
    ]
    text = (
        "Right answers in percent. If the judge rises with the length and the labels do not, "
        "it prefers long answers."
    )
    return Section(
        "Right by length of the answer",
        ("words", "answers", "judge", "EM", "labels"),
        rows,
        (text,),
    )


def _consistency_section(checked: Sequence[tuple[str, Consistency]]) -> Section:
    header = ("answers", "same if swapped", "same if repeated", "accuracy", "accuracy if swapped")
    rows = [
        (name, each.swapped, each.repeated, each.accuracy, each.swapped_accuracy)
        for name, each in checked
    ]
    text = (
        "Percent of verdicts that stay the same if the answer is shown before the references, and if the reply is "
        "sampled at temperature 1."
    )
    return Section("Consistency of the judge", header, rows, (text,))


BOUNDS = " and ".join(UPPER_BOUNDS)
# marks a pair of runs that is corrected apart from the others
APART = "†"
ANSWERED = "Sensitivity: only questions that both answered"
ANSWERED_TEXT = (
    "All other tables count failed questions as wrong. If these rows differ from them, the failed questions decide. "
    "p is not corrected."
)
MCNEMAR, PERMUTATION = "McNemar's exact test", "a paired permutation test"
TESTS = f"{MCNEMAR} for scores of right or wrong, otherwise {PERMUTATION}"
# the header of the corrected p-values, and the name of the correction, by the value of correction=
CORRECTED_P = {
    HOLM: ("p (Holm)", "Holm's correction"),
    "bh": ("p (BH)", "Benjamini and Hochberg's correction"),
    "none": ("p (single)", "no correction"),
}


def comparison_section(
    differences: Sequence[Difference],
    wanted: float,
    names: Mapping[str, str],
    correction: str = HOLM,
    baseline: str | None = None,
    questions: int = 0,
) -> Section:
    """Return the differences, the most important columns first.

    wanted: the points for equality and for the number of questions. names: those of the runs by letter. baseline: the
    letter of the run that is the second one of each pair. questions: those of the runs, to show where fewer count.
    """
    label = CORRECTED_P[correction][0]
    needed = f"n for {wanted:g}"
    header = (
        "metric",
        "runs",
        "means",
        "difference",
        label,
        "result",
        "better on",
        "p",
        "effect",
        needed,
    )
    alpha = differences[0].alpha if differences else ALPHA
    tests = count_families(differences) if correction != "none" else {}
    pair = "first run minus second run" if baseline is None else f"run minus {names[baseline]}"
    higher = "first run" if baseline is None else "run"
    has_repeats = any(row.between for each in differences for row in each.repeats)
    is_equal = f"the interval is between -{wanted:g} and {wanted:g}"
    texts = (
        "Means in percent over the same questions.",
        *(
            ["of N: only N questions define the score in both runs."]
            if any(each.n < questions for each in differences)
            else []
        ),
        *explain_direction(each.title for each in differences),
        f"Difference: {pair}, in points, with its 95 % interval. Above 0: the {higher} is higher.",
        f"{label}: {describe_tests_of(differences)}, {_describe_correction(differences, correction)}.",
        f"Result: a run wins if {label} is below {alpha:g}. Equal within {wanted:g}: {is_equal}.",
        Legend("better on", "Better on: questions on which each run is better."),
        Legend("p", "p: of the same test without correction."),
        Legend(
            "effect",
            "Effect: odds that the first is better if the two differ, or Cohen's d of the difference.",
        ),
        Legend(
            needed,
            f"{needed}: questions that show {points_text(wanted)} with power 0.8 at {describe_level(alpha, tests)}, "
            f"cautiously as kgqa plan"
            f"{', –: none, because the repeats differ by too much' if has_repeats else ''}.",
        ),
        *_warn_of_few(differences, wanted),
    )
    rows = [
        _difference_row(
            each,
            wanted,
            names,
            alpha / tests.get(each.upper_bound, 1),
            APART if each.upper_bound and _has_families(differences, correction) else "",
            questions,
        )
        for each in differences
    ]
    stack = header.index("metric")
    return Section("Differences", header, rows, texts, optional=4, stack=stack)


def answered_section(
    differences: Sequence[Difference], names: Mapping[str, str], failed: Mapping[str, int]
) -> Section:
    """Return the differences over the questions that both answered. failed: the failed questions of each run."""
    rows: list[tuple[Value, ...]] = [
        (
            each.title,
            MarkedCell(
                f"{names[each.first]} – {names[each.second]}", brief=f"{each.first} – {each.second}"
            ),
            f"{failed[each.first]:,}  {failed[each.second]:,}",
            each.n,
            "  ".join(map(score_text, each.means)),
            difference_text(each),
            p_text(each.p, each.alpha),
        )
        for each in differences
    ]
    header = ("metric", "runs", "failed", "questions", "means", "difference", "p")
    return Section(ANSWERED, header, rows, (ANSWERED_TEXT,))


def describe_tests_of(differences: Sequence[Difference]) -> str:
    """Return the tests of these differences."""
    # EM of repeats can be between right and wrong
    exact = [each.binary for each in differences]
    return describe_tests(exact, has_spread=any(each.has_spread for each in differences))


def describe_tests(exact: Collection[bool], *, has_spread: bool) -> str:
    """Return the tests. exact: whether each is McNemar's. has_spread: whether some contain that between repeats."""
    text = TESTS if any(exact) and not all(exact) else MCNEMAR if all(exact) else PERMUTATION
    spread = ", or Student's t with the spread between repeats if its p is larger"
    return text + spread * has_spread


def describe_level(alpha: float, tests: Mapping[bool, int]) -> str:
    """Return the p-value for which questions are counted. tests: their number by family, see `count_families`."""
    level = f"p < {alpha:g}"
    levels = [
        f"{level} divided by {count:,} tests" if count > 1 else level
        for count in tests.values() or [1]
    ]
    # those with an upper bound are the second family
    return f", with {BOUNDS} ".join(dict.fromkeys(levels))


def _has_families(differences: Sequence[Difference], correction: str) -> bool:
    """Return whether rows with an upper bound are corrected apart from the others."""
    return correction != "none" and len(count_families(differences)) > 1


def _describe_correction(differences: Sequence[Difference], correction: str) -> str:
    """Return the correction with the number of tests in each family."""
    text = f"with {CORRECTED_P[correction][1]}"
    if correction == "none":
        return text
    if not _has_families(differences, correction):
        return f"{text} over {pluralize(len(differences), 'row')}"
    apart = sum(each.upper_bound for each in differences)
    return (
        f"{text} over {pluralize(len(differences) - apart, 'row')} without {BOUNDS}. {APART}: "
        f"{pluralize(apart, 'row')} with {BOUNDS}, corrected on their own, because it is no competitor"
    )


def count_tests(differences: Sequence[Difference], correction: str) -> str:
    """Return the number of tests, their correction, and how many are a family of their own."""
    text = f"{pluralize(len(differences), 'test')} with {CORRECTED_P[correction][1]}"
    if not _has_families(differences, correction):
        return text
    apart = sum(each.upper_bound for each in differences)
    return f"{text}, {apart} of them with {BOUNDS} as their own family"


def _difference_row(
    compared: Difference,
    wanted: float,
    names: Mapping[str, str],
    level: float,
    mark: str,
    questions: int,
) -> tuple[Value, ...]:
    """Return a row. level: p of the test for which questions are counted. mark: after the names of the runs.

    questions: those of the runs.
    """
    fewer = f" of {compared.n:,}" if compared.n < questions else ""
    first, second = compared.first, compared.second
    difference = difference_text(compared)
    return (
        compared.title,
        MarkedCell(f"{names[first]} – {names[second]}{mark}", brief=f"{first} – {second}{mark}"),
        "  ".join(map(score_text, compared.means)) + fewer,
        MarkedCell(difference, briefest=short_difference_text(compared)),
        p_text(compared.adjusted, compared.alpha),
        _verdict(compared, wanted, names),
        f"{compared.wins[0]} : {compared.wins[1]}",
        p_text(compared.p, compared.alpha),
        "–"
        if compared.effect is None
        else f"{'odds' if compared.binary else 'd'} {score_text(compared.effect, digits=2)}",
        plan_questions(compared, wanted, alpha=level)[1],
    )


def _warn_of_few(differences: Sequence[Difference], wanted: float) -> list[str]:
    """Return a warning if some pair has too few questions to count those that it needs."""
    fewest = min((each.n for each in differences), default=ENOUGH)
    if fewest >= ENOUGH:
        return []
    needed = f"n for {wanted:g}"
    text = f"**Warning**: with fewer than {ENOUGH} questions, {needed} is very uncertain."
    return [Legend(needed, text)]


def _verdict(compared: Difference, wanted: float, names: Mapping[str, str]) -> MarkedCell:
    is_within = compared.is_within(wanted)
    if compared.significant:
        winner = compared.better
        end = " wins" + (f" by less than {wanted:g}" * is_within)
        return MarkedCell(f"{names[winner]}{end}", brief=f"{winner}{end}")
    text = f"equal within {wanted:g}" if is_within else "no difference shown"
    return MarkedCell(text, briefest=text.replace(" ", "\n"))


def difference_text(difference: Difference) -> str:
    """Return a difference in points with its interval."""
    low, high = (score_text(end, "+") for end in (difference.low, difference.high))
    return f"{score_text(difference.difference, '+')} [{low}, {high}]"


def short_difference_text(difference: Difference) -> str:
    """Return a difference with its interval without decimals, as those of scores in a narrow terminal."""
    low, high = (score_text(end, "+", 0) for end in (difference.low, difference.high))
    return f"{score_text(difference.difference, '+')} [{low}, {high}]"


def p_text(value: float, alpha: float = ALPHA) -> str:
    """Return a p-value as papers write it: with three decimals, or "<0.001". Near alpha it has more decimals."""
    least = min(0.001, alpha)
    if value < least:
        return f"<{least:g}"
    texts = [f"{value:.{digits}f}" for digits in range(3, 7)]
    # 0.050 would not show on which side of 0.05 it is
    return next((text for text in texts if float(text) != alpha), texts[0])


def points_text(points: float) -> str:
    """Return a number of points with its unit."""
    return f"{points:g} point{'' if points == 1 else 's'}"
