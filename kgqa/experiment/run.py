"""Run one experiment: check, prepare, answer, score, judge, report.

A session is opened once for all of it, the data is read once, and each question is scored once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from kgqa.artifacts.evaluation import read_judged_metrics
from kgqa.artifacts.manifest import check_hash
from kgqa.artifacts.metrics import METRICS as METRICS_FILE
from kgqa.artifacts.metrics import UNDEFINED, JudgeMetrics, Metrics, Retrieval, Throughput
from kgqa.artifacts.predictions import Prediction, question_ids
from kgqa.artifacts.run import IDENTITY, SCRIPTED, FinishedRun, Setting
from kgqa.artifacts.schema import Artifact, Count, Number, explain, extend, read_json, validate
from kgqa.artifacts.sweep import warn_of_changing
from kgqa.artifacts.trace import TRACE, Notes, TracedQuestion
from kgqa.artifacts.verdicts import VERDICTS
from kgqa.calls import Neighbours, Search, Triples
from kgqa.config.files import flatten
from kgqa.config.keys import find_sources
from kgqa.config.overrides import format_value
from kgqa.config.settings import list_reported_settings
from kgqa.config.targets import load_run_config
from kgqa.errors import DataError, UsageError
from kgqa.experiment.check import check, note_unreached_limit, refuse_trained
from kgqa.experiment.engines import reader_preset
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.failures import report_failure
from kgqa.experiment.identity import note_moved_server, refuse_to_replace
from kgqa.experiment.manifest import code_hash, manifest
from kgqa.experiment.prepare import prepare
from kgqa.experiment.prepare.indexes import measure_retriever
from kgqa.experiment.session import Inputs, Runner, Session
from kgqa.identity.component import identity_of
from kgqa.kg.graph import GraphSize, ReadChains, chain_statistics
from kgqa.protocols import Engine, Method
from kgqa.retrieval.search import PoolIndex
from kgqa.runtime.costs import Ledger, Spent, model_seconds
from kgqa.runtime.display import Display
from kgqa.runtime.folder import RunFolder, run_name, trace_question
from kgqa.runtime.monitor import monitor_work
from kgqa.runtime.scheduler import CallRecord
from kgqa.scoring.questions import (
    METRICS,
    ScoredQuestion,
    collect_shares,
    prediction_lines,
    score_questions,
)
from kgqa.scoring.retrieval import (
    RetrievedPassages,
    gold_pages,
    gold_passages,
    gold_ranks,
    summarise_retrieval,
)
from kgqa.scoring.summary import summarise
from kgqa.types import Answer, Completion, Question, Triple
from kgqa.util.fs import jsonl_text
from kgqa.util.jsonio import decode_stored
from kgqa.util.redaction import function_line
from kgqa.util.registry import load_registered
from kgqa.util.settings import name_of

REPORTS = ("md", "html")  # that a run writes
Record = Callable[[Question, Prediction, Iterable[CallRecord]], None]
# groups whose settings a report shows, in this order
SHOWN = (
    "method", "kg", "retriever", "ranker", "demonstrations_ranker", "reranker", "engine", "model", "dataset",
    "collection",
)  # fmt: skip


@dataclass(frozen=True)
class Executed:
    run: FinishedRun
    # in one line, if more failed than `max_failure_rate` allows, or the judge gave no verdict
    failure: str | None = None
    was_finished: bool = False
    # the judge whose verdicts this run replaced
    replaced_judge: JudgeMetrics | None = None

    @property
    def judge_warning(self) -> str:
        """Return a line if the verdicts of another judge were replaced, or ""."""
        if self.replaced_judge is None or self.run.metrics.judge is None:
            return ""
        old, new = self.replaced_judge, self.run.metrics.judge
        place = f"in {self.run.folder}, also for sweeps with this run"
        if old.judge == new.judge:
            return (
                f"warning: judge={new.judge} has other code, prompts, settings or models than before. Its verdicts "
                f"replace those before {place}. To keep both, set another output_dir= of the run"
            )
        return (
            f"warning: the verdicts of judge={new.judge} replace those of judge={old.judge} {place}. "
            f"The same command with judge={old.judge} brings these back from stored replies"
        )


def execute(session: Session, display: Display) -> Executed:
    """Check and make a run, or return it if its folder has it complete.

    Failed questions are tried again. Missing files are written again. A run that was killed continues with the replies
    in the call cache.

    Raises:
        UsageError: the folder belongs to another run, or something is missing.
        EngineDied: all replies so far are in the call cache.
    """
    started, experiment = time.monotonic(), session.experiment
    if finished := find_finished_run(session):
        display.line(f"{finished.folder}: already complete")
        note = note_unreached_limit(experiment.settings, finished.metrics.questions)
        if note is not None:
            display.line(note)
        return Executed(finished, was_finished=True)
    leaks = check(session, servers=True)
    for warning in warn_of_changing(session.folder, experiment.data.ids):
        display.line(warning, alarm=True)
    if note := note_moved_server(experiment, session.identity, session.folder):
        session.say_once(note)
    with (
        closing(RunFolder(session.folder, session.identity)) as folder,
        monitor_work(display, "run", folder.path, identity=run_name(session.identity)) as display,
        _keep_folder_if_paid(session, folder),
        ExitStack() as prepared,
    ):
        # another process can have answered more since the folder was chosen
        refuse_to_replace(experiment, folder.path)
        earlier, lost = _read_metrics(folder.path), None
        inputs = prepared.enter_context(prepare(session, display))
        with session.runner(inputs) as runner:
            answers = answer_questions(runner, folder.record, display)
        scored = score_questions(experiment.data.questions, answers.predictions, experiment.profile)
        metrics = measure(session, answers, scored, inputs)
        metrics = metrics.replace(
            seconds=round(time.monotonic() - started, 1), trained_questions=leaks or None
        )
        settings, origin = tuple(_used_settings(experiment)), manifest(session, inputs.index)
        run = FinishedRun(
            folder.path, experiment.choices, settings, origin, metrics, collect_shares(scored)
        )
        run = folder.finish(prediction_lines(scored, metrics), experiment.config, run)
        if earlier and earlier.judge and earlier.predictions == run.metrics.predictions:
            # a command without judge keeps the verdicts on the same answers, if there are any
            if earlier.judge.has_verdicts:
                run = folder.write_metrics(run, run.metrics.replace(judge=earlier.judge))
            else:
                folder.remove(VERDICTS)
        try:
            if experiment.judge:
                # the models make room for the judge's
                prepared.close()
                session.end_models()
                run, lost = _judge(session, folder, run, scored, display)
        finally:
            # also if the judge failed
            _report(run, scored)
    if experiment.config.get("tracker") is not None:
        load_registered("track_run")(experiment, run.folder, run.metrics, display)
    before, now = earlier and earlier.judge, run.metrics.judge
    return Executed(
        run,
        _explain_failures(experiment, metrics, answers.errors) or lost,
        replaced_judge=before if before and now and before.identity != now.identity else None,
    )


@contextmanager
def _keep_folder_if_paid(session: Session, folder: RunFolder) -> Iterator[None]:
    """Mark the folder as worthless if an error ends the block before any call was paid."""
    try:
        yield
    except BaseException:
        folder.is_worthless = session.spent == Spent()
        raise


def _read_metrics(folder: Path) -> Metrics | None:
    """Return the metrics of an earlier run of a folder, or None if there are none that can be read."""
    try:
        return read_judged_metrics(folder)
    except DataError:
        return None


def _report(run: FinishedRun, scored: Sequence[ScoredQuestion]) -> None:
    """Write the reports of a run."""
    # imported after the last question, so that the first call is made early
    from kgqa.report.exports import write_report

    for form in REPORTS:
        write_report(run, form, scored=scored)


def _judge(
    session: Session,
    folder: RunFolder,
    run: FinishedRun,
    scored: Sequence[ScoredQuestion],
    display: Display,
) -> tuple[FinishedRun, str | None]:
    """Judge the answers, write the verdicts and the metrics.

    Return the run, and why it has no verdicts.
    """
    from kgqa.experiment.judging import explain_lost_verdicts, judge_answers

    judged = judge_answers(
        session, scored, display, reader_preset(session.experiment.config), folder.path
    )
    folder.write(VERDICTS, jsonl_text(line.json() for line in judged.lines))
    imported = len(session.cache.imported) or None
    run = folder.write_metrics(run, run.metrics.replace(judge=judged.metrics, imported=imported))
    return run, explain_lost_verdicts(judged.metrics, judged.lines)


def _explain_failures(
    experiment: Experiment, metrics: Metrics, errors: Sequence[str]
) -> str | None:
    """Return in one line that more questions failed than the run allows, or None."""
    limit = experiment.settings.max_failure_rate
    if metrics.failed <= limit * metrics.questions:
        return None
    count = f"{metrics.failed} of {metrics.questions} questions failed"
    beyond = f"above max_failure_rate={limit:g}, so the scores are not valid"
    return f"{count}, {beyond}: {errors[0]}"


def find_finished_run(session: Session) -> FinishedRun | None:
    """Return the run if its folder has it for this code, data and settings, without failed questions.

    The data file is only hashed, unless something in use was trained.

    Raises ConfigError if something was trained on the questions, and the user does not allow it.
    """
    experiment = session.experiment
    # something can have been trained on its questions since
    leaks = refuse_trained(experiment)
    folder = session.folder
    try:
        run, identity = FinishedRun.read(folder), read_json(folder / IDENTITY)
        check_hash(folder, TRACE)
        settings, answered = (
            list_reported_settings(load_run_config(folder)),
            len(question_ids(folder)),
        )
        files = ((TRACE,), (METRICS_FILE,), tuple(f"report.{form}" for form in REPORTS))
        times = [[(folder / name).stat().st_mtime_ns for name in names] for names in files]
    except (KeyError, UsageError, OSError):
        # not started, killed before its end, or damaged
        return None
    metrics, wanted = run.metrics, list_reported_settings(experiment.config)
    if experiment.judge is None:  # an earlier judge's verdicts stay
        settings.pop("judge", None)
        wanted.pop("judge", None)
    finished = (
        identity == json.loads(json.dumps(session.identity))
        and run.manifest.code == code_hash(experiment.config)
        and settings == wanted
        and metrics.questions == answered == run.manifest.dataset.questions
        and not metrics.failed
        # passages without triples are tried again
        and not (metrics.graph or {}).get("failed")
        # the index can be complete now
        and not (metrics.retriever or {}).get("failed")
        and not metrics.failed_metrics
        and metrics.predictions is not None
        and _is_judged(session, metrics)
        and max(times[0]) <= times[1][0] <= min(times[2])
        and (metrics.trained_questions or {}) == leaks
    )
    return run if finished else None


def _is_judged(session: Session, metrics: Metrics) -> bool:
    """Return whether this judge, with its present models and prompts, has a verdict on every answer.

    Without a judge: whether the run has no judge that gave no verdict at all.
    """
    judged = metrics.judge
    if session.experiment.judge is None:
        return judged is None or judged.has_verdicts
    from kgqa.experiment.judging import identify_judge

    return judged is not None and not judged.unscored and judged.identity == identify_judge(session)


def _used_settings(experiment: Experiment) -> Iterator[Setting]:
    """Yield the settings that the run uses, as on a command line, with their sources."""
    config, sources = experiment.config, find_sources(experiment.config)
    used = flatten({group: config[group] for group in SHOWN if group in experiment.choices})
    for key, value in (used | {"max_failure_rate": config["max_failure_rate"]}).items():
        if not key.endswith("._target_"):
            yield (
                key,
                format_value(value),
                sources.get(key, sources.get(key.rpartition(".")[0], "")),
            )


@dataclass(frozen=True)
class Answers:
    """The predictions of all questions, with their cost. Dictionaries are by question."""

    # without notes, which the trace holds
    predictions: Mapping[str, Prediction]
    ledger: Ledger
    throughput: Throughput
    # of each question, as if no reply had been cached
    model_seconds: Sequence[float]
    # the number of triples of each chain, if the method notes chains
    chains: Mapping[str, tuple[int, ...]]
    # of the failed questions, with their ids
    errors: Sequence[str]
    # of the triples of each question
    graphs: Sequence[GraphSize]


def _estimates_tokens(engine: Engine) -> bool:
    """Return whether an engine's counts of tokens are estimates. Those of engine=scripted are exact."""
    return engine.estimates_tokens and name_of(identity_of(engine)) != SCRIPTED


