"""What a training leaves: curves, card, manifest; and what is planned before it, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kgqa.artefacts.manifest import Code
from kgqa.artefacts.trained import Losses, Measured, Trained, TrainedExamples, find_trained, kept_trainings
from kgqa.errors import ConfigError, DataError, EngineDied, UsageError
from kgqa.experiment.train import exporting, planning
from kgqa.experiment.train.exporting import export_examples, export_merged
from kgqa.experiment.train.keeping import flaws, prune
from kgqa.experiment.train.planning import planned
from kgqa.experiment.train.preparing import prepared
from kgqa.experiment.train.request import TrainRequest
from kgqa.experiment.train.shapes import reckoned
from kgqa.report.training import card, curves_svg, report
from kgqa.runtime.display import QUIET
from kgqa.storage import json_text, sha256, text_digest
from kgqa.training.checkpoints import mark, newest
from kgqa.training.curves import curve, curve_csv, series
from kgqa.training.job import Job
from kgqa.training.launch import _judge, environment
from kgqa.training.order import Order
from kgqa.training.progress import Listener, Progress, Said
from kgqa.types import Json

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
        name="agent", kind="LoraTraining", recipe="kgp_llama", settings=(("train.rank", "8", "the released code"),),
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
    text = card(read)
    for told in (
        "# agent",
        "Llama 2 Community License",
        "2wiki: Apache-2.0",
        "2.5000",
        "1.4000",
        "2.0 GB",
        "kgp/evidence",
    ):
        assert told in text
    assert "| token F1 | 16.4 | 25.2 | +8.8 [+2.0, +15.0] | 32 |" in text
    page = report(read, curves_svg("agent", {"loss": ((1, 2.5), (2, 1.25))}), {"Off-topic": {"Off-topic": 3, "": 1}})
    assert "no verdict" in page
    assert "<svg" in page


def test_what_was_changed_since_is_found(tmp_path: Path) -> None:
    trained(tmp_path)
    assert flaws(tmp_path) == []
    (tmp_path / "adapter/adapter_model.safetensors").write_bytes(b"other")
    (tmp_path / "examples/train.jsonl").unlink()
    first, second = flaws(tmp_path)
    assert "another sha256 than when it was trained" in first
    assert "the examples are gone" in second
    (tmp_path / "manifest.json").write_text('{"name": "agent"}')
    with pytest.raises(DataError, match="kind is missing: damaged"):
        flaws(tmp_path)


def test_a_name_is_its_newest_finished_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_TRAINED", str(tmp_path))
    with pytest.raises(ConfigError, match="nothing is trained in"):
        find_trained("agent")
    (tmp_path / "agent/begun").mkdir(parents=True)
    (tmp_path / "agent/begun/settings.json").write_text("{}")
    with pytest.raises(ConfigError, match="its training has not ended; run its command again"):
        find_trained("agent")
    trained(tmp_path / "agent/done")
    assert find_trained("agent") == find_trained("agent/done") == tmp_path / "agent/done"
    assert {(kept.name, kept.ended) for kept in kept_trainings()} == {("agent/begun", False), ("agent/done", True)}
    with pytest.raises(ConfigError, match="nothing trained of that name; did you mean agent"):
        find_trained("agend")
    assert prune() == "checkpoints of 1 training removed: 0.00 GB"
    assert not (tmp_path / "agent/done/checkpoints").exists()
    assert flaws(tmp_path / "agent/done") == []


def test_examples_are_exported_and_a_changed_base_is_not_merged(tmp_path: Path) -> None:
    trained(tmp_path)
    [line] = [json.loads(line) for line in export_examples(tmp_path, "alpaca", None).read_text().splitlines()]
    assert line == {"instruction": "Why?\n", "input": "", "output": "So."}
    [line] = [json.loads(line) for line in export_examples(tmp_path, "sharegpt", None).read_text().splitlines()]
    assert [turn["value"] for turn in line["conversations"]] == ["Why?\n", "So."]
    manifest = replace(Trained.read(tmp_path), base="smollm2_135m")
    (tmp_path / "manifest.json").write_text(json_text(manifest.json()))
    with pytest.raises(DataError, match="its weights are b179c9523d0e now, agent was trained on ffffff"):
        export_merged(tmp_path, None, QUIET)


def test_a_merging_that_was_killed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path)
    killed = subprocess.CompletedProcess([], -9, "", "")
    monkeypatch.setattr(exporting, "_base", lambda trained: SimpleNamespace(folder=lambda tell: tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda *given, **options: killed)
    with pytest.raises(EngineDied, match="merging failed: the process ended with -9 and said nothing"):
        export_merged(tmp_path, None, QUIET)


def test_curves_hold_each_step_once(tmp_path: Path) -> None:
    """One that was taken again after a crash counts as it was taken last; half a line is passed over."""
    progress, listener = Progress(tmp_path), Listener(tmp_path)
    progress.say(Said(event="held_out", step=0, loss=3.0))
    for step, loss in ((1, 2.0), (2, 1.5), (2, 1.4)):
        progress.say(Said(event="step", step=step, epoch=0.5, loss=loss, learning_rate=1e-3, tokens=9, seconds=1.5))
    with (tmp_path / "progress.jsonl").open("a") as lines:
        lines.write('{"event": "step", "st')
    assert [said.event for said in listener.heard()] == ["held_out", "step", "step", "step"]
    assert list(listener.heard()) == []
    points = curve(tmp_path)
    assert [(point.step, point.loss, point.held_out_loss) for point in points] == [
        (0, None, 3.0),
        (1, 2.0, None),
        (2, 1.4, None),
    ]
    assert curve_csv(points).splitlines()[0] == "step,epoch,loss,held_out_loss,learning_rate,tokens,seconds"
    assert series(points)["loss"] == ((1, 2.0), (2, 1.4))


def test_of_checkpoints_the_newest_whole_one_is_taken(tmp_path: Path) -> None:
    for step in (9, 10, 11, 12):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "optimizer.pt").write_text(str(step))
        if step < 12:
            mark(tmp_path / f"checkpoint-{step}")
    (tmp_path / "checkpoint-11/optimizer.pt").unlink()
    told: list[str] = []
    assert newest(tmp_path, told.append) == tmp_path / "checkpoint-10"
    assert told == [f"{tmp_path / 'checkpoint-11'}: damaged (optimizer.pt is gone); the one before it is taken"]
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-9", "checkpoint-10"}


@pytest.mark.parametrize(
    ("code", "lines", "kind", "told"),
    [
        (2, ["warning", "kgqa: train.rank=9: too large"], UsageError, "train.rank=9: too large"),
        (1, ["kgqa: out of memory: lower it", "ChildFailedError"], UsageError, "out of memory: lower it"),
        (-9, [], EngineDied, r"the trainer died \(signal 9; killed for want of memory, perhaps\): it said nothing"),
        (1, ["Traceback", "ValueError: no"], EngineDied, r"exit code 1\): ValueError: no; what it said is in"),
        (130, ["warning"], KeyboardInterrupt, "^$"),
    ],
)
def test_how_a_trainer_ended_is_one_line(code: int, lines: list[str], kind: type[BaseException], told: str) -> None:
    job = Job(kind="LoraTraining", recipe={}, base="b", named="n", folder="f")
    with pytest.raises(kind, match=told):
        _judge(code, lines, job)


def test_processes_share_the_cores_and_one_takes_one_gpu() -> None:
    assert environment(1, {"CUDA_VISIBLE_DEVICES": "2,3"})["CUDA_VISIBLE_DEVICES"] == "2"
    several = environment(2, {"CUDA_VISIBLE_DEVICES": "2,3", "OMP_NUM_THREADS": "3"})
    assert (several["CUDA_VISIBLE_DEVICES"], several["OMP_NUM_THREADS"]) == ("2,3", "3")
    assert environment(10**6, {})["OMP_NUM_THREADS"] == "1"
    if sys.platform == "linux":
        assert several["GLOO_SOCKET_IFNAME"] == "lo"
        assert environment(2, {"GLOO_SOCKET_IFNAME": "eth1"})["GLOO_SOCKET_IFNAME"] == "eth1"


def request(folder: Path, *words: str) -> TrainRequest:
    listed: list[dict[str, Json]] = [{"prompt": f"p{n} " * 900, "completion": "c " * 90} for n in range(40)]
    (folder / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in listed))
    return TrainRequest.of("safe_evaluator", [f"train.examples={folder / 'lines.jsonl'}", "dry_run=true", *words])


def test_a_plan_of_a_model_that_is_not_here_is_reckoned_from_its_size(tmp_path: Path) -> None:
    """8.2 billion parameters, rank 64: 175 million trainable ones."""
    asked = request(tmp_path)
    plan = planned(asked, prepared(asked, QUIET))
    trainable = plan.reckoning.trainable
    assert trainable is not None
    assert 0.85 * 175e6 < trainable < 1.15 * 175e6
    assert plan.shapes is not None
    assert plan.shapes.reckoned
    assert plan.memory["base"] == pytest.approx(8.2e9 * 0.6)
    assert plan.memory["trainable"] == 16 * trainable
    assert (plan.reckoning.steps, plan.counted, plan.done) == (2, False, None)
    rows = dict(plan.rows())
    assert "estimated" in rows["time"]
    assert "not here" in rows["weights"]


def test_a_plan_counts_what_training_will_keep(tmp_path: Path) -> None:
    """Of forty examples ten are longer than 100 tokens (of four characters), which training leaves out."""
    lines = [{"prompt": f"{n:02}" + "p" * (398 if n % 4 == 0 else 98), "completion": "c" * 20} for n in range(40)]
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    words = [f"train.examples={tmp_path / 'lines.jsonl'}", "train.max_length=100", "train.max_steps=9", "train.batch=2"]
    asked = TrainRequest.of("safe_evaluator", [*words, "train.held_out=0", "dry_run=true"])
    plan = planned(asked, prepared(asked, QUIET))
    assert (plan.kept, plan.tokens, plan.longest) == (30, 30 * 31, 31)
    assert plan.reckoning.epochs == 9 * 2 / 30
    rows = dict(plan.rows())
    assert rows["examples"].startswith("40 examples")
    assert rows["left out"].startswith("10 of them, longer than train.max_length=100, estimated")
    cut = TrainRequest.of("safe_evaluator", [*words, "train.held_out=0", "train.too_long=cut", "dry_run=true"])
    assert planned(cut, prepared(cut, QUIET)).tokens == 30 * 31 + 10 * 100
    paired = [words[0], "train.max_input=60", "train.max_output=10", "train.too_long=leave_out"]
    t5 = TrainRequest.of("kgp_t5", [*paired, "train.held_out=0", "dry_run=true"])
    assert "left out" not in dict(planned(t5, prepared(t5, QUIET)).rows())  # it has no train.max_length to name


def test_more_memory_than_there_is_names_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(tmp_path, "train.quantization=none")
    monkeypatch.setattr(planning, "_room", lambda: 8e9)
    [alarm] = planned(asked, prepared(asked, QUIET)).alarms
    assert alarm == "more memory than is here; give train.quantization=nf4, or a smaller train.max_length"


@pytest.mark.parametrize(("parameters", "layers", "width"), [(8.2e9, 36, 4096), (6.7e9, 32, 4096), (70e9, 80, 8192)])
def test_layers_and_width_are_reckoned_within_a_sixth(parameters: float, layers: int, width: int) -> None:
    shapes = reckoned(parameters)
    assert abs(shapes.layers / layers - 1) < 1 / 6
    assert abs(shapes.width / width - 1) < 1 / 6


@pytest.mark.parametrize("alike", [False, True])
def test_an_epoch_has_each_example_once_in_an_order_of_its_own(tmp_path: Path, alike: bool) -> None:
    training = request(tmp_path, "train.batch=4").training
    lengths = [7 * n % 23 for n in range(30)]
    order = Order([f"q{n}" for n in range(30)], lengths, training, alike)
    first = list(order)
    assert sorted(first) == list(range(30))
    order.epoch = 1
    assert list(order) != first
    if alike:
        batches = [[lengths[place] for place in first[at : at + 4]] for at in range(0, 28, 4)]
        assert max(max(batch) - min(batch) for batch in batches) < 8
