"""`scripts/bench_selector.py gold`: what it asks is what the method asks, and its shares are of gold passages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kgqa.calls import Choose
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.session.experiment import Experiment
from kgqa.methods.steps.trace_chains import Chain
from kgqa.prompting import render
from kgqa.testing import drive
from scripts.bench_selector import (
    GOING_ON,
    KEPT,
    LIKELIEST,
    MASS,
    NEW,
    OFFERED,
    STOP,
    Dump,
    Selected,
    next_chain,
    scores,
    select,
)
from scripts.prompt_variants import Variant, shown_by, table
from tests.trace_world import BIRCH, METHOD, QUESTION, WROTE, World, weights

GOLD = frozenset({BIRCH.id})
CHOICES = weights(
    at0={"no further triple is needed": 0.1, WROTE: 0.3, "<Birch; year; 1901>": 0.6},
    at1={"no further triple is needed": 0.7, WROTE: 0.2, "<Cedar; type; town>": 0.1},
)


def selected(chain: Chain) -> Selected:
    return drive(select(METHOD, QUESTION, chain), World(CHOICES))


def test_a_choice_is_asked_as_the_method_asks_it() -> None:
    measured, method = World(CHOICES), World(CHOICES)
    drive(select(METHOD, QUESTION, Chain()), measured)
    method.answer(max_length=1)
    assert measured.of(Choose) == method.of(Choose)


def test_shares_are_of_triples_from_gold_passages() -> None:
    shares = scores(selected(Chain()), GOLD, branch=2)
    assert shares == pytest.approx(
        {OFFERED: 0.25, MASS: 0.6, GOING_ON: 0.6 / 0.9, NEW: 0.6, LIKELIEST: 1.0, KEPT: 0.5, STOP: 0.1}
    )


def test_the_next_chain_begins_with_the_best_ranked_gold_triple() -> None:
    chain = next_chain(selected(Chain()), GOLD)
    assert chain is not None
    assert chain.texts == ("<Birch; year; 1901>",)
    shares = scores(selected(chain), GOLD, branch=2)
    nothing = dict.fromkeys((OFFERED, MASS, GOING_ON, NEW, LIKELIEST, KEPT), 0.0)
    assert shares == pytest.approx({**nothing, STOP: 0.7})
    assert next_chain(selected(chain), GOLD) is None


def test_a_gold_passage_of_the_chain_is_not_new() -> None:
    both = frozenset(passage.id for passage in QUESTION.passages)
    chain = next_chain(selected(Chain()), GOLD)
    assert chain is not None
    shares = scores(selected(chain), both, branch=2)
    assert shares[MASS] == pytest.approx(0.3)
    assert shares[NEW] == pytest.approx(0.3)
    assert scores(selected(Chain()), both, branch=2)[MASS] == pytest.approx(0.9)


def test_differences_are_question_by_question() -> None:
    shown = table({"a": {MASS: [0.2, 0.4, None]}, "b": {MASS: [0.3, 0.5, 0.9]}})
    assert "| mass on gold | 30.0 [20.0, 40.0] | 56.7 [30.0, 90.0] | +10.0 [+10.0, +10.0] |" in shown


def test_a_template_of_its_own_is_shown_and_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "any.j2"
    file.write_text("{% block user %}Which of {{ options | length }}?{% endblock %}")
    with shown_by(file, "trace/select"):
        assert render("trace/select", options=("a", "b")).messages[0].content == "Which of 2?"
    assert "Which of" not in str(first_prompt())


def first_prompt() -> object:
    world = World(CHOICES)
    drive(select(METHOD, QUESTION, Chain()), world)
    return world.of(Choose)[0].prompt


@pytest.mark.parametrize(
    ("words", "told"),
    [(["method.beam=3"], "begins with a name"), (["b", "template=absent.j2"], "template=absent.j2: no such file")],
)
def test_a_prompt_that_cannot_be_measured_is_told(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Variant.of(words)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two triples for each passage of the demo set, and one of two parts."""
    passages = {p.id: p for question in Experiment.of([]).questions for p in question.passages}.values()
    documents = [
        {
            "title": p.title,
            "text": p.text,
            "extracted_triples": [[p.title, "is", "1"], [p.title, "has", "2"], ["x"]],
        }
        for p in passages
    ]
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"docs": documents}))
    return file


def test_a_dump_gives_whole_triples(dump: Path) -> None:
    [question, *_] = Experiment.of([]).questions
    triples = Dump.read(dump)
    assert triples.covers(question)
    title = question.passages[0].title
    assert [str(triple) for triple in triples.triples(question.passages[0])] == [
        f"<{title}; is; 1>",
        f"<{title}; has; 2>",
    ]


@pytest.mark.parametrize(
    ("text", "told"), [('{"a": 1}', "no list of 'docs'"), ('{"docs": [{}]}', "document 1: .*title")]
)
def test_a_file_that_is_no_dump_is_told(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text(text)
    with pytest.raises(DataError, match=told):
        Dump.read(file)


def test_prompts_are_compared_on_the_same_questions(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGQA_CACHE", str(tmp_path))
    words = "engine=scripted ranker=lexical --questions 3 --prompt ours --prompt none method.demonstrations=none"
    command = [sys.executable, "scripts/bench_selector.py", "gold", "--triples", str(dump), *words.split()]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.startswith("3 questions; ")
    assert "| | ours | none | none − ours |" in told.stdout
    for step in ("Step 1", "Step 2"):
        rows = told.stdout.partition(step)[2].splitlines()[2:]
        assert [row.split(" | ")[0] for row in rows[2:9]] == [
            f"| {name}" for name in (OFFERED, MASS, GOING_ON, NEW, LIKELIEST, KEPT, STOP)
        ]
        assert rows[2].endswith("| +0.0 [+0.0, +0.0] |")  # the same is offered to all
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout == told.stdout
    assert "0 tokens" in again.stderr  # all from the call cache