def answer_questions(runner: Runner, record: Record, display: Display) -> Answers:
    """Run the method on every question. `record` receives finished questions, in the order in which they finish."""
    experiment = runner.experiment
    questions = {question.id: question for question in experiment.data.questions}
    programs = (
        (question.id, experiment.method.answer(question)) for question in experiment.data.questions
    )
    predictions, chains = dict[str, Prediction](), dict[str, tuple[int, ...]]()
    seconds, errors, kinds, graphs = list[float](), list[str](), set[str](), list[GraphSize]()
    warnings = list[str]()
    # a hosted model with an unknown tokenizer
    estimated = experiment.asks_models and _estimates_tokens(runner.engines("reader"))
    with display.stage("questions", len(questions), runner.ledger) as stage:
        for ended in runner.run(programs):
            question, outcome = questions[ended.key], _check_answer(experiment.method, ended.result)
            if isinstance(outcome, Answer):
                outcome = without_tokens(outcome) if estimated else outcome
                titles = _find_titles(question, ended.records)
                named = tuple(titles.get(passage, "") for passage in outcome.evidence)
                outcome = replace(outcome, evidence_titles=named)
                if warning := explain_unknown_evidence(experiment.method, outcome, titles):
                    warnings.append(warning)
            prediction = Prediction.of(question, outcome)
            if isinstance(outcome, Exception):
                errors.append(f"{ended.key}: {prediction.error}")
                report_failure("question failed", outcome, errors[-1], kinds, display)
            if "chains" in prediction.notes:
                chains[ended.key] = tuple(
                    len(chain["triples"]) for chain in prediction.notes["chains"]
                )
            predictions[ended.key] = replace(prediction, notes={})
            seconds.append(model_seconds(ended.records))
            graphs.append(GraphSize.of(_find_triples(ended.records)))
            record(question, prediction, ended.records)
            stage.finish(failed=isinstance(outcome, Exception))
    if warnings:
        display.line(warnings[0], alarm=True)
    return Answers(predictions, runner.ledger, runner.throughput(), seconds, chains, errors, graphs)


