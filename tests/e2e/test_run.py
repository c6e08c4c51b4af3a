"""The whole way from a command line to a folder, with an engine that needs no weights."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import pytest

from kgqa.config.files import load_yaml
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import killed_at_file, lasting, replies_kept, started, wait_for_replies


@pytest.mark.parametrize("method", ["trace", "golden"])
def test_a_run_leaves_everything_that_explains_it(kgqa: Kgqa, method: str) -> None:
    ran = kgqa("run", f"method={method}", "limit=3", *QUICK)
    assert ran.code == 0
    assert ran.folder.parts[:3] == ("outputs", "demo", method)
    files = {"config.yaml", "manifest.json", "predictions.jsonl", "trace.jsonl.zst", "metrics.json", "report.md"}
    assert files <= {file.name for file in ran.folder.iterdir()}
    metrics = ran.json("metrics.json")
    assert (metrics["questions"], metrics["failed"]) == (3, 0)
    assert method != "golden" or metrics["scores"]["support_recall"]["mean"] == 100
    for score in ("em", "f1", "support_recall"):
        assert 0 <= metrics["scores"][score]["low"] <= metrics["scores"][score]["mean"] <= 100
    predictions = (ran.folder / "predictions.jsonl").read_bytes()
    lines = [json.loads(line) for line in predictions.splitlines()]
    assert [line["question_id"] for line in lines] == ["2hop__demo_01", "2hop__demo_02", "3hop1__demo_03"]
    assert list(lines[0])[:8] == ["question_id", "question", "gold", "answer", "error", "em", "f1", "evidence"]
    assert sum(line["f1"] for line in lines) / 3 == pytest.approx(metrics["scores"]["f1"]["mean"], abs=1e-3)
    second = kgqa("run", f"method={method}", "limit=3", "run_name=second", "max_parallel_questions=1", *QUICK)
    assert second.folder != ran.folder
    assert second.json("metrics.json")["cost"]["paid"]["calls"] == 0
    assert second.json("metrics.json")["cost"]["method"] == metrics["cost"]["method"]
    assert (second.folder / "predictions.jsonl").read_bytes() == predictions


def test_a_dry_run_never_estimates_less_than_the_run_asks(kgqa: Kgqa) -> None:
    planned = kgqa("run", "method=trace", "limit=3", "dry_run=true", *QUICK).out
    with_prompts = kgqa("run", "method=trace", "limit=3", "dry_run=true", "--prompts", *QUICK).out
    assert all(template in with_prompts for template in ("trace/extract", "trace/select", "reader/answer"))
    assert with_prompts.endswith(planned)
    assert len(planned.splitlines()) < 25
    assert not Path("outputs/demo").exists()
    total = int(planned.split(" model calls")[0].splitlines()[-1].replace(",", ""))
    cost = kgqa("run", "method=trace", "limit=3", *QUICK).json("metrics.json")["cost"]
    asked = cost["method"]["calls"] + cost["extraction_paid"]["calls"]
    assert asked <= total
    after = kgqa("run", "method=trace", "limit=3", "dry_run=true", *QUICK).out
    assert "0 of them new" in after


def test_triples_are_built_ahead_and_read_offline(kgqa: Kgqa) -> None:
    assert kgqa("kg", "build", "limit=2", *QUICK).code == 0
    ran = kgqa("run", "method=trace", "limit=2", "kg.require_existing=true", *QUICK)
    assert ran.code == 0
    assert ran.json("metrics.json")["cost"]["extraction_paid"]["calls"] == 0
    stats = kgqa("kg", "stats", "limit=2", *QUICK)
    assert "triples per question" in stats.out
    refused = kgqa("run", "method=trace", "limit=9", "kg.require_existing=true", *QUICK)
    assert refused.code == 2
    assert "kgqa kg build dataset=demo" in refused.err


SLOW = ["run", "method=trace", "limit=3", "engine.batch_size=4", "engine.delay=0.05", *QUICK]


def test_a_run_killed_at_random_moments_resumes_to_the_same_bytes(kgqa: Kgqa, tmp_path: Path) -> None:
    """kill -9 twice, then once to the end: no committed call is asked again."""
    generator = random.Random(7)
    for _ in range(2):
        kept = replies_kept(tmp_path)
        running = started([*SLOW, "run_name=killed"], tmp_path)
        wait_for_replies(tmp_path, kept + generator.randint(1, 25))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert running.returncode == -signal.SIGKILL
    kept = replies_kept(tmp_path)
    resumed = kgqa(*SLOW, "run_name=killed")
    assert resumed.code == 0
    cost = resumed.json("metrics.json")["cost"]
    assert cost["paid"]["calls"] + cost["extraction_paid"]["calls"] <= replies_kept(tmp_path) - kept
    elsewhere = tmp_path / "elsewhere"  # an uninterrupted run that shares no cache
    elsewhere.mkdir()
    uninterrupted = started([*SLOW, "run_name=killed"], elsewhere)
    uninterrupted.communicate()
    assert uninterrupted.returncode == 0
    assert lasting(elsewhere / resumed.folder) == lasting(resumed.folder)


def test_a_run_killed_before_every_sixth_file_resumes_to_the_same_bytes(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in its folder meanwhile is one run's: no scores of the earlier one under this one's settings.

    tests/unit/test_folder.py kills within a process, at every write.
    """
    command = ["run", "method=golden", "limit=2", "scoring=drop", "run_name=a", *QUICK]
    assert kgqa(*command, "scoring=hotpotqa").code == 0
    codes, out = [-signal.SIGKILL.value], ""
    while codes[-1] == -signal.SIGKILL:
        code, out = killed_at_file(2 + 6 * (len(codes) - 1), command, tmp_path)
        codes.append(code)
        for metrics in tmp_path.glob("outputs/demo/*/*/*/metrics.json"):
            profile = load_yaml(metrics.parent / "config.yaml")["scoring"]
            assert json.loads(metrics.read_text())["profile"] == profile
    assert codes[-1] == 0
    assert len(codes) > 2  # of config, manifest, predictions, trace, metrics, settings, report
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    whole = kgqa(*command).folder
    assert out.strip().splitlines()[-1] == str(whole)
    assert lasting(tmp_path / whole) == lasting(elsewhere / whole)


