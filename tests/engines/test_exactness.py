"""Replies against independent computations: plain forward passes, generate(), llama.cpp's full listing and server."""

from __future__ import annotations

import json
import math
from typing import Any, cast
from urllib.request import Request, urlopen

import pytest

from kgqa.calls import Choose
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.labels import Path, continuation, spell
from kgqa.engines.weights import Model
from kgqa.types import Choice
from tests.engines.asking import (
    CONTEXT,
    COUNTS,
    FACTS,
    TOWNS,
    ask,
    choose,
    largest_difference,
    texts,
    write,
)
from tests.engines.conftest import one

pytestmark = pytest.mark.weights
openai = one("openai")
TEXT = Choose(
    choose("Who composed the song?", 2).prompt, ("No relevant information found",)
)  # as method=corag does


def post(llamacpp: Any, path: str, **body: Any) -> Any:
    """The embedded server's own JSON, in which special tokens are read as such."""
    ask(llamacpp, [write("Hi", 1)])  # loads it
    url = llamacpp._protocols[None].process.listening_address + path
    with urlopen(
        Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    ) as answer:
        return json.loads(answer.read())


# transformers and vLLM, float32: everything can be computed by hand


def by_hand(call: Choose, reference: Any) -> tuple[list[float], float]:
    """Option probabilities from plain forward passes over the whole text, one per label of several tokens."""
    import torch

    tokenizer, network = reference

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    history = [
        {"role": message.role, "content": message.content} for message in call.prompt.messages
    ]
    text = (
        tokenizer.apply_chat_template(history, add_generation_prompt=True, tokenize=False)
        + call.prompt.prefill
    )
    prompt = encode(text)
    forms = {
        option: {tuple(encode(option)), tuple(encode(f" {option}"))} for option in call.options
    }
    first = sorted(
        {form[:cut] for option in forms for form in forms[option] for cut in range(len(form))}
    )
    with torch.inference_mode():
        after = {
            path: network(torch.tensor([prompt + list(path)])).logits[0, -1].log_softmax(-1)
            for path in first
        }
    chance = {
        form: math.exp(sum(float(after[form[:cut]][form[cut]]) for cut in range(len(form))))
        for option in forms
        for form in forms[option]
    }
    # no label of SmolLM2 has more than two tokens
    for form in sorted(chance, key=len, reverse=True):
        if len(form) == 2 and form[:1] in chance:
            chance[form[:1]] -= chance[form]
    shares = [sum(chance[form] for form in forms[option]) for option in call.options]
    return [math.log(share / sum(shares)) for share in shares], sum(shares)


@pytest.mark.parametrize("count", [*COUNTS, None])
def test_option_probabilities_equal_forward_passes(
    exact: Any, reference: Any, count: int | None
) -> None:
    calls = [TEXT]
    if count:
        longer = f"{FACTS} Which letter?" if count < 155 else "?"
        calls = [choose("Which letter?", count), choose(longer, count, "Answer:")]
    for call, reply in zip(calls, ask(exact, calls), strict=True):
        logprobs, mass = by_hand(call, reference)
        assert isinstance(reply, Choice)
        assert list(reply.logprobs) == pytest.approx(logprobs, abs=1e-3)
        assert reply.mass == pytest.approx(mass, rel=1e-3)


def test_eight_at_once_equal_eight_one_by_one(exact: Any) -> None:
    calls: list[Any] = [
        write(f"What is the capital of {town}?", 4 + place) for place, town in enumerate(TOWNS)
    ]
    calls[3] = write(f"{FACTS} Who lives where?", 9)
    calls[5] = write("Tell me a story.", 14, temperature=0.8, top_p=0.9, seed=11)
    assert texts(ask(exact, calls)) == texts([ask(exact, [call])[0] for call in calls])
    picks = [choose(f"{FACTS[: 150 * place]} Pick one.", 5 + place) for place in range(8)]
    for together, alone in zip(
        ask(exact, picks), [ask(exact, [pick])[0] for pick in picks], strict=True
    ):
        assert largest_difference(together, alone) < 1e-3