def answer_unscored(session: Session, display: Display) -> list[TracedQuestion]:
    """Return each question of the experiment with its calls, in the order in which they finished.

    A failed question has an error instead of an answer.
    """
    traced = list[TracedQuestion]()
    with prepare(session, display) as inputs, session.runner(inputs) as runner:
        answer_questions(runner, lambda *ended: traced.append(trace_question(*ended)), display)
    return traced


def _check_answer(method: Method, result: object) -> Answer | Exception:
    """Return the result of a method, or an error if it is no Answer that the run's files can have."""
    if isinstance(result, Exception):
        return result
    line = function_line(method.answer)
    if not (isinstance(result, Answer) and isinstance(result.text, str)):
        got, remedy = type(result).__name__, ""
        if isinstance(result, Answer):
            got = f"Answer(text={result.text!r:.40})"
            remedy = ". Use the text of the reply: reply.text" * isinstance(result.text, Completion)
        return TypeError(f"{line}: answer must return Answer(text: str, …), not {got}{remedy}")
    try:
        validate(
            _AnswerFields, {name: getattr(result, name) for name in _AnswerFields.model_fields}
        )
        notes = decode_stored(json.dumps(result.notes))
    except ValidationError as error:
        return TypeError(f"{line}: the Answer has a wrong value: {explain(error)}")
    except (TypeError, ValueError, RecursionError) as error:
        return TypeError(f"{line}: the notes of the Answer are no JSON: {error}")
    try:
        # scores and `kgqa show` read these
        validate(Notes, notes)
    except ValidationError as error:
        return TypeError(f"{line}: the notes of the Answer have a wrong value: {explain(error)}")
    return result


