"""Command lines: every key of every configuration with values that are not for it, commands with words not for them.

Each ends well or in one line; nothing is written outside of the folder that it works in.
"""

from __future__ import annotations

import random
from functools import cache

from scripts.attack.starting import SWEEP_FOLDER
from scripts.attack.trial import Trial

VALUES = (
    "", "null", "true", "false", "0", "-1", "1", "-0", "1e400", "-1e400", "nan", "inf", "-inf", "1e-320", "9" * 400,
    "9" * 5000, "0x10", "1_000", "1.5", "-1.5", "abc", "é", "\u202eabc", "a\nb", "a\tb", "\x1b[31mred", "a\x7fb",
    "a\x9bb", "\u2028", "\udcff", "caf\udce9", "'", '"', "\\", "{", "}", "[", "]", "[]", "{}", "[1,2]", "[null]",
    "{a:1}", "{a:{b:1}}", "a,b", "${env:HOME}", "${oc.env:HOME}", "${oc.env:OPENAI_API_KEY}", "${oc.env:NOPE}",
    "${limit}", "${nothing}", "${", "???", "*", "~", "@", "$", "$$", "!", "!!python/object/apply:os.system [id]",
    "choice(1,2)", "range(1,3)", "glob(*)", "interval(0,1)", "int(3)", "str(3)", "json_str('{')", "float(nan)", "/",
    "..", "../../x", "/etc/passwd", "/dev/null", "/proc/self/environ", "x" * 300, "x" * 100_000, "a/" * 200, "7",
    "[" * 200, "sweep", "http://user:password@127.0.0.1:1", "file:///etc/passwd", "2hop__demo_01", "[2hop__demo_01]",
    "[nobody]", "trace", "os.system", "kgqa.engines.scripted.Scripted",
)  # fmt: skip
ODD_KEYS = (
    "hydra", "hydra.run.dir", "hydra/launcher", "hydra/sweeper", "hydra.mode", "sweep.name", "budget", "tune.metric",
    "roles", "roles.reader", "method", "dataset", "nosuch", "", "a.b.c", "method..beam", ".", "=", "method.",
    "method.beam.x", "limit.x", "engine@roles.reader", "collection", "retriever@x", "@", "kg.offline", "name", "out",
    "ids", "seed", "width", "profile", "dataset.path", "dataset.files", "dataset.corpus", "model.prices",
    "model.context", "engine.base_url", "choices", "_target_", "engine._target_", "method._target_", "tracker.uri",
    "model.name", "dry_run", "sample", "experiment", "judge", "graph",
)  # fmt: skip
COMMANDS = (
    "run", "run -m", "tune", "show", "report", "export", "evaluate", "compare", "judge calibrate", "kg build",
    "kg stats", "graph build", "graph stats", "graph quality", "collect kgp", "reproduce", "index build",
    "index check", "data list", "data check", "data prepare dataset=demo", "models", "doctor", "runs", "new",
    "completion", "open", "help", "status", "cache check", "cache stats", "cache export", "cache import", "cache prune",
    "kg import", "kg export", "kg show", "ask", "demo --recorded",
)  # fmt: skip
TAKING_KEYS = ("run", "tune", "kg", "graph", "index", "collect")
WORDS = (
    "--help", "-h", "--", "-", "-x", "--out", "--format", "html", "--svg", "--against", "--predictions", "--subset",
    "--list", "--corpus", "--ray", "--workers", "--json", "dataset=demo", "limit=1", "engine=scripted",
    "ranker=lexical", "graph=tfidf", "method=trace", "trace/table1", "trace/../x", "only=x", "run", "run2",
    SWEEP_FOLDER, "last", "outputs", "/etc/passwd", ".",
)  # fmt: skip
SCRIPTED = ("engine=scripted", "ranker=lexical", "demonstrations_ranker=lexical", "limit=1")


def overrides(trial: Trial) -> None:
    """One key of some configuration, set to something."""
    chosen, key = _key(trial.dice)
    value, sign = trial.dice.choice(VALUES), trial.dice.choice(("", "", "", "", "+", "++", "~"))
    weighty = any(part.split("=")[0] not in ("method", "dataset", "kg") for part in chosen)
    dry = () if not weighty and trial.dice.random() < 0.4 else ("dry_run=true",)
    _run(trial, "run", *SCRIPTED, *dry, *chosen, f"{sign}{key}={value}")


def commands(trial: Trial) -> None:
    """A command with words that it may not take."""
    trial.take("run", "run2", "outputs")
    words = trial.dice.choice(COMMANDS).split()
    further = [trial.dice.choice((*VALUES, *WORDS, *WORDS)) for _ in range(trial.dice.choice((0, 1, 2, 3)))]
    keys = SCRIPTED if words[0] in TAKING_KEYS else ()
    if words[0] == "reproduce":
        keys = ("engine=scripted", "limit=1", "ranker=lexical", "dry_run=true")
    _run(trial, *words, *further, *keys)


def _run(trial: Trial, *argv: str) -> None:
    trial.kgqa(*(word for word in argv if "\x00" not in word), limit=90.0)


def _key(dice: random.Random) -> tuple[list[str], str]:
    """A key, and the choices without which it would not be there."""
    by_choice, every = _keys()
    draw = dice.random()
    if draw < 0.55:
        choice = dice.choice(sorted(by_choice))
        if by_choice[choice]:
            return [choice], dice.choice(by_choice[choice])
    if draw < 0.8:
        return [], dice.choice(every)
    if draw < 0.9:
        return [], dice.choice(ODD_KEYS)
    return [], dice.choice(every) + dice.choice(("x", " ", ".", "[0]", "\u00e9", "="))


@cache
def _keys() -> tuple[dict[str, list[str]], list[str]]:
    """Keys by the choice that brings them, e.g. "method=trace", and those of the defaults."""
    from kgqa.experiment.config.composing import compose
    from kgqa.experiment.config.files import flatten, groups, node

    by_choice = {
        f"{group}={name}": sorted(flatten({group: node(group, name)}))
        for group, names in groups().items()
        for name in names
    }
    defaults = {key: value for key, value in compose([]).items() if key != "choices"}
    return by_choice, sorted(flatten(defaults))
