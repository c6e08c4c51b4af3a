"""Triples that others made: files for `kgqa kg import` in each form, and the file that runs read.

Bent or damaged, a file is read or refused in one line, and is never touched; what was imported is read by a run.
"""

from __future__ import annotations

import json

from kgqa.types import Json
from scripts.attack import bending, forms
from scripts.attack.judging import Harm
from scripts.attack.on_inputs import changed, whole_run
from scripts.attack.trial import QUICK, Trial

TRACE = ("method=trace", "dataset=demo", "limit=1", "experiment=quick", *QUICK)


def imports(trial: Trial) -> None:
    form = trial.dice.choice(tuple(_FORMS))
    trial.done.append(form)
    if form == "tsv":
        raw, what = bending.damaged(_table(), trial.dice)
        harmless = False
        trial.done.append(what)
    else:
        raw, harmless = changed(_FORMS[form](), trial, lines=form != "hipporag")
    file = trial.work / "theirs"
    file.write_bytes(raw)
    if form == "jsonl" and trial.dice.random() < 0.4:
        imported = "theirs"  # read by the run as it is
    else:
        imported = "ours.jsonl"
        keys = trial.dice.choice(((), ("dataset=demo", "limit=1")))
        ended = trial.kgqa("kg", "import", "theirs", "--format", form, "--out", imported, *keys)
        if harmless and ended.code != 0:
            trial.found(Harm.EXIT, f"the same content in another dress is refused: {ended.err[-300:]}")
        if ended.code != 0 and (trial.work / imported).exists():
            trial.found(Harm.SILENT, f"it was refused and wrote {imported}")
        if ended.code != 0:
            return
    ended = trial.kgqa("run", *TRACE, "kg=imported", f"kg.path={imported}", "out=run")
    if ended.code == 0:
        whole_run(trial, trial.work / "run")
    if file.read_bytes() != raw:
        trial.found(Harm.SILENT, "the file of triples was changed")


def _passages() -> list[tuple[str, str, list[list[str]]]]:
    parts = forms.demo()[0]["paragraphs"]
    return [(part["title"], part["paragraph_text"], [[part["title"], "is", "a thing"]] * 2) for part in parts]


def _lines() -> bytes:
    return bending.as_lines([{"title": a, "text": text, "triples": triples} for a, text, triples in _passages()])


def _hipporag() -> bytes:
    docs = [{"idx": a, "title": a, "text": text, "extracted_triples": triples} for a, text, triples in _passages()]
    return json.dumps({"docs": docs, "avg_ent_chars": 7}).encode()


def _openie() -> bytes:
    documents: list[Json] = []
    for title, text, triples in _passages():
        found = [{"subject": head, "relation": relation, "object": tail} for head, relation, tail in triples]
        words = [{"originalText": word} for word in f"{title} {text}".split()]
        documents.append({"sentences": [{"tokens": words, "openie": found}]})
    return bending.as_lines(documents)


def _table() -> bytes:
    rows = [[*triple, title, text] for title, text, triples in _passages() for triple in triples]
    return "".join("\t".join(row) + "\n" for row in [["head", "relation", "tail", "title", "text"], *rows]).encode()


_FORMS = {"jsonl": _lines, "hipporag": _hipporag, "openie": _openie, "tsv": _table}
