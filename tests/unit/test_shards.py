"""Parts of a run: `shard=2/3`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kgqa.cache.store import CallCache
from kgqa.errors import ConfigError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.session import Session

RUN = ("dataset=demo", "method=golden", "engine=scripted", "model=smollm2_135m")


def ids(*overrides: str) -> list[str]:
    return compose_experiment([*RUN, *overrides]).data.ids


@pytest.mark.parametrize("count", [1, 2, 5], ids=str)
def test_shards_are_all_questions(count: int) -> None:
    shards = [ids(f"shard={number}/{count}") for number in range(1, count + 1)]
    assert sorted(id_ for shard in shards for id_ in shard) == sorted(ids())
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_shard_is_a_part_of_the_limit() -> None:
    assert ids("limit=4", "shard=2/2") == ids("limit=4")[1::2]


@pytest.mark.parametrize("shard", ["3/2", "0/2", "2", "1/100", "a/b"])
def test_wrong_shard_is_an_error(shard: str) -> None:
    with pytest.raises(ConfigError, match="shard"):
        ids(f"shard={shard}")


def test_shards_have_their_own_folders() -> None:
    folders = []
    for shard in ("1/2", "2/2"):
        with Session(compose_experiment([*RUN, f"shard={shard}"])) as session:
            folders.append(session.folder.name)
    assert [name.partition("-")[2] for name in folders] == ["shard-1-of-2", "shard-2-of-2"]


def test_shards_of_a_named_run_have_their_own_folders() -> None:
    with Session(compose_experiment([*RUN, "shard=2/2", "run_name=mine"])) as session:
        assert session.folder.name == "mine-shard-2-of-2"


@pytest.fixture
def replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KGQA_REPLIES", str(tmp_path / "replies"))
    return tmp_path / "replies"


def test_machines_share_replies(tmp_path: Path, replies: Path) -> None:
    with (
        closing(CallCache(tmp_path / "one")) as one,
        closing(CallCache(tmp_path / "other")) as other,
    ):
        one.put([("a", {"text": "A"})])
        other.put([("b", {"text": "B"})])
    with closing(CallCache(tmp_path / "third")) as third:
        assert (third.get("a"), third.get("b")) == ({"text": "A"}, {"text": "B"})
        # replies of the own runs, not imported ones
        assert not third.imported


@pytest.mark.parametrize(
    "damage", [b'["c", "{', b"\xff\n", b'["c", "1", 5, "", "", 0]\n', b"{}\n"], ids=str
)
def test_damaged_line_of_replies_is_skipped(tmp_path: Path, replies: Path, damage: bytes) -> None:
    with closing(CallCache(tmp_path / "one")) as one:
        one.put([("a", {"text": "A"})])
    (file,) = replies.iterdir()
    with file.open("ab") as end:
        end.write(damage)
    with closing(CallCache(tmp_path / "other")) as other:
        assert (other.get("a"), other.get("c")) == ({"text": "A"}, None)
