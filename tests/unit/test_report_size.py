"""A report takes neither more memory nor more disk than it may, however many questions a run has."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest

from kgqa.artifacts.run import FinishedRun
from kgqa.cli.main import main
from kgqa.report.html import html
from kgqa.report.packing import SHARED, Packing
from kgqa.report.selection import Group, Selection
from kgqa.report.writing import write_report
from scripts.bench.questions import write_questions


def answered(folder: Path, count: int) -> Path:
    """A run on so many questions of MuSiQue's size, whose first three have gold answers that it gives."""
    questions, out = write_questions(folder / f"{count}.jsonl", count), folder / f"run-{count}"
    asked = ("method=all_documents", "dataset=musique", f"dataset.path={questions}", "engine=scripted")
    assert main(["run", *asked, f"out={out}"]) == 0
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, FinishedRun]:
    base = tmp_path_factory.mktemp("sizes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        patch.setenv("KGQA_CACHE", str(base / "cache"))
        return {count: FinishedRun.read(answered(base, count)) for count in (150, 600)}


def peak(run: FinishedRun, megabytes: float) -> int:
    """Bytes that writing the page took at the most."""
    tracemalloc.start()
    try:
        for _ in html(run, megabytes=megabytes):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_a_report_does_not_grow_with_its_questions(runs: dict[int, FinishedRun]) -> None:
    peak(runs[150], 1)  # what is loaded once
    few, many = (peak(runs[count], 1) for count in (150, 600))
    assert many < 1.5 * few


def test_a_page_is_no_larger_than_it_may_be_and_has_a_row_for_every_question(
    runs: dict[int, FinishedRun], tmp_path: Path
) -> None:
    for megabytes in (1, 2):
        page = write_report(runs[600].folder, "html", tmp_path / "page.html", None, megabytes)
        assert 0.9e6 * megabytes < page.stat().st_size <= 1e6 * megabytes
        traces = re.findall(r'id="traces">([^<]*)<', page.read_text(encoding="utf-8"))[0].split("\n")[1:]
        assert len(traces) == 600
        kept = sum(trace != "" for trace in traces)
        assert f"The calls of {kept} of these questions are in this page" in page.read_text(encoding="utf-8")


def test_a_page_that_has_room_for_all_says_nothing_of_a_selection(runs: dict[int, FinishedRun]) -> None:
    page = "".join(html(runs[150]))
    assert 'id="selection"' not in page
    assert "" not in re.findall(r'id="traces">([^<]*)<', page)[0].split("\n")


def test_troubled_questions_come_first_and_of_the_others_always_the_same() -> None:
    groups = {0: Group.FAILED, 1: Group.FLAGGED, 2: Group.DISPUTED}
    ids = [f"q{number}" for number in range(100)]

    def kept(order: list[str]) -> set[str]:
        selection = Selection(room=30 * 10)
        for question_id in order:
            group = groups.get(int(question_id[1:]) % 20, Group.OTHER)
            if selection.wants(question_id, group):
                selection.add(question_id, group, "a trace 10")
        assert len(selection) == 30
        assert selection.said() == (
            "it has those of 5 of 5 that failed, 5 of 5 that a judge or the other run contradicts, 5 of 5 with flags, "
            "15 of 85 others, drawn by their ids"
        )
        return {question_id for question_id in ids if selection.line(question_id)}

    assert kept(ids) == kept(ids[::-1])
    assert {f"q{number}" for number in range(100) if number % 20 < 3} < kept(ids)


def test_what_questions_share_is_bounded_too() -> None:
    packing = Packing()
    for _ in range(2):
        for number in range(300):
            packing.pack([f"{number} " + "word " * 2000])
    assert SHARED / 2 < sum(map(len, packing.shared)) <= SHARED


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--megabytes", "0"), "--megabytes 0: must be at least 1"),
        (("--megabytes", "3", "--format", "md"), "only for the HTML report of a run"),
    ],
)
def test_a_size_that_no_page_can_have_is_refused(
    runs: dict[int, FinishedRun], capsys: pytest.CaptureFixture[str], given: tuple[str, ...], said: str
) -> None:
    assert main(["report", str(runs[150].folder), *given]) == 2
    assert said in capsys.readouterr().err
