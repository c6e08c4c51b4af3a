"""`kgqa runs`: what has been run."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError
from kgqa.inert import inert_json

NAME = "runs"
SUMMARY = "the runs in outputs/, the last one first"
KEYS = ("dataset", "method", "model", "since")
SHOWN = 20  # without --limit


def arguments(parser: Parser) -> None:
    parser.takes_places("NAME", "only runs whose name, or a part of it from a slash on, begins so", least=0)
    parser.takes_keys("only runs of dataset=, method=, model=; since=2026-01-31 or 2026-01-31T12:00", KEYS, only=True)
    parser.add_argument("--limit", metavar="N", type=int, help=f"at most so many; {SHOWN} unless --json")
    parser.add_argument("--json", action="store_true", help="as a JSON list, all of them")
    parser.examples = ("kgqa runs", "kgqa runs method=trace since=2026-01-31", "kgqa runs --json")


def run(given: Namespace) -> int:
    from kgqa.artefacts.runs import kept_runs, matching
    from kgqa.experiment.config.overrides import override_values

    if given.limit is not None and given.limit < 1:
        raise ConfigError(f"--limit {given.limit}: must be at least 1")
    wanted = override_values(given.overrides)
    since = _seconds(wanted["since"]) if "since" in wanted else 0.0
    parts = [wanted.get(key) for key in ("dataset", "method", "model")]
    listed = [
        run
        for run in kept_runs()
        if run.written >= since and all(want in (None, part) for want, part in zip(parts, run.parts, strict=False))
    ]
    if given.places:
        listed = matching(given.places[0], listed)
    if given.json:
        import json

        from kgqa.artefacts.runs import run_json

        listing = json.dumps([run_json(run) for run in listed[: given.limit]], indent=2, ensure_ascii=False)
        print(inert_json(listing))
    else:
        from kgqa.terminal.console import Terminal
        from kgqa.terminal.runs import show_runs

        show_runs(listed, given.limit or SHOWN, Terminal(width=160))
    return 0


def _seconds(date: str) -> float:
    """Since 1970; a date without a time begins at midnight here."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(date).timestamp()
    except ValueError as error:
        raise ConfigError(f"since={date}: no date; write 2026-01-31 or 2026-01-31T12:00") from error
