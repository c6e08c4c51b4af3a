"""The few-shot prompts that IRCoT's authors released, gathered in one JSON object: file name → text of the file.

A prompt file is a list of demonstrations: a line "# METADATA: {"qid": …}", paragraphs as "Wikipedia Title: …" and a
line of text, then "Q: …" and "A: …". The same questions are in several files: with 1, 2 and 3 distractors, with the
chain of thought and with the answer alone. Which of them are in the three sets of the experiments, and in which order,
is not in these files but in the authors' `run.py`: the ids are in `kgqa/demos/ircot_sets.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kgqa.errors import DataError
from kgqa.prompting.demonstrations import ThoughtDemonstration
from kgqa.types import Json, Passage
from kgqa.util.fs import package_folder
from kgqa.util.jsonio import parse_json

THOUGHTS = "gold_with_{}_distractors_context_cot_qa_codex.txt"
ANSWERS = "gold_with_1_distractors_context_direct_qa_codex.txt"
TITLES = "no_context_open_llm_retrieval_codex.txt"  # IIRC's only
SETS = "ircot_sets.json"
DISTRACTORS = (1, 2, 3)
_METADATA = re.compile(r"^# METADATA: (.*)$", re.MULTILINE)
_TITLE = re.compile(r"^Wikipedia Title: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Block:
    passages: tuple[Passage, ...]
    question: str
    reply: str


def demonstrations(prompts: Json, name: str, where: str) -> tuple[ThoughtDemonstration, ...]:
    """Return the demonstrations of one dataset, in the order of the files; every paragraph stands where the authors
    put it.

    Raises:
        DataError: no such dataset in the file, or a prompt is not of this form.
    """
    files = _files_of(prompts, name, where)
    thoughts = [_blocks(files, THOUGHTS.format(count), where) for count in DISTRACTORS]
    answers = _blocks(files, ANSWERS, where)
    titles = _blocks(files, TITLES, where) if TITLES in files else {}
    sets = parse_json((package_folder() / "demos" / SETS).read_bytes(), SETS).get(name, [])
    shots = []
    for identity, first in thoughts[0].items():
        if not all(identity in blocks for blocks in (*thoughts, answers)):
            raise DataError(f"{where}: {name}: question {identity} is not in every prompt; fetch the file again")
        contexts = [blocks[identity].passages for blocks in thoughts]
        gold = tuple(passage for passage in first.passages if all(passage in context for context in contexts))
        named = titles.get(identity)
        shots.append(
            ThoughtDemonstration(
                first.question,
                answers[identity].reply,
                first.reply,
                (gold, *contexts),
                named.passages if named else (),
                _list_files(named.reply, f"{where}: {TITLES}: {identity}") if named else (),
                places={number: ids.index(identity) for number, ids in enumerate(sets, start=1) if identity in ids},
            )
        )
    return tuple(shots)


def _files_of(prompts: Json, name: str, where: str) -> dict[str, str]:
    """Return the dataset's prompts by the last part of their name."""
    if not isinstance(prompts, Mapping) or not all(isinstance(text, str) for text in prompts.values()):
        raise DataError(f"{where}: not a file of IRCoT's prompts: expected an object of file names and texts")
    paths = {tuple(path.split("/")[-2:]): text for path, text in prompts.items()}
    files = {path[1]: text for path, text in paths.items() if len(path) == 2 and path[0] == name}
    if not files:
        known = ", ".join(sorted({path[0] for path in paths if len(path) == 2})) or "none"
        raise DataError(f"{where}: no prompts of {name!r}; data sets in this file: {known}")
    return files


def _blocks(files: Mapping[str, str], file: str, where: str) -> dict[str, _Block]:
    """Return the blocks by question id, in order."""
    if file not in files:
        raise DataError(f"{where}: the prompt {file} is missing; fetch the file again")
    _, *parts = _METADATA.split(files[file])
    return {
        _qid(metadata, f"{where}: {file}"): _block(text, f"{where}: {file}: {metadata}")
        for metadata, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _block(text: str, where: str) -> _Block:
    context, question_mark, rest = f"\n{text.strip()}".rpartition("\nQ: ")
    question, answer_mark, reply = rest.partition("\nA: ")
    if not question_mark or not answer_mark:
        raise DataError(f"{where}: expected 'Q: …' and 'A: …' at the end of a demonstration")
    _, *parts = _TITLE.split(context)
    passages = (Passage.of(title.strip(), body.strip()) for title, body in zip(parts[::2], parts[1::2], strict=True))
    return _Block(tuple(passages), question.strip(), " ".join(reply.split()))


def _qid(metadata: str, where: str) -> str:
    said = parse_json(metadata, where)
    if not isinstance(said, dict):
        raise DataError(f"{where}: expected METADATA with a qid, found {metadata:.60}")
    return str(said.get("qid"))


def _list_files(reply: str, where: str) -> tuple[str, ...]:
    titles = parse_json(reply, where)
    if not isinstance(titles, list):
        raise DataError(f"{where}: expected a list of titles, found {reply:.60}")
    return tuple(map(str, titles))
