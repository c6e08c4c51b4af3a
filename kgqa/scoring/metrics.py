"""Exact match and F1 of an answer as the official scorers compute them, containment and abstention.

Profiles differ in the gold answers that they compare with, and in their rules for yes/no and empty answers. Each one
equals its released scorer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache

from kgqa.errors import ConfigError, nearest
from kgqa.scoring.normalization import (
    count_words,
    is_number,
    normalize,
    normalize_as_r1_searcher,
    normalize_for_drop,
    repair_text,
)
from kgqa.util.jsonio import JsonError, decode_json
from kgqa.util.optional_deps import is_available, require_packages

Score = dict[str, float]  # {"em": 0..1, "f1": 0..1}
# of an answer and one gold answer
Formula = Callable[[str, str], float]

_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})
_CHAIN = re.compile(r".* answer is:? (.*)\.?")  # IRCoT's released evaluation
_SOURCE = (
    r"(?:(?:given|provided|above|retrieved|available|supplied|of|these|this|any) )*"
    r"(?:passages?|contexts?|text|texts|information|documents?|sources?|articles?|knowledge)"
    r"(?: provided| given| above| available)?"
)
_STATED = "(?:known|available|applicable|specified|mentioned|provided|stated|given|found|disclosed|clear|determined)"
_PLACE = rf"(?: (?:in|from|by|within|based on|with|using) {_SOURCE})?"
_EXPLICITLY = "(?:directly |explicitly |clearly |specifically )?"
_SAY = (
    "(?:say|mention|provide|contain|specify|state|include|answer|give|relate|refer|indicate|reveal"
    "|tell|have|discuss)"
)
_MISSING = f"(?:unknown|unclear|undetermined|unspecified|not {_EXPLICITLY}{_STATED})"
_DO_NOT = "(?:do not|dont|does not|doesnt|did not|didnt)"
_CANNOT = "(?:cannot|can not|cant|could not|couldnt)"
_FIND = "(?:determine|determined|answer|answered|find|found|infer|inferred|say|tell|identify|identified|know|known)"
_LITTLE = "(?:no|not enough|not any|insufficient|no relevant|no specific|not sufficient)"
_FACTS = "(?:information|info|evidence|mention|answer|context|data|details?)"
# complete normalized answers: one that only starts like this ("None of the Above", a title) does not match.
# Not compiled here, because this takes 12 ms and a run needs it only after its last call
_ABSTENTIONS = (
    r"(?:(?:sorry|unfortunately|i am sorry|im sorry|i apologize)(?: but)? )?"
    rf"(?:(?:based on|according to|from|given|in|with|after reading) {_SOURCE} )?"
    "(?:"
    rf"na|idk|unanswerable|(?:relevant )?(?:answer |it |information |this )?(?:is )?{_MISSING}{_PLACE}"
    rf"|no (?:answer|information|evidence|relevant information|mention)(?: (?:is )?{_STATED})?{_PLACE}"
    rf"|no {_SOURCE} (?:{_SAY}s?|{_STATED})\b.*"
    r"|(?:i am |im |i was )?(?:not sure|unsure|unable to (?:answer|determine|find|say|identify)).*"
    rf"|i (?:{_DO_NOT}|{_CANNOT}) "
    r"(?:know|answer|determine|find|tell|say|provide|identify"
    r"|have (?:any |enough |sufficient )?(?:information|context)).*"
    rf"|(?:it |answer |(?:this |your )?question |this )?(?:(?:is not|isnt) possible to|{_CANNOT} be) {_FIND}\b.*"
    r"|(?:it |answer |(?:this |your )?question |this )?is not (?:known|clear|mentioned|specified|provided|stated)\b.*"
    rf"|(?:{_CANNOT}|impossible to|not possible to) {_FIND}(?: (?:this |question|answer|it))*{_PLACE}"
    r"|(?:it is|its|it isnt) (?:not (?:possible|clear|known|mentioned|specified|provided|stated)|possible to"
    r"|impossible|unclear|unknown)\b.*"
    rf"|(?:there is|theres|there was|there isnt|there are) (?:{_LITTLE}|any|enough) (?:\w+ )?{_FACTS}\b.*"
    rf"|{_LITTLE} {_FACTS}\b(?: (?:is |was )?{_STATED}| to .*| about .*| on .*| regarding .*|){_PLACE}"
    rf"|(?:none of {_SOURCE}|{_SOURCE} {_DO_NOT}) {_EXPLICITLY}{_SAY}s?\b.*"
    rf"|{_SOURCE} (?:provide|contain|give|have|include|offer|is|are)s? {_LITTLE} .*"
    rf"|{_SOURCE} makes? no mention\b.*"
    ")"
)
_SMALL_WORDS = frozenset(
    {"a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"}
)
# capitalized ones: "I Don't Know" is an abstention
_TITLE_WORDS = 3
_PRONOUNS = ("i ", "im ", "it ", "its ", "there ", "theres ", "cant ", "cannot ", "no ")


def score(prediction: str | None, golds: Sequence[str], profile: str) -> Score:
    """Return EM and F1 in 0..1 under `profile`. `golds`: the gold answer and its aliases.

    A prediction of None (of a failed question) scores 0. Some released scorers can give EM 1 and F1 0: see
    `hotpotqa_f1`.

    Raises ConfigError: no such profile. ValueError: no gold answer. TypeError: `golds` is a string.
    """
    formula = profile_formula(profile)
    _check_golds(golds)
    return {"em": 0.0, "f1": 0.0} if prediction is None else formula(prediction, golds)


def containment(prediction: str | None, golds: Sequence[str], profile: str) -> float | None:
    """Return whether the answer contains a gold answer by the rule of `profile`, as 0 or 1. Raises as `score`.

    A prediction of None (of a failed question) scores 0. None: `profile` does not count the answer.
    """
    profile_formula(profile)
    _check_golds(golds)
    return 0.0 if prediction is None else CONTAINMENT.get(profile, contains_gold)(prediction, golds)


def _check_golds(golds: Sequence[str]) -> None:
    if isinstance(golds, str):
        raise TypeError(f"golds={golds!r}: a list of gold answers is wanted, not one string")
    if not golds:
        raise ValueError("a question without gold answers cannot be scored")


def profile_formula(profile: str) -> Callable[[str, Sequence[str]], Score]:
    """Return the scoring function of a profile. Raises ConfigError: no such profile, or its package is missing."""
    if profile not in PROFILES:
        hint = nearest(profile, PROFILES)
        raise ConfigError(
            f"scoring={profile}: no such rules of EM and F1. {hint} Without scoring=, they are the dataset's profile."
        )
    if profile not in available_profiles():
        require_packages(*NEEDED[profile])
    return PROFILES[profile]


@cache
def available_profiles() -> tuple[str, ...]:
    """Return the profiles with all packages that they need."""
    return tuple(name for name in PROFILES if name not in NEEDED or is_available(NEEDED[name][1]))


def exact_match(prediction: str, gold: str) -> float:
    """Return 1 if both are equal after normalization (SQuAD; Rajpurkar et al., EMNLP 2016)."""
    return float(normalize(prediction) == normalize(gold))


def token_f1(prediction: str, gold: str) -> float:
    """Return the harmonic mean of token precision and recall (SQuAD; Rajpurkar et al., EMNLP 2016).

    Without a shared token it is 0, also for two empty answers.
    """
    return _f1(count_words(normalize(prediction)), count_words(normalize(gold)))


def _f1(mine: Counter[str], theirs: Counter[str]) -> float:
    """Return the harmonic mean of precision and recall of words, from how often both texts have each."""
    return _harmonic_mean((theirs & mine).total(), mine.total(), theirs.total())


def _harmonic_mean(shared: int, mine: int, theirs: int) -> float:
    """Return the harmonic mean of precision and recall, or 0 if nothing is shared."""
    if not shared:
        return 0.0
    precision, recall = shared / mine, shared / theirs
    return 2 * precision * recall / (precision + recall)


def hotpotqa_f1(prediction: str, gold: str) -> float:
    """Return `token_f1`, but 0 if one side is yes, no or noanswer and the other differs (Yang et al., EMNLP 2018).

    Two empty answers have EM 1 and F1 0, as in the released scorer.
    """
    mine, theirs = normalize(prediction), normalize(gold)
    if mine != theirs and _CLOSED_ANSWERS & {mine, theirs}:
        return 0.0
    return token_f1(prediction, gold)


def musique_f1(prediction: str, gold: str) -> float:
    """Return `token_f1`, or 1 for two empty answers (Trivedi et al., TACL 2022)."""
    return 1.0 if not normalize(prediction) and not normalize(gold) else token_f1(prediction, gold)


def trace_f1(prediction: str, gold: str) -> float:
    """Return `hotpotqa_f1`, or 1 for two answers without words after normalization (Fang et al., 2024)."""
    return (
        1.0 if not normalize(prediction) and not normalize(gold) else hotpotqa_f1(prediction, gold)
    )


def r1_searcher_f1(prediction: str, gold: str) -> float:
    """Return `hotpotqa_f1` with R1-Searcher's normalization (Song et al., 2025)."""
    mine, theirs = normalize_as_r1_searcher(prediction), normalize_as_r1_searcher(gold)
    if mine != theirs and _CLOSED_ANSWERS & {mine, theirs}:
        return 0.0
    return _f1(count_words(mine), count_words(theirs))


