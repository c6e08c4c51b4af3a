"""What a run leaves is its own: no other code and no smaller selection of questions takes its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kgqa.artifacts.predictions import question_ids
from kgqa.errors import ConfigError
from kgqa.runtime.folder import RunFolder
from tests.e2e.conftest import Kgqa

GOLDEN = ("run", "method=golden", "dataset=demo", "engine=scripted")
OWN = """from dataclasses import dataclass

from kgqa.calls import Program
from kgqa.protocols import Need
from kgqa.types import Answer, Question


@dataclass(frozen=True)
class Echo:
    @property
    def uses(self) -> frozenset[Need]:
        return frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        return Answer(question.text)
"""


def test_fewer_questions_never_replace_more(kgqa: Kgqa) -> None:
    whole = kgqa(*GOLDEN, "limit=5")
    kept = (whole.folder / "predictions.jsonl").read_bytes()
    few = kgqa(*GOLDEN, "limit=2")
    one = kgqa(*GOLDEN, "ids=[2hop__demo_01]")
    assert (whole.folder / "predictions.jsonl").read_bytes() == kept
    assert [len(question_ids(ran.folder)) for ran in (few, one)] == [2, 1]
    assert {ran.folder.parent for ran in (whole, few, one)} == {whole.folder.parent}
    assert few.folder.name.startswith(f"{whole.folder.name}-2-")
    assert kgqa(*GOLDEN, "limit=2").folder == few.folder


def test_more_questions_go_on_in_the_same_place(kgqa: Kgqa) -> None:
    few, more = kgqa(*GOLDEN, "limit=2"), kgqa(*GOLDEN, "limit=5")
    assert few.folder == more.folder
    assert len(question_ids(more.folder)) == 5


@pytest.mark.parametrize("place", ["out=here", "name=here"])
def test_a_place_that_was_chosen_is_not_exchanged(kgqa: Kgqa, place: str) -> None:
    whole = kgqa(*GOLDEN, "limit=3", place)
    refused = kgqa(*GOLDEN, "limit=2", place)
    assert refused.code == 2
    assert "here: 3 questions are answered here, and a run of 2 would replace them" in refused.err
    assert len(question_ids(whole.folder)) == 3


def test_a_finished_sweep_stays_whole_when_a_cell_is_looked_at_again(kgqa: Kgqa) -> None:
    sweep = ("run", "-m", "method=golden,no_context", "limit=4", "dataset=demo", "engine=scripted")
    kgqa(*sweep)
    kgqa(*GOLDEN, "limit=1")
    assert "cells: 2 skipped" in kgqa(*sweep).out


def test_a_changed_method_gets_a_folder_of_its_own(kgqa: Kgqa) -> None:
    module = Path("echo_method.py")
    module.write_text(OWN, encoding="utf-8")
    Path("conf/method").mkdir(parents=True)
    Path("conf/method/echo.yaml").write_text("_target_: echo_method.Echo\n", encoding="utf-8")
    run = ("run", "method=echo", "dataset=demo", "engine=scripted", "limit=2")
    first = kgqa(*run)
    assert first.code == 0, first.err
    module.write_text("# a comment\n" + OWN, encoding="utf-8")
    sys.modules.pop("echo_method", None)
    commented = kgqa(*run)
    module.write_text(OWN.replace("Answer(question.text)", 'Answer("broken")'), encoding="utf-8")
    sys.modules.pop("echo_method", None)
    changed = kgqa(*run)
    sys.modules.pop("echo_method", None)
    assert commented.folder == first.folder
    assert changed.folder != first.folder
    assert "broken" not in (first.folder / "predictions.jsonl").read_text(encoding="utf-8")


def test_a_folder_is_claimed_for_one_code(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", {"code": {"method": "a"}}).close()
    with pytest.raises(ConfigError, match=r"it differs in code\.method \(a → b\)"):
        RunFolder(tmp_path / "run", {"code": {"method": "b"}})
