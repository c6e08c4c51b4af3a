"""`kgqa kg`: the triples of a dataset's passages."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError

NAME = "kg"
SUMMARY = "build: extract the triples of passages ahead of a run; stats: entities, triples and density"


def arguments(parser: Parser) -> None:
    build = parser.command("build", "extract the triples of the questions' passages, or of the whole corpus")
    build.takes_keys()
    build.add_argument(
        "--corpus", action="store_true",
        help="every passage of dataset.corpus instead of those that come with the questions; limit counts passages",
    )  # fmt: skip
    build.add_argument(
        "--ray", action="store_true",
        help="the corpus by workers of Ray, each with a model of its own, on this machine or on RAY_ADDRESS's cluster",
    )  # fmt: skip
    build.add_argument("--workers", metavar="N", type=int, help="of Ray; 1 unless given")
    build.add_argument("--gpus", metavar="N", type=int, help="for each worker; 0 unless given")
    parser.examples = build.examples = (
        "kgqa kg build dataset=demo limit=3",
        "kgqa kg build dataset=musique --corpus --ray --workers 4 --gpus 1",
    )
    stats = parser.command("stats", "figures per question of what is extracted already (TRACE, Table 5)")
    stats.takes_keys()
    stats.examples = ("kgqa kg stats dataset=demo limit=3",)


def run(given: Namespace) -> int:
    return {"build": build, "stats": stats}[given.action](given)


def build(given: Namespace) -> int:
    for option, least in (("workers", 1), ("gpus", 0)):
        value = getattr(given, option)
        if value is not None and not given.ray:
            raise ConfigError(f"--{option}={value}: only with --ray")
        if value is not None and value < least:
            raise ConfigError(f"--{option}={value}: must be at least {least}")
    overrides = [*given.overrides, "kg.offline=false"]
    if given.ray:
        from kgqa.experiment.prepare.ray_workers import build_by_workers

        return build_by_workers(overrides, given.workers or 1, given.gpus or 0)
    if given.corpus:
        from kgqa.experiment.prepare.corpus import build_corpus, extract_here

        return build_corpus(overrides, extract_here)
    from kgqa.experiment.prepare.triples import extract_and_show

    return extract_and_show(overrides)


def stats(given: Namespace) -> int:
    """Asks no model."""
    from kgqa.experiment.prepare.triples import extract_and_show

    return extract_and_show([*given.overrides, "kg.offline=true"])
