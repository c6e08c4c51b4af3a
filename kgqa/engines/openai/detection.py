"""Find out what kind of server answers at an address, and which models it serves.

Servers name themselves in `owned_by` of /v1/models: vLLM "vllm", SGLang "sglang", llama.cpp "llamacpp". Ollama and
LiteLLM do not, but have their own endpoints for a version. Every other server is treated as a hosted API.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from kgqa.engines.event_loop import EventLoopThread
from kgqa.engines.openai.hold import RetryPolicy
from kgqa.engines.openai.payloads import Server
from kgqa.engines.openai.transport import DEFAULT_URL, Transport, find_key
from kgqa.errors import KgqaError, StorageError
from kgqa.types import Json
from kgqa.util.fs import call_cache, replace_file, text_digest

# Ollama truncates longer prompts without an error. This is its default, unless the model sets num_ctx.
OLLAMA_CONTEXT = 4096
CONTEXT_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length")  # of a listed model
ENDPOINTS = ("/chat/completions", "/completions", "/models")  # users copy them with the address
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


def last_seen_server(url: str) -> ServedModels | None:
    """Return the server as kgqa last saw it at an address, or None."""
    with suppress(OSError, ValueError):
        seen = TypeAdapter(ServedModels).validate_json(_note(url).read_bytes())
        # a note of someone else's cache must not send the key elsewhere
        if seen.url.removesuffix("/v1") == _strip_endpoint(url).removesuffix("/v1"):
            return seen
    return None


@lru_cache(maxsize=32)
def _detect(url: str, key: str | None, server_timeout: float, _: int) -> ServedModels:
    note, url = _note(url), _strip_endpoint(url)
    loop = EventLoopThread("detection")
    look = _Look(
        Transport(url, key, RetryPolicy(TIMEOUT, 0, BACKOFF, server_timeout)),
        Transport(url, key, RetryPolicy(TIMEOUT, 0, BACKOFF, 0.0)),
    )
    try:
        found = loop.submit(look.run()).result()
    finally:
        loop.close(look.close)
    with suppress(StorageError):  # without the note, finished runs need their server
        replace_file(note, TypeAdapter(ServedModels).dump_json(found).decode())
    return found


def _strip_endpoint(url: str) -> str:
    for endpoint in ENDPOINTS:
        url = url.removesuffix(endpoint)
    return url


def _note(url: str) -> Path:
    return call_cache() / "servers" / f"{text_digest(url, 24)}.json"


@dataclass
class _Look:
    """A look at one server. patient: waits for it. quick: tries endpoints that most servers lack."""

    patient: Transport
    quick: Transport

    async def run(self) -> ServedModels:
        listed = await self.list_models()
        url, models = self.quick.url, [model for model in listed if not model.get("parent")]
        kinds = {str(model.get("owned_by")) for model in models}
        names = {
            str(other): str(model.get("parent") or model["id"])
            for model in listed
            for other in (*(model.get("aliases") or ()), *([model["id"]] if model.get("parent") else ()))
        }
        contexts = {str(model["id"]): _read_context(model) for model in models}
        if "vllm" in kinds and await self.fetch("../tokenize", {"model": models[0]["id"], "prompt": "a"}):
            software = f"vLLM {(await self.fetch('../version')).get('version', '')}".strip()
            return ServedModels(url, "vllm", software, contexts, names)
        if "llamacpp" in kinds and await self.fetch("../tokenize", {"content": "a"}):
            slot = ((await self.fetch("../props")).get("default_generation_settings") or {}).get("n_ctx")
            contexts = dict.fromkeys(contexts, slot) if isinstance(slot, int) and slot > 0 else contexts
            return ServedModels(url, "llamacpp", "llama.cpp", contexts, names)
        if "sglang" in kinds:
            return ServedModels(url, "sglang", "SGLang", contexts, names)
        if version := (await self.fetch("../api/version")).get("version"):
            contexts = {name: await self.read_ollama_context(name) for name in contexts}
            return ServedModels(url, "hosted", f"Ollama {version}", contexts, names)
        version = (await self.fetch("../health/readiness")).get("litellm_version")
        return ServedModels(url, "hosted", f"LiteLLM {version}" if version else "", contexts, names)

    async def close(self) -> None:
        for transport in (self.patient, self.quick):
            await transport.close()

    async def list_models(self) -> list[dict[str, Json]]:
        """Return the listed models, if any. Add /v1 to the address if they are listed only there."""
        path = urlsplit(self.quick.url).path
        # llama.cpp and LiteLLM answer with and without /v1: one server has one address
        prefixes = ("",) if path.endswith("/v1") else ("/v1", "") if not path else ("", "/v1")
        for prefix in prefixes:
            answer = await self.patient.get(f"{prefix}/models")
            listed = answer.get("data") if isinstance(answer, dict) else None
            if isinstance(listed, list):
                self.quick.url += prefix
                return [model for model in listed if isinstance(model, dict) and model.get("id")]
        return []

    async def fetch(self, path: str, body: Mapping[str, Json] | None = None) -> Mapping[str, Json]:
        """Return an object of the server, or {}. Many proxies pass only /v1."""
        try:
            if body is None:
                answer = await self.quick.get(path)
            else:
                answer, _ = await self.quick.post(path, body, lambda answer: answer)
        except KgqaError:
            return {}
        return answer if isinstance(answer, dict) else {}

    async def read_ollama_context(self, model: str) -> int:
        """Return the context of a model at Ollama: `num_ctx` of its Modelfile, or Ollama's default."""
        lines = str((await self.fetch("../api/show", {"model": model})).get("parameters") or "").splitlines()
        numbers = [line.split()[-1] for line in lines if line.split()[:1] == ["num_ctx"]]
        return int(numbers[0]) if numbers and numbers[0].isdecimal() else OLLAMA_CONTEXT


def _read_context(model: Mapping[str, Json]) -> int | None:
    meta = model.get("meta") if isinstance(model.get("meta"), dict) else {}
    found = [*(model.get(key) for key in CONTEXT_KEYS), (meta or {}).get("n_ctx")]
    return next((value for value in found if isinstance(value, int) and value > 0), None)
