"""Statistics of graphs and chains, computed by hand."""

from __future__ import annotations

import pytest

from kgqa.kg.graph import ReadChains, chain_statistics, density, graph_statistics
from kgqa.types import Triple

TRIANGLE = (Triple("a", "r", "b"), Triple("b", "r", "c"), Triple("c", "r", "a"))


def test_density_is_triples_over_ordered_pairs_of_entities_in_percent() -> None:
    assert density(TRIANGLE) == pytest.approx(50.0)


def test_density_is_not_defined_for_fewer_than_two_entities() -> None:
    assert density(()) is None
    assert density((Triple("a", "r", "a"),)) is None


def test_graph_statistics_are_means_over_questions() -> None:
    twice = (*TRIANGLE, Triple("a", "r", "b", "another passage"))
    statistics = graph_statistics([twice, (Triple("a", "r", "b"),), ()])
    assert statistics.questions == 3
    assert statistics.entities == pytest.approx(5 / 3)
    assert statistics.triples == pytest.approx(4 / 3)
    assert statistics.density == pytest.approx(50.0)  # 50 and 50; the empty graph has none


def test_chain_statistics_leave_out_empty_chains_and_questions_without_evidence() -> None:
    gold = frozenset({"gold"})
    answered = [
        ReadChains(gold, ("gold", "other"), (3, 2)),
        ReadChains(gold, ("gold",), (1, 0)),
        ReadChains(gold, (), (0,)),
    ]
    statistics = chain_statistics(answered)
    assert statistics.chain_length == pytest.approx(2.0)
    assert statistics.documents == pytest.approx(1.0)
    assert statistics.document_error_rate == pytest.approx(25.0)
