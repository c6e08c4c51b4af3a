"""Models by name: asked of the hub only where that may be."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kgqa.util import hub
from kgqa.util import optional_deps as extras


class Absent(OSError):
    """What the hub's library says."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The hub's library in place of the real one; it has owner/model only. Its calls."""
    calls: list[dict[str, Any]] = []

    def download(repository: str, *names: str, **options: Any) -> str:
        calls.append(options)
        if repository != "owner/model":
            raise Absent(f"no {repository}\nand a page of advice")
        return "/".join(("/cache", repository, *names))

    library, errors = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.errors")
    information = SimpleNamespace(model_info=lambda name: SimpleNamespace(sha="abc"))
    vars(library).update(hf_hub_download=download, snapshot_download=download, HfApi=lambda: information)
    vars(errors).update(EntryNotFoundError=Absent, HfHubHTTPError=Absent)
    library.errors = errors  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(hub, "is_reachable", lambda: True)
    return calls


def test_a_snapshot_has_the_files_of_the_patterns_and_no_folders(asked: list[dict[str, Any]]) -> None:
    assert hub.find_snapshot("owner/model", ("*.json",), local=False) == Path("/cache/owner/model")
    assert asked == [{"allow_patterns": ["*.json"], "ignore_patterns": "*/*", "local_files_only": False}]
    assert hub.find_file("owner/model", "a.gguf", local=True) == Path("/cache/owner/model/a.gguf")
    assert hub.find_file("owner/other", "a.gguf", local=True) is None


def test_offline_only_the_copy_on_this_machine_is_looked_for(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "true")
    assert hub.is_offline()
    assert hub.find_snapshot("owner/model", ("*",), local=False) is None
    assert not asked
    assert hub.find_snapshot("owner/model", ("*",), local=True) is not None


def test_without_the_hubs_library_there_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert hub.find_file("owner/model", "a.gguf", local=True) is None


def test_an_encoders_folder_is_known_by_its_files_wherever_it_lies(tmp_path: Path) -> None:
    for place in ("here", "there"):
        (tmp_path / place / "deep").mkdir(parents=True)
        (tmp_path / place / "config.json").write_text("{}")
        (tmp_path / place / "deep" / "vocab.txt").write_text("a")
        (tmp_path / place / "README.md").write_text(place)
    known = hub.identify_weights(str(tmp_path / "here"))
    assert known == hub.identify_weights(str(tmp_path / "there"))
    (tmp_path / "there" / "deep" / "vocab.txt").write_text("ab")
    assert known != hub.identify_weights(str(tmp_path / "there"))
    assert hub.fetch_encoder(str(tmp_path / "here")) == tmp_path / "here"


def test_an_engine_lacks_what_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "LIBRARIES", {"one": ("json", "kgqa_has_no_such_package")})
    assert extras.missing_libraries("one") == ["kgqa_has_no_such_package"]
    assert extras.missing_libraries("scripted") == []
