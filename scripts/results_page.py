"""Write the tables of docs/RESULTS.md and docs/GRID.md from finished runs.

    python scripts/results_page.py outputs/sweeps/results_* --plot docs/results.svg > tables.md
    python scripts/results_page.py outputs/sweeps/results_* --grid > tables.md

For each dataset: scores with 95 % intervals and costs, and every method compared with `REFERENCE` on the questions that
both have (difference in F1 with its interval, a permutation test for F1, McNemar's test for EM). Then the
sign of each difference in the papers and here, where TRACE loses the answer, and the causes of wrong answers.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import Notes, TracedQuestion, read_trace
from kgqa.errors import KgqaError
from kgqa.experiment.compare import share_questions
from kgqa.experiment.evaluate import open_run
from kgqa.experiment.explain import SIGNS, Explained
from kgqa.experiment.explain import explain_answers as explain_run
from kgqa.report.evaluation import difference_text
from kgqa.reproduce.tables import PublishedTable, load_table
from kgqa.scoring.comparison import ALPHA, Difference, compare, holm, mcnemar
from kgqa.scoring.intervals import estimate
from kgqa.scoring.published_delta import LEAST_DIFFERENCE
from kgqa.scoring.questions import ScoredQuestion
from kgqa.util.text import score_text

PLOT = Path(__file__).with_name("results.svg.j2")
REFERENCE = "all_documents"
ORDER = [
    *(
        "no_context",
        REFERENCE,
        "golden",
        "retrieve_read",
        "iter_retgen",
        "self_ask",
        "react",
        "ircot",
        "knowtrace",
    ),
    *(
        "sg_prompt",
        "ge_reasoning",
        "era_cot",
        "search_agent",
        "trace",
        "trace, documents",
        "trace, top 20",
    ),
    *("trace, no selector", "trace, released reader", "safe", "kgp"),
]
# setting and value of each variant of TRACE
VARIANTS = {
    "documents": ("method.context", "documents"),
    "top 20": ("method.top", "20"),
    "no selector": ("method.selector", "false"),
    "released reader": ("method.reader_layout", "released"),
}
CITED = ("passages", "sentences")
CAUSES = (
    "right",
    "format",
    "no answer",
    "missed passage",
    "missed in chains",
    "not cited",
    "reader",
)
RETRIEVERS = {
    "bm25": "BM25",
    "minilm": "MiniLM",
    "hybrid": "BM25 + MiniLM",
    "entity_graph": "entity graph",
}
COLUMNS = (
    "method",
    "questions",
    "EM",
    "F1",
    "containment",
    "support recall",
    "calls",
    "tokens",
    "cached",
)
GRID_COLUMNS = ("method", "retriever", "EM", "F1", "recall interval", "calls", "all tokens")
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
    Pair(
        "ircot/table4",
        IRCOT,
        "ircot",
        "retrieve_read",
        ("GPT3, IRCoT QA, Direct", "GPT3, OneR QA, Direct"),
    ),
    Pair(
        "knowtrace/table1", KNOWTRACE, "knowtrace", "ircot", ("LLaMA3, KnowTrace", "LLaMA3, IRCoT")
    ),
    Pair(
        "knowtrace/table1",
        KNOWTRACE,
        "knowtrace",
        "iter_retgen",
        ("LLaMA3, KnowTrace", "LLaMA3, Iter-RetGen"),
    ),
    Pair(
        "knowtrace/table1",
        KNOWTRACE,
        "iter_retgen",
        "self_ask",
        ("LLaMA3, Iter-RetGen", "LLaMA3, Self-Ask"),
    ),
    Pair("knowtrace/table1", KNOWTRACE, "react", "self_ask", ("LLaMA3, ReAct", "LLaMA3, Self-Ask")),
)


@dataclass(frozen=True)
class Shown:
    """A run in a table."""

    label: str
    dataset: str
    retriever: str
    folder: Path
    finished: FinishedRun

    @classmethod
    def of(cls, folder: Path) -> Shown:
        finished = FinishedRun.read(folder)
        read = {key: value for key, value, _ in finished.settings}
        label = finished.choices["method"]
        if label == "trace":
            chosen = (
                name for name, (key, value) in VARIANTS.items() if str(read.get(key)) == value
            )
            label = ", ".join([label, *chosen])
        return cls(
            label,
            finished.choices["dataset"],
            finished.choices.get("retriever") or "bm25",
            folder,
            finished,
        )

    def cells(self, columns: Sequence[str]) -> list[str]:
        """Return columns of the tables: means with intervals, and costs per question."""
        metrics = self.finished.metrics
        cost, count, recall = (
            metrics.cost.method,
            metrics.questions,
            metrics.score("support_recall").mean,
        )
        prompt, output = cost.prompt_tokens, cost.output_tokens
        names = ("em", "f1", "containment", "support_recall")
        em, f1, containment, recall_interval = (
            format_estimate(metrics.score(name)) for name in names
        )
        cells = {
            "method": f"`{self.label}`",
            "retriever": RETRIEVERS.get(self.retriever, self.retriever),
            "questions": str(count),
            "EM": em,
            "F1": f1,
            "containment": containment,
            "support recall": "–"
            if recall is None
            else f"{recall:.1f}{' (cited)' if self.label == 'safe' else ''}",
            "recall interval": recall_interval,
            "calls": f"{cost.calls / count:.1f}",
            "tokens": f"{prompt / count:,.0f} + {output / count:,.0f}",
            "all tokens": f"{(prompt + output) / count:,.0f}",
            "cached": f"{100 * cost.cached_tokens / prompt:.0f} %" if prompt else "–",
        }
        return [cells[column] for column in columns]


def table_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table_head(cells: Sequence[str]) -> str:
    return f"{table_row(cells)}\n{table_row(['---'] * len(cells))}"


def mark_golds(runs: Iterable[Shown]) -> str:
    """Return what the heading of a dataset says about its gold answers, such as ", EM and F1 without aliases"."""
    lacking = {run.finished.metrics.missing_golds for run in runs} - {None}
    return f", EM and F1 {' and '.join(sorted(map(str, lacking)))}" if lacking else ""


def format_estimate(figure: Estimate | None) -> str:
    if figure is None or figure.mean is None:
        return "–"
    return f"{figure.mean:.1f} [{figure.low:.1f}, {figure.high:.1f}]"


COMPARISON_HEAD = table_head(
    [
        *("method", "n", f"F1 of `{REFERENCE}`", "F1", "p of F1 (Holm)"),
        *("EM", "better on", "p of EM (Holm)"),
    ]
)


def find_runs(places: Sequence[Path]) -> Iterator[Path]:
    """Return the folders of runs, and of the finished cells of sweeps."""
    for place in places:
        if not (place / "sweep.json").is_file():
            yield place
            continue
        for cell in sorted((place / "cells").glob("*.json")):
            run = json.loads(cell.read_text(encoding="utf-8")).get("run")
            if run and (Path(run) / "metrics.json").is_file():
                yield Path(run)


def sort_runs(runs: Iterable[Shown], dataset: str) -> list[Shown]:
    """Return the runs of a dataset in the order of the page. Other methods come last."""
    known = {label: place for place, label in enumerate(ORDER)}
    here = (run for run in runs if run.dataset == dataset)
    return sorted(here, key=lambda run: (known.get(run.label, len(known)), run.label))


def compare_all(*pairs: tuple[Shown, Shown]) -> dict[str, Difference]:
    """Compare EM and F1 of two methods on the questions that both runs of a pair have, over all pairs."""
    pooled: dict[str, dict[str, list[float | None]]] = {"EM": {}, "F1": {}}
    for pair in pairs:
        shared = share_questions([open_run(run.folder) for run in pair], common=True)
        for run, answers in zip(pair, shared, strict=True):
            pooled["EM"].setdefault(run.label, []).extend(row.em for row in answers.scored)
            pooled["F1"].setdefault(run.label, []).extend(row.f1 for row in answers.scored)
    return {each.metric: each for each in compare(pooled, seed=0)}


def compare_with_reference(runs: Sequence[Shown]) -> Iterator[str]:
    """Return a row per method: its difference from the reference, over the questions of all datasets.

    The p-values are corrected over all rows and both scores (Holm, 1979).
    """
    references = {run.dataset: run for run in runs if run.label == REFERENCE}
    compared = dict[str, dict[str, Difference]]()
    for label in dict.fromkeys(run.label for run in runs if run.label != REFERENCE):
        pairs = [(run, references[run.dataset]) for run in runs if run.label == label]
        if len(pairs) == len(references):
            compared[label] = compare_all(*pairs)
    differences = [both[metric] for both in compared.values() for metric in ("F1", "EM")]
    adjusted = iter(holm([difference.p for difference in differences]))
    for label, both in compared.items():
        em, f1, p_f1, p_em = both["EM"], both["F1"], next(adjusted), next(adjusted)
        yield table_row(
            [
                f"`{label}`",
                str(f1.n),
                f"{f1.means[1]:.1f}",
                difference_text(f1),
                f"{p_f1:.3f}",
                difference_text(em),
                f"{em.wins[0]} : {em.wins[1]}",
                f"{p_em:.3f}",
            ]
        )


def find_published(table: PublishedTable, row: str, column: str) -> float:
    place = [metric.name for metric in table.metrics].index("F1")
    (cell,) = (cell for cell in table.cells if (cell.row, cell.column) == (row, column))
    value = cell.values[place]
    assert value is not None
    return value.number


def compare_signs(runs: Sequence[Shown]) -> Iterator[str]:
    """Return a row per pair: F1 of the first minus F1 of the second, in the paper and here."""
    by = {(run.dataset, run.label): run for run in runs}
    for pair in PAIRS:
        table = load_table(pair.table)
        cells, theirs, ours = [], [], []
        for dataset, column in zip(DATASETS, pair.columns, strict=True):
            theirs.append(
                find_published(table, pair.rows[0], column)
                - find_published(table, pair.rows[1], column)
            )
            one, other = by.get((dataset, pair.first)), by.get((dataset, pair.second))
            ours += [(one, other)] if one and other else []
            here = compare_all((one, other))["F1"] if one and other else None
            cells.append(
                show_sign(theirs[-1], here) if here else f"{score_text(theirs[-1], '+')} / –"
            )
        if not ours:
            continue
        whole = compare_all(*ours)["F1"] if len(ours) == len(DATASETS) else None
        mean = sum(theirs) / len(theirs)
        total = f"{show_sign(mean, whole)}, {show_interval(whole)}" if whole else "–"
        yield table_row(
            [f"`{pair.first}` − `{pair.second}`", table.id.replace("/", ", "), *cells, total]
        )


def show_interval(difference: Difference) -> str:
    low, high = (score_text(end, "+") for end in (difference.low, difference.high))
    return f"[{low}, {high}]"


def show_sign(theirs: float, ours: Difference) -> str:
    pair = f"{score_text(theirs, '+')} / {score_text(ours.difference, '+')}"
    if abs(theirs) < LEAST_DIFFERENCE:
        return f"{pair} (no order)"
    same = "same" if theirs * ours.difference > 0 else "other"
    return f"{pair} {same if ours.low * ours.high > 0 else f'({same})'}"


def locate_answer(traced: TracedQuestion) -> dict[str, bool]:
    """Return how far a gold answer of the question comes in TRACE."""
    patterns = [
        re.compile(rf"\b{re.escape(answer)}\b", re.IGNORECASE) for answer in traced.question.answers
    ]

    def is_in(text: str) -> bool:
        return any(pattern.search(text) for pattern in patterns)

    chains = Notes.of(traced).chains
    offered = [call for call in traced.calls if call.kind == "choose"]
    return {
        "in the triples": any(
            is_in(str(call.items)) for call in traced.calls if call.kind == "triples"
        ),
        "offered to the selector": any(is_in(str(call.request)) for call in offered),
        "in the chains": any(
            is_in(" ".join(triple[:3])) for chain in chains for triple in chain.triples
        ),
        "answered": is_in(traced.prediction.answer or ""),
        "best chain is empty": bool(chains) and not chains[0].triples,
    }


def locate_answers(runs: Sequence[Shown]) -> Iterator[str]:
    """Return a row per dataset: in how many questions the answer gets how far. Yes/no questions are left out."""
    for run in runs:
        questions = [
            each
            for each in read_trace(run.folder)
            if not {"yes", "no"} & set(each.question.answers)
        ]
        places = [locate_answer(each) for each in questions]
        if run is runs[0]:
            yield table_head(["dataset", "questions", *places[0]])
        counts = [sum(place[key] for place in places) for key in places[0]]
        yield table_row([DATASETS[run.dataset], *map(str, [len(questions), *counts])])


def compare_variants(runs: Sequence[Shown]) -> Iterator[str]:
    """Return a row per variant that replaces a part of TRACE: its F1 minus that of `trace`."""
    by = {(run.label, run.dataset): run for run in runs}
    yield table_head(["F1 minus that of `trace`", *DATASETS.values(), "all"])
    for label in ("trace, no selector", "trace, top 20", "trace, released reader"):
        pairs = [
            (by[label, dataset], by["trace", dataset])
            for dataset in DATASETS
            if (label, dataset) in by and ("trace", dataset) in by
        ]
        groups = [*([pair] for pair in pairs), pairs]
        differences = (
            [compare_all(*group)["F1"] for group in groups] if len(pairs) == len(DATASETS) else []
        )
        if differences:
            cells = map(difference_text, differences)
            yield table_row([label.removeprefix("trace, "), *cells])


def find_cause(row: ScoredQuestion, label: str) -> str:
    """Return the first of `CAUSES` that applies to an answer. The passages of TRACE are those of its chains."""
    if row.em == 1:
        return "right"
    if row.answer is None or not row.answer.strip() or row.abstained:
        return "no answer"
    if row.containment:
        return "format"
    if row.support.recall is not None and row.support.recall < 1:
        # SAFE's passages always contain the gold ones
        places = {"trace": "missed in chains", "safe": "not cited"}
        return places.get(label.partition(",")[0], "missed passage")
    return "reader"


def find_signs(runs: Sequence[Shown]) -> Iterator[str]:
    """Return a row per method: the signs of `kgqa explain`. All datasets together.

    A star marks a share that differs from that of `REFERENCE` on the same questions (McNemar's test, Holm's correction
    over the table).
    """
    explained = {(run.label, run.dataset): explain_run(open_run(run.folder)) for run in runs}
    counts: dict[str, dict[str, int]] = {}
    sizes: dict[str, int] = {}
    p_values: dict[tuple[str, str], float] = {}
    for label in ORDER:
        pairs = [
            (own, base)
            for dataset in DATASETS
            if (label, dataset) in explained
            for own, base in pair_questions(
                explained[label, dataset], explained[REFERENCE, dataset]
            )
        ]
        if not pairs:
            continue
        sizes[label] = len(pairs)
        counts[label] = {sign: sum(own.has(sign) for own, _ in pairs) for sign in SIGNS}
        for sign in SIGNS if label != REFERENCE else ():
            more = sum(own.has(sign) and not base.has(sign) for own, base in pairs)
            fewer = sum(base.has(sign) and not own.has(sign) for own, base in pairs)
            p_values[label, sign] = mcnemar(more, fewer)
    significant = {
        place for place, p in zip(p_values, holm(list(p_values.values())), strict=True) if p < ALPHA
    }
    yield table_head(["method", "questions", *SIGNS])
    for label, by_sign in counts.items():
        cells = (
            f"{count}{'*' if (label, sign) in significant else ''}"
            for sign, count in by_sign.items()
        )
        yield table_row([f"`{label}`", str(sizes[label]), *cells])


def pair_questions(
    own: Sequence[Explained], base: Sequence[Explained]
) -> Iterator[tuple[Explained, Explained]]:
    """Return the questions that both runs have."""
    by_id = {each.row.id: each for each in base}
    return ((each, by_id[each.row.id]) for each in own if each.row.id in by_id)


def score_citations(runs: Sequence[Shown]) -> Iterator[str]:
    """Return a row per method with chains or cited texts: precision and recall of what it cites, with intervals."""
    yield table_head(
        [
            "method",
            "questions",
            *(f"{unit}, {name}" for unit in CITED for name in ("precision", "recall")),
        ]
    )
    for label in ORDER:
        rows = [
            each for run in runs if run.label == label for each in explain_run(open_run(run.folder))
        ]
        if not any(each.sentences.recall is not None for each in rows):
            continue
        estimates = [
            estimate([getattr(getattr(each, unit), name) for each in rows])
            for unit in CITED
            for name in ("precision", "recall")
        ]
        yield table_row([f"`{label}`", str(len(rows)), *map(format_estimate, estimates)])


def explain_answers(runs: Sequence[Shown]) -> Iterator[str]:
    """Return a row per method: how many answers are right, and the causes of the others. All datasets together."""
    yield table_head(["method", "questions", *CAUSES])
    for label in ORDER:
        rows = [row for run in runs if run.label == label for row in open_run(run.folder).scored]
        if any(row.support.recall for row in rows):
            counts = Counter(find_cause(row, label) for row in rows)
            yield table_row(
                [f"`{label}`", str(len(rows)), *(str(counts[cause]) for cause in CAUSES)]
            )


def grid_tables(runs: Sequence[Shown]) -> Iterator[str]:
    """Return the table of methods and retrievers: EM, F1, support recall and tokens per dataset."""
    methods = [
        label
        for label in ORDER
        if any(run.label == label and run.retriever != "bm25" for run in runs)
    ]
    for dataset, name in DATASETS.items():
        yield f"### {name}{mark_golds([run for run in runs if run.dataset == dataset])}\n"
        yield table_head(["method", "retriever", "EM", "F1", "support recall", "calls", "tokens"])
        by = {(run.label, run.retriever): run for run in runs if run.dataset == dataset}
        for label in methods:
            for retriever, retriever_name in RETRIEVERS.items():
                run = by.get((label, retriever))
                missing = [f"`{label}`", retriever_name, "not run", *["–"] * 4]
                yield table_row(run.cells(GRID_COLUMNS) if run else missing)
        yield ""


def draw_scores(runs: Sequence[Shown]) -> str:
    """Return F1 with its interval by method as an SVG image, one panel per dataset."""
    environment = Environment(trim_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(PLOT.read_text(encoding="utf-8"))
    return template.render(
        labels=[label for label in ORDER if any(run.label == label for run in runs)],
        datasets=DATASETS,
        scores={(run.label, run.dataset): run.finished.metrics.score("f1") for run in runs},
        references=("no_context", REFERENCE, "golden"),
    )


def results_tables(runs: Sequence[Shown]) -> Iterator[str]:
    """Return the tables of docs/RESULTS.md."""
    for dataset, name in DATASETS.items():
        here = sort_runs(runs, dataset)
        if not here:
            continue
        yield f"### {name}{mark_golds(here)}\n"
        yield table_head(COLUMNS)
        yield from (table_row(run.cells(COLUMNS)) for run in here)
        yield ""
        yield COMPARISON_HEAD
        yield from compare_with_reference(here)
        yield ""
    everywhere = [run for dataset in DATASETS for run in sort_runs(runs, dataset)]
    yield "### All together\n"
    yield COMPARISON_HEAD
    yield from compare_with_reference(everywhere)
    yield ""
    yield table_head(["F1", "published in", *DATASETS.values(), "all"])
    yield from compare_signs(runs)
    yield ""
    yield from locate_answers([run for run in everywhere if run.label == "trace"])
    yield ""
    yield from compare_variants(everywhere)
    yield ""
    yield from explain_answers(everywhere)
    yield ""
    yield from find_signs(everywhere)
    yield ""
    yield from score_citations(everywhere)


def main() -> None:
    """Print the tables of the finished runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "places", nargs="+", type=Path, metavar="RUN", help="a run's folder, or a sweep's"
    )
    parser.add_argument("--grid", action="store_true", help="print the tables of docs/GRID.md")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a plot of F1 as SVG")
    options = parser.parse_args()
    try:
        runs = [Shown.of(folder) for folder in dict.fromkeys(find_runs(options.places))]
        if options.grid:
            print("\n".join(grid_tables(runs)))
            return
        runs = [run for run in runs if run.retriever == "bm25" or run.retriever not in RETRIEVERS]
        print("\n".join(results_tables(runs)))
        if options.plot:
            options.plot.write_text(draw_scores(runs), encoding="utf-8")
    except KgqaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
