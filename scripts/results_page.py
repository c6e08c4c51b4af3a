"""The tables of docs/RESULTS.md, from the folders of finished runs.

    python scripts/results_page.py outputs/sweeps/results_* > tables.md

For each data set: scores with 95 % intervals and costs, then every method beside `REFERENCE` on the questions that both
have (difference in F1 with its bootstrap interval, a permutation test for F1 and McNemar's for EM, each for itself),
then, for pairs that a paper has in one table, on which side the difference is there and here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.run import FinishedRun
from kgqa.errors import KgqaError
from kgqa.experiment.compare import share_questions
from kgqa.experiment.evaluate import AnsweredQuestions, open_run
from kgqa.reproduce.tables import PublishedTable, load_table
from kgqa.scoring.comparison import Difference, compare

REFERENCE = "all_documents"
ORDER = [
    *("no_context", REFERENCE, "golden", "retrieve_read", "iter_retgen", "self_ask", "react", "ircot", "knowtrace"),
    *("trace", "trace, documents", "safe", "kgp"),
]
DATASETS = {"hotpotqa": "HotpotQA", "2wiki": "2WikiMultiHopQA", "musique": "MuSiQue"}


class Pair(NamedTuple):
    """Two methods, and the rows of a published table that compare them."""

    table: str
    columns: tuple[str, ...]  # of HotpotQA, 2Wiki and MuSiQue
    first: str
    second: str
    rows: tuple[str, str]


TRACE = ("HotPotQA", "2WikiMultiHopQA", "MuSiQue")
IRCOT = ("HotpotQA", "2WikiMQA", "MuSiQue")
KNOWTRACE = ("HotpotQA", "2Wiki", "MuSiQue")
PAIRS = (
    Pair("trace/table1", TRACE, "no_context", REFERENCE, ("w/o documents", "w. all documents")),
    Pair("trace/table1", TRACE, "ircot", REFERENCE, ("IRCoT", "w. all documents")),
    Pair("trace/table1", TRACE, "trace", REFERENCE, ("TRACE-Triple", "w. all documents")),
    Pair("trace/table1", TRACE, "trace, documents", REFERENCE, ("TRACE-Doc", "w. all documents")),
    Pair("trace/table1", TRACE, "trace, documents", "trace", ("TRACE-Doc", "TRACE-Triple")),
    Pair("trace/table1", TRACE, "trace", "ircot", ("TRACE-Triple", "IRCoT")),
    Pair("ircot/table4", IRCOT, "ircot", "retrieve_read", ("GPT3, IRCoT QA, Direct", "GPT3, OneR QA, Direct")),
    Pair("knowtrace/table1", KNOWTRACE, "knowtrace", "ircot", ("LLaMA3, KnowTrace", "LLaMA3, IRCoT")),
    Pair("knowtrace/table1", KNOWTRACE, "knowtrace", "iter_retgen", ("LLaMA3, KnowTrace", "LLaMA3, Iter-RetGen")),
    Pair("knowtrace/table1", KNOWTRACE, "iter_retgen", "self_ask", ("LLaMA3, Iter-RetGen", "LLaMA3, Self-Ask")),
    Pair("knowtrace/table1", KNOWTRACE, "react", "self_ask", ("LLaMA3, ReAct", "LLaMA3, Self-Ask")),
)


@dataclass(frozen=True)
class Shown:
    """A run as the page has it."""

    label: str
    dataset: str
    folder: Path
    finished: FinishedRun

    @classmethod
    def of(cls, folder: Path) -> Shown:
        finished = FinishedRun.read(folder)
        read = {key: value for key, value, _ in finished.settings}
        documents = finished.choices["method"] == "trace" and read.get("method.context") == "documents"
        label = finished.choices["method"] + (", documents" if documents else "")
        return cls(label, finished.choices["dataset"], folder, finished)

    def row(self) -> str:
        metrics = self.finished.metrics
        cost, count, recall = metrics.cost.method, metrics.questions, metrics.score("support_recall").mean
        seconds = metrics.question_seconds
        cached = f"{100 * cost.cached_tokens / cost.prompt_tokens:.0f} %" if cost.prompt_tokens else "–"
        cells = [
            f"`{self.label}`",
            str(count),
            shown(metrics.score("em")),
            shown(metrics.score("f1")),
            shown(metrics.score("containment")),
            "–" if recall is None else f"{recall:.1f}",
            f"{cost.calls / count:.1f}",
            f"{cost.prompt_tokens / count:,.0f} + {cost.output_tokens / count:,.0f}",
            cached,
            "–" if seconds is None else f"{seconds.p50:.0f} / {seconds.p95:.0f}",
        ]
        return line(cells)


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def head(cells: Sequence[str]) -> str:
    return f"{line(cells)}\n{line(['---'] * len(cells))}"


def shown(figure: Estimate | None) -> str:
    if figure is None or figure.mean is None:
        return "–"
    return f"{figure.mean:.1f} [{figure.low:.1f}, {figure.high:.1f}]"


AGAINST = head(["method", "n", f"F1 of `{REFERENCE}`", "F1", "p", "EM", "better on", "p"])


def folders(given: Sequence[Path]) -> Iterator[Path]:
    """Of runs; those of the cells of a sweep that have ended."""
    for place in given:
        if not (place / "sweep.json").is_file():
            yield place
            continue
        for cell in sorted((place / "cells").glob("*.json")):
            run = json.loads(cell.read_text(encoding="utf-8")).get("run")
            if run and (Path(run) / "metrics.json").is_file():
                yield Path(run)


def ordered(runs: Iterable[Shown], dataset: str) -> list[Shown]:
    """As the page has them; methods that it does not know come last."""
    known = {label: place for place, label in enumerate(ORDER)}
    here = (run for run in runs if run.dataset == dataset)
    return sorted(here, key=lambda run: (known.get(run.label, len(known)), run.label))


def scores_of(runs: Sequence[AnsweredQuestions], names: Sequence[str]) -> dict[str, dict[str, list[float | None]]]:
    rows = {name: run.scored for name, run in zip(names, runs, strict=True)}
    return {
        "EM": {name: [row.em for row in each] for name, each in rows.items()},
        "F1": {name: [row.f1 for row in each] for name, each in rows.items()},
    }


def beside(*pairs: tuple[Shown, Shown]) -> dict[str, Difference]:
    """EM and F1 of two methods over the questions that both runs of a pair have, those of all pairs together."""
    pooled: dict[str, dict[str, list[float | None]]] = {}
    for one, other in pairs:
        shared = share_questions([open_run(one.folder), open_run(other.folder)], common=True)
        for metric, by_method in scores_of(shared, (one.label, other.label)).items():
            for label, values in by_method.items():
                pooled.setdefault(metric, {}).setdefault(label, []).extend(values)
    return {each.metric: each for each in compare(pooled, seed=0)}


def against(runs: Sequence[Shown]) -> Iterator[str]:
    """Rows: each run beside the reference of its data set; of several, a method's questions in all of them together."""
    references = {run.dataset: run for run in runs if run.label == REFERENCE}
    for label in dict.fromkeys(run.label for run in runs if run.label != REFERENCE):
        pairs = [(run, references[run.dataset]) for run in runs if run.label == label]
        if len(pairs) < len(references):
            continue
        both = beside(*pairs)
        em, f1 = both["EM"], both["F1"]
        yield line(
            [
                f"`{label}`",
                str(f1.n),
                f"{f1.means[1]:.1f}",
                f"{f1.difference:+.1f} [{f1.low:+.1f}, {f1.high:+.1f}]",
                f"{f1.p:.3f}",
                f"{em.difference:+.1f} [{em.low:+.1f}, {em.high:+.1f}]",
                f"{em.wins[0]} : {em.wins[1]}",
                f"{em.p:.3f}",
            ]
        )


