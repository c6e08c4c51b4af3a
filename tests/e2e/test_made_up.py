"""What engine=scripted wrote is nowhere taken for a model's."""

from __future__ import annotations

from pathlib import Path

import kgqa as kgqa_api
from kgqa.artifacts.run import MADE_UP
from tests.e2e.conftest import QUICK, Kgqa

RUN = ("run", "method=golden", "limit=2", *QUICK)


def test_a_scripted_run_says_so_in_its_name_and_every_report(kgqa: Kgqa) -> None:
    ran = kgqa(*RUN, "model=llama3_8b_instruct")
    assert ran.folder.parts[:-1] == ("outputs", "demo", "golden", "scripted")
    assert MADE_UP in ran.out
    for form, name in (("md", "report.md"), ("html", "report.html"), ("latex", "report.tex")):
        kgqa("report", str(ran.folder), "--format", form)
        assert MADE_UP in (ran.folder / name).read_text(encoding="utf-8"), form
    assert "golden/scripted/" in kgqa("runs").out
    assert MADE_UP in kgqa_api.load(ran.folder)._repr_html_()


def test_comparisons_and_sweeps_name_the_runs_that_no_model_answered(kgqa: Kgqa) -> None:
    first, second = kgqa(*RUN), kgqa(*RUN, "seed=1")
    assert kgqa("compare", str(first.folder), str(second.folder)).out.count(MADE_UP) == 2
    swept = kgqa("run", "-m", "method=golden,no_context", "limit=2", *QUICK)
    assert "cells 0, 1 made up: engine=scripted is no model" in swept.out
    assert "made up: engine=scripted" in (Path(swept.folder) / "report.html").read_text(encoding="utf-8")


def test_a_run_of_a_method_that_asks_no_model_is_not_made_up(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=retrieve_only", "limit=2", "engine=scripted")
    assert ran.folder.parts[-2] == "bm25"
    assert "made up" not in ran.out + (ran.folder / "report.md").read_text(encoding="utf-8")
