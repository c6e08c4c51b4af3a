"""What every retriever keeps to, so that the index and the methods need not know which one it is."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from kgqa.identity.component import identity_of
from kgqa.protocols import Query, Retriever
from kgqa.retrieval.index import IndexFolder
from kgqa.types import Passage
from tests.retrieval.conftest import (
    MADE_FROM,
    OTHERWISE,
    PASSAGES,
    RETRIEVERS,
    built,
    find,
    retriever_of,
)

QUERY = "Which railway carried slate to the harbour of Ostrand?"
WANTED = next(place for place, passage in enumerate(PASSAGES) if passage.title == "Ostrand railway")


@pytest.mark.slow
def test_results_have_a_fixed_order(retriever: Retriever, case: str, tmp_path: Path) -> None:
    """One index serves all of these, because a dense one takes a while to build."""
    finder = built(retriever, PASSAGES, tmp_path / "index")
    otherwise = OTHERWISE.get(case, {})
    if "the relevant passage comes first" not in otherwise:
        assert find(finder, QUERY, 5)[0] == WANTED
    if "fewer passages are the beginning of more" not in otherwise:
        assert find(finder, QUERY, 10)[:3] == find(finder, QUERY, 3)
    everywhere = find(finder, QUERY, 10 * len(PASSAGES))
    assert len(everywhere) == len(set(everywhere)) <= len(PASSAGES)
    assert set(everywhere) <= set(range(len(PASSAGES)))
    if "only places among those allowed are found" not in otherwise:
        allowed = tuple(range(1, len(PASSAGES), 2))
        expected = [place for place in find(finder, QUERY, len(PASSAGES)) if place in allowed]
        assert find(finder, QUERY, len(PASSAGES), allowed) == expected
        assert find(finder, QUERY, 3, (WANTED,)) == [WANTED]
    queries = [Query(passage.text, 5) for passage in PASSAGES[:10]]
    queries += [Query(QUERY, 2, (0, 1, WANTED)), Query("", 3), Query(QUERY, 100)]
    together = [list(places) for places in finder.find(queries)]
    assert together == [list(finder.find([query])[0]) for query in queries]
    assert list(finder.find([])) == []
    odd = [
        "",
        " ",
        "?!… — ()",
        "\0",
        "\ud800",
        "🙂",
        "a \u202f b",
        'AND OR NOT title:x*~2 "',
        "Ω" * 300,
    ]
    assert [
        query for query in odd if not set(find(finder, query, 5)) <= set(range(len(PASSAGES)))
    ] == []
    finder.close()


def test_every_retriever_can_be_stored(retriever: Retriever, tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path / "index", retriever, MADE_FROM, "kgqa data index dataset=d")
    manifest = folder.build(PASSAGES[:5], lambda *_: None)
    assert manifest["corpus"]["count"] == 5
    with closing(folder.open()) as index:
        assert index.corpus == manifest["corpus"]


def test_many_equal_passages_are_cut_by_place(
    retriever: Retriever, case: str, tmp_path: Path
) -> None:
    if reason := OTHERWISE.get(case, {}).get("many equal passages are cut by place"):
        pytest.skip(f"{case}: {reason}")
    equal = [Passage(str(number), "Slate", "The slate of the quarry.") for number in range(50)]
    finder = built(retriever, [*equal, *PASSAGES], tmp_path / "index")
    assert find(finder, "slate quarry", 7) == list(range(7))
    finder.close()


def test_a_build_that_was_killed_can_be_built_again(
    case: str, retriever: Retriever, tmp_path: Path
) -> None:
    many = [
        Passage.of(f"Page {number}", f"Page {number} follows page {number - 1} here.")
        for number in range(2_000)
    ]
    passages = (
        [*many[:1_500], *PASSAGES, *many[1_500:]] if case.startswith("bm25") else list(PASSAGES)
    )
    folder = tmp_path / "killed"
    folder.mkdir()

    def kill(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retriever.build(passages, folder, kill)
    finder, whole = (
        built(retriever, passages, folder),
        built(retriever, passages, tmp_path / "whole"),
    )
    again, expected = (
        [find(each, passage.text, 10) for passage in PASSAGES[::7]] for each in (finder, whole)
    )
    finder.close()
    whole.close()
    assert again == expected


def test_odd_passages_do_not_stop_the_build(
    retriever: Retriever, case: str, tmp_path: Path
) -> None:
    if reason := OTHERWISE.get(case, {}).get("odd passages do not stop the build"):
        pytest.skip(f"{case}: {reason}")
    odd = [
        Passage.of("Empty", ""), Passage.of("", "No title."), Passage.of("Blank", " \n "),
        Passage.of("Signs", "…!? — \0"), Passage.of("Long", "The heron waits. " * 6_000),
        Passage.of("Unbroken", "x" * 100_000),
    ]  # fmt: skip
    finder = built(retriever, [*odd, *PASSAGES], tmp_path / "index")
    assert find(finder, QUERY, 1) == [WANTED + len(odd)]
    finder.close()


def test_identity_is_json_and_differs_per_setting(case: str, retriever: Retriever) -> None:
    overrides, _, change = RETRIEVERS[case]
    identity = json.loads(json.dumps(identity_of(retriever)))
    assert identity == json.loads(json.dumps(identity_of(retriever_of(*overrides))))
    assert identity != json.loads(json.dumps(identity_of(retriever_of(*overrides, change))))
    assert str(Path.home()) not in json.dumps(identity)
