"""A row that is not what was written is asked for again and told; nothing wrong is ever handed out."""

from __future__ import annotations

import json
import logging
import random
import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, Choose, CountTokens, Rank, Search
from kgqa.errors import DataError
from kgqa.runtime.asked import kept_reply
from kgqa.runtime.cache import CallCache
from kgqa.runtime.cache_upkeep import check
from kgqa.runtime.codec import reply_from_json, reply_json
from kgqa.storage import text_digest
from kgqa.types import Choice, Completion, Json, Passage, Usage
from tests.engines_for_tests import Batches, ask, prompt
from tests.unit.scheduling import drive, named, two_steps

REPLIES: list[tuple[Call[Any], Any]] = [
    (ask("hello"), Completion("a text", usage=Usage(3, 1, 2, 0.5))),
    (Choose(prompt("which"), ("A", "B")), Choice((-0.1, -2.0), 0.9)),
    (Rank("query", ("one", "two")), (0.5, 1.5)),
    (CountTokens("some text"), 2),
    (Search("query", 2), (Passage("p", "Title", "text"),)),
]
TOLD = "damaged call cache|a call cache of form|no call cache"
SHAPES: list[Json] = [{}, [], ["a"], [0.5], [1.0, 2.0, 3.0], [None, None], "text", 1.5, -1, True, [[]], [{}, {}, {}]]


@pytest.mark.parametrize(("call", "reply"), REPLIES, ids=lambda each: type(each).__name__)
def test_every_kind_of_reply_is_believed_in_its_own_shape_alone(call: Call[Any], reply: Any) -> None:
    assert reply_from_json(call, json.loads(json.dumps(reply_json(reply)))) == reply
    wrong = [shape for shape in SHAPES if not (isinstance(call, Search) and shape == [])]
    for shape in [*wrong, *(reply_json(other) for kind, other in REPLIES if type(kind) is not type(call))]:
        with pytest.raises(ValueError, match=f"no reply to {type(call).__name__}"):
            reply_from_json(call, shape)


@pytest.mark.parametrize(
    ("call", "key", "value"),
    [
        (REPLIES[0][0], "text", None),
        (REPLIES[0][0], "finish", "error"),
        (REPLIES[0][0], "usage", [1, 2]),
        (REPLIES[0][0], "usage", [1, 2, "3", 0.1]),
        (REPLIES[0][0], "flags", [1]),
        (REPLIES[1][0], "logprobs", [-0.1]),
        (REPLIES[1][0], "logprobs", [-0.1, float("nan")]),
        (REPLIES[1][0], "mass", "all"),
    ],
)
def test_one_wrong_part_makes_no_reply(call: Call[Any], key: str, value: Json) -> None:
    whole = reply_json(next(reply for kind, reply in REPLIES if kind is call))
    with pytest.raises(ValueError, match="no reply to"):
        reply_from_json(call, {**whole, key: value})


def results(engine: Batches, cache: CallCache) -> list[Any]:
    return sorted(ended.result for ended in drive(engine, cache, named(3, two_steps)))


def changed(cache: CallCache, statement: str) -> None:
    with closing(sqlite3.connect(cache.path)) as other, other:
        other.execute(statement)


@pytest.mark.parametrize("value", ["'{}'", "'{broken'", "NULL", "17", "x'00ff'", "'[\"a\"]'", "value || ' '"])
def test_values_changed_behind_its_back_are_asked_again_counted_and_told(
    cache: CallCache, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = results(Batches(), cache)
    changed(cache, f"UPDATE calls SET value = {value}")
    engine = Batches()
    assert results(engine, cache) == before
    assert sum(map(len, engine.asked)) == 6
    assert cache.damaged == 6
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "a damaged reply" in warned[0]
    assert "kgqa cache check" in warned[0]
    again = Batches()
    assert results(again, cache) == before
    assert not again.asked


def test_a_reply_of_the_wrong_shape_under_a_right_checksum_is_asked_again(cache: CallCache) -> None:
    call = ask("hello")
    cache.put([("key", ["a"])])
    assert kept_reply(cache, "key", call) is None
    assert cache.damaged == 1
    assert not cache.put([("key", reply_json(Completion("new")))])
    assert kept_reply(cache, "key", call) == Completion("new")


def test_a_flipped_bit_never_changes_a_reply(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """400 copies of a cache, each with one bit of the file turned over: a wrong reply is never handed out, and
    what is missing is told. `kgqa cache check` finds it, too."""
    written = {f"{number:064x}": {"text": f"reply {number} " * 5} for number in range(120)}
    opened = CallCache(tmp_path / "whole")
    opened.put(written.items())
    opened.close()
    whole = (tmp_path / "whole" / "calls.sqlite").read_bytes()
    caplog.set_level(logging.CRITICAL)
    chance, ends = random.Random(7), Counter[str]()
    (tmp_path / "flipped").mkdir()
    for _ in range(400):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit
        ends[_end(tmp_path / "flipped", bytes(flipped), written)] += 1
    assert set(ends) == {"unchanged", "damaged rows", "damaged file"}
    assert ends["damaged rows"] > 100
    assert sum(ends.values()) == 400


@pytest.mark.parametrize("digit", [0, 1, 2, 40, 63])
def test_a_reply_under_a_damaged_key_is_recognised_by_its_checksum(
    tmp_path: Path, digit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbours, which SQLite may then look for in the wrong place, are found or told."""
    written: dict[str, Json] = {text_digest(str(number)): f"reply {number}" for number in range(200)}
    opened = CallCache(tmp_path)
    opened.put(written.items())
    opened.close()
    whole = opened.path.read_bytes()
    for key in list(written)[:10]:
        place = whole.index(key.encode()) + digit
        opened.path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        cache = CallCache(tmp_path)
        assert cache.get(key) == cache.get(key) == written[key]
        lost = [other for other in written if cache.get(other) is None]
        assert (cache.recognised, cache.damaged) == (1, len(lost))
        cache.close()
        assert check(tmp_path).bad == 1
    assert "a damaged key" in caplog.text


def _end(folder: Path, content: bytes, written: dict[str, Json]) -> str:
    """What became of a cache with this content."""
    for file in folder.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    (folder / "calls.sqlite").write_bytes(content)
    try:
        cache = CallCache(folder)
        try:
            found = {key: cache.get(key) for key in written}
            damaged = cache.damaged
        finally:
            cache.close()
    except DataError as error:
        return "damaged file" if re.search(TOLD, str(error)) else str(error)
    missing = [key for key, reply in found.items() if reply is None]
    assert all(found[key] == written[key] for key in written if key not in missing)
    if not missing:
        return "unchanged"
    assert not check(folder).whole
    return "damaged rows" if damaged else "missing rows"
