"""`kgqa status`: what is at work here."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser
from kgqa.inert import inert_json

NAME = "status"
SUMMARY = "what is running here: how far, how fast, what it waits for"


def arguments(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="as a JSON list")
    parser.add_argument("--forget", action="store_true", help="remove what processes that died left of themselves")
    parser.notes = (
        "Runs, sweeps, builds of triples and indexes, and judges that keep their files in outputs/ of this folder,\n"
        "on this machine or another. Each writes a log.jsonl into its own folder. Exit code 0 also where nothing runs."
    )
    parser.examples = ("kgqa status", "kgqa status --json")


def run(given: Namespace) -> int:
    from kgqa.runtime.at_work import forget, found_claims, unclaimed
    from kgqa.terminal.console import Terminal

    found = found_claims()
    if given.forget:
        for claimed in found:
            if claimed.state == "dead":
                forget(claimed)
        found = [claimed for claimed in found if claimed.state != "dead"]
    if given.json:
        import json

        print(inert_json(json.dumps([claimed.json() for claimed in found], indent=2, ensure_ascii=False)))
    else:
        from kgqa.terminal.status import show_status

        show_status(found, unclaimed(found), Terminal(width=200))
    return 0
