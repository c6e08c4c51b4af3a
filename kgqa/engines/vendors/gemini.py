"""Gemini through the package `google-genai`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from kgqa.calls import Generate
from kgqa.engines.chat import reject_tools
from kgqa.engines.grammar import bound_schema
from kgqa.engines.openai.requests import build_chat
from kgqa.engines.vendors.base import VendorEngine
from kgqa.types import Completion, Json, Usage
from kgqa.util.settings import Setting

# of one request; kgqa cuts the reply at all of them
MAX_STOPS = 5
ROLES = {"user": "user", "assistant": "model"}
UNFILTERED = frozenset({"STOP", "MAX_TOKENS"})


@dataclass(frozen=True)
class Gemini(VendorEngine):
    """A model of Gemini. Its function calls are not supported, because they need signatures that calls cannot have."""

    thinking_off: Annotated[
        Literal["disabled", "omitted"],
        Setting(
            "What requests without reasoning contain: disabled (a budget of 0) | omitted, for models that reject it."
        ),
    ] = "disabled"

    # the API does not report which stop string ended a reply
    reports_stops: ClassVar[bool] = False
    package: ClassVar[tuple[str, str]] = ("gemini", "google-genai")
    key_variable: ClassVar[str] = "GEMINI_API_KEY"

    # raise it when equal settings give other results
    version: ClassVar[int] = 1

    def open_client(self) -> Any:
        key = self.find_key()
        from google import genai

        options = {
            "timeout": round(1000 * self.timeout),
            "retry_options": {"attempts": self.retries + 1},
        }
        return genai.Client(
            api_key=key,
            http_options={**options, **({"base_url": self.base_url} if self.base_url else {})},
        )

    async def send(self, call: Generate) -> Completion:
        reject_tools(call)
        models = self._client.aio.models
        answer = await models.generate_content(model=self._name, **self.write_request(call))
        return read_answer(answer.model_dump(mode="json", exclude_none=True), call)

    async def _close_client(self) -> None:
        if "_client" in self.__dict__:
            await self._client.aio.aclose()

    def write_request(self, call: Generate) -> dict[str, Json]:
        """Return the request for a call."""
        thinking = self.find_thinking(call)
        messages = build_chat(call.prompt, "hosted")["messages"]
        system = "\n\n".join(each["content"] for each in messages if each["role"] == "system")
        config: dict[str, Json] = {
            "max_output_tokens": call.max_tokens + thinking.budget,
            "temperature": call.temperature,
            "top_p": call.top_p,
        }
        if call.temperature > 0:
            config["seed"] = call.seed or 0
        if system:
            config["system_instruction"] = system
        if call.stop and not thinking.budget:
            config["stop_sequences"] = list(call.stop[:MAX_STOPS])
        if call.schema is not None and bound_schema(call.schema) is not None:
            config |= {
                "response_mime_type": "application/json",
                "response_json_schema": json.loads(call.schema),
            }
        if thinking.effort:
            config["thinking_config"] = {
                "include_thoughts": True,
                "thinking_level": thinking.effort.upper(),
            }
        elif thinking.budget:
            config["thinking_config"] = {
                "include_thoughts": True,
                "thinking_budget": thinking.budget,
            }
        elif self.thinking_off == "disabled":
            config["thinking_config"] = {"thinking_budget": 0}
        contents = [
            {"role": ROLES[each["role"]], "parts": [{"text": each["content"]}]}
            for each in messages
            if each["role"] in ROLES
        ]
        return {"contents": contents, "config": {**config, **(self.extra_body or {})}}

    def read_error(self, error: Exception) -> tuple[int, Mapping[str, Json]] | None:
        from google.genai import errors

        if isinstance(error, errors.APIError):
            return error.code, {"message": error.message or str(error), "status": error.status}
        # its HTTP libraries have different exceptions
        is_connection = isinstance(error, OSError) or type(error).__module__.partition(".")[0] in (
            "httpx",
            "httpx2",
            "aiohttp",
        )
        return (0, {"message": f"{type(error).__name__}: {error}"}) if is_connection else None


def read_answer(answer: Mapping[str, Json], call: Generate) -> Completion:
    """Return the reply in an answer."""
    candidate = (answer.get("candidates") or [{}])[0]
    parts = (candidate.get("content") or {}).get("parts") or []
    usage = answer.get("usage_metadata") or {}
    reasoning = usage.get("thoughts_token_count") or 0
    finish = candidate.get("finish_reason", "BLOCKED")
    flags = {
        "unconstrained": call.schema is not None and bound_schema(call.schema) is None,
        "filtered": finish not in UNFILTERED,
    }
    return Completion(
        "".join(part.get("text", "") for part in parts if not part.get("thought")),
        "length" if finish == "MAX_TOKENS" else "stop",
        Usage(
            usage.get("prompt_token_count") or 0,
            usage.get("cached_content_token_count") or 0,
            (usage.get("candidates_token_count") or 0) + reasoning,
            0.0,
            reasoning,
        ),
        tuple(flag for flag, is_set in flags.items() if is_set),
        "\n".join(part.get("text", "") for part in parts if part.get("thought")),
        stopped_by=None,
    )
