"""The texts that a training is given: read, checked, put into the base's own words, and parted by question.

A file of texts has a line for each: {"prompt", "completion"} as the model sees them, or {"anchor", "positive",
"negatives"}; beside these, if it likes, "id", "question" (what is held out together), "label" and "hop".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artefacts.form import checked
from kgqa.errors import ConfigError, DataError
from kgqa.records import records
from kgqa.storage import jsonl_text, text_digest
from kgqa.types import Json

FEWEST = 2  # questions: one to train on, one held out


@dataclass(frozen=True, slots=True)
class Written:
    id: str
    question: str
    prompt: str
    completion: str
    label: str = ""

    def line(self) -> dict[str, Json]:
        return {"id": self.id, "prompt": self.prompt, "completion": self.completion}


@dataclass(frozen=True, slots=True)
class Paired:
    id: str
    question: str
    anchor: str
    positive: str
    negatives: tuple[str, ...]
    hop: int | None = None

    def line(self) -> dict[str, Json]:
        return {
            "id": self.id, "anchor": self.anchor, "positive": self.positive, "negatives": list(self.negatives),
            "question": self.question, "hop": self.hop,
        }  # fmt: skip


@dataclass(frozen=True)
class _GivenText:
    prompt: str
    completion: str
    id: str | None = None
    question: str | None = None
    label: str = ""


@dataclass(frozen=True)
class _GivenPair:
    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    id: str | None = None
    question: str | None = None
    hop: int | None = None


@dataclass(frozen=True)
class Parted:
    """`made_of`, `templates`, `licences`, `question_hashes`, `text_hashes`: as far as they are known."""

    train: tuple[Written | Paired, ...]
    held_out: tuple[Written | Paired, ...]
    collected: Path | None = None
    made_of: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    text_hashes: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, str]:
        """The two files."""
        train, held_out = (jsonl_text(example.line() for example in some) for some in (self.train, self.held_out))
        return train, held_out

    @property
    def sha256(self) -> str:
        return text_digest("\n".join(self.texts))

    @property
    def questions(self) -> list[str]:
        return sorted({example.question for example in self.train})

    @property
    def held_out_questions(self) -> list[str]:
        return sorted({example.question for example in self.held_out})


def texts_of(file: Path, *, pairs: bool) -> Iterator[Written | Paired]:
    """The lines of a file of rendered texts. Raises DataError naming the line."""
    seen: set[str] = set()
    for place, line in records(file):
        made = _pair(line, place) if pairs else _text(line, place)
        if made.id in seen:
            raise DataError(f"{place}: id={made.id!r:.60} stands there twice; give each line an id of its own")
        seen.add(made.id)
        yield made


def part(examples: Iterable[Written | Paired], held_out: float, count: int | None, seed: int) -> Parted:
    """Some questions are held out, with all that was made of them; of the rest the first `count` examples.

    Raises:
        ConfigError: more examples are wanted, or more questions held out, than there are.
        DataError: there are no two questions.
    """
    ordered = drawn(examples, seed)
    questions = sorted({example.question for example in ordered})
    if len(questions) < FEWEST:
        raise DataError(f"the examples are of {len(questions)} question; a training needs {FEWEST} or more")
    out = frozenset(some_of(questions, held_out, len(questions), seed))
    if len(out) == len(questions):
        raise ConfigError(f"train.held_out={held_out:g}: there are only {len(questions):,} questions; give a share")
    return divided(ordered, out, out, count)


def drawn(examples: Iterable[Written | Paired], seed: int) -> list[Written | Paired]:
    """In an order drawn from the seed and the ids, so not that of the file."""
    return sorted(examples, key=lambda example: text_digest(f"{seed} {example.id}"))


def some_of(questions: Iterable[str], wanted: float, of: int, seed: int) -> list[str]:
    """`wanted`: below 1 a share of so many, else how many; drawn from the seed, all where there are fewer."""
    ordered = sorted(questions, key=lambda name: text_digest(f"{seed} {name}"))
    return ordered[: max(1, round(wanted * of)) if 0 < wanted < 1 else int(wanted)]


def divided(
    examples: Sequence[Written | Paired], held_out: frozenset[str], measured: frozenset[str], count: int | None
) -> Parted:
    """`held_out`: questions that nothing is trained on; `measured`: those of them whose examples are measured."""
    train = [example for example in examples if example.question not in held_out]
    if count is not None and count > len(train):
        raise ConfigError(f"train.examples={count}: there are only {len(train):,} that are not held out")
    if not train:
        raise DataError("all examples are held out; nothing is left to train on")
    return Parted(tuple(train[:count]), tuple(example for example in examples if example.question in measured))


def _text(line: Json, place: str) -> Written:
    given = checked(_GivenText, _object(line, place, "prompt, completion"), place, _REMEDY)
    if not given.completion.strip():
        raise DataError(f"{place}: completion is empty; nothing can be learnt from it")
    name = given.id or text_digest(f"{given.prompt}\n{given.completion}", 16)
    return Written(name, given.question or text_digest(given.prompt, 16), given.prompt, given.completion, given.label)


def _pair(line: Json, place: str) -> Paired:
    given = checked(_GivenPair, _object(line, place, "anchor, positive"), place, _REMEDY)
    name = given.id or text_digest(f"{given.anchor}\n{given.positive}", 16)
    question = given.question or text_digest(given.anchor, 16)
    return Paired(name, question, given.anchor, given.positive, given.negatives, given.hop)


_REMEDY = "correct the line"


def _object(line: Json, place: str, keys: str) -> Json:
    if not isinstance(line, dict):
        raise DataError(f"{place}: not an object with {keys}; {_REMEDY}")
    return line
