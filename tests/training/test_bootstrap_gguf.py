"""`kgqa bootstrap … engine=llamacpp`: what a round trains is read by llama.cpp in the next."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.bootstrap import Round
from kgqa.artifacts.schema import read
from kgqa.artifacts.trained import find_trained
from kgqa.cli.main import main
from kgqa.config import factories as parts
from kgqa.config.files import load_node
from kgqa.engines.llamacpp import LlamaCpp
from kgqa.errors import ConfigError
from tests.engines import small
from tests.training.test_bootstrap import RULES, WORDS

pytestmark = [pytest.mark.weights, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A random GGUF model with SmolLM2's tokens, small enough to be trained in seconds."""
    pytest.importorskip("xllamacpp", reason="engine=llamacpp needs xllamacpp", exc_type=ImportError)
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    smollm2 = parts.model(load_node("model", "smollm2_135m"))
    try:
        smollm2.locate()
    except ConfigError as error:
        pytest.skip(str(error))
    return Path(str(small.made(tmp_path, smollm2).gguf.path))


def test_adapters_of_a_round_answer_in_llama_cpp(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model is really asked, base and adapters; in place of its words stand those of the scripted rounds."""
    monkeypatch.chdir(tmp_path)
    asked: list[tuple[str, str]] = []
    replied: Any = LlamaCpp._reply

    def reply(engine: Any, call: Any, adapter: int | None) -> Any:
        through = "" if adapter is None else list(engine._views)[adapter].name
        asked.append((call.role, through.rpartition("/")[0]))
        text = "\n".join([*(message.content for message in call.prompt.messages), call.prompt.prefill])
        words = next(words for match, words in RULES if re.search(match, text, re.DOTALL))
        return replace(replied(engine, call, adapter), text=words)

    monkeypatch.setattr(LlamaCpp, "_reply", reply)
    own = [word for word in WORDS if not word.startswith(("engine", "bootstrap.rounds"))]
    words = [*own, "bootstrap.rounds=1", "engine=llamacpp", "model=smollm2_135m", f"model.path={tiny}"]
    assert main(["bootstrap", *words, "model.sha256=null"]) == 0
    [folder] = Path("outputs/bootstrap/knowtrace-demo").glob("*/backtracing/round1")
    one = read(Round, folder / "round.json")
    for role in ("explorer", "completer"):
        made = folder / role
        assert (made / "adapter.gguf").read_bytes()[:4] == b"GGUF"
        assert find_trained(one.adapters[role]).resolve() == made.resolve()
    learnt = len(asked) - 4  # two questions, each asked by round 0 and by round 1, and answered at once
    assert {through for _, through in asked[: 2 + learnt]} == {""}
    assert asked[-2:] == [("explorer", "knowtrace-demo/round1/explorer")] * 2
