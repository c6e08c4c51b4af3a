"""What answers have in common: their form, and what a page loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgqa.report.html import Served
from kgqa.report.packing import compact_json
from kgqa.types import Json

if TYPE_CHECKING:
    from starlette.responses import Response


def json_reply(value: Json, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(compact_json(value), status_code=status, media_type="application/json")


def served(key: str, scripts: Sequence[str]) -> Served:
    """A page of the report's that is served: its style sheets and these scripts by their addresses."""
    styles = ("/assets/report.css", "/assets/viewer.css")
    return Served(key, styles=styles, scripts=tuple(f"/assets/{name}" for name in scripts))