def drop_profile(prediction: str, golds: Sequence[str]) -> Score:
    """Score as DROP does (Dua et al., NAACL 2019), best over golds.

    A gold answer is one span or a JSON list of spans. A prediction in brackets is a list separated by commas.
    """
    return _best_drop(_predicted_spans(prediction), [_spans(gold) for gold in golds])


def ircot_profile(prediction: str, golds: Sequence[str]) -> Score:
    """Score as `drop_profile`, with both sides repaired by ftfy, as IRCoT's evaluation does (Trivedi et al., 2023).

    Of a chain of thought, only what follows "answer is" counts.
    """
    predicted = [repair_text(_strip_chain(span)) for span in _predicted_spans(prediction)]
    return _best_drop(predicted, [[*map(repair_text, _spans(gold))] for gold in golds])


def _best_drop(predicted: Sequence[str], golds: Sequence[Sequence[str]]) -> Score:
    # no F1 beats an exact match's
    exact, f1 = max(drop_scores(predicted, gold) for gold in golds)
    return {"em": exact, "f1": f1}


def _predicted_spans(prediction: str) -> list[str]:
    if prediction.strip().startswith("[") or prediction.strip().endswith("]"):
        return re.sub(r'["\[\]]', "", prediction).split(",")
    return [prediction]


