"""`make attack` itself: what misbehaves is counted in its column and kept, what does not is a row of zeros."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.attack import trial as trials
from scripts.attack.judging import Harm
from scripts.attack.trial import Attack, Trial

ROOT = Path(__file__).parents[2]
MISBEHAVING = "tests.e2e.misbehaving"
HARMS = {
    "traceback": Harm.TRACEBACK,
    "code": Harm.EXIT,
    "predict": Harm.SILENT,
    "leak": Harm.KEY,
    "hang": Harm.HANG,
    "colour": Harm.CONTROL,
}


@pytest.mark.parametrize(("what", "harm"), HARMS.items())
def test_a_program_that_misbehaves_is_found_out(what: str, harm: Harm, tmp_path: Path) -> None:
    def attempt(trial: Trial) -> None:
        trial.kgqa(what, program=MISBEHAVING, limit=2.0 if what == "hang" else 60.0)
        if what == "predict":
            trial.unchanged("run/predictions.jsonl", "for a test")

    (tmp_path / "sound/run").mkdir(parents=True)
    (tmp_path / "sound/run/predictions.jsonl").write_text("right", encoding="utf-8")
    done = trials.tried(Attack("test", attempt, 1), 0, "seed", tmp_path / "try", tmp_path / "sound", real=True)
    assert {finding.harm for finding in done.findings} == {harm}


def test_a_small_attack_prints_its_table_and_repeats_by_its_seed(tmp_path: Path) -> None:
    """Of what holds: predictions of others, hostile or not."""
    tables = []
    for number in range(2):
        ended = _attack("--only", "predictions", "--size", "0.02", "--seed", "7", "--out", str(tmp_path / str(number)))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        tables.append([line for line in ended.stdout.split("\n") if line.startswith("|")])
    assert tables[0] == tables[1]
    assert tables[0][2].split(" | ")[:2] == ["| predictions", "2"]
    assert set(tables[0][2].rstrip(" |").split(" | ")[2:]) == {"0"}
    assert (tmp_path / "0/failures.jsonl").read_text(encoding="utf-8") == ""


def test_a_try_that_finds_something_is_kept_with_what_repeats_it(tmp_path: Path) -> None:
    def attempt(trial: Trial) -> None:
        trial.done.append("nothing but a bad program")
        trial.kgqa("code", program=MISBEHAVING)

    done = trials.tried(Attack("test", attempt, 1), 3, "seed", tmp_path / "try", tmp_path, real=True)
    kept = json.loads(trials.record(done, tmp_path / "kept", "make attack TRY=3"))
    assert kept["number"] == 3
    assert kept["commands"] == [["kgqa", "code"]]
    assert kept["found"][0]["harm"] == "wrong exit codes"
    assert kept["repeat"] == "make attack TRY=3"


def test_an_attack_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first = ("--only", "predictions", "--seed", "7", "--out", str(tmp_path))
    assert _attack(*first, "--size", "0.02").returncode == 0
    before = _tried(tmp_path)
    with (tmp_path / "worker-0.jsonl").open("a", encoding="utf-8") as lines:  # since then mended
        lines.write('{"seed": "7", "attack": "predictions", "number": 2, "columns": ["tried", "hangs"]}\n')
    ended = _attack(*first, "--size", "0.03", "--resume")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| predictions | 4 | 0 |" in ended.stdout
    assert sorted(_tried(tmp_path)) == sorted({*before, 2, 3})
    another = _attack("--only", "predictions", "--seed", "8", "--size", "0.01", "--resume", "--out", str(tmp_path))
    assert "| predictions | 1 | 0 |" in another.stdout


def _tried(out: Path) -> list[int]:
    lines = [line for file in out.glob("worker-*.jsonl") for line in file.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line)["number"] for line in lines]


def test_an_attack_that_is_not_there_is_refused_by_name() -> None:
    ended = _attack("--only", "nothing like it")
    assert ended.returncode == 2
    assert "choose from: data files" in ended.stderr


def _attack(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.attack", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