class _AnswerFields(Artifact):
    """The fields of an Answer without text and notes."""

    evidence: tuple[str, ...]
    context_tokens: Count | None
    flags: Mapping[str, Count]
    figures: Mapping[str, Number]


def without_tokens(answer: Answer) -> Answer:
    """Remove token counts that are only estimates. They serve for cutting, not for reporting."""
    figures = {
        name: value for name, value in answer.figures.items() if not name.endswith("_tokens")
    }
    return replace(answer, context_tokens=None, figures=figures)


def _find_titles(question: Question, records: Iterable[CallRecord]) -> dict[str, str]:
    """Return the titles of the passages that the question saw, by id."""
    titles = {passage.id: passage.title for passage in (*question.passages, *question.pinned)}
    for record in records:
        if isinstance(record.call, Search | Neighbours) and not isinstance(record.reply, Exception):
            titles |= {passage.id: passage.title for passage in record.reply}
    return titles


def explain_unknown_evidence(
    method: Method, answer: Answer, titles: Mapping[str, str]
) -> str | None:
    """Return a warning if a user's method names only passages that its question did not see, such as titles."""
    is_built_in = type(method).__module__.startswith("kgqa.")
    if is_built_in or not answer.evidence or not titles.keys().isdisjoint(answer.evidence):
        return None
    return (
        f"warning: {function_line(method.answer)}: {answer.evidence[0]!r:.80} is no id of a passage. "
        "Write passage.id"
    )


