"""The pages of the viewer: table of runs, side by side, question, plots."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from kgqa.artifacts.trace import TRACE, read_offsets
from kgqa.errors import DataError
from kgqa.report.columns import Measured
from kgqa.runtime.monitor import Heartbeat
from kgqa.viewer.folder import Folder, Row
from kgqa.viewer.table import (
    cell_text,
    differing_settings,
    draw_bars,
    draw_plot,
    has_words,
    sort_rows,
    status_mark,
    titles_of,
)
from tests.e2e.browser import Browser
from tests.viewer.conftest import HOSTILE, SCRIPT
from tests.viewer.viewing import Viewing


def row(name: str, em: float | None = None, kind: str = "run", **settings: str) -> Row:
    figures = (
        {} if em is None else {"EM": Measured(em, em - 1, em + 1), "tokens / question": Measured(1234, None, None)}
    )
    return Row(name, Path(name), kind, name, "done", 0.0, "bee", "trace", "tiny", 12, figures, settings)


ROWS = [row("one", 40.0, beam="5"), row("two", 50.5, beam="10"), row("lengths", kind="sweep")]


def keys_of(page: str) -> list[str]:
    return re.findall(r'data-key="([^"]*)"', page)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "one two lengths"), ("TWO", "two"), ("two sweep", ""), ("sweep", "lengths"),
        ("beam=10", "two"), ("beam=1", ""), ("nothing=1", ""), ("done beam=5", "one"), ("done", "one two lengths"),
    ],
)  # fmt: skip
def test_filter_terms(text: str, names: str) -> None:
    assert [each.name for each in ROWS if has_words(each, text)] == names.split()


def test_order_is_numeric_and_missing_values_are_last() -> None:
    def order(column: str) -> list[str]:
        return [each.name for each in sort_rows(ROWS, column)]

    assert order("-EM") == ["two", "one", "lengths"]
    assert order("name") == ["lengths", "one", "two"]


def test_texts_of_cells() -> None:
    assert str(Measured(8.333, 1, 20)) == "8.3 [1.0, 20.0]"
    assert str(Measured(1234.5, None, None)) == "1,234"
    assert str(Measured(0.012345678, None, None)) == "0.0123"
    assert (cell_text(ROWS[2], "EM"), cell_text(ROWS[0], "questions")) == ("", "12")
    assert differing_settings(ROWS) == ["beam"]


def test_plot_has_a_point_per_run_with_its_interval() -> None:
    svg = draw_plot(ROWS, "tokens / question", "EM")
    assert len(re.findall(r"<circle", svg)) == 3  # two runs and the legend
    assert "EM against tokens / question" in svg
    assert [name for name in ("beam 5", "beam 10", "lengths") if f">trace · {name}<" in svg] == ["beam 5", "beam 10"]


def test_bars_name_each_run_and_show_its_interval() -> None:
    svg = draw_bars([*ROWS, replace(row("<far>", 10.0), dataset="wasp<i>", method="<b>")], "EM")
    assert re.findall(r'text-anchor="end">([^<]*)<', svg) == ["trace · beam 10", "trace · beam 5", "&lt;b&gt;"]
    assert re.findall(r'class="group">([^<]*)<', svg) == ["bee", "wasp&lt;i&gt;"]
    assert len(re.findall("<rect", svg)) == len(re.findall("<path", svg)) == 3
    assert draw_bars(ROWS[2:], "EM") == ""


def test_table_shows_figures_settings_and_the_sweep(viewing: Viewing, keys: dict[str, str]) -> None:
    page = viewing.get("/")
    assert len(keys_of(page)) == 6
    assert "3 of 3 cells" in page
    assert "8.3 <small>[" in page
    assert keys_of(viewing.get("/?filter=dataset%3Dmusique+method%3Dno_context")) == [keys["no_context"]]
    assert keys_of(viewing.get("/?sort=-EM"))[0] == keys["no_context"]
    assert len(keys_of(viewing.get("/?filter=method.max_answer_tokens%3D2+dataset%3Ddemo"))) == 1
    assert keys_of(viewing.get("/?from=5")) == keys_of(page)[5:]
    assert "from='x': must be a number" in viewing.error("/?from=x")


def test_titles_name_the_method_and_what_differs() -> None:
    runs = [replace(each, settings={**each.settings, "engine.base_url": each.name}) for each in ROWS[:2]]
    other = replace(row("far", beam="7"), dataset="wasp")
    titles = titles_of([*runs, other, ROWS[2]])
    assert titles == {"one": "trace · beam 5", "two": "trace · beam 10", "far": "trace", "lengths": "sweep lengths"}


def test_failed_and_damaged_runs_are_red() -> None:
    failed = replace(ROWS[0], figures={"failed questions": Measured(3, of=12)})
    assert status_mark(failed) == ("! 3 failed", "wrong")
    assert status_mark(replace(ROWS[0], trouble="metrics.json: no JSON")) == ("! damaged", "wrong")
    assert status_mark(ROWS[0]) == ("✓ done", "right")
    assert status_mark(replace(ROWS[2], status="not finished", cells="1 of 3 cells")) == ("○ 1 of 3 cells", "hint")


def test_cells_are_below_their_sweep(viewing: Viewing) -> None:
    page = viewing.get("/")
    classes = re.findall(r'<tr data-key="[^"]*"(?: class="([^"]*)")?>', page)
    at = classes.index("sweep")
    assert classes[at : at + 4] == ["sweep", "of-sweep", "of-sweep", "of-sweep"]
    assert classes.count("of-sweep") == 3
    assert "no_context · max answer tokens 3" in page


def test_row_is_read_again_only_when_its_files_change(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    viewed = Folder(tmp_path / "outputs")
    before = viewed.rows(viewed.list_runs())
    run = next(each for each in before if each.kind == "run")
    file = run.folder / "metrics.json"
    stat, text = file.stat(), file.read_text(encoding="utf-8")
    file.write_text("{", encoding="utf-8")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert viewed.rows(viewed.list_runs()) == before
    os.utime(file)
    (damaged,) = [each for each in viewed.rows(viewed.list_runs()) if each.key == run.key]
    assert damaged.trouble
    assert not damaged.figures
    file.write_text(text, encoding="utf-8")
    assert viewed.run(run.key).figures == run.figures


def test_damaged_trace_is_an_error_with_its_place(folder: Path, keys: dict[str, str], tmp_path: Path) -> None:
    whole = (folder / "outputs" / keys["trace"] / TRACE).read_bytes()
    starts = [at for at, _ in read_offsets(folder / "outputs" / keys["trace"])]
    (tmp_path / TRACE).write_bytes(whole[:-5])
    assert [at for at, _ in read_offsets(tmp_path)] == starts[:-1]
    (tmp_path / TRACE).write_bytes(whole[: starts[2]] + b"no frame" + whole[starts[2] :])
    with pytest.raises(DataError, match=f"at byte {starts[2]:,}: damaged trace"):
        list(read_offsets(tmp_path))


def test_answers_side_by_side(viewing: Viewing, keys: dict[str, str]) -> None:
    both = urlencode([("run", keys["trace"]), ("run", keys["no_context"])])

    def count(**query: str) -> int:
        return len(re.findall('<tr><th scope="row">(?!<)', viewing.get(f"/compare?{both}&{urlencode(query)}")))

    assert count() == 12
    flipped = viewing.get(f"/compare?{both}&which=flipped")
    assert "Which bridge was opened first" in flipped
    assert "EM A − B = -8.3 (p = 1.000)" in flipped
    assert "✓ the Candle Bridge" in flipped
    assert (count(which="flipped"), count(search="bridge OPENED first")) == (1, 1)


def test_question_of_another_run_is_marked(viewing: Viewing, keys: dict[str, str]) -> None:
    small = next(key for key in keys_of(viewing.get("/?filter=dataset%3Ddemo")) if key.startswith("demo/"))
    page = viewing.get(f"/compare?{urlencode([('run', keys['trace']), ('run', small)])}")
    assert page.count("not in this run") == 11
    assert "Choose 2 to 6 runs" in viewing.error(f"/compare?run={keys['trace']}")
    assert "Choose a finished run" in viewing.error(f"/compare?run={keys['trace']}&run=sweeps/lengths")
    assert "no run in" in viewing.error("/run/no/such/run/here")


def test_plots_of_a_sweep_show_its_runs(viewing: Viewing) -> None:
    page = viewing.get("/plots?run=sweeps/lengths")
    assert "3 runs of sweep lengths" in page
    assert "EM against tokens / question" in page
    assert "F1 against calls / question" in viewing.get("/plots?y=F1&x=calls+%2F+question")


def test_run_and_question_pages_are_complete_and_sandboxed(
    viewing: Viewing, keys: dict[str, str], folder: Path
) -> None:
    cookie = {"Cookie": viewing.cookie}
    response, text = viewing.ask(f"/run/{keys['trace']}", cookie)
    assert text == (folder / "outputs" / keys["trace"] / "report.html").read_text(encoding="utf-8")
    assert response.getheader("content-security-policy") == "sandbox allow-scripts allow-downloads allow-popups"
    response, text = viewing.ask(f"/question/{keys['no_context']}?id={quote(HOSTILE, safe='')}", cookie)
    assert (response.getheader("content-security-policy") or "").startswith("sandbox")
    assert SCRIPT not in text
    assert SCRIPT in unescape(text)
    assert "no such question" in viewing.error(f"/question/{keys['trace']}?id=x")


def test_running_work_is_shown(folder: Path, viewing: Viewing) -> None:
    assert viewing.get("/work").strip() == ""
    now, host = time.time(), socket.gethostname()
    beat = Heartbeat(
        what="run", folder="outputs/a/b/c/d", command="kgqa run", host=host, pid=1, started=now, updated=now,
        stage="questions", ended=3, count=9,
    )  # fmt: skip
    file = folder / "outputs/.running/other.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(beat.model_dump_json())
    assert "questions 3 of 9" in viewing.get("/work")
    file.unlink()


def test_keys_and_token_in_a_browser(browser: Browser, viewing: Viewing) -> None:
    assert browser.value("location.href") == viewing.base
    assert browser.value("document.cookie") == ""
    browser.press("/")
    browser.wait("document.activeElement.name === 'filter'")
    for width in (1400, 390):
        browser.resize(width, 844)
        assert browser.value("document.documentElement.scrollWidth") <= width
