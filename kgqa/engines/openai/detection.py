"""Find out what kind of server answers at an address, which models it serves, and whether two names are of one model.

Servers name themselves in `owned_by` of /v1/models: vLLM "vllm", SGLang "sglang", llama.cpp "llamacpp". Ollama and
LiteLLM do not, but have their own endpoints for a version. Every other server is treated as a hosted API.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from urllib.parse import urlsplit

from kgqa.engines.event_loop import run_in_thread
from kgqa.engines.openai.access import DEFAULT_URL, find_key, find_limits
from kgqa.engines.openai.hold import RetryPolicy
from kgqa.engines.openai.requests import Server
from kgqa.engines.openai.transport import Transport
from kgqa.errors import KgqaError
from kgqa.types import Json

log = logging.getLogger(__name__)

# Ollama truncates longer prompts without an error. This is its default, unless the model sets num_ctx.
OLLAMA_CONTEXT = 4096
CONTEXT_KEYS = (
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
)  # of a listed model
OWNERS = {"vllm": "vLLM", "llamacpp": "llama.cpp", "sglang": "SGLang"}  # `owned_by` of their models
# users copy it with the address
ENDPOINT = re.compile(r"(/chat)?/completions$|/models$")
# what vendors add to a name: gpt-4o-2024-08-06, claude-3-5-sonnet-20241022, gpt-3.5-turbo-0125, gemini-2.0-flash-001
VERSION = re.compile(
    r"[-@:](\d{4}-\d{2}-\d{2}|\d{8}|\d{3,4}|\d{2}-\d{2}|latest|(\d{4}-)?preview(-[\d-]+)?)$"
)
# statuses of a path that a server does not have
ABSENT = frozenset({404, 405, 501})
TIMEOUT, BACKOFF = 10.0, 0.5
# seconds without an answer until a line shows it
NOTICE = 2.0
# seconds: the cells of a sweep share one look, and a viewer sees a restarted server
REMEMBERED = 60


@dataclass(frozen=True)
class ServedModels:
    """A server and its models. contexts: length in tokens by name of the model, None if unknown."""

    # with /v1 if the API is there
    url: str
    kind: Server
    # for users, e.g. "vLLM 0.32.0"; "" if unknown
    software: str
    contexts: Mapping[str, int | None]  # without adapters
    # other names and adapters, with the model's name
    names: Mapping[str, str] = field(default_factory=dict)
    # why there is no list of models
    rejection: str = ""

    @property
    def truncates(self) -> bool:
        """Return whether the server truncates long prompts without an error."""
        return self.software.startswith("Ollama")


def detect_server(url: str, key_variable: str, server_timeout: float | None) -> ServedModels:
    """Return the server at an address. Wait up to `server_timeout` seconds for a server, see `ServerAccess`.

    Raises:
        ConfigError: the variable holds no valid key.
        EngineDied: there is no server.
    """
    if url == DEFAULT_URL:
        return ServedModels(url, "hosted", "OpenAI", {})
    return _detect(
        url, find_key(key_variable, url), server_timeout, int(time.monotonic() / REMEMBERED)
    )


@lru_cache(maxsize=32)
def _detect(url: str, key: str | None, server_timeout: float | None, _: int) -> ServedModels:
    return run_in_thread("detection", _look(ENDPOINT.sub("", url), key, server_timeout))


async def _look(url: str, key: str | None, server_timeout: float | None) -> ServedModels:
    """Wait for the server, then try endpoints that most servers lack without waiting."""
    patient = Transport(url, key, RetryPolicy(TIMEOUT, 0, BACKOFF, *find_limits(server_timeout)))
    quick = Transport(url, key, RetryPolicy(TIMEOUT, 0, BACKOFF, 0.0))

    def show_wait() -> None:
        # the first failure has its own line
        if not patient.is_held:
            log.warning("%s: no answer yet. This attempt ends after %g s", url, TIMEOUT)

    # if a firewall drops packets, the first attempt takes longer than users wait without a line
    notice = asyncio.get_running_loop().call_later(NOTICE, show_wait)
    try:
        prefix, listed, rejection = await _list_models(patient)
        quick.url += prefix
        return replace(await _identify(quick, listed), rejection=rejection)
    finally:
        notice.cancel()
        for transport in (patient, quick):
            await transport.close()


@lru_cache(maxsize=32)
def has_only_chat(url: str, key_variable: str, model: str) -> bool:
    """Return whether a server has the chat endpoint for a model, but not the one for plain prompts.

    The requests have no prompt, so that the server generates nothing.
    """
    key = find_key(key_variable, url)
    return run_in_thread("detection", _has_only_chat(url, key, model))


async def _has_only_chat(url: str, key: str | None, model: str) -> bool:
    server = Transport(url, key, RetryPolicy(TIMEOUT, 0, BACKOFF, 0.0))
    try:
        plain = await server.find_status("/completions", {"model": model})
        if plain not in ABSENT:
            return False
        chat = await server.find_status("/chat/completions", {"model": model, "messages": []})
        return chat is not None and chat not in ABSENT
    finally:
        await server.close()


async def _list_models(server: Transport) -> tuple[str, list[dict[str, Json]], str]:
    """Return "/v1" if the address lacks it, the listed models, and why there is no list."""
    path, rejections = urlsplit(server.url).path, list[str]()
    # llama.cpp and LiteLLM answer with and without /v1: one server has one address
    for prefix in ("",) if path.endswith("/v1") else ("/v1", "") if not path else ("", "/v1"):
        if (models := await server.list_models(f"{prefix}/models")) is not None:
            return prefix, models, ""
        rejections.append(server.rejection)
    # a wrong key is rejected under every path. The other path of a server can be unknown
    return "", [], next((each for each in rejections if not each.startswith("404")), rejections[0])


async def _identify(server: Transport, listed: list[dict[str, Json]]) -> ServedModels:
    contexts, names = read_models(listed)
    owners = {str(model.get("owned_by")) for model in listed}
    kind: Server = "hosted"
    software = ""
    owner = next((name for key, name in OWNERS.items() if key in owners), "")
    if "vllm" in owners and await _fetch(
        server, "../tokenize", {"model": next(iter(contexts), ""), "prompt": "a"}
    ):
        kind, software = (
            "vllm",
            f"vLLM {(await _fetch(server, '../version')).get('version', '')}".strip(),
        )
    elif "llamacpp" in owners and await _fetch(server, "../tokenize", {"content": "a"}):
        kind, software = "llamacpp", "llama.cpp"
        slot = ((await _fetch(server, "../props")).get("default_generation_settings") or {}).get(
            "n_ctx"
        )
        contexts = dict.fromkeys(contexts, slot) if isinstance(slot, int) and slot > 0 else contexts
    elif "sglang" in owners:
        kind, software = "sglang", "SGLang"
    elif owner:
        software = f"{owner} behind a proxy that passes only /v1"
    elif version := (await _fetch(server, "../api/version")).get("version"):
        software = f"Ollama {version}"
        contexts = {name: await _read_ollama_context(server, name) for name in contexts}
    elif version := await _read_litellm_version(server):
        software = f"LiteLLM {version}"
    return ServedModels(server.url, kind, software, contexts, names)


async def _fetch(
    server: Transport, path: str, body: Mapping[str, Json] | None = None
) -> Mapping[str, Json]:
    """Return an object of the server, or {}. Many proxies pass only /v1."""
    try:
        answer = await server.get(path) if body is None else await server.fetch(path, body)
    except KgqaError:
        return {}
    return answer if isinstance(answer, dict) else {}


async def _read_litellm_version(server: Transport) -> Json:
    """Return the version of LiteLLM, or None. Since 1.108 it is under another path, which needs the key."""
    for path in ("../health/readiness/details", "../health/readiness"):
        if version := (await _fetch(server, path)).get("litellm_version"):
            return version
    return None


async def _read_ollama_context(server: Transport, model: str) -> int:
    """Return the context of a model at Ollama: `num_ctx` of its Modelfile, or Ollama's default."""
    lines = str(
        (await _fetch(server, "../api/show", {"model": model})).get("parameters") or ""
    ).splitlines()
    numbers = [line.split()[-1] for line in lines if line.split()[:1] == ["num_ctx"]]
    return int(numbers[0]) if numbers and numbers[0].isdecimal() else OLLAMA_CONTEXT


