"""`kgqa graph quality`: do the neighbours of the seeds hold the supporting passages? KGP's Figures 5 and 9."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kgqa.calls import Search
from kgqa.errors import ConfigError
from kgqa.experiment.prepare.passage_graphs import PassageGraphs
from kgqa.methods.steps.structure import ordinary
from kgqa.report.plots import Plot, Point, Series, svg
from kgqa.retrieval.search import PoolIndex
from kgqa.storage import outputs, replace_file
from kgqa.types import Question

if TYPE_CHECKING:
    from kgqa.experiment.session.session import Session

# what makes each graph denser, and the values tried where none are given
DENSITIES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "tfidf": ("keywords", (0, 1, 2, 3, 5, 8, 12, 20, 40)),
    "knn": ("k", (1, 2, 3, 5, 8, 10, 12, 15)),
    "mdr": ("k", (1, 2, 3, 5, 8, 10, 12, 15)),
    "entities": ("most_common", (0.1, 0.15, 0.2, 0.3, 0.5, 1.0)),
    "tagme": ("threshold", (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)),
}


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over the questions that have supporting passages, at one value of the graph's key."""

    value: str
    questions: int
    neighbours: float  # of a passage
    density: float
    sf_em: float  # share of questions with all supporting passages among the neighbours of the seeds
    covered: float  # share of a question's supporting passages among them
    precision: float  # share of the neighbours of the seeds that are supporting passages


def measure_quality(overrides: Sequence[str], tried: Sequence[str] | None, count: int) -> int:
    """Print a table and write it as CSV, with a picture.

    tried: values of the key that makes the graph denser; None: those of `DENSITIES`. count: of seeds.
    """
    from kgqa.experiment.session.session import Session

    chosen = ["retriever=tfidf", *overrides]  # finds the seeds; the last one given counts
    with Session(chosen) as session:
        name = session.config["choices"]["graph"]
        if name not in DENSITIES:
            raise ConfigError(f"graph={name}: no density to vary; choose from: {', '.join(DENSITIES)}")
        key, values = DENSITIES[name]
        seeded = _seeds(session, count)
        if not seeded:
            raise ConfigError(f"dataset={session.name('dataset')}: no question with its supporting passages")
    rows = []
    for value in tried or values:
        with Session([*chosen, f"graph.{key}={value}"]) as session:
            rows.append(quality(PassageGraphs(session), session.questions, seeded, str(value)))
    with Session(chosen) as session:
        _write(session, f"graph.{key}", rows)
    return 0


def quality(
    collections: PassageGraphs, questions: Sequence[Question], seeded: Mapping[str, Sequence[str]], value: str
) -> Quality:
    """`seeded`: the seeds' ids by question id; questions that are not in it are left out."""
    exact, covered, precise, degrees, densities = [], [], [], [], []
    collections.build(questions)
    for question in questions:
        if question.id not in seeded:
            continue
        built = collections.store.open(ordinary(question.passages))
        seeds = [built.passages[built.places[seed]] for seed in seeded[question.id]]
        around = {passage.id for seed in seeds for passage in built.neighbours(seed)}
        hit = len(around & question.support)
        exact.append(float(hit == len(question.support)))
        covered.append(hit / len(question.support))
        precise.append(hit / len(around) if around else 0.0)
        degrees.append(2 * built.edges / len(built.passages))
        densities.append(built.density)
    return Quality(value, len(exact), *map(_mean, (degrees, densities, exact, covered, precise)))


def _seeds(session: Session, count: int) -> dict[str, tuple[str, ...]]:
    """What TF-IDF finds first for each question all of whose supporting passages are in its collection."""
    index = PoolIndex(session.retriever)
    found = {}
    for question in session.questions:
        pool = ordinary(question.passages)
        if question.support and question.support <= {passage.id for passage in pool}:
            (passages,) = index.search([Search(question.text, count, pool=pool)])
            found[question.id] = tuple(passage.id for passage in passages)
    index.close()
    return found


def _write(session: Session, key: str, rows: Sequence[Quality]) -> None:
    from rich.table import Table

    columns = ("questions", "neighbours", "density", "sf_em", "covered", "precision")
    name = f"{session.name('dataset')}-{session.name('graph')}"
    table = Table(key, *columns, title=f"{name}: neighbours of the seeds (KGP, Figs. 5, 9)", title_justify="left")
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([key, *columns])
    for row in rows:
        cells = [getattr(row, column) for column in columns]
        shown = [f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in cells]
        table.add_row(str(row.value), *shown)
        writer.writerow([row.value, *shown])
    folder = outputs() / "graph_quality"
    folder.mkdir(parents=True, exist_ok=True)
    session.console.print(table)
    plot = Plot(
        f"{name}: SF-EM and precision of the neighbours of the seeds",
        "mean number of neighbours of a passage",
        f"{rows[0].questions} questions, labels: {key}",
        [
            Series("SF-EM", [Point(row.neighbours, row.sf_em, label=row.value) for row in rows], 0),
            Series("supporting passages covered", [Point(row.neighbours, row.covered) for row in rows], 2, hollow=True),
            Series("precision", [Point(row.neighbours, row.precision) for row in rows], 1),
        ],
    )
    for ending, text in (("csv", written.getvalue()), ("svg", svg(plot) + "\n")):
        session.console.print(str(replace_file(folder / f"{name}.{ending}", text)), highlight=False, soft_wrap=True)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
