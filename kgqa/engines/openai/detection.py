"""Find out what kind of server answers at an address, and which models it serves.

Servers name themselves in `owned_by` of /v1/models: vLLM "vllm", SGLang "sglang", llama.cpp "llamacpp". Ollama and
LiteLLM do not, but have their own endpoints for a version. Every other server is treated as a hosted API.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

from kgqa.engines.event_loop import EventLoopThread
from kgqa.engines.openai.hold import RetryPolicy
from kgqa.engines.openai.payloads import Server
from kgqa.engines.openai.transport import DEFAULT_URL, Transport, find_key
from kgqa.errors import KgqaError
from kgqa.types import Json

# Ollama truncates longer prompts without an error. This is its default, unless the model sets num_ctx.
OLLAMA_CONTEXT = 4096
CONTEXT_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length")  # of a listed model
ENDPOINT = re.compile(r"(/chat)?/completions$|/models$")  # users copy it with the address
TIMEOUT, BACKOFF = 10.0, 0.5
REMEMBERED = 60  # seconds: the cells of a sweep share one look, and a viewer sees a restarted server


@dataclass(frozen=True)
class ServedModels:
    """A server and its models. contexts: length in tokens by name of the model, None if unknown."""

    url: str  # with /v1 if the API is there
    kind: Server
    software: str  # for users, e.g. "vLLM 0.32.0"; "" if unknown
    contexts: Mapping[str, int | None]  # without adapters
    names: Mapping[str, str] = field(default_factory=dict)  # other names and adapters, with the model's name

    @property
    def truncates(self) -> bool:
        """Return whether the server truncates long prompts without an error."""
        return self.software.startswith("Ollama")


def detect_server(url: str, key_variable: str, server_timeout: float) -> ServedModels:
    """Return the server at an address. Wait up to `server_timeout` seconds for a server that is starting.

    Raises:
        ConfigError: the variable holds no valid key.
        EngineDied: there is no server.
    """
    if url == DEFAULT_URL:
        return ServedModels(url, "hosted", "OpenAI", {})
    return _detect(url, find_key(key_variable, url), server_timeout, int(time.monotonic() / REMEMBERED))


@lru_cache(maxsize=32)
def _detect(url: str, key: str | None, server_timeout: float, _: int) -> ServedModels:
    loop = EventLoopThread("detection")
    try:
        return loop.submit(_look(ENDPOINT.sub("", url), key, server_timeout)).result()
    finally:
        loop.close(lambda: asyncio.sleep(0))


async def _look(url: str, key: str | None, server_timeout: float) -> ServedModels:
    """Wait for the server, then try endpoints that most servers lack without waiting."""
    patient = Transport(url, key, RetryPolicy(TIMEOUT, 0, BACKOFF, server_timeout))
    quick = Transport(url, key, RetryPolicy(TIMEOUT, 0, BACKOFF, 0.0))
    try:
        prefix, listed = await _list_models(patient)
        quick.url += prefix
        return await _identify(quick, listed)
    finally:
        for transport in (patient, quick):
            await transport.close()


async def _list_models(server: Transport) -> tuple[str, list[dict[str, Json]]]:
    """Return the listed models, if any, and "/v1" if the address lacks it."""
    path = urlsplit(server.url).path
    # llama.cpp and LiteLLM answer with and without /v1: one server has one address
    for prefix in ("",) if path.endswith("/v1") else ("/v1", "") if not path else ("", "/v1"):
        if (models := await server.list_models(f"{prefix}/models")) is not None:
            return prefix, models
    return "", []


async def _identify(server: Transport, listed: list[dict[str, Json]]) -> ServedModels:
    models = [model for model in listed if not model.get("parent")]
    kinds = {str(model.get("owned_by")) for model in models}
    names = {
        str(other): str(model.get("parent") or model["id"])
        for model in listed
        for other in (*(model.get("aliases") or ()), *([model["id"]] if model.get("parent") else ()))
    }
    contexts = {str(model["id"]): read_context(model) for model in models}
    if "vllm" in kinds and await _fetch(server, "../tokenize", {"model": models[0]["id"], "prompt": "a"}):
        version = (await _fetch(server, "../version")).get("version", "")
        return ServedModels(server.url, "vllm", f"vLLM {version}".strip(), contexts, names)
    if "llamacpp" in kinds and await _fetch(server, "../tokenize", {"content": "a"}):
        slot = ((await _fetch(server, "../props")).get("default_generation_settings") or {}).get("n_ctx")
        contexts = dict.fromkeys(contexts, slot) if isinstance(slot, int) and slot > 0 else contexts
        return ServedModels(server.url, "llamacpp", "llama.cpp", contexts, names)
    if "sglang" in kinds:
        return ServedModels(server.url, "sglang", "SGLang", contexts, names)
    if version := (await _fetch(server, "../api/version")).get("version"):
        contexts = {name: await _read_ollama_context(server, name) for name in contexts}
        return ServedModels(server.url, "hosted", f"Ollama {version}", contexts, names)
    version = (await _fetch(server, "../health/readiness")).get("litellm_version")
    return ServedModels(server.url, "hosted", f"LiteLLM {version}" if version else "", contexts, names)


async def _fetch(server: Transport, path: str, body: Mapping[str, Json] | None = None) -> Mapping[str, Json]:
    """Return an object of the server, or {}. Many proxies pass only /v1."""
    try:
        answer = await server.get(path) if body is None else (await server.post(path, body, lambda got: got))[0]
    except KgqaError:
        return {}
    return answer if isinstance(answer, dict) else {}


async def _read_ollama_context(server: Transport, model: str) -> int:
    """Return the context of a model at Ollama: `num_ctx` of its Modelfile, or Ollama's default."""
    lines = str((await _fetch(server, "../api/show", {"model": model})).get("parameters") or "").splitlines()
    numbers = [line.split()[-1] for line in lines if line.split()[:1] == ["num_ctx"]]
    return int(numbers[0]) if numbers and numbers[0].isdecimal() else OLLAMA_CONTEXT


def read_context(model: Mapping[str, Json]) -> int | None:
    """Return the context length in tokens of a listed model."""
    meta = model.get("meta") if isinstance(model.get("meta"), dict) else {}
    found = [*(model.get(key) for key in CONTEXT_KEYS), (meta or {}).get("n_ctx")]
    return next((value for value in found if isinstance(value, int) and value > 0), None)