def read_models(
    listed: Sequence[Mapping[str, Json]],
) -> tuple[dict[str, int | None], dict[str, str]]:
    """Return the context length of each listed model, and other names and adapters with the model they belong to."""
    contexts, names = dict[str, int | None](), dict[str, str]()
    for model in listed:
        name = str(model["id"])
        if model.get("parent"):
            names[name] = str(model["parent"])
            continue
        names |= {str(alias): name for alias in model.get("aliases") or ()}
        meta = model["meta"] if isinstance(model.get("meta"), dict) else {}
        sizes = [*(model.get(key) for key in CONTEXT_KEYS), meta.get("n_ctx")]
        contexts[name] = next(
            (value for value in sizes if isinstance(value, int) and value > 0), None
        )
    return contexts, names


def is_same_model(one: str, other: str) -> bool:
    """Return whether two names are of one model: Qwen/Qwen3-8B, qwen3_8b, qwen3:8b and qwen3:8b:latest."""
    return bool(_plain_name(one)) and _plain_name(one) == _plain_name(other)


def is_snapshot(name: str, requested: str) -> bool:
    """Return whether a name is that of the requested model with a date or version, or both are versions of one."""
    base, version = _split_version(requested)
    other, other_version = _split_version(name)
    return is_same_model(base, other) and (not version or version == "latest" or not other_version)


def _plain_name(name: str) -> str:
    last = (
        name.rstrip("/").rpartition("/")[2].casefold().removesuffix(":latest").removesuffix(".gguf")
    )
    # 1.5b is not 15b, and 1_5b is 1.5b
    return re.sub(r"[^\w+\0]|_", "", re.sub(r"(?<=\d)[\W_]+(?=\d)", "\0", last))


def _split_version(name: str) -> tuple[str, str]:
    version = VERSION.search(name)
    return (name[: version.start()], version[1]) if version else (name, "")
