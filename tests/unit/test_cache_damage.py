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

from kgqa.artifacts.call_schema import reply_from_json, reply_json
from kgqa.cache.in_flight import find_reply
from kgqa.cache.maintenance import check
from kgqa.cache.store import CallCache
from kgqa.calls import Call, Choose, CountTokens, Rank, Search
from kgqa.errors import DataError
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
TOLD = "damaged call cache|not a call cache"
SHAPES: list[Json] = [{}, [], ["a"], [0.5], [1.0, 2.0, 3.0], [None, None], "text", 1.5, -1, True, [[]], [{}, {}, {}]]


@pytest.mark.parametrize(("call", "reply"), REPLIES, ids=lambda each: type(each).__name__)
def test_reply_of_another_kind_is_refused(call: Call[Any], reply: Any) -> None:
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
def test_one_wrong_part_is_refused(call: Call[Any], key: str, value: Json) -> None:
    whole = reply_json(next(reply for kind, reply in REPLIES if kind is call))
    with pytest.raises(ValueError, match="no reply to"):
        reply_from_json(call, {**whole, key: value})


def results(engine: Batches, cache: CallCache) -> list[Any]:
    return sorted(ended.result for ended in drive(engine, cache, named(3, two_steps)))


def changed(cache: CallCache, statement: str) -> None:
    with closing(sqlite3.connect(cache.path)) as other, other:
        other.execute(statement)


@pytest.mark.parametrize("value", ["'{}'", "'{broken'", "NULL", "17", "x'00ff'", "'[\"a\"]'", "value || ' '"])
def test_damaged_rows_are_dropped_and_counted(cache: CallCache, value: str, caplog: pytest.LogCaptureFixture) -> None:
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


def test_whole_row_that_is_no_reply_is_dropped(cache: CallCache) -> None:
    call = ask("hello")
    cache.put([("key", ["a"])])
    assert find_reply(cache, "key", call) is None
    assert cache.damaged == 1
    assert not cache.put([("key", reply_json(Completion("new")))])
    assert find_reply(cache, "key", call) == Completion("new")


def test_flipped_bit_never_changes_a_reply(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
    assert set(ends) == {"unchanged", "damaged rows", "missing rows", "damaged file"}  # missing: under a damaged key
    assert ends["damaged rows"] > 100
    assert sum(ends.values()) == 400


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
    assert damaged or not check(folder).is_whole
    return "damaged rows" if damaged else "missing rows"
