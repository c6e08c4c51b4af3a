"""Adapters on every engine: two of them and the base, on one loaded model, each as if it were alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kgqa.config.building import build as configured
from kgqa.config.composing import compose
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError
from tests.engines.asking import FACTS, TOWNS, ask, choose, largest_difference, texts, write
from tests.engines.conftest import LOCAL, VLLM, build, vllm_engine
from tests.engines.small import Small, merged
from tests.engines.test_exactness import by_hand

pytestmark = pytest.mark.weights
TOLERANCE = {"llamacpp": 0.02}  # nats; it keeps keys and values in float16, the others compute in float32
CALLS: list[Any] = [
    choose("Which letter?", 21, "Answer:"), write("Tell me a story.", 12),
    choose(f"{FACTS} Which one is first?", 5), write(f"{FACTS} Who lives where?", 9),
]  # fmt: skip


def engine_on(name: str, model: Model) -> Any:
    if name == "transformers":
        pytest.importorskip("peft", reason="adapters under engine transformers need peft", exc_type=ImportError)
    return vllm_engine(model) if name in VLLM else build(name, model)


@pytest.fixture(scope="module", params=LOCAL)
def engines(request: pytest.FixtureRequest, small: Small) -> Iterator[dict[str, Any]]:
    """The base and its two adapted views, by name."""
    base = engine_on(request.param, small.of(request.param))
    yield {"": base, "one": base.with_adapter(small.one), "two": base.with_adapter(small.two)}
    base.close()


def test_an_adapter_answers_as_if_it_were_merged_and_the_base_as_if_there_were_none(
    engines: dict[str, Any], small: Small
) -> None:
    near = TOLERANCE.get(engines[""].identity()["engine"], 1e-4)
    answers = {}
    for name, adapter in {"one": small.one, "": None, "two": small.two}.items():
        [reply] = ask(engines[name], CALLS[:1])
        assert not isinstance(reply, Exception), reply
        answers[name] = reply
        assert list(reply.logprobs) == pytest.approx(by_hand(CALLS[0], merged(small, adapter))[0], abs=near)  # type: ignore[union-attr]
    differences = [largest_difference(answers[a], answers[b]) for a, b in (("", "one"), ("one", "two"), ("two", ""))]
    assert min(differences) > 0.1


def test_asked_in_turns_each_answers_as_when_it_is_alone(engines: dict[str, Any], small: Small) -> None:
    """The same prompts, so that what is kept of one's must not serve another."""
    name = engines[""].identity()["engine"]
    near = TOLERANCE.get(name, 1e-4)
    alone = {}
    for which, adapter in {"": None, "one": small.one, "two": small.two}.items():
        engine = engine_on(name, small.of(name))
        alone[which] = ask(engine.with_adapter(adapter) if adapter else engine, CALLS)
        engine.close()
    assert len({text for replies in alone.values() for text in texts(replies[1::2])}) == 6
    others = [write(f"Tell me about {town}.", 3) for town in TOWNS[:3]]
    for round_ in (["", "one", "two"], ["one", "", "two"], ["two", "one", ""]):
        for which in round_:
            for call, expected in zip(CALLS, alone[which], strict=True):
                reply: Any = ask(engines[which], [call])[0]
                assert not isinstance(reply, Exception), reply
                if hasattr(expected, "logprobs"):
                    assert largest_difference(reply, expected) < near
                else:
                    assert reply.text == expected.text  # type: ignore[union-attr]
        ask(engines[round_[0]], others)


def server_at(url: str, model: Model, server: str) -> Any:
    here = {"base_url": url, "server": server, "served_model": str(model.path)}
    return configured(compose(["engine=openai"])["engine"] | here, "engine", model=model)


@pytest.mark.parametrize("server", ["hosted", "sglang", "llamacpp"])
def test_a_server_without_adapters_is_refused(server: str, small: Small) -> None:
    with pytest.raises(ConfigError, match=f"engine.server={server} accepts no adapters. Serve the model with vLLM"):
        server_at("http://127.0.0.1:9/v1", small.folder, server).with_adapter(small.one)
