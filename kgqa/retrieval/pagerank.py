"""Personalized PageRank on an undirected graph."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from kgqa.retrieval import sparse
from kgqa.retrieval.search import Scores
from kgqa.util.validators import Validator

Damping = Annotated[float, Validator("must be between 0 and 1, both excluded", lambda share: 0 < share < 1)]


def transition_matrix(nodes: int, rows: Any, columns: Any, weights: Any) -> sparse.Matrix:
    """Return the matrix of a random walk: each column sums to 1, or is empty for a node without edges.

    rows, columns, weights: the edges, each in one direction. Weights of repeated edges are added.
    """
    from scipy.sparse import coo_matrix, diags

    edges = coo_matrix((weights, (rows, columns)), shape=(nodes, nodes)).tocsr()
    edges = edges + edges.T
    degrees = np.asarray(edges.sum(axis=0)).ravel()
    return (edges @ diags(1 / np.where(degrees > 0, degrees, 1))).tocsr()


def compute_pagerank(transitions: sparse.Matrix, reset: Scores, damping: float, tolerance: float = 1e-8) -> Scores:
    """Return the probability of each node. They sum to 1, and their L1 error is at most `tolerance`.

    The walk follows an edge with probability `damping`. Otherwise, and at a node without edges, it restarts at a node
    with probability proportional to `reset`.
    """
    start = reset / reset.sum()
    scores, restart = start.copy(), np.empty_like(start)
    while True:
        following: Scores = transitions @ scores
        following *= damping  # in place: memory for large graphs takes longer than the sums
        following += np.multiply(start, 1 - following.sum(), out=restart)
        scores -= following
        change = np.abs(scores, out=scores).sum()
        scores = following
        if change * damping <= tolerance * (1 - damping):
            return scores
