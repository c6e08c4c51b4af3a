"""The pages of the viewer. `server.Guard` checks every request before it gets here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from kgqa.artifacts.run import FinishedRun
from kgqa.errors import ConfigError, DataError, UsageError
from kgqa.experiment.compare import REPEATS_TEXT, label_runs
from kgqa.extras.viewer import table
from kgqa.extras.viewer.answers import (
    FILTERS,
    Side,
    compare_scores,
    question_of,
    read_answers,
    side_by_side,
    warn_of_mixed_judges,
    warn_of_questions,
)
from kgqa.extras.viewer.table import (
    FIELDS,
    TEXTS,
    Row,
    expand_sweeps,
    find_row,
    group_cells,
    list_cells,
    read_rows,
)
from kgqa.report.columns import explain_names
from kgqa.report.evaluation import answered_section, comparison_section
from kgqa.report.explorer import question_page, run_page
from kgqa.report.page import SECTION_SCRIPTS, is_current, page_policy, template_environment
from kgqa.report.run_report import notices, sections, title_with_settings
from kgqa.report.section import FILES, Section
from kgqa.report.sweeps import SweepReport
from kgqa.runtime.monitor import read_heartbeats
from kgqa.scoring.comparison import DIFFERENCE
from kgqa.scoring.questions import METRICS
from kgqa.util.redaction import redact, write_crash_report
from kgqa.util.text import escape_control, one_line, pluralize

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

# rows of a table on one page
PAGE = 200
MAX_RUNS = 6  # side by side
TESTS = "Means in percent over the questions that all runs have."
ASSETS: list[str | tuple[str, str]] = [("kgqa.extras.viewer", "assets"), ("kgqa.report", "assets")]
# links of a sandboxed page send no cookie (SameSite), because it has another origin. This page needs none,
# and the browser sends the cookie when it continues from here to the table, or to the page of a run
HOME = "/home"
HOME_PAGE = '<!doctype html><title>kgqa</title><meta http-equiv="refresh" content="0; url={}">'
BACK = f'<nav aria-label="Back"><a href="{HOME}">← all runs</a>{{}}</nav>'
# the link of a sweep's report to the report of a cell
REPORT_LINK = re.compile(r'href="([^"#]+)/report\.html"')
# a file's page runs only kgqa's scripts. It cannot load anything or reach this server
SANDBOX = {
    "content-security-policy": f"sandbox allow-scripts allow-downloads allow-popups; {page_policy()}"
}


class Viewer:
    """The pages of one folder of runs."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise DataError(
                f"{root}: no such folder. Name an outputs/ folder, e.g. kgqa view outputs"
            )
        self._root = root

    def application(self) -> Starlette:
        from starlette.applications import Starlette
        from starlette.routing import Mount, Route
        from starlette.staticfiles import StaticFiles

        routes = [
            Route("/", self.runs),
            Route(HOME, self.home),
            Route("/favicon.ico", self.favicon),
            Mount("/assets", StaticFiles(packages=ASSETS)),
            Route("/work", self.work),
            Route("/run/{key:path}", self.run),
            Route("/sweep/{key:path}", self.sweep),
            Route("/question/{key:path}", self.question),
            Route("/compare", self.compare),
            Route("/plots", self.plots),
        ]
        handlers = {UsageError: self.refuse, Exception: self.crash}
        return Starlette(routes=routes, exception_handlers=handlers)

    def runs(self, request: Request) -> Response:
        """Show a page of the table. The cells of a sweep are below it if there is no order."""
        query, rows = request.query_params, read_rows(self._root)
        text, order, first = query.get("filter", ""), query.get("sort", ""), _first(request)
        matches = table.filter_rows(rows, text)
        remark = "" if matches or not rows else table.explain_no_match(rows, text)
        example = table.suggest_filter(rows)
        listed = {row.key: row for row in rows}
        cells = {
            row.key: [cell.key for cell in list_cells(row, listed)]
            for row in rows
            if row.kind == "sweep"
        }
        rows = table.sort_rows(matches, order)
        rows = rows if order else group_cells(rows)
        page_rows = table.name_rows(rows[first : first + PAGE])
        return self._page(
            request, "runs.html.j2", rows=page_rows, grouped=not order, hints=table.explain_rows(page_rows),
            first=first, count=len(rows), total=table.count_rows(rows), filter=text, remark=remark, sort=order,
            columns=table.columns_of(page_rows), beats=read_heartbeats(self._root), most=MAX_RUNS,
            example=example, cells=cells,
            warnings=[*table.warn_of_simulation(page_rows), *table.warn_of_judges(page_rows)],
        )  # fmt: skip

    def home(self, request: Request) -> Response:
        """Continue to the page of a question, a run or a sweep, to runs side by side, or to the table."""
        query = request.query_params
        key, question_id, beside = query.get("run"), query.get("id"), query.getlist("beside")
        sweep = query.get("sweep")
        address = "/"
        if key and question_id is not None:
            others = urlencode([each for each in query.multi_items() if each[0] != "run"])
            address = f"/question/{quote(key)}?{others}#q={quote(question_id, safe='')}"
        elif key:
            address = f"/run/{quote(key)}"
        elif sweep:
            address = f"/sweep/{quote(sweep)}"
        elif beside:
            address = f"/compare?{_link_beside(beside, query, 'run', 'search')}"
        return _html(HOME_PAGE.format(escape(address)))

    def favicon(self, _: Request) -> Response:
        return _html("", 204)

    def work(self, request: Request) -> Response:
        return self._page(request, "work.html.j2", beats=read_heartbeats(self._root))

    def run(self, request: Request) -> Response:
        """Show the report of a run, as the run wrote it. One of another version of kgqa is written anew."""
        key = request.path_params["key"]
        file = find_row(self._root, key).folder / "report.html"
        if not file.is_file():
            raise DataError(f"{file}: no report. Write it with kgqa report {file.parent}")
        pages = f"{HOME}?{urlencode({'run': key})}"
        sweeps = [row for row in self._list_reported() if key in row.runs]
        if is_current(file):
            page = file.read_text(encoding="utf-8", errors="backslashreplace")
        else:
            run = FinishedRun.read(file.parent)
            page = "".join(run_page(run, sections(run), notices(run)))
        return _sandbox(page, pages, sweeps)

    def sweep(self, request: Request) -> Response:
        """Show the report of a sweep, with links to the pages of its runs. One of another version is written again."""
        key = request.path_params["key"]
        folder = next((row.folder for row in self._list_reported() if row.key == key), None)
        if folder is None:
            raise DataError(f"{key}: no sweep with a report in {self._root}")
        file = folder / FILES["html"]
        if is_current(file, SECTION_SCRIPTS):
            page = file.read_text(encoding="utf-8", errors="backslashreplace")
        else:
            page = SweepReport.read(folder).html()
        return _sandbox(REPORT_LINK.sub(lambda link: self._link_run(folder, link[1]), page))

    def _list_reported(self) -> list[Row]:
        """Return the sweeps with a report."""
        return [row for row in read_rows(self._root) if row.kind == "sweep" and row.has_report]

    def _link_run(self, folder: Path, address: str) -> str:
        """Return the attribute of a link to a run, from its address in a report. One outside the folder has none."""
        run = (folder / unescape(address)).resolve()
        root = self._root.resolve()
        if not run.is_relative_to(root):
            return ""
        return f'href="{HOME}?{urlencode({"run": run.relative_to(root).as_posix()})}"'

    def question(self, request: Request) -> Response:
        """Show one question of a run with all its calls, in the list of the run or of runs side by side."""
        query, row = request.query_params, find_row(self._root, request.path_params["key"])
        answers = read_answers(row.folder)
        question = answers.question(query.get("id", ""))
        links, pages, rows = (
            [],
            f"{HOME}?{urlencode({'run': row.key})}",
            list(answers.rows.values()),
        )
        if beside := query.getlist("beside"):
            runs = table.name_rows([find_row(self._root, key) for key in beside])
            sides = side_by_side(runs, query.get("which", ""), query.get("words", ""))
            listed = {question_of(side)["question_id"] for side in sides}
            if question.row["question_id"] in listed:
                rows = [each for each in rows if each["question_id"] in listed]
            around = _link_beside(beside, query, "beside", "words")
            links, pages = [("side by side", f"{HOME}?{around}")], f"{pages}&{around}"
            for side in sides:
                if question_of(side)["question_id"] == question.row["question_id"]:
                    links += _link_others(row, runs, side, around)
        scores = {
            metric.title: question.row[name] for name, metric in METRICS.items() if metric.tested
        }
        scores["judge"] = question.row["verdict"]
        facts = [("run", row.key), ("gold answer", " | ".join(question.row["gold"]))]
        facts += [(name, str(value)) for name, value in scores.items() if value is not None]
        name = f"{title_with_settings(FinishedRun.read(row.folder))} · {row.name}"
        page = question_page(
            question,
            facts,
            links=[*links, (name, f"{HOME}?{urlencode({'run': row.key})}")],
            notices=table.warn_of_simulation([row]),
            rows=rows,
        )
        return _sandbox("".join(page), pages)

    def compare(self, request: Request) -> Response:
        query, first = request.query_params, _first(request)
        runs = table.name_rows(self._several(request))
        which, text = query.get("which", ""), query.get("search", "")
        sides = side_by_side(runs, which, text)
        tests, notes = _list_tests(runs)
        return self._page(
            request, "compare.html.j2", runs=runs, letters=ascii_uppercase[: len(runs)], filters=FILTERS, which=which,
            search=text, sides=sides[first : first + PAGE], first=first, count=len(sides),
            columns=table.columns_of(runs), hints=[*table.explain_rows(runs), *notes], tests=tests,
            beside=_link_beside([run.key for run in runs], query, "beside", "words"),
            warnings=[
                *table.warn_of_simulation(runs), *warn_of_questions(runs),
                *table.warn_of_judges(runs), *warn_of_mixed_judges(runs),
            ],
        )  # fmt: skip

    def plots(self, request: Request) -> Response:
        """Plot the chosen runs, those of a chosen sweep, or all."""
        query = request.query_params
        listed = {row.key: row for row in read_rows(self._root)}
        named = [listed[key] for key in query.getlist("run") if key in listed] or list(
            listed.values()
        )
        rows = [row for row in expand_sweeps(named, listed) if row.figures]
        groups = table.name_groups(rows)
        figures = [name for name in table.columns_of(rows) if name not in FIELDS]
        x = query.get("x") or next((name for name in table.COSTS if name in figures), "")
        y = query.get("y") or next((name for name in figures if name not in table.COSTS), "")
        return self._page(
            request, "plots.html.j2", keys=query.getlist("run"), figures=figures, x=x, y=y,
            count=pluralize(sum(y in row.figures for row in rows), "run"),
            sweep=named[0] if len(named) == 1 and named[0].kind == "sweep" else None,
            plots=table.draw_plots(rows, groups, x, y),
            hints=[
                *table.explain_means(rows),
                *explain_names(row.title for row in table.name_rows(rows)),
                *table.explain_groups(groups.values()),
            ],
            warnings=table.warn_of_simulation(rows),
        )  # fmt: skip

    def refuse(self, request: Request, error: Exception) -> Response:
        return self._page(request, "error.html.j2", 400, error=one_line(redact(str(error))))

    def crash(self, request: Request, error: Exception) -> Response:
        return self._page(
            request,
            "error.html.j2",
            500,
            error=write_crash_report(error, ("view", request.url.path)),
        )

    def _several(self, request: Request) -> list[Row]:
        """Return the ticked runs, with the finished cells of ticked sweeps."""
        listed = {row.key: row for row in read_rows(self._root)}
        sweeps = {key for key, row in listed.items() if row.runs}
        rows = [
            listed[key] if key in sweeps else find_row(self._root, key)
            for key in request.query_params.getlist("run")
        ]
        # a cell can be in several sweeps of the table
        runs = expand_sweeps(rows, listed)
        if not 2 <= len(runs) <= MAX_RUNS:
            raise ConfigError(
                f"{pluralize(len(runs), 'run')} chosen. Choose 2 to {MAX_RUNS} runs in the table"
            )
        return runs

    def _page(
        self, request: Request, template: str, status: int = 200, **values: object
    ) -> Response:
        def link(**changes: object) -> str:
            """Return this page's query with some values changed."""
            return f"?{request.url.include_query_params(**changes).query}"

        text = template_environment("kgqa.extras.viewer").get_template(template).render(
            view=request.url.path, folder=escape_control(str(self._root)), link=link, page=PAGE,
            texts=TEXTS, with_intervals=table.WITH_INTERVALS, scores=table.list_scores(), short=table.name_heads(),
            **values,
        )  # fmt: skip
        return _html(text, status)


