"""`kgqa cache`: what is wrong is told and mended, exports replay elsewhere, what would be deleted is listed first."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from kgqa.cache.store import CallCache, checksum
from tests.e2e.conftest import QUICK, Kgqa

TRACE = ("run", "method=trace", "limit=3", *QUICK)
CACHE = Path("outputs/.cache/calls.sqlite")


def changed(statement: str, file: Path = CACHE) -> None:
    with closing(sqlite3.connect(file)) as cache, cache:
        cache.execute(statement)


def unpacked(file: str) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(Path(file).read_bytes()).read()


def packed(text: str) -> bytes:
    return zstandard.ZstdCompressor().compress(text.encode())


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
    unknown = kgqa("cache", "export", "none.jsonl.zst", "--engine", "script")
    assert unknown.code == 2
    assert "--engine script: no calls of this engine. Did you mean scripted?" in unknown.err
    with monkeypatch.context() as patch:
        patch.setenv("KGQA_CACHE", str(tmp_path / "elsewhere"))
        patch.chdir(tmp_path / "outputs")  # where there are no triples yet
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
    changed("DELETE FROM calls WHERE value LIKE '{\"logprobs\"%'")
    incomplete = kgqa("cache", "export", "none.jsonl.zst", "--run", str(first.folder))
    assert incomplete.code == 2
    assert "of its calls are not in this call cache. Run its command again first" in incomplete.err
    assert not Path("none.jsonl.zst").exists()


def test_import_keeps_stored_replies_and_refuses_a_damaged_export(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    kgqa("run", "method=no_context", "limit=3", *QUICK)
    kgqa("cache", "export", "calls.jsonl.zst")
    exported, text = unpacked("calls.jsonl.zst"), unpacked("calls.jsonl.zst").decode()
    half = Path("calls.jsonl.zst").read_bytes()[:-200]
    monkeypatch.setenv("KGQA_CACHE", "other")
    for spoiled, message in [
        (half, "truncated after|not what kgqa cache export writes"),
        (b"no zstd", "bad.jsonl.zst:1: not what kgqa cache export writes"),
        (packed(text.rpartition('{"calls"')[0]), "truncated after line 4"),
        (packed(text.replace("kgqa calls 1", "kgqa calls 9")), "expected the format 'kgqa calls 1'"),
        (packed(text.replace("stop", "step", 1)), "bad.jsonl.zst:2: damaged"),
        (packed(text.replace('"value"', '"words"', 1)), "bad.jsonl.zst:2"),
        (packed(text.replace('"engine": "scripted"', '"engine": "\\ud800"', 1)), "bad.jsonl.zst:3"),
        (b"", "truncated after line 0"),
    ]:
        Path("bad.jsonl.zst").write_bytes(spoiled)
        ran = kgqa("cache", "import", "bad.jsonl.zst")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert re.search(message, ran.err)
        assert "0 calls, 0 damaged: whole" in kgqa("cache", "check").out
    assert kgqa("cache", "import", "calls.jsonl.zst").out == "3 new, 0 equal, 0 different\n"
    lines = [json.loads(line) for line in exported.splitlines()]
    assert lines[0] == {"format": "kgqa calls 1"}
    assert lines[-1] == {"calls": 3}
    other = '{"text": "another", "finish": "stop", "usage": [1, 0, 1, 0.0], "flags": []}'
    lines[1] |= {"value": other, "checksum": checksum(lines[1]["key"].encode(), other.encode())}
    Path("other.jsonl.zst").write_bytes(packed("".join(json.dumps(line) + "\n" for line in lines)))
    ran = kgqa("cache", "import", "other.jsonl.zst")
    assert ran.out == "0 new, 2 equal, 1 different (existing calls are not replaced)\n"
    kgqa("cache", "export", "again.jsonl.zst")
    assert unpacked("again.jsonl.zst") == exported


def test_export_omits_secrets(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    kgqa("run", "method=no_context", "limit=3", *QUICK)
    cache_text = '{"text": "your key is sk-Tr0ub4dor/\\"x", "finish": "stop", "usage": [1, 0, 1, 0.0], "flags": []}'
    cache = CallCache(CACHE.parent)
    cache.put([("secretive", json.loads(cache_text))])
    cache.close()
    monkeypatch.setenv("OPENAI_API_KEY", 'sk-Tr0ub4dor/"x')
    ran = kgqa("cache", "export", "calls.jsonl.zst")
    assert "skipped: 1 calls (their replies contain a key from your environment)" in ran.out
    assert b"Tr0ub4dor" not in unpacked("calls.jsonl.zst")


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
