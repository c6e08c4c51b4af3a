"""An agent of others next to TRACE: in `kgqa compare`, and on the page of a question."""

from __future__ import annotations

from pathlib import Path

import pytest

import kgqa
from kgqa.extras.viewer.answers import read_answers
from kgqa.extras.viewer.table import Row, read_rows
from kgqa.report.explorer import question_page
from kgqa.runtime.display import QUIET
from tests.serve.test_command import AGENT, ANSWERS

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package)
pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def agent() -> kgqa.Run:
    script = f"{AGENT}{ANSWERS}search(reply)\nprint(reply)"
    Path("agent.py").write_text(script, encoding="utf-8")
    return kgqa.run(method="command", dataset="demo", engine="scripted", limit=3, display=QUIET)


def page_row(run: kgqa.Run) -> Row:
    """Return the run's row in the viewer."""
    (row,) = (row for row in read_rows(Path("outputs")) if row.folder.samefile(run.folder))
    return row


@pytest.mark.slow
def test_agent_is_tested_against_trace(agent: kgqa.Run) -> None:
    trace = kgqa.run(method="trace", dataset="demo", engine="scripted", limit=3, display=QUIET)
    comparison = agent.compare(trace)
    assert {row["metric"] for row in comparison.rows} == {"EM", "F1"}
    assert all(row["p"] is not None for row in comparison.rows)
    assert str(agent.folder) in str(comparison)


def test_page_of_a_question_has_chain_and_costs(agent: kgqa.Run) -> None:
    answers = read_answers(page_row(agent).folder)
    question = answers.question(str(agent.predictions[0]["question_id"]))
    page = "".join(question_page(question, []))
    # two searches and a reply between them
    queries = [query for query, _ in question.traced.notes["searches"]]
    assert queries == [question.traced.question.text, question.row["answer"]]
    assert (question.row["model_calls"], question.row["prompt_tokens"] > 0) == (1, True)
    assert question.traced.prediction.evidence
    assert question.traced.question.text in page


def test_costs_of_questions_add_up_to_those_of_the_run(agent: kgqa.Run) -> None:
    cost, rows = agent.metrics.cost.method, agent.predictions
    assert sum(int(str(row["model_calls"])) for row in rows) == cost.calls
    assert sum(int(str(row["prompt_tokens"])) for row in rows) == cost.prompt_tokens
