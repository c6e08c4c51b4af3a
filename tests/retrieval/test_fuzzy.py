"""Levenshtein similarity as a ranker and as a retriever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.protocols import Query
from kgqa.retrieval import fuzzy
from kgqa.retrieval.fuzzy import Fuzzy, Levenshtein
from kgqa.types import Passage
from kgqa.util import optional_deps as extras

PASSAGES = (
    Passage.of("A", "Who was born in Pellery"),
    Passage.of("B", "who is born in pellery?"),
    Passage.of("C", "carrots"),
    Passage.of("D", "Who was born in Pellery"),
)


@pytest.fixture(autouse=True)
def library() -> Iterator[None]:
    pytest.importorskip("rapidfuzz", reason="rapidfuzz is not installed")
    yield
    fuzzy._library.cache_clear()


def distance(left: str, right: str) -> int:
    """Levenshtein's own recurrence, row by row."""
    row = list(range(len(right) + 1))
    for above, letter in enumerate(left, start=1):
        before = [above]
        for column, other in enumerate(right, start=1):
            before.append(min(row[column] + 1, before[-1] + 1, row[column - 1] + (letter != other)))
        row = before
    return row[-1]


def test_the_score_is_one_minus_the_share_of_letters_to_change() -> None:
    assert Levenshtein().score([Rank("kitten", ("sitting", "KITTEN", "", "xyz"))]) == [(0.571429, 1.0, 0.0, 0.0)]


@given(st.text("abAB ", max_size=12), st.text("abAB ", max_size=12))
def test_the_score_is_the_textbook_distance(query: str, text: str) -> None:
    longest = max(len(query), len(text))
    expected = 1 - distance(query.lower(), text.lower()) / longest if longest else 1.0
    ((score,),) = Levenshtein().score([Rank(query, (text,))])
    assert score == pytest.approx(expected, abs=1e-6)


def test_many_calls_score_as_one_by_one() -> None:
    calls = [Rank("kitten", ("mitten", "sit")), Rank("", ("a",)), Rank("a", ()), Rank("\ud800", ("a\0b", "😀" * 50))]
    assert Levenshtein().score(calls) == [Levenshtein().score([call])[0] for call in calls]


def test_passages_are_found_by_their_likeness_equal_ones_in_the_order_of_the_corpus(tmp_path: Path) -> None:
    steps: list[int] = []
    Fuzzy().build(PASSAGES, tmp_path, steps.append)
    assert (sum(steps), list(tmp_path.iterdir())) == (4, [])
    finder = Fuzzy().open(PASSAGES, tmp_path)
    assert finder.find([Query("Who was born in Pellery?", 3), Query("carrot", 1)]) == [[0, 3, 1], [2]]
    finder.close()
    assert finder.find([Query("carrot", 1)]) == [[2]]


def test_only_the_places_asked_for_are_found(tmp_path: Path) -> None:
    finder = Fuzzy().open(PASSAGES, tmp_path)
    assert finder.find([Query("Who was born in Pellery?", 3, among=(1, 2)), Query("x", 3, among=())]) == [[1, 2], []]


def test_identities_can_be_written_down_and_differ() -> None:
    identities = [Levenshtein().identity(), Fuzzy().identity()]
    assert json.loads(json.dumps(identities)) == identities
    assert identities[0] != identities[1]


def test_an_absent_rapidfuzz_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    fuzzy._library.cache_clear()
    monkeypatch.setattr(extras, "version", absent)
    with pytest.raises(ConfigError, match=r"pip install 'kgqa\[fuzzy\]'"):
        Levenshtein().score([Rank("a", ("b",))])
    with pytest.raises(ConfigError, match=r"pip install 'kgqa\[fuzzy\]'"):
        Fuzzy().build(PASSAGES, tmp_path, lambda _: None)
