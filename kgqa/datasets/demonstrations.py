"""Read files of few-shot examples (demonstrations): the `_target_` of a config.

There are two forms: kgqa's JSONL (`kgqa/demos/*.jsonl` and users' files), and the files that the authors of TRACE and
IRCoT released, `FILE#DATASET`. Triples stay texts, because a few of the authors' have two parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, RootModel, StrictInt, StringConstraints

from kgqa.calls import labels
from kgqa.datasets.schema import parse_record, refuse_half_surrogates
from kgqa.errors import DataError
from kgqa.prompting.demonstrations import (
    ChainDemonstration,
    DocumentDemonstration,
    Entity,
    Selection,
    SubQuestion,
    ThoughtDemonstration,
    shuffle_examples,
)
from kgqa.types import Json, JsonObject, Passage, Triple
from kgqa.util import jsonio
from kgqa.util.places import package_folder

T = TypeVar("T")
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Parts = tuple[Text, Text, Text]

DEMOS = package_folder() / "demos"
# keys of TRACE's file, spelled as there
DOCUMENTS, CHAINS = "TRIPLE_EXAMPLARS_", "GENERATING_CHAIN_EXAMPLARS_"
# Names of IRCoT's prompts
THOUGHTS = "gold_with_{}_distractors_context_cot_qa_codex.txt"
ANSWERS = "gold_with_1_distractors_context_direct_qa_codex.txt"
TITLES = "no_context_open_llm_retrieval_codex.txt"  # only IIRC's
# the question ids of the authors' three sets, from their program `run.py`
SETS = DEMOS / "ircot_sets.json"
METADATA = re.compile(r"^# METADATA: (.*)$", re.MULTILINE)
TITLE = re.compile(r"^Wikipedia Title: (.*)$", re.MULTILINE)
EXAMPLE = re.compile(r"(?P<context>.*)\nQ: (?P<question>.*?)\nA: (?P<reply>.*)", re.DOTALL)


def load_documents(path: str) -> tuple[DocumentDemonstration, ...]:
    """Return labeled documents.

    Args:
        path: a family (hotpotqa, 2wiki, musique, iirc) for kgqa's own, a JSONL file, plain or gzipped, or a dataset of
            the authors' file: `FILE#HOTPOTQA`. A file of `kgqa/demos` comes before one in the working directory.

    Raises:
        DataError: the file is missing or broken.
    """
    return _load(path, _document, "trace_documents", DOCUMENTS)


def load_chains(path: str) -> tuple[ChainDemonstration, ...]:
    """Return labeled chains; see `load_documents`."""
    return _load(path, _parse_released_chain if "#" in path else _chain, "trace_chains", CHAINS)


def load_thoughts(path: str, needs: tuple[str, ...] = ()) -> tuple[ThoughtDemonstration, ...]:
    """Return a pool of questions with their chains of thought; see `load_documents`.

    Args:
        path: `FILE#hotpotqa` is the file of IRCoT's prompts, which names 2Wiki 2wikimultihopqa.
        needs: fields that each question must have, such as "steps".

    Raises:
        DataError: the file is missing or broken, or a question lacks a needed field.
    """
    pool = _load_ircot_prompts(path) if "#" in path else _load(path, _thought, "pool")
    if lacking := next(
        ((each, need) for each in pool for need in needs if not getattr(each, need)), None
    ):
        raise DataError(
            f"{path}: the demonstration {lacking[0].question!r:.60} has no {lacking[1]!r}, which this method shows. "
            "Use hotpotqa, 2wiki, musique or iirc, or add them to the file"
        )
    return pool


def load_examples(path: str, keys: tuple[str, ...]) -> tuple[JsonObject, ...]:
    """Return records of a JSONL file as prompts show them. Raise a DataError if one has other keys than these."""

    def parse(record: Json, where: str) -> JsonObject:
        refuse_half_surrogates(record, where)
        if not isinstance(record, dict) or set(record) != set(keys):
            shape = ", ".join(record) if isinstance(record, dict) else repr(record)[:60]
            raise DataError(
                f"{where}: expected an object with the keys {', '.join(keys)}. Found {shape}"
            )
        return record

    return _load(path, parse)


def _load(
    path: str, parse: Callable[[Json, str], T], form: str = "", prefix: str = ""
) -> tuple[T, ...]:
    """Return the parsed records. form: the prefix of kgqa's files. prefix: of the keys in the authors' file."""
    records = _read_release(path, prefix) if "#" in path else _jsonl_records(path, form)
    examples = tuple(parse(record, where) for where, record in records)
    if not examples:
        raise DataError(f"{path}: no demonstrations in this file")
    return examples


def _find(path: str, form: str = "") -> Path:
    shipped = sorted(file.name for file in DEMOS.glob("*.jsonl"))
    for name in (f"{form}_{path}.jsonl", path):
        if name in shipped:
            return DEMOS / name
    if (own := Path(path).expanduser()).is_file():
        return own
    raise DataError(f"{path}: no such file of demonstrations. Shipped ones: {', '.join(shipped)}")


def _jsonl_records(path: str, form: str) -> Iterator[tuple[str, Json]]:
    file = _find(path, form)
    if ".json" in file.suffixes:
        raise DataError(
            f"{file}: a released file has several datasets. Name one, e.g. {file}#HOTPOTQA"
        )
    return jsonio.stream_records(file)


def _open_release(path: str) -> tuple[Path, str, Json]:
    """Return the file, the dataset and the content of FILE#DATASET."""
    name, _, dataset = path.rpartition("#")
    file = _find(name)
    return file, dataset, jsonio.read_value(file)