def test_greedy_replies_equal_those_of_generate(exact: Any, reference: Any) -> None:
    import torch

    tokenizer, network = reference
    call = write("Tell me a story about a sailor.", 24)
    ids = torch.tensor([tokenizer(exact.render(call), add_special_tokens=False).input_ids])
    tokens = network.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False
    )
    expected = tokenizer.decode(tokens[0, ids.shape[1] :], skip_special_tokens=True)
    assert texts(ask(exact, [call])) == [expected]


def test_shared_prefix_is_computed_once(transformers: Any, model: Model) -> None:
    from kgqa.engines.transformers import Transformers

    rounded = Transformers(
        model, "bfloat16", None, batch_size=4, device="cpu", max_model_len=CONTEXT
    )
    calls = [choose(f"{FACTS} Which one is {town}?", 5) for town in TOWNS[:4]]
    first: list[Any] = ask(rounded, calls)
    second: list[Any] = ask(rounded, calls)
    rounded.close()
    assert [reply.usage.cached_tokens for reply in first] == [0, 256, 256, 256]
    assert [reply.usage.cached_tokens for reply in second] == [256] * 4
    assert [reply.logprobs for reply in first] == [
        reply.logprobs for reply in second
    ]  # to the last bit
    for near, exact in zip(first, ask(transformers, calls), strict=True):
        assert largest_difference(near, exact) < 0.5


# llama.cpp: quantised kernels, compared with its own full listing and loosely with transformers


@pytest.mark.slow
@pytest.mark.parametrize(
    "call", [*(choose("Which letter?", count, "Answer:") for count in (5, 80)), TEXT]
)
def test_option_probabilities_equal_the_full_listing(llamacpp: Any, call: Choose) -> None:
    [reply] = ask(llamacpp, [call])

    def tokenize(text: str) -> list[int]:
        return list(
            post(llamacpp, "/tokenize", content=text, add_special=False, parse_special=True)[
                "tokens"
            ]
        )

    spelling = spell(call.options, continuation(tokenize))
    assert len(call.options) < 80 or spelling.longest == 2  # AQ
    prompt = tokenize(llamacpp.render(call))
    conditional: dict[Path, float] = {}
    for path, tokens in spelling.following.items():
        settings: dict[str, Any] = {"n_predict": 1, "temperature": 0.0, "n_probs": 49152}
        whole = post(llamacpp, "/completion", prompt=[*prompt, *path], **settings)
        entries = whole["completion_probabilities"][0]["top_logprobs"]
        listed = {entry["id"]: entry["logprob"] for entry in entries}
        conditional |= {(*path, token): listed[token] for token in tokens}
    logprobs, mass = spelling.score(conditional)
    assert isinstance(reply, Choice)
    assert list(reply.logprobs) == pytest.approx(logprobs, abs=0.01)
    assert reply.mass == pytest.approx(mass, rel=0.01)


def test_our_template_is_llamacpps(llamacpp: Any) -> None:
    message = {"role": "user", "content": "Hi <b>&amp;</b>"}
    expected = post(llamacpp, "/apply-template", messages=[message])["prompt"]
    assert llamacpp.render(write(message["content"])) == expected
    assert ChatTemplate.of(llamacpp._weights).completion_bos is False


# engine=openai at llama.cpp's own server, with the same weights


@pytest.mark.parametrize("count", COUNTS)
def test_options_of_server_and_embedded_engine_agree(
    openai: Any, llamacpp: Any, count: int
) -> None:
    call = choose("Which letter?", count, "Answer:")
    [reply], [exact] = cast(Any, (ask(openai, [call]), ask(llamacpp, [call])))
    assert reply.flags == ()
    # what a server still knows of a prompt moves it a little
    assert largest_difference(reply, exact) < 0.03
    assert reply.mass == pytest.approx(exact.mass, rel=0.01)


def test_replies_of_server_and_embedded_engine_agree(openai: Any, llamacpp: Any) -> None:
    calls = [
        write("Tell me a story about a sailor.", 12),
        write("Name a colour.", 6, temperature=0.7, seed=3),
    ]
    assert texts(ask(openai, list(calls))) == texts(ask(llamacpp, list(calls)))
