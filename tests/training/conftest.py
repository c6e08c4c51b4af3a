"""Tiny bases for trainers. Without the libraries these tests are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.engines.weights import let_waiting_threads_sleep
from tests.training import tiny

let_waiting_threads_sleep()


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    for library in ("torch", "transformers", "accelerate", "peft", "trl"):
        pytest.importorskip(library, reason=f"training needs {library}", exc_type=ImportError)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.t5(tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip(
        "sentence_transformers",
        reason="bi-encoders need sentence-transformers",
        exc_type=ImportError,
    )
    return tiny.bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def trained(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA training without interruption."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert tiny.train(tiny.task(folder, "LoraTraining", llama, tiny.LORA)) == 0
    return folder
