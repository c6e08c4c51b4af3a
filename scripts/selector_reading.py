"""Does a selector read its options, or has it a habit for letters that happens to follow the ranker's order?

Of each choice: how often a gold candidate stands ahead of another one (the area under the ROC curve; 0.5 is chance),
by the ranker's order alone, by the selector's probabilities, and by these with every letter's mean log-probability over
all questions taken off. What is left then comes from the options' texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from statistics import fmean

LEAST = 1e-9  # of a probability, before its logarithm
RANKED, TOLD, READ = "gold ahead, ranker's order", "gold ahead, selector", "gold ahead, letters' habit taken off"
Candidates = Sequence[tuple[bool, float]]  # gold or not, and the selector's probability, in the order of the letters


def reading(choices: Mapping[str, Candidates]) -> dict[str, dict[str, float]]:
    """By question, those left out whose candidates are all gold or all not."""
    logs = {question: [log(max(share, LEAST)) for _, share in choice] for question, choice in choices.items()}
    longest = max(map(len, logs.values()))
    habits = [fmean(each[place] for each in logs.values() if place < len(each)) for place in range(longest)]
    scores: dict[str, dict[str, float]] = {}
    for question, choice in choices.items():
        gold = [is_gold for is_gold, _ in choice]
        if len(set(gold)) == 2:
            told = logs[question]
            scores[question] = {
                RANKED: ahead(gold, [-float(place) for place in range(len(gold))]),
                TOLD: ahead(gold, told),
                READ: ahead(gold, [value - habit for value, habit in zip(told, habits, strict=False)]),
            }
    return scores


def ahead(gold: Sequence[bool], scores: Sequence[float]) -> float:
    """Share of pairs of a gold and another candidate in which the gold one has more; ties count half."""
    golds = [score for score, is_gold in zip(scores, gold, strict=True) if is_gold]
    others = [score for score, is_gold in zip(scores, gold, strict=True) if not is_gold]
    return fmean((one > other) + 0.5 * (one == other) for one in golds for other in others)
