"""Personalized PageRank on an undirected graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from kgqa.retrieval import sparse
from kgqa.retrieval.search import Scores
from kgqa.util.validators import Validator

Damping = Annotated[
    float, Validator("must be between 0 and 1, both excluded", lambda share: 0 < share < 1)
]


def join_edges(nodes: int, rows: Any, columns: Any, weights: Any) -> sparse.Matrix:
    """Return the symmetric matrix of the edges, each given in one direction. Weights of repeated edges are added."""
    from scipy.sparse import coo_matrix

    edges = coo_matrix((weights, (rows, columns)), shape=(nodes, nodes)).tocsr()
    return (edges + edges.T).tocsr()


@dataclass(frozen=True)
class Walk:
    """A random walk over the edges of an undirected graph.

    edges: weight / sqrt(degree × degree) of each edge, shape (nodes, nodes). roots: the square root of each degree, 1
    for a node without edges.
    """

    edges: sparse.Matrix
    roots: Scores

    @classmethod
    def of(cls, edges: sparse.Matrix) -> Walk:
        """Return the walk over a symmetric matrix of weights."""
        roots = degree_roots(edges.sum(axis=1))
        return cls(scale(edges, roots, roots), roots)


def degree_roots(degrees: Any) -> Scores:
    degrees = np.asarray(degrees, dtype=np.float64).ravel()
    roots: Scores = np.sqrt(np.where(degrees > 0, degrees, 1))
    return roots


def scale(edges: sparse.Matrix, rows: Scores, columns: Scores) -> sparse.Matrix:
    """Return the matrix with each weight divided by the values of its row and column."""
    from scipy.sparse import diags

    return (diags(1 / rows) @ edges @ diags(1 / columns)).tocsr()


def compute_pagerank(walk: Walk, reset: Scores, damping: float, tolerance: float = 1e-8) -> Scores:
    """Return the probability of each node. They sum to 1, and their L1 error is at most `tolerance`.

    The walk follows an edge with probability `damping`. Otherwise, and at a node without edges, it restarts at a node
    with probability proportional to `reset`.
    """
    start = reset / reset.sum()
    scores = walk.roots * solve(
        lambda values: values - damping * (walk.edges @ values),
        start / walk.roots,
        walk.roots,
        tolerance * (1 - damping) / 2,
    )
    # restarts from nodes without edges only scale the result
    probabilities: Scores = scores / scores.sum()
    return probabilities


@dataclass(frozen=True)
class PassageWalk:
    """A random walk between entities and passages, solved for the passages only.

    A step from passage over entity to passage needs no unknown for the entity. Most entities have one passage, and then
    the step is one number of that passage.

    edges: scaled as in `Walk`, shape (entities, passages). shared: those of entities with more passages. own: for each
    passage the sum of squares of the other edges.
    """

    edges: sparse.Matrix
    shared: sparse.Matrix
    own: Scores
    entity_roots: Scores
    passage_roots: Scores

    @classmethod
    def of(cls, edges: sparse.Matrix) -> PassageWalk:
        """Return the walk over a matrix of weights, shape (entities, passages)."""
        roots = degree_roots(edges.sum(axis=1)), degree_roots(edges.sum(axis=0))
        edges = scale(edges, *roots)
        alone = np.diff(edges.indptr) == 1
        own = np.asarray(edges[alone].power(2).sum(axis=0)).ravel()
        return cls(edges, edges[~alone], own, *roots)

    def rank(
        self, entities: dict[int, float], passages: Scores, damping: float, tolerance: float = 1e-8
    ) -> Scores:
        """Return the scores of passages that `compute_pagerank` gives, up to one factor for all of them.

        Args:
            entities: the probability of a restart at these entities.
            passages: the probability of a restart at each passage. Both are scaled to the sum 1.
        """
        total = sum(entities.values()) + passages.sum()
        numbers = list(entities)
        values = np.array(list(entities.values()))
        right = passages / self.passage_roots + damping * (
            self.edges[numbers].T @ (values / self.entity_roots[numbers])
        )
        twice = damping * damping

        def multiply(values: Scores) -> Scores:
            product: Scores = values - twice * (
                self.shared.T @ (self.shared @ values) + self.own * values
            )
            return product

        solution = solve(multiply, right / total, self.passage_roots, tolerance * (1 - damping) / 2)
        scores: Scores = (1 - damping) * self.passage_roots * solution
        return scores


def solve(
    multiply: Callable[[Scores], Scores], right: Scores, roots: Scores, tolerance: float
) -> Scores:
    """Return x with multiply(x) = right, by conjugate gradients.

    A power iteration needs about 3 times as many products with damping 0.5, and 5 times as many with 0.85.

    Args:
        multiply: the product with a symmetric matrix I − M, with M's eigenvalues between −1 and 1.
        tolerance: largest remaining sum of |right − multiply(x)| × roots, as a share of its first value.
    """
    solution, residual = np.zeros_like(right), right.copy()
    direction, square = residual.copy(), (residual * residual).sum()
    least = tolerance * (np.abs(residual) * roots).sum()
    while (np.abs(residual) * roots).sum() > least:
        product = multiply(direction)
        step = square / (direction * product).sum()
        solution += step * direction
        residual -= step * product
        before, square = square, (residual * residual).sum()
        direction *= square / before
        direction += residual
    return solution
