"""`kgqa kg import | export | show`, and runs on imported triples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.cli.kg import EXPORT_FORMATS, IMPORT_FORMATS
from kgqa.kg import export, importers
from kgqa.report.neighbourhood import GraphPart, part_page
from kgqa.types import Triple
from tests.e2e.browser import CHROMIUM, Browser
from tests.e2e.conftest import QUICK, Kgqa, Ran

DEMO = ("dataset=demo", *QUICK)
MINE = ("kg=imported", "kg.path=mine.jsonl")


def export_triples(kgqa: Kgqa) -> None:
    """mine.jsonl: the triples of three questions, as a model wrote them."""
    assert kgqa("kg", "build", "limit=3", *DEMO).code == 0
    ran = kgqa("kg", "export", "limit=3", *DEMO, "--out", "mine.jsonl")
    assert (ran.code, ran.out) == (0, "mine.jsonl\n"), ran.err


def check_refused(ran: Ran, said: str) -> None:
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert said in ran.err


def identity(folder: str) -> Any:
    return json.loads((Path(folder) / "identity.json").read_text("utf-8"))


def test_commands_list_all_formats() -> None:
    assert list(IMPORT_FORMATS) == list(importers.FORMATS)
    assert list(EXPORT_FORMATS) == list(export.FORMATS)


def test_exported_triples_give_the_same_predictions(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    assert kgqa("run", "method=trace", "limit=3", *DEMO, "out=extracted").code == 0
    assert kgqa("run", "method=trace", "limit=3", *DEMO, *MINE, "out=given").code == 0
    assert Path("given/predictions.jsonl").read_bytes() == Path("extracted/predictions.jsonl").read_bytes()


def test_identity_has_the_hash_of_the_file_not_its_path(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    assert kgqa("run", "method=trace", "limit=3", *DEMO, *MINE, "out=here").code == 0
    Path("mine.jsonl").rename("moved.jsonl")
    assert kgqa("run", "method=trace", "limit=3", *DEMO, MINE[0], "kg.path=moved.jsonl", "out=there").code == 0
    assert identity("here") == identity("there")
    line, *others = Path("moved.jsonl").read_text("utf-8").splitlines(keepends=True)
    changed = json.dumps({**json.loads(line), "triples": [["a", "b", "c"]]}) + "\n"
    Path("moved.jsonl").write_text("".join([changed, *others]), "utf-8")
    assert kgqa("run", "method=trace", "limit=3", *DEMO, MINE[0], "kg.path=moved.jsonl", "out=changed").code == 0
    assert identity("changed")["kg"] != identity("here")["kg"]


def test_missing_passages_are_reported(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    ran = kgqa("run", "method=trace", "limit=4", *DEMO, *MINE, "out=one")
    assert ran.code == 0, ran.err
    assert "10 of 22 passages are not in mine.jsonl" in ran.out + ran.err
    assert ran.json("metrics.json")["graph"]["unmatched"] == 10
    assert "unmatched" in (Path("one") / "report.md").read_text("utf-8")


def test_require_existing_rejects_a_file_without_all_passages(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    ran = kgqa("run", "method=trace", "limit=4", *DEMO, *MINE, "kg.require_existing=true", "out=one")
    check_refused(ran, "kg.require_existing=true: 10 of 22 passages are not in mine.jsonl")


def test_file_of_another_dataset_is_rejected(kgqa: Kgqa) -> None:
    Path("mine.jsonl").write_text('{"title": "Elm", "text": "A tree.", "triples": [["Elm", "is", "tree"]]}\n')
    ran = kgqa("run", "method=trace", "limit=3", *DEMO, *MINE, "out=one")
    check_refused(ran, "is it of dataset=demo?")
    assert not Path("one/metrics.json").exists()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("kg=imported",), "kg.path=null: name the file"),
        (("kg=imported", "kg.path=gone"), "kg.path=gone: no such file"),
    ],
)
def test_missing_file_is_rejected(kgqa: Kgqa, keys: tuple[str, ...], said: str) -> None:
    check_refused(kgqa("run", "method=trace", "limit=3", *DEMO, *keys, "out=one"), said)


def test_imported_triples_cannot_be_built(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    check_refused(kgqa("kg", "build", "limit=3", *DEMO, *MINE), "kg=imported: nothing is extracted")
    assert kgqa("kg", "stats", "limit=3", *DEMO, *MINE).code == 0
    assert kgqa("run", "method=trace", "limit=3", *DEMO, *MINE, "dry_run=true").code == 0


def test_replies_of_a_run_on_imported_triples_can_be_exported(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    assert kgqa("run", "method=trace", "limit=3", *DEMO, *MINE, "out=one").code == 0
    ran = kgqa("cache", "export", "replies.jsonl", "--run", "one")
    assert ran.code == 0, ran.err


def test_import_reports_counts(kgqa: Kgqa) -> None:
    document = {"passage": "Elm\nA tree.", "extracted_triples": [["Elm", "is", "tree"], ["Elm", "is"]]}
    Path("theirs.json").write_text(json.dumps({"docs": [document]}))
    ran = kgqa("kg", "import", "theirs.json", "--format", "hipporag", "dataset=demo", "limit=2")
    assert ran.code == 0, ran.err
    assert "1 passages (0 without triples), 1 triples\n1 skipped" in ran.out
    assert "0 of 10 passages of the questions are in it" in ran.out
    assert Path("outputs/kg/imported/theirs.jsonl").is_file()
    check_refused(kgqa("kg", "import", "theirs.json", "--format", "hipporag"), "exists already")
    check_refused(
        kgqa("kg", "import", "theirs.json", "--format", "jsonl", "--out", "x"), "theirs.json:1: title and text"
    )
    check_refused(kgqa("kg", "import", "gone.json", "--format", "tsv", "--out", "x"), "gone.json: cannot be read")


def test_export_without_triples_names_the_command(kgqa: Kgqa) -> None:
    check_refused(kgqa("kg", "export", "limit=3", *DEMO, "--out", "mine.jsonl"), "run: kgqa kg build dataset=demo")
    assert not Path("mine.jsonl").exists()


def test_show_question_and_entity(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    shown = kgqa("kg", "show", "2hop__demo_01", "limit=3", *DEMO, *MINE, "--out", "part.html")
    assert shown.code == 0, shown.err
    lines = [json.loads(line) for line in Path("mine.jsonl").read_text("utf-8").splitlines()]
    head, relation, tail = next(each["triples"][0] for each in lines if each["triples"])
    assert f"    {relation} → {tail}" in shown.out
    assert "part.html" in shown.out
    entity = kgqa("kg", "show", head.upper(), "limit=3", *DEMO, *MINE)
    assert entity.out.startswith(f"{head}\n"), entity.err
    check_refused(
        kgqa("kg", "show", "nobody", "limit=3", *DEMO, *MINE), "nobody: neither a question's id nor an entity"
    )
    check_refused(kgqa("kg", "show", head, "limit=3", *DEMO, *MINE, "--hops", "0"), "--hops=0: must be at least 1")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_page_draws_the_graph_and_escapes_texts(tmp_path: Path) -> None:
    hostile = "</pre><script>document.title = 'owned'</script>"
    triples = [Triple("Elm", "is", hostile, "p1"), Triple("Elm", "has", "mill", "p1")]
    page = tmp_path / "part.html"
    page.write_text("".join(part_page(GraphPart(hostile, "mine.jsonl", triples, {"p1": hostile}))), "utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page)
        assert browser.value("document.querySelectorAll('.graph rect').length") == 3
        assert browser.value("document.querySelectorAll('.triple').length") == 2
        assert browser.value("document.title") == hostile
        assert browser.complaints == []
