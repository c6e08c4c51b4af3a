"""KnowTrace, driven by scripted replies: Algorithms 1 and 2, its ways to end, its memory forms, backtracing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.cache.key import cache_key
from kgqa.calls import Generate, Search
from kgqa.errors import PromptTooLong
from kgqa.methods.knowtrace import COMPLETER, EXPLORER, KnowTrace
from kgqa.methods.steps.knowtrace_graph import (
    Fact,
    Pair,
    find_initial_entities,
    find_target_entities,
    format_paths,
    read_exploration,
    read_facts,
    support,
)
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests import method_world
from tests.composed import built_method

METHOD: KnowTrace = replace(
    built_method("knowtrace"), passages=2, max_iterations=3, max_pairs=4, at_limit="answer",
    max_exploration_tokens=50, max_completion_tokens=50, max_memory_tokens=50,
)  # fmt: skip
QUESTION = Question("q", "Where was the author of Reed Lake educated?", ("Gorm College",))
REED = Passage.of("Reed Lake", "Reed Lake is a novel by Ada Holm.")
HOLM = Passage.of("Ada Holm", "Ada Holm went to Gorm College. She kept bees.")
ASK_AUTHOR = " No\nExplore:\n- Reed Lake; who wrote it"
ASK_SCHOOL = " No\nExplore:\n- Ada Holm; where she was educated"
CONCLUDE = " Yes\nThought: Ada Holm wrote Reed Lake and went to Gorm College.\nAnswer: Gorm College"
AUTHOR = "<Reed Lake; was written by; Ada Holm>"
SCHOOL = "<Ada Holm; was educated at; Gorm College>\n<Ada Holm; kept; bees>"


class World(method_world.World):
    """Replies from two lists, by template; finds passages by title."""

    rewritten = Completion("a text")

    def __init__(self, explore: Sequence[Any], complete: Sequence[Any] = ()) -> None:
        super().__init__(passages=(REED, HOLM))
        self.by_template = {
            "knowtrace/explore": list(explore),
            "knowtrace/complete": list(complete),
        }

    def search(self, call: Search) -> tuple[Passage, ...]:
        return tuple(passage for passage in self.passages if passage.title in call.query)

    def write(self, call: Generate) -> method_world.Reply:
        name = call.prompt.name
        return self.rewritten if name == "knowtrace/rewrite" else self.by_template[name].pop(0)

    def answer(self, **changes: Any) -> Answer:
        return drive(replace(METHOD, **changes).answer(QUESTION), self)


def two_hops() -> World:
    return World([ASK_AUTHOR, ASK_SCHOOL, CONCLUDE], [AUTHOR, SCHOOL])


def test_knowledge_grows_hop_by_hop_until_enough() -> None:
    world = two_hops()
    answer = world.answer()
    assert answer.text == "Gorm College"
    assert [call.query for call in world.of(Search)] == [
        "Reed Lake who wrote it",
        "Ada Holm where she was educated",
    ]
    kinds = [c.prompt.name.removeprefix("knowtrace/") for c in world.generations]
    assert (kinds, answer.evidence) == (
        ["explore", "complete", "explore", "complete", "explore"],
        (REED.id, HOLM.id),
    )
    assert not answer.flags
    first, second, third = (
        prompt.rsplit("Question:", 1)[1] for prompt in world.prompts("knowtrace/explore")
    )
    assert first.endswith("Knowledge:\nnone")
    assert second.endswith(f"Knowledge:\n{AUTHOR}")
    assert third.endswith(f"Knowledge:\n{AUTHOR}\n{SCHOOL}")
    assert answer.notes["support"] == [
        ("Reed Lake", "was written by", "Ada Holm"),
        ("Ada Holm", "was educated at", "Gorm College"),
    ]
    assert (answer.figures["support"], answer.figures["triples"]) == (2, 3)
    words = " ".join((ASK_AUTHOR, ASK_SCHOOL, CONCLUDE, AUTHOR, SCHOOL)).split()
    assert answer.figures["filtered_tokens"] == len(["<Ada", "Holm;", "kept;", "bees>"])
    assert answer.figures["written_tokens"] == len(words)
    texts = (f"Title: {p.title}\n{p.text}" for p in (REED, HOLM))
    assert answer.figures["passage_tokens"] == sum(len(text.split()) for text in texts)
    assert answer.context_tokens == len(f"{AUTHOR}\n{SCHOOL}".split())


def test_unreadable_explorations_are_filtered_tokens() -> None:
    answer = World(["no such form", " Holm wrote it.", " Gorm College"]).answer()
    assert answer.figures["filtered_tokens"] == len(["no", "such", "form"])


def test_memory_is_paths_or_a_rewritten_text() -> None:
    world = two_hops()
    world.answer(memory="paths")
    last = world.prompts("knowtrace/explore")[-1]
    assert "Reed Lake → was written by → Ada Holm → was educated at → Gorm College" in last
    # the examples in the same form
    assert "Pell & Osgarth → is based in → Winnowby → lies on → the river Ester" in last
    world = two_hops()
    world.answer(memory="texts")
    assert len(world.prompts("knowtrace/rewrite")) == 2
    assert world.prompts("knowtrace/explore")[-1].endswith("Knowledge:\na text")
    world = two_hops()
    world.rewritten = Completion("a text", "length")
    assert world.answer(memory="texts").flags == {"cut_memory": 2}


def test_what_supports_nothing_is_filtered() -> None:
    world = World(
        [ASK_AUTHOR, ASK_SCHOOL, CONCLUDE], ["<the Reed Lake; was written by; Ada Holm.>", SCHOOL]
    )
    # entities are matched as answers are
    assert world.answer().figures["support"] == 2
    useless = " No\nExplore:\n- Holm Island | where it is"
    world = World(
        [useless, " Yes\nThought: I know it.\nAnswer: Gorm College"],
        ["<Holm Island; is in; the sea>"],
    )
    world.search = lambda call: (HOLM,)  # type: ignore[method-assign]
    answer = world.answer()
    assert (answer.figures["support"], answer.lessons[1].role, answer.lessons[1].kept) == (
        0,
        COMPLETER,
        "",
    )
    all_words = len(
        f"{useless} Yes Thought: I know it. Answer: Gorm College <Holm Island; is in; the sea>".split()
    )
    assert answer.figures["filtered_tokens"] == len(
        f"{useless} <Holm Island; is in; the sea>".split()
    )
    assert answer.figures["written_tokens"] == all_words
    lines = "\n".join(f"- Reed Lake | question {number}" for number in range(9))
    world = World([f" No\n{lines}", CONCLUDE], [AUTHOR] * 4)
    assert world.answer().flags == {"too_many_pairs": 1}


FORCED = " Holm wrote it.\nAnswer: Gorm College"


@pytest.mark.parametrize(
    ("explore", "complete", "flags"),
    [
        (
            [ASK_AUTHOR, ASK_SCHOOL, ASK_AUTHOR, FORCED],
            [AUTHOR, SCHOOL, "<Reed Lake; is; a novel>"],
            {},
        ),
        ([ASK_AUTHOR, FORCED], ["none"], {"standstill": 1}),
        (["Vielleicht.", FORCED], [], {"unreadable_exploration": 1}),
        ([" Yes, it is enough.", FORCED], [], {"unreadable_exploration": 1}),
        ([" No\nExplore:\nsomething", FORCED], [], {"no_pairs": 1, "malformed_pair": 1}),
        ([" No\n- Nowhere | place", FORCED], [], {"empty_retrieval": 1, "standstill": 1}),
        (
            [ASK_AUTHOR, FORCED],
            [PromptTooLong(9000, 8192), "none"],
            {"passages_dropped": 1, "standstill": 1},
        ),
        ([ASK_AUTHOR, FORCED], ["<Reed Lake; by>"], {"malformed_triple": 1, "standstill": 1}),
        (
            [ASK_AUTHOR, FORCED],
            ["<Reed Lake; written by; None>"],
            {"empty_triple": 1, "standstill": 1},
        ),
        ([ASK_AUTHOR, FORCED], [Completion("none", "length")], {"cut_reply": 1, "standstill": 1}),
    ],
)
def test_answer_is_forced_if_tracing_stops(
    explore: list[Any], complete: list[Any], flags: dict[str, int]
) -> None:
    world = World(explore, complete)
    answer = world.answer()
    assert (answer.text, answer.flags) == ("Gorm College", {"forced_answer": 1, **flags})
    assert answer.figures["forced_answer"] == 1
    assert world.generations[-1].prompt.prefill == "Sufficient: Yes\nThought:"


@pytest.mark.parametrize(
    ("explore", "complete"),
    [
        pytest.param([ASK_AUTHOR], ["none"], id="no triples"),
        pytest.param(["Vielleicht."], [], id="unreadable exploration"),
        pytest.param(
            [ASK_AUTHOR, ASK_SCHOOL], [AUTHOR, "<Ada Holm; kept; bees>"], id="no progress"
        ),
    ],
)
def test_empty_at_the_limit_forces_no_answer(explore: list[Any], complete: list[Any]) -> None:
    answer = World(explore, complete).answer(at_limit="empty", max_iterations=2)
    assert (answer.text, answer.flags["unfinished"], answer.figures["forced_answer"]) == ("", 1, 0)


def test_forced_reply_has_an_answer_or_a_second_call() -> None:
    world = World([ASK_AUTHOR, ASK_SCHOOL, CONCLUDE], [AUTHOR, SCHOOL])
    assert world.answer(at_limit="empty").flags == {}
    answer = World(["?", "nothing is known", ""]).answer()
    assert (answer.text, answer.flags["empty_answer"]) == ("", 1)
    world = World(["?", " Holm wrote it.", " Gorm College"])
    answer = world.answer()
    assert (answer.text, answer.notes["thought"]) == ("Gorm College", "Holm wrote it.")
    assert answer.flags == {"forced_answer": 1, "unreadable_exploration": 2}
    assert (
        world.generations[-1].prompt.prefill == "Sufficient: Yes\nThought: Holm wrote it.\nAnswer:"
    )


def test_lessons_have_trace_number_and_role() -> None:
    odd = " No\nWhat to look up:\n* Reed Lake : who wrote it\n"
    world = World([odd, ASK_SCHOOL, CONCLUDE], [f"1. {AUTHOR}", SCHOOL])
    texts = [lesson.kept for lesson in world.answer().lessons]
    assert (texts[1], texts[3]) == (f"1. {AUTHOR}", SCHOOL.partition("\n")[0])
    muddled = f"{ASK_AUTHOR}\n- and what else"
    assert (
        World([muddled, ASK_SCHOOL, CONCLUDE], [AUTHOR, SCHOOL]).answer().lessons[0].kept
        == ASK_AUTHOR.strip()
    )
    world = World(
        [ASK_AUTHOR, "perhaps", " Ada Holm went to Gorm College.\nAnswer: Gorm College"], [AUTHOR]
    )
    assert [lesson.call for lesson in world.answer().lessons] == [0, 1]
    world = World(["perhaps", " Ada Holm went there.", " Gorm College"])
    assert world.answer().lessons == ()
    both = f"{ASK_AUTHOR}\n- Nowhere | what is there"
    world = World([both, ASK_SCHOOL, CONCLUDE], [AUTHOR, SCHOOL])
    answer = world.answer(memory="texts")
    asked = [call.prompt.name.partition("/")[2] for call in world.generations]
    assert asked == ["explore", "complete", "rewrite", "explore", "complete", "rewrite", "explore"]
    assert [(each.call, each.role) for each in answer.lessons] == [
        (0, EXPLORER), (1, COMPLETER), (3, EXPLORER), (4, COMPLETER), (6, EXPLORER)
    ]  # fmt: skip
    roles = {call.prompt.name.partition("/")[2]: call.role for call in world.generations}
    assert roles == {"explore": EXPLORER, "complete": COMPLETER, "rewrite": "reader"}
    keys = [cache_key({}, call) for call in world.generations]
    assert keys == [cache_key({}, replace(call, role="reader")) for call in world.generations]


WROTE = Fact("Reed Lake", "was written by", "the poet Ada Holm")
EDUCATED = Fact("The poet Ada Holm.", "was educated at", "Gorm College")
ROUNDS = [([Pair('"Reed Lake"', "author")], [WROTE]), ([Pair("Ada Holm", "school")], [EDUCATED])]


def test_only_shortest_paths_support_the_answer() -> None:
    graph = [
        Fact("a", "r", "b"),
        Fact("b", "r", "d"),
        Fact("a", "r", "c"),
        Fact("c", "r", "e"),
        Fact("e", "r", "d"),
    ]
    assert (support(graph, {"a"}, {"d"}), support(graph, {"a"}, {"e"})) == (graph[:2], graph[2:4])
    assert support(graph, set(), {"d"}) == []
    targets = find_target_entities([WROTE, EDUCATED], "She went to the Gorm College.")
    assert support([WROTE, EDUCATED], find_initial_entities(ROUNDS[:1]), targets) == [
        WROTE,
        EDUCATED,
    ]


REED_FACT = Fact("Reed Lake", "was written by", "Ada Holm")
SCHOOL_FACT = Fact("Ada Holm", "was educated at", "Gorm College")


@given(
    st.lists(
        st.tuples(st.sampled_from(list(permutations("abcde", 2))), st.sampled_from("rst")),
        max_size=12,
    )
)
def test_paths_have_all_triples_and_no_cycles(edges: list[tuple[tuple[str, str], str]]) -> None:
    graph = [Fact(one, relation, other) for (one, other), relation in dict.fromkeys(edges)]
    paths = format_paths(graph)
    texts = {fact: (" → ".join(fact), " ← ".join(fact[::-1])) for fact in graph}
    assert [
        fact for fact in graph if not any(text in path for text in texts[fact] for path in paths)
    ] == []
    entities = {path: path.replace("←", "→").split(" → ")[::2] for path in paths}
    assert [path for path in paths if len(set(entities[path])) < len(entities[path])] == []


def test_path_prefers_its_direction_and_new_triples() -> None:
    turned = Fact("Gorm", "has", "Ada Holm")
    assert format_paths([REED_FACT, turned, SCHOOL_FACT]) == [
        "Reed Lake → was written by → Ada Holm → was educated at → Gorm College",
        "Gorm → has → Ada Holm → was educated at → Gorm College",
    ]


WATT = Pair("James Watt", "which school he attended")
GLASGOW = Fact("James Watt", "was educated at", "University of Glasgow")


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(" No\nExplore:\n- James Watt | which school he attended", id="bar"),
        pytest.param(
            " No\nExplore:\n- James Watt : which school he attended", id="colon as in Table 5"
        ),
        pytest.param("No.\n1. James Watt | which school he attended", id="numbers"),
        pytest.param("No\n2) **James Watt** | *which school he attended*", id="bold"),
        pytest.param(
            '**No**\n**Explore:**\n• "James Watt" | "which school he attended"', id="quotes"
        ),
        pytest.param("No\nExplore: James Watt | which school he attended", id="one line"),
        pytest.param("No\n- <James Watt | which school he attended>", id="angle brackets"),
        pytest.param("No - James Watt | which school he attended", id="dash"),
        pytest.param("No\nExplore: James Watt; which school he attended", id="semicolon"),
        pytest.param(
            "The knowledge is not enough.\nExplore:\n- James Watt | which school he attended",
            id="sentence before",
        ),
    ],
)
def test_pair_is_read_in_usual_forms(reply: str) -> None:
    exploration = read_exploration(reply)
    assert (exploration.sufficient, exploration.pairs, exploration.malformed) == (False, (WATT,), 0)


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        pytest.param(
            '- "Reed; Lake" (novel): a story | who wrote it',
            Pair('"Reed; Lake" (novel): a story', "who wrote it"),
            id="quotes and colon",
        ),
        pytest.param(
            "- Star Wars: A New Hope : who directed it",
            Pair("Star Wars: A New Hope", "who directed it"),
            id="two colons",
        ),
        pytest.param(
            "- Star Wars: A New Hope: who directed it",
            Pair("Star Wars: A New Hope", "who directed it"),
            id="colon without blank",
        ),
        pytest.param("- 1984 | who wrote it", Pair("1984", "who wrote it"), id="year as entity"),
        pytest.param(
            "- 12 Monkeys | who directed it",
            Pair("12 Monkeys", "who directed it"),
            id="number in a title",
        ),
    ],
)
def test_pair_keeps_marks_of_its_title(line: str, pair: Pair) -> None:
    assert read_exploration(f" No\n{line}").pairs == (pair,)


def test_incomplete_pairs_are_counted() -> None:
    exploration = read_exploration(
        "No\nExplore:\n- James Watt\n- James Watt | \nHis school.\n- James Watt | school"
    )
    assert (exploration.pairs, exploration.malformed) == ((Pair("James Watt", "school"),), 3)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param("<James Watt; was educated at; University of Glasgow>", id="brackets"),
        pytest.param(
            "( James Watt , was educated at , University of Glasgow )",
            id="parentheses as in Table 5",
        ),
        pytest.param("1. (James Watt, was educated at, University of Glasgow)", id="number"),
        pytest.param('- <"James Watt"; was educated at; "University of Glasgow">', id="quotes"),
        pytest.param(
            '("James Watt", "was educated at", "University of Glasgow").', id="quotes and commas"
        ),
        pytest.param("James Watt; was educated at; University of Glasgow", id="bare"),
        pytest.param("Triples:\n<James Watt | was educated at | University of Glasgow>", id="bars"),
    ],
)
def test_triple_is_read_in_usual_forms(reply: str) -> None:
    facts = read_facts(reply)
    assert (facts.facts, facts.malformed) == ((GLASGOW,), 0)


@pytest.mark.parametrize(
    ("reply", "malformed"),
    [
        pytest.param("(James Watt, Glasgow)", 1, id="two parts"),
        # which comma parts is not known
        pytest.param("(James Watt, born in, Greenock, Scotland)", 1, id="four commas"),
        pytest.param("James Watt; born in; Greenock; Scotland", 1, id="four parts"),
        pytest.param("James Watt went to the University of Glasgow.", 1, id="sentence"),
        pytest.param("(James Watt went", 1, id="open parenthesis"),
        pytest.param('<James Watt; went to; "">', 1, id="empty object"),
        pytest.param("none", 0, id="none"),
        pytest.param(" None.", 0, id="none with a stop"),
        pytest.param("", 0, id="empty"),
    ],
)
def test_incomplete_triples_are_counted(reply: str, malformed: int) -> None:
    facts = read_facts(reply)
    assert (facts.facts, facts.malformed) == ((), malformed)


def test_examples_have_bridge_and_comparison() -> None:
    method: KnowTrace = built_method("knowtrace")
    examples: Any = method.exploration_few_shot
    answers = [str(example["answer"]) for example in examples]
    assert examples[-1]["answer"] in [triple[2] for triple in examples[-1]["triples"]]
    assert not {"yes", "no"} & {answer.casefold() for answer in answers}
    (compared,) = (each for each in examples if " or " in str(each["question"]) and each["answer"])
    assert compared["answer"] in str(compared["question"])
