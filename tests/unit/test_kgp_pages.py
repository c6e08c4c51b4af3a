"""KGP with scripted replies: questions about pages and tables."""

from __future__ import annotations

import pytest

from kgqa.calls import Generate, Search
from kgqa.errors import PromptTooLong
from kgqa.methods.steps.structure import PageOrTable, find_nodes, parse_nodes
from kgqa.types import Completion, Passage, Question
from tests.unit.kgp_world import POOL, World, Writes, walk

PAGES = (
    Passage.of("report", "Page one text.", place="page 1"),
    Passage.of("report", "Page two text.", place="page 2"),
    Passage.of("report", "| a | b |", place="table 1 page 1"),
    Passage.of("report", "| c | d |", place="table 2 pages 1-2"),
    Passage.of("other", "Its page one.", place="page 1"),
)
STRUCTURED = Question("s", "What does page 2 of the report say?", ("text",), (*POOL, *PAGES))


def structural_reply(reply: str) -> Writes:
    return lambda call: Completion(reply if call.prompt.name == "kgp/classify" else " evidence")


def test_a_question_about_a_page_is_answered_from_its_node() -> None:
    world = World(structural_reply(" page 2"))
    answer = walk(world, question=STRUCTURED)
    assert answer.evidence == (PAGES[1].id,)
    assert answer.flags == {"structural": 1}
    assert "report, page 2:\nPage two text." in world.asked("kgp/answer")[0]
    assert not world.made(Search)


def test_a_content_question_over_documents_with_pages_walks_through_their_passages_alone() -> None:
    world = World(structural_reply("content"))
    answer = walk(world, question=STRUCTURED)
    assert world.made(Search)[0].pool == POOL
    assert "structural" not in answer.flags


def test_pages_too_long_for_the_model_are_each_read_from_their_beginning() -> None:
    lines = "".join(f"line {number} of the table\n" for number in range(400))
    long = tuple(Passage.of("report", lines, place=place) for place in ("page 1", "page 2"))

    class Short(World):
        def read(self, call: Generate) -> Completion:
            words = len(call.prompt.messages[0].content.split())
            if words > 1_000:
                raise PromptTooLong(words, 1_000)
            return Completion(" Fauskenes")

    world = Short(structural_reply("page 1\npage 2"))
    answer = walk(world, question=Question("s", "What do they say?", ("text",), (*POOL, *long)))
    *_, asked = world.asked("kgp/answer")
    assert answer.flags == {"structural": 1, "context_cut": 1}
    assert asked.count("line 80 of the table\n") == 2
    assert "report, page 2:\nline 0 of the table" in asked


def test_nothing_is_classified_where_documents_have_no_pages_or_it_is_switched_off() -> None:
    world = World()
    walk(world)
    assert not world.asked("kgp/classify")
    world = World()
    walk(world, "structure=false", question=STRUCTURED)
    assert not world.asked("kgp/classify")


def test_a_classifying_reply_is_read_line_by_line() -> None:
    for reply, places in [
        ("page 4\ntable 2", (PageOrTable(page=4), PageOrTable(table=2))),
        ("table 2 on page 3", (PageOrTable(page=3, table=2),)),
        ("- Table on page 3.", (PageOrTable(page=3, any_table=True),)),
        ("pages 1 and page 2", (PageOrTable(page=1), PageOrTable(page=2))),
        ("tables 1, 2 and 3 on page 4", (PageOrTable(4, 1), PageOrTable(4, 2), PageOrTable(4, 3))),
        ("pages 1 and 2", (PageOrTable(page=1), PageOrTable(page=2))),
        ("pages 3-5", (PageOrTable(page=3), PageOrTable(page=4), PageOrTable(page=5))),
        ("Pages 1, 3 to 4", (PageOrTable(page=1), PageOrTable(page=3), PageOrTable(page=4))),
        ("tables 2–3 on page 9", (PageOrTable(9, 2), PageOrTable(9, 3))),
        ("page 3 - 1", (PageOrTable(page=3),)),
        ("pages 1-1000000", (PageOrTable(page=1),)),
        ("page 1, table 2", (PageOrTable(page=1, table=2),)),
        ("content", ()),
        ("", ()),
        ("page three", ()),
        ("Table 2\nTable 2", (PageOrTable(table=2),)),
    ]:
        assert parse_nodes(reply) == places


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (PageOrTable(page=1), ["page 1"]),
        (PageOrTable(table=2), ["table 2 pages 1-2"]),
        (PageOrTable(page=2, table=2), ["table 2 pages 1-2"]),
        (PageOrTable(page=2, table=1), ["table 2 pages 1-2"]),  # the first on that page
        (PageOrTable(page=1, any_table=True), ["table 1 page 1", "table 2 pages 1-2"]),
        (PageOrTable(page=9), []),
        (PageOrTable(table=9), []),
        (PageOrTable(page=1, table=0), []),
    ],
)
def test_a_place_finds_its_nodes(place: PageOrTable, found: list[str]) -> None:
    assert [node.place for node in find_nodes([place], PAGES[:4])] == found
