"""What every engine promises, on real weights."""

from __future__ import annotations

import json
import math
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Generate
from kgqa.engines.weights import Model
from kgqa.errors import DataError, EngineDied, EngineError, PromptTooLong
from kgqa.types import Choice, Completion, Message, Prompt
from tests.engines.asking import CONTEXT, COUNTS, FACTS, ask, choose, texts, write
from tests.engines.conftest import REAL, build

pytestmark = pytest.mark.weights
TOWN, INHABITANTS = (
    {"type": "string", "maxLength": 12},
    {"type": "integer", "minimum": 0, "maximum": 999},
)
PROPERTIES = {"town": TOWN, "inhabitants": INHABITANTS}
CLOSED = {"type": "object", "required": [*PROPERTIES], "additionalProperties": False}
SCHEMA = json.dumps({**CLOSED, "properties": PROPERTIES})


@pytest.mark.slow
def test_equal_calls_get_equal_replies_in_any_batch(engine: Any) -> None:
    """Every call keeps its own stop strings, and a seed repeats a sampled reply."""
    call = write("Name three colours.")
    [alone] = texts(ask(engine, [call]))
    crowd = texts(
        ask(engine, [write(FACTS[:800], 2), call, write("Say one.", temperature=1.0, seed=5)])
    )
    assert crowd[1] == alone
    question = "Tell me a long story about the sea."
    [full] = texts(ask(engine, [write(question, 20)]))
    stops = (full[5:8], full[2:4])
    replies: list[Any] = ask(
        engine, [write(question, 20, stop=(stop,)) for stop in stops] + [write(question, 20)]
    )
    assert texts(replies) == [full[: full.find(stop)] for stop in stops] + [full]
    assert replies[0].finish == replies[1].finish == "stop"
    calls = [
        write("Tell me a story.", temperature=1.0, top_p=0.95, seed=seed) for seed in (1, 2, 3, 1)
    ]
    first, again = texts(ask(engine, calls)), texts(ask(engine, calls))
    assert first == again
    assert first[0] == first[3]
    assert len(set(first)) > 1


def test_agents_learn_which_stop_string_ended_a_reply(engine: Any) -> None:
    story = write("Tell me a long story about the sea.", 20, thoughts="keep")
    [full] = texts(ask(engine, [story]))
    stops = (full[5:8], full[2:4])
    replies: list[Any] = ask(
        engine, [replace(story, stop=stops), replace(story, stop=("never",)), story]
    )
    assert [reply.stopped_by for reply in replies] == [story_stop(full, stops), "", None]


def story_stop(text: str, stops: tuple[str, ...]) -> str:
    """Return the first of the stop strings in a text."""
    return min(stops, key=text.find)


def test_replies_list_their_tokens(real: Any) -> None:
    """Listing changes no reply, and a sampled token has its probability before temperature and top_p."""
    call = write("Name three colours.", logprobs=3)
    sampled = replace(call, temperature=0.8, top_p=0.9, seed=3)
    listed, plain, varied = ask(real, [call, replace(call, logprobs=None), sampled])
    assert isinstance(listed, Completion), listed
    assert isinstance(plain, Completion), plain
    assert isinstance(varied, Completion), varied
    assert (listed.text, plain.tokens) == (plain.text, ())
    assert "".join(token.text for token in listed.tokens).startswith(listed.text)
    assert [token.top[0][1] for token in listed.tokens] == [
        token.logprob for token in listed.tokens
    ]
    assert {len(token.top) for token in listed.tokens} == {3}
    assert all(token.logprob <= token.top[0][1] for token in varied.tokens)
    assert all(token.id is not None for token in listed.tokens)
    assert len(listed.prompt_ids) == listed.usage.prompt_tokens


@pytest.mark.parametrize("count", COUNTS)
def test_options_get_all_the_probability_between_them(engine: Any, count: int) -> None:
    [reply] = ask(engine, [choose("Which letter?", count)])
    assert isinstance(reply, Choice)
    assert len(reply.logprobs) == count
    assert math.isclose(sum(map(math.exp, reply.logprobs)), 1, abs_tol=1e-6)
    assert reply.mass is None or 0 < reply.mass <= 1.001


