"""Run three methods on the same few questions as a demo, or replay them from calls that ship with kgqa."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
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
from kgqa.experiment.identity import hash_programs
from kgqa.experiment.replay import Recorded
from kgqa.experiment.run import execute
from kgqa.experiment.session import Session
from kgqa.extras.demo.recording import CALLS, RENEW, Recording
from kgqa.runtime.display import QUIET, Display
from kgqa.runtime.folder import run_name
from kgqa.scoring.questions import ScoredQuestion, score_question
from kgqa.types import Json
from kgqa.util.fs import sha256
from kgqa.util.places import outputs, own_prompt_folders

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
    folder: Path
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
                yield _run(session, display)


def _run(session: Session, display: Display) -> DemoResult:
    experiment, executed = session.experiment, execute(session, display)
    traced = {each.question.id: each for each in read_trace(executed.run.folder)}
    questions = [traced[key] for key in experiment.data.ids]
    scored = [
        score_question(each.question, each.prediction, experiment.profile) for each in questions
    ]
    cost = executed.run.metrics.cost
    return DemoResult(
        method=experiment.name("method"),
        questions=questions,
        scored=scored,
        seconds=cost.method.seconds,
        triple_seconds=cost.extraction.seconds if cost.extraction else 0.0,
        folder=executed.run.folder,
        failure=executed.failure,
    )


class _RecordedSession(Session):
    """A session whose model and ranker answered elsewhere. Its run is in a folder `recorded/`."""

    @cached_property
    def identity(self) -> dict[str, Json]:
        """Return what can change an answer. The weights, which can be missing here, are in the recording."""
        experiment = self.experiment
        return {
            **experiment.settings.identity(),
            "method": experiment.name("method"),
            "code": hash_programs(experiment),
            "recording": sha256(CALLS),
        }

    @cached_property
    def folder(self) -> Path:
        names = (self.experiment.name(group) for group in ("dataset", "method"))
        return outputs().joinpath(*names, "recorded", run_name(self.identity))


def replay_demo() -> tuple[Recording, list[DemoResult]]:
    """Replay the demo from the calls that ship with kgqa, without a model, a ranker or a network.

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
    with (
        closing(ReplayCache(folder)) as calls,
        _RecordedSession(experiment, pool, calls) as session,
    ):
        result = _run(session, QUIET)
    method = result.method
    answers = {each.question.id: each.prediction.answer for each in result.questions}
    if calls.missing or answers != recording.answers.get(method):
        cause = (
            f"{calls.missing:,} calls of {method} are missing"
            if calls.missing
            else "answers differ"
        )
        own = own_prompt_folders()[0]
        remedy = (
            f"Your own {own}/ has other prompts. Run it in another folder"
            if own.is_dir()
            else RENEW
        )
        raise DataError(
            f"{CALLS}: does not match this version of kgqa, conf/ and prompts/ ({cause}). {remedy}"
        )
    return result