def _find_triples(records: Iterable[CallRecord]) -> Iterator[Triple]:
    """Yield the triples that the question got."""
    for record in records:
        if isinstance(record.call, Triples) and not isinstance(record.reply, Exception):
            yield from record.reply


def measure(
    session: Session, answers: Answers, scored: Sequence[ScoredQuestion], inputs: Inputs
) -> Metrics:
    """Return what `metrics.json` contains of the answers."""
    experiment, ledger, index = session.experiment, answers.ledger, inputs.index
    questions = experiment.data.questions
    summary = summarise(scored).replace(missing_golds=experiment.data.missing_golds or None)
    retrieves = experiment.searches or "reranker" in experiment.method.uses
    if not experiment.has_answers:
        measured = ("question", "passages") if retrieves else ("question",)
        scores = {
            name: score if METRICS[name].of in measured else UNDEFINED
            for name, score in summary.scores.items()
        }
        summary = summary.replace(
            wording=None,
            found_and_right=None,
            answerless=0,
            scores=scores,
            failed_metrics=None,
            by_hops={},
            by_type={},
            profiles={},
        )
    retrieval = seconds = None
    if retrieves and summary.failed < len(scored):
        retrieval = _measure_retrieval(scored, ledger, index)
    if experiment.asks_models:
        import numpy as np

        half, most = np.quantile(answers.model_seconds, (0.5, 0.95))
        seconds = {"p50": round(float(half), 3), "p95": round(float(most), 3)}
    chains = [
        ReadChains(
            row.question.support, row.prediction.evidence or (), answers.chains.get(row.id, ())
        )
        for row in scored
        if row.prediction.error is None
    ]
    graph = None
    if inputs.triples:
        from kgqa.experiment.prepare.triples import describe_triples

        graph = describe_triples(inputs.triples, answers.graphs, questions)
    extraction = inputs.extraction.costs(len(questions))
    return extend(
        Metrics,
        summary,
        cost=ledger.costs(summary.answered_questions).replace(
            extraction=extraction.method, extraction_paid=extraction.paid
        ),
        throughput=answers.throughput,
        calls=dict(ledger.answered),
        cache_hits=dict(ledger.hits),
        question_seconds=seconds,
        call_seconds={kind: round(seconds, 6) for kind, seconds in sorted(ledger.seconds.items())},
        retrieval=retrieval,
        chains=chain_statistics(chains) if answers.chains else None,
        graph=graph,
        passage_graph=inputs.graphs.statistics(questions) if inputs.graphs else None,
        retriever=measure_retriever(session, index),
        imported=len(session.cache.imported) or None,
    )


def _measure_retrieval(
    scored: Sequence[ScoredQuestion], ledger: Ledger, index: PoolIndex | None
) -> Retrieval:
    """Measure the passages of the questions that did not fail: a failure of the engine is no miss of the retriever."""
    retrieved = []
    for row in scored:
        if row.prediction.error is not None:
            continue
        evidence, titles = row.prediction.evidence or (), row.prediction.evidence_titles
        gold = gold_passages(row.question, index.find_titled if index else lambda _: ())
        ranks = gold_ranks(gold, evidence, titles), gold_ranks(gold_pages(gold), evidence, titles)
        leaf_ranks = None
        if index and (leaves := index.find_leaves(evidence)) is not None:
            passages = [
                *zip(evidence, titles, strict=True),
                *((leaf.id, leaf.title) for leaf in leaves),
            ]
            leaf_ranks = (
                gold_ranks(gold, *zip(*passages, strict=True)) if passages else (None,) * len(gold)
            )
        has_entities = index.has_entities(row.question.text) if index else None
        kind = row.question.hops, row.question.type
        retrieved.append(RetrievedPassages(evidence, *ranks, *kind, leaf_ranks, has_entities))
    # the passages of several searches have no order of relevance
    ranked = ledger.answered[Search.__name__] <= len(scored)
    return summarise_retrieval(retrieved, ranked=ranked)
