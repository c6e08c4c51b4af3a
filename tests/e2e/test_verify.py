"""method=verify: verdicts, reports, and runs over verified questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.predictions import question_ids, run_predictions
from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from kgqa.scoring.questions import find_verdict
from kgqa.types import Json
from kgqa.util.digests import text_digest
from tests.e2e.conftest import QUICK, Kgqa, Ran, before_each_call, lines_of, refused, write_rules

TRIPLES = {
    "triples": [
        ["Candle Bridge", "designed_by", "Ilse Ravenholt"],
        ["Ilse Ravenholt", "born_in", "Pellery"],
    ]
}
RULES = [
    ("Missing:$", {"triples": []}),
    ("Groups:$", {"groups": [["Ilse Ravenholt", "Candle Bridge"]]}),
    (
        "Answer: Pellery\n.*Path:$",
        {"is_valid": True, "reasoning_path": TRIPLES["triples"], "explanation": "by birth"},
    ),
    ("Answer: 1846\n.*Path:$", "I cannot say."),  # of 2hop__demo_09
    ("Path:$", {"is_valid": False, "reasoning_path": [], "explanation": "nothing says so"}),
    ("Triples:$", TRIPLES),
]
RUN = ("run", "method=no_context", *QUICK)


def rules(folder: Path) -> str:
    return write_rules(RULES, folder / "rules.jsonl")


def verify(kgqa: Kgqa, folder: Path, *more: str) -> Ran:
    return kgqa("run", "method=verify", "engine=scripted", rules(folder), *more)


def verdicts(folder: Path) -> Mapping[str, str | None]:
    return {
        prediction.question_id: find_verdict(prediction) for prediction in run_predictions(folder)
    }


def flags(ran: Ran) -> Json:
    return ran.json("metrics.json")["flags"]


def list_questions(kgqa: Kgqa, tmp_path: Path, ids: list[str], *more: str) -> Ran:
    """Verify by a list of these questions."""
    texts = [
        line["question"]
        for line in lines_of(kgqa(*RUN).folder / "predictions.jsonl")
        if line["question_id"] in ids
    ]
    file = tmp_path / "wrong.txt"
    file.write_text("\n".join([*texts, *more, ""]), encoding="utf-8")
    return kgqa("run", "method=verify", f"method.list={file}")


def test_dry_run_counts_calls_and_shows_prompts(kgqa: Kgqa, tmp_path: Path) -> None:
    dry = verify(kgqa, tmp_path, "limit=3", "dry_run=true", "--prompts")
    # seven gold passages, each extracted and gleaned twice; names and path of each question
    assert (dry.code, "27 model calls" in dry.out) == (0, True)
    assert all(
        f"verify/{name} (reader)" in dry.out for name in ("triples", "glean", "resolve", "path")
    )
    assert not (tmp_path / "outputs/demo/verify").exists()


def test_each_question_gets_a_verdict(kgqa: Kgqa, tmp_path: Path) -> None:
    ran = verify(kgqa, tmp_path, "limit=9")
    assert (
        ran.code,
        verdicts(ran.folder)["2hop__demo_01"],
        verdicts(ran.folder)["2hop__demo_09"],
    ) == (
        0,
        "valid",
        "unverified",
    )
    assert [flags(ran)[name] for name in ("valid", "noise", "unverified", "unparsable_path")] == [
        1,
        7,
        1,
        2,
    ]


def test_only_the_share_of_noise_is_a_score(kgqa: Kgqa, tmp_path: Path) -> None:
    ran = verify(kgqa, tmp_path, "limit=9")
    defined = {
        name: score for name, score in ran.json("metrics.json")["scores"].items() if score["n"]
    }
    assert list(defined) == ["noise"]
    assert defined["noise"]["mean"] == pytest.approx(700 / 9)
    assert "| noise ↓ | 77.8  [" in ran.text("report.md")


def test_trace_shows_the_path_of_a_verdict(kgqa: Kgqa, tmp_path: Path) -> None:
    trace = kgqa("show", str(verify(kgqa, tmp_path, "limit=1").folder), "2hop__demo_01").out
    assert 'explanation: "by birth"' in trace
    assert "scores:" not in trace


def test_failed_question_is_retried_and_is_no_noise(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(engine: Scripted, call: Any) -> EngineError | None:
        fails = call.prompt.name == "verify/path" and "Answer: Pellery" in engine.render(call)
        return EngineError("no reply") if fails else None

    before_each_call(monkeypatch, fail)
    failure = verify(kgqa, tmp_path, "limit=3")
    assert (failure.code, verdicts(failure.folder)["2hop__demo_01"]) == (2, None)
    assert failure.json("metrics.json")["scores"]["noise"]["n"] == 2
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    again = verify(kgqa, tmp_path, "limit=3")
    assert (again.code, again.folder, verdicts(again.folder)["2hop__demo_01"]) == (
        0,
        failure.folder,
        "valid",
    )
    assert again.json("metrics.json")["cost"]["paid"]["calls"] == 1


def test_other_answers_have_no_path(kgqa: Kgqa, tmp_path: Path) -> None:
    plain, other = (
        verify(kgqa, tmp_path, "limit=1", *more) for more in ((), ("dataset.perturb=other_answer",))
    )
    assert (verdicts(plain.folder), verdicts(other.folder)) == (
        {"2hop__demo_01": "valid"},
        {"2hop__demo_01": "noise"},
    )
    assert "Agreement" not in other.text("report.md")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        pytest.param(
            "method.list=nowhere.txt",
            "method.list=nowhere.txt: No such file or directory",
            id="list",
        ),
        pytest.param("judge=three_way", "method=verify does not answer questions", id="judge"),
    ],
)
def test_what_cannot_be_verified_is_rejected(
    kgqa: Kgqa, tmp_path: Path, override: str, message: str
) -> None:
    refused(verify(kgqa, tmp_path, override), message)


def test_table_2_is_reproduced_and_not_repeated(kgqa: Kgqa, tmp_path: Path) -> None:
    settings = ("model=smollm2_135m", "dataset=demo", "limit=3", "engine=scripted", rules(tmp_path))
    command = ("reproduce", "safe/table2", *settings, "only=Val,MuSiQue")
    dry = kgqa(*command, "dry_run=true")
    assert (dry.code, " 27 " in dry.out) == (0, True)
    table = kgqa(*command).json("table.json")
    ours = {line["metric"]["name"]: line["ours"]["mean"] for line in table["lines"]}
    assert ours == {"Total": 3, "Noise": 2, "Ratio": pytest.approx(200 / 3)}
    assert [line["published"]["number"] for line in table["lines"]] == [2412, 342, 14.18]
    (cell,) = table["cells"]
    metrics = Path(cell["run"]) / "metrics.json"
    time = metrics.stat().st_mtime_ns
    assert kgqa(*command).code == 0
    assert metrics.stat().st_mtime_ns == time
    assert kgqa(*cell["command"].split()[1:]).folder == Path(cell["run"])


def test_table_2_with_a_list_needs_no_weights(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "wrong.txt").write_text(
        "In which town was the architect of the Candle Bridge born?\n", encoding="utf-8"
    )
    ran = kgqa(
        "reproduce", "safe/table2", "dataset=demo", "method.list=wrong.txt", "only=Val,MuSiQue"
    )
    ours = {
        line["metric"]["name"]: line["ours"]["mean"] for line in ran.json("table.json")["lines"]
    }
    assert (ours["Total"], ours["Noise"]) == (36, 1)


def test_list_is_matched_and_compared_with_a_model(kgqa: Kgqa, tmp_path: Path) -> None:
    ours = verify(kgqa, tmp_path)
    ran = list_questions(kgqa, tmp_path, ["2hop__demo_02", "2hop__demo_09"], "Who is nobody?")
    assert "1 of 3 lines match no question: Who is nobody?" in ran.out + ran.err
    assert (flags(ran), ran.folder.parts[-2]) == ({"noise": 2, "valid": 34}, "no_model")
    # 35 were decided by both: one valid and valid, one noise and noise, 33 noise here and valid there
    assert flags(ours)["unverified"] == 1
    chance = (1 * 34 + 34 * 1) / 35**2
    kappa = (2 / 35 - chance) / (1 - chance)
    assert f"{100 * 2 / 35:.2f} % of 35 verdicts agree, Cohen's kappa {kappa:.3f} [" in ran.text(
        "report.md"
    )


@pytest.mark.parametrize("content", ["[]", "{}", '{"dataset": 5}', "["])
def test_damaged_verification_is_skipped_in_reports(
    kgqa: Kgqa, tmp_path: Path, content: str
) -> None:
    first = verify(kgqa, tmp_path, "limit=1", "run_name=first")
    second = verify(kgqa, tmp_path, "limit=1", "run_name=second")
    assert "Agreement with" in second.text("report.md")
    (first.folder / "identity.json").write_text(content, encoding="utf-8")
    assert kgqa("report", str(second.folder), "--format", "md").code == 0
    assert "Agreement with" not in second.text("report.md")


def test_undecided_questions_agree_with_nothing(kgqa: Kgqa, tmp_path: Path) -> None:
    assert verify(kgqa, tmp_path, "limit=1").code == 0
    undecided = kgqa("run", "method=verify", "engine=scripted", "limit=1")
    assert (undecided.code, verdicts(undecided.folder)) == (0, {"2hop__demo_01": "unverified"})
    assert "Agreement" not in undecided.text("report.md")


def test_run_reads_only_valid_questions(kgqa: Kgqa, tmp_path: Path) -> None:
    flagged = ["2hop__demo_01", "2hop__demo_02", "3hop1__demo_03"]
    folder = list_questions(kgqa, tmp_path, flagged).folder
    valid = [id_ for id_, verdict in verdicts(folder).items() if verdict == "valid"]
    option = f"dataset.verified={folder}"
    assert question_ids(kgqa(*RUN, option).folder) == valid
    assert question_ids(kgqa(*RUN, option, "limit=2").folder) == valid[:2]
    sample = set(sorted(valid, key=lambda id_: (text_digest(f"0 {id_}"), id_))[:5])
    assert set(question_ids(kgqa(*RUN, option, "sample=5").folder)) == sample
    assert "sample=34: only 33 questions. Remove sample=" in kgqa(*RUN, option, "sample=34").err
    message = "ids=2hop__demo_01: no such question among the verified questions of dataset=demo"
    refused(kgqa(*RUN, option, "ids=[2hop__demo_01]"), message)


def test_place_of_a_verification_names_no_run(kgqa: Kgqa, tmp_path: Path) -> None:
    folder = list_questions(kgqa, tmp_path, ["2hop__demo_01"]).folder
    plain, restricted = kgqa(*RUN), kgqa(*RUN, f"dataset.verified={folder}")
    folder.rename(tmp_path / "elsewhere")
    moved = kgqa(*RUN, f"dataset.verified={tmp_path / 'elsewhere'}")
    assert plain.folder != restricted.folder == moved.folder
    assert len(restricted.json("identity.json")["dataset"]["verified"]) == 16
    assert "verified" not in plain.json("identity.json")["dataset"]


def test_verification_without_valid_questions_fails(kgqa: Kgqa, tmp_path: Path) -> None:
    folder = verify(kgqa, tmp_path, "ids=[2hop__demo_02]").folder
    refused(
        kgqa(*RUN, f"dataset.verified={folder}"),
        "no question in it is valid. Choose another folder, or null",
    )


def test_verification_of_another_file_is_rejected(kgqa: Kgqa, tmp_path: Path) -> None:
    folder = verify(kgqa, tmp_path, "limit=1").folder
    ran = kgqa("run", "method=no_context", "dataset=pdf", f"dataset.verified={folder}", *QUICK)
    refused(ran, "it verified another file of dataset=demo. Verify this one")


def test_run_of_another_method_is_no_verification(kgqa: Kgqa) -> None:
    folder = kgqa(*RUN, "limit=1").folder
    refused(
        kgqa(*RUN, f"dataset.verified={folder}"), f"{folder}: not a finished run with method=verify"
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param(
            "predictions.jsonl",
            "{}\n",
            "predictions.jsonl: changed after it was scored",
            id="changed",
        ),
        pytest.param("predictions.jsonl", None, "predictions.jsonl: ", id="no predictions"),
        pytest.param("manifest.json", "{", "manifest.json: not readable", id="damaged"),
        pytest.param("metrics.json", None, "metrics.json: no such file", id="unfinished"),
    ],
)
def test_damaged_verification_is_rejected(
    kgqa: Kgqa, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    folder = verify(kgqa, tmp_path, "limit=1").folder
    (folder / name).unlink() if content is None else (folder / name).write_text(content)
    ran = kgqa(*RUN, f"dataset.verified={folder}")
    refused(ran, message)
    assert f"dataset.verified={folder}: " in ran.err
