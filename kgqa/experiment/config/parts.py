"""The parts of an experiment, built from their nodes; what is not what its group promises is told so in one line.

A kind that not every run makes use of is imported where it is built: `kgqa run` is to ask its first call at once.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import get_annotations, getattr_static, getmro
from typing import TYPE_CHECKING, TypeVar

from kgqa.engines.weights import Model
from kgqa.errors import ConfigError
from kgqa.experiment.config.building import build
from kgqa.experiment.config.files import Node
from kgqa.judge import ROLE
from kgqa.protocols import Dataset, Engine, Method, Ranker, Retriever, Tracker

if TYPE_CHECKING:
    from kgqa.datasets.collections import Collected
    from kgqa.examples import Recipe
    from kgqa.judge.judges import AnyJudge
    from kgqa.kg.extraction import TripleExtractor
    from kgqa.kg.imported import ImportedTriples
    from kgqa.kg.verification import Verification
    from kgqa.retrieval.graphs.links import PassageGraph
    from kgqa.training.schedule import Schedule

T = TypeVar("T")
_ABSENT = object()


def method(node: Node) -> Method:
    return _part(node, "method", Method)


def dataset(node: Node) -> Dataset:
    """All its questions; its file is looked for when it is first asked. The key `verified` is the run's."""
    return _part({key: value for key, value in node.items() if key != "verified"}, "dataset", Dataset)


def collection(node: Node, dataset: Dataset) -> Collected:
    """The dataset's questions, each with a collection of its own."""
    from kgqa.datasets.collections import Collections

    return _part(node, "collection", Collections).over(dataset)


def model(node: Node) -> Model:
    return _part(node, "model", Model)


def engine(node: Node, model: Node) -> Engine:
    """Nothing heavy is loaded. A configuration that was kept may have `lora`, vLLM's key of earlier versions."""
    node = {key: value for key, value in node.items() if (key, value) != ("lora", None)}
    return _part(node, "engine", Engine, model=_part(model, "model", Model))


def retriever(node: Node) -> Retriever:
    return _part(node, "retriever", Retriever)


def ranker(node: Node, group: str = "ranker") -> Ranker:
    """`group`: ranker, demonstrations_ranker or reranker."""
    return _part(node, group, Ranker)


def linker(node: Node) -> PassageGraph:
    """What links passages to a graph: `graph=` for people."""
    from kgqa.retrieval.graphs.links import PassageGraph

    return _part(node, "graph", PassageGraph)


def triples(node: Node) -> TripleExtractor | ImportedTriples:
    """What extracts them, or where they are; `node` is without the key `offline`, which is the run's."""
    from kgqa.kg.extraction import TripleExtractor
    from kgqa.kg.imported import ImportedTriples

    built = build(node, "kg")
    return built if isinstance(built, ImportedTriples) else _promising(built, node, "kg", TripleExtractor)


def judge(node: Node) -> AnyJudge:
    from kgqa.judge.judges import AnyJudge

    return _part(node, ROLE, AnyJudge)


def verification(node: Node) -> Verification:
    from kgqa.kg.verification import Verification

    return _part(node, "verify", Verification)


def recipe(node: Node) -> Recipe:
    """How examples are made: `collect=` for the configuration, `kgqa collect NAME` for people."""
    from kgqa.examples import Recipe

    return _part(node, "collect", Recipe)


def training(node: Node) -> Schedule:
    """How a model is trained: `train=` for the configuration, `kgqa train NAME` for people."""
    from kgqa.training.schedule import Schedule

    return _part(node, "train", Schedule)


def tracker(node: Node) -> Tracker:
    return _part(node, "tracker", Tracker)


def _part(node: Node, key: str, kind: Callable[..., T], **given: object) -> T:
    built: T = build(node, key, **given)
    return _promising(built, node, key, kind)


def _promising(built: T, node: Node, key: str, kind: Callable[..., T]) -> T:
    if lacks := [name for name in _promised(kind) if getattr_static(built, name, _ABSENT) is _ABSENT]:
        raise ConfigError(
            f"{key}._target_={node['_target_']}: is no {key}: it lacks {', '.join(lacks)}; see docs/OWN_CODE.md"
        )
    return built


def _promised(kind: object) -> list[str]:
    """The names of what every one of a kind has."""
    assert isinstance(kind, type)
    named = dict.fromkeys(name for base in getmro(kind) for name in (*vars(base), *get_annotations(base)))
    return [name for name in named if not name.startswith("_")]
