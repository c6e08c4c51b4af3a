"""What every engine promises, on real weights; what only one can promise stands at the end."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from kgqa.calls import Choose, Generate, ModelCall, labels
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.labels import continuation, spell
from kgqa.engines.weights import Model
from kgqa.errors import EngineDied, PromptTooLong
from kgqa.types import Choice, Completion, Message, Prompt
from tests.engines.conftest import CONTEXT, REAL, ask, build

pytestmark = pytest.mark.slow

COUNTS = (5, 21, 31, 41, 155)
FACTS = " ".join(f"The {number}th house belongs to the {number + 7}th family." for number in range(26))  # > one chunk
TOWNS = ("France", "Spain", "Italy", "Japan", "Peru", "Egypt", "Norway", "Cuba")


def write(text: str, max_tokens: int = 12, **decoding: Any) -> Generate:
    return Generate(Prompt("test/write", (Message("user", text),)), max_tokens, **decoding)


def choose(text: str, count: int, prefill: str = "") -> Choose:
    return Choose(Prompt("test/choose", (Message("user", text),), prefill), labels(count))


def texts(replies: list[Any]) -> list[str]:
    assert all(isinstance(reply, Completion) for reply in replies), replies
    return [reply.text for reply in replies]


def largest_difference(one: Any, other: Any) -> float:
    assert len(one.logprobs) == len(other.logprobs)
    return float(max(abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True)))


# Every engine


def test_replies_come_in_the_order_of_the_calls(engine: Any) -> None:
    calls: list[ModelCall] = [write("Say one."), choose("Pick.", 3), write("Say two.", 3), choose("Pick.", 7)]
    replies = ask(engine, calls)
    assert [type(reply) for reply in replies] == [Completion, Choice, Completion, Choice]
    assert [len(reply.logprobs) for reply in replies if isinstance(reply, Choice)] == [3, 7]


def test_equal_calls_get_equal_replies_beside_whatever_else_is_asked(engine: Any) -> None:
    call = write("Name three colours.")
    [alone] = texts(ask(engine, [call]))
    crowd = texts(ask(engine, [write(FACTS, 2), call, write("Say one.", temperature=1.0, seed=5)]))
    assert crowd[1] == alone


def test_every_call_keeps_its_own_length(engine: Any) -> None:
    replies = ask(engine, [write("Tell me a long story about the sea.", length) for length in (1, 5, 2)])
    for reply, length in zip(replies, (1, 5, 2), strict=True):
        assert isinstance(reply, Completion)
        assert reply.usage.output_tokens <= length
        assert reply.usage.prompt_tokens > 0


def test_every_call_keeps_its_own_stop_strings(engine: Any) -> None:
    question = "Tell me a long story about the sea."
    [full] = texts(ask(engine, [write(question, 20)]))
    stops = (full[5:8], full[2:4])
    replies: list[Any] = ask(engine, [write(question, 20, stop=(stop,)) for stop in stops] + [write(question, 20)])
    assert texts(replies) == [full[: full.find(stop)] for stop in stops] + [full]
    assert replies[0].finish == replies[1].finish == "stop"


def test_a_seed_repeats_a_sampled_reply(engine: Any) -> None:
    calls = [write("Tell me a story.", temperature=1.0, top_p=0.95, seed=seed) for seed in (1, 2, 3, 1)]
    first, again = texts(ask(engine, calls)), texts(ask(engine, calls))
    assert first == again
    assert first[0] == first[3]
    assert len(set(first)) > 1


@pytest.mark.parametrize("count", COUNTS)
def test_options_get_all_the_probability_between_them(engine: Any, count: int) -> None:
    [reply] = ask(engine, [choose("Which letter?", count)])
    assert isinstance(reply, Choice)
    assert len(reply.logprobs) == count
    assert math.isclose(sum(map(math.exp, reply.logprobs)), 1, abs_tol=1e-6)
    assert reply.mass is None or 0 < reply.mass <= 1.001


def test_tokens_are_counted(engine: Any) -> None:
    assert engine.count_tokens("") == 0
    assert 2 <= engine.count_tokens("Hello world") <= 4


# Engines with a model


def test_greedy_replies_make_sense(real: Any) -> None:
    [reply] = texts(ask(real, [write("What is 1+1? Answer with a number.")]))
    assert "2" in reply


def test_a_prompt_that_is_too_long_is_that_calls_error(real: Any) -> None:
    short = write("Say one.")
    replies = ask(
        real, [short, write("sea " * CONTEXT), write("sea " * 50, CONTEXT), choose("sea " * CONTEXT, 5), short]
    )
    assert [type(reply) for reply in replies] == [Completion, PromptTooLong, PromptTooLong, PromptTooLong, Completion]


def test_prompts_are_rendered_by_the_models_own_template(real: Any, reference: Any) -> None:
    tokenizer, _ = reference
    messages = (Message("system", "Be brief."), Message("user", "Hi <b>&amp;</b>\n"), Message("assistant", "Yes?"))
    for part in (messages[:2], messages[1:2], (*messages, Message("user", "Bye"))):
        expected = tokenizer.apply_chat_template(
            [{"role": message.role, "content": message.content} for message in part],
            add_generation_prompt=True,
            tokenize=False,
        )
        assert real.render(Generate(Prompt("test/chat", part, "Answer:"), 1)) == expected + "Answer:"


def test_a_completion_is_the_text_as_the_tokenizer_would_start_it(real: Any, reference: Any) -> None:
    tokenizer, _ = reference
    call = Generate(Prompt("test/completion", (Message("user", "Q: why?\nA:"),), form="completion"), 1)
    rendered = tokenizer(real.render(call), add_special_tokens=False).input_ids
    assert rendered == tokenizer("Q: why?\nA:").input_ids


def test_identity_and_rendering_load_neither_weights_nor_torch(real: Any, model: Model) -> None:
    script = (
        "import sys\n"
        "from kgqa.engines.weights import Model\n"
        "from tests.engines.conftest import BUILD\n"
        "from tests.engines.test_contract import write\n"
        f"engine = BUILD[{'llamacpp' if real.streaming else 'transformers'!r}]({model!r})\n"
        "assert engine.identity()['weights'] and engine.render(write('Hi'))\n"
        "engine.close()\n"
        "assert not {'torch', 'transformers', 'xllamacpp'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("name", REAL)
def test_a_closed_engine_leaves_no_thread_and_takes_no_call(name: str, model: Model) -> None:
    before = set(threading.enumerate())
    engine = build(name, model)
    ask(engine, [write("Say one.", 2)])
    engine.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(EngineDied):
        ask(engine, [write("Say one.", 2)])


@pytest.mark.parametrize("name", REAL)
def test_closing_ends_a_running_call_within_seconds(name: str, model: Model) -> None:
    engine: Any = build(name, model)
    ask(engine, [write("Say one.", 1)])
    long = write("sea " * 2000, 2000, stop=("never",))

    def work() -> None:
        with suppress(EngineDied):
            ask(engine, [long]) if not engine.streaming else engine.submit(long, lambda _: None)

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(1)
    started = time.monotonic()
    engine.close()
    worker.join(20)
    assert not worker.is_alive()
    assert time.monotonic() - started < 10


# transformers, float32: everything can be computed by hand


def by_hand(call: Choose, reference: Any) -> tuple[list[float], float]:
    """Option probabilities from plain forward passes over the whole text, one per label of several tokens."""
    import torch

    tokenizer, network = reference

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    history = [{"role": message.role, "content": message.content} for message in call.prompt.messages]
    text = tokenizer.apply_chat_template(history, add_generation_prompt=True, tokenize=False) + call.prompt.prefill
    prompt = encode(text)
    forms = {option: {tuple(encode(option)), tuple(encode(f" {option}"))} for option in call.options}
    first = sorted({form[:cut] for option in forms for form in forms[option] for cut in range(len(form))})
    with torch.inference_mode():
        after = {path: network(torch.tensor([prompt + list(path)])).logits[0, -1].log_softmax(-1) for path in first}
    chance = {
        form: math.exp(sum(float(after[form[:cut]][form[cut]]) for cut in range(len(form))))
        for option in forms
        for form in forms[option]
    }
    for form in sorted(chance, key=len, reverse=True):  # no label of SmolLM2 has more than two tokens
        if len(form) == 2 and form[:1] in chance:
            chance[form[:1]] -= chance[form]
    shares = [sum(chance[form] for form in forms[option]) for option in call.options]
    return [math.log(share / sum(shares)) for share in shares], sum(shares)


@pytest.mark.parametrize("count", COUNTS)
def test_option_probabilities_equal_plain_forward_passes(transformers: Any, reference: Any, count: int) -> None:
    calls = [choose("Which letter?", count), choose(f"{FACTS} Which letter?" if count < 155 else "?", count, "Answer:")]
    for call, reply in zip(calls, ask(transformers, calls), strict=True):
        logprobs, mass = by_hand(call, reference)
        assert isinstance(reply, Choice)
        assert list(reply.logprobs) == pytest.approx(logprobs, abs=1e-3)
        assert reply.mass == pytest.approx(mass, rel=1e-3)


def test_labels_of_two_tokens_are_really_among_those_tested(transformers: Any) -> None:
    spelling = spell(labels(155), continuation(transformers._encode))
    assert spelling.longest == 2
    assert len(spelling.tokens) > 5


def test_eight_at_once_equal_eight_one_by_one(transformers: Any) -> None:
    calls: list[Any] = [write(f"What is the capital of {town}?", 4 + place) for place, town in enumerate(TOWNS)]
    calls[3] = write(f"{FACTS} Who lives where?", 9)
    calls[5] = write("Tell me a story.", 14, temperature=0.8, top_p=0.9, seed=11)
    assert texts(ask(transformers, calls)) == texts([ask(transformers, [call])[0] for call in calls])
    picks = [choose(f"{FACTS[: 150 * place]} Pick one.", 5 + place) for place in range(8)]
    for together, alone in zip(ask(transformers, picks), [ask(transformers, [pick])[0] for pick in picks], strict=True):
        assert largest_difference(together, alone) < 1e-3


def test_greedy_replies_equal_those_of_generate(transformers: Any, reference: Any) -> None:
    import torch

    tokenizer, network = reference
    call = write("Tell me a story about a sailor.", 24)
    ids = torch.tensor([tokenizer(transformers.render(call), add_special_tokens=False).input_ids])
    written = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
    expected = tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)
    assert texts(ask(transformers, [call])) == [expected]


def test_a_shared_beginning_is_computed_once_and_changes_nothing(transformers: Any, model: Model) -> None:
    from kgqa.engines.transformers import Transformers

    rounded = Transformers(model, "bfloat16", batch_size=4, device="cpu", context=CONTEXT)
    calls = [choose(f"{FACTS} Which one is {town}?", 5) for town in TOWNS[:4]]
    first: list[Any] = ask(rounded, calls)
    second: list[Any] = ask(rounded, calls)
    rounded.close()
    assert [reply.usage.cached_tokens for reply in first] == [0, 256, 256, 256]
    assert [reply.usage.cached_tokens for reply in second] == [256] * 4
    assert [reply.logprobs for reply in first] == [reply.logprobs for reply in second]  # to the last bit
    for near, exact in zip(first, ask(transformers, calls), strict=True):
        assert largest_difference(near, exact) < 0.5


# llama.cpp: quantised kernels, compared with its own full listing and loosely with transformers


@pytest.mark.parametrize("count", COUNTS)
def test_option_probabilities_equal_llamacpps_full_listing(llamacpp: Any, count: int) -> None:
    call = choose("Which letter?", count, "Answer:")
    [reply] = ask(llamacpp, [call])
    server = llamacpp._server
    spelling = spell(call.options, continuation(server.tokenize))
    prompt = server.tokenize(llamacpp.render(call))
    conditional: list[float] = []
    listed: dict[int, dict[int, float]] = {}
    for place, token in spelling.asked:
        if place not in listed:
            path = [spelling.tokens[step] for step in reversed(spelling.ancestry(place))]
            whole = server.complete([*prompt, *path], n_predict=1, temperature=0.0, n_probs=49152)
            entries = whole["completion_probabilities"][0]["top_logprobs"]
            listed[place] = {entry["id"]: entry["logprob"] for entry in entries}
        conditional.append(listed[place][token])
    logprobs, mass = spelling.score(conditional)
    assert isinstance(reply, Choice)
    assert list(reply.logprobs) == pytest.approx(logprobs, abs=0.01)
    assert reply.mass == pytest.approx(mass, rel=0.01)


def test_llamacpp_and_transformers_agree_on_the_whole(llamacpp: Any, transformers: Any) -> None:
    call = choose("Which is a fruit? A: dog B: apple C: house. Answer with the letter.", 5, "Answer:")
    [quantised], [exact] = ask(llamacpp, [call]), ask(transformers, [call])
    assert largest_difference(quantised, exact) < 0.5


def test_both_engines_see_the_same_tokens(llamacpp: Any, transformers: Any) -> None:
    for text in ("Hello <|im_end|>\n\n naïve  café 日本 🙂", FACTS, transformers.render(write(FACTS))):
        assert llamacpp._server.tokenize(text) == transformers._encode(text)


def test_our_template_is_llamacpps(llamacpp: Any) -> None:
    message = {"role": "user", "content": "Hi <b>&amp;</b>"}
    expected = llamacpp._server.template([message])
    assert llamacpp.render(write(message["content"])) == expected
    assert ChatTemplate.of(llamacpp._weights).completion_bos is False
