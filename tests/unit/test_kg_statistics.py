"""Statistics of graphs and chains, computed by hand."""

from __future__ import annotations

import pytest

from kgqa.kg.statistics import ReadChains, chain_statistics, density, triple_figures
from kgqa.types import Triple

TRIANGLE = (Triple("a", "r", "b"), Triple("b", "r", "c"), Triple("c", "r", "a"))


def test_density_is_triples_over_ordered_pairs_of_entities_in_percent() -> None:
    assert density(TRIANGLE) == pytest.approx(50.0)


def test_density_is_not_defined_for_fewer_than_two_entities() -> None:
    assert density(()) is None
    assert density((Triple("a", "r", "a"),)) is None


def test_the_formula_is_of_the_size_of_the_papers_table_5() -> None:
    star = [Triple("hub", "r", f"leaf {i}") for i in range(79)] + [Triple(f"x {i}", "r", "hub") for i in range(4)]
    assert density(star[:79]) == pytest.approx(100 * 79 / (80 * 79))
    assert 1.1 < 100 * 79.04 / (83.63 * 82.63) < 1.20


def test_triple_figures_are_means_over_questions() -> None:
    twice = (*TRIANGLE, Triple("a", "r", "b", "another passage"))
    statistics = triple_figures([twice, (Triple("a", "r", "b"),), ()])
    assert statistics.questions == 3
    assert statistics.entities == pytest.approx(5 / 3)
    assert statistics.triples == pytest.approx(4 / 3)
    assert statistics.density == pytest.approx(50.0)  # 50 and 50; the empty graph has none


def test_no_question_has_no_mean() -> None:
    statistics = triple_figures([])
    assert (statistics.entities, statistics.triples, statistics.density) == (None, None, None)


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
