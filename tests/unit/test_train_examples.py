"""What a training is given: lines that are read or refused, questions held out, prompts as inference has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kgqa.artifacts.examples import Example, Origin
from kgqa.calls import Generate
from kgqa.engines.chat import ChatTemplate
from kgqa.errors import ConfigError, DataError
from kgqa.runtime.display import QUIET
from kgqa.training.collect.collecting import Collecting
from kgqa.training.train.evaluation import evaluate
from kgqa.training.train.examples import prepare_examples, read_example_file, render_example, split_examples
from kgqa.training.train.request import ExampleSplit, TrainRequest
from kgqa.training.trainers.process import REPLIES, TextExample, TrainResult
from kgqa.types import Json, Message, Prompt

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<bot>\n{% endif %}"
)


def lines(count: int, of_each: int = 1) -> list[dict[str, Json]]:
    return [
        {"id": f"q{n}/{m}", "question": f"q{n}", "prompt": f"p{n}.{m}", "completion": "c"}
        for n in range(count)
        for m in range(of_each)
    ]


def file(folder: Path, listed: Sequence[Json]) -> Path:
    (folder / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in listed))
    return folder / "lines.jsonl"


def split(folder: Path, listed: Sequence[Json], eval_fraction: float = 0.25, count: int | None = None) -> ExampleSplit:
    return split_examples(read_example_file(file(folder, listed), pairs=False), eval_fraction, count, seed=0)


def test_split_is_by_question_and_independent_of_order(tmp_path: Path) -> None:
    made = split(tmp_path, lines(8, of_each=3))
    assert len(made.train) == 18
    assert len(made.held_out) == 6
    assert not {*made.questions} & {*made.held_out_questions}
    assert len(made.held_out_questions) == 2
    assert {*made.questions, *made.held_out_questions} == {f"q{n}" for n in range(8)}
    assert split(tmp_path, lines(8, of_each=3)[::-1]) == made
    fewer = split(tmp_path, lines(8, of_each=3), count=5)
    assert fewer.held_out == made.held_out
    assert fewer.train == made.train[:5]
    assert fewer.sha256 != made.sha256


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"prompt": "p"}', r"lines\.jsonl:2: completion is missing"),
        ('{"prompt": "p", "completion": 7}', r"lines\.jsonl:2: completion=7 is not a valid string"),
        ('{"prompt": "p", "completion": " "}', r"lines\.jsonl:2: completion is empty"),
        ("[1]", r"lines\.jsonl:2: its content=\[1\] is not a valid object"),
        ('{"prompt": "p", "comp', r"lines\.jsonl:2.* not JSON"),
        ('{"id": "q0/0", "prompt": "p", "completion": "c"}', r"lines\.jsonl:2: id='q0/0' occurs twice"),
    ],
)
def test_invalid_example_names_its_line(tmp_path: Path, line: str, told: str) -> None:
    given = file(tmp_path, lines(1))
    given.write_text(f"{given.read_text()}{line}\n")
    with pytest.raises(DataError, match=told):
        list(read_example_file(given, pairs=False))


def test_more_than_available_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.examples=9: only 6 examples are not held out"):
        split(tmp_path, lines(8), count=9)
    with pytest.raises(ConfigError, match=r"train\.eval_fraction=8: there are only 8 questions"):
        split(tmp_path, lines(8), eval_fraction=8)
    with pytest.raises(DataError, match=r"the examples come from 1 question\. Training needs at least 2"):
        split(tmp_path, lines(1, of_each=4))


@pytest.mark.parametrize(
    ("prompt", "begins"),
    [
        (Prompt("t/chat", (Message("user", "Why?"),)), "it"),
        (Prompt("t/prefill", (Message("user", "Why?"),), "Because"), " it"),
        (Prompt("t/completion", (Message("user", "Q: why? A:"),), form="completion"), " it"),
        (Prompt("t/lines", (Message("user", "Q: why?\n"),), form="completion"), "it"),
    ],
)
def test_training_prompt_equals_inference_prompt(prompt: Prompt, begins: str) -> None:
    engine = ChatTemplate(TEMPLATE, bos="<s>", eos="</s>", completion_bos=True)
    example = Example("1", "q", "agent", prompt, "it is so", "fact", Origin("demo", 1, "gold"))

    def render(each: Example) -> str:
        return engine.render(Generate(each.prompt, 1, role=each.role))

    made = render_example(example, render)
    assert isinstance(made, TextExample)
    assert made.prompt == engine.render(Generate(prompt, 64, ("\n",), role="agent"))
    assert made.completion == f"{begins} is so"
    assert made.question == "demo/q"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train.examples=nowhere.jsonl"], r"train\.examples=nowhere\.jsonl: no such file or folder"),
        (["train.examples=0"], r"train\.examples=0: must be at least 1"),
        (["train.base=llama"], r"train\.base=llama: no such model. Did you mean"),
        (["train.base=smollm2_135m+mine"], r"merge the adapter first: kgqa models trained mine --merged"),
        (["train.base=smollm2_135m@vllm"], "remove @vllm, since no engine"),
        (["train.lora_r=0"], r"train\.lora_r=0: must be at least 1"),
        (["train.ranks=8"], r"train\.ranks=8: unknown key\."),
        (["train.batch_size=6", "train.batch_per_device=4"], r"train\.batch_size=6: must be a multiple of 4"),
        (["train.name=../up"], r"train\.name=\.\./up: must be the name of a folder"),
        (
            ["method.budget=9"],
            r"method\.budget=9: chooses what is collected, but train\.examples=.* already\. Remove one",
        ),
    ],
)
def test_invalid_override_is_one_line(tmp_path: Path, words: list[str], told: str) -> None:
    given = file(tmp_path, lines(8))
    with pytest.raises(ConfigError, match=told):
        TrainRequest.of("kgp_llama", [f"train.examples={given}", *words])


def test_examples_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lines\.jsonl:1: anchor is missing"):
        prepare_examples(TrainRequest.of("mdr", [f"train.examples={file(tmp_path, lines(4))}"]), QUIET)


def test_folder_depends_on_what_changes_weights(tmp_path: Path) -> None:
    given = file(tmp_path, lines(8))
    words = [f"train.examples={given}", "train.base=smollm2_135m"]
    plain = TrainRequest.of("kgp_llama", words)
    examples = prepare_examples(plain, QUIET)
    for word, same in (("train.save_minutes=1", True), ("train.lora_r=4", False)):
        other = TrainRequest.of("kgp_llama", [*words, word])
        assert (other.folder(examples) == plain.folder(examples)) is same
    assert isinstance(examples.train[0], TextExample)


def facts_of(*words: str) -> ExampleSplit:
    """Examples of the next fact, as the bare messages: no weights are here."""
    collected = ["collect.agent=llama", "dataset=demo", *words]
    Collecting.of("kgp", collected).collect(QUIET, ["kgqa", "collect", "kgp", *collected])
    return prepare_examples(TrainRequest.of("kgp_llama", ["dry_run=true", "dataset=demo", *words]), QUIET)


def test_figures_of_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = facts_of()
    facts = [each for each in examples.held_out if isinstance(each, TextExample)][:2]
    replies = [{"id": each.id, "before": "", "after": each.completion} for each in facts]
    (tmp_path / REPLIES).write_text("".join(f"{json.dumps(reply)}\n" for reply in replies))
    result = TrainResult(
        steps=0, epochs=0, examples=0, left_out=0, cut=0, trainable=0, parameters=0, tokens=0, seconds=0.0,
        peak_memory=0, device="CPU", processes=1, versions={}, held_out_loss=(None, None), curve=(),
        measured={"first place": ((0.0, 0.0), (0.0, 1.0))},
    )  # fmt: skip
    measured, baselines = evaluate(tmp_path, examples, result, seed=0)
    figures = {figure.name: figure for figure in measured}
    assert {name: (figure.before, figure.after, figure.n) for name, figure in figures.items()} == {
        "first place": (0, 50, 2), "token F1": (0, 100, 2),
    }  # fmt: skip
    assert baselines == {}
