"""What is vLLM's own. It lives in an environment of its own, where `make test-engines` runs all tests with "vllm" in
their names: the contract suite's (`test_contract.py[vllm]`), the hand computations' and these."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip(
    "vllm", reason="vLLM has an environment of its own: make test-engines runs its tests there"
)


from kgqa.calls import Generate
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.engines.openai import OpenAI
from kgqa.engines.weights import Model, convert_weights
from kgqa.errors import ConfigError
from kgqa.types import Completion, Message, Prompt
from tests.engines.asking import FACTS, ask, choose, largest_difference, write
from tests.engines.conftest import vllm_engine
from tests.engines.tiny import tiny
from tests.engines.vllm_server import serving
from tests.vllm_processes import below, gone

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Model:
    folder = tiny(tmp_path_factory.mktemp("tiny"), model)
    return replace(model, name="tiny", path=str(folder), sha256=None, packages=())


def test_closing_while_vllm_starts_leaves_no_process(small: Model) -> None:
    before = {process.pid for process in below()}
    engine = vllm_engine(small)
    engine.submit(write("Say one."), lambda _: None)
    deadline = time.monotonic() + 120
    while (
        not (fresh := [each for each in below() if each.pid not in before])
        and time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert fresh
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < 10
    assert gone(fresh, 10)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("quantization", "nonsense", "nonsense"),
        ("batch_invariant", True, "needs a GPU"),
        ("extra_args", {"nonsense": 1}, "engine.extra_args: .*nonsense"),
        ("extra_args", {"dtype": "float16"}, "engine.extra_args=dtype: kgqa sets this argument"),
    ],
    ids=["unknown quantization", "no GPU", "unknown argument", "argument with a key"],
)
def test_what_vllm_cannot_do_is_a_config_error(
    small: Model, field: str, value: Any, reason: str
) -> None:
    engine = vllm_engine(small, **{field: value})
    [reply] = ask(engine, [write("Say one.")])
    engine.close()
    assert isinstance(reply, ConfigError)
    assert re.search(reason, str(reply))
    assert "\n" not in str(reply)


def test_extra_args_reach_vllm(small: Model) -> None:
    # no prompt of more tokens fits in a step, and without chunks vLLM rejects the settings
    engine = vllm_engine(
        small, extra_args={"max_num_batched_tokens": 8, "enable_chunked_prefill": False}
    )
    [reply] = ask(engine, [write("Say one.")])
    engine.close()
    assert "max_num_batched_tokens" in str(reply)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Model:
    """The same weights, whose files do not say that <|im_end|> ends a reply, as some published ones."""
    folder = tmp_path_factory.mktemp("weights") / "forgetful"
    shutil.copytree(convert_weights(model.locate()), folder)
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**settings, "eos_token_id": 0}))
    # vLLM's server ends a reply at this one, too
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token": "<|endoftext|>"}))
    return replace(model, name="forgetful", path=str(folder), sha256=None, packages=())


@pytest.fixture(scope="module")
def served(forgetful: Model) -> Iterator[str]:
    with serving(forgetful.locate()) as url:
        yield url


def test_its_server_gives_what_the_engine_gives(served: str, forgetful: Model, vllm: Any) -> None:
    here = {"base_url": served, "server": "vllm", "served_model": str(forgetful.locate())}
    client: OpenAI = build(compose(["engine=openai"])["engine"] | here, "engine", model=forgetful)
    plain = Prompt("test/plain", (Message("user", "The capital of France is"),), form="completion")
    capital = write("What is the capital of France? Answer in one word.", 40)
    calls: list[Any] = [
        capital, Generate(plain, 12), choose("Which letter?", 5), choose("Which letter?", 31, "Answer:"),
    ]  # fmt: skip
    theirs: list[Any] = ask(client, calls)
    ours: list[Any] = ask(vllm, calls)
    facts = write(f"{FACTS} Which one is last?", 3)
    first, again = (ask(client, [facts])[0] for _ in range(2))
    client.close()
    for one, other in zip(theirs[:2], ours[:2], strict=True):
        assert (one.text, one.finish) == (other.text, other.finish)
    # at <|im_end|>, which its files do not name
    assert theirs[0].finish == "stop"
    for one, other in zip(theirs[2:], ours[2:], strict=True):
        assert largest_difference(one, other) < 1e-3
    assert isinstance(first, Completion)
    assert isinstance(again, Completion)
    assert first.usage.cached_tokens == 0
    assert 128 <= again.usage.cached_tokens < again.usage.prompt_tokens
