"""Three methods on the same few questions, for a first look: asked here, or replayed from calls that ship with kgqa."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from kgqa.artefacts.manifest import Identity
from kgqa.artefacts.recording import CALLS, RENEW, Recording
from kgqa.artefacts.trace import TracedQuestion, read_trace
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.config.overrides import merged, override_key, spelt
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.executing import execute_unless_finished
from kgqa.experiment.run.replaying import Replaying
from kgqa.experiment.session.engines import Pool, pool_key, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.runtime.cache import CallCache
from kgqa.runtime.cache_exchange import import_calls
from kgqa.runtime.display import Display
from kgqa.scoring.questions import ScoredQuestion, score_question
from kgqa.scoring.wording import contains_gold
from kgqa.types import Json

BESIDE = ("no_context", "all_documents")  # what TRACE is compared with
CHOSEN = ("method", "experiment", "dry_run", "name", "out")  # by the demo itself
OF_TRACE = ("method", "kg", "ranker", "demonstrations_ranker")  # groups that the others do not have, or not so


@dataclass(frozen=True)
class Shown:
    """What a method made of the questions. Seconds are its model's: those that a call took when it was made."""

    method: str
    questions: tuple[TracedQuestion, ...]  # in the file's order
    scored: tuple[ScoredQuestion, ...]
    seconds: float  # for the questions
    triple_seconds: float  # before them, for the triples of their passages
    folder: Path | None = None  # None: replayed, and nothing written
    failure: str | None = None

    @property
    def em(self) -> float:
        """In percent."""
        return 100 * sum(scored.em for scored in self.scored) / len(self.scored)

    @property
    def f1(self) -> float:
        """In percent."""
        return 100 * sum(scored.f1 for scored in self.scored) / len(self.scored)


def shown_experiments(overrides: Sequence[str] = ()) -> list[Experiment]:
    """What TRACE is compared with, then TRACE: same questions, same model.

    Raises:
        ConfigError: an override chooses what is the demo's own, or cannot be composed.
    """
    for override in overrides:
        if (key := override_key(override)) in CHOSEN:
            raise ConfigError(f"{override}: kgqa demo has its own {key}; with another: kgqa run {override} …")
    trace = Experiment.of(merged(["experiment=demo"], overrides))
    shared = [spelt("model", trace.name("model")), spelt("limit", trace.settings.limit)]
    theirs = [each for each in overrides if override_key(each).partition(".")[0] not in OF_TRACE]
    return [*(Experiment.of(merged([f"method={method}"], shared, theirs)) for method in BESIDE), trace]


def show_runs(experiments: Sequence[Experiment], display: Display) -> Iterator[Shown]:
    """Run them one after the other with the model loaded once; one that is finished is read from its folder.

    Raises:
        UsageError: before anything is asked, whatever would keep one of them from its end.
        EngineError: the model went away; what was answered is in the call cache.
    """
    with closing(Pool()) as pool:
        for experiment in experiments:
            with Session(experiment, pool) as session:
                check(session)
        for experiment in experiments:
            display.line(f"→ {experiment.name('method')}")
            with Session(experiment, pool) as session:
                executed = execute_unless_finished(session, display)
            traced = {each.question.id: each for each in read_trace(executed.folder)}
            cost = executed.metrics.cost
            extraction = cost.extraction_paid.seconds if cost.extraction_paid else 0.0
            told = _shown(experiment, traced, cost.method.seconds, extraction)
            yield replace(told, folder=executed.folder, failure=executed.failure)


def show_recorded() -> tuple[Recording, list[Shown]]:
    """The same from the calls that ship with kgqa: no model, no ranker, no network; nothing is left on disk.

    Raises:
        DataError: they are not the calls that this kgqa makes, or are damaged.
    """
    recording = Recording.read()
    with TemporaryDirectory(prefix="kgqa-") as folder, closing(Pool()) as pool:
        import_calls(Path(folder), CALLS)
        with closing(CallCache(Path(folder))) as calls:
            return recording, [_replayed(each, recording, pool, calls) for each in shown_experiments()]


@dataclass(frozen=True)
class _Recorded:
    """Stands where an engine or a ranker was: it says who that was, and can answer nothing."""

    said: Identity

    counts_freely: ClassVar[bool] = False

    def identity(self) -> Mapping[str, Json]:
        return self.said


def _replayed(experiment: Experiment, recording: Recording, pool: Pool, calls: CallCache) -> Shown:
    model, engine, *_ = role_nodes(experiment.config)[""]
    pool.shared(pool_key([model, engine]), lambda: _Recorded(recording.model))
    pool.shared(pool_key(experiment.config["ranker"]), lambda: _Recorded(recording.ranker))
    method = experiment.name("method")
    with Session(experiment, pool, calls) as session:
        replaying = Replaying(session, index=None)
        traced = {each.question.id: each for each in replaying.questions()}
    answers = {key: each.prediction.answer for key, each in traced.items()}
    if replaying.missing or answers != recording.answers.get(method):
        cause = f"{replaying.missing:,} calls of {method} are not in it" if replaying.missing else "other answers"
        raise DataError(f"{CALLS}: not what this kgqa and this conf/ ask ({cause}); {RENEW}")
    return _shown(experiment, traced, replaying.seconds, replaying.triple_seconds)


def _shown(experiment: Experiment, traced: Mapping[str, TracedQuestion], seconds: float, triples: float) -> Shown:
    asked = [(question, traced[question.id]) for question in experiment.questions]
    scored = tuple(score_question(question, each.prediction, experiment.profile) for question, each in asked)
    return Shown(experiment.name("method"), tuple(each for _, each in asked), scored, seconds, triples)


def leading_chain(traced: TracedQuestion) -> list[tuple[str, str, str]]:
    """The triples of the likeliest chain that was read and holds the answer; of the likeliest with any, if none does.

    Empty for a method without chains, or where all are empty.
    """
    chains = [chain["triples"] for chain in traced.notes.get("chains", ()) if chain["triples"]]
    answer = traced.prediction.answer or ""
    holding = (chain for chain in chains if contains_gold(" ".join(_words(chain)), [answer]))
    chain = next(holding, chains[0] if chains else [])
    return [(head, relation, tail) for head, relation, tail, _ in chain]


def _words(chain: Sequence[Sequence[str]]) -> Iterator[str]:
    """All that its triples say, without the passages they are from."""
    return (part for *parts, _ in chain for part in parts)
