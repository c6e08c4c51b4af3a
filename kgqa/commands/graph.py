"""`kgqa graph`: KGP's graphs of passages."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError

NAME = "graph"
SUMMARY = "build: link the passages of each question ahead of a run (KGP); stats; quality: SF-EM by density"
SEEDS = 10  # KGP supplement 8.2


def arguments(parser: Parser) -> None:
    build = parser.command("build", "link the collections of a dataset's questions ahead of a run")
    stats = parser.command("stats", "passages, edges, density and build time of what is linked (KGP, Table 3)")
    quality = parser.command("quality", "do neighbours of the seeds hold the supporting passages (KGP, Figs. 5, 9)")
    for each in (build, stats, quality):
        each.takes_keys("graph=NAME, and others as for kgqa run")
        each.examples = (f"{each.prog} graph=tfidf dataset=demo",)
    parser.examples = build.examples
    quality.add_argument(
        "--values",
        metavar="LIST",
        help="of the key that makes the graph denser, e.g. 1,2,5,10",
    )
    quality.add_argument("--seeds", metavar="N", type=int, default=SEEDS, help=f"found by TF-IDF; {SEEDS} unless given")


def run(given: Namespace) -> int:
    return {"build": build, "stats": stats, "quality": quality}[given.action](given)


def build(given: Namespace) -> int:
    from kgqa.experiment.prepare.passage_graphs import build_graphs

    return build_graphs(given.overrides)


def stats(given: Namespace) -> int:
    from kgqa.experiment.prepare.passage_graphs import graph_statistics

    return graph_statistics(given.overrides)


def quality(given: Namespace) -> int:
    from kgqa.experiment.prepare.graph_quality import measure_quality

    if given.seeds < 1:
        raise ConfigError(f"--seeds={given.seeds}: must be at least 1")
    return measure_quality(given.overrides, given.values.split(",") if given.values else None, given.seeds)
