"""`kgqa ask`: a question about the user's own documents."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.cli.terminal import Terminal
from kgqa.errors import ConfigError
from kgqa.extras.documents.ask import ask_documents

EXAMPLE = 'kgqa ask "Who built the mill?" notes/'


def ask(args: Namespace, terminal: Terminal) -> int:
    """Answer a question, and print the sentences that support the answer."""
    question = " ".join(args.positionals[:1]).strip()
    if not question:
        raise args.command.missing("QUESTION")
    if Path(question).exists():
        raise ConfigError(
            f"{question}: is a file or folder. Put the question before your documents"
        )
    if len(args.positionals) < 2:
        raise args.command.missing("FILE")
    sources = [Path(each).expanduser() for each in args.positionals[1:]]
    # of a question without quotes, the other words are no paths
    has_path = any(each in args.positionals[1] for each in "/.\\")
    is_word = " " not in question and not question.endswith("?")
    if is_word and not sources[0].exists() and not has_path:
        raise ConfigError(
            f"{question} {args.positionals[1]}: put the question in quotes: {EXAMPLE}"
        )
    answer = ask_documents(question, sources, args.overrides, terminal, args.passages)
    if answer.error is not None:
        terminal.line(f"failed: {answer.error}", alarm=True)
    else:
        if not answer.supported:
            terminal.line(
                "not found in these documents: no quoted sentence contains this answer. Check it.",
                alarm=True,
            )
        terminal.line(f"answer: {answer.answer or 'none'}  ({answer.seconds:.0f} s)")
        for number, step in enumerate(answer.steps, start=1):
            triple = f"<{'; '.join(step.triple)}>\n     " if step.triple else ""
            terminal.line(f"  {number}. {triple}“{' '.join(step.sentence.split())}” {step.where}")
    if args.json:
        terminal.json(answer.json())
    else:
        terminal.result(answer.page)
    return 0 if answer.error is None else 2
