"""Plain encoders and sentence-transformers folders against hand computations on tiny random models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from kgqa.errors import ConfigError
from kgqa.identity.component import identity_of
from kgqa.retrieval.encoders import PlainEncoder, SentenceTransformer
from tests.retrieval.tiny_models import BERT, LLAMA, saved, seeded, tokenizer

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

TEXTS = (
    "the lighthouse film",
    "maria",
    "who directed the film of the painter in berlin ?",
    "x " * 60,
)


def plain(model: Path | str, **changes: Any) -> PlainEncoder:
    settings = {
        "model": str(model), "query_model": None, "pooling": "mean", "normalise": False, "query_prefix": "",
        "passage_prefix": "", "max_length": 24, "batch_size": 3, "device": "cpu", "dtype": "float32",
    }  # fmt: skip
    return PlainEncoder(**{**settings, **changes})


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT folder that names an architecture nobody else knows, as Contriever's does."""
    config = transformers.BertConfig(vocab_size=seeded(), **BERT)
    folder = saved(transformers.BertModel(config), tmp_path_factory.mktemp("bert"), "bert")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "architectures": ["Contriever"]}))
    return folder


@pytest.fixture(scope="module")
def dpr(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Question and passage encoder."""
    config = transformers.DPRConfig(vocab_size=seeded(), **BERT)
    question, passage = (
        transformers.DPRQuestionEncoder(config),
        transformers.DPRContextEncoder(config),
    )
    folders = [saved(each, tmp_path_factory.mktemp("dpr"), "bert") for each in (question, passage)]
    return folders[0], folders[1]


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder whose tokeniser neither pads nor ends a text."""
    config = transformers.MistralConfig(vocab_size=seeded(), **LLAMA)
    return saved(transformers.MistralModel(config), tmp_path_factory.mktemp("mistral"), "llama")


def states(folder: Path, ids: list[int]) -> Any:
    """Hidden states of one text alone, (tokens, d)."""
    with torch.no_grad():
        return (
            transformers.AutoModel.from_pretrained(folder)
            .eval()(torch.tensor([ids]))
            .last_hidden_state[0]
            .numpy()
        )


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling_leaves_the_padding_out(bert: Path, pooling: str) -> None:
    vectors = plain(bert, pooling=pooling).encode("passage", TEXTS)
    tokens = [
        states(bert, tokenizer("bert")(text, truncation=True, max_length=24)["input_ids"])
        for text in TEXTS
    ]
    expected = [each[0] if pooling == "cls" else each.mean(axis=0) for each in tokens]
    assert vectors == pytest.approx(np.array(expected), abs=1e-5)


def test_last_pooling_uses_the_end_token_of_cut_texts(mistral: Path) -> None:
    vectors = plain(mistral, pooling="last").encode("passage", TEXTS)
    end = tokenizer("llama").eos_token_id
    ids = [[*tokenizer("llama")(text)["input_ids"][:23], end] for text in TEXTS]
    assert vectors == pytest.approx(np.array([states(mistral, each)[-1] for each in ids]), abs=1e-5)


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_dpr_encodes_questions_and_passages_separately(
    dpr: tuple[Path, Path], kind: Literal["query", "passage"]
) -> None:
    question, passage = dpr
    encoder = plain(passage, query_model=str(question), pooling="cls")
    network = transformers.DPRQuestionEncoder if kind == "query" else transformers.DPRContextEncoder
    (vector,) = encoder.encode(kind, TEXTS[:1])
    with torch.no_grad():
        model = network.from_pretrained(question if kind == "query" else passage).eval()
        expected = model(**tokenizer("bert")(TEXTS[0], return_tensors="pt")).pooler_output[0]
    assert vector == pytest.approx(expected.numpy(), abs=1e-6)


def test_wrong_pooling_and_weights_are_rejected(dpr: tuple[Path, Path], tmp_path: Path) -> None:
    """Transformers would fill in random ones and go on."""
    with pytest.raises(ConfigError, match="Set pooling=cls"):
        plain(dpr[1], pooling="mean").encode("passage", TEXTS)
    folder = tmp_path / "mixed"
    shutil.copytree(dpr[1], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "architectures": ["DPRQuestionEncoder"]})
    )
    with pytest.raises(ConfigError, match=r"its weights lack question_encoder\S+ and \d+ others"):
        plain(folder, pooling="cls").encode("query", TEXTS)


def test_vectors_can_be_normalized(bert: Path) -> None:
    raw, unit = (plain(bert, normalise=choice).encode("passage", TEXTS) for choice in (False, True))
    assert np.linalg.norm(unit, axis=1) == pytest.approx(1.0, abs=1e-6)
    assert unit == pytest.approx(raw / np.linalg.norm(raw, axis=1, keepdims=True), abs=1e-5)


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_queries_and_passages_have_their_own_prefix(
    bert: Path, kind: Literal["query", "passage"]
) -> None:
    encoder = plain(bert, query_prefix="query : ", passage_prefix="passage : ")
    expected = plain(bert).encode("passage", [f"{kind} : maria lund"])
    assert encoder.encode(kind, ["maria lund"]) == pytest.approx(expected, abs=1e-6)


def test_encoder_is_identified_by_its_weights(bert: Path, tmp_path: Path) -> None:
    """Not by their folder."""
    shutil.copytree(bert, tmp_path / "moved")
    same = identity_of(plain(bert))
    assert identity_of(plain(tmp_path / "moved", batch_size=7, device="cuda")) == same
    (tmp_path / "moved" / "tokenizer_config.json").write_text("{}")
    assert identity_of(plain(tmp_path / "moved")) != same


@pytest.fixture(scope="module")
def self_described(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    folder = tmp_path_factory.mktemp("self_described")
    # without modules of its own it pools by the mean, so that is what its configuration is changed from
    model = library.SentenceTransformer(str(bert), device="cpu", prompts={"query": "question : "})
    model.similarity_fn_name = "dot"
    model.save(str(folder))
    pooling = folder / "1_Pooling" / "config.json"
    config = json.loads(pooling.read_text())
    assert config["pooling_mode"] == "mean"
    pooling.write_text(json.dumps({**config, "pooling_mode": "cls"}))
    return folder


def test_folder_sets_pooling_prompt_and_similarity(self_described: Path, bert: Path) -> None:
    """CLS, a prompt for queries alone, inner products: so nothing is normalised."""
    encoder, by_hand = (
        SentenceTransformer.of(str(self_described)),
        plain(bert, pooling="cls", max_length=512),
    )
    assert encoder.encode("passage", TEXTS[:3]) == pytest.approx(
        by_hand.encode("passage", TEXTS[:3]), abs=1e-5
    )
    expected = by_hand.encode("passage", ["question : maria"])
    assert encoder.encode("query", ["maria"]) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(
        ConfigError, match=r"no modules\.json.*Choose the preset of a plain encoder"
    ):
        SentenceTransformer.of(str(bert)).encode("passage", TEXTS)
