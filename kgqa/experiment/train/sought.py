"""Whether what KGP's agent writes finds the passage that is needed next, as the traversal looks for it (Equation 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.stage import StageManifest
from kgqa.calls import Rank
from kgqa.errors import ConfigError, DataError
from kgqa.examples import EXAMPLES, Example, read_examples
from kgqa.experiment.collect.collecting import Collecting
from kgqa.experiment.collect.facts import ordered_passages
from kgqa.retrieval.lexical import Lexical
from kgqa.types import Question

RECIPE = "kgp"


@dataclass(frozen=True)
class Sought:
    """question: its text. gold: the passage of the next fact. others: the question's passages that are not read yet."""

    question: str
    gold: str
    others: tuple[str, ...]

    def found(self, query: str) -> float:
        """1 where TF-IDF puts the gold passage before all others, 0 where another is as near or nearer."""
        gold, *others = Lexical().score([Rank(query, (self.gold, *self.others), "tfidf")])[0]
        return float(gold > max(others, default=0.0))


def sought(collected: Path | None) -> dict[str, Sought]:
    """By the id of an example of `kgqa collect kgp`; none of others, or where its data is not here any more."""
    if collected is None:
        return {}
    try:
        command = StageManifest.read(collected, f"collect {RECIPE}").origin.command
        collecting = Collecting.of(RECIPE, [word for word in command if "=" in word])
    except (DataError, ConfigError):
        return {}
    if collecting.stage.path.resolve() != collected.resolve():
        return {}
    questions = {(each.dataset, question.id): question for each in collecting.sources for question in each.questions}
    return dict(_sought(collected, questions))


def _sought(collected: Path, questions: dict[tuple[str, str], Question]) -> Iterator[tuple[str, Sought]]:
    for example in read_examples(collected / EXAMPLES):
        question = questions.get((example.origin.dataset, example.question))
        if question is None or not isinstance(example, Example):
            continue
        *read, gold = [passage.id for passage in ordered_passages(question)[: example.origin.place]]
        texts = {passage.id: passage.wording for passage in question.passages}
        others = tuple(text for id_, text in texts.items() if id_ not in (*read, gold))
        yield example.id, Sought(question.text, texts[gold], others)
