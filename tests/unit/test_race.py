"""scripts/race: the endpoint's replies are the same for everybody, and it answers loops as a server does."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from kgqa.kg.parsing import parse_triples
from kgqa.types import Passage
from scripts.race.calls import AT_ONCE, ROOT, endpoint, loop_of
from scripts.race.endpoint import MODEL, Service, completion
from scripts.race.questions import written
from scripts.race.replies import choice, drawn, reply

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
    answer, asked = completion({"prompt": PROMPT, "stop": [" "]}, chat=False)
    [choice] = answer["choices"]
    assert choice["text"] == "Thought0"
    assert answer["usage"]["completion_tokens"] == asked.tokens == 3
    messages = [{"role": "user", "content": PROMPT}]
    assert completion({"messages": messages}, chat=True)[0]["choices"][0]["message"]["content"] == reply(PROMPT)


def test_a_plain_loop_is_answered_and_its_cost_told() -> None:
    bodies = [{"model": MODEL, "prompt": f"{PROMPT} {number}", "max_tokens": 9} for number in range(2 * AT_ONCE)]
    with endpoint() as url:
        cost = asyncio.run(loop_of("httpx2", url, bodies))
    assert cost.calls == len(bodies)
    assert cost.cpu > 0
    assert cost.mebibytes > 1


SELECT = """Question: old?
Chain so far: empty
Options:
A. no further triple is needed
B. <x; y; z>
Question: old?
Next: B
Question: Which tree?
Chain so far: {chain}
Options:
A. no further triple is needed
B. <Alder; is; tree>
C. <Birch; is; tree>
Question: Which tree?"""


def test_options_have_probabilities_and_the_end_is_unlikely_at_first() -> None:
    listed = choice(f"\n{SELECT.format(chain='empty')}")
    assert set(listed) == {"A", "B", "C"}
    assert sum(map(math.exp, listed.values())) == pytest.approx(1)
    assert listed["A"] == min(listed.values()) < math.log(0.01)
    assert choice(f"\n{SELECT.format(chain='<a; b; c>, <d; e; f>')}") != listed
    request = {"messages": [{"role": "user", "content": f"\n{SELECT.format(chain='empty')}"}], "logprobs": True}
    answer, asked = completion(request, chat=True)
    assert asked.chooses
    assert len(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 3


def test_a_passage_has_triples() -> None:
    text = reply("Turn each text into triples.\n\nTitle: Alder\nText: Alder is a tree that grows here.")
    found = parse_triples(text, Passage("1", "Alder", "Alder is a tree that grows here."))
    assert 3 <= len(text.splitlines()) <= 7
    assert len(found.triples) == len(set(text.splitlines()))


def test_a_call_takes_what_its_tokens_and_the_others_make_of_it() -> None:
    _, asked = completion({"prompt": PROMPT, "stop": [" "]}, chat=False)
    service = Service(slots=4, prefill=0.02, step=0.008, grow=0.5, choice=0.06)
    assert service.seconds(asked, 1) == pytest.approx(0.02 + 0.008 * 3)
    assert service.seconds(asked, 3) == pytest.approx(0.02 + 0.008 * 3 * 2)
    assert service.seconds(asked._replace(tokens=1, chooses=True), 1) == pytest.approx(0.02 + 0.008 + 0.06)


def test_the_plain_loop_comes_to_the_answers_and_the_server_tells_how_full_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path / "none"))
    files = written(tmp_path, 6)
    asked = [json.loads(line)["question"] for line in files.questions.read_text(encoding="utf-8").splitlines()]
    with endpoint() as url:
        told = json.load(urllib.request.urlopen(f"{url}/reset?slots=2&prefill=0.02"))
        command = [
            sys.executable,
            str(ROOT / "scripts/race/loop.py"),
            "--url",
            url,
            "--questions",
            str(files.questions),
        ]
        printed = subprocess.run([*command, "--corpus", str(files.corpus)], capture_output=True, check=True).stdout
        stats = json.load(urllib.request.urlopen(f"{url}/stats"))
    assert told["slots"] == 2
    assert json.loads(printed) == [chain(f"\nQ: {question}\nA:")[-1][18:-1] for question in asked]
    assert stats["answered"] == sum(2 + drawn(question) % 3 for question in asked)
    assert stats["peak"] == 2
    assert 0 < stats["efficiency"] <= 1
