"""Adapters on every engine: two of them and the base, on one loaded model, each as if it were alone. Those that do not
fit a model or an engine are refused in one line, which names both and says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.adapter import Adapter
from kgqa.config.building import build as configured
from kgqa.config.composing import compose
from kgqa.engines.weights import Model, digest
from kgqa.errors import ConfigError, DataError
from kgqa.extras.training.train.export import Attention, write_gguf
from kgqa.identity.component import identity_of
from kgqa.util.settings import name_of
from tests.adapters_for_tests import write_artefact, write_lora
from tests.engines.asking import FACTS, TOWNS, ask, choose, largest_difference, texts, write
from tests.engines.conftest import LOCAL, VLLM, build, vllm_engine
from tests.engines.small import Small, make_small, merged
from tests.engines.test_exactness import by_hand

pytestmark = pytest.mark.weights
# nats; it keeps keys and values in float16, the others compute in float32
TOLERANCE = {"llamacpp": 0.02}
CALLS: list[Any] = [
    choose("Which letter?", 21, "Answer:"), write("Tell me a story.", 12),
    choose(f"{FACTS} Which one is first?", 5), write(f"{FACTS} Who lives where?", 9),
]  # fmt: skip


def engine_on(name: str, model: Model) -> Any:
    if name == "transformers":
        pytest.importorskip(
            "peft", reason="adapters under engine transformers need peft", exc_type=ImportError
        )
    return vllm_engine(model) if name in VLLM else build(name, model)


@pytest.fixture(scope="module", params=LOCAL)
def engines(request: pytest.FixtureRequest, small: Small) -> Iterator[dict[str, Any]]:
    """The base and its two adapted views, by name."""
    base = engine_on(request.param, small.of(request.param))
    yield {"": base, "one": base.with_adapter(small.one), "two": base.with_adapter(small.two)}
    base.close()


def test_adapter_answers_like_its_merged_model(engines: dict[str, Any], small: Small) -> None:
    near = TOLERANCE.get(name_of(identity_of(engines[""])), 1e-4)
    answers = {}
    for name, adapter in {"one": small.one, "": None, "two": small.two}.items():
        [reply] = ask(engines[name], CALLS[:1])
        assert not isinstance(reply, Exception), reply
        answers[name] = reply
        logprobs = list(reply.logprobs)  # type: ignore[union-attr]
        assert logprobs == pytest.approx(by_hand(CALLS[0], merged(small, adapter))[0], abs=near)
    differences = [
        largest_difference(answers[a], answers[b])
        for a, b in (("", "one"), ("one", "two"), ("two", ""))
    ]
    assert min(differences) > 0.1


def test_adapters_in_turns_answer_as_alone(engines: dict[str, Any], small: Small) -> None:
    """The same prompts, so that what is kept of one's must not serve another."""
    name = name_of(identity_of(engines[""]))
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
    with pytest.raises(
        ConfigError, match=f"engine.server={server} accepts no adapters. Serve the model with vLLM"
    ):
        server_at("http://127.0.0.1:9/v1", small.folder, server).with_adapter(small.one)


def refusal(engine: Any, adapter: Adapter) -> str:
    """What the engine says to a call through it."""
    try:
        [error] = ask(engine.with_adapter(adapter), CALLS[:1])
    except (ConfigError, DataError) as raised:
        # a batch engine fails the whole batch
        error = raised
    engine.close()
    assert isinstance(error, ConfigError | DataError), error
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize("name", LOCAL)
def test_adapter_of_another_base_is_rejected(name: str, small: Small, tmp_path: Path) -> None:
    model = small.of(name)
    trained = Adapter("safe", str(write_artefact(tmp_path / "ab", "qwen3_8b", "c" * 64)))
    engine: Any = build(name, model)
    expected = f"trained on qwen3_8b with sha256 {'c' * 64}, but tiny has {model.digest()}. Choose the same model="
    with pytest.raises(ConfigError, match=f"{expected}qwen3_8b"):
        engine.with_adapter(trained)
    engine.close()


def test_other_file_of_the_same_base_is_disclosed(small: Small, tmp_path: Path) -> None:
    """A folder was trained on, and llama.cpp answers with a quantised file of it."""
    pytest.importorskip("xllamacpp", reason="engine llamacpp needs xllamacpp")
    trained = Adapter(
        "safe", str(write_artefact(tmp_path / "ab", "tiny", digest(Path(str(small.folder.path)))))
    )
    write_gguf(trained, Attention("llama", 2, 1), trained.gguf)
    engine = build("llamacpp", small.gguf)
    [there], [plain] = ask(engine.with_adapter(trained), CALLS[:1]), ask(engine, CALLS[:1])  # type: ignore[attr-defined]
    engine.close()
    assert there.flags == ("base_differs",)  # type: ignore[union-attr]
    assert plain.flags == ()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [each for each in LOCAL if each != "llamacpp"])
def test_matrices_of_other_size_or_layers_are_rejected(
    name: str, small: Small, tmp_path: Path
) -> None:
    wide = Adapter("wide", str(write_lora(tmp_path / "wide", shapes={"q_proj": (64, 96)})))
    assert "of another model" in (message := refusal(engine_on(name, small.folder), wide))
    assert "self_attn.q_proj.lora_A, for a size of 96, and the model has 64" in message
    other = Adapter("other", str(write_lora(tmp_path / "other", shapes={"wq": (64, 64)})))
    assert "self_attn.wq.lora_A, a layer that the model lacks" in refusal(
        engine_on(name, small.folder), other
    )


def test_llama_cpp_needs_the_gguf_file_of_the_adapter(small: Small, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="engine llamacpp needs xllamacpp")
    lora = Adapter("safe", str(write_lora(tmp_path / "lora")))
    assert "is missing next to" in (message := refusal(build("llamacpp", small.gguf), lora))
    assert message.endswith("Run: kgqa models trained safe --gguf")
    write_gguf(small.one, Attention("llama", 2, 1), lora.gguf)
    assert "comes from another training than" in refusal(build("llamacpp", small.gguf), lora)


def test_a_rank_beyond_vllms_is_refused(small: Small, tmp_path: Path) -> None:
    huge = Adapter("huge", str(write_lora(tmp_path / "huge", rank=600, shapes={"q_proj": (8, 8)})))
    with pytest.raises(
        ConfigError, match=r"adapter huge: rank 600 is more than engine=vllm supports \(512\)"
    ):
        vllm_engine(small.folder).with_adapter(huge)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_an_adapter_on_qwen_is_the_same_in_gguf(
    architecture: str, model: Model, tmp_path: Path
) -> None:
    pytest.importorskip("gguf", reason="writing GGUF needs gguf")
    small = make_small(tmp_path, model, architecture)
    engine: Any = engine_on("llamacpp", small.gguf)
    for adapter in (None, small.one, small.two):
        [reply] = ask(engine.with_adapter(adapter) if adapter else engine, CALLS[:1])
        assert not isinstance(reply, Exception), reply
        expected, _ = by_hand(CALLS[0], merged(small, adapter))
        assert list(reply.logprobs) == pytest.approx(expected, abs=TOLERANCE["llamacpp"])  # type: ignore[union-attr]
    engine.close()
