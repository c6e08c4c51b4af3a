"""Answer a question from a user's own documents, and quote the sentences that support the answer."""

from __future__ import annotations

import re
import textwrap
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from kgqa.artifacts.schema import Artifact
from kgqa.artifacts.trace import TracedQuestion
from kgqa.calls import Search
from kgqa.config import building as parts
from kgqa.config.overrides import format_override, override_group, override_key, override_values
from kgqa.datasets.in_memory import InMemoryDataset
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.check import check
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.engines import Pool
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.prepare.indexes import corpus_index
from kgqa.experiment.run import answer_unscored
from kgqa.experiment.session import Session
from kgqa.extras.documents.documents import KINDS, Documents
from kgqa.extras.documents.quotations import is_quoted, quote_steps
from kgqa.report.explorer import Quotation, question_page
from kgqa.report.questions import report_question
from kgqa.runtime.display import Display
from kgqa.types import Passage, Question
from kgqa.util.digests import digest
from kgqa.util.fs import replace_file
from kgqa.util.places import outputs
from kgqa.util.text import pluralize

# characters, about 5,000 tokens: the passages for a method that does not search by itself
ROOM = 20_000
# characters: a paragraph, as in TRACE; conf/dataset/folder.yaml has KGP's 250
PASSAGE_SIZE = 500
RUN_KEYS = (
    "collection", "judge", "tracker", "limit", "sample", "ids", "run_name", "dry_run", "scoring", "max_failure_rate",
)  # fmt: skip
DOCUMENT_KEYS = ("dataset.kinds", "dataset.passage_size", "dataset.family")
FOLDER = "asked"  # of the pages, in outputs/
# letters of the question in the name of its page
SLUG = 40
# characters of a passage in the list of passages
SHOWN = 60


class DocumentAnswer(Artifact):
    """The answer to a question about documents, as `kgqa ask --json` prints it."""

    question: str
    answer: str | None
    error: str | None
    # one of the quoted sentences contains the answer
    supported: bool
    steps: tuple[Quotation, ...]
    method: str
    model: str
    engine: str
    left_out: Mapping[str, str]  # the reason by unreadable file
    seconds: float
    page: str


def ask_documents(
    question: str,
    sources: Sequence[Path],
    overrides: Sequence[str],
    display: Display,
    passages: int | None = None,
) -> DocumentAnswer:
    """Answer a question from files and folders, and save the answer with its page.

    Args:
        passages: how many of the best passages are given to a method that does not search by itself. None: all, or the
            best ones with `ROOM` characters.

    Raises:
        UsageError: a key, a value or a file is wrong, no passage matches, or the page cannot be written.
        EngineError: a model failed, or more than 5 % of the passages have no triples.
    """
    started = time.monotonic()
    experiment = _compose(overrides)
    with closing(Pool()) as pool:
        asker = _Asker(experiment, _read_documents(experiment, sources, display), display, pool)
        with asker.session(question, asker.select(question, passages)) as session:
            (traced,) = answer_unscored(session, display)
        return asker.save(traced, time.monotonic() - started)


