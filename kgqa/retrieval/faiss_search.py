"""Indexes of FAISS (Douze et al., 2024) over a corpus' vectors: Flat, IVF and HNSW."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kgqa.errors import ConfigError, DataError
from kgqa.retrieval.vectors import Vectors
from kgqa.util.fs import replace_atomically

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["flat", "ivf", "hnsw"]
FILE = "search.faiss"
TRAINING = 64  # vectors per list that the lists are found from; FAISS itself warns below 39


@dataclass(frozen=True)
class FaissIndex:
    """The settings of a FAISS index. IVF: inverted lists; HNSW: a graph of neighbors."""

    kind: Kind
    storage: Literal["float32", "float16"]
    lists: int  # IVF: at most; never more than one per 64 passages
    probes: int  # IVF: lists that a query looks into
    links: int  # HNSW: neighbours of a vector
    build_breadth: int  # HNSW: candidates looked at for each vector that is added
    breadth: int  # HNSW: candidates that a query follows; as many as it asks for at least

    def build(self, vectors: Vectors, folder: Path) -> None:
        """Write the index; a flat one is made from the vectors when it is opened."""
        check_index()
        if self.kind == "flat":
            return
        import faiss

        index = self._make_index(vectors)
        with replace_atomically(folder / FILE) as fresh:
            try:
                faiss.write_index(index, str(fresh))
            except RuntimeError as error:  # how FAISS reports a full disk
                raise OSError(str(error).strip().splitlines()[-1]) from error

    def opened(self, vectors: Vectors, device: str) -> Any:
        """Return the index, on the GPUs where FAISS can use them: HNSW and flat half precision stay on the CPU."""
        check_index()
        import faiss

        try:
            index = self._make_index(vectors) if self.kind == "flat" else faiss.read_index(str(vectors.folder / FILE))
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise DataError(f"{vectors.folder / FILE}: {reason}; delete the index and build it") from error
        if (index.ntotal, index.d) != (len(vectors), vectors.dimension):
            raise DataError(
                f"{vectors.folder / FILE}: {index.ntotal} vectors of {index.d} numbers for {len(vectors)} of "
                f"{vectors.dimension}; delete the index and build it"
            )
        if isinstance(index, faiss.IndexHNSW):
            index.hnsw.efSearch = self.breadth
        elif isinstance(index, faiss.IndexIVF):
            index.nprobe = self.probes
        usable = hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0
        if device == "cpu" or not usable or isinstance(index, faiss.IndexHNSW | faiss.IndexScalarQuantizer):
            return index
        return faiss.index_cpu_to_all_gpus(index)  # with its probes

    def _make_index(self, vectors: Vectors) -> Any:
        import faiss
        import numpy as np

        code = "Flat" if self.storage == "float32" else "SQfp16"
        lists = min(self.lists, len(vectors) // TRAINING)
        spelled = {"flat": code, "ivf": f"IVF{lists},{code}", "hnsw": f"HNSW{self.links},{code}"}
        kind = "flat" if self.kind == "ivf" and lists < 2 else self.kind  # too few passages for lists
        index: Any = faiss.index_factory(vectors.dimension, spelled[kind], faiss.METRIC_INNER_PRODUCT)
        if kind == "hnsw":
            index.hnsw.efConstruction = self.build_breadth
        if not index.is_trained:
            count = min(len(vectors), max(lists, 1) * TRAINING)
            index.train(vectors.rows(np.linspace(0, len(vectors) - 1, count).astype(np.int64)))
        for _, rows in vectors.blocks():
            index.add(rows)
        return index


class Faiss:
    """Searches an opened index."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def __call__(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        import numpy as np

        _, places = self._index.search(np.ascontiguousarray(queries), count)
        nearest: NDArray[np.int64] = places
        return nearest


def check_index() -> None:
    """One FAISS is installed, not two: the files of the later one lie over those of the other.

    Raises:
        ConfigError: none, or several.
    """
    names = {str(package.metadata["Name"]).lower().replace("_", "-") for package in distributions()}
    builds = sorted(name for name in names if name == "faiss-cpu" or name.startswith("faiss-gpu"))
    if not builds:
        raise ConfigError(
            "FAISS is not installed; pip install 'kgqa[faiss-cpu]' or 'kgqa[faiss-gpu]', or choose "
            "retriever.backend=numpy"
        )
    if len(builds) > 1:
        raise ConfigError(
            f"{' and '.join(builds)} are both installed and overwrite each other; pip uninstall {' '.join(builds)}, "
            "then pip install the one you want"
        )