def published(table: PublishedTable, row: str, column: str) -> float:
    place = [metric.name for metric in table.metrics].index("F1")
    (cell,) = (cell for cell in table.cells if (cell.row, cell.column) == (row, column))
    value = cell.values[place]
    assert value is not None
    return value.number


def signs(runs: Sequence[Shown]) -> Iterator[str]:
    """Rows: F1 of the first less F1 of the second, in the paper and here; last, all data sets' questions together."""
    by = {(run.dataset, run.label): run for run in runs}
    for pair in PAIRS:
        table = load_table(pair.table)
        cells, theirs, ours = [], [], []
        for dataset, column in zip(DATASETS, pair.columns, strict=True):
            theirs.append(published(table, pair.rows[0], column) - published(table, pair.rows[1], column))
            one, other = by.get((dataset, pair.first)), by.get((dataset, pair.second))
            ours += [(one, other)] if one and other else []
            cells.append(sign(theirs[-1], beside((one, other))["F1"]) if one and other else f"{theirs[-1]:+.1f} / –")
        if not ours:
            continue
        whole = beside(*ours)["F1"] if len(ours) == len(DATASETS) else None
        told = f"{sign(sum(theirs) / len(theirs), whole)}, [{whole.low:+.1f}, {whole.high:+.1f}]" if whole else "–"
        yield line([f"`{pair.first}` − `{pair.second}`", table.id.replace("/", ", "), *cells, told])


def sign(theirs: float, ours: Difference) -> str:
    same = "same" if theirs * ours.difference > 0 else "other"
    return f"{theirs:+.1f} / {ours.difference:+.1f} {same if ours.low * ours.high > 0 else f'({same})'}"


def page(runs: Sequence[Shown]) -> Iterator[str]:
    for dataset, name in DATASETS.items():
        here = ordered(runs, dataset)
        if not here:
            continue
        yield f"### {name}\n"
        titles = ["method", "questions", "EM", "F1", "containment", "support recall", "calls", "tokens"]
        yield head([*titles, "known", "seconds"])
        yield from (run.row() for run in here)
        yield ""
        yield AGAINST
        yield from against(here)
        yield ""
    everywhere = [run for dataset in DATASETS for run in ordered(runs, dataset)]
    yield "### All together\n"
    yield AGAINST
    yield from against(everywhere)
    yield ""
    yield head(["F1", "published in", *DATASETS.values(), "all"])
    yield from signs(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path, metavar="RUN", help="a run's folder, or a sweep's")
    try:
        print("\n".join(page([Shown.of(folder) for folder in folders(parser.parse_args().places)])))
    except KgqaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