def _list_tests(runs: Sequence[Row]) -> tuple[list[Section], list[str]]:
    """Return the paired tests, and notes: without sections, but with the reason, if the runs cannot be compared."""
    try:
        tests = compare_scores(runs)
    except (ConfigError, DataError) as error:
        return [], [f"No paired tests: {error}."]
    names = label_runs(
        {letter: row.title for letter, row in zip(ascii_uppercase, runs, strict=False)}
    )
    questions = max((each.n for each in tests.differences), default=0)
    section = comparison_section(tests.differences, DIFFERENCE, names, questions=questions)
    repeats = [REPEATS_TEXT] if any(row.kind == "mean" for row in runs) else []
    texts = (TESTS, *section.text[1:], *repeats)
    sections = [
        replace(section, title="Paired tests", text=texts),
        answered_section(tests.answered, names, tests.failed),
    ]
    notes = [f"{note[:1].upper()}{note[1:]}." for note in tests.notes]
    return [each for each in sections if each.rows], notes


def _link_others(row: Row, runs: Sequence[Row], side: Side, around: str) -> list[tuple[str, str]]:
    """Return the names of the runs that have a question side by side with `row`, and its addresses in them."""
    return [
        (
            f"{letter} {run.title}",
            f"{HOME}?{urlencode({'run': answers[0].key, 'id': str(answers[0].row['question_id'])})}&{around}",
        )
        for letter, run, answers in zip(ascii_uppercase, runs, side, strict=False)
        if answers and row.key not in run.folders
    ]


