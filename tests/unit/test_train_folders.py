"""What a training leaves: card, manifest, damage; how a trainer ended; and plans. Nothing is trained here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kgqa.artifacts.manifest import Code
from kgqa.artifacts.trained import Losses, Measured, Trained, TrainedExamples, find_trained, list_trainings
from kgqa.errors import ConfigError, DataError, EngineDied, UsageError
from kgqa.report.page import sections_page
from kgqa.report.section import Section, markdown
from kgqa.report.training import card_sections, loss_plot
from kgqa.runtime.display import QUIET, Display
from kgqa.training.train import grid as grids
from kgqa.training.train.examples import prepare_examples
from kgqa.training.train.export import find_damage, remove_checkpoints
from kgqa.training.train.grid import TrainCell, train_grid, training_grid
from kgqa.training.train.planning import plan_training
from kgqa.training.train.request import ExampleSplit, TrainRequest
from kgqa.training.trainers.process import check_exit
from kgqa.types import Json
from kgqa.util.fs import json_text, sha256, text_digest
from tests.unit.test_train_examples import file, lines

LINE = {"id": "q1", "prompt": "Why?\n", "completion": "So."}


def trained(folder: Path) -> Trained:
    """A finished training in `folder`, with all its files."""
    texts = [json.dumps(LINE) + "\n", ""]
    for name, text in zip(("train.jsonl", "held_out.jsonl"), texts, strict=True):
        (folder / "examples").mkdir(parents=True, exist_ok=True)
        (folder / "examples" / name).write_text(text)
    (folder / "adapter").mkdir()
    (folder / "adapter/adapter_model.safetensors").write_bytes(b"matrices")
    (folder / "settings.json").write_text("{}")
    (folder / "checkpoints/checkpoint-3").mkdir(parents=True)
    (folder / "checkpoints/checkpoint-3/optimizer.pt").write_bytes(b"\0" * 2_000_000)
    examples = TrainedExamples(
        collected=None, made_of=("2wiki",), sha256=text_digest("\n".join(texts)), count=1, questions=1, left_out=0,
        cut=0, held_out_count=0, held_out=(), question_hashes=("ab",), text_hashes=(), templates={"kgp/evidence": "12"},
        licences=("2wiki: Apache-2.0",),
    )  # fmt: skip
    manifest = Trained(
        name="agent", kind="LoraTraining", title="LoRA adapter", recipe="kgp_llama",
        settings=(("train.lora_r", "8", "the released code"),),
        command=("kgqa", "train", "kgp_llama"), base="llama2_7b", base_sha256="f" * 64, base_folder_sha256="e" * 64,
        base_licence="Llama 2 Community License", template_sha256=None, rank=8,
        weights={"adapter/adapter_model.safetensors": sha256(folder / "adapter/adapter_model.safetensors")},
        examples=examples, seed=1, precision="bfloat16", steps=3, epochs=1.0, tokens=3600, seconds=7200,
        peak_memory=2 * 10**9, trainable=100, parameters=1000, device="CPU", processes=1,
        losses=Losses(first=2.5, last=1.25, lowest=1.0, held_out_before=2.4, held_out_after=1.4),
        measured=(Measured(name="token F1", before=16.4, after=25.2, difference=8.8, low=2.0, high=15.0, n=32),),
        kgqa=Code(version="0.2.0"), versions={"torch": "2.13.0"},
    )  # fmt: skip
    (folder / "manifest.json").write_text(json_text(manifest.json()))
    return manifest


def test_the_card_is_made_of_the_manifest_alone(tmp_path: Path) -> None:
    made = trained(tmp_path)
    read = Trained.read(tmp_path)
    assert read == made
    text = markdown(read.name, card_sections(read))
    shown = (
        "# agent",
        "Llama 2 Community License",
        "2wiki: Apache-2.0",
        "2.5000",
        "1.4000",
        "2,000,000,000",
        "kgp/evidence",
    )
    for told in shown:
        assert told in text
    assert "| token F1 | 16.4 | 25.2 | +8.8 [+2.0, +15.0] | 32 |" in text
    curve = Section("Losses by step", (), (), plots=[loss_plot("agent", {"loss": ((1, 2.5), (2, 1.25))})])
    page = sections_page("agent", "", [curve])
    assert "<svg" in page


def test_what_was_changed_since_is_found(tmp_path: Path) -> None:
    trained(tmp_path)
    assert list(find_damage(tmp_path)) == []
    (tmp_path / "adapter/adapter_model.safetensors").write_bytes(b"other")
    (tmp_path / "examples/train.jsonl").unlink()
    first, second = find_damage(tmp_path)
    assert "has another sha256 than after training" in first
    assert "the examples are missing" in second
    (tmp_path / "manifest.json").write_text('{"name": "agent"}')
    with pytest.raises(DataError, match="steps is missing: damaged"):
        list(find_damage(tmp_path))


def test_a_name_is_its_newest_finished_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_TRAINED", str(tmp_path))
    with pytest.raises(ConfigError, match="No trained models in"):
        find_trained("agent")
    (tmp_path / "agent/begun").mkdir(parents=True)
    (tmp_path / "agent/begun/settings.json").write_text("{}")
    with pytest.raises(ConfigError, match="its training is not finished"):
        find_trained("agent")
    trained(tmp_path / "agent/done")
    assert find_trained("agent") == find_trained("agent/done") == tmp_path / "agent/done"
    assert {(kept.name, kept.ended) for kept in list_trainings()} == {("agent/begun", False), ("agent/done", True)}
    with pytest.raises(ConfigError, match=r"no trained model has this name\. Did you mean agent"):
        find_trained("agend")
    assert remove_checkpoints() == "checkpoints of 1 training removed: 0.00 GB"
    assert not (tmp_path / "agent/done/checkpoints").exists()
    assert list(find_damage(tmp_path / "agent/done")) == []


@pytest.mark.parametrize(
    ("code", "error", "log", "kind", "message"),
    [
        (2, "out of memory: lower it", "warning", UsageError, "^out of memory: lower it$"),
        (-9, "", "", EngineDied, r"crashed \(signal 9, perhaps killed because memory was short\): no message"),
        (1, "", "Traceback\nValueError: no\n", EngineDied, r"exit code 1\): ValueError: no. Its output is in"),
        (130, "", "warning", KeyboardInterrupt, "^$"),
    ],
)
def test_end_of_a_trainer_is_one_line(
    tmp_path: Path, code: int, error: str, log: str, kind: type[BaseException], message: str
) -> None:
    (tmp_path / "log").write_text(log)
    check_exit(0, "", tmp_path / "log")
    with pytest.raises(kind, match=message):
        check_exit(code, error, tmp_path / "log")


def request(folder: Path, *words: str) -> TrainRequest:
    listed: list[dict[str, Json]] = [{"prompt": f"p{n} " * 900, "completion": "c " * 90} for n in range(40)]
    (folder / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in listed))
    return TrainRequest.of("safe_evaluator", [f"train.examples={folder / 'lines.jsonl'}", "dry_run=true", *words])


def test_plan_counts_what_training_will_keep(tmp_path: Path) -> None:
    """Ten of forty examples are longer than 100 tokens of four characters. Training leaves them out."""
    texts = [{"prompt": f"{n:02}" + "p" * (398 if n % 4 == 0 else 98), "completion": "c" * 20} for n in range(40)]
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(text)}\n" for text in texts))
    words = [
        f"train.examples={tmp_path / 'lines.jsonl'}", "train.max_length=100", "train.max_steps=9",
        "train.batch_size=2", "train.eval_fraction=0", "dry_run=true",
    ]  # fmt: skip
    asked = TrainRequest.of("safe_evaluator", words)
    plan = plan_training(asked, prepare_examples(asked, QUIET))
    assert (plan.fitting, plan.tokens) == (30, 30 * 31)
    assert asked.training.passes(plan.fitting) == 9 * 2 / 30
    rows = dict(plan.rows())
    assert rows["examples"].startswith("40 examples")
    assert rows["skipped"].startswith("10 of them, longer than 100 tokens")
    cut = TrainRequest.of("safe_evaluator", [*words, "train.truncation=true"])
    assert plan_training(cut, prepare_examples(cut, QUIET)).tokens == 30 * 31 + 10 * 100


def grid(folder: Path, *words: str) -> list[TrainCell]:
    examples = file(folder, lines(8))
    return training_grid("kgp_llama", [f"train.examples={examples}", "train.base=smollm2_135m", *words], QUIET)


RATES = "train.learning_rate=1e-5,5e-5,1e-4"


@pytest.fixture
def losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[float, float]:
    """The held-out loss that a training has, by its learning rate. Without one it fails."""
    monkeypatch.chdir(tmp_path)
    by_rate: dict[float, float] = {}

    def train(request: TrainRequest, examples: ExampleSplit, display: Display) -> Path:
        folder, loss = request.folder(examples), by_rate.get(request.training.learning_rate)
        if loss is None:
            raise DataError("the loss is not a number;\nlower train.learning_rate")
        if not folder.is_dir():
            values = Losses(first=3, last=2, lowest=2, held_out_before=2.4, held_out_after=loss)
            (folder / "manifest.json").write_text(json_text(trained(folder).replace(losses=values).json()))
        return folder

    monkeypatch.setattr(grids, "train", train)
    return by_rate


def test_lowest_held_out_loss_is_chosen(tmp_path: Path, losses: dict[float, float]) -> None:
    losses |= {1e-5: 2.1, 5e-5: 1.1, 1e-4: 1.1}  # the first one of equal losses
    outcomes = train_grid(grid(tmp_path, RATES), QUIET)
    assert [(each.values, each.loss) for each in outcomes] == [
        ("train.learning_rate=5e-05", 1.1), ("train.learning_rate=0.0001", 1.1), ("train.learning_rate=1e-05", 2.1),
    ]  # fmt: skip
    assert find_trained("kgp_llama") == outcomes[0].folder
    os.utime(outcomes[0].folder / "manifest.json", (1, 1))
    assert find_trained("kgp_llama") != outcomes[0].folder
    assert train_grid(grid(tmp_path, RATES), QUIET) == outcomes
    assert find_trained("kgp_llama") == outcomes[0].folder


def test_failed_training_stops_no_other(tmp_path: Path, losses: dict[float, float]) -> None:
    losses |= {5e-5: 1.1, 1e-4: 1.5}
    outcomes = train_grid(grid(tmp_path, RATES), QUIET)
    assert [each.error for each in outcomes] == [None, None, "the loss is not a number; lower train.learning_rate"]
    losses.clear()
    with pytest.raises(DataError, match="none of the 3 trainings has a held-out loss, the first: the loss is not a"):
        train_grid(grid(tmp_path, RATES), QUIET)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.lora_r=4"], r"no values to choose from: set several values for a key, e\.g\. train\.learning_rate="),
        (["train.seed=1,2"], r"train\.seed: held-out losses cannot be compared over it\. Train one value"),
        (["train.max_length=256,512"], r"train\.max_length: held-out losses cannot be compared over it"),
        (["train.learning_rate=interval(1,2)"], "an interval, not a list of values"),
        (["train.lora_r=4,0"], r"train\.lora_r=0: must be at least 1"),
        (["train.lora_r=4,8", "train.eval_fraction=0"], r"train\.eval_fraction=0: no held-out examples to choose by"),
    ],
)
def test_grid_that_cannot_be_compared_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        grid(tmp_path, *words)
