"""Run three methods on the same few questions as a demo, or replay them from calls that ship with kgqa."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kgqa.artifacts.trace import TracedQuestion, read_trace
from kgqa.cache.maintenance import import_calls
from kgqa.cache.stored import ReplayCache
from kgqa.config.overrides import format_override, merge_overrides, override_key
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.check import check
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.engines import Pool
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.replay import Recorded, replay_questions
from kgqa.experiment.run import execute
from kgqa.experiment.session import Session
from kgqa.extras.demo.recording import CALLS, RENEW, Recording
from kgqa.runtime.display import Display
from kgqa.scoring.questions import ScoredQuestion, score_question

# the methods that TRACE is compared with
BASELINES = ("no_context", "all_documents")
CHOSEN = ("method", "experiment", "dry_run", "run_name", "output_dir")  # keys that the demo sets
# groups that the other methods do not use
OF_TRACE = ("method", "kg", "ranker", "demonstrations_ranker")


@dataclass(frozen=True)
class DemoResult:
    """The result of one method, in the order of the file. Seconds are those of its calls when they were made."""

    method: str
    questions: list[TracedQuestion]
    scored: list[ScoredQuestion]
    seconds: float  # of the calls for questions
    # of the calls for triples, before them
    triple_seconds: float
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

    Raises ConfigError if an override sets a key of the demo, or is invalid.
    """
    for override in overrides:
        if (key := override_key(override)) in CHOSEN:
            raise ConfigError(f"{override}: kgqa demo sets {key} itself. Use kgqa run {override} …")
    trace = compose_experiment(merge_overrides(["experiment=demo"], overrides))
    shared = [
        format_override("model", trace.config["model"]["name"]),
        format_override("limit", trace.settings.limit),
    ]
    others = [each for each in overrides if override_key(each).partition(".")[0] not in OF_TRACE]
    return [
        *(
            compose_experiment(merge_overrides([f"method={method}"], shared, others))
            for method in BASELINES
        ),
        trace,
    ]


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
                executed = execute(session, display)
            traced = {each.question.id: each for each in read_trace(executed.run.folder)}
            questions = [traced[key] for key in experiment.data.ids]
            scored, cost = _score(experiment, questions), executed.run.metrics.cost
            seconds, triples = (
                cost.method.seconds,
                cost.extraction_paid.seconds if cost.extraction_paid else 0.0,
            )
            name = experiment.name("method")
            yield DemoResult(
                name, questions, scored, seconds, triples, executed.run.folder, executed.failure
            )


def replay_demo() -> tuple[Recording, list[DemoResult]]:
    """Replay the demo from the calls that ship with kgqa, without a model, a ranker, a network or files.

    Raises DataError if this version of kgqa makes other calls, or the file is damaged.
    """
    recording = Recording.read()
    with TemporaryDirectory(prefix="kgqa-") as folder:
        import_calls(Path(folder), CALLS)
        return recording, [
            _replay(experiment, recording, Path(folder)) for experiment in demo_experiments()
        ]


def _replay(experiment: Experiment, recording: Recording, folder: Path) -> DemoResult:
    pool, binding = Pool(), experiment.role_nodes[""]
    pool.shared([binding.model, binding.engine], lambda: Recorded(recording.model))
    pool.shared(experiment.config["ranker"], lambda: Recorded(recording.ranker))
    with closing(ReplayCache(folder)) as calls, Session(experiment, pool, calls) as session:
        questions, seconds, triple_seconds = replay_questions(session, None)
    method = experiment.name("method")
    answers = {each.question.id: each.prediction.answer for each in questions}
    if calls.missing or answers != recording.answers.get(method):
        cause = (
            f"{calls.missing:,} calls of {method} are missing"
            if calls.missing
            else "answers differ"
        )
        raise DataError(
            f"{CALLS}: does not match this version of kgqa and conf/ ({cause}). {RENEW}"
        )
    return DemoResult(method, questions, _score(experiment, questions), seconds, triple_seconds)


def _score(experiment: Experiment, questions: Sequence[TracedQuestion]) -> list[ScoredQuestion]:
    return [
        score_question(each.question, each.prediction, experiment.profile) for each in questions
    ]
