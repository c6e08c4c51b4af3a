"""What `make audit` and `make update` make of the answers they get."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts import audit, renew_constraints
from scripts.renew_constraints import MARKER, renewed

SAFE = {"name": "safe", "version": "1.0", "vulns": []}
FLAWED = {"name": "flawed", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}, {"id": "CVE-2"}]}
SKIPPED = {"name": "skipped", "skip_reason": "not found"}


def answering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str) -> list[str]:
    """pip-audit answers so, whatever it is asked."""
    (tmp_path / "pip_audit.py").write_text(f"print({answer!r})", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert sys.executable
    return ["constraints.txt"]


def test_a_known_vulnerability_is_told_and_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = answering(monkeypatch, tmp_path, json.dumps({"dependencies": [SAFE, FLAWED, SKIPPED]}))
    assert audit.main(files) == 1
    assert capsys.readouterr().out.splitlines() == [
        "constraints.txt: 2 packages audited",
        "flawed 2.0: CVE-1, mended in 2.1",
        "flawed 2.0: CVE-2, not mended yet",
    ]


def test_nothing_known_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert audit.main(answering(monkeypatch, tmp_path, json.dumps({"dependencies": [SAFE]}))) == 0


@pytest.mark.parametrize("answer", ["", "Traceback", json.dumps({"dependencies": [SKIPPED]})])
def test_a_database_that_nobody_reaches_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    assert audit.main(answering(monkeypatch, tmp_path, answer)) == 0
    assert capsys.readouterr().out == f"constraints.txt: {audit.UNREACHED}\n"


def test_pins_are_renewed_in_their_places(tmp_path: Path) -> None:
    before = f"# Development versions.\nann==1.0{MARKER}\nBob_b==1.0{MARKER}\n"
    changes = [("bob-b", "2.0"), ("aaron", "3"), ("torch", "9"), ("kgqa", "0.3"), ("nvidia-x", "1")]
    assert renewed(before, changes) == (
        f"# Development versions.\naaron==3{MARKER}\nann==1.0{MARKER}\nBob_b==2.0{MARKER}\n"
    )
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"install": [{"metadata": {"name": "ann", "version": "1.1+cpu"}}]}), encoding="utf-8")
    file = tmp_path / "constraints.txt"
    file.write_text(before, encoding="utf-8")
    assert renew_constraints.main([str(file), str(report)]) == 0
    assert file.read_text(encoding="utf-8") == f"# Development versions.\nann==1.1{MARKER}\nBob_b==1.0{MARKER}\n"


def test_a_renewal_that_changes_nothing_leaves_the_files_as_they_are() -> None:
    for name in ("constraints.txt", "constraints-vllm.txt"):
        text = (Path(__file__).parents[2] / name).read_text(encoding="utf-8")
        assert renewed(text, []) == text
