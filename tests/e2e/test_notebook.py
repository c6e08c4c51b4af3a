"""The notebook of the docs runs from its first cell to its last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.without_weights import stand_in_defaults

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
NOTEBOOK = Path(__file__).parents[2] / "docs" / "kgqa.ipynb"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the kernel's own sockets
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    monkeypatch.delenv("KGQA_CACHE", raising=False)
    stand_in_defaults(tmp_path)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = str([cell.get("outputs") for cell in notebook.cells])
    assert "no such method. Did you mean trace" in shown
    assert "<table" in shown
    assert (tmp_path / "outputs" / "demo" / "trace").is_dir()
