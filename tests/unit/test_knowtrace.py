"""KnowTrace, driven by scripted replies: Algorithm 1, its ways to end, its memory forms, backtracing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.datasets.demonstrations import load_examples
from kgqa.errors import PromptTooLong
from kgqa.methods.knowtrace import KnowTrace
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question

METHOD = KnowTrace(
    memory="triplets",
    passages=2,
    max_iterations=3,
    max_pairs=4,
    at_limit="answer",
    max_exploration_tokens=50,
    max_completion_tokens=50,
    max_memory_tokens=50,
    exact=False,
    exploration_few_shot=load_examples(
        "knowtrace_explore.jsonl", ("question", "triples", "text", "pairs", "thought", "answer")
    ),
    completion_few_shot=load_examples("knowtrace_complete.jsonl", ("pair", "passages", "triples")),
)
QUESTION = Question("q", "Where was the author of Reed Lake educated?", ("Gorm College",))
REED = Passage.of("Reed Lake", "Reed Lake is a novel by Ada Holm.")
HOLM = Passage.of("Ada Holm", "Ada Holm went to Gorm College. She kept bees.")
ASK_AUTHOR = " No\nExplore:\n- Reed Lake; who wrote it"
ASK_SCHOOL = " No\nExplore:\n- Ada Holm; where she was educated"
CONCLUDE = " Yes\nThought: Ada Holm wrote Reed Lake and went to Gorm College.\nAnswer: Gorm College"
AUTHOR = "<Reed Lake; was written by; Ada Holm>"
SCHOOL = "<Ada Holm; was educated at; Gorm College>\n<Ada Holm; kept; bees>"


class World:
    """Answers searches from two passages and prompts from lists, by template."""

    def __init__(self, explore: list[Any], complete: list[Any] = (), rewrite: str = "a text") -> None:  # type: ignore[assignment]
        self.replies = {"knowtrace/explore": list(explore), "knowtrace/complete": list(complete)}
        self.rewrite = rewrite
        self.rewritten: Literal["stop", "length"] = "stop"
        self.calls: list[Any] = []

    def __call__(self, call: Call[Any]) -> Any:
        self.calls.append(call)
        match call:
            case Search():
                return tuple(p for p in (REED, HOLM) if p.title in call.query)[: call.k]
            case CountTokens():
                return len(call.text.split())
            case Generate(prompt=prompt) if prompt.name == "knowtrace/rewrite":
                return Completion(self.rewrite, self.rewritten)
            case Generate():
                reply = self.replies[call.prompt.name].pop(0)
                return reply if isinstance(reply, Exception | Completion) else Completion(reply)
        raise AssertionError(call)

    def answer(self, **changes: Any) -> Answer:
        return drive(replace(METHOD, **changes).answer(QUESTION), self)

    def prompts(self, template: str) -> list[str]:
        calls = [c for c in self.calls if isinstance(c, Generate) and c.prompt.name == template]
        return [call.prompt.messages[0].content for call in calls]


def two_hops() -> World:
    return World([ASK_AUTHOR, ASK_SCHOOL, CONCLUDE], [AUTHOR, SCHOOL])


def test_knowledge_is_traced_hop_by_hop_until_it_suffices() -> None:
    world = two_hops()
    answer = world.answer()
    assert answer.text == "Gorm College"
    assert [call.query for call in world.calls if isinstance(call, Search)] == [
        "Reed Lake who wrote it",
        "Ada Holm where she was educated",
    ]
    kinds = [c.prompt.name.removeprefix("knowtrace/") for c in world.calls if isinstance(c, Generate)]
    assert kinds == ["explore", "complete", "explore", "complete", "explore"]
    assert answer.evidence == (REED.id, HOLM.id)
    assert not answer.flags


def test_the_graph_is_the_next_explorations_memory() -> None:
    world = two_hops()
    world.answer()
    first, second, third = (prompt.rsplit("Question:", 1)[1] for prompt in world.prompts("knowtrace/explore"))
    assert first.endswith("Knowledge:\nnone")
    assert second.endswith(f"Knowledge:\n{AUTHOR}")
    assert third.endswith(f"Knowledge:\n{AUTHOR}\n{SCHOOL}")


def test_paths_join_triples_that_share_an_entity() -> None:
    world = two_hops()
    world.answer(memory="paths")
    last = world.prompts("knowtrace/explore")[-1]
    assert "Reed Lake → was written by → Ada Holm → was educated at → Gorm College" in last
    assert (
        "Pell & Osgarth → is based in → Winnowby → lies on → the river Ester" in last
    )  # the examples in the same form


def test_texts_are_rewritten_by_the_model_before_each_exploration_but_the_first() -> None:
    world = two_hops()
    world.answer(memory="texts")
    assert len(world.prompts("knowtrace/rewrite")) == 2
    assert world.prompts("knowtrace/explore")[-1].endswith("Knowledge:\na text")


def test_a_text_that_does_not_hold_the_whole_graph_is_flagged() -> None:
    world = two_hops()
    world.rewritten = "length"
    assert world.answer(memory="texts").flags == {"cut_memory": 2}


def test_backtracing_keeps_what_leads_to_the_answer() -> None:
    answer = two_hops().answer()
    assert answer.notes["support"] == [
        ("Reed Lake", "was written by", "Ada Holm"),
        ("Ada Holm", "was educated at", "Gorm College"),
    ]
    assert answer.figures["support"] == 2
    assert answer.figures["triples"] == 3
    words = " ".join((ASK_AUTHOR, ASK_SCHOOL, CONCLUDE, AUTHOR, SCHOOL)).split()
    assert answer.figures["filtered_tokens"] == len(["<Ada", "Holm;", "kept;", "bees>"])
    assert answer.figures["written_tokens"] == len(words)


@pytest.mark.parametrize(("exact", "supporting"), [(False, 2), (True, 1)])
def test_entities_are_matched_as_answers_are_or_exactly(exact: bool, supporting: int) -> None:
    world = World([ASK_AUTHOR, ASK_SCHOOL, CONCLUDE], ["<the Reed Lake; was written by; Ada Holm.>", SCHOOL])
    assert world.answer(exact=exact).figures["support"] == supporting


def test_a_whole_generation_that_supports_nothing_is_filtered() -> None:
    useless = " No\nExplore:\n- Holm Island | where it is"
    world = World([useless, " Yes\nThought: I know it.\nAnswer: Gorm College"], ["<Holm Island; is in; the sea>"])
    world.calls.clear()
    answer = replace_search(world, HOLM)
    assert answer.figures["support"] == 0
    all_words = len(f"{useless} Yes Thought: I know it. Answer: Gorm College <Holm Island; is in; the sea>".split())
    assert answer.figures["filtered_tokens"] == len(f"{useless} <Holm Island; is in; the sea>".split())
    assert answer.figures["written_tokens"] == all_words


def replace_search(world: World, passage: Passage) -> Answer:
    def reply(call: Call[Any]) -> Any:
        return (passage,) if isinstance(call, Search) else world(call)

    return drive(METHOD.answer(QUESTION), reply)


def test_passage_tokens_of_all_completions_are_counted() -> None:
    texts = (f"Title: {p.title}\n{p.text}" for p in (REED, HOLM))
    answer = two_hops().answer()
    assert answer.figures["passage_tokens"] == sum(len(text.split()) for text in texts)
    assert answer.context_tokens == len(f"{AUTHOR}\n{SCHOOL}".split())


FORCED = " Holm wrote it.\nAnswer: Gorm College"


@pytest.mark.parametrize(
    ("explore", "complete", "flags"),
    [
        ([ASK_AUTHOR, ASK_SCHOOL, ASK_AUTHOR, FORCED], [AUTHOR, SCHOOL, "<Reed Lake; is; a novel>"], {}),
        ([ASK_AUTHOR, FORCED], ["none"], {"standstill": 1}),
        (["Vielleicht.", FORCED], [], {"unreadable_exploration": 1}),
        ([" Yes, it is enough.", FORCED], [], {"unreadable_exploration": 1}),
        ([" No\nExplore:\nsomething", FORCED], [], {"no_pairs": 1, "malformed_pair": 1}),
        ([" No\n- Nowhere | place", FORCED], [], {"empty_retrieval": 1, "standstill": 1}),
        ([ASK_AUTHOR, FORCED], [PromptTooLong(9000, 8192), "none"], {"passages_dropped": 1, "standstill": 1}),
        ([ASK_AUTHOR, FORCED], ["<Reed Lake; by>"], {"malformed_triple": 1, "standstill": 1}),
        ([ASK_AUTHOR, FORCED], ["<Reed Lake; written by; None>"], {"empty_triple": 1, "standstill": 1}),
        ([ASK_AUTHOR, FORCED], [Completion("none", "length")], {"cut_reply": 1, "standstill": 1}),
    ],
)
def test_where_tracing_cannot_go_on_an_answer_is_forced(
    explore: list[Any], complete: list[Any], flags: dict[str, int]
) -> None:
    world = World(explore, complete)
    answer = world.answer()
    assert answer.text == "Gorm College"
    assert answer.flags == {"forced_answer": 1, **flags}
    final = [c for c in world.calls if isinstance(c, Generate)][-1]
    assert final.prompt.prefill == "Sufficient: Yes\nThought:"


@pytest.mark.parametrize(
    ("explore", "complete"),
    [([ASK_AUTHOR], ["none"]), ([ASK_AUTHOR, ASK_SCHOOL], [AUTHOR, "<Ada Holm; kept; bees>"]), (["Vielleicht."], [])],
)
def test_no_answer_is_forced_with_at_limit_empty(explore: list[Any], complete: list[Any]) -> None:
    answer = World(explore, complete).answer(at_limit="empty", max_iterations=2)
    assert answer.text == ""
    assert answer.flags["unfinished"] == 1
    assert answer.figures["forced_answer"] == 0


def test_forced_answers_are_counted_per_question() -> None:
    assert World([ASK_AUTHOR, FORCED], ["none"]).answer().figures["forced_answer"] == 1
    assert two_hops().answer(at_limit="empty").flags == two_hops().answer().flags == {}


def test_a_forced_reply_without_an_answer_is_an_empty_answer() -> None:
    answer = World(["?", "nothing is known", ""]).answer()
    assert answer.text == ""
    assert answer.flags["empty_answer"] == 1


def test_a_forced_thought_without_an_answer_is_asked_for_it() -> None:
    world = World(["?", " Holm wrote it.", " Gorm College"])
    answer = world.answer()
    assert answer.text == "Gorm College"
    assert answer.notes["thought"] == "Holm wrote it."
    assert answer.flags == {"forced_answer": 1, "unreadable_exploration": 2}
    final = [c for c in world.calls if isinstance(c, Generate)][-1]
    assert final.prompt.prefill == "Sufficient: Yes\nThought: Holm wrote it.\nAnswer:"


def test_more_pairs_than_allowed_are_cut_and_counted() -> None:
    lines = "\n".join(f"- Reed Lake | question {number}" for number in range(9))
    world = World([f" No\n{lines}", CONCLUDE], [AUTHOR] * 4)
    assert world.answer().flags == {"too_many_pairs": 1}
