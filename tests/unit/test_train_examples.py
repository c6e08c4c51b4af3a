"""What a training is given and leaves: facts, examples, prompts, plans, cards. Nothing is trained here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.examples import ExampleOrigin, TrainingExample
from kgqa.artifacts.manifest import Code
from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.trained import Losses, Trained, TrainedExamples, find_trained, list_trainings
from kgqa.calls import Generate
from kgqa.engines.chat import ChatTemplate
from kgqa.errors import ConfigError, DataError, EngineDied, UsageError
from kgqa.extras.training.collect.collecting import Collecting
from kgqa.extras.training.collect.facts import ordered_facts
from kgqa.extras.training.report import card_sections, loss_plot
from kgqa.extras.training.train.request import (
    ExampleSplit,
    TrainRequest,
    prepare_examples,
    read_example_file,
    render_example,
    split_examples,
)
from kgqa.extras.training.train.run import evaluate
from kgqa.extras.training.trainers.process import REPLIES, TextExample, check_exit
from kgqa.report.page import sections_page
from kgqa.report.section import Section, markdown
from kgqa.runtime.display import QUIET
from kgqa.types import Hop, Json, Message, Passage, Prompt, Question
from tests.unit.files import jsonl, write

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<bot>\n{% endif %}"
)


def lines(count: int, of_each: int = 1) -> list[dict[str, Json]]:
    return [
        {"id": f"q{n}/{m}", "question": f"q{n}", "prompt": f"p{n}.{m}", "completion": "c"}
        for n in range(count)
        for m in range(of_each)
    ]


def file(folder: Path, listed: Sequence[Any]) -> Path:
    return write(folder / "lines.jsonl", jsonl(*listed))


def split(
    folder: Path, listed: Sequence[Json], eval_fraction: float = 0.25, count: int | None = None
) -> ExampleSplit:
    return split_examples(
        read_example_file(file(folder, listed), pairs=False), eval_fraction, count, seed=0
    )


def test_split_keeps_questions_together(tmp_path: Path) -> None:
    parts = split(tmp_path, lines(8, of_each=3))
    assert (len(parts.train), len(parts.held_out)) == (18, 6)
    out = {example.question for example in parts.held_out}
    assert (len(out), {each.question for each in parts.train}) == (
        2,
        {f"q{n}" for n in range(8)} - out,
    )
    assert split(tmp_path, lines(8, of_each=3)[::-1]) == parts
    fewer = split(tmp_path, lines(8, of_each=3), count=5)
    assert (fewer.held_out, fewer.train) == (parts.held_out, parts.train[:5])
    assert fewer.sha256 != parts.sha256
    with pytest.raises(ConfigError, match=r"train\.examples=9: only 6 examples are not held out"):
        split(tmp_path, lines(8), count=9)
    with pytest.raises(
        DataError, match=r"all 8 questions of the examples are held out, so none is left"
    ):
        split(tmp_path, lines(8), eval_fraction=8)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(
            '{"prompt": "p"}', r"lines\.jsonl:2: completion is missing", id="no completion"
        ),
        pytest.param(
            '{"prompt": "p", "completion": 7}',
            r"lines\.jsonl:2: completion=7 is not a valid string",
            id="number",
        ),
        pytest.param(
            '{"prompt": "p", "completion": " "}', r"lines\.jsonl:2: completion is empty", id="blank"
        ),
        pytest.param('{"prompt": "p", "comp', r"lines\.jsonl:2.* not JSON", id="open line"),
        pytest.param(
            '{"id": "q0/0", "prompt": "p", "completion": "c"}',
            r"lines\.jsonl:2: id='q0/0' occurs twice",
            id="duplicate id",
        ),
    ],
)
def test_invalid_example_names_its_line(tmp_path: Path, line: str, message: str) -> None:
    first = file(tmp_path, lines(1)).read_text()
    (tmp_path / "lines.jsonl").write_text(f"{first}{line}\n")
    with pytest.raises(DataError, match=message):
        list(read_example_file(tmp_path / "lines.jsonl", pairs=False))


@pytest.mark.parametrize(
    ("prompt", "start"),
    [
        pytest.param(Prompt("t/chat", (Message("user", "Why?"),)), "it", id="chat"),
        pytest.param(
            Prompt("t/prefill", (Message("user", "Why?"),), "Because"), " it", id="prefill"
        ),
        pytest.param(
            Prompt("t/completion", (Message("user", "Q: why? A:"),), form="completion"),
            " it",
            id="completion",
        ),
        pytest.param(
            Prompt("t/lines", (Message("user", "Q: why?\n"),), form="completion"), "it", id="lines"
        ),
    ],
)
def test_training_prompt_equals_inference_prompt(prompt: Prompt, start: str) -> None:
    engine = ChatTemplate(TEMPLATE, bos="<s>", eos="</s>", completion_bos=True)
    example = TrainingExample(
        "1", "q", "agent", prompt, "it is so", "fact", ExampleOrigin("demo", 1, "gold")
    )
    text = render_example(
        example, lambda each: engine.render(Generate(each.prompt, 1, role=each.role))
    )
    assert isinstance(text, TextExample)
    assert text.prompt == engine.render(Generate(prompt, 64, ("\n",), role="agent"))
    assert (text.completion, text.question) == (f"{start} is so", "demo/q")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            ["train.examples=nowhere.jsonl"],
            r"train\.examples=nowhere\.jsonl: no such file or folder",
            id="missing file",
        ),
        pytest.param(
            ["train.base=llama"],
            r"train\.base=llama: no such model. Did you mean",
            id="unknown model",
        ),
        pytest.param(
            ["train.base=smollm2_135m+mine"],
            r"smollm2_135m\+mine: name PRESET or PRESET:PATH, without adapter",
            id="base with adapter",
        ),
        pytest.param(["train.ranks=8"], r"train\.ranks=8: unknown key\.", id="unknown key"),
        pytest.param(
            ["train.batch_size=6", "train.batch_per_device=4"],
            r"train\.batch_size=6: must be a multiple of 4",
            id="batch size",
        ),
        pytest.param(
            ["train.name=../up"],
            r"train\.name=\.\./up: must be the name of a folder",
            id="path as name",
        ),
        pytest.param(
            ["method.budget=9"],
            r"method\.budget=9: chooses what is collected, but train\.examples=.* already\. Remove",
            id="collecting key",
        ),
    ],
)
def test_invalid_override_is_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    path = file(tmp_path, lines(8))
    with pytest.raises(ConfigError, match=message):
        TrainRequest.of("kgp_llama", [f"train.examples={path}", *words])


def test_folder_depends_on_what_changes_weights(tmp_path: Path) -> None:
    path = file(tmp_path, lines(8))
    words = [f"train.examples={path}", "train.base=smollm2_135m"]
    plain = TrainRequest.of("kgp_llama", words)
    examples = prepare_examples(plain, QUIET)
    others = [
        TrainRequest.of("kgp_llama", [*words, word])
        for word in ("train.save_minutes=1", "train.lora_r=4")
    ]
    assert [other.folder(examples) == plain.folder(examples) for other in others] == [True, False]
    assert isinstance(examples.train[0], TextExample)
    with pytest.raises(DataError, match=r"lines\.jsonl:1: anchor is missing"):
        prepare_examples(
            TrainRequest.of("mdr", [f"train.examples={file(tmp_path, lines(4))}"]), QUIET
        )


def test_figures_of_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    collected = ["collect.agent=llama", "dataset=demo"]
    collection = Collecting.of("kgp", collected).collect(
        QUIET, ["kgqa", "collect", "kgp", *collected]
    )
    examples = prepare_examples(
        TrainRequest.of("kgp_llama", ["dry_run=true", "dataset=demo"]), QUIET
    )
    assert {each.question for each in examples.train}.isdisjoint(collection.held_out)
    assert {each.question for each in examples.held_out} <= {*collection.held_out}
    facts = [each for each in examples.held_out if isinstance(each, TextExample)][:2]
    write(tmp_path / REPLIES, jsonl(*({"id": each.id, "reply": each.completion} for each in facts)))
    measured, baselines = evaluate(tmp_path, examples)
    assert {name: (score.mean, score.n) for name, score in measured.items()} == {
        "token F1": (100, 2)
    }
    assert baselines == {}


def trained(folder: Path) -> Trained:
    """A finished training in `folder`."""
    write(folder / "settings.json", {})
    examples = TrainedExamples(
        collected=None, made_of=("2wiki",), sha256="ab", count=1, questions=1, left_out=0, cut=0, held_out_count=0,
        question_hashes=("ab",), text_hashes=(), templates={"kgp/evidence": "12"}, licences=("2wiki: Apache-2.0",),
    )  # fmt: skip
    manifest = Trained(
        name="agent", kind="LoraTraining", title="LoRA adapter", recipe="kgp_llama",
        settings=(("train.lora_r", "8", "the released code"),),
        command=("kgqa", "train", "kgp_llama"), base="llama2_7b", base_sha256="f" * 64, base_folder_sha256="e" * 64,
        base_licence="Llama 2 Community License", rank=8,
        weights={"adapter/adapter_model.safetensors": "d" * 64},
        examples=examples, seed=1, precision="bfloat16", steps=3, epochs=1.0, tokens=3600, seconds=7200,
        peak_memory=2 * 10**9, trainable=100, parameters=1000, device="CPU", processes=1,
        losses=Losses(first=2.5, last=1.25, held_out_before=2.4, held_out_after=1.4),
        measured={"token F1": Estimate(mean=25.2, low=12.0, high=35.0, n=32)},
        kgqa=Code(version="0.2.0"), versions={"torch": "2.13.0"},
    )  # fmt: skip
    write(folder / "manifest.json", manifest.json())
    return manifest


def test_card_comes_from_the_manifest(tmp_path: Path) -> None:
    training = trained(tmp_path)
    read = Trained.read(tmp_path)
    assert read == training
    text = markdown(read.name, card_sections(read))
    parts = [
        "# agent",
        "Llama 2 Community License",
        "2wiki: Apache-2.0",
        "2.5000",
        "2.0 GB",
        "kgp/evidence",
    ]
    assert [part for part in parts if part not in text] == []
    assert "| token F1 | 25.2  [12.0, 35.0] | 32 |" in text
    curve = Section(
        "Losses by step", (), (), plots=[loss_plot("agent", {"loss": ((1, 2.5), (2, 1.25))})]
    )
    assert "<svg" in sections_page("agent", "", [curve])
    (tmp_path / "manifest.json").write_text('{"name": "agent"}')
    with pytest.raises(DataError, match="steps is missing: damaged"):
        Trained.read(tmp_path)


def test_a_name_is_its_newest_finished_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGQA_TRAINED", str(tmp_path))
    with pytest.raises(ConfigError, match="No trained models in"):
        find_trained("agent")
    write(tmp_path / "agent/begun/settings.json", {})
    trained(tmp_path / "agent/done")
    assert find_trained("agent") == find_trained("agent/done") == tmp_path / "agent/done"
    assert {(training.name, training.ended) for training in list_trainings()} == {
        ("agent/begun", False),
        ("agent/done", True),
    }
    with pytest.raises(ConfigError, match=r"no trained model has this name\. Did you mean agent"):
        find_trained("agend")


def test_end_of_a_trainer_is_one_line(tmp_path: Path) -> None:
    ends: list[tuple[int, str, str, type[BaseException], str]] = [
        (2, "out of memory: lower it", "warning", UsageError, "^out of memory: lower it$"),
        (
            -9,
            "",
            "",
            EngineDied,
            r"crashed \(signal 9, perhaps killed because memory was short\): no message",
        ),
        (
            1,
            "",
            "Traceback\nValueError: no\n",
            EngineDied,
            r"exit code 1\): ValueError: no. Its output is in",
        ),
        (130, "", "warning", KeyboardInterrupt, "^$"),
    ]
    for code, error, log, kind, message in ends:
        (tmp_path / "log").write_text(log)
        check_exit(0, "", tmp_path / "log")
        with pytest.raises(kind, match=message):
            check_exit(code, error, tmp_path / "log")


def test_plan_counts_what_training_will_keep(tmp_path: Path) -> None:
    """Ten of forty examples are longer than 100 tokens of four characters. Training leaves them out."""
    texts = [
        {"prompt": f"{n:02}" + "p" * (398 if n % 4 == 0 else 98), "completion": "c" * 20}
        for n in range(40)
    ]
    words = [
        f"train.examples={file(tmp_path, texts)}", "train.max_length=100", "train.max_steps=9",
        "train.batch_size=2", "train.eval_fraction=0", "dry_run=true",
    ]  # fmt: skip
    asked = TrainRequest.of("safe_evaluator", words)
    assert asked.plan(prepare_examples(asked, QUIET)) == (
        "30 of 40",
        "9",
        f"about {31 * 9 * 2}",
    )  # nine steps of two examples
    cut = TrainRequest.of("safe_evaluator", [*words, "train.truncation=true"])
    assert cut.plan(prepare_examples(cut, QUIET)) == (
        "40 of 40",
        "9",
        f"about {(30 * 31 + 10 * 100) * 9 * 2 / 40:,.0f}",
    )


FILM = Passage.of("Musa (film)", "Musa is a 2001 film directed by Kim Sung-su.")
ACTOR = Passage.of("Yu Rongguang", "Yu Rongguang is an actor, known for Musa.")


def question(*passages: Passage, answer: str = "Kim Sung-su", **fields: object) -> Question:
    facts = tuple((passage.id, passage.text) for passage in passages)
    kind = {"type": "bridge", **fields}
    return Question("q", "Who directed it?", (answer,), passages, facts=facts, **kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("passages", [(FILM, ACTOR), (ACTOR, FILM)])
def test_fact_with_the_answer_comes_last(
    passages: tuple[Passage, ...],
) -> None:
    assert ordered_facts(question(*passages)) == (ACTOR.text, FILM.text)
    assert ordered_facts(question(*passages, answer="no one")) == (ACTOR.text, FILM.text)


def test_decomposition_orders_cited_passages() -> None:
    hops = (
        Hop("Yu Rongguang, film", "Musa", ACTOR.id),
        Hop("Musa, director", "Kim Sung-su", FILM.id),
    )
    assert ordered_facts(question(FILM, ACTOR, answer="actor", decomposition=hops)) == (
        ACTOR.text,
        FILM.text,
    )
    assert ordered_facts(question(FILM, ACTOR, decomposition=hops[1:])) == (ACTOR.text, FILM.text)
    assert ordered_facts(question(FILM, ACTOR, type="comparison")) == (FILM.text, ACTOR.text)
