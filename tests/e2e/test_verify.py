"""`kgqa data verify`: verdicts in a folder, nothing asked twice, and what is wrong said in one line."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from kgqa.util.fs import package_folder
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import replies_kept, started, wait_for_replies
from tests.e2e.verifying import TRIPLES, lines, of_questions, outcome, rules, verified


def test_each_question_gets_a_verdict_and_the_report_has_table_2s_columns(kgqa: Kgqa, tmp_path: Path) -> None:
    ran = verified(kgqa, tmp_path, "limit=9")
    assert (ran.code, ran.err) == (0, "")
    assert ran.folder.parent == Path("outputs/verified/demo")
    verdicts = of_questions(ran.folder)
    assert verdicts["2hop__demo_01"] == "valid"
    assert verdicts["2hop__demo_09"] == "unverified"
    counts = outcome(ran.folder)
    assert [counts[name] for name in ("questions", "valid", "noise", "unverified", "failed")] == [9, 1, 7, 1, 0]
    assert counts["noise_percent"]["mean"] == pytest.approx(700 / 9)
    assert counts["flags"]["unparsable_path"] == 2
    report = (ran.folder / "report.md").read_text()
    assert "|  | Total | Noise | Valid | Unverified | Ratio |" in report
    assert "| triples gleaned in round 1 |" in report
    assert "made up" in report
    first, second = lines(ran.folder)[:2]
    assert first["path"] == TRIPLES["triples"]
    assert (first["graph"], len(second["graph"])) == ([], 2)


def test_the_same_command_again_asks_nothing(kgqa: Kgqa, tmp_path: Path) -> None:
    first = verified(kgqa, tmp_path, "limit=3")
    kept, manifest = replies_kept(tmp_path), (first.folder / "manifest.json").read_bytes()
    again = verified(kgqa, tmp_path, "limit=3")
    assert again.folder == first.folder
    assert "no model calls" in again.out
    assert (replies_kept(tmp_path), (first.folder / "manifest.json").read_bytes()) == (kept, manifest)


@pytest.mark.parametrize("name", ["verdicts.jsonl", "manifest.json"])
def test_a_file_that_is_gone_is_made_again_from_the_call_cache(kgqa: Kgqa, tmp_path: Path, name: str) -> None:
    first = verified(kgqa, tmp_path, "limit=3")
    verdicts = (first.folder / "verdicts.jsonl").read_bytes()
    (first.folder / name).unlink()
    again = verified(kgqa, tmp_path, "limit=3")
    assert (again.folder / "verdicts.jsonl").read_bytes() == verdicts
    assert outcome(again.folder)["cost"]["paid"]["calls"] == 0


def test_a_verification_killed_on_the_way_asks_no_reply_again(kgqa: Kgqa, tmp_path: Path) -> None:
    command = ("limit=6", "engine.delay=0.3", "engine.batch_size=2")
    process = started(("data", "verify", "engine=scripted", rules(tmp_path), *command), tmp_path)
    wait_for_replies(tmp_path, 8)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = replies_kept(tmp_path)
    assert not list(tmp_path.glob("outputs/verified/demo/*/manifest.json"))
    resumed = verified(kgqa, tmp_path, *command)
    asked = outcome(resumed.folder)["cost"]["paid"]["calls"]
    whole = tmp_path / "whole"
    whole.mkdir()
    process = started(("data", "verify", "engine=scripted", rules(tmp_path), *command), whole)
    process.communicate()
    assert kept + asked == replies_kept(whole) == replies_kept(tmp_path)
    assert asked < replies_kept(whole)
    written = [folder / resumed.folder / "verdicts.jsonl" for folder in (tmp_path, whole)]
    assert written[0].read_bytes() == written[1].read_bytes()


def test_a_dry_run_counts_every_call_and_asks_none(kgqa: Kgqa, tmp_path: Path) -> None:
    dry = verified(kgqa, tmp_path, "limit=3", "dry_run=true")
    # seven gold passages, each extracted and gleaned twice; names and path of each question
    assert (dry.code, "27 model calls" in dry.out) == (0, True)
    assert all(f"verify/{name} (verifier)" in dry.out for name in ("triples", "glean", "resolve", "path"))
    assert not (tmp_path / "outputs/verified").exists()


def test_what_failed_is_asked_again_and_is_no_noise(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Scripted.answer

    def refused(self: Scripted, calls: Sequence[Any]) -> Sequence[Any]:
        fails = [call.prompt.name == "verify/path" and "Answer: Pellery" in self.render(call) for call in calls]
        replies = answer(self, calls)
        return [EngineError("no reply") if failed else reply for failed, reply in zip(fails, replies, strict=True)]

    monkeypatch.setattr(Scripted, "answer", refused)
    lost = verified(kgqa, tmp_path, "limit=3")
    assert lost.code == 2
    assert "1 of 3 questions failed, above max_failure_rate=0.05: 2hop__demo_01: EngineError: no reply" in lost.out
    assert lines(lost.folder)[0]["error"] == "EngineError: no reply"
    assert of_questions(lost.folder)["2hop__demo_01"] == "unverified"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    again = verified(kgqa, tmp_path, "limit=3")
    assert (again.code, again.folder, outcome(again.folder)["failed"]) == (0, lost.folder, 0)
    assert outcome(again.folder)["cost"]["paid"]["calls"] == 1


def test_swapped_answers_are_noise_and_agreement_is_told(kgqa: Kgqa, tmp_path: Path) -> None:
    plain = verified(kgqa, tmp_path, "limit=4")
    swapped = verified(kgqa, tmp_path, "limit=4", "verify.swap_answers=true")
    first, *others = [line["answer"] for line in lines(plain.folder)]
    assert [first, *others] == ["Pellery", "Candle Bridge", "Maude Ferrant", "Hedley Marne"]
    assert [line["answer"] for line in lines(swapped.folder)] == [*others, first]
    assert outcome(swapped.folder)["cost"]["paid"]["calls"] == 4  # what has no answer in it was asked before
    # valid, noise, noise, noise beside noise, noise, noise, valid: 2 of 4 agree, 10 of 16 by chance
    assert f"50.00 % of 4 verdicts agree, Cohen's kappa {(2 / 4 - 10 / 16) / (1 - 10 / 16):.3f}" in swapped.out
    assert "answers swapped" in swapped.out
    assert f"Agreement with smollm2_135m@scripted, answers swapped ({swapped.folder.name})" in verified(
        kgqa, tmp_path, "limit=4"
    ).out  # fmt: skip


def test_the_released_rule_counts_what_cannot_be_read_as_noise(kgqa: Kgqa, tmp_path: Path) -> None:
    ran = verified(kgqa, tmp_path, "ids=[2hop__demo_09]", "verify.unparsable=noise")
    assert of_questions(ran.folder) == {"2hop__demo_09": "noise"}


def test_a_role_has_a_model_of_its_own(kgqa: Kgqa, tmp_path: Path) -> None:
    ran = verified(kgqa, tmp_path, "limit=1", "roles.verifier=qwen2_5_coder_1_5b@scripted")
    assert outcome(ran.folder)["by"] == "qwen2_5_coder_1_5b@scripted"
    reader = verified(kgqa, tmp_path, "limit=1", "roles.reader=qwen3_4b@scripted")
    assert outcome(reader.folder)["by"] == "qwen3_4b@scripted"


def test_a_budget_stops_between_questions_and_the_same_command_goes_on(kgqa: Kgqa, tmp_path: Path) -> None:
    few = ("limit=3", "max_parallel_questions=1")
    stopped = verified(kgqa, tmp_path, *few, "budget=600tokens")
    assert (stopped.code, "budget=600tokens, 1," in stopped.err) == (2, True)
    assert "the same command continues with a higher budget" in stopped.err
    kept = replies_kept(tmp_path)
    assert kept > 0
    ended = verified(kgqa, tmp_path, *few, "budget=600000tokens")
    assert ended.code == 0
    assert outcome(ended.folder)["cost"]["paid"]["calls"] == replies_kept(tmp_path) - kept > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("method=trace",), "method=trace: not a key of kgqa data verify"),
        (("verify.rounds=3",), "verify.rounds=3: unknown key"),
        (("verify.gleaning_rounds=-1",), "verify.gleaning_rounds=-1: must be at least 0"),
        (("verify.unparsable=valid",), "verify.unparsable=valid: input should be 'unverified' or 'noise'"),
        (("budget=some",), "budget=some: expected dollars or tokens"),
        (("ids=[2hop__demo_01]", "verify.swap_answers=true"), "no question has another answer"),
        (("verify.list=nowhere.txt", "verify.swap_answers=true"), "verify.list= uses no paths to answers"),
        (("verify=null",), "verify=null: choose how to verify; choose from: safe"),
        (("verify.list=nowhere.txt",), "verify.list=nowhere.txt: No such file or directory; give a file"),
    ],
)
def test_what_is_wrong_is_one_line(kgqa: Kgqa, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = verified(kgqa, tmp_path, *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_another_ones_folder_is_refused(kgqa: Kgqa, tmp_path: Path) -> None:
    assert verified(kgqa, tmp_path, "limit=1", "out=mine").folder == Path("mine")
    refused = verified(kgqa, tmp_path, "limit=2", "out=mine")
    assert refused.code == 2
    assert "mine belongs to another configuration; it differs in questions" in refused.err


def test_the_manifest_says_what_made_which_files(kgqa: Kgqa, tmp_path: Path) -> None:
    manifest = json.loads((verified(kgqa, tmp_path, "limit=1").folder / "manifest.json").read_text())
    assert manifest["stage"] == "verify"
    assert manifest["origin"]["command"][:2] == ["kgqa", "verify"]
    assert set(manifest["files"]) == {"verdicts.jsonl"}


def test_table_2_is_verified_and_what_is_verified_is_left_alone(kgqa: Kgqa, tmp_path: Path) -> None:
    given = ("model=smollm2_135m", "dataset=demo", "limit=3", "engine=scripted", rules(tmp_path))
    command = ("reproduce", "safe/table2", *given, "only=Val,MuSiQue")
    dry = kgqa(*command, "dry_run=true")
    assert (dry.code, " 27 " in dry.out) == (0, True)
    ran = kgqa(*command)
    assert ran.code == 0
    table = ran.json("table.json")
    ours = {line["metric"]["name"]: line["ours"]["mean"] for line in table["lines"]}
    assert ours == {"Total": 3, "Noise": 2, "Ratio": pytest.approx(200 / 3)}
    assert [line["published"]["number"] for line in table["lines"]] == [2412, 342, 14.18]
    (cell,) = table["cells"]
    assert cell["command"].startswith("kgqa data verify verify=safe model=smollm2_135m dataset=demo limit=3")
    manifest = Path(cell["run"]) / "manifest.json"
    written = manifest.stat().st_mtime_ns
    assert kgqa(*command).code == 0
    assert manifest.stat().st_mtime_ns == written
    assert kgqa(*cell["command"].split()[1:]).folder == Path(cell["run"])


def test_cells_in_processes_of_their_own_give_the_same_table(kgqa: Kgqa, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs kgqa[joblib]")
    given = ("model=smollm2_135m", "dataset=demo", "limit=3", "engine=scripted", rules(tmp_path))
    ran = kgqa("reproduce", "safe/table2", *given, "only=Val,MuSiQue", "hydra/launcher=joblib")
    assert [line["ours"]["mean"] for line in ran.json("table.json")["lines"]][:2] == [3, 2]


def test_the_papers_counts_stand_beside_ours(kgqa: Kgqa, tmp_path: Path) -> None:
    records = [json.loads(line) for line in (package_folder() / "datasets" / "demo.jsonl").read_text().splitlines()]
    file = tmp_path / "musique.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    ran = verified(kgqa, tmp_path, "dataset=musique", f"dataset.path={file}", "limit=2")
    assert "| SAFE, Table 2 | 2,412 | 342 | – | – | 14.18 % |" in (ran.folder / "report.md").read_text()
    assert "SAFE, Table 2" not in verified(kgqa, tmp_path, "limit=2").out


def test_runs_and_sweeps_verify_nothing(kgqa: Kgqa) -> None:
    for command in (("run",), ("run", "-m")):
        ran = kgqa(*command, "verify=safe", "limit=1", "method=no_context", *QUICK)
        assert ran.code == 2
        assert "verify=safe: a run answers questions; use kgqa data verify" in ran.err
