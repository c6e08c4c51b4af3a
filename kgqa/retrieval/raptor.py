"""RAPTOR (Sarthi et al., ICLR 2024): search passages together with summaries of clusters of passages."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kgqa.calls import Generate, settle
from kgqa.errors import ConfigError
from kgqa.prompting import render, template_hash
from kgqa.protocols import Need, Progress, Query, Rankings
from kgqa.retrieval.composite import Composite, count_failures
from kgqa.retrieval.dense import Dense
from kgqa.retrieval.search import OpenedIndex
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import explain_storage_errors
from kgqa.util.jsonio import decode_json, encode_json
from kgqa.util.optional_deps import require_packages
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Share

# of the clusters and the search
VERSION = 1
TEMPLATE, ROLE = "raptor/summarize", "summarizer"
TREE = "tree.json"
CHARACTERS_PER_TOKEN = 4  # of English, roughly
# in the prompt, so that few summaries are cut
WORDS_PER_TOKEN = 0.6
# members of a cluster in a plan: the mean of 141 to 600 passages with the settings of conf/
PLANNED_SIZE = 5
SEED = 224  # as in the released code
# of a text within a cluster, for UMAP; as in the released code
NEIGHBORS = 10
# larger mixtures without a lower BIC after which no further one is tried
PATIENCE = 5
# positions of a cluster's nodes in their layer
Members = list[int]


@dataclass(frozen=True)
class Raptor(Composite):
    """Index passages and summaries. A search returns both.

    A summary is a passage with the title "Summary of N texts". It is no gold passage of any question.
    """

    nodes: Annotated[
        Dense, Setting("Dense retriever of passages and summaries: retriever@retriever.nodes=NAME.")
    ]
    strategy: Annotated[
        Literal["collapsed", "tree"],
        Setting("Collapsed: all nodes at once | tree: from the top layer down.", paper="collapsed"),
    ] = "collapsed"
    max_tokens: Annotated[
        Count | None,
        Setting(
            "Maximum tokens (of four letters) of all nodes that a search returns; null: no limit.",
            paper="paper",
        ),
    ] = 2000
    nodes_per_layer: Annotated[
        Count,
        Setting("Strategy=tree: nodes that are selected in each layer.", code="released code"),
    ] = 5
    layers: Annotated[
        Count, Setting("Maximum number of layers of summaries.", code="released code")
    ] = 5
    reduction: Annotated[
        Literal["pca", "umap"],
        Setting(
            "How vectors lose dimensions: pca | umap, the paper's, which needs the extra umap.",
            ours="our choice",
        ),
    ] = "pca"
    dimensions: Annotated[
        Count,
        Setting(
            "Dimensions of the vectors that are clustered. As few texts are one cluster.",
            code="released code",
        ),
    ] = 10
    max_clusters: Annotated[
        Count,
        Setting(
            "Maximum number of clusters that a set of texts is split into. BIC chooses.",
            code="released code",
        ),
    ] = 50
    membership: Annotated[
        Share, Setting("Least probability with which a text belongs to a cluster.", paper="paper")
    ] = 0.1
    max_cluster_tokens: Annotated[
        Count,
        Setting(
            "Tokens (of four letters) beyond which a cluster is split again. Released: 3500.",
            ours="our choice",
        ),
    ] = 1000
    summary_tokens: Annotated[
        Count, Setting("Maximum tokens of a summary.", code="released code")
    ] = 100

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})
    writer: ClassVar[str] = ROLE

    # raise it when equal settings give other results
    version: ClassVar[int] = VERSION

    def __post_init__(self) -> None:
        if not isinstance(self.nodes, Dense):
            raise ConfigError(
                f"retriever.nodes: {type(self.nodes).__name__} has no embeddings. Choose a dense one"
            )

    @property
    def pools(self) -> bool:
        return False

    def loads(self) -> JsonObject:
        return {"template": template_hash(TEMPLATE)}

    async def expand(
        self, passages: Sequence[Passage], folder: Path | None, advance: Progress
    ) -> list[Passage]:
        """Return the summaries of all layers, the lowest layer first, and save the tree.

        Args:
            folder: for the tree. None: plan the calls without embeddings, with clusters of `PLANNED_SIZE`.
            advance: called after each summary.
        """
        nodes, positions = (
            list(passages),
            {passage.id: position for position, passage in enumerate(passages)},
        )
        layer, children, failed = list(range(len(nodes))), dict[int, list[int]](), 0
        for _ in range(self.layers):
            if len(layer) <= self.dimensions + 1:
                break
            members = [nodes[position] for position in layer]
            clusters = self.cluster(members) if folder else _cluster_evenly(len(layer))
            # no further layer would be smaller
            if len(clusters) >= len(layer):
                break
            summaries = await settle(
                *(self._summarize([members[at] for at in each], advance) for each in clusters)
            )
            failed += count_failures(summaries, "summarization") if folder else 0
            below, layer = layer, []
            for summary, cluster in zip(summaries, clusters, strict=True):
                # its members stay in the tree
                if isinstance(summary, Exception):
                    layer += [below[at] for at in cluster]
                    continue
                position = positions.setdefault(summary.id, len(nodes))
                # two clusters can have the same summary
                nodes += [summary] * (position == len(nodes))
                children.setdefault(position, []).extend(below[at] for at in cluster)
                layer.append(position)
            layer = sorted(set(layer))
        if folder:
            with explain_storage_errors(folder):
                (folder / TREE).write_bytes(
                    encode_json({"top": layer, "children": [*children.items()], "failed": failed})
                )
        return nodes[len(passages) :]

    async def _summarize(self, texts: Sequence[Passage], advance: Progress) -> Passage:
        words = round(WORDS_PER_TOKEN * self.summary_tokens)
        reply = await Generate(
            render(TEMPLATE, texts=texts, words=words), self.summary_tokens, role=ROLE
        )
        advance(1)
        # a model can write half a surrogate pair
        text = reply.text.strip().encode("utf-8", "replace").decode()
        return Passage.of(f"Summary of {len(texts)} texts", text)

    def cluster(self, texts: Sequence[Passage]) -> list[Members]:
        """Return soft clusters: first of all texts, then of each cluster. A cluster that is too long is split further.

        As in the released code, but with texts of passages and not of 100 tokens, and by default with PCA instead of
        UMAP.
        """
        require_packages("raptor", "scikit-learn")
        if self.reduction == "umap":
            require_packages("umap", "umap-learn")
        vectors = self.nodes.embed(texts)
        tokens = [len(text.wording) // CHARACTERS_PER_TOKEN for text in texts]

        def shorten(members: Members) -> list[Members]:
            if len(members) == 1 or sum(tokens[at] for at in members) <= self.max_cluster_tokens:
                return [members]
            parts = self._mix(vectors, members, least=2)
            if any(len(part) == len(members) for part in parts):
                half = len(members) // 2
                parts = [members[:half], members[half:]]
            return [short for part in parts for short in shorten(part)]

        coarse = self._mix(
            vectors, list(range(len(texts))), neighbors=max(2, int(np.sqrt(len(texts) - 1)))
        )
        clusters = [
            short for part in coarse for fine in self._mix(vectors, part) for short in shorten(fine)
        ]
        return [list(cluster) for cluster in dict.fromkeys(map(tuple, clusters))]

    def _mix(
        self, vectors: NDArray[Any], members: Members, least: int = 1, neighbors: int = NEIGHBORS
    ) -> list[Members]:
        """Return the components of the Gaussian mixture with the lowest BIC; too few members are one cluster."""
        if len(members) <= self.dimensions + 1:
            return [members]
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        rows = vectors[members].astype(np.float64)
        if (rows == rows[0]).all():
            return [members]
        reduced = self._reduce(rows, neighbors)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of equal texts
            best, lowest, since = None, np.inf, least
            for count in range(least, max(least, min(self.max_clusters, len(members) - 1)) + 1):
                mixture = GaussianMixture(count, random_state=SEED).fit(reduced)
                if (bic := mixture.bic(reduced)) < lowest:
                    best, lowest, since = mixture, bic, count
                elif count - since == PATIENCE:
                    break
        assert best is not None
        shares = best.predict_proba(reduced)
        belongs = (shares > self.membership) | (shares == shares.max(axis=1, keepdims=True))
        return [[members[at] for at in column.nonzero()[0]] for column in belongs.T if column.any()]

    def _reduce(self, rows: NDArray[np.float64], neighbors: int) -> NDArray[Any]:
        """Return the rows with fewer dimensions. neighbors: of a row, for UMAP."""
        reduced: NDArray[Any]
        if self.reduction == "pca":
            from sklearn.decomposition import PCA

            reduced = PCA(self.dimensions, svd_solver="full").fit_transform(rows)
            return reduced
        from umap import UMAP

        # with a seed UMAP uses one thread, and warns about it
        reducer = UMAP(neighbors, self.dimensions, metric="cosine", random_state=SEED, n_jobs=1)
        reduced = reducer.fit_transform(rows)
        return reduced

    def open(self, passages: Sequence[Passage], folder: Path) -> OpenedTree:
        return OpenedTree(self, passages, folder, super().open(passages, folder).finders)

    def load(self, folder: Path) -> tuple[Members, dict[int, Members]]:
        """Return the nodes of the top layer, and the children of each node."""
        tree = decode_json((folder / TREE).read_bytes())
        return tree["top"], dict(tree["children"])

    def count_lacks(self, passages: Sequence[Passage], folder: Path | None) -> Mapping[str, int]:  # noqa: ARG002 - the interface
        """Return the number of clusters without a summary, see `MeasuredRetriever`."""
        return {"failed": decode_json((folder / TREE).read_bytes())["failed"]} if folder else {}

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        finder = index.finders["nodes"]
        if self.strategy == "tree":
            queries = [self._descend(index, query) for query in queries]
        return [self._cut(index.passages, positions) for positions in finder.find(queries)]

    def _descend(self, index: OpenedIndex, query: Query) -> Query:
        """Limit a query to the nodes that a traversal selects: the best of the top layer, then of their children."""
        layer, children = index.data
        selected = set[int]()
        while layer:
            wanted = replace(query, k=self.nodes_per_layer, among=tuple(sorted(layer)))
            (best,) = index.finders["nodes"].find([wanted])
            selected.update(best)
            layer = {child for node in best for child in children.get(node, ())} - selected
        allowed = selected if query.among is None else selected.intersection(query.among)
        return replace(query, among=tuple(sorted(allowed)))

    def _cut(self, passages: Sequence[Passage], positions: Sequence[int]) -> list[int]:
        """Return the first nodes that have `max_tokens` together, at least one."""
        left = self.max_tokens or float("inf")
        for count, position in enumerate(positions):
            left -= len(passages[position].wording) // CHARACTERS_PER_TOKEN
            if left < 0:
                return list(positions[: max(count, 1)])
        return list(positions)


@dataclass(frozen=True)
class OpenedTree(OpenedIndex):
    """An opened tree, which also finds the passages under summaries."""

    def find_leaves(self, ids: Collection[str]) -> list[Passage]:
        """Return the passages under these summaries, each once, those of the first summary first."""
        _, children = self.data
        nodes = [self._summaries[each] for each in ids if each in self._summaries]
        leaves: dict[int, None] = {}
        while nodes:
            below = [child for node in nodes for child in children[node]]
            leaves |= dict.fromkeys(child for child in below if child not in children)
            nodes = [child for child in below if child in children]
        return [self.passages[leaf] for leaf in leaves]

    @cached_property
    def _summaries(self) -> Mapping[str, int]:
        """Return the positions of all summaries by id."""
        return {self.passages[position].id: position for position in self.data[1]}


def _cluster_evenly(count: int) -> list[Members]:
    return [
        list(range(start, min(start + PLANNED_SIZE, count)))
        for start in range(0, count, PLANNED_SIZE)
    ]
