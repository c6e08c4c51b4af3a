"""Run docs/kgqa.ipynb with the default model, and store its outputs in the file.

    python scripts/notebook.py

Needs the weights of `make demo`, and nbclient and ipykernel of the development tools.
"""

from __future__ import annotations

import os
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbclient
import nbformat

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs/kgqa.ipynb"


def main() -> int:
    os.environ["PYTHONPATH"] = str(ROOT)
    reader: Any = nbformat
    notebook = reader.read(NOTEBOOK, as_version=4)
    metadata = deepcopy(notebook.metadata)
    with tempfile.TemporaryDirectory(prefix="kgqa-notebook-") as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=3600, resources=resources).execute()
    # times of execution and the version of Python would differ in every run
    notebook.metadata = metadata
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    NOTEBOOK.write_text(reader.writes(notebook) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
