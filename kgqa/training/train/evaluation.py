"""Compare the held-out examples before and after a training, with paired intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.artifacts.examples import EXAMPLES, Example, read_examples
from kgqa.artifacts.schema import read_lines
from kgqa.artifacts.stage import StageManifest
from kgqa.artifacts.trained import Measured
from kgqa.calls import Rank
from kgqa.errors import ConfigError, DataError
from kgqa.methods.steps.safe_verdict import read_verdict
from kgqa.retrieval.lexical import Lexical
from kgqa.scoring.intervals import interval
from kgqa.scoring.metrics import token_f1
from kgqa.training.collect.collecting import Collecting
from kgqa.training.collect.facts import ordered_passages
from kgqa.training.train.request import ExampleSplit, TextExample
from kgqa.training.trainers.task import REPLIES, TrainResult
from kgqa.types import Question

GOLD_FIRST = "gold passage first"


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


@dataclass(frozen=True)
class Reply:
    """A held-out example with the replies before and after training."""

    example: TextExample
    before: str
    after: str


@dataclass(frozen=True)
class Evaluation:
    """The held-out examples of a training in its folder."""

    folder: Path
    examples: ExampleSplit

    @cached_property
    def replies(self) -> list[Reply]:
        file, by_id = self.folder / REPLIES, {example.id: example for example in self.examples.held_out}
        replies = []
        for _, line in read_lines(file) if file.is_file() else ():
            example = by_id.get(line["id"])
            if isinstance(example, TextExample):
                replies.append(Reply(example, str(line["before"]), str(line["after"])))
        return replies

    @cached_property
    def learns_verdicts(self) -> bool:
        """Return whether the examples are SAFE's verdicts."""
        first = next((example for example in self.examples.train if isinstance(example, TextExample)), None)
        return first is not None and read_verdict(first.completion) is not None

    @cached_property
    def next_passages(self) -> dict[str, NextPassage]:
        return next_passages(self.examples.collected)

    def measured(self, result: TrainResult, seed: int) -> tuple[Measured, ...]:
        """Return the trainer's figures, and those of the replies.

        These are token F1, for SAFE's verdicts the accuracy of labels, and for KGP's next facts how often they rank
        their passage first.
        """
        rows = [compare(name, before, after, seed) for name, (before, after) in result.measured.items()]
        scores: dict[str, Callable[[TextExample, str], float]] = {}
        if self.replies:
            scores["token F1"] = lambda example, reply: token_f1(reply, example.completion)
        if self.replies and self.learns_verdicts:
            scores["label accuracy"] = _has_label
        rows += [self._compare_replies(name, score, self.replies, seed) for name, score in scores.items()]
        if facts := [reply for reply in self.replies if reply.example.id in self.next_passages]:
            rows.append(self._compare_replies(GOLD_FIRST, self._ranks_gold_first, facts, seed))
        return tuple(rows)

    def _compare_replies(
        self, name: str, score: Callable[[TextExample, str], float], replies: Sequence[Reply], seed: int
    ) -> Measured:
        before = [score(reply.example, reply.before) for reply in replies]
        return compare(name, before, [score(reply.example, reply.after) for reply in replies], seed)

    def _ranks_gold_first(self, example: TextExample, query: str) -> float:
        return float(self.next_passages[example.id].is_first_for(query))

    def baselines(self) -> dict[str, float]:
        """Return figures that need no training, in percent of the answered examples.

        For labels this is the most frequent one, for next facts the question as query.
        """
        figures: dict[str, float] = {}
        labels = [example.label for example in self.examples.train if isinstance(example, TextExample)]
        if self.learns_verdicts and self.replies and len({*labels}) > 1:
            label = Counter(labels).most_common(1)[0][0]
            same = sum(reply.example.label == label for reply in self.replies)
            figures[f"label accuracy, {label} only"] = 100 * same / len(self.replies)
        facts = [
            (self.next_passages[r.example.id], r.example) for r in self.replies if r.example.id in self.next_passages
        ]
        if facts:
            f1 = sum(token_f1(passage.question, example.completion) for passage, example in facts)
            first = sum(passage.is_first_for(passage.question) for passage, _ in facts)
            figures["token F1, the question as query"] = 100 * f1 / len(facts)
            figures[f"{GOLD_FIRST}, the question as query"] = 100 * first / len(facts)
        return figures

    def confusion(self) -> dict[str, dict[str, int]]:
        """Return by gold label how often each label was predicted after training. "" is no verdict."""
        table: dict[str, Counter[str]] = {}
        for reply in self.replies if self.learns_verdicts else ():
            verdict = read_verdict(reply.after)
            table.setdefault(reply.example.label, Counter())[verdict.error_type if verdict else ""] += 1
        return {label: dict(predicted) for label, predicted in sorted(table.items())}


def compare(name: str, before: Sequence[float], after: Sequence[float], seed: int) -> Measured:
    """Return the means of a figure in percent, and their difference with its 95 % paired bootstrap interval."""
    differences = [100 * (new - old) for old, new in zip(before, after, strict=True)]
    low, high = interval(differences, seed=seed)
    count = len(differences)
    return Measured(
        name=name, before=100 * sum(before) / count, after=100 * sum(after) / count,
        difference=sum(differences) / count, low=low, high=high, n=count,
    )  # fmt: skip


def _has_label(example: TextExample, reply: str) -> float:
    verdict = read_verdict(reply)
    return float(verdict is not None and verdict.error_type == example.label)


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
    return dict(_next_passages(collected, questions))


def _next_passages(collected: Path, questions: dict[tuple[str, str], Question]) -> Iterator[tuple[str, NextPassage]]:
    for example in read_examples(collected / EXAMPLES):
        question = questions.get((example.origin.dataset, example.question))
        if question is None or not isinstance(example, Example):
            continue
        *read, gold = [passage.id for passage in ordered_passages(question)[: example.origin.place]]
        texts = {passage.id: passage.wording for passage in question.passages}
        others = tuple(text for id_, text in texts.items() if id_ not in (*read, gold))
        yield example.id, NextPassage(question.text, texts[gold], others)
