"""Personalized PageRank against a dense solution of its equations."""

from __future__ import annotations

import numpy as np
import pytest

from kgqa.retrieval.pagerank import compute_pagerank, transition_matrix


@pytest.mark.parametrize("damping", [0.5, 0.85])
@pytest.mark.parametrize("seed", range(3))
def test_scores_equal_a_dense_solution(seed: int, damping: float) -> None:
    random = np.random.default_rng(seed)
    nodes, edges = 60, 90  # some nodes stay without edges
    ends = random.integers(0, nodes - 5, (2, edges))
    transitions = transition_matrix(nodes, ends[0], ends[1], random.random(edges))
    reset = np.where(random.random(nodes) < 0.3, random.random(nodes), 0)
    reset[-1] = 1  # a node without edges

    start = reset / reset.sum()
    dense = transitions.toarray()
    dense[:, dense.sum(axis=0) == 0] = start[:, None]  # the walk restarts
    exact = np.linalg.solve(np.eye(nodes) - damping * dense, (1 - damping) * start)

    assert np.abs(compute_pagerank(transitions, reset, damping, 1e-9) - exact).sum() < 1e-8


def test_weights_of_repeated_edges_are_added() -> None:
    transitions = transition_matrix(3, [0, 0, 0], [1, 1, 2], [1.0, 2.0, 1.0])
    assert transitions.toarray()[:, 0].tolist() == [0, 0.75, 0.25]
