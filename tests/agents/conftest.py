"""An empty folder for each test, in which runs and agents work."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("KGQA_TRAINED", "KGQA_CONF"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
