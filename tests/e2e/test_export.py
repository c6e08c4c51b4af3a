"""`kgqa report --format`: each form through the reader of those who would read it, and against the run's own figures.

Readers that are not installed are skipped by name. The schemas of Every Eval Ever are in its package, which wants
Python 3.12; only its files are used, so that the folder it was unpacked to on PYTHONPATH will do.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.metrics import Retrieval
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import read_trace
from kgqa.report.exports import trec_column
from kgqa.report.questions import call_rows, prediction_rows, write_jsonl
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.judged_runs import answered

KINDS = {"LLM", "RETRIEVER", "RERANKER", "CHAIN", "EVALUATOR"}  # of OpenInference, those a run has


def exported(kgqa: Kgqa, form: str, *run: str) -> Path:
    """The folder with a small run in this form."""
    assert kgqa("run", *run, "limit=4", *QUICK, "output_dir=one").code == 0
    ran = kgqa("report", "one", "--format", form, "--out", form)
    assert ran.code == 0, ran.err
    assert all(Path(line).exists() for line in ran.out.splitlines())
    return Path(form)


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def retrieval() -> Retrieval:
    found = FinishedRun.read(Path("one")).metrics.retrieval
    assert found is not None
    return found


def spans_of(request: Any) -> list[Any]:
    found: list[Any] = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return found


def attributes(span: Any) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def test_predictions_are_the_runs_and_calls_are_the_traces(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "jsonl", "method=trace")
    predictions, calls = lines(folder / "predictions.jsonl"), lines(folder / "traces.jsonl")
    run = FinishedRun.read(Path("one"))
    assert (predictions, calls) == (list(prediction_rows(run)), list(call_rows(run)))
    keys = ("question_id", "question", "gold", "answer", "error", "em", "f1")
    for row, prediction in zip(predictions, lines(Path("one/predictions.jsonl")), strict=True):
        assert {key: row[key] for key in keys} == {key: prediction[key] for key in keys}
        assert row["evidence"] == prediction["evidence"]
    mean = sum(row["f1"] for row in predictions) / len(predictions)
    assert mean == pytest.approx(run.metrics.score("f1").mean)
    traced = [call for question in read_trace(Path("one")) for call in question.calls]
    assert len(calls) == len(traced) == sum(row["calls"] for row in predictions)
    for row, call in zip(calls, traced, strict=True):
        assert json.loads(row["reply"]) == call.reply
        assert json.loads(row["request"]).get("prompt") == call.request.get("prompt")
    assert sum(row["output_tokens"] or 0 for row in calls) == sum(row["output_tokens"] for row in predictions)
    write_jsonl(iter([{"text": "half: \ud800"}]), Path("half.jsonl"))  # half a character is an escape
    assert lines(Path("half.jsonl")) == [{"text": "half: \ud800"}]


def test_trec_files_give_the_runs_own_recall(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "trec", "method=retrieve_read")
    run, gold = dict[str, list[str]](), dict[str, set[str]]()
    for line in (folder / "run.trec").read_text("utf-8").splitlines():
        question, q0, passage, rank, _, tag = line.split(" ")
        run.setdefault(question, []).append(passage)
        assert (q0, int(rank), tag) == ("Q0", len(run[question]), "retrieve_read")
    for line in (folder / "qrels.trec").read_text("utf-8").splitlines():
        question, _, passage, relevance = line.split(" ")
        gold.setdefault(question, set()).add(passage)
        assert relevance == "1"
    assert trec_column("missing:The Elm\u00a0House") == "missing:The%20Elm%C2%A0House"
    assert trec_column("a%20b") != trec_column("a b")
    for budget, recall in retrieval().recall.items():
        shares = [len(gold[id_] & set(run[id_][: int(budget)])) / len(gold[id_]) for id_ in gold]
        assert 100 * sum(shares) / len(shares) == pytest.approx(recall.mean), budget
    measures = pytest.importorskip("ir_measures")
    qrels, ranked = measures.read_trec_qrels, measures.read_trec_run
    read = list(qrels(str(folder / "qrels.trec"))), list(ranked(str(folder / "run.trec")))
    for measure, mean in measures.calc_aggregate([measures.R @ 2, measures.R @ 5], *read).items():
        assert 100 * mean == pytest.approx(retrieval().recall[str(measure["cutoff"])].mean)


def test_a_trace_per_question_with_a_span_for_each_call(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "otlp", "method=trace", "judge=three_way")
    traced = {question.question.id: question for question in read_trace(Path("one"))}
    text = (folder / "spans.jsonl").read_text("utf-8")
    requests, several = [json.loads(line) for line in text.splitlines()], 0
    assert len(requests) == len(traced) == 4
    for request in requests:
        *calls, root = spans_of(request)
        question = traced[json.loads(attributes(root)["metadata"])["question_id"]]
        assert attributes(root)["output.value"] == question.prediction.answer
        assert {span["parentSpanId"] for span in calls} == {root["spanId"]}
        assert len({span["traceId"] for span in [*calls, root]}) == 1
        kinds = [attributes(span)["openinference.span.kind"] for span in [*calls, root]]
        assert set(kinds) <= KINDS
        asked = [call for call in question.calls if call.kind in ("generate", "choose")]
        assert kinds.count("LLM") == len(asked)
        tokens = sum(int(attributes(span).get("llm.token_count.prompt", 0)) for span in calls)
        assert tokens == sum(call.usage.prompt_tokens for call in asked if call.usage)
        assert all(int(span["startTimeUnixNano"]) < int(span["endTimeUnixNano"]) for span in [*calls, root])
        for each in map(attributes, calls):
            if "llm.input_messages.1.message.content" in each:  # Langfuse reads input.value and no message next to it
                several += 1
                messages = [message["content"] for message in json.loads(each["input.value"])]
                assert messages == [each[f"llm.input_messages.{n}.message.content"] for n in range(len(messages))]
                assert f"llm.input_messages.{len(messages)}.message.content" not in each
        ranked = [call for call in question.calls if call.kind == "rank"]
        found = [each for each in map(attributes, calls) if "retrieval.documents.0.document.content" in each]
        assert len(found) >= len(ranked) > 0
    assert several
    Path("again.part").mkdir()
    Path("again.part/left.jsonl").write_text("of an export that was killed")
    assert kgqa("report", "one", "--format", "otlp", "--out", "again").code == 0
    assert text == Path("again/spans.jsonl").read_text("utf-8")
    assert [file.name for file in Path("again").iterdir()] == ["spans.jsonl"]
    service = pytest.importorskip("opentelemetry.proto_json.collector.trace.v1.trace_service")
    for line, ours in zip(text.splitlines(), map(spans_of, requests), strict=True):
        read = service.ExportTraceServiceRequest.from_json(line).resource_spans[0].scope_spans[0].spans
        assert [span.span_id.hex() for span in read] == [span["spanId"] for span in ours]
        assert [len(span.attributes) for span in read] == [len(span["attributes"]) for span in ours]


def record_of(folder: Path) -> Any:
    (file,) = folder.rglob("*.json")
    return json.loads(file.read_text("utf-8"))


def test_every_eval_ever_has_the_runs_scores_and_the_judges(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "a", "judge=three_way")
    assert kgqa("report", str(folder), "--format", "eee", "--out", "eee").code == 0
    record = record_of(Path("eee"))
    results = record["evaluation_results"]
    by_id = {each["evaluation_result_id"]: each["score_details"]["score"] for each in results}
    metrics = FinishedRun.read(folder).metrics
    assert metrics.judge is not None
    for name, score in {**metrics.scores, "judge": metrics.judge.accuracy}.items():
        if score.mean is not None:
            assert by_id[f"demo/no_context/{name}"] == pytest.approx(score.mean)
    assert results[-1]["metric_config"]["llm_scoring"]["judges"]
    jsonschema = pytest.importorskip("jsonschema")
    package = find_spec("every_eval_ever")
    if package is None or package.origin is None:
        pytest.skip("every_eval_ever is not installed")
    schema = Path(package.origin).parent / "schemas/eval.schema.json"
    jsonschema.validate(record, json.loads(schema.read_text("utf-8")))


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kgqa("run", "method=retrieve_only", "limit=2", *QUICK, "output_dir=one").code == 0
    for folder in ("full", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    refusals = {
        ("one", "--format", "jsonl"): "--out DIR is missing",
        ("one", "--out", "out", "--format", "parquet"): "--format parquet: no such value. Choose from",
        ("nowhere", "--format", "jsonl", "--out", "out"): "no finished run matches",
        ("one", "--format", "jsonl", "--out", "full"): "--out full: this folder is not empty",
        ("one", "--format", "eee", "--out", "out"): "--format eee: one has no answers of a model",
    }
    for arguments, said in refusals.items():
        ran = kgqa("report", *arguments)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert said in ran.err
    trace = tmp_path / "one/trace.jsonl.zst"
    trace.write_bytes(b"\0" * 100 + trace.read_bytes()[100:])
    ran = kgqa("report", "one", "--format", "jsonl", "--out", "out")
    assert (ran.code, "damaged trace" in ran.err) == (2, True)
    assert not [*tmp_path.glob("out"), *tmp_path.glob("*.part")]
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine.txt"]
    monkeypatch.chdir(tmp_path / "empty")
    assert "--out .: name a folder" in kgqa("report", "../one", "--format", "jsonl", "--out", ".").err