def test_reply_follows_its_schema_or_is_flagged(real: Any) -> None:
    question = "Invent a town by the sea and tell me about it in one long paragraph."
    calls = [
        write(question, 80, schema=SCHEMA, temperature=degree, seed=7) for degree in (0.0, 1.0)
    ]
    free = write(question, 10)
    [*replies, beside] = ask(real, [*calls, free])
    for reply in replies:
        assert isinstance(reply, Completion)
        assert reply.finish == "stop"
        if "unconstrained" not in reply.flags:
            value = json.loads(reply.text)
            assert set(value) == {"town", "inhabitants"}
            assert len(value["town"]) <= 12
            assert type(value["inhabitants"]) is int
            assert 0 <= value["inhabitants"] <= 999
    assert texts([beside]) == texts(ask(real, [free]))
    impossible = [
        write("Say one.", 4, schema=schema)
        for schema in ('{"not": {"type": "string"}}', "[]", "no JSON")
    ]
    for reply in ask(real, impossible):
        assert isinstance(reply, Completion)
        assert reply.flags == ("unconstrained",)


@pytest.mark.slow
def test_tags_survive_if_the_call_keeps_thoughts(real: Any) -> None:
    line = "<think> I need the town. <search> the town </search> </think>\n"
    prompt = Prompt("test/tags", (Message("user", 12 * line),), form="completion")
    complete, split = ask(
        real,
        [Generate(prompt, 40, ("</search>",), thoughts=thoughts) for thoughts in ("keep", "split")],
    )
    assert isinstance(complete, Completion), complete
    assert isinstance(split, Completion), split
    assert complete.text.strip() == "<think> I need the town. <search> the town"
    assert split.text == ""


def test_impossible_prompts_are_their_calls_errors(real: Any) -> None:
    empty = Generate(Prompt("test/completion", (Message("user", ""),), form="completion"), 1)
    long = write("sea " * CONTEXT), write("sea " * 50, CONTEXT), choose("sea " * CONTEXT, 5)
    kinds = [type(reply) for reply in ask(real, [write("Say one."), *long, empty])]
    assert kinds == [Completion, PromptTooLong, PromptTooLong, PromptTooLong, EngineError]


def test_prompts_use_the_template_of_the_model(local: Any, reference: Any) -> None:
    """A completion is the text as the tokenizer would start it."""
    tokenizer, _ = reference
    messages = (
        Message("system", "Be brief."),
        Message("user", "Hi <b>&amp;</b>\n"),
        Message("assistant", "Yes?"),
    )
    for part in (messages[:2], messages[1:2], (*messages, Message("user", "Bye"))):
        history = [{"role": message.role, "content": message.content} for message in part]
        expected = tokenizer.apply_chat_template(
            history, add_generation_prompt=True, tokenize=False
        )
        assert (
            local.render(Generate(Prompt("test/chat", part, "Answer:"), 1)) == expected + "Answer:"
        )
    call = Generate(
        Prompt("test/completion", (Message("user", "Q: why?\nA:"),), form="completion"), 1
    )
    rendered = tokenizer(local.render(call), add_special_tokens=False).input_ids
    assert rendered == tokenizer("Q: why?\nA:").input_ids


@pytest.mark.parametrize("name", REAL)
def test_closing_ends_running_calls_and_threads(name: str, model: Model) -> None:
    before = set(threading.enumerate())
    engine: Any = build(name, model)
    ask(engine, [write("Say one.", 1)])
    # a short prompt: llama.cpp cannot be stopped inside one batch
    long = write("sea " * 300, 2000, stop=("never",))

    def work() -> None:
        with suppress(EngineDied):
            ask(engine, [long]) if not engine.streaming else engine.submit(long, lambda _: None)

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(1)
    engine.close()
    worker.join(60)
    assert set(threading.enumerate()) <= before
    with pytest.raises(EngineDied):
        ask(engine, [write("Say one.", 2)])


def test_unreadable_weights_are_a_data_error(tmp_path: Path, model: Model) -> None:
    whole = model.locate().read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    cut = build(
        "llamacpp", replace(model, path=str(tmp_path / "cut.gguf"), sha256=None, packages=())
    )
    [reply] = ask(cut, [write("Hi")])
    cut.close()
    assert isinstance(reply, DataError)
    assert "cut.gguf: llama.cpp cannot load it" in str(reply)
