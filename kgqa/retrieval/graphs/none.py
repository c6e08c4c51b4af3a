"""No graph: the ablation in which nothing regulates where an agent may go next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgqa.retrieval.graphs.links import Links, link_passages
from kgqa.types import Json, Passage


@dataclass(frozen=True)
class NoGraph:
    """Every passage is the neighbour of every other."""

    def identity(self) -> Mapping[str, Json]:
        return {"graph": "none", "version": 1}

    def links(self, passages: Sequence[Passage]) -> Links:
        return link_passages([("everything",)] * len(passages))
