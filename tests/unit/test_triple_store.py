"""Triples: parsed from replies, stored on disk (resumed, shared, broken), and measured as graphs."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.errors import DataError, StorageError
from kgqa.kg.graph import ReadChains, chain_statistics, density, graph_statistics
from kgqa.kg.store import Extraction, TripleStore, parse_triples, store_folder
from kgqa.types import Passage, Triple

PASSAGES = tuple(Passage.of(f"T{i}", f"text {i}") for i in range(3))
BUILT_WITH = {"model": "tiny", "max_tokens": 512}


def extraction(passage: Passage, tail: str = "x", error: str | None = None) -> Extraction:
    completion = "" if error else f"<{passage.title}; is; {tail}>"
    return Extraction(passage.id, passage.title, completion, 10, 5, {"passage_cut": 1}, error)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return store_folder(tmp_path / "kg", "demo", BUILT_WITH)


def opened(folder: Path) -> TripleStore:
    return TripleStore(folder, BUILT_WITH)


def test_what_was_added_is_read_by_the_next_process(folder: Path) -> None:
    opened(folder).add([extraction(PASSAGES[0])])
    assert opened(folder).triples(PASSAGES[0]) == (Triple("T0", "is", "x", PASSAGES[0].id),)
    assert json.loads((folder / "manifest.json").read_text()) == BUILT_WITH


def test_a_passage_never_extracted_names_the_command(folder: Path) -> None:
    with pytest.raises(
        DataError, match=rf"no triples for passage {PASSAGES[0].id} in .*\. Run: kgqa kg build dataset=demo"
    ):
        opened(folder).triples(PASSAGES[0])


def test_missing_passages_are_in_order(folder: Path) -> None:
    store = opened(folder)
    store.add([extraction(PASSAGES[1])])
    assert list(store.missing([PASSAGES[2], PASSAGES[1], PASSAGES[0]])) == [PASSAGES[2], PASSAGES[0]]


def test_failed_passage_is_tried_again(folder: Path) -> None:
    store = opened(folder)
    store.add([extraction(PASSAGES[0], error="prompt too long")])
    assert store.triples(PASSAGES[0]) == ()
    assert store.extraction(PASSAGES[0]).error == "prompt too long"
    assert list(opened(folder).missing(PASSAGES[:1])) == [PASSAGES[0]]


def test_the_first_of_two_extractions_wins(folder: Path) -> None:
    opened(folder).add([extraction(PASSAGES[0], "first")])
    opened(folder).add([extraction(PASSAGES[0], "second")])
    assert opened(folder).triples(PASSAGES[0])[0].tail == "first"


def test_the_folder_depends_on_every_setting(tmp_path: Path) -> None:
    assert store_folder(tmp_path, "demo", {"b": 1, "a": 2}) == store_folder(tmp_path, "demo", {"a": 2, "b": 1})
    assert store_folder(tmp_path, "demo", {"a": 2}) != store_folder(tmp_path, "demo", {"a": 3})
    assert store_folder(tmp_path, "demo", {}).parent == tmp_path / "demo"


def test_any_completion_survives_the_disk(folder: Path) -> None:
    odd = "line\nbreak \u2028 \udc80 \x00 ⟨T0; is; é⟩"
    opened(folder).add([Extraction(PASSAGES[0].id, "T0", odd)])
    assert opened(folder).extraction(PASSAGES[0]).completion == odd


def test_counts_are_sums_over_distinct_passages(folder: Path) -> None:
    store = opened(folder)
    store.add([extraction(PASSAGES[0])])
    store.add([extraction(PASSAGES[1], error="gone")])
    store.add([Extraction(PASSAGES[2].id, "T2", "<a; b>\n<T2; is; text>\n<text; is; y>\n<It; was; z>")])
    assert store.counts(PASSAGES) == {
        "passages": 3, "failed": 1, "empty": 1, "triples": 4, "malformed": 1,
        "prompt_tokens": 20, "output_tokens": 10, "passage_cut": 2,
    }  # fmt: skip


def test_damaged_file_and_row_are_errors(folder: Path) -> None:
    store = opened(folder)
    store.add([extraction(PASSAGES[0])])
    with sqlite3.connect(store.file) as connection:
        connection.execute("UPDATE extractions SET line = ?", (b'{"passage_id": "p"}',))
    with pytest.raises(DataError, match=r"extractions.sqlite: .*: not an extraction.*Delete .* and build it again"):
        opened(folder).triples(PASSAGES[0])
    store.file.write_bytes(b"no database" * 100)
    with pytest.raises(DataError, match=r"extractions.sqlite: damaged"):
        opened(folder).triples(PASSAGES[0])


def test_disk_error_is_a_storage_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite3, "connect", fail)
    with pytest.raises(StorageError, match=r"extractions.sqlite: database or disk is full"):
        opened(folder).add([extraction(PASSAGES[0])])


# Parsing

PASSAGE = Passage.of("Low Tide", "Low Tide is a painting by Oddny Fir; it hangs in Elm Hall.")


def parts(completion: str, passage: Passage = PASSAGE) -> list[tuple[str, str, str]]:
    return [(t.head, t.relation, t.tail) for t in parse_triples(completion, passage).triples]


def malformed(completion: str) -> int:
    return parse_triples(completion, PASSAGE).malformed


def test_triples_are_read_one_a_line_or_several() -> None:
    one_a_line = "\n<Low Tide; painter; Oddny Fir>\n<Low Tide; place; Elm Hall>\n"
    several = "<Low Tide; painter; Oddny Fir>, <Low Tide; place; Elm Hall>"
    assert (
        parts(one_a_line) == parts(several) == [("Low Tide", "painter", "Oddny Fir"), ("Low Tide", "place", "Elm Hall")]
    )


def test_the_last_two_semicolons_split() -> None:
    passage = Passage.of("Stay; a song", "")
    assert parts("<Stay; a song; year; 1901>", passage) == [("Stay; a song", "year", "1901")]


def test_a_repeated_triple_is_kept_once_and_is_not_malformed() -> None:
    text = "<Low Tide; painter; Oddny Fir>\n<Low Tide;painter;  Oddny Fir >"
    assert parts(text) == [("Low Tide", "painter", "Oddny Fir")]
    assert malformed(text) == 0


@pytest.mark.parametrize(
    ("head", "becomes"),
    [("low tide", "low tide"), ("Oddny fir", "Oddny fir"), ("The painting's owner", "Low Tide")],
)
def test_a_head_unknown_to_the_passage_becomes_its_title(head: str, becomes: str) -> None:
    assert parts(f"<{head}; year; 1881>") == [(becomes, "year", "1881")]


def test_an_unknown_head_stays_where_the_passage_has_no_title() -> None:
    assert parts("<Alder; year; 1881>", Passage.of("", "A text.")) == [("Alder", "year", "1881")]


@pytest.mark.parametrize(
    "completion",
    [
        "<Low Tide; painter>",
        "<Low Tide; ; 1881>",
        "<; painter; Fir>",
        "<>",
        "<a, b, c>",
        "<a; b; c",
        "a; b; c",
        "<a; b; c\n>",
    ],
)
def test_a_malformed_triple_is_counted_and_skipped(completion: str) -> None:
    assert parts(completion) == []
    assert malformed(completion) == 1


@pytest.mark.parametrize("completion", ["", "\n\n", "Here are the triples:", "The text states nothing."])
def test_chatter_is_neither_a_triple_nor_malformed(completion: str) -> None:
    assert parse_triples(completion, PASSAGE).triples == ()
    assert malformed(completion) == 0


@given(
    st.text(alphabet=st.sampled_from("<>⟨⟩;,. abA\n\r\u2028"), max_size=60), st.text(max_size=5), st.text(max_size=9)
)
def test_any_string_is_read_and_nothing_is_invented(completion: str, title: str, text: str) -> None:
    passage = Passage("p", title, text)
    found = parse_triples(completion, passage)
    assert found.malformed >= 0
    assert len(set(found.triples)) == len(found.triples)
    for triple in found.triples:
        assert triple.head in completion or triple.head == title.strip()
        assert triple.relation in completion
        assert triple.tail in completion
        assert all(part and part == part.strip() for part in (triple.head, triple.relation, triple.tail))


# Graphs

TRIANGLE = (Triple("a", "r", "b"), Triple("b", "r", "c"), Triple("c", "r", "a"))


def test_density_is_triples_over_ordered_pairs_of_entities_in_percent() -> None:
    assert density(TRIANGLE) == pytest.approx(50.0)


def test_density_is_not_defined_for_fewer_than_two_entities() -> None:
    assert density(()) is None
    assert density((Triple("a", "r", "a"),)) is None


def test_graph_statistics_are_means_over_questions() -> None:
    twice = (*TRIANGLE, Triple("a", "r", "b", "another passage"))
    statistics = graph_statistics([twice, (Triple("a", "r", "b"),), ()])
    assert statistics["entities_per_question"] == pytest.approx(5 / 3)
    assert statistics["triples_per_question"] == pytest.approx(4 / 3)
    assert statistics["density_percent"] == pytest.approx(50.0)  # 50 and 50; the empty graph has none


def test_chain_statistics_leave_out_empty_chains_and_questions_without_evidence() -> None:
    gold = frozenset({"gold"})
    answered = [
        ReadChains(gold, ("gold", "other"), (3, 2)),
        ReadChains(gold, ("gold",), (1, 0)),
        ReadChains(gold, (), (0,)),
    ]
    statistics = chain_statistics(answered)
    assert statistics["length"] == pytest.approx(2.0)
    assert statistics["documents_per_question"] == pytest.approx(1.0)
    assert statistics["document_error_rate_percent"] == pytest.approx(25.0)
