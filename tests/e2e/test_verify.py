"""`kgqa data verify`: verdicts, and runs over verified questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.predictions import question_ids
from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from kgqa.types import Json
from kgqa.util.fs import text_digest
from tests.e2e.conftest import QUICK, Kgqa, Ran, before_each_call, lines_of, refused, write_rules


def test_each_question_gets_a_verdict_and_the_report_has_table_2s_columns(kgqa: Kgqa, tmp_path: Path) -> None:
    dry = verified(kgqa, tmp_path, "limit=3", "dry_run=true", "--prompts")
    # seven gold passages, each extracted and gleaned twice; names and path of each question
    assert (dry.code, "27 model calls" in dry.out) == (0, True)
    assert all(f"verify/{name} (verifier)" in dry.out for name in ("triples", "glean", "resolve", "path"))
    assert not (tmp_path / "outputs/verified").exists()
    ran = verified(kgqa, tmp_path, "limit=9", "output_dir=out")
    assert (ran.code, ran.err, ran.folder) == (0, "", Path("out"))
    verdicts = of_questions(ran.folder)
    assert verdicts["2hop__demo_01"] == "valid"
    assert verdicts["2hop__demo_09"] == "unverified"
    counts = outcome(ran.folder)
    assert [counts[name] for name in ("questions", "valid", "noise", "unverified", "failed")] == [9, 1, 7, 1, 0]
    assert counts["noise_percent"]["mean"] == pytest.approx(700 / 9)
    assert counts["flags"]["unparsable_path"] == 2
    report = (ran.folder / "report.md").read_text()
    assert "|  | Total | Noise | Valid | Unverified | Ratio |" in report
    first, second = lines(ran.folder)[:2]
    assert first["path"] == TRIPLES["triples"]
    assert (first["graph"], len(second["graph"])) == ([], 2)
    written = (ran.folder / "verdicts.jsonl").read_bytes()
    other = verified(kgqa, tmp_path, "limit=9", "verify.gleaning_rounds=0", "output_dir=out")
    refused(other, "out belongs to another configuration. It differs in ")
    assert "verify.gleaning_rounds (2 → 0)" in other.err
    assert (ran.folder / "verdicts.jsonl").read_bytes() == written
    assert "no model calls" in verified(kgqa, tmp_path, "limit=9", "output_dir=out").out


def test_what_failed_is_asked_again_and_is_no_noise(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(engine: Scripted, call: Any) -> EngineError | None:
        fails = call.prompt.name == "verify/path" and "Answer: Pellery" in engine.render(call)
        return EngineError("no reply") if fails else None

    before_each_call(monkeypatch, fail)
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


def test_what_is_wrong_is_one_line(kgqa: Kgqa, tmp_path: Path) -> None:
    for arguments, said in [
        (("method=trace",), "method=trace: not a key of kgqa data verify"),
        (("ids=[2hop__demo_01]", "verify.swap_answers=true"), "no question has another answer"),
        (("verify.list=nowhere.txt", "verify.swap_answers=true"), "verify.list= uses no paths to answers"),
        (("verify.list=nowhere.txt",), "verify.list=nowhere.txt: No such file or directory. Name a UTF-8 file"),
    ]:
        refused(verified(kgqa, tmp_path, *arguments), said)


def test_table_2_is_verified_and_what_is_verified_is_left_alone(kgqa: Kgqa, tmp_path: Path) -> None:
    given = ("model=smollm2_135m", "dataset=demo", "limit=3", "engine=scripted", rules(tmp_path))
    command = ("reproduce", "safe/table2", *given, "only=Val,MuSiQue")
    dry = kgqa(*command, "dry_run=true")
    assert (dry.code, " 27 " in dry.out) == (0, True)
    ran = kgqa(*command)
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


TRIPLES = {"triples": [["Candle Bridge", "designed_by", "Ilse Ravenholt"], ["Ilse Ravenholt", "born_in", "Pellery"]]}
RULES = [
    ("Missing:$", {"triples": []}),
    ("Groups:$", {"groups": [["Ilse Ravenholt", "Candle Bridge"]]}),
    ("Answer: Pellery\n.*Path:$", {"is_valid": True, "reasoning_path": TRIPLES["triples"], "explanation": "by birth"}),
    ("Answer: 1846\n.*Path:$", "I cannot say."),  # of 2hop__demo_09
    ("Path:$", {"is_valid": False, "reasoning_path": [], "explanation": "nothing says so"}),
    ("Triples:$", TRIPLES),
]


def rules(folder: Path) -> str:
    return write_rules(RULES, folder / "rules.jsonl")


def verified(kgqa: Kgqa, folder: Path, *more: str) -> Ran:
    return kgqa("data", "verify", "engine=scripted", rules(folder), *more)


def outcome(folder: Path) -> Json:
    return json.loads((folder / "manifest.json").read_text())["outcome"]


def lines(folder: Path) -> list[Json]:
    return lines_of(folder / "verdicts.jsonl")


def of_questions(folder: Path) -> dict[str, str]:
    return {line["id"]: line["verdict"] for line in lines(folder)}


RUN = ("run", "method=no_context", *QUICK)


def _texts(kgqa: Kgqa, tmp_path: Path, ids: list[str]) -> list[str]:
    whole = lines(verified(kgqa, tmp_path).folder)
    return [line["question"] for line in whole if line["id"] in ids]


def _listed(kgqa: Kgqa, tmp_path: Path, texts: list[str]) -> Ran:
    file = tmp_path / "wrong.txt"
    file.write_text("\n".join([*texts, ""]), encoding="utf-8")
    return kgqa("data", "verify", f"verify.list={file}")


def test_a_list_in_place_of_a_model_is_matched_and_compared(kgqa: Kgqa, tmp_path: Path) -> None:
    ours = verified(kgqa, tmp_path)
    texts = _texts(kgqa, tmp_path, ["2hop__demo_02", "2hop__demo_09"])
    ran = _listed(kgqa, tmp_path, [*texts, "Who is nobody?"])
    counts = outcome(ran.folder)
    assert "1 of 3 lines match no question: Who is nobody?" in ran.out
    assert [counts[name] for name in ("questions", "valid", "noise", "unverified")] == [36, 34, 2, 0]
    # 35 were decided by both: one valid and valid, one noise and noise, 33 noise here and valid there
    assert outcome(ours.folder)["unverified"] == 1
    chance = (1 * 34 + 34 * 1) / 35**2
    kappa = (2 / 35 - chance) / (1 - chance)
    assert f"{100 * 2 / 35:.2f} % of 35 verdicts agree, Cohen's kappa {kappa:.3f} [" in ran.out
    assert "list wrong.txt" in verified(kgqa, tmp_path).out


def test_a_run_asks_only_verified_questions_and_samples_of_these(kgqa: Kgqa, tmp_path: Path) -> None:
    flagged = ["2hop__demo_01", "2hop__demo_02", "3hop1__demo_03"]
    folder = _listed(kgqa, tmp_path, _texts(kgqa, tmp_path, flagged)).folder
    valid = [id_ for id_, verdict in of_questions(folder).items() if verdict == "valid"]
    chosen = f"dataset.verified={folder}"
    assert question_ids(kgqa(*RUN, chosen).folder) == valid
    assert question_ids(kgqa(*RUN, chosen, "limit=2").folder) == valid[:2]
    drawn = set(sorted(valid, key=lambda id_: (text_digest(f"0 {id_}"), id_))[:5])
    assert set(question_ids(kgqa(*RUN, chosen, "sample=5").folder)) == drawn
    assert "sample=34: only 33 questions. Remove sample=" in kgqa(*RUN, chosen, "sample=34").err
    said = "ids=2hop__demo_01: no such question among the verified questions of dataset=demo"
    refused(kgqa(*RUN, chosen, "ids=[2hop__demo_01]"), said)
    plain, restricted = kgqa(*RUN), kgqa(*RUN, chosen)
    folder.rename(tmp_path / "elsewhere")  # a run's identity has what is verified, not where it is
    moved = kgqa(*RUN, f"dataset.verified={tmp_path / 'elsewhere'}")
    assert plain.folder != restricted.folder == moved.folder
    assert len(restricted.json("identity.json")["dataset"]["verified"]) == 16
    assert "verified" not in plain.json("identity.json")["dataset"]


def test_a_folder_that_is_damaged_or_of_other_questions_is_one_line(kgqa: Kgqa, tmp_path: Path) -> None:
    folder = verified(kgqa, tmp_path, "ids=[2hop__demo_02]").folder
    assert "no question in it is valid. Choose another folder, or null" in kgqa(*RUN, f"dataset.verified={folder}").err
    folder = verified(kgqa, tmp_path, "limit=1").folder
    other = kgqa("run", "method=no_context", "dataset=pdf", f"dataset.verified={folder}", *QUICK)
    assert "it verified another file of dataset=demo. Verify this one" in other.err
    assert kgqa(*RUN, f"dataset.verified={kgqa(*RUN, 'limit=1').folder}").code == 2
    for name, content, said in [
        ("verdicts.jsonl", "{}\n", "verdicts.jsonl: changed since it was"),
        ("verdicts.jsonl", None, "verdicts.jsonl: no such file. Run the command"),
        ("manifest.json", "{", "manifest.json: not readable"),
        ("manifest.json", None, "so this is not the folder of a finished kgqa data verify"),
    ]:
        (folder / name).unlink() if content is None else (folder / name).write_text(content)
        ran = kgqa(*RUN, f"dataset.verified={folder}")
        refused(ran, said)
        assert f"dataset.verified={folder}: " in ran.err
