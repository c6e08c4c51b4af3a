"""`kgqa doctor`: what is here and what is not."""

from __future__ import annotations

from argparse import Namespace

from kgqa.cli.parsing import Parser

NAME = "doctor"
SUMMARY = "what is here, what is missing, and what to do about it"


def arguments(parser: Parser) -> None:
    parser.takes_places("NAME", "only these: an engine, an extra, a data set, …; a gap then gives code 2", 0, 99)
    parser.examples = ("kgqa doctor", "kgqa doctor vllm dataset=musique")


def run(given: Namespace) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.findings import show_findings
    from kgqa.system.doctor import examine

    findings = examine(given.places)
    show_findings(findings, Terminal(), folded=not given.places)
    return 2 if given.places and any(finding.state == "gap" for finding in findings) else 0
