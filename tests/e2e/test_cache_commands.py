"""`kgqa cache`: what is wrong is told and mended, exports replay elsewhere, what would be deleted is listed first."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from tests.e2e.conftest import QUICK, Kgqa

TRACE = ("run", "method=trace", "limit=3", *QUICK)
CACHE = Path("outputs/.cache/calls.sqlite")


def changed(statement: str, file: Path = CACHE) -> None:
    with closing(sqlite3.connect(file)) as cache, cache:
        cache.execute(statement)


def test_repair_deletes_damaged_rows(kgqa: Kgqa) -> None:
    first = kgqa(*TRACE)
    before = (first.folder / "predictions.jsonl").read_bytes()
    changed("UPDATE calls SET value = '{}' WHERE value LIKE '{%'")
    assert kgqa("cache", "check").code == 1
    assert kgqa("cache", "check", "--repair").code == 0
    assert kgqa("cache", "check").out.endswith("0 damaged: whole\n")
    again = kgqa(*TRACE)
    assert (again.folder / "predictions.jsonl").read_bytes() == before


def test_export_replays_elsewhere(kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kgqa(*TRACE, "judge=three_way")
    kgqa("run", "method=no_context", "limit=7", *QUICK)
    ran = kgqa("cache", "export", "calls.jsonl.zst", "--run", str(first.folder))
    assert ran.code == 0
    assert "calls that reproduce its predictions" in ran.out
    monkeypatch.setenv("KGQA_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path / "outputs")  # where there are no triples yet
    merged = kgqa("cache", "import", str(tmp_path / "calls.jsonl.zst"))
    assert merged.code == 0
    assert "0 equal, 0 different" in merged.out
    again = kgqa(*TRACE, "judge=three_way")
    before, after = (tmp_path / first.folder), again.folder
    assert (after / "predictions.jsonl").read_bytes() == (before / "predictions.jsonl").read_bytes()
    metrics = again.json("metrics.json")
    assert metrics["cost"]["paid"]["calls"] == metrics["judge"]["cost"]["paid"]["calls"] == 0
    assert metrics["cost"]["extraction_paid"]["calls"] == 0
    assert " 0 new" in f" {kgqa('cache', 'import', str(tmp_path / 'calls.jsonl.zst')).out}"


def test_export_of_unknown_engine(kgqa: Kgqa) -> None:
    kgqa("run", "method=no_context", "limit=2", *QUICK)
    ran = kgqa("cache", "export", "calls.jsonl.zst", "--engine", "script")
    assert ran.code == 2
    assert "--engine script: no calls of this engine. Did you mean scripted?" in ran.err
    assert not Path("calls.jsonl.zst").exists()


def test_export_of_incomplete_run(kgqa: Kgqa) -> None:
    first = kgqa(*TRACE)
    changed("DELETE FROM calls WHERE value LIKE '{\"logprobs\"%'")
    ran = kgqa("cache", "export", "calls.jsonl.zst", "--run", str(first.folder))
    assert ran.code == 2
    assert "of its calls are not in this call cache. Run its command again first" in ran.err
    assert not Path("calls.jsonl.zst").exists()


def test_import_keeps_stored_replies(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    kgqa("run", "method=no_context", "limit=3", *QUICK)
    kgqa("cache", "export", "calls.jsonl.zst")
    kgqa("run", "method=no_context", "limit=2", *QUICK)
    exported = zstandard.ZstdDecompressor().stream_reader(Path("calls.jsonl.zst").read_bytes()).read()
    monkeypatch.setenv("KGQA_CACHE", "other")
    assert kgqa("cache", "import", "calls.jsonl.zst").out == "3 new, 0 equal, 0 different\n"
    lines = [json.loads(line) for line in exported.splitlines()]
    assert lines[0] == {"format": "kgqa calls 1"}
    assert lines[-1] == {"calls": 3}
    from kgqa.cache.store import checksum

    other = '{"text": "another", "finish": "stop", "usage": [1, 0, 1, 0.0], "flags": []}'
    lines[1] |= {"value": other, "checksum": checksum(lines[1]["key"].encode(), other.encode())}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    Path("other.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(text.encode()))
    ran = kgqa("cache", "import", "other.jsonl.zst")
    assert ran.out == "0 new, 2 equal, 1 different (existing calls are not replaced)\n"
    kgqa("cache", "export", "again.jsonl.zst")
    again = zstandard.ZstdDecompressor().stream_reader(Path("again.jsonl.zst").read_bytes()).read()
    assert again == exported


def test_damaged_export_is_refused(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    kgqa("run", "method=no_context", "limit=3", *QUICK)
    kgqa("cache", "export", "calls.jsonl.zst")
    packed = Path("calls.jsonl.zst").read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(packed).read().decode()
    monkeypatch.setenv("KGQA_CACHE", "other")
    for spoil, message in [
        (lambda packed, text: packed[: len(packed) // 2], "truncated after|not what kgqa cache export writes"),
        (lambda packed, text: b"no zstd", "calls.jsonl.zst:1: not what kgqa cache export writes"),
        (lambda packed, text: _packed(text.rpartition('{"calls"')[0]), "truncated after line 4"),
        (
            lambda packed, text: _packed(text.replace("kgqa calls 1", "kgqa calls 9")),
            "expected the format 'kgqa calls 1'",
        ),
        (lambda packed, text: _packed(text.replace("stop", "step", 1)), "calls.jsonl.zst:2: damaged"),
        (lambda packed, text: _packed(text.replace('"value"', '"words"', 1)), "calls.jsonl.zst:2"),
        (
            lambda packed, text: _packed(text.replace('"engine": "scripted"', '"engine": "\\ud800"', 1)),
            "calls.jsonl.zst:3",
        ),
        (lambda packed, text: b"", "truncated after line 0"),
    ]:
        Path("calls.jsonl.zst").write_bytes(spoil(packed, text))  # type: ignore[no-untyped-call]
        ran = kgqa("cache", "import", "calls.jsonl.zst")
        assert ran.code == 2
        assert re.search(message, ran.err)
        assert ran.err.count("\n") == 1
        assert "0 calls, 0 damaged: whole" in kgqa("cache", "check").out


def _packed(text: str) -> bytes:
    return zstandard.ZstdCompressor().compress(text.encode())


def test_export_omits_secrets(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    kgqa("run", "method=no_context", "limit=3", *QUICK)
    cache_text = '{"text": "your key is sk-Tr0ub4dor/\\"x", "finish": "stop", "usage": [1, 0, 1, 0.0], "flags": []}'
    from kgqa.cache.store import CallCache

    cache = CallCache(CACHE.parent)
    cache.put([("secretive", json.loads(cache_text))])
    cache.close()
    monkeypatch.setenv("OPENAI_API_KEY", 'sk-Tr0ub4dor/"x')
    ran = kgqa("cache", "export", "calls.jsonl.zst")
    assert "skipped: 1 calls (their replies contain a key from your environment)" in ran.out
    assert b"Tr0ub4dor" not in zstandard.ZstdDecompressor().stream_reader(Path("calls.jsonl.zst").read_bytes()).read()


def test_prune(kgqa: Kgqa) -> None:
    kgqa(*TRACE)
    before = json.loads(kgqa("cache", "stats", "--json").out)
    assert {share["engine"] for share in before} == {"scripted", "lexical"}
    ranked = sum(share["calls"] for share in before if share["engine"] == "lexical")
    assert kgqa("cache", "prune").code == 2
    assert f"{ranked:,} calls of " in kgqa("cache", "prune", "--engine", "lexical").out
    assert json.loads(kgqa("cache", "stats", "--json").out) == before
    assert kgqa("cache", "prune", "--engine", "lexical", "--yes").out == f"{ranked:,} calls deleted\n"
    assert json.loads(kgqa("cache", "stats", "--json").out) == [s for s in before if s["engine"] != "lexical"]
    changed("UPDATE calls SET made = made - 86400 * 200 WHERE value LIKE '{\"text\"%'")
    assert not kgqa("cache", "prune", "--older-than", "190").out.startswith("0 calls")
    for days in ("210", "9" * 30):
        assert kgqa("cache", "prune", "--older-than", days).out.startswith("0 calls")


def test_without_a_cache(kgqa: Kgqa) -> None:
    for words in (("check",), ("stats",), ("export", "x.zst"), ("prune", "--older-than", "1")):
        ran = kgqa("cache", *words)
        assert ran.code == 2
        assert "no such call cache" in ran.err
        assert not Path("outputs").exists()
