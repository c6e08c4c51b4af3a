"""Do the neighbours of the seeds hold the supporting passages? KGP's Figures 5 and 9, for `kgqa kg link-quality`."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kgqa.calls import Search
from kgqa.errors import ConfigError
from kgqa.experiment.prepare.passage_graphs import PassageGraphs
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.methods.neighbourhood import Counted, coverage
from kgqa.methods.steps.structure import text_passages
from kgqa.report.plots import Plot, Point, Series, svg
from kgqa.retrieval.search import PoolIndex
from kgqa.runtime.display import Display
from kgqa.util.fs import ensure_dir, outputs, replace_file
from kgqa.util.text import pluralize

Value = int | float | str
# what makes each graph denser, and the values tried where none are given
DENSITIES: dict[str, tuple[str, tuple[Value, ...]]] = {
    "tfidf": ("keywords", (0, 1, 2, 3, 5, 8, 12, 20, 40)),
    "knn": ("k", (1, 2, 3, 5, 8, 10, 12, 15)),
    "mdr": ("k", (1, 2, 3, 5, 8, 10, 12, 15)),
    "entities": ("most_common", (0.1, 0.15, 0.2, 0.3, 0.5, 1.0)),
    "tagme": ("threshold", (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)),
}
SEEDING = "retriever=tfidf_text"  # finds the seeds


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over the questions that have supporting passages, at one value of the graph's key."""

    value: str
    questions: int
    neighbours: float  # of a passage
    density: float
    sf_em: float  # share of questions with all supporting passages among those reached, see `methods.neighbourhood`
    covered: float  # share of a question's supporting passages among them
    precision: float  # share of those reached that are supporting passages


COLUMNS = ("questions", "neighbours", "density", "sf_em", "covered", "precision")


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """One kind of graph over the values of the key that makes it denser."""

    dataset: str
    graph: str
    key: str  # e.g. graph.keywords
    count: Counted  # what is reached from the seeds
    points: list[Quality]


def quality_curve(
    overrides: Sequence[str], values: Sequence[str] | None, seeds: int, count: Counted, display: Display
) -> QualityCurve:
    """Return `values`: of the key, None: the usual ones. `seeds`: passages found for a question by TF-IDF.

    Raises:
        ConfigError: the graph has no density to vary, or no question comes with its supporting passages.
    """
    chosen = [SEEDING, *overrides]  # the last one given counts
    with Session(Experiment.of(chosen)) as session:
        dataset, graph = session.experiment.name("dataset"), session.experiment.name("graph")
        if graph not in DENSITIES:
            raise ConfigError(f"graph={graph}: no density to vary; choose from: {', '.join(DENSITIES)}")
        key, usual = f"graph.{DENSITIES[graph][0]}", DENSITIES[graph][1]
        seeded = _seeds(session, seeds)
        if not seeded:
            raise ConfigError(f"dataset={dataset}: no question with its supporting passages")
    points = []
    for value in values or usual:
        with Session(Experiment.of([*chosen, f"{key}={value}"])) as session:
            points.append(_quality(session, seeded, str(value), count, display))
    return QualityCurve(dataset, graph, key, count, points)


def _quality(
    session: Session, seeded: Mapping[str, Sequence[str]], value: str, count: Counted, display: Display
) -> Quality:
    """Return `seeded`: the seeds' ids by question id; questions that are not in it are left out."""
    collections, questions = PassageGraphs(session), session.experiment.questions
    found, degrees, densities = [], [], []
    collections.build(questions, display)
    for question in questions:
        if question.id not in seeded:
            continue
        built = collections.store.open(text_passages(question.passages))
        seeds = [built.passages[built.places[seed]] for seed in seeded[question.id]]
        reached = {passage.id for seed in seeds for passage in built.neighbours(seed)}
        reached |= {seed.id for seed in seeds} if count == "with_seeds" else set()
        found.append(coverage(reached, question.support))
        degrees.append(2 * built.edges / len(built.passages))
        densities.append(built.density)
    means = [_mean([getattr(each, name) for each in found]) for name in ("sf_em", "covered", "precision")]
    return Quality(value, len(found), _mean(degrees), _mean(densities), *means)


def _seeds(session: Session, count: int) -> dict[str, tuple[str, ...]]:
    """Return what TF-IDF finds first for each question all of whose supporting passages are in its collection."""
    seeds = {}
    with closing(PoolIndex(session.retriever)) as index:
        for question in session.experiment.questions:
            pool = text_passages(question.passages)
            if question.support and question.support <= {passage.id for passage in pool}:
                (passages,) = index.search([Search(question.text, count, pool=pool)])
                seeds[question.id] = tuple(passage.id for passage in passages)
    return seeds


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def quality_rows(curve: QualityCurve) -> list[tuple[str, ...]]:
    """Return the curve as a table: the header, then one row per value."""
    rows: list[tuple[str, ...]] = [(curve.key, *COLUMNS)]
    for point in curve.points:
        figures = (getattr(point, column) for column in COLUMNS)
        rows.append(
            (point.value, *(f"{figure:.4f}" if isinstance(figure, float) else str(figure) for figure in figures))
        )
    return rows


def write_quality(curve: QualityCurve) -> list[Path]:
    """Return the table as CSV and a picture of it, in `outputs/graph_quality`."""
    name, points = f"{curve.dataset}-{curve.graph}", curve.points
    reached = "of the neighbours of the seeds" if curve.count == "neighbours" else "of the seeds and their neighbours"
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(quality_rows(curve))
    plot = Plot(
        f"{name}: SF-EM and precision {reached}",
        "mean number of neighbours of a passage",
        f"{pluralize(points[0].questions, 'question')}, labels: {curve.key}",
        [
            Series("SF-EM", [Point(point.neighbours, point.sf_em, label=point.value) for point in points], 0),
            Series("supporting passages covered", [Point(p.neighbours, p.covered) for p in points], 2, hollow=True),
            Series("precision", [Point(point.neighbours, point.precision) for point in points], 1),
        ],
    )
    folder = ensure_dir(outputs() / "graph_quality")
    written = ((folder / f"{name}.csv", table.getvalue()), (folder / f"{name}.svg", svg(plot) + "\n"))
    return [replace_file(file, text) for file, text in written]
