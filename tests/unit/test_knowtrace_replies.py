"""What is read of KnowTrace's explorations and completions, as models write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.methods.steps.knowtrace_graph import Fact, Pair
from kgqa.methods.steps.knowtrace_replies import read_exploration, read_facts

WATT = Pair("James Watt", "which school he attended")
GLASGOW = Fact("James Watt", "was educated at", "University of Glasgow")


@pytest.mark.parametrize(
    "reply",
    [
        " No\nExplore:\n- James Watt | which school he attended",
        " No\nExplore:\n- James Watt : which school he attended",  # as in the paper's Table 5
        "No\n- James Watt: which school he attended",
        "No.\n1. James Watt | which school he attended",
        "No\n\n* James Watt|which school he attended\n",
        "No\n2) **James Watt** | *which school he attended*",
        '**No**\n**Explore:**\n• "James Watt" | "which school he attended"',
        "No\nExplore: James Watt | which school he attended",
        "No\nJames Watt | which school he attended",
        "No\n- <James Watt | which school he attended>",
        "No - James Watt | which school he attended",
    ],
)
def test_a_pair_is_read_as_models_write_it(reply: str) -> None:
    read = read_exploration(reply)
    assert (read.sufficient, read.pairs, read.malformed) == (False, (WATT,), 0)


def test_lines_that_are_no_pairs_are_counted() -> None:
    read = read_exploration("No\nExplore:\n- James Watt\n- James Watt | \nHis school.\n- James Watt | school")
    assert (read.pairs, read.malformed) == ((Pair("James Watt", "school"),), 3)


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ('- "Reed; Lake" (novel): a story | who wrote it', Pair('"Reed; Lake" (novel): a story', "who wrote it")),
        ("- Star Wars: A New Hope : who directed it", Pair("Star Wars: A New Hope", "who directed it")),
        ("- Star Wars: A New Hope: who directed it", Pair("Star Wars: A New Hope", "who directed it")),
        ("- 1984 | who wrote it", Pair("1984", "who wrote it")),
        ("- 12 Monkeys | who directed it", Pair("12 Monkeys", "who directed it")),
    ],
)
def test_entities_keep_their_punctuation_and_numbers(line: str, pair: Pair) -> None:
    assert read_exploration(f" No\n{line}").pairs == (pair,)


@pytest.mark.parametrize(
    "reply",
    [
        "<James Watt; was educated at; University of Glasgow>",
        "( James Watt , was educated at , University of Glasgow )",  # as in the paper's Table 5
        "(James Watt; was educated at; University of Glasgow);",
        "1. (James Watt, was educated at, University of Glasgow)",
        '- <"James Watt"; was educated at; "University of Glasgow">',
        '("James Watt", "was educated at", "University of Glasgow").',
    ],
)
def test_a_triplet_is_read_as_models_write_it(reply: str) -> None:
    read = read_facts(reply)
    assert (read.facts, read.malformed) == ((GLASGOW,), 0)


def test_the_papers_completion_is_read_in_its_order() -> None:
    riots = "the rioting being a dividing factor in Birmingham"
    reply = (
        f"( James Watt , wrote , {riots} );\n( James Watt , is , an industrialist (of Greenock) );\n"
        "( Birmingham , is located in , the West Midlands region of England )"
    )
    assert read_facts(reply).facts == (
        Fact("James Watt", "wrote", riots),
        Fact("James Watt", "is", "an industrialist (of Greenock)"),
        Fact("Birmingham", "is located in", "the West Midlands region of England"),
    )


@pytest.mark.parametrize(
    ("reply", "malformed"),
    [
        ("(James Watt, Glasgow)", 1),
        ("(James Watt, born in, Greenock, Scotland)", 1),  # which comma parts is not known
        ("James Watt; born in; Greenock", 1),
        ("James Watt went to the University of Glasgow.", 1),
        ("(James Watt went", 1),
        ('<James Watt; went to; "">', 1),
        ("none", 0),
        (" None.", 0),
        ("", 0),
    ],
)
def test_what_is_no_triplet_is_counted_unless_it_says_none(reply: str, malformed: int) -> None:
    read = read_facts(reply)
    assert (read.facts, read.malformed) == ((), malformed)


@given(st.text())
def test_any_reply_can_be_read_and_nothing_is_made_up(text: str) -> None:
    read = read_exploration(text)
    for part in (read.thought, read.answer, *(part for pair in read.pairs for part in pair)):
        assert part in text
    assert not (read.answer and read.pairs)
    for fact in read_facts(text).facts:
        assert all(part in text for part in fact)
