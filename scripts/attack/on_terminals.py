"""Terminals with few characters, and output that goes nowhere. Always real processes: it is Python's own start that
decides on the encoding."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.attack import bending
from scripts.attack.judging import FINE, TOLD, Harm
from scripts.attack.starting import IRCOT, JUDGED, SWEEP, TRACE
from scripts.attack.trial import Trial

ENCODINGS: tuple[Mapping[str, str | None], ...] = (
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "ascii:strict"},
    {"PYTHONIOENCODING": "latin-1"},
    {"PYTHONIOENCODING": "cp1252:strict"},
    {"PYTHONIOENCODING": "utf-8:strict"},
    {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LANG": "POSIX", "LC_ALL": "POSIX"},
    {"LANG": None, "TERM": "dumb"},
    {"TERM": None, "COLUMNS": "1"},
    {"NO_COLOR": "1", "COLUMNS": "20"},
)
SHOWING: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("run", "--help"),
    ("run", "method=trace", "--help"),
    ("show", "run"),
    ("show", "run", "2hop__demo_01"),
    ("report", "run"),
    ("compare", "run", "run2"),
    ("data", "list"),
    ("data", "check", "dataset=demo"),
    ("models",),
    ("runs",),
    ("run", "method=tracé"),
    ("run", "method=tr\udcffce"),
    ("show", "nothing\u2028there"),
    ("report", "caf\udce9"),
    TRACE,
    IRCOT,
    SWEEP,
    JUDGED,
)
TEXT = "Pélléry – “town” \u2192 \U0001f937 e\u0301 \u4e2d\u6587"


def terminals(trial: Trial) -> None:
    trial.real = True
    own, argv = trial.dice.choice(ENCODINGS), trial.dice.choice(SHOWING)
    trial.take("run", "run2", "outputs")
    trial.done.append(", ".join(f"{name}={value}" for name, value in own.items()))
    if argv == TRACE:
        (trial.work / "rules.jsonl").write_bytes(bending.as_lines([{"match": "", "reply": TEXT}]))
        argv = (*TRACE[:-1], "engine.rules=rules.jsonl", "out=other")
    trial.kgqa(*argv, environment=own)


def outputs(trial: Trial) -> None:
    """A full disk behind `>`, a reader that is gone, no output at all: what the command writes to disk is whole."""
    trial.real = True
    output = trial.dice.choice(("full", "gone", "closed"))
    argv = trial.dice.choice(
        (TRACE, SWEEP, ("show", "run"), ("data", "list"), ("--help",), ("report", "run"), ("--version",))
    )
    trial.take("run", "run2", "outputs")
    trial.done.append(f"standard output is {output}")
    ended = trial.kgqa(*argv, output=output)
    if ended.code == FINE and output == "full":
        trial.found(Harm.SILENT, "nothing of what it printed was kept, and it says that all is well")
    if ended.code in (FINE, TOLD):
        trial.unchanged("run/predictions.jsonl", "nobody could read what was printed")
