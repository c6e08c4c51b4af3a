"""A judge's verdicts beside a run's answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kgqa import records
from kgqa.errors import DataError
from kgqa.runtime.folder import VERDICTS
from kgqa.types import Json

READ = {"question_id", "verdict", "fate", "judge", "votes"}  # of a line
UNSCORED = "unscored"


def read_verdicts(folder: Path) -> tuple[str, dict[str, dict[str, Json]]]:
    """Which judge it was, and the lines by question.

    Raises:
        DataError: there are none, or a line is not one of a judge's.
    """
    file = folder / VERDICTS
    if not file.is_file():
        raise DataError(f"{folder}: no {VERDICTS}; judge it first: kgqa evaluate {folder} judge=three_way")
    found: dict[str, dict[str, Json]] = {}
    judge = ""
    for where, line in records.records(file):
        if not (isinstance(line, dict) and line.keys() >= READ):
            raise DataError(f"{where}: not a verdict; judge the run again: kgqa evaluate {folder} judge=three_way")
        found[line["question_id"]], judge = line, str(line["judge"])
    return judge, found


class Judgements:
    """Of a run that was judged or not."""

    def __init__(self, folder: Path) -> None:
        """Raises DataError as `read_verdicts`, but not where there are none."""
        self._lines = read_verdicts(folder)[1] if (folder / VERDICTS).is_file() else {}

    def of(self, traced: Mapping[str, Json]) -> Mapping[str, Json] | None:
        """The line for a traced question, its verdict "unscored" where the judge gave none.

        None where nothing was judged, the question failed, or the judge saw another answer than there is now.
        """
        line = self._lines.get(traced["question"]["id"])
        if line is None or line["fate"] == "failed" or line.get("answer") != traced["answer"]:
            return None
        return {**line, "verdict": line["verdict"] or UNSCORED}
