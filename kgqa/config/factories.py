"""The parts of an experiment, built from their nodes; what is not what its group promises is told so in one line.

A kind that not every run makes use of is imported where it is built: `kgqa run` is to ask its first call at once.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import get_annotations, getattr_static, getmro
from typing import TYPE_CHECKING, TypeVar

from kgqa.config.building import build
from kgqa.config.files import Node
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError
from kgqa.judge import ROLE
from kgqa.protocols import Dataset, Engine, Method, Ranker, Retriever, Tracker

if TYPE_CHECKING:
    from kgqa.artifacts.examples import Recipe
    from kgqa.datasets.collections import Collected
    from kgqa.judge.judges import AnyJudge
    from kgqa.kg.extraction import TripleExtractor
    from kgqa.kg.imported import ImportedTriples
    from kgqa.kg.verification import Verification
    from kgqa.protocols.training import Trainer
    from kgqa.retrieval.graphs.links import PassageGraph

T = TypeVar("T")
_ABSENT = object()


def method(node: Node) -> Method:
    return _part(node, "method", Method)


def dataset(node: Node) -> Dataset:
    """Build a dataset. Its file is read at the first use. The key `verified` belongs to the run."""
    return _part({key: value for key, value in node.items() if key != "verified"}, "dataset", Dataset)


def collection(node: Node, dataset: Dataset) -> Collected:
    """Build the dataset's questions, each with its own collection."""
    from kgqa.datasets.collections import Collections

    return _part(node, "collection", Collections).over(dataset)


def model(node: Node) -> Model:
    return _part(node, "model", Model)


def engine(node: Node, model: Node) -> Engine:
    """Build an engine without loading a model."""
    return _part(node, "engine", Engine, model=_part(model, "model", Model))


def retriever(node: Node) -> Retriever:
    return _part(node, "retriever", Retriever)


def ranker(node: Node, group: str = "ranker") -> Ranker:
    """Build a ranker; `group` is ranker, demonstrations_ranker or reranker."""
    return _part(node, group, Ranker)


def linker(node: Node) -> PassageGraph:
    """Build the links of passages in a graph: `graph=`."""
    from kgqa.retrieval.graphs.links import PassageGraph

    return _part(node, "graph", PassageGraph)


def triples(node: Node) -> TripleExtractor | ImportedTriples:
    """Build what extracts or reads triples; `node` comes without the run's key `require_existing`."""
    from kgqa.kg.extraction import TripleExtractor
    from kgqa.kg.imported import ImportedTriples

    built = build(node, "kg")
    return built if isinstance(built, ImportedTriples) else _check_members(built, node, "kg", TripleExtractor)


def judge(node: Node) -> AnyJudge:
    from kgqa.judge.judges import AnyJudge

    return _part(node, ROLE, AnyJudge)


def verification(node: Node) -> Verification:
    from kgqa.kg.verification import Verification

    return _part(node, "verify", Verification)


def recipe(node: Node) -> Recipe:
    """Build the recipe of training examples: `collect=`."""
    from kgqa.artifacts.examples import Recipe

    return _part(node, "collect", Recipe)


def training(node: Node) -> Trainer:
    """Build the schedule of a training: `train=`."""
    from kgqa.protocols.training import Trainer

    return _part(node, "train", Trainer)


def tracker(node: Node) -> Tracker:
    return _part(node, "tracker", Tracker)


def _part(node: Node, key: str, kind: Callable[..., T], **given: object) -> T:
    built: T = build(node, key, **given)
    return _check_members(built, node, key, kind)


def _check_members(built: T, node: Node, key: str, kind: Callable[..., T]) -> T:
    if lacks := [name for name in _member_names(kind) if getattr_static(built, name, _ABSENT) is _ABSENT]:
        raise ConfigError(
            f"{key}._target_={node['_target_']}: is no {key}: it lacks {', '.join(lacks)}; see docs/OWN_CODE.md"
        )
    return built


def _member_names(kind: object) -> list[str]:
    """Return the names of the members of a protocol."""
    assert isinstance(kind, type)
    named = dict.fromkeys(name for base in getmro(kind) for name in (*vars(base), *get_annotations(base)))
    return [name for name in named if not name.startswith("_")]
