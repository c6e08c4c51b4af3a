"""The command that adds an extra, from wherever kgqa was installed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from kgqa.util import optional_deps
from kgqa.util.optional_deps import install_command


class Installed:
    """A distribution with this direct_url.json (PEP 610)."""

    def __init__(self, origin: object) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


EDITABLE = {"url": "file://{clone}", "dir_info": {"editable": True}}


@pytest.mark.parametrize(
    ("origin", "active", "command"),
    [
        (None, True, "pip install 'kgqa[pdf]'"),
        (EDITABLE, True, "pip install -e '.[pdf]'"),
        ({"url": "file://{clone}", "dir_info": {}}, True, "pip install '.[pdf]'"),
        ({"url": "file:///no/such/folder", "dir_info": {}}, True, "pip install 'kgqa[pdf]'"),
        ({"url": "https://example.org/kgqa-1.0-py3-none-any.whl"}, True, "pip install 'kgqa[pdf]'"),
        (
            {"url": "file://{clone}", "dir_info": {"editable": True}},
            False,
            ".venv/bin/python -m pip install -e '.[pdf]'",
        ),
    ],
)
def test_the_command_fits_the_installation(
    origin: dict[str, object] | None, active: bool, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if origin:
        origin = {**origin, "url": str(origin["url"]).format(clone=tmp_path)}
    programs = tmp_path / ".venv/bin"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(optional_deps, "distribution", lambda _: Installed(origin))
    monkeypatch.setattr(optional_deps, "find_spec", lambda _: object())
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: str(programs / "pip") if active else "/usr/bin/pip")
    assert install_command("pdf") == command


def test_an_environment_of_uv_has_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_deps, "distribution", lambda _: Installed(None))
    monkeypatch.setattr(optional_deps, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "executable", "/tools/kgqa/bin/python")
    assert install_command("pdf") == "uv pip install --python /tools/kgqa/bin/python 'kgqa[pdf]'"
