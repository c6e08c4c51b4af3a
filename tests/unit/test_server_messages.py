"""What the error messages of servers mean: one row per wording of `kgqa.engines.openai.messages`."""

# ruff: noqa: E501

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientConnectorDNSError
from hypothesis import given, settings
from hypothesis import strategies as st

from kgqa.engines.openai.messages import _ROWS, _read_words, find_lengths, find_meaning
from kgqa.engines.openai.transport import _reason

TOO_LONG: dict[str, tuple[int, dict[str, Any], tuple[int, int] | None]] = {
    "OpenAI": (400, {"message": "This model's maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens. Please reduce the length of the messages.", "code": "context_length_exceeded"}, (7575, 4097)),
    "OpenAI, per request": (400, {"message": "Requested 319487 tokens, max 300000 tokens per request"}, (319487, 300000)),
    "OpenAI, TPM": (429, {"message": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 34472.", "code": "rate_limit_exceeded"}, None),
    "OpenAI, context window": (400, {"message": "Your input exceeds the context window of this model."}, None),
    "Azure": (400, {"message": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8500 in the messages, 500 in the completion). (request id: 20261126093000123456789012345678)"}, (9000, 8192)),
    "Anthropic": (400, {"message": "prompt is too long: 208656 tokens > 200000 maximum"}, None),
    "Anthropic, with reply": (400, {"message": "input length and `max_tokens` exceed context limit: 184915 + 20000 > 204648, decrease input"}, None),
    "Gemini": (400, {"code": 400, "message": "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}, None),
    "xAI": (400, {"message": "This model's maximum prompt length is 131072 but the request contains 136973 tokens."}, None),
    "Mistral": (400, {"message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"}, None),
    "Bedrock": (400, {"message": "Input is too long for requested model."}, None),
    "TGI": (422, {"message": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1512. Given: 1000 `inputs` tokens and 1024 `max_new_tokens`"}, None),
    "TGI, prompt": (422, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168."}, None),
    "vLLM": (400, {"message": "This model's maximum context length is 4096 tokens. However, you requested 100 output tokens and your prompt contains at least 4097 input tokens, for a total of at least 4197 tokens."}, (4197, 4096)),
    "vLLM, decoder prompt": (400, {"message": "The decoder prompt (length 163840) is longer than the maximum model length of 131072. Make sure that `max_model_len` is no smaller than the number of text tokens."}, None),
    "vLLM, max_tokens": (400, {"message": "max_tokens=999999 cannot be greater than max_model_len=max_total_tokens=81920."}, None),
    "SGLang": (400, {"message": "The input (85050 tokens) is longer than the model's context length (32768 tokens)."}, (85050, 32768)),
    "SGLang, allowed": (400, {"message": "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."}, (160062, 59862)),
    "llama.cpp": (400, {"message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}, (5000, 4096)),
    "llama.cpp, embeddings": (500, {"message": "input (1200 tokens) is too large to process. increase the physical batch size (current batch size: 512)"}, None),
    "Ollama": (400, {"message": "the input length exceeds the context length"}, None),
    "Ollama, older": (500, {"message": "input exceeds maximum context length"}, None),
    "LiteLLM": (400, {"message": "litellm.ContextWindowExceededError: litellm.BadRequestError: AnthropicError - prompt is too long: 209353 tokens > 199999 maximum"}, None),
    "NIM": (400, {"message": "Input length 1024 exceeds maximum allowed token size 512"}, None),
    "TabbyAPI": (503, {"message": "Request length 71599 + 2048 is greater than max_seq_len 65536"}, None),
    "OpenRouter": (400, {"message": "This endpoint's maximum context length is 65536 tokens. However, you requested about 92208 tokens (60833 of text input, 21333 in the output)."}, (92208, 65536)),
    "OpenRouter, provider's": (400, {"message": "Provider returned error", "code": 400, "metadata": {"raw": '{"error": {"message": "prompt is too long: 208656 tokens > 200000 maximum"}}'}}, None),
    "OpenRouter, 413": (413, {"message": "Payload Too Large", "code": 413}, None),
    "Groq": (413, {"message": "Request too large for model `llama-3.1-8b-instant` in organization `org_01hw8f0aa0ekmrn70ffm2zkdv1` on tokens per minute (TPM): Limit 6000, Requested 12328, please reduce your message size and try again.", "type": "tokens", "code": "rate_limit_exceeded"}, None),
    "Cohere": (400, {"message": "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354. Try using a shorter prompt or a smaller max_tokens value."}, None),
    "GitHub": (400, {"message": "prompt token count of 93854 exceeds the limit of 90000"}, None),
    "llama.cpp, no numbers": (500, {"message": "Context size has been exceeded.", "type": "server_error"}, None),
    "LM Studio": (400, {"error": "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough."}, (111490, 32768)),
    "LM Studio, older": (400, {"message": "the number of tokens to keep is greater than the context length"}, None),
    "MiniMax": (400, {"message": "invalid params, context window exceeds limit (2013)", "http_code": "400"}, None),
    "Kimi": (400, {"message": "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"}, None),
    "OpenAI, configured limit": (400, {"message": "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 tokens."}, (289650, 272000)),
    "Cerebras": (400, {"message": "Current length is 40000 while limit is 32768"}, None),
    "nginx": (413, {"message": "<html><head><title>413 Request Entity Too Large</title></head></html>"}, None),
    "any 413": (413, {"message": ""}, None),
    "FastAPI": (422, {"detail": [{"msg": "prompt is too long", "input": "…"}]}, None),
}  # fmt: skip
OTHERS: dict[str, tuple[str | None, int, dict[str, Any]]] = {
    "Azure, filter": ("filtered", 400, {"message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", "code": "content_filter", "param": "prompt", "innererror": {"code": "ResponsibleAIPolicyViolation"}}),
    "OpenAI, filter": ("filtered", 400, {"message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a different prompt: https://platform.openai.com/docs/guides/reasoning#advice-on-prompting", "code": "invalid_prompt"}),
    "DeepSeek, filter": ("filtered", 400, {"message": "Content Exists Risk", "code": "invalid_request_error"}),
    "OpenRouter, filter": ("filtered", 403, {"message": "This model requires moderation. Your input was flagged"}),
    "OpenAI, quota": ("used_up", 429, {"message": "You exceeded your current quota, please check your plan and billing details.", "type": "insufficient_quota", "code": "insufficient_quota"}),
    "Anthropic, quota": ("used_up", 400, {"message": "Your credit balance is too low to access the Anthropic API."}),
    "DeepSeek, quota": ("used_up", 402, {"message": "Insufficient Balance"}),
    "Gemini, limit": ("limited", 429, {"message": "You exceeded your current quota, please check your plan and billing details. Please retry in 36.6s.", "status": "RESOURCE_EXHAUSTED"}),
    "Bedrock, limit": ("limited", 429, {"message": "Too many tokens, please wait before trying again."}),
    "Groq, limit": ("limited", 429, {"message": "Rate limit reached for model `llama-3.1-8b-instant` on tokens per minute (TPM): Limit 6000, Used 5034, Requested 1443. Please try again in 4.77s.", "code": "rate_limit_exceeded"}),
    "Kimi, quota": ("used_up", 403, {"message": "Your account is not active, it exceeded current quota", "type": "exceeded_current_quota_error"}),
    "Zhipu, filter": ("filtered", 400, {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}),
    "Alibaba, filter": ("filtered", 400, {"code": "data_inspection_failed", "message": "<400> InternalError.Algo.DataInspectionFailed: Input text data may contain inappropriate content."}),
    "Anthropic, filter": ("filtered", 400, {"message": "Output blocked by content filtering policy"}),
    "a limit of any vendor": ("limited", 429, {"message": "Rate-limit exceeded"}),
    "llama.cpp, tools": ("tools", 500, {"message": "tools param requires --jinja flag", "type": "server_error"}),
    "vLLM, tools": ("tools", 400, {"message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'}),
    "Ollama, tools": ("tools", 400, {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}),
    "Gemini, key": ("key", 400, {"message": "API key not valid. Please pass a valid API key."}),
    "xAI, key": ("key", 400, {"error": "Incorrect API key provided: xa***. You can obtain an API key from …"}),
    "OpenAI, key": ("key", 401, {"message": "Incorrect API key provided", "code": "invalid_api_key"}),
    "a key of a request": (None, 400, {"message": "Unsupported parameter: 'reasoning_effort'.", "param": "reasoning_effort"}),
    "an echo of the prompt": (None, 422, {"detail": [{"msg": "Field required", "input": {"prompt": "its maximum context length is 4096 tokens"}}]}),
}  # fmt: skip


EXAMPLES: dict[str, tuple[str | None, int, dict[str, Any]]] = {
    **{name: ("too_long", status, error) for name, (status, error, _) in TOO_LONG.items()},
    **OTHERS,
}


def test_every_wording_has_its_meaning_and_an_example() -> None:
    meanings = {name: find_meaning(status, error) for name, (_, status, error) in EXAMPLES.items()}
    assert meanings == {name: meaning for name, (meaning, _, _) in EXAMPLES.items()}
    words = [(meaning, " ".join(_read_words(error))) for meaning, _, error in EXAMPLES.values()]
    unused = [
        row.pattern
        for row_meaning, row in _ROWS
        if not any(row.search(text) for meaning, text in words if meaning == row_meaning)
    ]
    assert unused == []


@pytest.mark.parametrize("name", TOO_LONG)
def test_lengths_are_in_the_message(name: str) -> None:
    _, error, lengths = TOO_LONG[name]
    assert find_lengths(error) == lengths


@pytest.mark.parametrize(
    "name",
    [name for name, (_, error, _) in TOO_LONG.items() if isinstance(error.get("message"), str)],
)
def test_ids_do_not_count(name: str) -> None:
    number = 20261126093000123456789012345678
    status, error, lengths = TOO_LONG[name]
    noted = {**error, "message": f"[{number}] {error['message']} (request id: {number})"}
    assert (find_lengths(noted), find_meaning(status, noted)) == (lengths, "too_long")


KEYS = st.sampled_from(["message", "code", "detail", "metadata", "raw", "msg", "error"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(KEYS, each),
)


@settings(max_examples=40)
@given(ANY)
def test_any_error_is_read(error: Any) -> None:
    assert find_meaning(400, {"message": error, "detail": error, "metadata": error}) in (
        None, "too_long", "filtered", "limited", "used_up", "key", "tools",
    )  # fmt: skip
    find_lengths({"message": error, "n_prompt_tokens": error, "n_ctx": error})


def test_unknown_host_has_a_short_reason() -> None:
    place: Any = SimpleNamespace(host="no.invalid", port=80, ssl=True)
    cause = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert _reason(ClientConnectorDNSError(place, cause)) == "Name or service not known"
