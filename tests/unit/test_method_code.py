"""What changes a method's hash, and with it the names of its runs: what decides an answer, and nothing else."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.config.program_code import program_hash

ROOT = Path(__file__).parents[2]
METHOD = '''"""A method."""

from dataclasses import dataclass

from {steps} import first


@dataclass(frozen=True)
class Own:
    """Answers."""

    depth: int

    def answer(self, text: str) -> str:
        """One."""
        return first(text)  # the first
'''
STEPS = "def first(text: str) -> str:\n    return text[:1]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def hashed(folder: Path, method: str = METHOD, steps: str = STEPS, depth: int = 1) -> str:
    """Of the method in modules of these texts; the folder stands for a person's working directory."""
    (folder / "own_method.py").write_text(method.format(steps="own_steps"), encoding="utf-8")
    (folder / "own_steps.py").write_text(steps, encoding="utf-8")
    importlib.invalidate_caches()
    for name in ("own_method", "own_steps"):
        sys.modules.pop(name, None)
    return program_hash(importlib.import_module("own_method").Own(depth))


def test_comments_docstrings_and_layout_change_nothing(folder: Path) -> None:
    plain = hashed(folder)
    assert hashed(folder, METHOD.replace("  # the first", "")) == plain
    assert hashed(folder, METHOD.replace('"""One."""', '"""Another word on it."""')) == plain
    assert hashed(folder, METHOD.replace("first(text)", "first(\n            text,\n        )")) == plain


def test_another_statement_value_or_step_is_another_method(folder: Path) -> None:
    others = [
        hashed(folder),
        hashed(folder, METHOD.replace("return first(text)", "return first(text) or text")),
        hashed(folder, steps=STEPS.replace("[:1]", "[:2]")),
        hashed(folder, depth=2),
    ]
    assert len(set(others)) == len(others)


def test_its_templates_and_demonstrations_belong_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def trace(*overrides: str) -> str:
        return program_hash(build(compose(["method=trace", *overrides])["method"], "method"))

    plain = trace()
    assert trace("method.few_shot.path=trace_chains_musique.jsonl") == plain  # the same ones by another name
    assert trace("method.few_shot.path=2wiki") != plain
    monkeypatch.setattr(
        "kgqa.config.program_code.template_hash",
        lambda name: "changed" if name == "trace/select" else "as it was",
    )
    changed = trace()
    monkeypatch.setattr("kgqa.config.program_code.template_hash", lambda name: "as it was")
    assert changed != trace()


def test_methods_have_the_same_hash_in_every_process() -> None:
    script = """
from kgqa.config.building import build
from kgqa.config.program_code import program_hash
from tests.composed import composed_node
for name in ("trace", "kgp", "knowtrace", "safe", "react", "search_agent"):
    print(name, program_hash(build(composed_node("method", name), "method")))
"""
    told = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(told) == 1
