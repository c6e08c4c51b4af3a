"""Files that people bring: data sets in every form, predictions, demonstrations.

Bent or damaged, a file is read or refused in one line; the same content in another dress gives the same predictions;
the file itself is never touched, and a run that ends well has all of its files.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

from kgqa.types import Json
from scripts.attack import bending
from scripts.attack.forms import CORPUS, FORMS
from scripts.attack.judging import Harm
from scripts.attack.starting import TRACE
from scripts.attack.trial import QUICK, Trial

DEMONSTRATIONS = {
    "trace_chains": ("method.demonstrations_from.path", "trace"),
    "trace_documents": ("kg.demonstrations_from.path", "trace"),
    "pool": ("method.demos_from", "ircot"),
}
SHIPPED = Path(__file__).resolve().parents[2] / "kgqa/demos"
GZIP = b"\x1f\x8b"  # how such a file begins: one within another is read by nobody
REPORTED = ("predictions.jsonl", "metrics.json", "manifest.json", "report.md", "report.html", "trace.jsonl.zst")


def data_files(trial: Trial) -> None:
    name = trial.dice.choice(tuple(FORMS))
    form, dataset = FORMS[name], name.split()[0]
    trial.done.append(f"questions of {name}")
    raw, harmless = changed(form.raw(), trial, lines=form.lines)
    if trial.dice.random() < 0.2 and not raw.startswith(GZIP):
        raw = gzip.compress(raw)
        trial.done.append("gzipped")
    file = trial.work / f"questions{form.suffix}"
    file.write_bytes(raw)
    if trial.dice.random() < 0.2:
        trial.kgqa("data", "check", f"dataset={dataset}", f"dataset.path={file}")
    else:
        method = trial.dice.choice(
            ("golden", "all_documents", "retrieve_read", "trace") if form.passages else ("no_context",)
        )
        words = [f"method={method}", f"dataset={dataset}", f"dataset.path={file}", *QUICK]
        ended = trial.kgqa("run", *words, "out=run")
        if ended.code == 0:
            whole_run(trial, trial.work / "run")
        if harmless and ended.code != 0:
            trial.found(Harm.EXIT, f"the same content in another dress is refused: {ended.err[-300:]}")
    if file.read_bytes() != raw:
        trial.found(Harm.SILENT, "the file of questions was changed")


def corpora(trial: Trial) -> None:
    """What is searched, and aliases: files beside the questions."""
    raw, _ = changed(CORPUS.raw(), trial, lines=True)
    file = trial.work / "corpus.jsonl"
    file.write_bytes(raw)
    words = ["method=retrieve_read", "dataset=demo", "limit=1", f"dataset.corpus={file}", *QUICK]
    ended = trial.kgqa("run", *words, "out=run")
    if ended.code == 0:
        whole_run(trial, trial.work / "run")


def predictions(trial: Trial) -> None:
    rows = [json.loads(line) for line in trial.sound_bytes("run/predictions.jsonl").decode().split("\n") if line]
    name = trial.dice.choice(tuple(PREDICTIONS))
    trial.done.append(name)
    raw, _ = changed(PREDICTIONS[name](rows), trial, lines=name != "HotpotQA's form")
    (trial.work / "predictions").write_bytes(raw)
    ended = trial.kgqa("evaluate", "--predictions", "predictions", "dataset=demo", "limit=2", "out=scored")
    if ended.code == 0 and " nan" in ended.out.lower():
        trial.found(Harm.SILENT, "a score that is no number")


def _official(rows: list[dict[str, Json]]) -> bytes:
    answers = {row["question_id"]: row["answer"] for row in rows}
    return json.dumps({"answer": answers, "sp": {id_: [["Candle Bridge", 0]] for id_ in answers}}).encode()


def _musique(rows: list[dict[str, Json]]) -> bytes:
    fixed = {"predicted_support_idxs": [0, 1], "predicted_answerable": True}
    return bending.as_lines([{"id": row["question_id"], "predicted_answer": row["answer"], **fixed} for row in rows])


PREDICTIONS = {"kgqa's form": bending.as_lines, "HotpotQA's form": _official, "MuSiQue's form": _musique}


def demonstrations(trial: Trial) -> None:
    name = trial.dice.choice(tuple(DEMONSTRATIONS))
    key, method = DEMONSTRATIONS[name]
    shipped = trial.dice.choice(sorted(SHIPPED.glob(f"{name}_*.jsonl")))
    raw, _ = changed(shipped.read_bytes(), trial, lines=True)
    file = trial.work / "demonstrations.jsonl"
    file.write_bytes(raw)
    part = trial.dice.choice(("", "", "", "#MUSIQUE", "#x"))
    ended = trial.kgqa("run", f"method={method}", "dataset=demo", "limit=1", *QUICK, f"{key}={file}{part}", "out=run")
    if ended.code == 0:
        whole_run(trial, trial.work / "run")


def rules(trial: Trial) -> None:
    """Replies of the scripted engine: hostile texts on their way to screen, report and tables."""
    replies = [{"match": "", "reply": trial.dice.choice(REPLIES)}]
    trial.done.append(f"every reply is {replies[0]['reply'][:60]!r}")
    (trial.work / "rules.jsonl").write_bytes(bending.as_lines(replies))
    argv = [*TRACE, "engine.rules=rules.jsonl"]
    ended = trial.kgqa(*argv)
    if ended.code == 0:
        whole_run(trial, trial.work / "run")
        for words in (("show", "run"), ("show", "run", "2hop__demo_01"), ("report", "run", "--format", "csv")):
            trial.kgqa(*words)
        formulas(trial, trial.work / "run/report.csv")


REPLIES = (
    "\x1b[31mred", "\x1b]0;owned\x07", "\x9b31m", "a\u202eb", "a\x7fb", "a\x00b", "Pellery\u2028town", "a\u2029b",
    "a\u0085b", "=cmd|' /C calc'!A0", "+1", "-1+cmd", "@SUM(A1)", "\t=1+1", "<script>alert(1)</script>",
    "</textarea><img src=x>", "[bold]x[/bold]", "[/]", "\ud800", "\\end{document}", "$(id)", "{{7*7}}",
    "${oc.env:OPENAI_API_KEY}", "%s%n", "|a|b|", "", " ", "word " * 30_000, "x" * 200_000, "<a; b; c>" * 5000,
    "\r\n\r\n", "<think>never ended", "</think>", "\ufeff",
)  # fmt: skip


def formulas(trial: Trial, file: Path) -> None:
    """Cells that a spreadsheet would run."""
    import csv

    csv.field_size_limit(file.stat().st_size + 1)  # Python's own is less than the longest reply
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.reader(lines):
            for cell in row:
                if cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(cell):
                    trial.found(Harm.SILENT, f"a cell that a spreadsheet takes for a formula: {cell[:40]!r}")
                    return


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def whole_run(trial: Trial, run: Path) -> None:
    """A run that ended well has every file, each whole, and figures that are numbers."""
    missing = [name for name in REPORTED if not (run / name).is_file() or not (run / name).stat().st_size]
    if missing:
        trial.found(Harm.SILENT, f"a run that ended well has no {', '.join(missing)}")
        return
    try:
        json.loads((run / "metrics.json").read_bytes(), parse_constant=_refused)
        for line in (run / "predictions.jsonl").read_text(encoding="utf-8").split("\n"):
            if line:
                json.loads(line, parse_constant=_refused)
    except ValueError as error:
        trial.found(Harm.SILENT, f"a run that ended well has a file that is not JSON: {error}")


def _refused(constant: str) -> Mapping[str, Json]:
    raise ValueError(f"{constant} is no number of JSON")


def changed(raw: bytes, trial: Trial, *, lines: bool) -> tuple[bytes, bool]:
    """Values bent, bytes damaged, or neither: the same content in another dress; and whether it is the last."""
    draw = trial.dice.random()
    if draw < 0.1:
        name = trial.dice.choice(tuple(bending.HARMLESS))
        trial.done.append(name)
        return bending.HARMLESS[name](raw, trial.dice), True
    if draw < 0.65:
        changed, what = bending.bent_file(raw, trial.dice, lines)
    else:
        changed, what = bending.damaged(raw, trial.dice)
    trial.done.append(what)
    return changed, False
