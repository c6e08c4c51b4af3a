"""Failed questions in sweeps, comparisons, plans and explanations: they count as wrong everywhere."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import kgqa as api
from kgqa.extras.viewer.answers import compare_scores, side_by_side
from kgqa.extras.viewer.table import expand_sweeps, read_rows
from tests.e2e.conftest import QUICK, Ran, run_in, write_file
from tests.viewer.viewing import Viewing

# Both are right on the same questions. `fragile` fails on 9 of 36, of which `steady` has 5 right.
METHODS = '''
"""Two methods that call no model. The numbers of demo's questions are the end of their ids."""

from dataclasses import dataclass

from kgqa.protocols import Method
from kgqa.types import Answer, Question


@dataclass(frozen=True)
class Steady(Method):
    uses = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        number = int(question.id[-2:])
        return Answer(question.answers[0] if number % 2 else "wrong " * number)


@dataclass(frozen=True)
class Fragile(Steady):
    async def answer(self, question: Question) -> Answer:
        if int(question.id[-2:]) < 10:
            raise ValueError("no reply")
        return await super().answer(question)


@dataclass(frozen=True)
class Citing(Fragile):
    async def answer(self, question: Question) -> Answer:
        answer = await super().answer(question)
        return Answer(answer.text, tuple(passage.id for passage in question.passages))


@dataclass(frozen=True)
class Uneven(Method):
    """Each repeat fails on another question, and the second one is right less often."""

    demonstration_set: int = 1
    fails: bool = False
    uses = frozenset({"model"})

    async def answer(self, question: Question) -> Answer:
        number = int(question.id[-2:])
        if self.fails and number == self.demonstration_set:
            raise ValueError("no reply")
        right = number % (1 + self.demonstration_set) or number % (4 if self.fails else 9) == 0
        return Answer(question.answers[0] if right else "wrong")
