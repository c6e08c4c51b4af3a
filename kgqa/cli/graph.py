"""`kgqa kg link`, `link-stats` and `link-quality`: KGP's graphs of passages."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from kgqa.cli.parsing import Parser
from kgqa.errors import ConfigError, nearest
from kgqa.util.text import pluralize

SEEDS = 5  # as conf/method/neighbourhood.yaml


def arguments(parser: Parser) -> None:
    build = parser.command("link", "link the collections of a dataset's questions ahead of a run")
    stats = parser.command("link-stats", "passages, edges, density and build time of what is linked (KGP, Table 3)")
    quality = parser.command("link-quality", "do neighbours of seeds hold the supporting passages (KGP, Figs. 5, 9)")
    for subcommand in (build, stats, quality):
        subcommand.takes_keys("graph=NAME, and others as for kgqa run")
        subcommand.examples = (f"{subcommand.prog} graph=tfidf dataset=demo",)
    quality.add_argument(
        "--values",
        metavar="LIST",
        help="of the key that makes the graph denser, e.g. 1,2,5,10",
    )
    quality.add_argument("--seeds", metavar="N", type=int, default=SEEDS, help=f"found by TF-IDF; {SEEDS} unless given")
    quality.add_argument(
        "--with-seeds", action="store_true", help="seeds count as reached too, as in KGP's released code"
    )


def build(given: Namespace) -> int:
    return show_linked(given.overrides, build=True)


def stats(given: Namespace) -> int:
    return show_linked(given.overrides, build=False)


def show_linked(overrides: Sequence[str], *, build: bool) -> int:
    """Show KGP's Table 3 over the collections of the questions, linked before if requested."""
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.figures import show_collections
    from kgqa.config.files import groups
    from kgqa.experiment.prepare.passage_graphs import PassageGraphs
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.runtime.display import log_lines

    terminal, experiment = Terminal(width=120), Experiment.of(overrides)
    if not experiment.config["choices"]["graph"]:
        raise ConfigError(f"a graph is required: graph=NAME; {nearest('', groups()['graph'])}")
    dataset, questions = experiment.name("dataset"), experiment.questions
    with log_lines(terminal), Session(experiment) as session:
        collections = PassageGraphs(session)
        if build:
            terminal.line(f"{collections.build(questions, terminal)} built, the others were there")
        if missing := collections.missing(questions):
            own = " ".join(overrides)
            raise ConfigError(f"{len(missing)} collections are not linked yet; run: kgqa kg link {own}".rstrip())
        title = f"dataset={dataset} graph={experiment.name('graph')}, {pluralize(len(questions), 'question')}: "
        title += "means of a collection"
        show_collections(collections.statistics(questions), dataset, title, terminal)
    return 0


def quality(given: Namespace) -> int:
    """Show, plot and save the quality of a graph."""
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.figures import show_quality
    from kgqa.experiment.prepare.graph_quality import quality_curve, write_quality
    from kgqa.methods.neighbourhood import Counted
    from kgqa.runtime.display import log_lines

    if given.seeds < 1:
        raise ConfigError(f"--seeds={given.seeds}: must be at least 1")
    terminal, values = Terminal(width=120), given.values.split(",") if given.values else None
    with log_lines(terminal):
        count: Counted = "with_seeds" if given.with_seeds else "neighbours"
        curve = quality_curve(given.overrides, values, given.seeds, count, terminal)
    show_quality(curve, terminal)
    for file in write_quality(curve):
        terminal.line(str(file))
    return 0
