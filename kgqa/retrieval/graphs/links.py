"""A passage graph as what links its passages: never a table of pairs, which would grow with their square."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from kgqa.types import Json, Passage

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

BLOCK = 256  # passages whose neighbours are counted at once: bounds memory


class PassageGraph(Protocol):
    """The interface of graphs: how passages are linked."""

    def identity(self) -> Mapping[str, Json]:
        """Return everything beside the passages that can change an edge."""
        ...

    def links(self, passages: Sequence[Passage]) -> Links:
        """Return what links these passages, each of another id. A document is what has one title."""
        ...


@dataclass(frozen=True, eq=False)
class Links:
    """Two passages are neighbours where they hold a common link: a keyword, an entity, or an edge of nearest ones.

    holds: CSR matrix of ones, (passages, links).
    """

    holds: Any

    def neighbours(self, place: int) -> NDArray[np.int64]:
        """Return places of the passages that hold a link of this one, in order, without itself."""
        import numpy as np

        rows, of = self.holds, self._holders
        held = rows.indices[rows.indptr[place] : rows.indptr[place + 1]]
        holders = [of.indices[of.indptr[link] : of.indptr[link + 1]] for link in held]
        if not holders:
            return np.zeros(0, np.int64)
        places = np.unique(np.concatenate(holders)).astype(np.int64)
        others: NDArray[np.int64] = places[places != place]
        return others

    def adjacency(self, first: int, last: int) -> Any:
        """Return CSR matrix, (last − first, passages): how many links each of these passages shares with every
        other.
        """
        from scipy.sparse import csr_array

        shared = csr_array(self.holds[first:last] @ self.holds.T)
        shared.setdiag(0, k=first)
        shared.eliminate_zeros()
        return shared

    def edges(self) -> int:
        """Return pairs of neighbours, each counted once."""
        count = self.holds.shape[0]
        blocks = (self.adjacency(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK))
        return sum(int(block.nnz) for block in blocks) // 2

    @cached_property
    def _holders(self) -> Any:
        return self.holds.tocsc()


def link_passages(held: Sequence[Iterable[Hashable]]) -> Links:
    """Return links from what each passage holds; what one passage alone holds links nothing and is left out."""
    import numpy as np

    numbers: dict[Hashable, int] = {}
    rows, columns = [], []
    for row, links in enumerate(held):
        for link in links:
            rows.append(row)
            columns.append(numbers.setdefault(link, len(numbers)))
    return of_pairs(np.array(rows, np.int64), np.array(columns, np.int64), len(held))


def of_pairs(rows: NDArray[np.int64], columns: NDArray[np.int64], passages: int) -> Links:
    """Return links from pairs of a passage's place and a link's number, in any order, each pair once or more often."""
    import numpy as np
    from scipy.sparse import csr_array

    width = int(columns.max()) + 1 if len(columns) else 0
    holds = csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(passages, width))
    holds.sum_duplicates()
    holds.data[:] = 1
    holders = np.bincount(holds.indices, minlength=width)
    return Links(csr_array(holds[:, np.flatnonzero(holders > 1)]))


def document_of(passage: Passage) -> str:
    """Return passages of one title are one document: the data sets say no more of where a passage is from."""
    return passage.title