@dataclass(frozen=True)
class _Asker:
    experiment: Experiment
    documents: Documents
    display: Display
    pool: Pool

    def session(self, question: str, passages: tuple[Passage, ...]) -> Session:
        asked = InMemoryDataset((Question("asked", question, (), passages),), self.documents)
        return Session(replace(self.experiment, given=asked), self.pool)

    def select(self, question: str, count: int | None) -> tuple[Passage, ...]:
        """Return the passages that the question comes with: all, the best ones, or none if the method searches."""
        every, uses = tuple(self.documents.passages()), self.experiment.method.uses
        with self.session(question, every[:1]) as session:
            check(session)
        if uses & {"pool", "graph"}:
            return self.documents.collection
        best = every
        is_all = (
            sum(len(passage.text) for passage in every) <= ROOM
            if count is None
            else len(every) <= count
        )
        if "search" in uses or not is_all:
            with (
                self.session(question, ()) as session,
                corpus_index(session, self.display) as index,
            ):
                if "search" in uses:
                    return ()
                (best,) = index.search([Search(question, count or len(every))])
                best = best if count else _take(best, ROOM)
        if not best:
            raise DataError(
                f"{question!r}: none of its words occurs in the documents. Use words of the documents"
            )
        self.display.line(f"passages: {len(best)} of {len(every):,}")
        for passage in best:
            beginning = textwrap.shorten(passage.text, SHOWN, placeholder=" …")
            self.display.line(f"  {self.documents.where(passage) or passage.title}  {beginning}")
        return best

    def save(self, traced: TracedQuestion, seconds: float) -> DocumentAnswer:
        steps = quote_steps(traced, self.documents)
        supported = is_quoted(traced.prediction.answer or "", steps)
        out = self.experiment.settings.output_dir
        page = Path(out) if out else outputs() / FOLDER / f"{self._name(traced.question.text)}.html"
        replace_file(
            page, question_page(report_question(traced), self._facts(seconds), steps, supported)
        )
        return DocumentAnswer(
            question=traced.question.text,
            answer=traced.prediction.answer,
            error=traced.prediction.error,
            supported=supported,
            steps=steps,
            **{
                group: self.experiment.choices.get(group, "")
                for group in ("method", "model", "engine")
            },
            left_out={str(file): str(reason) for file, reason in self.documents.unreadable.items()},
            seconds=round(seconds, 1),
            page=str(page),
        )

    def _facts(self, seconds: float) -> list[tuple[str, str]]:
        choices, documents = self.experiment.choices, self.documents
        read = [str(file) for file in documents.files.values() if file not in documents.unreadable]
        return [
            *(
                (group, choices[group])
                for group in ("method", "model", "engine", "retriever")
                if choices.get(group)
            ),
            ("settings", " ".join(self.experiment.overrides)),
            ("documents", ", ".join(read)),
            *(("left out", str(reason)) for reason in documents.unreadable.values()),
            ("seconds", f"{seconds:.1f}"),
        ]

    def _name(self, question: str) -> str:
        """Return a name made of the question; the same question with the same settings replaces its page."""
        slug = "-".join(re.findall(r"[a-z0-9]+", question.lower()))[:SLUG].strip("-") or "question"
        return f"{slug}-{digest([question, list(self.experiment.overrides), self.documents.identity()], 8)}"


def _take(passages: Sequence[Passage], room: int) -> tuple[Passage, ...]:
    """Return the first passages with at most `room` characters together, at least one."""
    ends = list(accumulate(len(passage.text) for passage in passages))
    return tuple(passages[: max(1, bisect_right(ends, room))])


def _compose(overrides: Sequence[str]) -> Experiment:
    """Compose the experiment, with the defaults of `kgqa ask`."""
    for override in overrides:
        key = override_key(override)
        if override_group(override) in RUN_KEYS or (
            override_group(override) == "dataset" and key not in DOCUMENT_KEYS
        ):
            raise ConfigError(
                f"{override}: {key} is for runs over questions with gold answers. Remove it for kgqa ask"
            )
    named = override_values(overrides)
    defaults = [
        "dataset=folder",
        format_override("dataset.kinds", list(KINDS)),
        f"dataset.passage_size={PASSAGE_SIZE}",
    ]
    if named.get("method", "trace") == "trace" and "experiment" not in named:
        defaults.append("experiment=ask")  # answers within minutes
    # a file name is seldom the subject of its passages
    defaults.append("kg.head=any")
    experiment = compose_experiment([*defaults, *overrides])
    if not experiment.has_answers:
        raise ConfigError(
            f"method={experiment.name('method')} does not answer questions. Use another one, e.g. method=trace"
        )
    return experiment


def _read_documents(experiment: Experiment, sources: Sequence[Path], display: Display) -> Documents:
    dataset = experiment.config["dataset"]
    parts.dataset(dataset)  # check its keys
    documents = Documents(tuple(sources), tuple(dataset["kinds"]), dataset["passage_size"])
    for reason in documents.unreadable.values():
        display.line(f"skipped: {reason}", alarm=True)
    files = len(documents.files) - len(documents.unreadable)
    count = sum(1 for _ in documents.passages())
    display.line(f"documents: {pluralize(files, 'file')}, {pluralize(count, 'passage')} to search")
    return documents