def _read_release(path: str, prefix: str) -> Iterator[tuple[str, Json]]:
    file, dataset, lists = _open_release(path)
    key = prefix + dataset.upper()
    if not isinstance(lists, dict) or not isinstance(lists.get(key), list):
        keys = lists if isinstance(lists, dict) else ()
        names = ", ".join(k.removeprefix(prefix) for k in keys if k.startswith(prefix)) or "none"
        raise DataError(f"{file}: no list {key!r}. Datasets in this file: {names}")
    return ((f"{file}: {key}[{number}]", record) for number, record in enumerate(lists[key]))


class DocumentRecord(BaseModel):
    title: Text
    text: Text
    # the authors' are lines of `<h; r; t>`
    triples: str | Annotated[tuple[Parts, ...], Field(min_length=1)]


def _document(raw: Json, where: str) -> DocumentDemonstration:
    record = parse_record(DocumentRecord, raw, where)
    if isinstance(record.triples, str):
        triples = tuple(line.strip() for line in record.triples.split("\n") if line.strip())
    else:
        triples = tuple(str(Triple(*parts)) for parts in record.triples)
    return DocumentDemonstration(record.title, record.text, triples)


class ChainStep(BaseModel):
    candidates: Annotated[tuple[Parts, ...], Field(min_length=1)]
    # a position in the candidates; None: stop
    choice: StrictInt | None


class ChainRecord(BaseModel):
    question: Text
    steps: Annotated[tuple[ChainStep, ...], Field(min_length=1)]


def _chain(raw: Json, where: str) -> ChainDemonstration:
    record = parse_record(ChainRecord, raw, where)
    selections = [
        Selection(tuple(str(Triple(*parts)) for parts in s.candidates), s.choice)
        for s in record.steps
    ]
    return _check(ChainDemonstration(record.question, tuple(selections)), where)


class ReleasedStep(BaseModel):
    question: Text
    # "B. <h; r; t>"; option A stops
    candidate_triples: Annotated[tuple[Text, ...], Field(min_length=1)]
    answer: str  # a letter


class ReleasedChain(RootModel[Annotated[tuple[ReleasedStep, ...], Field(min_length=1)]]):
    """A chain of the authors of TRACE."""


def _parse_released_chain(raw: Json, where: str) -> ChainDemonstration:
    steps = parse_record(ReleasedChain, raw, where).root
    selections = []
    for step in steps:
        letters = labels(len(step.candidate_triples))
        if step.answer not in letters:
            raise DataError(
                f"{where}: answer={step.answer!r} is not the letter of an option ({', '.join(letters)})"
            )
        pairs = zip(letters, step.candidate_triples, strict=True)
        _, *candidates = (option.removeprefix(f"{letter}.").strip() for letter, option in pairs)
        selections.append(
            Selection(
                tuple(candidates), letters.index(step.answer) - 1 if step.answer != "A" else None
            )
        )
    return _check(ChainDemonstration(steps[0].question, tuple(selections)), where)


def _check(chain: ChainDemonstration, where: str) -> ChainDemonstration:
    for number, step in enumerate(chain.selections, start=1):
        if step.choice is None and number < len(chain.selections):
            raise DataError(f"{where}: step {number} stops, but more steps follow")
        if step.choice is not None and not 0 <= step.choice < len(step.candidates):
            last = len(step.candidates) - 1
            raise DataError(
                f"{where}: step {number} has choice={step.choice}, but candidates 0 to {last}"
            )
    if not chain.chain:
        raise DataError(f"{where}: the chain selects no triple")
    return chain


class ExamplePassage(BaseModel):
    title: Text
    text: Text
    triples: tuple[Parts, ...] = ()  # what it states

    @property
    def passage(self) -> Passage:
        return Passage.of(self.title, self.text)


class ExampleStep(BaseModel):
    question: Text
    # one of a passage's; its tail is the answer
    triple: Parts


class ThoughtRecord(BaseModel):
    """A question of a pool. All methods need the first four fields, and name others by `needs`."""

    question: Text
    answer: Text
    # sentences; the last one says "the answer is: …"
    thoughts: Annotated[tuple[Text, ...], Field(min_length=1)]
    passages: Annotated[
        tuple[ExamplePassage, ...], Field(min_length=1)
    ]  # that support the thoughts
    # the main passage that the question is about
    pinned: tuple[ExamplePassage, ...] = ()
    distractors: tuple[ExamplePassage, ...] = ()
    # in an order in which each can be answered
    steps: tuple[ExampleStep, ...] = ()
    # triples that follow from what the passages state
    implied: tuple[Parts, ...] = ()
    # of the triples, with their types
    entities: dict[Text, Text] = {}


