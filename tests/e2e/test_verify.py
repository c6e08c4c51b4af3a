"""`kgqa data verify`: verdicts in a folder, nothing asked twice, and what is wrong said in one line."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from tests.e2e.conftest import Kgqa
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
    assert "engine=scripted calls no model" in report
    first, second = lines(ran.folder)[:2]
    assert first["path"] == TRIPLES["triples"]
    assert (first["graph"], len(second["graph"])) == ([], 2)


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
    dry = verified(kgqa, tmp_path, "limit=3", "dry_run=true", "--prompts")
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


def test_output_dir_of_another_verification_is_refused(kgqa: Kgqa, tmp_path: Path) -> None:
    first = verified(kgqa, tmp_path, "limit=2", "output_dir=out")
    assert (first.code, first.folder) == (0, Path("out"))
    written = (first.folder / "verdicts.jsonl").read_bytes()
    other = verified(kgqa, tmp_path, "limit=2", "verify.gleaning_rounds=0", "output_dir=out")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "out belongs to another configuration. It differs in " in other.err
    assert "verify.gleaning_rounds (2 → 0)" in other.err
    assert (first.folder / "verdicts.jsonl").read_bytes() == written
    assert "no model calls" in verified(kgqa, tmp_path, "limit=2", "output_dir=out").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("method=trace",), "method=trace: not a key of kgqa data verify"),
        (("verify.rounds=3",), "verify.rounds=3: unknown key"),
        (("verify.gleaning_rounds=-1",), "verify.gleaning_rounds=-1: must be at least 0"),
        (("verify.unparsable=valid",), "verify.unparsable=valid: must be 'unverified' or 'noise'"),
        (("budget=some",), "budget=some: expected dollars or tokens"),
        (("ids=[2hop__demo_01]", "verify.swap_answers=true"), "no question has another answer"),
        (("verify.list=nowhere.txt", "verify.swap_answers=true"), "verify.list= uses no paths to answers"),
        (("verify=null",), "verify=null: choose how to verify. Choose from: safe"),
        (("verify.list=nowhere.txt",), "verify.list=nowhere.txt: No such file or directory. Name a UTF-8 file"),
    ],
)
def test_what_is_wrong_is_one_line(kgqa: Kgqa, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = verified(kgqa, tmp_path, *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


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