def _strip_chain(span: str) -> str:
    bare = span[1:-1] if span.startswith('"') and span.endswith('"') else span
    match = _CHAIN.match(bare)
    return match[1].removesuffix(".") if match else bare


def drop_scores(predicted: Sequence[str], gold: Sequence[str]) -> tuple[float, float]:
    """Return EM and F1 of the predicted spans against the spans of one gold answer, in any order.

    EM is 1 for the same spans after normalization. F1 is the sum over aligned spans divided by the length of the longer
    list, rounded to two digits.

    Raises ValueError: no span on one side.
    """
    if not predicted or not gold:
        raise ValueError("DROP compares at least one predicted span with at least one gold span")
    predicted_spans = [normalize_for_drop(span) for span in predicted]
    gold_spans = [normalize_for_drop(span) for span in gold]
    same = len(predicted_spans) == len(gold_spans) and set(predicted_spans) == set(gold_spans)
    span_f1 = [[drop_span_f1(mine, theirs) for mine in predicted_spans] for theirs in gold_spans]
    mean = best_alignment(span_f1) / max(len(predicted), len(gold))
    # as NumPy rounds: round(mean, 2) rounds some halves the other way
    return float(same), round(mean * 100) / 100


def drop_span_f1(predicted: str, gold: str) -> float:
    """Return F1 between the sets of words of two normalized spans, or 1 for two empty spans.

    If the gold span contains numbers and the prediction none of them, it is 0. This rule is not symmetric.
    """
    mine, theirs = count_words(predicted).keys(), count_words(gold).keys()
    numbers = {word for word in theirs if is_number(word)}
    if numbers and not numbers & mine:
        return 0.0
    if not mine and not theirs:
        return 1.0
    return _harmonic_mean(len(mine & theirs), len(mine), len(theirs))


def best_alignment(scores: Sequence[Sequence[float]]) -> float:
    """Return the largest sum of scores over one-to-one pairings of rows with columns (Kuhn, 1955)."""
    if len(scores) == 1:
        return max(scores[0])
    if len(scores[0]) == 1:
        return max(row[0] for row in scores)
    from scipy.optimize import linear_sum_assignment  # slow to import

    rows, columns = linear_sum_assignment(scores, maximize=True)
    return sum((scores[row][column] for row, column in zip(rows, columns, strict=True)), start=0.0)


def _spans(gold: str) -> Sequence[str]:
    if gold.startswith('["'):
        with suppress(JsonError):
            return [str(span) for span in decode_json(gold)]
    return [gold]


def _best(f1: Formula, prediction: str, golds: Sequence[str]) -> Score:
    formulas = {"em": exact_match, "f1": f1}
    return {
        name: max(formula(prediction, gold) for gold in golds) for name, formula in formulas.items()
    }


