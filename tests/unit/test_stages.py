"""A stage's folder is whole or not there: the manifest comes last and says what lies beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kgqa.artifacts.manifest import Code
from kgqa.artifacts.stage import Origin, StageManifest
from kgqa.errors import ConfigError, DataError
from kgqa.runtime.artifact_dir import ArtifactDir

ORIGIN = Origin(command=("kgqa", "verify"), kgqa=Code(version="1"), python="3.11", packages={})


@dataclass(frozen=True)
class Counted:
    questions: int


def _stage(parent: Path, **identity: object) -> ArtifactDir:
    return ArtifactDir.for_identity("verify", parent, identity)


def _finished(parent: Path) -> ArtifactDir:
    stage = _stage(parent, seed=0, order=("a", "b"))
    with stage.lock():
        stage.write("verdicts.jsonl", ["1\n", "2\n"])
        stage.finish(Counted(2), ORIGIN)
    return stage


def test_what_ended_is_read_by_whoever_asks_for_the_same(tmp_path: Path) -> None:
    _finished(tmp_path)
    assert _stage(tmp_path, order=["a", "b"], seed=0).outcome(Counted) == Counted(2)


def test_another_identity_has_another_folder(tmp_path: Path) -> None:
    first = _finished(tmp_path)
    other = _stage(tmp_path, seed=1)
    assert other.path != first.path
    assert other.outcome(Counted) is None


def test_a_stage_that_was_cut_short_has_not_ended(tmp_path: Path) -> None:
    stage = _stage(tmp_path)
    with stage.lock():
        stage.write("verdicts.jsonl", ["1\n"])
    assert stage.outcome(Counted) is None


def test_begun_again_it_has_not_ended_any_more(tmp_path: Path) -> None:
    stage = _finished(tmp_path)
    with stage.lock():
        pass
    assert stage.outcome(Counted) is None


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_text("3\n")])
def test_a_file_that_is_gone_or_changed_makes_it_unfinished(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    stage = _finished(tmp_path)
    damage(stage.path / "verdicts.jsonl")
    assert stage.outcome(Counted) is None
    manifest = StageManifest.read(stage.path, "verify")
    with pytest.raises(DataError, match=r"verdicts\.jsonl: (no such file|changed .*); run the command .* kgqa verify"):
        manifest.file(stage.path, "verdicts.jsonl")


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with (
        _stage(tmp_path).lock(),
        pytest.raises(ConfigError, match="another kgqa process"),
        _stage(tmp_path).lock(),
    ):
        pass


def test_a_chosen_folder_of_another_identity_is_refused_with_what_differs(tmp_path: Path) -> None:
    with ArtifactDir("verify", tmp_path, {"seed": 0}).lock():
        pass
    with (
        pytest.raises(ConfigError, match=r"differs in seed \(0 → 1\)"),
        ArtifactDir("verify", tmp_path, {"seed": 1}).lock(),
    ):
        pass


def test_the_folder_of_another_stage_is_named(tmp_path: Path) -> None:
    stage = _finished(tmp_path)
    with pytest.raises(DataError, match="made by kgqa data verify, not by kgqa collect safe"):
        StageManifest.read(stage.path, "collect safe")
    with pytest.raises(DataError, match="so no kgqa data verify has finished here"):
        StageManifest.read(tmp_path, "verify")