def test_ctrl_c_saves_and_says_how_to_go_on(kgqa: Kgqa, tmp_path: Path) -> None:
    running = started(SLOW, tmp_path)
    wait_for_replies(tmp_path, 10)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "interrupted. Run the same command again" in err
    assert "Traceback" not in err
    kept = replies_kept(tmp_path)
    assert kgqa(*SLOW).code == 0
    assert replies_kept(tmp_path) > kept


def test_a_full_disk_stops_the_run_and_the_same_command_goes_on(kgqa: Kgqa, tmp_path: Path) -> None:
    """A limit on file size is refused by the kernel like a full disk, and needs no privileges."""
    arguments = ["run", "method=trace", "limit=6", *QUICK]
    running = started(arguments, tmp_path, file_limit=60_000)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 2
    assert "Free disk space or set KGQA_CACHE" in err
    assert all(line.startswith("kgqa: ") for line in err.splitlines())  # what is wrong, what is kept, how to go on
    kept = replies_kept(tmp_path)
    assert kept > 0
    ran = kgqa(*arguments)
    assert ran.code == 0
    cost = ran.json("metrics.json")["cost"]
    assert cost["paid"]["calls"] + cost["extraction_paid"]["calls"] <= replies_kept(tmp_path) - kept


def test_a_model_that_writes_garbage_or_nothing_is_counted_and_not_lost(kgqa: Kgqa, tmp_path: Path) -> None:
    rules = tmp_path / "rules.jsonl"
    rules.write_text(
        json.dumps({"match": "Title:", "reply": "<<;;>\x00 ; <a;b>"}) + "\n" + json.dumps({"match": ".", "reply": ""})
    )
    ran = kgqa("run", "method=trace", "limit=2", f"engine.rules={rules}", *QUICK)
    assert ran.code == 0
    metrics = ran.json("metrics.json")
    assert metrics["failed"] == 0
    assert metrics["answerless"] == 2
    assert metrics["flags"]["empty_answer"] == 2
    assert metrics["flags"]["no_chain"] == 2
    assert metrics["graph"]["malformed"] > 0
    assert metrics["scores"]["em"]["mean"] == 0
