"""Dense retrieval: the passages whose embeddings have the largest inner product with the query's."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kgqa.artifacts.schema import Artifact, read
from kgqa.errors import ConfigError, DataError
from kgqa.identity.component import identity_of
from kgqa.protocols import Finder, Progress, Query, Rankings
from kgqa.retrieval.biencoder import Encoder, Kind, can_change, get_biencoder, relevance
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.retrieval.hf_model import torch_device
from kgqa.retrieval.search import Scored, rank_positions
from kgqa.retrieval.vector_store import Vectors, check_vector, encode_once
from kgqa.types import Json, JsonObject, Passage
from kgqa.util.fs import AGAIN, explain_storage_errors, replace_atomically, replace_file
from kgqa.util.optional_deps import install_command, require_packages
from kgqa.util.settings import ORDER_OF_SUMS, AddedLater, Setting
from kgqa.util.validators import Count

VECTORS, PROGRESS, FAISS = "vectors.npy", "progress.json", "search.faiss"
# passages encoded before they are saved: what an interrupted build loses at most
SHARD = 8_192
# passages above which vectors are only in the index: the store of texts needs 4.6 KB for 768 numbers
MOST_STORED = 1_000_000
# texts encoded between two signs of progress
BLOCK = 256
# searched at once: bounds the memory for scores
QUERIES = 256
# candidates beyond k, among which the exact scores decide
SPARE = 8
# vectors per list that FAISS finds the lists from; it warns below 39
TRAINING = 64
# of each part of a compressed vector, so that its number is a byte
CENTROIDS = 256
# Compressed vectors confuse near passages, so more candidates are scored exactly
REFINED = 10
# passages that FAISS returns from a GPU at most
GPU_LIMIT = 2048
# the backends that a setting is for
INVERTED = "backend=ivf|ivfpq"
LINKED = "backend=hnsw"
# queries (Q, d) and a count → positions (Q, count) in any order; -1: none
Nearest = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Dense:
    """Any encoder with any search. numpy, torch and flat are exact and give the same; ivf, ivfpq and hnsw approximate.

    A search proposes candidates, which are scored again exactly, so that the exact ones agree to the last digit.

    encoder: a ranker's preset, or the folder or hub name of a sentence-transformers model.
    """

    encoder: Annotated[
        Encoder | str,
        Setting(
            "Any encoder of conf/ranker: ranker@retriever.encoder=PRESET. Or the folder or hub name of a "
            "sentence-transformers model."
        ),
    ]
    separator: Annotated[str, Setting("Text between title and text.", other="BEIR")] = " "
    backend: Annotated[
        Literal["numpy", "torch", "flat", "ivf", "ivfpq", "hnsw"],
        Setting(
            "Exact search: numpy | torch (the corpus in the memory of the GPUs) | flat (FAISS). Approximate search: "
            "ivf | ivfpq, which compresses vectors | hnsw (FAISS).",
            other="the papers search exactly",
        ),
    ] = "numpy"
    device: Annotated[
        str,
        Setting(
            "Devices of torch and FAISS, such as cpu, cuda or cuda:0,cuda:1. Each GPU holds a part of the corpus. "
            "auto: all GPUs, or the CPU."
        ),
        ORDER_OF_SUMS,
    ] = "auto"
    storage: Annotated[
        Literal["float32", "float16"],
        Setting(
            "Number type of the index: float32 | float16, half the disk. Scores then differ in the fourth digit."
        ),
    ] = "float32"
    lists: Annotated[
        Count,
        Setting(
            "Ivf: number of inverted lists, at most one per 64 passages. FAISS recommends 4 to 16 times the square "
            "root of the number of passages.",
            other="FAISS' guidelines for 200,000 passages",
            only_if=INVERTED,
        ),
    ] = 1024
    probes: Annotated[
        Count,
        Setting(
            "Ivf: number of lists that a query looks into.",
            ours="chosen by recall, see docs/SCALING.md",
            only_if=INVERTED,
        ),
    ] = 64
    code_size: Annotated[
        Count,
        Setting(
            "Ivfpq: bytes per vector. It must divide the dimensions of the encoder.",
            other="FAISS' guidelines",
            only_if="backend=ivfpq",
        ),
        AddedLater(),
    ] = 64
    links: Annotated[
        Count,
        Setting(
            "Hnsw: number of neighbors of a vector.", other="FAISS' guidelines", only_if=LINKED
        ),
    ] = 32
    build_breadth: Annotated[
        Count,
        Setting(
            "Hnsw: candidates for each vector that is added.", ours="our choice", only_if=LINKED
        ),
    ] = 80
    breadth: Annotated[
        Count,
        Setting(
            "Hnsw: candidates that a query follows.",
            ours="chosen by recall, see docs/SCALING.md",
            only_if=LINKED,
        ),
    ] = 256

    pools: ClassVar[bool] = True

    # raise it when equal settings give other results
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, str | Encoder):
            raise ConfigError(
                f"retriever.encoder: {type(self.encoder).__name__} returns scores, not vectors. Choose another preset"
            )

    def loads(self) -> JsonObject:
        """Return the identity of the encoder, which can be set by its name only."""
        return {"encoder": identity_of(self.loaded_encoder)}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Encode the passages into one file, after those that an interrupted build encoded.

        A small corpus shares its vectors with rankers in memory.
        """
        faiss = import_faiss() if self.backend not in ("numpy", "torch") else None
        encoder, count = self.loaded_encoder, len(passages)
        by_kind = get_biencoder(encoder).vectors if count <= SHARD else encoder.encode
        encode = (
            partial(self._encode_once, encode=by_kind)
            if count <= MOST_STORED
            else partial(by_kind, "passage")
        )
        settings = self.vector_settings(count)
        position = _read_progress(folder, settings)
        vectors = _open_partial(folder, count) if position else None
        position = 0 if vectors is None else min(position, count)
        advance(position)
        if vectors is not None:
            self.check_encoder(passages[0], vectors[0], folder)
        for start in range(position, count, SHARD):
            texts = [self.text(passage) for passage in passages[start : start + SHARD]]
            rows = _encode(texts, encode, advance)
            with explain_storage_errors(folder / VECTORS):
                if vectors is None:
                    shape = (count, rows.shape[1])
                    vectors = np.lib.format.open_memmap(
                        folder / VECTORS, "w+", np.dtype(self.storage), shape
                    )
                vectors[start : start + len(rows)] = rows
                vectors.flush()
            if count > SHARD:
                save_progress(folder, settings, start + len(rows))
        if faiss and vectors is not None and self.backend != "flat":
            with replace_atomically(folder / FAISS) as fresh:
                try:
                    faiss.write_index(self._make_faiss(vectors), str(fresh))
                except RuntimeError as error:
                    # how FAISS reports a full disk
                    raise OSError(str(error).strip().splitlines()[-1]) from error

    def open(self, passages: Sequence[Passage], folder: Path) -> DenseFinder:
        return DenseFinder(self, passages, folder)

    def check_encoder(self, passage: Passage, stored: NDArray[Any], folder: Path) -> None:
        """Raise DataError if a server encodes a stored passage differently than before.

        Vectors that this process has computed need no check.
        """
        encoder, text = self.loaded_encoder, self.text(passage)
        if can_change(encoder) and not get_biencoder(encoder).has_passage(text):
            (fresh,) = encoder.encode("passage", [text])
            check_vector(fresh, stored, folder)

    def embed(self, passages: Sequence[Passage]) -> Vectors:
        """Return the vectors of passages, shape (len(passages), d). `build` reuses them from memory."""
        texts = [self.text(passage) for passage in passages]
        return self._encode_once(texts, get_biencoder(self.loaded_encoder).vectors)

    def _encode_once(
        self, texts: Sequence[str], encode: Callable[[Kind, Sequence[str]], Vectors]
    ) -> Vectors:
        identity = {**identity_of(self.loaded_encoder), "kind": "passage"}
        is_checked = can_change(self.loaded_encoder)
        return encode_once(
            identity, texts, lambda some: encode("passage", some), is_checked=is_checked
        )

    @property
    def loaded_encoder(self) -> Encoder:
        return (
            SentenceTransformer.of(self.encoder) if isinstance(self.encoder, str) else self.encoder
        )

    def search(self, vectors: NDArray[Any], folder: Path) -> Nearest:
        """Return the function that proposes candidates."""
        if self.backend == "numpy":
            return partial(nearest_exactly, vectors)
        if self.backend == "torch":
            return _torch_search(vectors, self.device)
        gpus = _faiss_gpus(self.device)
        if self.backend == "flat":
            if gpus:
                return _search_on_gpus(_make_flat(vectors), gpus, vectors)
            # FAISS would copy the vectors into memory
            return partial(nearest_exactly, vectors)
        return self._faiss_search(folder / FAISS, gpus, vectors)

    def vector_settings(self, count: int) -> dict[str, Json]:
        """Return what decides the vectors of `count` passages on disk."""
        return {
            "encoder": identity_of(self.loaded_encoder),
            "separator": self.separator,
            "storage": self.storage,
            "count": count,
        }

    def text(self, passage: Passage) -> str:
        """Return title, separator and text, or the one that is not blank."""
        return self.separator.join(part for part in (passage.title, passage.text) if part.strip())

    def _make_faiss(self, vectors: NDArray[Any]) -> Any:
        faiss, (count, dimensions) = import_faiss(), vectors.shape
        lists = min(self.lists, count // TRAINING)
        index: Any = faiss.index_factory(
            dimensions, self._faiss_recipe(lists, count), faiss.METRIC_INNER_PRODUCT
        )
        if self.backend == "hnsw":
            index.hnsw.efConstruction = self.build_breadth
        if not index.is_trained:
            size = TRAINING * max(lists, CENTROIDS if self.backend == "ivfpq" else 1)
            sample = np.linspace(0, count - 1, min(count, size)).astype(np.int64)
            index.train(vectors[sample].astype(np.float32))
        _add(index, vectors)
        return index

    def _faiss_recipe(self, lists: int, count: int) -> str:
        """Return FAISS's name of the index. Few passages need no lists and cannot be compressed."""
        code = "Flat" if self.storage == "float32" else "SQfp16"
        if self.backend == "hnsw":
            return f"HNSW{self.links},{code}"
        if self.backend == "ivfpq" and count >= TRAINING * CENTROIDS:
            code = f"PQ{self.code_size}"
        return code if lists < 2 else f"IVF{lists},{code}"

    def _faiss_search(self, file: Path, gpus: Sequence[int], vectors: NDArray[Any]) -> Nearest:
        """Open the index, on the GPUs if FAISS can use them. HNSW stays on the CPU."""
        faiss = import_faiss()
        # On a CPU the lists stay in the file, and pages of it are read when a query needs them
        index = (
            faiss.read_index(str(file)) if gpus else faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
        )
        more = REFINED if self.backend == "ivfpq" else 1
        if isinstance(index, faiss.IndexHNSW):
            index.hnsw.efSearch = self.breadth
        elif isinstance(index, faiss.IndexIVF):
            index.nprobe = self.probes
        if not gpus or isinstance(index, faiss.IndexHNSW | faiss.IndexScalarQuantizer):
            return lambda queries, count: index.search(np.ascontiguousarray(queries), more * count)[
                1
            ]
        return _search_on_gpus(index, gpus, vectors, more)


@dataclass(frozen=True)
class DenseFinder(Finder):
    """An opened index of vectors. The vectors, the encoder and the search are loaded for the first query."""

    settings: Dense
    passages: Sequence[Passage]
    folder: Path

    @cached_property
    def _vectors(self) -> NDArray[Any]:
        vectors: NDArray[Any] = np.load(self.folder / VECTORS, mmap_mode="r")
        # before the first query is ranked
        self.settings.check_encoder(self.passages[0], vectors[0], self.folder)
        return vectors

    @cached_property
    def _nearest(self) -> Nearest:
        return self.settings.search(self._vectors, self.folder)

    def find(self, queries: Sequence[Query]) -> Rankings:
        return [[position for position, _ in scored] for scored in self.find_scored(queries)]

    def find_scored(self, queries: Sequence[Query]) -> Sequence[Scored]:
        """Return positions with their inner products, see `biencoder.relevance`, best first."""
        if not queries:
            return []
        embedded = get_biencoder(self.settings.loaded_encoder).vectors(
            "query", [query.text for query in queries]
        )
        results: list[Scored] = [
            self._rank(vector, query.among or ())[: query.k]
            for vector, query in zip(embedded, queries, strict=True)
        ]
        everywhere = [number for number, query in enumerate(queries) if query.among is None]
        for start in range(0, len(everywhere), QUERIES):
            numbers = everywhere[start : start + QUERIES]
            count = min(len(self._vectors), max(queries[number].k for number in numbers) + SPARE)
            for number, positions in zip(
                numbers, self._nearest(embedded[numbers], count), strict=True
            ):
                results[number] = self._choose(
                    embedded[number], queries[number].k, positions, count
                )
        return results

    def _choose(self, vector: Vectors, k: int, positions: NDArray[np.int64], count: int) -> Scored:
        """Return the best `k` of the candidates, fetching more of them while a tie continues beyond the last."""
        total = len(self._vectors)
        candidates = positions[positions >= 0]
        # the lists that were probed hold too few
        if len(candidates) < min(k, total):
            candidates = nearest_exactly(self._vectors, vector[None], count)[0]
        scored = self._rank(vector, candidates)
        while k < len(scored) == count < total and scored[k - 1][1] == scored[-1][1]:
            count = min(total, 4 * count)
            candidates = self._nearest(vector[None], count)[0]
            scored = self._rank(vector, candidates[candidates >= 0])
        return scored[:k]

    def _rank(self, vector: Vectors, positions: Sequence[int] | NDArray[np.int64]) -> Scored:
        """Return all of the positions with their exact scores."""
        at = np.sort(np.array(positions, dtype=np.int64))
        scores = relevance(vector, self._vectors[at].astype(np.float32))
        return [
            (int(at[position]), float(scores[position]))
            for position in rank_positions(scores, len(at))
        ]


def nearest_exactly(vectors: NDArray[Any], queries: Vectors, count: int) -> NDArray[np.int64]:
    """Return the positions of the `count` largest inner products, straight from the mapped file: memory stays small."""
    scores, positions = (
        np.empty((len(queries), 0), np.float32),
        np.empty((len(queries), 0), np.int64),
    )
    for start in range(0, len(vectors), SHARD):
        rows = np.asarray(vectors[start : start + SHARD], dtype=np.float32)
        scores = np.concatenate([scores, queries @ rows.T], axis=1)
        here = np.broadcast_to(np.arange(start, start + len(rows)), (len(queries), len(rows)))
        positions = np.concatenate([positions, here], axis=1)
        best = np.argpartition(-scores, min(count, scores.shape[1]) - 1, axis=1)[:, :count]
        scores, positions = (
            np.take_along_axis(scores, best, axis=1),
            np.take_along_axis(positions, best, axis=1),
        )
    return positions


def _torch_search(vectors: NDArray[Any], device: str) -> Nearest:
    """Hold all vectors in the memory of the devices, in the number type of the file. Each has a part of the rows."""
    require_packages("transformers", "torch")
    import torch

    devices = _torch_devices(device)
    starts = [len(vectors) * number // len(devices) for number in range(len(devices) + 1)]
    dtype = torch.float16 if vectors.dtype == np.float16 else torch.float32
    parts = [
        torch.empty((end - start, vectors.shape[1]), device=place, dtype=dtype)
        for start, end, place in zip(starts, starts[1:], devices, strict=False)
    ]
    for part, first in zip(parts, starts, strict=False):
        for start in range(0, len(part), SHARD):
            rows = vectors[first + start : first + min(start + SHARD, len(part))]
            part[start : start + len(rows)] = torch.tensor(rows, device=part.device)

    def search(queries: Vectors, count: int) -> Any:
        # all devices work at once, because a copy to the CPU waits for its device
        nearest = [
            torch.topk(
                torch.tensor(queries, device=part.device, dtype=dtype) @ part.T,
                min(count, len(part)),
            )
            for part in parts
        ]
        scores = [best.values.float().cpu() for best in nearest]
        positions = [
            best.indices.cpu() + first for best, first in zip(nearest, starts, strict=False)
        ]
        order = torch.topk(torch.cat(scores, dim=1), count).indices
        return torch.cat(positions, dim=1).gather(1, order).numpy()

    return search


def _torch_devices(device: str) -> list[str]:
    """Return the devices by name. auto and cuda: all GPUs."""
    import torch

    if torch_device(device.partition(",")[0]) != "cuda":
        return device.split(",") if device != "auto" else ["cpu"]
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def _faiss_gpus(device: str) -> list[int]:
    """Return the numbers of the GPUs that FAISS is to use, none for the CPU."""
    faiss = import_faiss()
    if device == "cpu" or not hasattr(faiss, "StandardGpuResources"):
        return []
    named = [int(place.partition(":")[2]) for place in device.split(",") if ":" in place]
    return named or list(range(faiss.get_num_gpus()))


def _make_flat(vectors: NDArray[Any]) -> Any:
    index = import_faiss().IndexFlatIP(vectors.shape[1])
    _add(index, vectors)
    return index


def _add(index: Any, vectors: NDArray[Any]) -> None:
    for start in range(0, len(vectors), SHARD):
        index.add(np.asarray(vectors[start : start + SHARD], dtype=np.float32))


def _search_on_gpus(
    index: Any, gpus: Sequence[int], vectors: NDArray[Any], more: int = 1
) -> Nearest:
    """Return a search on GPUs. More passages than FAISS returns there are searched on the CPU."""
    index = _move_to_gpus(index, gpus)

    def search(queries: Vectors, count: int) -> Any:
        if more * count > GPU_LIMIT:
            return nearest_exactly(vectors, queries, count)
        return index.search(np.ascontiguousarray(queries), more * count)[1]

    return search


def _move_to_gpus(index: Any, gpus: Sequence[int]) -> Any:
    """Return the index on the GPUs, each with a part of it in half precision. By default each has a complete copy."""
    faiss = import_faiss()
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    options.useFloat16 = True
    # Each GPU has the same lists, and a part of the vectors of each
    options.common_ivf_quantizer = isinstance(index, faiss.IndexIVF)
    return faiss.index_cpu_to_gpus_list(index, options, list(gpus))


def _encode(
    texts: Sequence[str], encode: Callable[[Sequence[str]], Vectors], advance: Progress
) -> Vectors:
    """Return a row for each text; shorter texts are encoded first, so that a batch pads little."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    blocks = []
    for start in range(0, len(order), BLOCK):
        block = encode([texts[position] for position in order[start : start + BLOCK]])
        if not np.isfinite(block).all():
            raise DataError(
                "the encoder returns vectors that are not finite. Set retriever.encoder.dtype=float32"
            )
        blocks.append(block)
        advance(len(block))
    rows: Vectors = np.concatenate(blocks)[np.argsort(order)]
    return rows


def save_progress(folder: Path, settings: JsonObject, count: int) -> None:
    """Note that the first `count` vectors are in the file. `Dense.build` continues after them."""
    replace_file(folder / PROGRESS, json.dumps({"settings": settings, "done": count}), AGAIN)


class _EncodingProgress(Artifact):
    """The number of saved vectors of an unfinished index, and its settings."""

    done: Annotated[int, Field(ge=0, lt=2**63)]
    settings: JsonObject


def _read_progress(folder: Path, settings: JsonObject) -> int:
    """Return the number of vectors that an interrupted build with these settings saved."""
    try:
        progress = read(_EncodingProgress, folder / PROGRESS)
    except DataError:
        return 0
    return progress.done if progress.settings == json.loads(json.dumps(settings)) else 0


def _open_partial(folder: Path, count: int) -> np.memmap[Any, Any] | None:
    """Open the vectors of an interrupted build to add the others, or return None if the file is damaged."""
    try:
        vectors = np.load(folder / VECTORS, mmap_mode="r+")
    except (OSError, ValueError, EOFError):
        return None
    is_sound = isinstance(vectors, np.memmap) and vectors.ndim == 2 and len(vectors) == count
    return vectors if is_sound else None


def import_faiss() -> Any:
    """Return FAISS. Raise a ConfigError if it is not installed."""
    try:
        import faiss
    except ImportError:
        raise ConfigError(
            f"FAISS is not installed. Run: {install_command('faiss-cpu')} (or [faiss-gpu]), "
            "or choose retriever.backend=numpy"
        ) from None
    return faiss
