"""What the tests of sweeps share: a sweep of two cells, and the states of cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import QUICK

TWO = ["run", "-m", "method=golden,no_context", "limit=2", *QUICK]


def result(folder: Path, number: int) -> Any:
    return json.loads((folder / f"cells/{number:03}.json").read_text())


def statuses(folder: Path) -> list[str]:
    return [json.loads(file.read_text())["status"] for file in sorted((folder / "cells").glob("*.json"))]
