"""PageRank: exact solutions of small graphs, with and without unknowns for entities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from kgqa.retrieval.pagerank import PassageWalk, Walk, compute_pagerank, join_edges
from kgqa.retrieval.search import Scores

DAMPINGS = pytest.mark.parametrize(("seed", "damping"), [(0, 0.5), (1, 0.85), (2, 0.7)])


def solve_densely(weights: Scores, reset: Scores, damping: float) -> Scores:
    """Return PageRank of a symmetric matrix of weights. A node without edges restarts the walk."""
    start = reset / reset.sum()
    degrees = weights.sum(axis=0)
    steps = np.where(degrees > 0, weights / np.where(degrees > 0, degrees, 1), start[:, None])
    solution: Scores = np.linalg.solve(
        np.eye(len(weights)) - damping * steps, (1 - damping) * start
    )
    return solution


@DAMPINGS
def test_pagerank_equals_a_dense_solution(seed: int, damping: float) -> None:
    random = np.random.default_rng(seed)
    nodes, edges = 60, 90
    ends = random.integers(0, nodes - 5, (2, edges))
    weights = join_edges(nodes, ends[0], ends[1], random.random(edges))
    reset = np.where(random.random(nodes) < 0.3, random.random(nodes), 0)
    # the last node has no edges
    reset[-1] = 1
    scores = compute_pagerank(Walk.of(weights), reset, damping, 1e-9)
    assert np.abs(scores - solve_densely(weights.toarray(), reset, damping)).sum() < 1e-9


@DAMPINGS
def test_passages_rank_as_in_the_joint_graph(seed: int, damping: float) -> None:
    random = np.random.default_rng(seed)
    entities, passages = 40, 25
    edges = np.where(
        random.random((entities, passages)) < 0.05, random.integers(1, 7, (entities, passages)), 0.0
    )
    edges[:, -1] = 0
    joint = np.zeros((entities + passages,) * 2)
    joint[:entities, entities:], joint[entities:, :entities] = edges, edges.T
    reset = np.where(
        random.random(entities + passages) < 0.3, random.random(entities + passages), 0
    )
    exact = solve_densely(joint, reset, damping)[entities:]

    restarts = {number: reset[number] for number in range(entities) if reset[number]}
    scores = PassageWalk.of(csr_matrix(edges)).rank(restarts, reset[entities:], damping, 1e-10)
    assert np.abs(scores / scores.sum() - exact / exact.sum()).sum() < 1e-9


def test_weights_of_repeated_edges_are_added() -> None:
    assert join_edges(3, [0, 0, 0], [1, 1, 2], [1.0, 2.0, 1.0]).toarray()[0].tolist() == [0, 3, 1]


def test_a_walk_without_a_start_has_no_scores() -> None:
    walk = PassageWalk.of(csr_matrix(np.array([[0.0, 0.0], [1.0, 0.0]])))
    assert walk.rank({0: 1.0}, np.zeros(2), 0.5).tolist() == [0, 0]
