"""The program that writes a passage's triples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.kg.extraction import TripleExtractor
from kgqa.prompting.demonstrations import DocumentDemonstration
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Usage
from tests import method_world

DEMONSTRATIONS = tuple(
    DocumentDemonstration(f"Title {i}", f"text {i}", (f"<Title {i}; is; text>",)) for i in range(4)
)
EXTRACTOR = TripleExtractor(
    head="title", layout="figures", max_tokens=512, max_prompt_tokens=2048, demonstrations="adaptive",
    demonstration_count=3, few_shot=DEMONSTRATIONS,
)  # fmt: skip
PASSAGE = Passage.of("Low Tide", "Low Tide is a painting.")
COMPLETION = Completion("<Low Tide; type; painting>", usage=Usage(70, 0, 9))


class World(method_world.World):
    """Ranks the demonstrations 1, 3, 0, 2."""

    def __init__(self, reply: str | Completion = COMPLETION) -> None:
        super().__init__([reply])

    def rank(self, call: Rank) -> tuple[float, ...]:
        return (0.2, 0.9, 0.1, 0.5)

    def prompt(self) -> str:
        [prompt] = self.prompts()
        return prompt


def shown_titles(prompt: str) -> list[str]:
    return [
        line.removeprefix("Title: ") for line in prompt.splitlines() if line.startswith("Title: ")
    ]


def test_extraction_stores_raw_completion_and_cost() -> None:
    world = World()
    extraction = drive(EXTRACTOR.extract(PASSAGE), world)
    assert extraction.completion == "<Low Tide; type; painting>"
    assert (extraction.prompt_tokens, extraction.output_tokens) == (70, 9)
    assert dict(extraction.flags) == {}
    [rank], [call] = world.of(Rank), world.generations
    assert (rank.query, rank.texts[0]) == ("Low Tide: Low Tide is a painting.", "Title 0: text 0")
    assert (call.role, call.max_tokens, call.temperature) == ("extractor", 512, 0.0)
    assert call.prompt.messages[0].content.endswith("Text: Low Tide is a painting.")
    assert call.prompt.prefill == "Triples:"
    assert shown_titles(world.prompt()) == [
        "Title 0",
        "Title 3",
        "Title 1",
        "Low Tide",
    ]  # the nearest is last
    cut = drive(EXTRACTOR.extract(PASSAGE), World(Completion("<Low Tide; ty", "length")))
    assert cut.flags == {"truncated_extraction": 1}


@pytest.mark.parametrize(
    ("mode", "titles"),
    [
        ("fixed", ["Title 0", "Title 1", "Title 2", "Low Tide"]),
        ("none", ["Low Tide"]),
    ],
)
def test_fixed_and_no_demonstrations_need_no_ranking(mode: Any, titles: list[str]) -> None:
    world = World()
    drive(replace(EXTRACTOR, demonstrations=mode).extract(PASSAGE), world)
    assert not world.of(Rank)
    assert shown_titles(world.prompt()) == titles


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param("Low Tide; type; painting>", id="without bracket"),
        pytest.param("<Low Tide; type; painting>", id="with bracket"),
    ],
)
def test_bracket_of_the_prefix_comes_back(reply: str) -> None:
    prefixed = replace(EXTRACTOR, layout="prefixed", demonstrations="fixed")
    world = World(reply)
    assert drive(prefixed.extract(PASSAGE), world).completion == "<Low Tide; type; painting>"
    [call] = world.generations
    assert call.prompt.prefill == "<"
    assert call.prompt.messages[-1].content.endswith("Text: Low Tide is a painting.\nTriples:")


def fitting(limit: int) -> tuple[Mapping[str, int], list[str], str]:
    """Flags, the titles shown and the text shown under this limit, which the prompt must keep."""
    world = World()
    extraction = drive(replace(EXTRACTOR, max_prompt_tokens=limit).extract(PASSAGE), world)
    assert len(f"{world.prompt()} Triples:".split()) <= limit
    return extraction.flags, shown_titles(world.prompt()), world.prompt().rpartition("Text: ")[2]


def words(count: int) -> int:
    """Of the prompt with so many demonstrations: what it takes them to fit."""
    world = World()
    mode: Any = "adaptive" if count else "none"
    drive(
        replace(EXTRACTOR, demonstrations=mode, demonstration_count=count or 1).extract(PASSAGE),
        world,
    )
    return len(f"{world.prompt()} Triples:".split())


def test_title_heads_instruction_and_demonstrations() -> None:
    triples = ("<Elm (town); has; mill>", "<mill; builder; Fir>", "<Elm; a; b>")
    mixed = DocumentDemonstration("Elm (town)", "Elm has a mill, built by Fir.", triples)
    others = DocumentDemonstration("Oak", "Fir is a mason.", ("<Fir; occupation; mason>",))
    extractor = replace(
        EXTRACTOR, demonstrations="fixed", demonstration_count=1, few_shot=(others, mixed)
    )
    world = World()
    drive(extractor.extract(PASSAGE), world)
    assert "The head is always the title" in world.prompt()
    assert "<Elm (town); has; mill>\n<Elm; a; b>\n" in world.prompt()
    assert "<mill; builder; Fir>" not in world.prompt()
    assert "Title: Oak" not in world.prompt()
    world = World()
    drive(replace(extractor, head="any").extract(PASSAGE), world)
    assert "or another entity of the text" in world.prompt()
    assert "<Fir; occupation; mason>" in world.prompt()


def test_least_similar_demonstrations_go_first() -> None:
    text = PASSAGE.text
    two, one, none = (words(count) for count in (2, 1, 0))
    assert fitting(two) == ({"demonstrations_dropped": 1}, ["Title 3", "Title 1", "Low Tide"], text)
    assert fitting(one) == ({"demonstrations_dropped": 2}, ["Title 1", "Low Tide"], text)
    assert fitting(none) == ({"demonstrations_dropped": 3}, ["Low Tide"], text)
    flags, titles, cut = fitting(none - 1)
    assert (flags, titles) == ({"demonstrations_dropped": 3, "passage_cut": 1}, ["Low Tide"])
    assert text.startswith(cut)
    assert cut != text
    with pytest.raises(ConfigError, match=r"kg.demonstration_count=5: the file has only 4"):
        replace(EXTRACTOR, demonstration_count=5)
    with pytest.raises(
        ConfigError, match=r"kg.max_prompt_tokens=20: the instruction .*\. Increase it"
    ):
        drive(replace(EXTRACTOR, max_prompt_tokens=20).extract(PASSAGE), World())
