"""scripts/race: the endpoint's replies are the same for everybody, and it answers loops as a server does."""

from __future__ import annotations

import asyncio

from scripts.race.calls import AT_ONCE, endpoint, loop_of
from scripts.race.endpoint import MODEL, completion, reply

PROMPT = "Wikipedia Title: Alder\nAlder is a tree.\n\nQ: Which tree has grown here before?\nA:"


def chain(prompt: str) -> list[str]:
    """The thoughts up to the answer, and the answer."""
    written = [reply(prompt)]
    while len(written) < 9 and "answer is" not in written[-1]:
        prompt += f" {written[-1]}"
        written.append(reply(prompt))
    return written


def test_thoughts_go_on_until_the_answer_and_are_the_same_for_everybody() -> None:
    first = chain(PROMPT)
    assert 2 <= len(first) <= 4
    assert first[-1].startswith("So the answer is: ")
    assert len(set(first)) == len(first)
    assert chain(PROMPT.replace("Alder is", "Birch is")) == first


def test_a_reply_ends_where_it_is_told_to_and_counts_its_tokens() -> None:
    answer, tokens = completion({"prompt": PROMPT, "stop": [" "]}, chat=False)
    [choice] = answer["choices"]
    assert choice["text"] == "Thought0"
    assert answer["usage"]["completion_tokens"] == tokens == 3
    messages = [{"role": "user", "content": PROMPT}]
    assert completion({"messages": messages}, chat=True)[0]["choices"][0]["message"]["content"] == reply(PROMPT)


def test_a_plain_loop_is_answered_and_its_cost_told() -> None:
    bodies = [{"model": MODEL, "prompt": f"{PROMPT} {number}", "max_tokens": 9} for number in range(2 * AT_ONCE)]
    with endpoint() as url:
        cost = asyncio.run(loop_of("httpx2", url, bodies))
    assert cost.calls == len(bodies)
    assert cost.cpu > 0
    assert cost.mebibytes > 1