def contains_gold(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if the answer contains the words of a gold answer in sequence, normalized as for EM, otherwise 0.

    This is the "accuracy" of papers on RAG (Mallen et al., ACL 2023), but of complete words: substrings would find
    "no" in "I do not know". Only an empty answer contains an empty gold answer.
    """
    words = f" {normalize(answer)} "
    return float(
        any(f" {gold} " in words if gold else words == "  " for gold in map(normalize, golds))
    )


def contains_letters(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if the first gold answer is a substring of the answer, normalized as for EM (Zhuang et al., 2026).

    This is the "Contain" of LinearRAG: "no" is in "I do not know". Answers and gold answers of blanks count as 0.
    """
    return float(
        bool(answer.strip() and golds[0].strip()) and normalize(golds[0]) in normalize(answer)
    )


def contains_letters_if_answered(answer: str, golds: Sequence[str]) -> float | None:
    """Return 1 as `contains_letters`. None: there is no answer, because A-RAG divides by the answered questions."""
    if not answer.strip():
        return None
    return float(bool(golds[0]) and normalize(golds[0]) in normalize(answer))


def covers_gold(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if the answer has all words of a gold answer, in any order: Cover-EM of R1-Searcher."""
    # the released code splits at blanks, so that a text without words has the word ""
    words = count_words(normalize_as_r1_searcher(answer)) or {""}
    return float(
        any(
            all(word in words for word in normalize_as_r1_searcher(gold).split(" "))
            for gold in golds
        )
    )


def abstains(answer: str) -> bool:
    """Return whether an answer is empty or an abstention such as "I don't know.", "not mentioned" or "N/A".

    The list is ours. "Yes", "no" and "none" are answers.
    """
    text = normalize(answer)
    return not text or (
        re.fullmatch(_ABSTENTIONS, text) is not None and not _is_title(answer, text)
    )


def _is_title(answer: str, text: str) -> bool:
    """Return whether the answer is a title such as "I Can't Tell You Why": a clause with capitals."""
    words = [word for word in re.findall(r"[^\W\d_][\w'’]*", answer) if word not in _SMALL_WORDS]
    return (
        len(words) >= _TITLE_WORDS
        and text.startswith(_PRONOUNS)
        and all(word[0].isupper() for word in words)
    )


PROFILES: Mapping[str, Callable[[str, Sequence[str]], Score]] = {
    # Yang et al., EMNLP 2018: the first gold answer only
    "hotpotqa": lambda prediction, golds: _best(hotpotqa_f1, prediction, golds[:1]),
    # Ho et al., COLING 2020, scorer v1.1: the best over all answers
    "2wiki": lambda prediction, golds: _best(hotpotqa_f1, prediction, golds),
    # Trivedi et al., TACL 2022: the best over answer and aliases
    "musique": lambda prediction, golds: _best(musique_f1, prediction, golds),
    "drop": drop_profile,
    "ircot": ircot_profile,
    # Fang et al., 2024, released program: EM over all answers, F1 of the first. An alias can have EM 1 and F1 0.
    "trace": lambda prediction, golds: {
        "em": float(any(exact_match(prediction, gold) for gold in golds)),
        "f1": trace_f1(prediction, golds[0]),
    },
    # Wang et al., 2024, released notebook: the first answer, or its best span if it is a list as in IIRC
    "kgp": lambda prediction, golds: _best(token_f1, prediction, _spans(golds[0])),
    # Kwon et al., 2026, released program: the rules of MuSiQue's scorer
    "safe": lambda prediction, golds: _best(musique_f1, prediction, golds),
    # Gutiérrez et al., ICML 2025, released program
    "hipporag": lambda prediction, golds: _best(token_f1, prediction, golds),
    # Zhuang et al., 2026 and Du et al., 2026: their programs have no EM and F1. Here are SQuAD's of the first answer
    "linearrag": lambda prediction, golds: _best(token_f1, prediction, golds[:1]),
    "arag": lambda prediction, golds: _best(token_f1, prediction, golds[:1]),
    # Song et al., 2025, released program
    "r1_searcher": lambda prediction, golds: {
        "em": float(
            any(
                normalize_as_r1_searcher(prediction) == normalize_as_r1_searcher(gold)
                for gold in golds
            )
        ),
        "f1": max(r1_searcher_f1(prediction, gold) for gold in golds),
    },
}
# the extra and the package of profiles
NEEDED = {"ircot": ("ircot", "ftfy")}
# profiles of which the released program does not search for whole words
CONTAINMENT: Mapping[str, Callable[[str, Sequence[str]], float | None]] = {
    "linearrag": contains_letters,
    "arag": contains_letters_if_answered,
    "r1_searcher": covers_gold,
}
