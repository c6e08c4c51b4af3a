"""Count examples while they are written, and choose the held-out questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kgqa.artifacts.collected import Collected, Instances
from kgqa.artifacts.examples import Dropped, Example, Made, Positive
from kgqa.artifacts.question_hashes import QuestionHashes, text_hash
from kgqa.artifacts.schema import Number
from kgqa.prompting import template_hash
from kgqa.util.fs import text_digest

Key = tuple[str, str]  # a data set and a question's id


@dataclass
class Counts:
    """The counts of all examples that passed through `count`."""

    dropped: list[Dropped] = field(default_factory=list)
    labels: dict[Key, Counter[tuple[str, int]]] = field(default_factory=dict)  # by question: label and place
    templates: set[str] = field(default_factory=set)
    made_by: Counter[str] = field(default_factory=Counter)
    first: Example | Positive | None = None

    def count(self, made: Iterable[Made]) -> Iterator[Example | Positive]:
        """Yield the examples, and count them."""
        for one in made:
            if isinstance(one, Dropped):
                self.dropped.append(one)
                continue
            counts = self.labels.setdefault((one.origin.dataset, one.question), Counter())
            counts[one.label, one.origin.place] += 1
            self.made_by[one.origin.made_by] += 1
            if isinstance(one, Example):
                self.templates.add(one.prompt.name)
            self.first = self.first or one
            yield one

    def summarize(
        self, recipe: str, texts: Mapping[Key, str], draw: HeldOut, figures: Mapping[str, Number]
    ) -> Collected:
        """Return the figures of the folder. `texts`: of all questions."""
        out = draw.sample({key: texts[key] for key in self.labels})
        trained = ((*key, texts[key]) for key in self.labels if key not in out)
        total, withheld = (
            sum((counts for key, counts in self.labels.items() if key in keys), Counter[tuple[str, int]]())
            for keys in (self.labels.keys(), out)
        )
        withheld_labels = Counter[str]()
        for (label, _), count in withheld.items():
            withheld_labels[label] += count
        return Collected(
            recipe=recipe,
            datasets={name: self._instances(name) for name in dict.fromkeys(name for name, _ in self.labels)},
            labels={label: _places(label, total) for label in dict.fromkeys(label for label, _ in total)},
            held_out_labels=dict(withheld_labels),
            held_out=tuple(sorted(f"{dataset}/{id_}" for dataset, id_ in out)),
            dropped=Counter(one.why for one in self.dropped),
            templates={name: template_hash(name) for name in sorted(self.templates)},
            question_hashes=QuestionHashes.of(trained),
            figures=figures,
            made_by=dict(self.made_by),
        )

    def _instances(self, dataset: str) -> Instances:
        rows = [counts.total() for (name, _), counts in self.labels.items() if name == dataset]
        return Instances(examples=sum(rows), questions=len(rows))


@dataclass(frozen=True)
class HeldOut:
    """A sample of questions. Questions with the same text are in it together."""

    share: float
    seed: int

    def sample(self, texts: Mapping[Key, str]) -> set[Key]:
        """Return the rounded share of the questions, and at least one of two unless it is 0."""
        by_text: dict[str, list[Key]] = {}
        for key, text in texts.items():
            by_text.setdefault(text_hash(text), []).append(key)
        count = round(self.share * len(by_text))
        if self.share and len(by_text) > 1:
            count = max(count, 1)
        drawn = sorted(by_text, key=lambda text: text_digest(f"{self.seed} {text}"))[:count]
        return {key for text in drawn for key in by_text[text]}


def _places(label: str, total: Counter[tuple[str, int]]) -> dict[int, int]:
    return {place: count for (name, place), count in sorted(total.items()) if name == label}
