"""Thinking at a server that takes tokens: the thought first, then the answer behind it, as the engines here do it."""

from __future__ import annotations

from dataclasses import replace

from kgqa.calls import Generate
from kgqa.engines.openai.client import Client
from kgqa.engines.openai.payloads import completion, decoding, first_choice, read_text, trim_payload, usage
from kgqa.engines.thinking import join_thought, leading, marks, thinking_call
from kgqa.types import Completion


async def thoughtful(client: Client, call: Generate) -> Completion:
    """Generate the reasoning and then the answer, as two calls. The server reads the prompt twice."""
    prompt, begin = await client.turn(call.prompt, thinks=True)
    budget, end = client.thinking.budget, marks(begin).end
    closing = await client.continuation(_behind("", begin, call))
    client.check_length(len(prompt) + len(closing), budget + call.max_tokens)
    seen = {"skip_special_tokens": False} if client.server == "vllm" else {"preserved_tokens": [end]}
    first = thinking_call(call, budget, begin)
    answered, _ = await client.go_on(prompt, {**decoding(first, client.server), **seen})
    choice = first_choice(answered)
    cut = choice.get("finish_reason") == "length"
    thought = Completion(read_text(choice)[0], "length" if cut else "stop", usage(answered))
    tokens = [*prompt, *await client.continuation(_behind(thought.text, begin, call))]
    answered, flags = await client.go_on(tokens, decoding(call, client.server))
    answer = trim_payload(completion(answered, flags, thinks=False), call.stop, "")
    reply, again = join_thought(thought, answer), answer.usage
    charged = replace(
        reply.usage,
        prompt_tokens=reply.usage.prompt_tokens + again.prompt_tokens,
        cached_tokens=reply.usage.cached_tokens + again.cached_tokens,
    )
    return replace(reply, usage=charged)


def _behind(thought: str, begin: str, call: Generate) -> str:
    """Return what goes behind the tokens that the thought began with."""
    return leading(begin, thought, call)[len(begin) :]
