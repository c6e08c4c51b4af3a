"""IRCoT with the thoughts of a scripted model: queries, evidence, answer and prompts as in the released program."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.methods.ircot import IRCoT
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests.conformance.support import DATA, load, load_shared, needs_data, sha

pytestmark = needs_data
HEAD, ROWS = load("ircot_loop")
PROMPTS = DATA / "demonstrations" / "ircot_prompts.json.gz"
QUESTIONS = {
    "hotpotqa": "hotpotqa_dev.json.gz",
    "2wikimultihopqa": "2wikimultihopqa_dev.json.gz",
    "musique": "musique_ans_dev.jsonl.gz",
}


@cache
def load_corpus(family: str) -> tuple[Passage, ...]:
    pages = load_shared("corpora/" + HEAD["corpora"][family])
    if isinstance(pages, dict):  # title → sentences
        pages = [{"title": title, "text": "".join(text)} for title, text in pages.items()]
    return tuple(Passage.of(page["title"], page["text"]) for page in pages)


@cache
def places(family: str) -> Mapping[str, int]:
    return {passage.id: place for place, passage in reversed(list(enumerate(load_corpus(family))))}


@cache
def bm25(family: str) -> tuple[list[Counter[str]], list[float], dict[str, list[int]]]:
    """Index for what both programs were given in place of Elasticsearch: k1 1.2, b 0.75, title and text."""
    texts = [
        Counter(re.findall(r"\w+", f"{p.title} {p.text}".lower())) for p in load_corpus(family)
    ]
    lengths = [sum(text.values()) for text in texts]
    postings: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        for word in text:
            postings.setdefault(word, []).append(place)
    mean = sum(lengths) / len(lengths)
    return texts, [1.2 * (0.25 + 0.75 * length / mean) for length in lengths], postings


@cache
def search(family: str, query: str, k: int) -> tuple[Passage, ...]:
    texts, norms, postings = bm25(family)
    words = [word for word in re.findall(r"\w+", query.lower()) if word in postings]
    idf = {
        word: math.log(1 + (len(texts) - len(postings[word]) + 0.5) / (len(postings[word]) + 0.5))
        for word in words
    }
    scores = {
        place: sum(
            idf[word] * texts[place][word] * 2.2 / (texts[place][word] + norms[place])
            for word in words
        )
        for place in {place for word in words for place in postings[word]}
    }
    corpus = load_corpus(family)
    return tuple(
        corpus[place] for place in sorted(scores, key=lambda place: (-scores[place], place))[:k]
    )


@cache
def method(family: str, distractors: int) -> IRCoT:
    overrides = [
        "experiment=ircot_released",
        f'method.few_shot_path="{PROMPTS}#{family}"',
        "method.reader=cot",
    ]
    overrides += ["method.passages_per_step=6", f"method.few_shot.distractors={distractors}"]
    ircot: IRCoT = build(compose(overrides)["method"], "method")
    return replace(ircot, few_shot=replace(ircot.few_shot, context_limit=HEAD["context_limit"]))


@cache
def load_question(family: str, question_id: str) -> str:
    records = load_shared(f"questions/{QUESTIONS[family]}")
    text: str = next(
        each["question"] for each in records if question_id in (each.get("_id"), each.get("id"))
    )
    return text


@cache
def run(place: int, distractors: int = 2) -> tuple[Answer, list[str], list[str]]:
    """Return the answer, the queries and the prompts of a row."""
    row = ROWS[place]
    family, queries, prompts = row["family"], list[str](), list[str]()

    def reply(call: Call[Any]) -> Any:
        match call:
            case CountTokens():
                return -(-len(call.text) // 4)
            case Search():
                queries.append(call.query)
                return search(family, call.query, call.k)
            case Generate():
                prompts.append(
                    "\n".join(message.content for message in call.prompt.messages)
                    + call.prompt.prefill
                )
                return Completion(
                    row["replies"][min(len(prompts), len(row["replies"])) - 1].split("\n")[0]
                )
        raise AssertionError(call)

    question = Question(row["question"], load_question(family, row["question"]), ("x",), ())
    return drive(method(family, distractors).answer(question), reply), queries, prompts


# the authors' splitter (spaCy) ends a sentence at "#1"
SENTENCES = {("2hop__582051_55257", "plain")}
STOPS = {
    "an empty thought": "empty",
    "as many thoughts as allowed": "limit",
    "a thought states the answer": "answer",
}


@pytest.mark.parametrize("place", range(len(ROWS)))
def test_the_loop_is_the_released_one(place: int) -> None:
    row = ROWS[place]
    answer, queries, prompts = run(place)
    assert (len(prompts), answer.text) == (row["calls"], row["answer"])
    thoughts, reached = answer.notes["thoughts"], len(prompts) == row["calls"] == 11
    stop = (
        "limit"
        if "unfinished" in answer.flags and reached
        else "empty"
        if len(thoughts) < len(prompts) - 1
        else "answer"
    )
    assert stop == STOPS[row["stop"]]
    collected = [places(row["family"])[passage] for passage in answer.evidence]
    # kgqa stops searching when it has max_passages, because a further search cannot add one
    is_same = collected == row["evidence"][-1] and queries == row["queries"][: len(queries)]
    assert is_same == ((row["question"], row["script"]) not in SENTENCES)


@pytest.mark.parametrize("distractors", [1, 2, 3])
def test_prompts_are_the_released_ones(distractors: int) -> None:
    """The same examples in every call, and the same bytes where the question's own part has the same."""
    sizes, released_sizes, other_prompts, own_parts = [], [], [], 0
    for place, row in enumerate(ROWS):
        _, _, prompts = run(place, distractors)
        for call, prompt in enumerate(prompts):
            *examples, own = prompt.split("\n\n\n")
            first, last = row["kept"]["quarter"][str(distractors)][call]
            if (row["question"], row["script"]) not in SENTENCES:
                sizes.append((place, call, len(examples)))
                released_sizes.append((place, call, last - first + 1))
            if sha(own) == row["own_part_sha256"][call]:
                own_parts += 1
                if sha(prompt) != row["prompt_sha256"][str(distractors)][call]:
                    other_prompts.append((place, call))
    assert sizes == released_sizes
    assert other_prompts == []
    # of 170. kgqa normalizes blanks, which the others have twice or non-breaking
    assert own_parts == 127
