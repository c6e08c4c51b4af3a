"""Compare the held-out examples before and after a training, with paired intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.examples import EXAMPLES, read_examples
from kgqa.artifacts.manifest import StageManifest
from kgqa.artifacts.schema import read_lines
from kgqa.artifacts.trained import Measured
from kgqa.calls import Rank
from kgqa.errors import ConfigError, DataError
from kgqa.methods.steps.safe_verdict import read_verdict
from kgqa.retrieval.lexical import Lexical
from kgqa.scoring.intervals import interval
from kgqa.scoring.metrics import token_f1
from kgqa.training.collect.collecting import Collecting
from kgqa.training.collect.facts import ordered_passages
from kgqa.training.train.request import ExampleSplit
from kgqa.training.trainers.process import REPLIES, TextExample, TrainResult

GOLD_FIRST = "gold passage first"
Score = Callable[[TextExample, str], float]


@dataclass(frozen=True)
class NextPassage:
    """The passage of the next fact among those that are not read yet, as KGP's traversal looks for it (Equation 1)."""

    question: str  # its text
    gold: str
    others: tuple[str, ...]

    def is_first_for(self, query: str) -> bool:
        """Return whether TF-IDF ranks the gold passage before all others."""
        gold, *others = Lexical().score([Rank(query, (self.gold, *self.others), "tfidf")])[0]
        return bool(gold > max(others, default=0.0))


def evaluate(
    folder: Path, split: ExampleSplit, result: TrainResult, seed: int
) -> tuple[tuple[Measured, ...], dict[str, float]]:
    """Return the trainer's figures with those of the replies in the folder of a training, and baselines in percent.

    These are token F1, for SAFE's verdicts the accuracy of labels, and for KGP's next facts how often they rank their
    passage first. The baselines need no training: the most frequent label only, and the question as query.
    """
    rows = [compare(name, before, after, seed) for name, (before, after) in result.measured.items()]
    texts = {example.id: example for example in split.held_out if isinstance(example, TextExample)}
    lines = [line for _, line in read_lines(folder / REPLIES)] if (folder / REPLIES).is_file() else []
    replies = [(texts[line["id"]], line["before"], line["after"]) for line in lines if line["id"] in texts]
    baselines = dict[str, float]()

    def add(name: str, score: Score, of: Sequence[tuple[TextExample, str, str]]) -> None:
        before = [score(example, old) for example, old, _ in of]
        rows.append(compare(name, before, [score(example, new) for example, _, new in of], seed))

    if replies:
        add("token F1", lambda example, reply: token_f1(reply, example.completion), replies)
    first = next((example for example in split.train if isinstance(example, TextExample)), None)
    if replies and first and read_verdict(first.completion):
        add("label accuracy", lambda example, reply: float(_label(reply) == example.label), replies)
        labels = Counter(example.label for example in split.train if isinstance(example, TextExample))
        if len(labels) > 1:
            label = labels.most_common(1)[0][0]
            same = [float(example.label == label) for example, _, _ in replies]
            baselines[f"label accuracy, {label} only"] = _percent(same)
    passages = next_passages(split.collected)
    if facts := [reply for reply in replies if reply[0].id in passages]:
        add(GOLD_FIRST, lambda example, reply: float(passages[example.id].is_first_for(reply)), facts)
        asked = [(passages[example.id], example) for example, _, _ in facts]
        f1 = [token_f1(passage.question, example.completion) for passage, example in asked]
        baselines["token F1, the question as query"] = _percent(f1)
        found = [float(passage.is_first_for(passage.question)) for passage, _ in asked]
        baselines[f"{GOLD_FIRST}, the question as query"] = _percent(found)
    return tuple(rows), baselines


def compare(name: str, before: Sequence[float], after: Sequence[float], seed: int) -> Measured:
    """Return the means of a figure in percent, and their difference with its 95 % paired bootstrap interval."""
    differences = [100 * (new - old) for old, new in zip(before, after, strict=True)]
    low, high = interval(differences, seed=seed)
    return Measured(
        name=name, before=_percent(before), after=_percent(after), difference=sum(differences) / len(differences),
        low=low, high=high, n=len(differences),
    )  # fmt: skip


def _percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / len(values)


def _label(reply: str) -> str:
    verdict = read_verdict(reply)
    return verdict.error_type if verdict else ""


def next_passages(collected: Path | None) -> dict[str, NextPassage]:
    """Return by example id, for a folder of `kgqa collect kgp`. Empty for others, or if its data is missing."""
    if collected is None:
        return {}
    try:
        command = StageManifest.read(collected, "collect kgp").origin.command
        collecting = Collecting.of("kgp", [word for word in command if "=" in word])
    except (DataError, ConfigError):
        return {}
    if collecting.stage.path.resolve() != collected.resolve():
        return {}
    questions = {(each.dataset, question.id): question for each in collecting.sources for question in each.questions}
    passages = {}
    for example in read_examples(collected / EXAMPLES):
        if question := questions.get((example.origin.dataset, example.question)):
            *read, gold = [passage.id for passage in ordered_passages(question)[: example.origin.place]]
            texts = {passage.id: passage.wording for passage in question.passages}
            others = tuple(text for id_, text in texts.items() if id_ not in (*read, gold))
            passages[example.id] = NextPassage(question.text, texts[gold], others)
    return passages
