"""`kgqa data verify`: find the questions that their gold passages answer (SAFE, §3.2)."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from kgqa.cli.parsing import Parser

SUMMARY = "find the questions of a benchmark that their gold passages do not answer"
OWN = (
    "dataset", "model", "engine", "roles", "verify", "limit", "sample", "ids", "seed", "max_parallel_questions",
    "max_failure_rate", "out", "dry_run", "budget",
)  # fmt: skip


def arguments(parser: Parser) -> None:
    parser.takes_keys(f"of {', '.join(OWN[:-2])}, and those below", own=OWN, only=True)
    parser.explain = explain
    parser.examples = (
        "kgqa data verify dataset=musique limit=12 dry_run=true",
        "kgqa data verify dataset=musique verify.list=musique_val_wrong.txt",
    )


def explain(words: Sequence[str]) -> str:
    from kgqa.cli.configuration import explain_choices

    named = [word for word in words if word.startswith("verify=")] or ["verify=safe"]
    return f"""{explain_choices(named)}

  roles.verifier=   the model that is asked, as PRESET[@ENGINE]; else roles.reader=, else model=
  dry_run=true      show the first prompts and count the calls, ask no model
  budget=           what may be paid for, e.g. 2.50usd or 500000tokens; then the same command goes on with a raised one
  out=              the folder; else outputs/verified/DATASET/, named by a hash of all that can change a verdict

Each gold passage is turned into triples, names of one thing are made one, and a path through them to the gold answer is
asked for: without one a question is noise. See docs/VERIFICATION.md. dataset.verified=FOLDER of the folder that is
printed last restricts every command to its valid questions. Running the same command again asks nothing again.
Exit codes: 0 done, 2 invalid input, the budget is spent or more questions failed than max_failure_rate allows,
3 the engine crashed, 130 interrupted."""


def run(given: Namespace) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.plan import show_plan
    from kgqa.cli.terminal.sections import show_sections
    from kgqa.config.overrides import override_key, override_values
    from kgqa.experiment.run.planning import Shared
    from kgqa.experiment.session.budget import Budget, limited
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.reproduce.verified import read_published_counts
    from kgqa.runtime.display import log_lines
    from kgqa.training.verify.verifying import plan_verification, verification_folder, verify

    keys = override_values(given.overrides)
    budget = Budget.of(keys["budget"]) if "budget" in keys else None
    overrides = [override for override in given.overrides if override_key(override) != "budget"]
    chosen = Experiment.of(overrides if "verify" in keys else ["verify=safe", *overrides])
    experiment = Experiment.of(overrides, limited(chosen.config, budget))
    terminal = Terminal(width=120)
    with log_lines(terminal), Session(experiment) as session:
        if experiment.settings.dry_run:
            verification_folder(session)
            show_plan(plan_verification(session, Shared()), len(experiment.questions), terminal)
            return 0
        verified = verify(session, terminal, budget, read_published_counts(experiment))
    show_sections(verified.title, verified.sections(), terminal)
    for error in verified.errors:
        terminal.line(f"failed: {error}", alarm=True)
    if verified.failure is not None:
        terminal.line(f"kgqa: {verified.failure}; the same command asks what failed again", alarm=True)
    terminal.result(verified.folder)
    return 0 if verified.failure is None else 2
