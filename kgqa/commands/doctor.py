"""`kgqa doctor`: what is here and what is not."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser

NAME = "doctor"
SUMMARY = "what is here, what is missing, and what to do about it"


def arguments(parser: Parser) -> None:
    parser.takes_places("NAME", "only these: an engine, an extra, a data set, …; a gap then gives code 2", 0, 99)
    parser.examples = ("kgqa doctor", "kgqa doctor vllm dataset=musique")


def run(given: Namespace) -> int:
    from kgqa.experiment.machine.doctor import examine
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.findings import show_findings

    findings = examine(given.places)
    show_findings(findings, Terminal(), folded=not given.places)
    return 2 if given.places and any(finding.state == "gap" for finding in findings) else 0
