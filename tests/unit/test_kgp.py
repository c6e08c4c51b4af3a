"""KGP with scripted replies: Algorithm 1, pages and tables, MDR, the rows of Table 1, and Figures 5 and 9."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Generate, Rank, Search
from kgqa.config.composing import compose
from kgqa.errors import DataError, PromptTooLong
from kgqa.methods.steps.structure import PageOrTable, find_nodes, parse_nodes
from kgqa.testing import drive
from kgqa.types import Answer, Passage, Question
from tests import method_world
from tests.composed import built_method

OPERA = Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "Asbjarne Lyngholt was born in Fauskenes.")
TOWN = Passage.of("Fauskenes", "Fauskenes is a town on the Tveit fjord.")
FJORD = Passage.of("Tveit", "The Tveit is a fjord of 20 kilometres.")
POOL = (OPERA, COMPOSER, TOWN, FJORD)
EDGES = {
    OPERA.id: (COMPOSER, FJORD),
    COMPOSER.id: (OPERA, TOWN),
    TOWN.id: (COMPOSER, FJORD),
    FJORD.id: (OPERA, TOWN),
}
QUESTION = Question(
    "q", "In which town was the composer of The Herring Queen born?", ("Fauskenes",), POOL
)
Writes = Callable[[Generate], str]


class World(method_world.World):
    """Two seeds, the edges above, and a ranker that likes what stands first in the alphabet."""

    def __init__(
        self, evidence: Writes | None = None, edges: Mapping[str, tuple[Passage, ...]] = EDGES
    ) -> None:
        super().__init__()
        self.evidence = evidence or (lambda call: " Asbjarne Lyngholt was born in Oslo.")
        self.edges = edges

    def search(self, call: Search) -> tuple[Passage, ...]:
        return (call.pool or POOL)[: min(call.k, 2)]

    def rank(self, call: Rank) -> tuple[float, ...]:
        return tuple(-float(sorted(call.texts).index(text)) for text in call.texts)

    def write(self, call: Generate) -> method_world.Reply:
        return self.read(call) if call.prompt.name == "kgp/answer" else self.evidence(call)

    def read(self, call: Generate) -> method_world.Reply:
        return " Fauskenes"

    def other(self, call: Any) -> Any:
        assert call.pool == tuple(p for p in QUESTION.passages if not p.place) or call.pool is None
        return self.edges.get(call.passage.id, ())


def walk(world: World, *overrides: str, question: Question = QUESTION) -> Answer:
    answer: Answer = drive(built_method("kgp", *overrides).answer(question), world)
    return answer


def test_seeds_grow_by_neighbors_of_the_evidence() -> None:
    world = World()
    answer = walk(world, "branching=1")
    traversal = answer.notes["traversal"]
    assert traversal["seeds"] == [OPERA.id, COMPOSER.id]
    assert (traversal["paths"], answer.text) == (
        [[OPERA.id, COMPOSER.id], [COMPOSER.id, TOWN.id]],
        "Fauskenes",
    )
    assert answer.evidence == (OPERA.id, COMPOSER.id, TOWN.id)
    assert answer.figures == {"seeds": 2, "steps": 2, "paths": 2, "visited": 3, "neighbours": 2.0}
    assert not answer.flags
    # a numbered context for each path
    (asked,) = world.prompts("kgp/answer")
    assert f"1: {OPERA.text}\n{COMPOSER.text}\n2: {COMPOSER.text}\n{TOWN.text}" in asked


@pytest.mark.parametrize(("match", "scorer"), [("tfidf", "tfidf"), ("encoder", "ranker")])
@pytest.mark.parametrize("agent", ["llm", "t5", "llama"])
def test_evidence_is_compared_with_neighbor_texts(agent: str, match: str, scorer: Any) -> None:
    compared = (COMPOSER.text, FJORD.text)
    world = World()
    walk(world, f"agent={agent}", f"match={match}")
    assert world.of(Rank)[0] == Rank("Asbjarne Lyngholt was born in Oslo.", compared, scorer)


@pytest.mark.parametrize(
    ("agent", "match", "needed"),
    [
        ("llm", "tfidf", False),
        ("llama", "tfidf", False),
        ("random", "encoder", False),
        ("tfidf", "encoder", False),
        ("llm", "encoder", True),
        ("t5", "encoder", True),
        ("llama", "encoder", True),
        ("mdr", "tfidf", True),
    ],
)
def test_ranker_is_used_by_agent_and_match(agent: str, match: str, needed: bool) -> None:
    assert ("ranker" in built_method("kgp", f"agent={agent}", f"match={match}").uses) == needed


def test_hops_budget_and_rounds_bound_the_paths() -> None:
    answer = walk(World(), "branching=1", "hops=3")
    paths = answer.notes["traversal"]["paths"]
    assert paths == [[OPERA.id, COMPOSER.id, TOWN.id], [COMPOSER.id, TOWN.id, FJORD.id]]
    world = World()
    answer = walk(world, "branching=2", "budget=3")
    walked = answer.notes["traversal"]
    assert walked["paths"] == [
        [OPERA.id, COMPOSER.id],
        [OPERA.id, FJORD.id],
        [COMPOSER.id, TOWN.id],
    ]
    assert [step["chosen"] for step in walked["steps"]] == [
        [COMPOSER.id, FJORD.id],
        [TOWN.id],
    ]  # what was visited
    world = World()
    answer = walk(world, "agent=tfidf", "seeds=1", "rounds=[1,2]")
    assert answer.notes["traversal"]["paths"] == [[OPERA.id], [COMPOSER.id], [TOWN.id]]
    assert [call.texts for call in world.of(Rank)] == [(COMPOSER.text, FJORD.text), (TOWN.text,)]
    assert {(call.query, call.scorer) for call in world.of(Rank)} == {(QUESTION.text, "tfidf")}
    assert f"2: {COMPOSER.text}\n3: {TOWN.text}" in world.prompts("kgp/answer")[0]
    assert [step["path"] for step in answer.notes["traversal"]["steps"]] == [
        [OPERA.id],
        [OPERA.id, COMPOSER.id],
    ]


def test_empty_replies_and_missing_nodes_are_flagged() -> None:
    world = World(lambda call: "  \n")
    answer = walk(world)
    assert (answer.flags["empty_evidence"], world.of(Rank)[0].query) == (2, QUESTION.text)
    answer = walk(World(edges={}))
    assert (answer.flags, answer.notes["traversal"]["paths"]) == (
        {"no_neighbours": 2},
        [[OPERA.id], [COMPOSER.id]],
    )
    assert answer.text == "Fauskenes"

    class Nothing(World):
        def search(self, call: Search) -> tuple[Passage, ...]:
            return ()

    world = Nothing()
    answer = walk(world, question=Question("q", QUESTION.text, ("Fauskenes",)))
    assert (answer.flags, answer.evidence) == ({"no_seeds": 1}, ())
    assert "Contexts" not in world.prompts("kgp/answer")[0]


def test_last_paths_are_dropped_from_a_long_prompt() -> None:
    class Short(World):
        def read(self, call: Generate) -> method_world.Reply:
            is_long = "2: " in call.prompt.messages[0].content
            return PromptTooLong(4_000, 2_500) if is_long else " Fauskenes"

    world = Short()
    answer = walk(world, "branching=1")
    assert (answer.flags, len(world.prompts("kgp/answer"))) == ({"context_cut": 1}, 2)


PAGES = (
    Passage.of("report", "Page one text.", place="page 1"), Passage.of("report", "Page two text.", place="page 2"),
    Passage.of("report", "| a | b |", place="table 1 page 1"),
    Passage.of("report", "| c | d |", place="table 2 pages 1-2"), Passage.of("other", "Its page one.", place="page 1"),
)  # fmt: skip
STRUCTURED = Question("s", "What does page 2 of the report say?", ("text",), (*POOL, *PAGES))


def structural_reply(reply: str) -> Writes:
    return lambda call: reply if call.prompt.name == "kgp/classify" else " evidence"


def test_question_about_a_page_uses_its_node() -> None:
    world = World(structural_reply(" page 2"))
    answer = walk(world, question=STRUCTURED)
    assert (answer.evidence, answer.flags) == ((PAGES[1].id,), {"structural": 1})
    assert "report, page 2:\nPage two text." in world.prompts("kgp/answer")[0]
    assert not world.of(Search)
    world = World(structural_reply("content"))
    answer = walk(world, question=STRUCTURED)
    assert world.of(Search)[0].pool == POOL
    assert "structural" not in answer.flags
    world = World()
    walk(world)
    assert not world.prompts("kgp/classify")
    world = World()
    walk(world, "structure=false", question=STRUCTURED)
    assert not world.prompts("kgp/classify")


def test_long_pages_are_truncated_at_the_end() -> None:
    lines = "".join(f"line {number} of the table\n" for number in range(400))
    long = tuple(Passage.of("report", lines, place=place) for place in ("page 1", "page 2"))

    class Short(World):
        def read(self, call: Generate) -> method_world.Reply:
            words = len(call.prompt.messages[0].content.split())
            return PromptTooLong(words, 1_000) if words > 1_000 else " Fauskenes"

    world = Short(structural_reply("page 1\npage 2"))
    answer = walk(world, question=Question("s", "What do they say?", ("text",), (*POOL, *long)))
    *_, asked = world.prompts("kgp/answer")
    assert (answer.flags, asked.count("line 80 of the table\n")) == (
        {"structural": 1, "context_cut": 1},
        2,
    )
    assert "report, page 2:\nline 0 of the table" in asked


@pytest.mark.parametrize(
    ("reply", "places"),
    [
        pytest.param(
            "page 4\ntable 2", (PageOrTable(page=4), PageOrTable(table=2)), id="page 4table 2"
        ),
        pytest.param(
            "- Table on page 3.", (PageOrTable(page=3, any_table=True),), id="- Table on page 3."
        ),
        pytest.param(
            "tables 1, 2 and 3 on page 4",
            (PageOrTable(4, 1), PageOrTable(4, 2), PageOrTable(4, 3)),
            id="tables 1, 2 and 3 on page 4",
        ),
        pytest.param(
            "pages 3-5",
            (PageOrTable(page=3), PageOrTable(page=4), PageOrTable(page=5)),
            id="pages 3-5",
        ),
        pytest.param(
            "Pages 1, 3 to 4",
            (PageOrTable(page=1), PageOrTable(page=3), PageOrTable(page=4)),
            id="Pages 1, 3 to 4",
        ),
        pytest.param(
            "tables 2–3 on page 9", (PageOrTable(9, 2), PageOrTable(9, 3)), id="tables 23 on page 9"
        ),
        pytest.param("page 3 - 1", (PageOrTable(page=3),), id="page 3 - 1"),
        pytest.param("pages 1-1000000", (PageOrTable(page=1),), id="pages 1-1000000"),
        pytest.param("page 1, table 2", (PageOrTable(page=1, table=2),), id="page 1, table 2"),
        pytest.param("", (), id=""),
        pytest.param("Table 2\nTable 2", (PageOrTable(table=2),), id="Table 2Table 2"),
    ],
)
def test_classification_is_parsed_line_by_line(reply: str, places: tuple[PageOrTable, ...]) -> None:
    assert parse_nodes(reply) == places


@pytest.mark.parametrize(
    ("place", "nodes"),
    [
        pytest.param(PageOrTable(page=1), ["page 1"], id="page"),
        pytest.param(PageOrTable(table=2), ["table 2 pages 1-2"], id="table"),
        pytest.param(
            PageOrTable(page=2, table=2), ["table 2 pages 1-2"], id="table on its second page"
        ),
        # the first on that page
        pytest.param(
            PageOrTable(page=2, table=1), ["table 2 pages 1-2"], id="first table of a page"
        ),
        # the first on that page
        pytest.param(
            PageOrTable(page=1, any_table=True),
            ["table 1 page 1", "table 2 pages 1-2"],
            id="any table of a page",
        ),
        pytest.param(PageOrTable(page=9), [], id="missing page"),
        pytest.param(PageOrTable(table=9), [], id="missing table"),
        pytest.param(PageOrTable(page=1, table=0), [], id="table 0"),
    ],
)
def test_place_names_its_nodes(place: PageOrTable, nodes: list[str]) -> None:
    assert [node.place for node in find_nodes([place], PAGES[:4])] == nodes


@pytest.mark.slow
def test_rows_of_table_1_share_reader_and_contexts() -> None:
    rows = {
        row: compose([f"experiment=kgp_{row}"])
        for row in ("none", "golden", "retrieve", "mdr", "ircot", "setting")
    }
    assert {config["choices"]["collection"] for config in rows.values()} == {"kgp"}
    methods = {row: config["method"] for row, config in rows.items()}
    assert [methods[row]["reader"] for row in ("none", "golden", "retrieve", "ircot")] == [
        "short"
    ] * 4
    limits = (
        ("retrieve", "passages"),
        ("mdr", "pairs"),
        ("ircot", "max_passages"),
        ("setting", "budget"),
    )
    assert [methods[row][limit] for row, limit in limits] == [30] * 4
    assert (methods["ircot"]["passages_per_step"], methods["ircot"]["few_shot"]["sample_size"]) == (
        5,
        2,
    )


A, B, C = (Passage.of(letter, f"text {letter}") for letter in "abc")
PAIRED = Question("q", "Which?", ("b",), (A, B, C))
# the question's score of each text, and what is added where it already holds a passage
FIRST = {"text a": 0.9, "text b": 0.5, "text c": -0.1}
SECOND = {"text a": {"text b": 0.2, "text c": 0.8}, "text b": {"text a": 0.9, "text c": 0.1}}


class PairWorld(method_world.World):
    def rank(self, call: Rank) -> tuple[float, ...]:
        evidence = call.query.removeprefix("Which?").strip()
        scores = SECOND[evidence] if evidence else FIRST
        return tuple(scores[text] for text in call.texts)


def paired(*overrides: str) -> tuple[Answer, str]:
    """The answer, and the prompt that it was asked for with."""
    world = PairWorld([" b"])
    answer: Answer = drive(built_method("mdr", *overrides).answer(PAIRED), world)
    return answer, world.prompts()[0]


def test_mdr_orders_pairs_by_product_or_sum() -> None:
    answer, prompt = paired("first_hop=2", "second_hop=2")
    # a c: 0.72, b a: 0.45, a b: 0.18, b c: 0.05
    wanted = "1: text a\ntext c\n2: text b\ntext a\n3: text a\ntext b\n4: text b\ntext c\n"
    assert wanted in prompt
    assert (answer.evidence, answer.figures, answer.text) == ((A.id, C.id, B.id), {"pairs": 4}, "b")
    _, prompt = paired("first_hop=2", "second_hop=1", "score=sum")
    assert "1: text a\ntext c\n2: text b\ntext a\n" in prompt  # 1.7 and 1.4


SUPPORTED = replace(QUESTION, support=frozenset({OPERA.id, TOWN.id}))


def measured(*overrides: str, question: Question = SUPPORTED) -> Answer:
    answer: Answer = drive(built_method("neighbourhood", *overrides).answer(question), World())
    return answer


def test_figures_5_and_9_count_neighbours() -> None:
    # the opera's neighbours: composer and fjord
    answer = measured("seeds=1")
    assert answer.evidence == (COMPOSER.id, FJORD.id)
    assert answer.figures == {"sf_em": 0.0, "covered": 0.0, "precision": 0.0, "reached": 2.0}
    answer = measured("seeds=1", "count=with_seeds")
    assert answer.figures == {
        "sf_em": 0.0,
        "covered": 0.5,
        "precision": pytest.approx(1 / 3),
        "reached": 3.0,
    }
    assert measured("seeds=2", "count=with_seeds").figures["sf_em"] == 1.0
    with pytest.raises(DataError, match="must have all its supporting passages"):
        measured(question=replace(QUESTION, support=frozenset({"missing:Oslo"})))
    with pytest.raises(DataError, match="must have all its supporting passages"):
        measured(question=QUESTION)
