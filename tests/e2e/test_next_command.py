"""A terminal shows the command that follows a run, and this command works as printed."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.e2e.conftest import QUICK, Kgqa, Ran, write_rules

START = "next: kgqa "


def find_next(ran: Ran) -> list[str]:
    """Return the arguments of the commands that were suggested."""
    lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", ran.out).splitlines()
    return [line.removeprefix(START) for line in lines if line.startswith(START)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("run method=golden", "show outputs/demo/"),
        ("run -m method=golden,no_context", "compare outputs/sweeps/"),
        ("run -m method=golden,retrieve_only retriever=bm25", "report outputs/sweeps/"),
        ("run method=golden repeats=2", "report outputs/sweeps/"),
        ("run -m method=golden,no_context repeats=2", "compare outputs/sweeps/"),
    ],
    ids=["run", "sweep", "no answers", "repeats", "repeats of two methods"],
)
def test_next_command_works_as_printed(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, arguments: str, expected: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("BROWSER", "true")
    (line,) = find_next(kgqa(*arguments.split(), "limit=2", *QUICK))
    assert line.startswith(expected)
    assert kgqa(*shlex.split(line)).code == 0


@pytest.mark.parametrize("command", ["show", "report"])
def test_show_and_report_suggest_a_command(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    folder = kgqa("run", "method=golden", "limit=2", *QUICK).folder
    monkeypatch.setenv("FORCE_COLOR", "1")
    ends = {"show": "2hop__demo_01", "report": "--open"}
    assert find_next(kgqa(command, "last")) == [f"{command} {folder} {ends[command]}"]


@pytest.mark.parametrize(
    ("limit", "command", "expected"),
    [
        (4, "plan mine", "run -m method=all_documents,golden,no_context "),
        (36, "plan mine", "compare mine"),
        (36, "plan mine power=0.9 metrics=f1", "compare mine metrics=f1"),
        (4, "compare mine", "explain outputs/demo/all_documents/"),
        (4, "compare mine baseline=no_context", "explain outputs/demo/all_documents/"),
        (4, "compare mine/golden mine/no_context", "explain outputs/demo/golden/"),
    ],
    ids=["small pilot", "complete pilot", "metrics", "runs", "baseline", "upper bound"],
)
def test_plan_and_compare_suggest_a_command(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, limit: int, command: str, expected: str
) -> None:
    rules = write_rules([(r"Context:[\s\S]*", "<right> Pellery")], "rules.jsonl")
    words = ("method=all_documents,golden,no_context", f"limit={limit}", "sweep.name=mine")
    assert kgqa("run", "-m", *words, rules, *QUICK).code == 0
    monkeypatch.setenv("FORCE_COLOR", "1")
    (line,) = find_next(kgqa(*command.split()))
    assert line.startswith(expected)
    assert kgqa(*shlex.split(line)).code == 0


def test_pipe_gets_no_suggestion(kgqa: Kgqa) -> None:
    assert find_next(kgqa("run", "method=golden", "limit=2", *QUICK)) == []


@pytest.mark.parametrize("question", [[], ["2hop__demo_01"]], ids=["questions", "question"])
def test_show_names_the_run_of_last(kgqa: Kgqa, question: list[str]) -> None:
    folder = kgqa("run", "-m", "method=golden", "limit=2", "seed=0,1", *QUICK).folder
    first = kgqa("show", "last", *question).out.splitlines()[0]
    assert first.startswith("run: outputs/demo/golden/")
    assert str(folder) not in first
