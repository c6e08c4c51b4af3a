"""Runs over the questions that were verified, by a model or by the authors' list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.util.fs import text_digest
from tests.e2e.conftest import QUICK, Kgqa, Ran
from tests.e2e.verifying import lines, of_questions, outcome, verified

RUN = ("run", "method=no_context", *QUICK)


def _texts(kgqa: Kgqa, tmp_path: Path, ids: list[str]) -> list[str]:
    whole = lines(verified(kgqa, tmp_path).folder)
    return [line["question"] for line in whole if line["id"] in ids]


def _listed(kgqa: Kgqa, tmp_path: Path, texts: list[str]) -> Ran:
    file = tmp_path / "wrong.txt"
    file.write_text("\n".join([*texts, ""]), encoding="utf-8")
    return kgqa("data", "verify", f"verify.list={file}")


def _answered(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [json.loads(line)["question_id"] for line in (ran.folder / "predictions.jsonl").read_text().splitlines()]


def test_a_list_in_place_of_a_model_is_matched_and_compared(kgqa: Kgqa, tmp_path: Path) -> None:
    ours = verified(kgqa, tmp_path)
    texts = _texts(kgqa, tmp_path, ["2hop__demo_02", "2hop__demo_09"])
    ran = _listed(kgqa, tmp_path, [*texts, "Who is nobody?"])
    assert ran.code == 0, ran.err
    counts = outcome(ran.folder)
    assert counts["listed"] == {
        "lines": 3, "distinct": 3, "matched": 2, "unmatched": 1, "examples": ["Who is nobody?"]
    }  # fmt: skip
    assert [counts[name] for name in ("questions", "valid", "noise", "unverified")] == [36, 34, 2, 0]
    # 35 were decided by both: one valid and valid, one noise and noise, 33 noise here and valid there
    assert outcome(ours.folder)["unverified"] == 1
    chance = (1 * 34 + 34 * 1) / 35**2
    kappa = (2 / 35 - chance) / (1 - chance)
    assert f"{100 * 2 / 35:.2f} % of 35 verdicts agree, Cohen's kappa {kappa:.3f}. 1 without" in ran.out
    assert "list wrong.txt" in verified(kgqa, tmp_path).out


def test_a_run_asks_only_verified_questions_and_samples_of_these(kgqa: Kgqa, tmp_path: Path) -> None:
    flagged = ["2hop__demo_01", "2hop__demo_02", "3hop1__demo_03"]
    folder = _listed(kgqa, tmp_path, _texts(kgqa, tmp_path, flagged)).folder
    valid = [id_ for id_, verdict in of_questions(folder).items() if verdict == "valid"]
    chosen = f"dataset.verified={folder}"
    assert _answered(kgqa(*RUN, chosen)) == valid
    assert _answered(kgqa(*RUN, chosen, "limit=2")) == valid[:2]
    drawn = set(sorted(valid, key=lambda id_: (text_digest(f"0 {id_}"), id_))[:5])
    assert set(_answered(kgqa(*RUN, chosen, "sample=5"))) == drawn
    assert "sample=34: only 33 questions. Remove sample=" in kgqa(*RUN, chosen, "sample=34").err
    refused = kgqa(*RUN, chosen, "ids=[2hop__demo_01]").err
    assert "ids=2hop__demo_01: no such question among the verified questions of dataset=demo" in refused


def test_what_is_verified_is_in_a_runs_identity_not_where_it_lies(kgqa: Kgqa, tmp_path: Path) -> None:
    folder = _listed(kgqa, tmp_path, _texts(kgqa, tmp_path, ["2hop__demo_02"])).folder
    plain, restricted = kgqa(*RUN), kgqa(*RUN, f"dataset.verified={folder}")
    folder.rename(tmp_path / "elsewhere")
    moved = kgqa(*RUN, f"dataset.verified={tmp_path / 'elsewhere'}")
    assert plain.folder != restricted.folder == moved.folder
    identity = restricted.json("identity.json")["dataset"]
    assert len(identity["verified"]) == 16
    assert "verified" not in plain.json("identity.json")["dataset"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: folder.joinpath("verdicts.jsonl").write_text("{}\n"), "verdicts.jsonl: changed since it was"),
        (lambda folder: folder.joinpath("verdicts.jsonl").unlink(), "verdicts.jsonl: no such file. Run the command"),
        (
            lambda folder: folder.joinpath("manifest.json").unlink(),
            "so this is not the folder of a finished kgqa data verify",
        ),
        (lambda folder: folder.joinpath("manifest.json").write_text("{"), "manifest.json: not readable"),
    ],
)
def test_a_folder_that_is_damaged_is_one_line(kgqa: Kgqa, tmp_path: Path, spoil, said: str) -> None:  # type: ignore[no-untyped-def]
    folder = verified(kgqa, tmp_path, "limit=1").folder
    spoil(folder)
    ran = kgqa(*RUN, f"dataset.verified={folder}")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert f"dataset.verified={folder}: " in ran.err
    assert said in ran.err


def test_a_folder_of_other_questions_or_none_that_is_valid_is_refused(kgqa: Kgqa, tmp_path: Path) -> None:
    folder = verified(kgqa, tmp_path, "ids=[2hop__demo_02]").folder
    assert "no question in it is valid. Choose another folder, or null" in kgqa(*RUN, f"dataset.verified={folder}").err
    folder = verified(kgqa, tmp_path, "limit=1").folder
    other = kgqa("run", "method=no_context", "dataset=pdf", f"dataset.verified={folder}", *QUICK)
    assert "it verified another file of dataset=demo. Verify this one" in other.err
    plain = kgqa(*RUN, "limit=1")
    assert "not the folder of a finished kgqa data verify" not in kgqa(*RUN, f"dataset.verified={plain.folder}").out
    assert kgqa(*RUN, f"dataset.verified={plain.folder}").code == 2
