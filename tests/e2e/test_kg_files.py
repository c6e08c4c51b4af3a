"""`kgqa kg import | export | show`, and runs on imported triples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_exported_triples_give_the_same_predictions_wherever_the_file_is(kgqa: Kgqa) -> None:
    """The identity has the hash of the file, not its path."""
    export_triples(kgqa)
    trace = ("run", "method=trace", "limit=3", *DEMO)
    assert kgqa(*trace, "output_dir=extracted").code == 0
    assert kgqa(*trace, *MINE, "output_dir=given").code == 0
    assert Path("given/predictions.jsonl").read_bytes() == Path("extracted/predictions.jsonl").read_bytes()
    Path("mine.jsonl").rename("moved.jsonl")
    moved = (*trace, MINE[0], "kg.path=moved.jsonl")
    assert kgqa(*moved, "output_dir=there").code == 0
    assert identity("given") == identity("there")
    line, *others = Path("moved.jsonl").read_text("utf-8").splitlines(keepends=True)
    changed = json.dumps({**json.loads(line), "triples": [["a", "b", "c"]]}) + "\n"
    Path("moved.jsonl").write_text("".join([changed, *others]), "utf-8")
    assert kgqa(*moved, "output_dir=changed").code == 0
    assert identity("changed")["kg"] != identity("given")["kg"]


def test_missing_passages_are_reported_or_refused(kgqa: Kgqa) -> None:
    export_triples(kgqa)
    trace = ("run", "method=trace", "limit=4", *DEMO, *MINE)
    said = "kg.require_existing=true: 10 of 22 passages are not in mine.jsonl"
    check_refused(kgqa(*trace, "kg.require_existing=true", "output_dir=one"), said)
    ran = kgqa(*trace, "output_dir=one")
    assert ran.code == 0, ran.err
    assert "10 of 22 passages are not in mine.jsonl" in ran.out + ran.err
    assert ran.json("metrics.json")["graph"]["unmatched"] == 10
    assert "unmatched" in (Path("one") / "report.md").read_text("utf-8")
    check_refused(kgqa("kg", "build", "limit=3", *DEMO, *MINE), "kg=imported: the triples are imported from a file")
    assert kgqa("kg", "stats", "limit=3", *DEMO, *MINE).code == 0
    assert kgqa(*trace, "dry_run=true").code == 0
    Path("mine.jsonl").write_text('{"title": "Elm", "text": "A tree.", "triples": [["Elm", "is", "tree"]]}\n')
    check_refused(kgqa(*trace, "output_dir=other"), "Was it made for dataset=demo?")
    assert not Path("other/metrics.json").exists()


def test_import_reports_counts(kgqa: Kgqa) -> None:
    document = {"passage": "Elm\nA tree.", "extracted_triples": [["Elm", "is", "tree"], ["Elm", "is"]]}
    Path("theirs.json").write_text(json.dumps({"docs": [document]}))
    ran = kgqa("kg", "import", "theirs.json", "--format", "hipporag", "dataset=demo", "limit=2")
    assert ran.code == 0, ran.err
    assert "1 passages (0 without triples), 1 triples\n1 skipped" in ran.out
    assert "0 of 10 passages of the questions are in it" in ran.out
    assert Path("outputs/kg/imported/theirs.jsonl").is_file()
    check_refused(kgqa("kg", "import", "theirs.json", "--format", "hipporag"), "this file exists")
    check_refused(
        kgqa("kg", "import", "theirs.json", "--format", "jsonl", "--out", "x"), "theirs.json:1: no key 'text'"
    )
    check_refused(kgqa("kg", "import", "gone.json", "--format", "tsv", "--out", "x"), "gone.json: cannot be read")
