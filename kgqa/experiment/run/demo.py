"""Run three methods on the same few questions as a demo, or replay them from calls that ship with kgqa."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from kgqa.artifacts.manifest import Identity
from kgqa.artifacts.recording import CALLS, RENEW, Recording
from kgqa.artifacts.trace import TracedQuestion, read_trace
from kgqa.cache.store import CallCache
from kgqa.cache.transfer import import_calls
from kgqa.config.overrides import format_override, merge_overrides, override_key
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.executing import execute_unless_finished
from kgqa.experiment.run.replaying import Replaying
from kgqa.experiment.session.engines import Pool, pool_key, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.runtime.display import Display
from kgqa.scoring.answer_style import contains_gold
from kgqa.scoring.questions import ScoredQuestion, score_question
from kgqa.types import Json

BESIDE = ("no_context", "all_documents")  # the methods that TRACE is compared with
CHOSEN = ("method", "experiment", "dry_run", "name", "out")  # keys that the demo sets
OF_TRACE = ("method", "kg", "ranker", "demonstrations_ranker")  # groups that the other methods do not use


@dataclass(frozen=True)
class DemoResult:
    """The result of one method. Seconds are those of its calls when they were made."""

    method: str
    questions: tuple[TracedQuestion, ...]  # in the order of the file
    scored: tuple[ScoredQuestion, ...]
    seconds: float  # of the calls for questions
    triple_seconds: float  # of the calls for triples, before them
    folder: Path | None = None  # None: replayed without files
    failure: str | None = None

    @property
    def em(self) -> float:
        """Return the mean exact match in percent."""
        return 100 * sum(scored.em for scored in self.scored) / len(self.scored)

    @property
    def f1(self) -> float:
        """Return the mean F1 in percent."""
        return 100 * sum(scored.f1 for scored in self.scored) / len(self.scored)


def demo_experiments(overrides: Sequence[str] = ()) -> list[Experiment]:
    """Compose the experiments of the other methods, then of TRACE, with the same questions and model.

    Raises:
        ConfigError: an override sets a key of the demo, or is invalid.
    """
    for override in overrides:
        if (key := override_key(override)) in CHOSEN:
            raise ConfigError(f"{override}: kgqa demo sets {key} itself; use kgqa run {override} …")
    trace = Experiment.of(merge_overrides(["experiment=demo"], overrides))
    shared = [format_override("model", trace.name("model")), format_override("limit", trace.settings.limit)]
    others = [each for each in overrides if override_key(each).partition(".")[0] not in OF_TRACE]
    return [*(Experiment.of(merge_overrides([f"method={method}"], shared, others)) for method in BESIDE), trace]


def run_demo(experiments: Sequence[Experiment], display: Display) -> Iterator[DemoResult]:
    """Run the experiments one after the other with one loaded model. Finished runs are read from their folders.

    Raises:
        UsageError: a key or file of one of them is invalid. This is checked before the first call.
        EngineError: the model failed. The replies so far are in the call cache.
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
            result = _score(experiment, traced, cost.method.seconds, extraction)
            yield replace(result, folder=executed.folder, failure=executed.failure)


def replay_demo() -> tuple[Recording, list[DemoResult]]:
    """Replay the demo from the calls that ship with kgqa, without a model, a ranker, a network or files.

    Raises:
        DataError: this version of kgqa makes other calls, or the file is damaged.
    """
    recording = Recording.read()
    with TemporaryDirectory(prefix="kgqa-") as folder, closing(Pool()) as pool:
        import_calls(Path(folder), CALLS)
        with closing(CallCache(Path(folder))) as calls:
            return recording, [_replay(each, recording, pool, calls) for each in demo_experiments()]


@dataclass(frozen=True)
class _Recorded:
    """The identity of the engine or ranker of the recording. It cannot answer calls."""

    said: Identity

    counts_freely: ClassVar[bool] = False

    def identity(self) -> Mapping[str, Json]:
        return self.said


def _replay(experiment: Experiment, recording: Recording, pool: Pool, calls: CallCache) -> DemoResult:
    model, engine, *_ = role_nodes(experiment.config)[""]
    pool.shared(pool_key([model, engine]), lambda: _Recorded(recording.model))
    pool.shared(pool_key(experiment.config["ranker"]), lambda: _Recorded(recording.ranker))
    method = experiment.name("method")
    with Session(experiment, pool, calls) as session:
        replaying = Replaying(session, index=None)
        traced = {each.question.id: each for each in replaying.questions()}
    answers = {key: each.prediction.answer for key, each in traced.items()}
    if replaying.missing or answers != recording.answers.get(method):
        cause = f"{replaying.missing:,} calls of {method} are missing" if replaying.missing else "answers differ"
        raise DataError(f"{CALLS}: does not match this version of kgqa and conf/ ({cause}); {RENEW}")
    return _score(experiment, traced, replaying.seconds, replaying.triple_seconds)


def _score(experiment: Experiment, traced: Mapping[str, TracedQuestion], seconds: float, triples: float) -> DemoResult:
    asked = [(question, traced[question.id]) for question in experiment.questions]
    scored = tuple(score_question(question, each.prediction, experiment.profile) for question, each in asked)
    return DemoResult(experiment.name("method"), tuple(each for _, each in asked), scored, seconds, triples)


def leading_chain(traced: TracedQuestion) -> list[tuple[str, str, str]]:
    """Return the triples of the likeliest chain with the answer, or of the likeliest chain; [] without chains."""
    chains = [chain["triples"] for chain in traced.notes.get("chains", ()) if chain["triples"]]
    answer = traced.prediction.answer or ""
    holding = (chain for chain in chains if contains_gold(" ".join(_words(chain)), [answer]))
    chain = next(holding, chains[0] if chains else [])
    return [(head, relation, tail) for head, relation, tail, _ in chain]


def _words(chain: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the texts of the triples of a chain, without their passage ids."""
    return (part for *parts, _ in chain for part in parts)
