"""DROP's exact match and F1 over answer spans (Dua et al., NAACL 2019), used for IIRC."""

from __future__ import annotations

from collections.abc import Sequence

from kgqa.scoring.normalisation import is_number, normalise_for_drop


def drop_scores(predicted: Sequence[str], gold: Sequence[str]) -> tuple[float, float]:
    """Return EM and F1 of the predicted spans against one gold answer's spans; order does not matter.

    EM asks for the same spans after normalisation. F1 averages the aligned spans' F1 over the longer
    of the two lists, so a span too many costs as much as a span too few, and is rounded to two digits.

    Raises:
        ValueError: no span on one side.
    """
    if not predicted or not gold:
        raise ValueError("DROP compares at least one predicted span with at least one gold span")
    predicted_spans = [normalise_for_drop(span) for span in predicted]
    gold_spans = [normalise_for_drop(span) for span in gold]
    same = len(predicted_spans) == len(gold_spans) and set(predicted_spans) == set(gold_spans)
    span_f1 = [[drop_span_f1(mine, theirs) for mine in predicted_spans] for theirs in gold_spans]
    mean = best_alignment(span_f1) / max(len(predicted), len(gold))
    # Scaled, rounded and scaled back as NumPy does: round(mean, 2) decides some halves the other way.
    return float(same), round(mean * 100) / 100


def drop_span_f1(predicted: str, gold: str) -> float:
    """Return f1 between the word *sets* of two normalised spans (a repeated word counts once).

    Number gate: 0 if the gold span holds numbers and the prediction none of them. The prediction's own
    numbers are not asked for, so the score is not symmetric. Two empty spans: 1.
    """
    mine, theirs = set(predicted.split()), set(gold.split())
    numbers = {word for word in theirs if is_number(word)}
    if numbers and not numbers & mine:
        return 0.0
    if not mine and not theirs:
        return 1.0
    shared = len(mine & theirs)
    if not shared:
        return 0.0
    precision, recall = shared / len(mine), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)


def best_alignment(scores: Sequence[Sequence[float]]) -> float:
    """Return largest sum of scores over one-to-one pairings of rows with columns (Kuhn, 1955)."""
    if len(scores) == 1:
        return max(scores[0])
    if len(scores[0]) == 1:
        return max(row[0] for row in scores)
    from scipy.optimize import linear_sum_assignment  # costs half a second, and single spans never get here

    rows, columns = linear_sum_assignment(scores, maximize=True)
    return sum((scores[row][column] for row, column in zip(rows, columns, strict=True)), start=0.0)
