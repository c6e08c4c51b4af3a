"""What the viewer answers about questions put to documents. Nothing here is asked without `guard`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.artefacts.asked import KIND, Asked, asked_folder
from kgqa.artefacts.form import checked
from kgqa.errors import DataError
from kgqa.json_values import decoded
from kgqa.report.asked import asked_page
from kgqa.report.page import EXPLORER
from kgqa.types import Json
from kgqa.viewer.asking import Asking, Settings
from kgqa.viewer.choices import Choices
from kgqa.viewer.replies import json_reply, served

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

MOST = 50  # questions that are listed


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a page asks for: each but the question is one of the choices."""

    question: str
    documents: str
    method: str
    model: str = ""  # the one that kgqa ask chooses


class AskTab:
    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._asking = Asking()
        self._folder = asked_folder()
        self._rows: dict[Path, tuple[int, dict[str, Json]]] = {}  # with when each was written

    def close(self) -> None:
        self._asking.close()

    def routes(self) -> list[BaseRoute]:
        from starlette.routing import Route

        return [
            Route("/asked/{name}", self.page),
            Route("/api/ask", self.choices),
            Route("/api/ask", self.put, methods=["POST"]),
            Route("/api/ask/cancel", self.cancel, methods=["POST"]),
            Route("/api/ask/events", self.events),
        ]

    def choices(self, _: Request) -> Response:
        return json_reply({**self._choices.json(), "asked": self._kept()})

    async def put(self, request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool

        asked: Json = decoded(await request.body())
        wish = checked(_Wish, asked, "question", "give texts")
        settings = await run_in_threadpool(self._settings, wish)
        shown: dict[str, Json] = {"documents": wish.documents, "method": wish.method, "model": wish.model}
        await self._asking.put(wish.question, settings, shown)
        return json_reply({})

    async def cancel(self, _: Request) -> Response:
        self._asking.cancel()
        return json_reply({})

    async def events(self, request: Request) -> Response:
        from starlette.responses import StreamingResponse

        seen = request.headers.get("last-event-id", "")
        return StreamingResponse(self._asking.events(seen), media_type="text/event-stream")

    def page(self, request: Request) -> Response:
        """A question's own page, made anew of what is kept beside it: no file's script runs here."""
        from starlette.responses import HTMLResponse

        name = request.path_params["name"]
        kept = {file.stem: file for file in self._folder.glob(f"*{KIND}")}
        if name not in kept:
            raise DataError(f"{name}: no question that is kept in {self._folder}")
        return HTMLResponse("".join(asked_page(Asked.read(kept[name]), served(name, EXPLORER))))

    def _settings(self, wish: _Wish) -> Settings:
        return Settings(self._choices.folder(wish.documents), self._choices.words(wish.method, wish.model))

    def _kept(self) -> list[Json]:
        """The last ones, the last one first; a damaged one says so."""
        stamped = [(_written(file), file) for file in self._folder.glob(f"*{KIND}")]
        return [self._row(file, stamp) for stamp, file in sorted(stamped, reverse=True)[:MOST]]

    def _row(self, file: Path, stamp: int) -> Json:
        known = self._rows.get(file)
        if known is None or known[0] != stamp:
            known = self._rows[file] = (stamp, {"name": file.stem, "written": stamp / 1e9, **_said(file)})
        return known[1]


def _said(file: Path) -> dict[str, Json]:
    try:
        asked = Asked.read(file)
    except DataError as error:
        return {"trouble": str(error)}
    prediction = asked.traced.prediction
    said = {"question": asked.traced.question.text, "answer": prediction.answer, "error": prediction.error}
    return {**said, "says_so": asked.says_so, "method": dict(asked.about).get("method", "")}


def _written(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:  # gone in between
        return 0
