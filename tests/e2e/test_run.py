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

METHODS = ["trace", "no_context", "all_documents", "golden"]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_leaves_everything_that_explains_it(kgqa: Kgqa, method: str) -> None:
    ran = kgqa("run", f"method={method}", "limit=3", *QUICK)
    assert ran.code == 0
    assert ran.folder.parts[:3] == ("outputs", "demo", method)
    files = {"config.yaml", "manifest.json", "predictions.jsonl", "trace.jsonl.zst", "metrics.json", "report.md"}
    assert files <= {file.name for file in ran.folder.iterdir()}
    metrics = ran.json("metrics.json")
    assert metrics["questions"] == 3
    assert metrics["failed"] == 0
    for score in ("em", "f1", "support_recall"):
        assert 0 <= metrics["scores"][score]["low"] <= metrics["scores"][score]["mean"] <= 100
    lines = [json.loads(line) for line in (ran.folder / "predictions.jsonl").read_text().splitlines()]
    assert [line["question_id"] for line in lines] == ["2hop__demo_01", "2hop__demo_02", "3hop1__demo_03"]
    assert all({"question_id", "answer", "error", "evidence"} <= set(line) for line in lines)


def test_golden_reads_exactly_the_supporting_passages(kgqa: Kgqa) -> None:
    scores = kgqa("run", "method=golden", "limit=5", *QUICK).json("metrics.json")["scores"]
    assert scores["support_recall"]["mean"] == 100
    assert scores["support_error_rate"]["mean"] == 0


def test_the_same_run_elsewhere_asks_no_model(kgqa: Kgqa) -> None:
    first = kgqa("run", "method=trace", "limit=4", *QUICK)
    before = (first.folder / "predictions.jsonl").read_bytes()
    second = kgqa("run", "method=trace", "limit=4", "name=second", *QUICK)
    assert second.folder != first.folder
    assert second.json("metrics.json")["cost"]["paid"]["calls"] == 0
    assert second.json("metrics.json")["cost"]["method"] == first.json("metrics.json")["cost"]["method"]
    assert (second.folder / "predictions.jsonl").read_bytes() == before


def test_raising_the_limit_goes_on_in_the_same_folder(kgqa: Kgqa) -> None:
    first = kgqa("run", "method=no_context", "limit=2", *QUICK)
    second = kgqa("run", "method=no_context", "limit=5", *QUICK)
    assert second.folder == first.folder
    metrics = second.json("metrics.json")
    assert metrics["questions"] == 5
    assert metrics["cost"]["paid"]["calls"] == 3


