"""The table of compared runs for a paper: its rows, its caption and its LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kgqa.artifacts.metrics import Metrics
from kgqa.experiment.significance import read_metrics
from kgqa.report.comparison import ComparisonTable
from kgqa.report.paper import Entry
from kgqa.scoring.comparison import compare

RUN = Path(__file__).parents[1] / "golden/artefacts/trace"


def fake_entry(method: str, sha256: str = "1", note: str = "", **changes: Any) -> Entry:
    run = SimpleNamespace(
        choices={"method": method, "dataset": "hotpotqa", "model": "my_model", "retriever": "bm25"},
        settings=(),
        metrics=Metrics.read(RUN).replace(**{"missing_golds": None, "judge": None, **changes}),
        manifest=SimpleNamespace(dataset=SimpleNamespace(sha256=sha256)),
        simulation_note=note,
        folder=Path(f"outputs/{method}"),
    )
    return Entry(cast(Any, run))


def table_of(**entries: Entry) -> ComparisonTable:
    shares = {"A": [1.0] * 20, "B": [0.0] * 20}
    graded = {"A": [0.5] * 20, "B": [0.5] * 19 + [0.4]}
    differences = compare({"EM": shares, "F1": graded}, seed=0)
    runs = {"A": fake_entry("trace_x"), "B": fake_entry("golden"), **entries}
    return ComparisonTable(differences, runs, "musique")


def test_each_pair_has_its_own_columns() -> None:
    _, f1 = table_of().section().rows
    assert f1[:6] == ("F1", "trace_x", "Gold passages", "20", "50.0", "49.5")
    assert f1[6].startswith("+0.5 [−")


def test_latex_is_escaped_and_marks_small_p_values() -> None:
    lines = table_of().latex().splitlines()
    em = next(line for line in lines if line.startswith("EM"))
    assert em.startswith(r"EM & trace\_x & Gold passages & 20 & 100.0 & 0.0 & +100.0 [")
    assert em.endswith(r"] & \textbf{\textless{}0.001} \\")
    assert lines[lines.index(em) + 1] == r"\addlinespace"


@pytest.mark.parametrize(
    "part",
    [
        "HotpotQA",
        "model my_model, retriever BM25",
        "McNemar's exact test",
        "with Holm's correction over 2 tests",
        "95% intervals",
        "the rules of MuSiQue",
    ],
)
def test_caption_names_tests_and_models(part: str) -> None:
    assert part in table_of().caption


@pytest.mark.parametrize(
    ("entries", "warning"),
    [
        ({"A": fake_entry("a", failed=2)}, "Failed questions count as wrong: a 2 of 2."),
        ({"B": fake_entry("b", sha256="2")}, "The runs read different data files."),
        ({"B": fake_entry("b", note="simulated")}, "No model was called"),
        ({"A": fake_entry("a", answerless=2)}, "a: 2 of 2 answers are empty."),
        (
            {"A": fake_entry("a", judge=Metrics.read(RUN).judge)},
            "a: judge=three_way gave no verdict on 2 of 2 answers.",
        ),
        ({}, ""),
    ],
    ids=["failed", "data", "no model", "empty", "no verdicts", "none"],
)
def test_caption_warns(entries: Mapping[str, Entry], warning: str) -> None:
    warnings = " ".join(table_of(**entries).warnings)
    assert warnings.startswith(warning)
    assert bool(warnings) == bool(warning)


def test_caption_counts_failed_questions_of_repeats_once() -> None:
    repeats = [fake_entry("a", failed=failed).run for failed in (0, 1, 2)]
    table = table_of(A=Entry(repeats[0], others=repeats[1:]), B=fake_entry("b", failed=1))
    assert table.warnings == ["Failed questions count as wrong: a 3 of 6, b 1 of 2."]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("EM,f1", ("em", "f1")),
        ("[Support_Recall, JUDGE]", ("support_recall", "judge")),
        ("USD", ("usd",)),
        ("Exact", ("Exact",)),
        ("", ()),
    ],
)
def test_case_of_metric_names_does_not_count(text: str, names: tuple[str, ...]) -> None:
    assert read_metrics(text) == names
