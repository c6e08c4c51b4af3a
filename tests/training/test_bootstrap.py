"""`kgqa bootstrap`: two rounds of a scripted explorer and completer, whose adapters train on a tiny random model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.schema import read
from kgqa.artifacts.trained import Rounds

pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).parents[2]
# seconds that a loaded machine may take
SLOW = 900
BRIDGE = "Question: In which town was the architect of the Candle Bridge born\\?\nKnowledge:\n"
NOVEL = "Question: Which award went to the author of The Glass Orchard\\?\nKnowledge:\n"
RULES = [
    (f"{BRIDGE}none\nSufficient:$", " No\nExplore:\n- Candle Bridge | architect\n- Candle Bridge | colour"),
    (f"{BRIDGE}<[^\n]*Ilse Ravenholt>\n<[^\n]*>\nSufficient:$", " No\nExplore:\n- Ilse Ravenholt | birthplace"),
    (f"{BRIDGE}.*Pellery>.*\nSufficient:$", " Yes\nThought: Ilse Ravenholt was born in Pellery.\nAnswer: Pellery"),
    (f"{NOVEL}none\nSufficient:$", " No\nExplore:\n- The Glass Orchard | award of its author"),
    (f"{NOVEL}.*Prize>.*\nSufficient:$", " Yes\nThought: It is the Lantern Prize.\nAnswer: Lantern Prize"),
    ("Relation: architect\nTriples:$", " <Candle Bridge; designed by; Ilse Ravenholt>"),
    ("Relation: colour\nTriples:$", " <Lantern Bridge; colour; red>"),
    ("Relation: birthplace\nTriples:$", " <Ilse Ravenholt; born in; Pellery>\n<Ilse Ravenholt; was; tall>"),
    ("Relation: award of its author\nTriples:$", " <The Glass Orchard; award of its author; Lantern Prize>"),
    ("Sufficient:$", " Yes\nThought: I guess.\nAnswer: nowhere"),
]  # fmt: skip
WORDS = (
    "dataset=demo", "engine=scripted", "engine.rules=rules.jsonl", "ranker=lexical",
    "ids=[2hop__demo_02,2hop__demo_05]", "bootstrap.ids=[2hop__demo_01,2hop__demo_30]", "bootstrap.split=null",
    "bootstrap.sample=null", "bootstrap.fewest=2", "bootstrap.rounds=2",
    "train.batch_size=2", "train.precision=float32", "train.device=cpu", "train.save_minutes=0",
    "train.lora_r=2", "train.eval_fraction=0.5", "collect.held_out=0.5",
)  # fmt: skip


def started(folder: Path, llama: Path, *more: str) -> subprocess.Popen[str]:
    rules = [json.dumps({"match": match, "reply": reply}) for match, reply in RULES]
    (folder / "rules.jsonl").write_text("\n".join(rules), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGQA_TRAINED": "", "KGQA_CACHE": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "kgqa", "bootstrap", *WORDS, f"train.base=smollm2_135m:{llama}", *more], cwd=folder,
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> Path:
    output, _ = process.communicate(timeout=SLOW)
    assert process.returncode == 0, output
    return Path(output.strip().splitlines()[-1])


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + SLOW
    while not happened():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)


def read_outputs(folder: Path) -> dict[str, bytes]:
    """Return the bytes of the examples and adapters below a folder."""
    patterns = ("examples/*/*/examples.jsonl", "trained/*/*/*/*/adapter/*.saf*")
    files = [file for pattern in patterns for file in folder.glob(f"outputs/{pattern}")]
    outputs = {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
    # of two rounds and two roles
    assert len(outputs) == 8
    return outputs


@pytest.fixture(scope="module")
def undisturbed(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where it was run, and the folder of the rounds."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, folder / ended(started(folder, llama))


def test_each_round_learns_from_earlier_right_answers(undisturbed: tuple[Path, Path]) -> None:
    place, folder = undisturbed
    zero, first, second = read(Rounds, folder / "rounds.json").rounds
    assert (zero.number, zero.run, zero.em.mean, zero.filtered.mean) == (0, None, 0, None)
    assert (first.asked, first.right) == (2, 2)
    assert first.kept == {"explorer": 5, "completer": 3}
    assert first.filtered.mean == pytest.approx(second.filtered.mean)
    # of one of the two nothing is filtered
    assert (first.filtered.low, first.filtered.n) == (0, 2)
    assert 0 < (first.filtered.mean or 0) < (first.filtered.high or 0)
    config = (place / str(second.run) / "config.yaml").read_text(encoding="utf-8")
    assert all(f"{role}: +{name}" in config for role, name in first.adapters.items())
    assert first.adapters != second.adapters


def test_killed_bootstrapping_resumes_to_equal_bytes(
    undisturbed: Any, llama: Path, tmp_path: Path
) -> None:
    process = started(tmp_path, llama)
    completer = tmp_path / "outputs/trained/knowtrace-demo/round1/completer"
    wait_for(lambda: any(completer.glob("*/checkpoints/*/trainer_state.json")), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = {
        file: file.stat().st_mtime_ns
        for file in tmp_path.glob("outputs/demo/knowtrace/scripted/*/metrics.json")
    }
    before |= {
        file: file.stat().st_mtime_ns for file in tmp_path.glob(f"outputs/trained/**/{MANIFEST}")
    }
    # round 0, the run that round 1 learns from, its explorer
    assert len(before) == 3
    ended(started(tmp_path, llama))
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert read_outputs(tmp_path) == read_outputs(undisturbed[0])


def test_too_few_right_answers_end_the_bootstrap(undisturbed: Any, llama: Path) -> None:
    place, _ = undisturbed
    for words, message in [
        (
            ("bootstrap.fewest=3", "bootstrap.filter=none"),
            "round 1: 2 of 2 answers are right, fewer than",
        ),
        (
            ("bootstrap.ids=[2hop__demo_02,2hop__demo_01]",),
            "1 of 2 questions are used for training and evaluation",
        ),
    ]:
        process = started(place, llama, *words)
        output, _ = process.communicate(timeout=SLOW)
        assert process.returncode == 2
        assert message in output
