"""`kgqa train -m` with trainers: each is trained once, and the name means the best."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.artefacts.choosing import TrainingChoice
from kgqa.artefacts.trained import Trained, find_trained, kept_trainings
from kgqa.cli import main
from tests.training import tiny

pytestmark = [pytest.mark.weights, pytest.mark.filterwarnings("ignore")]


def test_rates_are_tried_and_the_better_one_is_what_the_name_means(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.jsonl").write_text(tiny.jsonl(tiny.lines()))
    words = [
        "train", "-m", "train=kgp_llama", f"train.base=smollm2_135m:{llama}", "train.examples=lines.jsonl",
        "train.batch=2", "train.rank=4", "train.precision=float32", "train.held_out=2", "train.replies=0",
        "train.epochs=1", "train.learning_rate=5e-2,1e-4",
    ]  # fmt: skip
    assert main(words) == 0
    shown = capsys.readouterr().out
    (file,) = Path("outputs/sweeps").glob("train-kgp_llama-*/choice.json")
    record = TrainingChoice.read(file.parent)
    losses = [tried.loss for tried in record.tried]
    assert losses == [Trained.read(Path(tried.folder)).losses.held_out_after for tried in record.tried]
    assert record.chosen == 0  # at 1e-4 five steps change next to nothing
    above = record.tried[1].above
    assert above is not None
    assert above[1] > 0
    assert shown.splitlines()[-1] == record.tried[0].folder
    assert find_trained("kgp_llama") == Path(record.tried[0].folder)
    written = {kept.name: (kept.folder / "outcome.json").stat().st_mtime_ns for kept in kept_trainings()}
    assert len(written) == 2
    assert main(words) == 0
    assert {kept.name: (kept.folder / "outcome.json").stat().st_mtime_ns for kept in kept_trainings()} == written
    assert TrainingChoice.read(file.parent) == record
