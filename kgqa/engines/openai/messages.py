"""Interpret the error messages of servers. The table has one row per wording, with a place where it was seen.

To add a row, add it here and in tests/unit/test_server_messages.py. The first matching row wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from kgqa.types import Json

# too_long: the prompt. filtered: its content. limited: too many requests. used_up: the account. key: missing or wrong.
# tools: no function calls.
Meaning = Literal["too_long", "filtered", "limited", "used_up", "key", "tools"]

MESSAGES: tuple[tuple[Meaning, str], ...] = (
    # Bedrock: the quota of tokens per minute (aws-samples/bedrock-chat#95 has the other one)
    ("limited", r"too many tokens, please wait|too many requests|throttlingexception"),
    # Gemini, whose words are otherwise those of OpenAI's used-up account (ai.google.dev/gemini-api/docs/rate-limits)
    ("limited", r"resource_exhausted|please retry in [\d.]+ ?m?s"),
    # OpenAI, simonw/llm#494; Kimi (403), MoonshotAI/Kimi-K2#5
    ("used_up", r"insufficient_quota|exceeded_current_quota"),
    # Anthropic, anthropics/claude-code#4684
    ("used_up", r"credit balance is too low"),
    # DeepSeek, continuedev/continue#9375
    ("used_up", r"insufficient (account )?balance"),
    # OpenAI (429) and Groq (413), vanna-ai/vanna-flask#11, continuedev/continue#10218
    ("too_long", r"request too large for (the )?(model|gpt|o\d)"),
    # OpenAI, Azure, vLLM, SGLang, LiteLLM, Mistral, DeepSeek, OpenRouter, llama-cpp-python, Together, Fireworks
    # (smol-ai/developer#7, Aider-AI/aider#3721, fw-ai/cookbook#134, ddalcu/mlx-serve#66)
    ("too_long", r"context_length_exceeded|contextwindowexceeded|maximum context (length|limit|size)"),
    # Anthropic, also through Bedrock and Vertex, stackblitz/bolt.new#1748, aaif-goose/goose#7504
    ("too_long", r"prompt (is|was) too long"),
    # Anthropic, continuedev/continue#6080
    ("too_long", r"exceeds? (the )?context (limit|length|window|size)"),
    # Gemini, google-gemini/gemini-cli#6678
    ("too_long", r"exceeds the maximum number of (input )?tokens"),
    # xAI, cline/cline#3120
    ("too_long", r"maximum prompt length"),
    # Bedrock, aws-samples/bedrock-chat#95
    ("too_long", r"input is too long"),
    # TGI and Together, huggingface/text-generation-inference#628 and #695
    ("too_long", r"inputs` tokens \+ `max_new_tokens` must be|inputs` must have less than \d+ tokens"),
    # vLLM, xorbitsai/inference#3785, EleutherAI/lm-evaluation-harness#2880
    ("too_long", r"longer than the (maximum model|model's context) length"),
    # vLLM, when prompt and reply together do not fit, stepfun-ai/Step-Audio-R1#3
    ("too_long", r"max_tokens.{0,80}(is too large|cannot be greater than max_model_len)"),
    # SGLang, sgl-project/sglang#4048; NVIDIA NIM, run-llama/llama_index#15180
    ("too_long", r"input length.{0,40}exceeds (the )?(maximum|max) allowed"),
    # llama.cpp, ggml-org/llama.cpp#15780 and #19774; MiniMax, MiniMax-AI/MiniMax-M2#119
    ("too_long", r"exceed_context_size|exceeds the available context size|context window exceeds limit"),
    # llama.cpp's embeddings endpoint (tools/server/server.cpp), with status 500
    ("too_long", r"is too large to process\. increase the physical batch size"),
    ("too_long", r"context size has been exceeded"),
    # Ollama, nano-step/nano-brain#208 and #37 of ITSpecialist111/ai_automation_suggester
    ("too_long", r"input (length )?exceeds (the )?(maximum )?context"),
    # LM Studio, lmstudio-ai/lmstudio-bug-tracker#546 and #237; the second wording was seen by us
    ("too_long", r"loaded with context length of only|greater than the context length"),
    # TabbyAPI, SillyTavern/SillyTavern#3543
    ("too_long", r"length.{0,60}is greater than (the )?max_seq_len"),
    # Cohere, cohere-ai/sandbox-topically#4
    ("too_long", r"too many tokens|token limit exceeded"),
    # GitHub's models, jjleng/copilot-more#35; Kimi, MoonshotAI/kimi-cli#2011
    ("too_long", r"token count.{0,30}exceeds the limit|exceeded model token limit"),
    # OpenAI and others, in two orders of the same words, cline/cline#5474
    ("too_long", r"exceeds? (the|this) model'?s? (maximum )?(context|input)|input tokens exceed the configured limit"),
    # OpenAI, ridgesai/ridges-old#75
    ("too_long", r"max(imum)? [\d,]+ tokens per request"),
    # Cerebras, BerriAI/litellm#17587
    ("too_long", r"current length is \d+ while limit is \d+"),
    # proxies in front of a server, ChronoAIProject/NyxID#957
    ("too_long", r"(request entity|payload|request body|content) too large"),
    # Azure, openai/openai-python#331
    ("filtered", r"content_filter|content management policy|responsibleaipolicyviolation"),
    # OpenAI, alan-turing-institute/t0-1#69
    ("filtered", r"flagged as potentially violating|invalid_prompt|content_policy_violation"),
    # DeepSeek, deepseek-ai/awesome-deepseek-integration#13
    ("filtered", r"content exists risk"),
    # OpenRouter (403), openrouter.ai/docs/api-reference/errors
    ("filtered", r"requires moderation|input was flagged"),
    # Gemini, simonw/llm-gemini#80; Anthropic, "Output blocked by content filtering policy", seen by us; Bedrock's stop
    # reason (docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html)
    ("filtered", r"prohibited_content|blocked by .{0,30}(safety|content) (filter|polic)|guardrail_intervened"),
    # Alibaba, agentscope-ai/QwenPaw#1406; Zhipu, langchain4j/langchain4j#1079
    ("filtered", r"data_?inspection_?failed|sensitive content|unsafe content|敏感内容"),
    # Gemini and xAI answer 400 to a wrong key, can1357/oh-my-pi#449, google-gemini/gemini-cli#25198,
    # continuedev/continue#10778
    ("key", r"api key not (valid|found)|incorrect api key|invalid api key|invalid_api_key|authentication_error"),
    # llama.cpp without --jinja (500), ggml-org/llama.cpp#10920, defilantech/LLMKube#126
    ("tools", r"tools param requires|unsupported param: tools"),
    # vLLM without --enable-auto-tool-choice and --tool-call-parser
    ("tools", r"tool choice requires"),
    # Ollama, haoxiang-xu/PuPu#59; OpenRouter (404)
    ("tools", r"not support tools|support tool use"),
    # all others
    ("limited", r"rate[_ -]?limit"),
)  # fmt: skip
_ROWS = tuple((meaning, re.compile(words, re.IGNORECASE)) for meaning, words in MESSAGES)
_TOKENS = re.compile(r"(?<![\w.-])(\d[\d,]*) (?:[\w`]+ )?tokens?\b", re.IGNORECASE)
# tokens of a prompt; a longer number is an id
_MOST = 10**8


def find_meaning(status: int, error: Mapping[str, Json]) -> Meaning | None:
    """Return the meaning of an error, or None if no row of the table matches."""
    words = " ".join(_read_words(error))
    for meaning, row in _ROWS:
        if row.search(words):
            return meaning
    return "too_long" if status == 413 else None


def find_lengths(error: Mapping[str, Json]) -> tuple[int, int] | None:
    """Return the tokens of a prompt and the limit, or None if the message does not contain both.

    Only numbers before the word "tokens" count, not ids and prices.
    """
    if isinstance(error.get("n_prompt_tokens"), int) and isinstance(
        error.get("n_ctx"), int
    ):  # llama.cpp
        return int(error["n_prompt_tokens"]), int(error["n_ctx"])
    for words in _read_words(error):
        numbers = [int(digits.replace(",", "")) for digits in _TOKENS.findall(words)]
        numbers = [number for number in numbers if 0 < number <= _MOST]
        if len(numbers) > 1 and numbers[0] != max(numbers[1:]):
            first, other = numbers[0], max(numbers[1:])
            return max(first, other), min(first, other)
    return None


def _read_words(error: Mapping[str, Json]) -> Iterator[str]:
    """Yield the texts of an error without an echo of the request."""
    for key in ("message", "code", "type", "status", "detail", "msg", "error"):
        value = error.get(key)
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from _read_words(value)
        elif isinstance(value, list):
            yield from (
                words for each in value if isinstance(each, dict) for words in _read_words(each)
            )
    # Azure; OpenRouter's `raw` is the provider's own answer
    for key in ("innererror", "metadata"):
        inner = error.get(key)
        if isinstance(inner, dict):
            yield from _read_words(inner)
            yield str(inner.get("raw", ""))