'''
SWEEP = ("run", "-m", "method=steady,fragile", "max_failure_rate=1", "sweep.name=two", *QUICK)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("failed")
    write_file(folder / "failing_methods.py", METHODS)
    for name, fails in {"first_uneven": False, "second_uneven": True}.items():
        settings = f"_target_: failing_methods.Uneven\ndemonstration_set: 1\nfails: {fails}\n"
        write_file(folder / f"conf/method/{name}.yaml", settings)
    for name in ("steady", "fragile"):
        target = f"_target_: failing_methods.{name.title()}\n"
        write_file(folder / f"conf/method/{name}.yaml", target)
    ran = run_in(folder, *SWEEP)
    assert ran.code == 0, ran.err
    return folder


@pytest.fixture(scope="module")
def compared(place: Path) -> Ran:
    return run_in(place, "compare", "two", "metrics=em,f1", "--out", "c.json")


def read_report(place: Path) -> str:
    assert run_in(place, "report", "two", "--format", "md").code == 0
    return (place / "outputs/sweeps/two/report.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def em(place: Path, compared: Ran) -> Any:
    assert compared.code == 0, compared.err
    return json.loads((place / "c.json").read_text())["differences"][0]


def test_failed_questions_are_wrong_in_pairs(em: Any) -> None:
    assert (em["metric"], em["n"]) == ("EM", 36)
    assert em["first_mean"] == pytest.approx(50)
    assert em["second_mean"] == pytest.approx(100 * 13 / 36)
    assert (em["first_wins"], em["second_wins"]) == (5, 0)


def test_compared_means_are_those_of_the_runs(place: Path, em: Any) -> None:
    folders = [place / em[side] for side in ("first", "second")]
    scores = [json.loads((each / "metrics.json").read_text())["scores"]["em"] for each in folders]
    assert [each["mean"] for each in scores] == pytest.approx(
        [em["first_mean"], em["second_mean"]], abs=1e-4
    )


def test_sweep_has_the_difference_of_the_comparison(place: Path, em: Any) -> None:
    report = read_report(place)
    assert f"| EM | fragile | steady | 36 | {-em['difference']:+.1f} [" in report


def test_plan_has_the_difference_of_the_comparison(place: Path, em: Any) -> None:
    ran = run_in(place, "plan", "two", "metrics=em")
    row = next(line for line in ran.out.splitlines() if "steady – fragile" in line)
    assert row.split()[-2:] == ["36", f"{em['difference']:+.1f}"]


def test_side_by_side_has_the_same_tests(
    place: Path, em: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    rows = {row.key: row for row in read_rows(Path("outputs"))}
    sweeps = [row for row in rows.values() if row.kind == "sweep"]
    tests = compare_scores(expand_sweeps(sweeps, rows))
    assert tests.differences[0].n == em["n"]
    assert tests.differences[0].difference == pytest.approx(em["difference"])
    assert tests.notes == ["B failed on 9 of 36 questions, which count as wrong"]
    compared = api.compare("two")
    assert tests.answered == compared.answered
    assert tests.answered[0].n == 27


def test_page_side_by_side_has_the_answered_questions(place: Path) -> None:
    viewing = Viewing.start(place)
    page = viewing.get("/compare?run=sweeps/two")
    viewing.interrupt()
    table = page.partition("<summary>Sensitivity: ")[2].partition("</table>")[0]
    assert 'data-head="failed">0  9</td>' in table
    assert 'data-head="questions">27</td>' in table


@pytest.mark.parametrize("command", ["compare", "plan"])
def test_heading_counts_failed_questions(place: Path, command: str) -> None:
    ran = run_in(place, command, "two")
    assert "B failed on 9 of 36 questions, which count as wrong" in ran.out


def test_python_has_the_same_pairs(place: Path, em: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    first = api.compare("two").rows[0]
    assert first["difference"] == pytest.approx(em["difference"])


def test_judge_counts_failed_questions_in_pairs(place: Path) -> None:
    for name in ("steady", "fragile"):
        folder = next((place / "outputs/demo" / name).glob("*/*"))
        assert run_in(place, "evaluate", str(folder), "judge=em").code == 0
    ran = run_in(place, "compare", "two", "metrics=judge", "--out", "judged.json")
    assert ran.code == 0, ran.err
    (judged,) = json.loads((place / "judged.json").read_text())["differences"]
    assert (judged["n"], judged["first_wins"]) == (36, 5)


def test_answered_questions_are_compared_apart(place: Path, compared: Ran) -> None:
    _, answered = compared.out.split("Sensitivity: only questions that both answered")
    row = next(line for line in answered.splitlines() if line.startswith("EM"))
    assert row.split()[1:9] == ["steady", "–", "fragile", "0", "9", "27", "48.1", "48.1"]
    assert row.split()[-1] == "1.000"


def test_answered_questions_are_no_tests(place: Path, em: Any) -> None:
    comparison = json.loads((place / "c.json").read_text())
    assert [each["n"] for each in comparison["answered"]] == [27, 27]
    assert [each["n"] for each in comparison["differences"]] == [36, 36]
    assert "2 tests with Holm's correction" in comparison["heading"][0]


def test_sweep_compares_answered_questions_apart(place: Path) -> None:
    _, answered = read_report(place).split("## Sensitivity: only questions that both answered")
    assert "| EM | fragile | steady | 9  0 | 27 | 0.0 [" in answered


@pytest.fixture(scope="module")
def uneven(place: Path) -> Path:
    """Return the folder of a sweep of repeats with different answers."""
    methods = "method=first_uneven,second_uneven"
    keys = ("repeats=3", "max_failure_rate=1", "sweep.name=uneven", *QUICK)
    assert run_in(place, "run", "-m", methods, *keys).code == 0
    return place / "outputs/sweeps/uneven"


def test_sensitivity_of_repeats_is_that_of_the_sweep(place: Path, uneven: Path) -> None:
    ran = run_in(place, "compare", "uneven", "metrics=em", "--out", "uneven.json")
    [row] = json.loads((place / "uneven.json").read_text())["answered"]
    # a question that failed in one repeat counts in none of both methods
    assert row["n"] == 33
    assert re.search(r"^EM .* 0  3 +33 ", ran.out, re.MULTILINE)
    report = (uneven / "report.md").read_text(encoding="utf-8")
    _, table = report.split("## Sensitivity: only questions that both answered")
    line = next(line for line in table.splitlines() if line.startswith("| EM"))
    _, text, p = line.rstrip(" |").rsplit(" | ", 2)
    limits = sorted(abs(float(each)) for each in re.findall(r"[\d.]+", text))
    values = sorted(abs(row[key]) for key in ("difference", "low", "high"))
    assert limits == pytest.approx(values, abs=0.051)
    assert float(p) == pytest.approx(row["p"], abs=0.0006)


def test_most_frequent_answer_of_repeats_is_first(uneven: Path) -> None:
    listed = {row.key: row for row in read_rows(uneven.parents[1])}
    sides = side_by_side(expand_sweeps([listed["sweeps/uneven"]], listed), "", "")
    counts = [[each.count for each in answers] for side in sides for answers in side]
    assert [2, 1] in counts
    assert [each for each in counts if each != sorted(each, reverse=True)] == []


@pytest.mark.parametrize("end", ["md", "tex"])
def test_written_comparison_has_answered_questions(place: Path, end: str) -> None:
    assert run_in(place, "compare", "two", "--out", f"c.{end}").code == 0
    assert "only questions that both answered" in (place / f"c.{end}").read_text(encoding="utf-8")


def test_pairs_without_failures_have_no_sensitivity(place: Path) -> None:
    for name in ("one", "other"):
        keys = ("method=steady", "limit=12", f"output_dir={name}", *QUICK)
        assert run_in(place, "run", *keys).code == 0
    assert "Sensitivity" not in run_in(place, "compare", "one", "other").out


@pytest.fixture(scope="module")
def worded(place: Path, compared: Ran) -> Path:
    """Return the folder with a metric of which a lower value is better, and which favors failures."""
    assert compared.code == 0
    code = "def wordy(question, answer):\n    return min(len(answer.split()), 40) / 40\n"
    write_file(place / "wordy_answers.py", code)
    text = "_target_: wordy_answers.wordy\nlabel: wordy\nlower_is_better: true\n"
    write_file(place / "conf/metric/wordy.yaml", text)
    assert run_in(place, *SWEEP).code == 0
    return place


def test_score_of_fewer_questions_is_not_the_best(worded: Path) -> None:
    rows = [line for line in read_report(worded).splitlines() if "/report.html)" in line]
    steady, fragile = (
        next(line for line in rows if name in line) for name in ("steady", "fragile")
    )
    header = next(line for line in read_report(worded).splitlines() if "wordy ↓" in line)
    place = header.split("|").index(" wordy ↓ ")
    assert " of 27 [" in fragile.split("|")[place]
    assert "**" not in fragile.split("|")[place]
    assert " of " not in steady.split("|")[place]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("evaluate two", " of 27 "),
        ("compare two metrics=wordy", " of 27 "),
        ("report two --table paper --format md metrics=em,wordy --out t.md", ""),
    ],
    ids=["evaluate", "compare", "paper"],
)
def test_tables_count_the_questions_of_scores(worded: Path, command: str, text: str) -> None:
    ran = run_in(worded, *command.split())
    assert ran.code == 0, ran.err
    out = ran.out if text else (worded / "t.md").read_text(encoding="utf-8")
    assert " of 27 " in out


def test_note_on_fewer_questions_is_below_such_a_score(place: Path, worded: Path) -> None:
    note = "of N: only N questions define the score."
    ran = run_in(worded, *SWEEP)
    assert (" of 27 [" in ran.out, ran.out.count(note)) == (True, 1)


@pytest.fixture(scope="module")
def cited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """Return the folder of a sweep of which one method cites passages and fails on 9 of 36 questions."""
    folder = tmp_path_factory.mktemp("citing")
    # each name of a module is imported once
    write_file(folder / "citing_methods.py", METHODS)
    write_file(folder / "conf/method/citing.yaml", "_target_: citing_methods.Citing\n")
    words = ("run", "-m", "method=citing,golden", "max_failure_rate=1", "sweep.name=x")
    ran = run_in(folder, *words, *QUICK)
    assert ran.code == 0, ran.err
    return folder / "outputs/sweeps/x", ran


def test_terminal_omits_the_note_on_columns_of_the_report(cited: tuple[Path, Ran]) -> None:
    sweep, ran = cited
    note = "of N: only N questions define the score."
    assert note not in ran.out
    assert note in (sweep / "report.md").read_text(encoding="utf-8")


def test_csv_has_the_questions_of_each_score(cited: tuple[Path, Ran]) -> None:
    sweep, _ = cited
    assert run_in(sweep.parents[2], "report", "x", "--format", "csv").code == 0
    rows = csv.DictReader(io.StringIO((sweep / "report.csv").read_text(encoding="utf-8")))
    counts = {row["method"]: (row["EM questions"], row["support recall questions"]) for row in rows}
    assert counts == {"citing": ("36", "27"), "golden": ("36", "36")}


@pytest.fixture(scope="module")
def groups(worded: Path) -> list[list[str]]:
    """Return the cells of the rows of the groups in explain.md."""
    folders = [f"outputs/demo/{name}" for name in ("fragile", "steady")]
    runs = [next((worded / folder).glob("*/*/metrics.json")).parent for folder in folders]
    assert run_in(worded, "explain", *map(str, runs)).code == 0
    text = (runs[0] / "explain.md").read_text(encoding="utf-8").split("## By hops")[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[-1].endswith("]")]


def test_explained_difference_is_that_of_its_means(groups: list[list[str]]) -> None:
    numbers = [[float(cell.split()[0]) for cell in row[3:6]] for row in groups]
    assert len(numbers) > 4
    expected = [one - other for one, other, _ in numbers]
    # of two rounded means
    assert [difference for *_, difference in numbers] == pytest.approx(expected, abs=0.11)


def test_explained_score_counts_its_questions(groups: list[list[str]]) -> None:
    wordy = [row for row in groups if row[0] == "wordy ↓"]
    em = [row for row in groups if row[0] == "EM"]
    assert sum(int(row[2]) for row in wordy) < sum(int(row[2]) for row in em)
