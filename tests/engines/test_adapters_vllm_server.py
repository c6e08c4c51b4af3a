"""Adapters at vLLM's own server, which serves each as a model of its own name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip(
    "vllm", reason="vLLM has an environment of its own: make test-engines runs its tests there"
)

from kgqa.artifacts.adapter import Adapter
from kgqa.errors import ConfigError
from tests.engines.asking import ask, largest_difference
from tests.engines.small import Small, merged
from tests.engines.test_adapters import CALLS, server_at
from tests.engines.test_exactness import by_hand
from tests.engines.vllm_server import serving

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def vllm_server(small: Small) -> Iterator[str]:
    modules = [f"{adapter.name}={adapter.folder}" for adapter in (small.one, small.two)]
    flags = (
        "--enable-lora",
        "--max-loras",
        "2",
        "--max-lora-rank",
        "16",
        "--lora-modules",
        *modules,
    )
    with serving(small.folder.locate(), *flags) as url:
        yield url


def test_adapters_and_base_are_called_by_name(vllm_server: str, small: Small) -> None:
    client = server_at(vllm_server, small.folder, "vllm")
    for adapter in (small.one, None, small.two):
        [reply] = ask(client.with_adapter(adapter) if adapter else client, CALLS[:1])
        assert not isinstance(reply, Exception), reply
        logprobs = list(reply.logprobs)  # type: ignore[union-attr]
        assert logprobs == pytest.approx(by_hand(CALLS[0], merged(small, adapter))[0], abs=1e-3)
    assert client.with_adapter(small.one).count_tokens("Hello world") == client.count_tokens(
        "Hello world"
    )
    client.close()


def test_unserved_adapter_is_named_with_its_flag(vllm_server: str, small: Small) -> None:
    client = server_at(vllm_server, small.folder, "vllm")
    adapters = [Adapter(name, None, "a" * 64) for name in ("absent", "two")]
    [error], [reply] = (ask(client.with_adapter(adapter), CALLS[:1]) for adapter in adapters)
    [same] = ask(client.with_adapter(small.two), CALLS[:1])
    client.close()
    assert isinstance(error, ConfigError)
    assert "serves no adapter 'absent'. Start it with --lora-modules absent=FOLDER" in str(error)
    assert largest_difference(reply, same) == 0