def test_chosen_ids_are_answered_in_file_order(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=no_context", "ids=[3hop1__demo_03,2hop__demo_01]", *QUICK)
    lines = (ran.folder / "predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["question_id"] for line in lines] == ["2hop__demo_01", "3hop1__demo_03"]


def test_width_changes_neither_answers_nor_folder(kgqa: Kgqa) -> None:
    wide = kgqa("run", "method=trace", "limit=6", "name=a", "max_parallel_questions=64", *QUICK)
    narrow = kgqa("run", "method=trace", "limit=6", "name=b", "max_parallel_questions=1", *QUICK)
    assert (wide.folder / "predictions.jsonl").read_bytes() == (narrow.folder / "predictions.jsonl").read_bytes()


def test_a_dry_run_shows_prompts_and_counts_and_leaves_nothing(kgqa: Kgqa, tmp_path: Path) -> None:
    ran = kgqa("run", "method=trace", "limit=2", "dry_run=true", *QUICK)
    assert ran.code == 0
    for shown in ("trace/extract", "trace/select", "reader/answer", "model calls"):
        assert shown in ran.out
    assert not list(tmp_path.glob("outputs/demo"))


def test_a_dry_run_never_estimates_less_than_the_run_asks(kgqa: Kgqa) -> None:
    planned = kgqa("run", "method=trace", "limit=3", "dry_run=true", *QUICK).out
    total = int(planned.split(" model calls")[0].splitlines()[-1].replace(",", ""))
    cost = kgqa("run", "method=trace", "limit=3", *QUICK).json("metrics.json")["cost"]
    asked = cost["method"]["calls"] + cost["extraction_paid"]["calls"]
    assert asked <= total
    after = kgqa("run", "method=trace", "limit=3", "dry_run=true", *QUICK).out
    assert "0 of them to be asked" in after


def test_show_prints_a_run_and_one_question(kgqa: Kgqa) -> None:
    folder = str(kgqa("run", "method=trace", "limit=2", *QUICK).folder)
    assert "2hop__demo_01" in kgqa("show", folder).out
    shown = kgqa("show", folder, "2hop__demo_01").out
    for part in ("passages", "triples", "chains", "trace/select", "answer:", "gold:   Pellery"):
        assert part in shown


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


def test_many_failed_extractions_stop_the_run_and_are_tried_again(kgqa: Kgqa) -> None:
    """A limit the instruction alone exceeds: every passage fails, and nothing empty is kept in their place."""
    for _ in range(2):
        ran = kgqa("run", "method=trace", "limit=2", "kg.max_prompt_tokens=60", *QUICK)
        assert ran.code == 3
        assert "extraction failed for" in ran.err
        assert "kg.max_prompt_tokens=60" in ran.err
    assert not list(Path("outputs/kg").rglob("extractions.sqlite"))


def test_a_role_may_have_an_engine_of_its_own(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=no_context", "limit=1", "roles.selector=qwen2_5_coder_1_5b@scripted", *QUICK)
    assert ran.code == 0
    assert set(ran.json("manifest.json")["models"]) == {"default", "selector"}


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_groups(kgqa: Kgqa, option: str) -> None:
    ran = kgqa("run", option)
    assert ran.code == 0
    for part in ("method", "trace", "all_documents", "smollm2_135m", "limit=", "dry_run="):
        assert part in ran.out


SLOW = ["run", "method=trace", "limit=12", "engine.batch_size=4", "engine.delay=0.05", *QUICK]


def test_a_run_killed_at_random_moments_resumes_to_the_same_bytes(kgqa: Kgqa, tmp_path: Path) -> None:
    """kill -9 five times, then once to the end: no committed call is asked again."""
    generator, paid = random.Random(7), 0
    for _ in range(5):
        kept = replies_kept(tmp_path)
        running = started([*SLOW, "name=killed"], tmp_path)
        wait_for_replies(tmp_path, kept + generator.randint(1, 150))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert running.returncode == -signal.SIGKILL
    kept = replies_kept(tmp_path)
    resumed = kgqa(*SLOW, "name=killed")
    assert resumed.code == 0
    total = replies_kept(tmp_path)
    cost = resumed.json("metrics.json")["cost"]
    paid = cost["paid"]["calls"] + cost["extraction_paid"]["calls"]
    assert paid <= total - kept
    after_kills = lasting(resumed.folder)
    whole = kgqa(*SLOW, "name=whole")
    assert (resumed.folder / "predictions.jsonl").read_bytes() == (whole.folder / "predictions.jsonl").read_bytes()
    assert whole.json("metrics.json")["cost"]["paid"]["calls"] == 0
    elsewhere = tmp_path / "elsewhere"  # an uninterrupted run that shares no cache
    elsewhere.mkdir()
    uninterrupted = started([*SLOW, "name=killed"], elsewhere)
    assert uninterrupted.wait() == 0
    uninterrupted.communicate()
    assert lasting(elsewhere / resumed.folder) == after_kills


@pytest.mark.parametrize("earlier", ["nothing", "a run scored otherwise"])
def test_a_run_killed_before_each_file_that_it_writes_resumes_to_the_same_bytes(
    earlier: str, kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in its folder meanwhile is one run's: no scores of the earlier one under this one's settings."""
    command = ["run", "method=golden", "limit=2", "profile=drop", *QUICK]
    if earlier != "nothing":
        assert kgqa(*command, "profile=hotpotqa").code == 0
    codes, out = [-signal.SIGKILL.value], ""
    while codes[-1] == -signal.SIGKILL:
        code, out = killed_at_file(len(codes), command, tmp_path)
        codes.append(code)
        for metrics in tmp_path.glob("outputs/demo/*/*/*/metrics.json"):
            profile = load_yaml(metrics.parent / "config.yaml")["profile"]
            assert json.loads(metrics.read_text())["profile"] == profile
    assert codes[-1] == 0
    assert len(codes) > 7  # config, manifest, predictions, trace, metrics, settings, report
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
    assert "interrupted; the same command goes on" in err
    assert "Traceback" not in err
    kept = replies_kept(tmp_path)
    assert kgqa(*SLOW).code == 0
    assert replies_kept(tmp_path) > kept


def test_a_run_whose_ctrl_c_is_switched_off_says_so_and_how_to_stop_it(kgqa: Kgqa) -> None:
    assert "Ctrl-C" not in kgqa("run", "limit=1", *QUICK).err
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for `kgqa run … &` in a script
    try:
        (line,) = [line for line in kgqa("run", "limit=1", *QUICK).err.splitlines() if "Ctrl-C" in line]
    finally:
        signal.signal(signal.SIGINT, before)
    assert line.startswith("kgqa: started in the background, where Ctrl-C is switched off; kill ")


def test_two_runs_may_share_the_outputs_at_once(tmp_path: Path) -> None:
    runs = [started([*SLOW, f"name=run{number}"], tmp_path) for number in range(2)]
    assert [run.wait(120) for run in runs] == [0, 0]
    folders = [Path(run.communicate()[0].strip().splitlines()[-1]) for run in runs]
    first, second = ((tmp_path / folder / "predictions.jsonl").read_bytes() for folder in folders)
    assert first == second


def test_a_plan_shows_of_each_prompt_its_beginning_and_its_end(kgqa: Kgqa) -> None:
    planned = kgqa("run", "method=ircot", "limit=1", "dry_run=true", *QUICK).out.splitlines()
    assert len(planned) < 70
    assert any("lines more; all of them, of a run: kgqa show RUN QUESTION --calls" in line for line in planned)
    assert any("1 question, planned with made-up replies" in line for line in planned)