def _link_beside(runs: Sequence[str], query: Mapping[str, str], run: str, words: str) -> str:
    """Return the query of a list of questions side by side, with these names of its runs and of its search."""
    search = query.get("words") or query.get("search", "")
    pairs = [*((run, key) for key in runs), ("which", query.get("which", "")), (words, search)]
    return urlencode([pair for pair in pairs if pair[1]])


def _sandbox(page: str, pages: str = "", sweeps: Sequence[Row] = ()) -> Response:
    """Return a page that can reach nothing, with links to the table of runs and to the reports of sweeps.

    pages: the start of the addresses of questions that the page has no calls of.
    """
    links = "".join(
        f'<a href="{HOME}?{escape(urlencode({"sweep": row.key}))}">← sweep {escape(row.name)}</a>'
        for row in sweeps
    )
    page = page.replace("<header>", f"<header>{BACK.format(links)}", 1)
    if pages:
        page = page.replace("<body>", f'<body data-pages="{escape(pages)}">', 1)
    return _html(page, headers=SANDBOX)


def _html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(text.encode("utf-8", "backslashreplace"), status, headers, "text/html")


def _first(request: Request) -> int:
    """Return the number of the first row of the page."""
    text = request.query_params.get("from", "0")
    if not text.isdecimal():
        raise ConfigError(f"from={text!r:.20}: must be a number from 0")
    return int(text)