def _thought(raw: Json, where: str) -> ThoughtDemonstration:
    record = parse_record(ThoughtRecord, raw, where)
    if not record.thoughts[-1].endswith(f"the answer is: {record.answer}."):
        end = record.thoughts[-1]
        raise DataError(
            f"{where}: thoughts must end in 'the answer is: {record.answer}.', not {end!r:.80}"
        )
    contexts = _contexts(record)
    stated = {
        c.passage.id: tuple(Triple(*parts) for parts in c.triples)
        for c in (*record.pinned, *record.passages)
    }
    steps = []
    for step in record.steps:
        triple = Triple(*step.triple)
        passage = next((passage for passage in contexts[0] if triple in stated[passage.id]), None)
        if passage is None:
            raise DataError(f"{where}: steps: {triple} is among no passage's triples")
        steps.append(SubQuestion(step.question, triple, passage))
    return ThoughtDemonstration(
        record.question,
        record.answer,
        " ".join(record.thoughts),
        contexts,
        pinned=tuple(context.passage for context in record.pinned),
        titles=tuple(dict.fromkeys(context.title for context in record.passages)),
        steps=tuple(steps),
        triples=tuple(triple for passage in contexts[0] for triple in stated[passage.id]),
        implied=tuple(Triple(*parts) for parts in record.implied),
        entities=tuple(Entity(name, kind) for name, kind in record.entities.items()),
    )


def _contexts(record: ThoughtRecord) -> tuple[tuple[Passage, ...], ...]:
    """Return the passages shuffled with 0, 1, 2, … distractors, after the pinned ones."""
    pinned, gold, distractors = (
        [context.passage for context in contexts]
        for contexts in (record.pinned, record.passages, record.distractors)
    )
    mixed = shuffle_examples(distractors, record.question, lambda passage: passage.id)
    return tuple(
        (
            *pinned,
            *shuffle_examples(
                [*gold, *mixed[:count]], f"{record.question} {count}", lambda passage: passage.id
            ),
        )
        for count in range(len(mixed) + 1)
    )


# passages, question and reply of an example in IRCoT's prompts
Block = tuple[tuple[Passage, ...], str, str]


def _load_ircot_prompts(path: str) -> tuple[ThoughtDemonstration, ...]:
    """Return the examples of one dataset, in the order of the files; paragraphs stay in the authors' order.

    The file is an object of file names and prompts. An example of a prompt is a line '# METADATA: {"qid": …}',
    paragraphs as "Wikipedia Title: …" and a line of text, then "Q: …" and "A: …". The prompts have the same questions
    with 1, 2 and 3 distractors, with the chain of thought or only the answer.
    """
    file, dataset, prompts = _open_release(path)
    refuse_half_surrogates(prompts, str(file))
    try:
        parts = {
            tuple(name.split("/")[-2:]): text for name, text in prompts.items()
        }  # by dataset and file
        texts = {name: text for (of, name), text in parts.items() if of == dataset}
        if not texts:
            names = ", ".join(sorted({of for of, _ in parts}))
            raise DataError(f"{file}: no prompts of {dataset!r}. Datasets in this file: {names}")
        thoughts = [_blocks(texts[THOUGHTS.format(count)]) for count in (1, 2, 3)]
        answers = _blocks(texts[ANSWERS])
        titles = _blocks(texts.get(TITLES, ""))
        sets = jsonio.parse_json(SETS.read_bytes(), SETS.name).get(dataset, [])
        shots = []
        for qid, (passages, question, thought) in thoughts[0].items():
            contexts = [blocks[qid][0] for blocks in thoughts]
            gold = tuple(
                passage for passage in passages if all(passage in context for context in contexts)
            )
            pinned, _, pages = titles.get(qid, ((), "", "[]"))
            shots.append(
                ThoughtDemonstration(
                    question,
                    answers[qid][2],
                    thought,
                    (gold, *contexts),
                    pinned,
                    tuple(map(str, jsonio.decode_json(pages))),
                    places={
                        number: ids.index(qid)
                        for number, ids in enumerate(sets, start=1)
                        if qid in ids
                    },
                )
            )
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{file}: {dataset}: not IRCoT's prompts ({cause}). Download the file again"
        ) from None
    return tuple(shots)


def _blocks(prompt: str) -> dict[str, Block]:
    """Return the examples of a prompt by question id, in order. Raise a ValueError for one in another form."""
    _, *parts = METADATA.split(prompt)
    blocks = {}
    for metadata, text in zip(parts[::2], parts[1::2], strict=True):
        match = EXAMPLE.fullmatch(f"\n{text.strip()}")
        if not match:
            raise ValueError(f"expected 'Q: …' and 'A: …' at the end of {metadata}")
        _, *paragraphs = TITLE.split(match["context"])
        pairs = zip(paragraphs[::2], paragraphs[1::2], strict=True)
        passages = tuple(Passage.of(title.strip(), body.strip()) for title, body in pairs)
        blocks[str(jsonio.decode_json(metadata)["qid"])] = (
            passages,
            match["question"].strip(),
            " ".join(match["reply"].split()),
        )
    return blocks
