"""What the viewer answers to which address. Nothing here is asked without `guard`."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from kgqa.artefacts.form import checked
from kgqa.artefacts.run import FinishedRun
from kgqa.errors import ConfigError, DataError, UsageError
from kgqa.inert import inert, one_line
from kgqa.json_values import NotJson, decoded
from kgqa.redaction import without_secrets
from kgqa.report.html import served_html
from kgqa.report.page import EXPLORER, QUESTION_SCRIPTS
from kgqa.types import Json
from kgqa.unforeseen import told
from kgqa.viewer import live, side_by_side
from kgqa.viewer.ask_tab import AskTab
from kgqa.viewer.choices import Choices
from kgqa.viewer.folder import Folder, Listed
from kgqa.viewer.questions import OpenedRuns, RunQuestions, row_json
from kgqa.viewer.replies import json_reply, served
from kgqa.viewer.tags import change_tags

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

MOST = 1000  # rows of a page
RUNS = 6  # side by side
SHARED = ("report.css", *EXPLORER)  # the report's own
MODULES = ("viewer", "server", "table", "columns", "compare", "plots", "live", "served", "ask", "told", "sight")
OWN = ("viewer.css", *(f"{module}.js" for module in MODULES))
KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class _Change:
    """Of tags: on which runs, and which to put on and take off."""

    runs: tuple[str, ...]
    add: tuple[str, ...]
    remove: tuple[str, ...]


class Viewer:
    """The answers, of one folder, until it is closed."""

    def __init__(self, folder: Folder, choices: Choices) -> None:
        self._folder = folder
        self._opened = OpenedRuns()
        self._ask_tab = AskTab(choices)
        self._closed = False

    def close(self) -> None:
        """Streams end, and so does a question that is being answered."""
        self._closed = True
        self._ask_tab.close()

    def application(self) -> Starlette:
        from starlette.applications import Starlette
        from starlette.routing import Route

        routes = [
            Route("/", self.index),
            Route("/favicon.ico", self.nothing),
            Route("/assets/{name}", self.asset),
            Route("/run/{key:path}", self.run_page),
            Route("/api/runs", self.runs),
            Route("/api/live", self.live),
            Route("/api/tags", self.tags, methods=["POST"]),
            Route("/api/questions/{key:path}", self.questions),
            Route("/api/question/{key:path}", self.question),
            Route("/api/answers", self.answers),
            Route("/api/figures", self.figures),
            *self._ask_tab.routes(),
        ]
        refusals = {UsageError: _mistaken, NotJson: _mistaken, Exception: _unforeseen}
        return Starlette(routes=routes, exception_handlers=refusals)

    def index(self, _: Request) -> Response:
        from starlette.responses import HTMLResponse

        page = (files("kgqa.viewer") / "assets" / "index.html").read_text(encoding="utf-8")
        return HTMLResponse(page.replace("FOLDER", escape(inert(str(self._folder.root)))))

    def nothing(self, _: Request) -> Response:
        from starlette.responses import Response

        return Response(status_code=204)

    def asset(self, request: Request) -> Response:
        from starlette.responses import Response

        name = request.path_params["name"]
        if name not in (*SHARED, *OWN):
            raise DataError(f"{name}: no such file")
        package = "kgqa.report" if name in SHARED else "kgqa.viewer"
        text = (files(package) / "assets" / name).read_text(encoding="utf-8")
        return Response(text, media_type=KINDS[name.rpartition(".")[2]])

    def run_page(self, request: Request) -> Response:
        """The run's own report, whose questions come from here."""
        from starlette.responses import HTMLResponse

        listed = self._listed(request.path_params["key"])
        scripts = (*QUESTION_SCRIPTS, "served.js", "report.js")
        return HTMLResponse(served_html(FinishedRun.read(listed.kept.folder), served(listed.key, scripts)))

    def runs(self, request: Request) -> Response:
        """Rows of the table, the last one written first."""
        first, count = _range(request)
        listed = self._folder.listed()
        return json_reply({"rows": self._folder.rows(listed[first : first + count]), "count": len(listed)})

    def live(self, _: Request) -> Response:
        from starlette.responses import StreamingResponse

        return StreamingResponse(live.events(self._folder, lambda: self._closed), media_type="text/event-stream")

    async def tags(self, request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool

        asked: Json = decoded(await request.body())
        change = checked(_Change, asked, "tags", "give lists of texts")
        known = {listed.key for listed in await run_in_threadpool(self._folder.listed)}
        if unknown := [key for key in change.runs if key not in known]:
            raise DataError(f"{unknown[0]}: no run or sweep in {self._folder.root}")
        tags = await run_in_threadpool(change_tags, self._folder.root, change.runs, change.add, change.remove)
        return json_reply(tags)

    def questions(self, request: Request) -> Response:
        run = self._run(request.path_params["key"])
        rows = run.page(*_range(request))
        return json_reply({"rows": list(map(row_json, rows)), "count": len(run)})

    def question(self, request: Request) -> Response:
        """`id` is JSON's text of it: an id may hold what no address does."""
        return json_reply(
            self._run(request.path_params["key"]).question(str(decoded(request.query_params.get("id", ""))))
        )

    def answers(self, request: Request) -> Response:
        runs = [self._opened.open(listed.kept.folder) for listed in self._several(request)]
        return json_reply({"rows": side_by_side.answers(runs, *_range(request)), "count": len(runs[0])})

    def figures(self, request: Request) -> Response:
        return json_reply(side_by_side.figures([listed.kept.folder for listed in self._several(request)]))

    def _several(self, request: Request) -> list[Listed]:
        keys = request.query_params.getlist("run")
        if not 2 <= len(keys) <= RUNS:
            raise ConfigError(f"{len(keys)} runs: two to {RUNS} stand beside each other")
        return [self._listed(key) for key in keys]

    def _run(self, key: str) -> RunQuestions:
        return self._opened.open(self._listed(key).kept.folder)

    def _listed(self, key: str) -> Listed:
        listed = self._folder.find(key)
        if listed.sweep:
            raise DataError(f"{key}: a sweep, not a run")
        return listed


def _range(request: Request) -> tuple[int, int]:
    try:
        first, count = (int(request.query_params.get(key, default)) for key, default in (("from", 0), ("count", MOST)))
    except ValueError as error:
        raise ConfigError(f"from and count must be numbers ({error})") from None
    if first < 0 or not 0 < count <= MOST:
        raise ConfigError(f"from={first} count={count}: from 0 on, 1 to {MOST} rows")
    return first, count


def _unforeseen(request: Request, error: Exception) -> Response:
    return json_reply({"error": told(error, ("view", request.url.path))}, 500)


def _mistaken(_: Request, error: Exception) -> Response:
    return json_reply({"error": one_line(without_secrets(str(error)))}, 400)
