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

from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import read_trace
from kgqa.cli.report import EXPORTS
from kgqa.report.exporting import FORMATS
from kgqa.report.exports.trec import column
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.judged_runs import answered, rules

KINDS = {"LLM", "RETRIEVER", "RERANKER", "CHAIN", "AGENT", "EVALUATOR"}  # of OpenInference, those a run has


def exported(kgqa: Kgqa, form: str, *run: str) -> Path:
    """What a small run gives in this form: its folder."""
    assert kgqa("run", *run, "limit=4", *QUICK, "out=one").code == 0
    ran = kgqa("report", "one", "--format", form, "--out", form)
    assert ran.code == 0, ran.err
    return Path(form)


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def spans_of(request: Any) -> list[Any]:
    found: list[Any] = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return found


def attributes(span: Any) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def test_the_command_knows_the_forms_there_are() -> None:
    assert list(EXPORTS) == list(FORMATS)


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
    retrieval = FinishedRun.read(Path("one")).metrics.retrieval
    assert retrieval is not None
    for budget, recall in retrieval.recall.items():
        shares = [len(gold[id_] & set(run[id_][: int(budget)])) / len(gold[id_]) for id_ in gold]
        assert 100 * sum(shares) / len(shares) == pytest.approx(recall.mean), budget


def test_ir_measures_reads_the_same_recall(kgqa: Kgqa) -> None:
    measures = pytest.importorskip("ir_measures")
    folder = exported(kgqa, "trec", "method=retrieve_read")
    qrels, run = (list(read(str(folder / file))) for read, file in (
        (measures.read_trec_qrels, "qrels.trec"), (measures.read_trec_run, "run.trec")))  # fmt: skip
    got = measures.calc_aggregate([measures.R @ 2, measures.R @ 5], qrels, run)
    retrieval = FinishedRun.read(Path("one")).metrics.retrieval
    assert retrieval is not None
    for budget in (2, 5):
        assert 100 * got[measures.R @ budget] == pytest.approx(retrieval.recall[str(budget)].mean)


def test_a_column_of_trec_has_no_blanks_and_is_still_told_from_others() -> None:
    assert column("missing:The Elm\u00a0House") == "missing:The%20Elm%C2%A0House"
    assert column("a%20b") != column("a b")


def test_a_trace_a_question_with_a_span_for_each_call(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "otlp", "method=trace")
    traced = {question.question.id: question for question in read_trace(Path("one"))}
    requests = lines(folder / "spans.jsonl")
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


def test_a_question_whose_model_led_to_a_search_is_an_agents(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "otlp", "method=ircot")
    roots = [attributes(spans_of(request)[-1]) for request in lines(folder / "spans.jsonl")]
    assert {root["openinference.span.kind"] for root in roots} == {"AGENT"}


def test_what_a_model_was_asked_is_whole_in_one_value(kgqa: Kgqa) -> None:
    """Langfuse reads `input.value` and then no message beside it."""
    folder = exported(kgqa, "otlp", "method=trace")
    told = [attributes(span) for request in lines(folder / "spans.jsonl") for span in spans_of(request)]
    calls = [each for each in told if "llm.model_name" in each]
    several = [each for each in calls if "llm.input_messages.1.message.content" in each]
    assert several
    for each in several:
        assert each["input.mime_type"] == "application/json"
        messages = json.loads(each["input.value"])
        for number, message in enumerate(messages):
            assert message["content"] == each[f"llm.input_messages.{number}.message.content"]
        assert f"llm.input_messages.{len(messages)}.message.content" not in each


def test_a_second_export_is_the_same_traces(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "otlp", "method=retrieve_read")
    assert kgqa("report", "one", "--format", "otlp", "--out", "again").code == 0
    assert (folder / "spans.jsonl").read_bytes() == Path("again/spans.jsonl").read_bytes()


def test_opentelemetry_reads_the_spans(kgqa: Kgqa) -> None:
    pytest.importorskip("opentelemetry.proto_json")
    from opentelemetry.proto_json.collector.trace.v1.trace_service import (  # type: ignore[import-not-found,unused-ignore]
        ExportTraceServiceRequest,
    )

    folder = exported(kgqa, "otlp", "method=trace", "judge=three_way")
    for line in (folder / "spans.jsonl").read_text("utf-8").splitlines():
        read = ExportTraceServiceRequest.from_json(line).resource_spans[0].scope_spans[0].spans
        ours = spans_of(json.loads(line))
        assert [span.span_id.hex() for span in read] == [span["spanId"] for span in ours]
        assert [len(span.attributes) for span in read] == [len(span["attributes"]) for span in ours]


def records(folder: Path) -> tuple[Any, list[Any], Path]:
    """The record of a run, its lines, and where they lie."""
    (record,), (samples,) = folder.rglob("*.json"), folder.rglob("*.jsonl")
    return json.loads(record.read_text("utf-8")), lines(samples), samples


def test_every_eval_ever_has_the_runs_scores_and_a_line_a_question(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "eee", "method=trace")
    record, samples, place = records(folder)
    metrics = FinishedRun.read(Path("one")).metrics
    by_id = {each["evaluation_result_id"]: each["score_details"]["score"] for each in record["evaluation_results"]}
    for name, score in metrics.scores.named().items():
        if score.mean is not None:
            assert by_id[f"demo/trace/{name}"] == pytest.approx(score.mean / 100)
    assert sum(line["evaluation"]["score"] for line in samples) / 4 == pytest.approx(by_id["demo/trace/em"])
    assert {line["evaluation_id"] for line in samples} == {record["evaluation_id"]}
    assert record["detailed_evaluation_results"]["file_path"] == place.relative_to(folder).as_posix()
    assert {line["interaction_type"] for line in samples} == {"multi_turn"}


def test_one_call_is_a_single_turn_and_a_judge_is_a_result(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "a", "judge=three_way")
    assert kgqa("report", str(folder), "--format", "eee", "--out", "eee").code == 0
    record, samples, _ = records(Path("eee"))
    assert {line["interaction_type"] for line in samples} == {"single_turn"}
    assert all(line["output"]["raw"] and line["messages"] is None for line in samples)
    judged = [each for each in record["evaluation_results"] if each["evaluation_result_id"].endswith("/judge")]
    assert judged[0]["metric_config"]["llm_scoring"]["judges"]


@pytest.mark.parametrize("run", [("method=ircot",), ("method=no_context", "judge=three_way"), ("method=trace",)])
def test_every_eval_ever_is_as_its_schemas_say(kgqa: Kgqa, run: tuple[str, ...]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    package = find_spec("every_eval_ever")
    if package is None or package.origin is None:
        pytest.skip("every_eval_ever is not installed")
    schemas = Path(package.origin).parent / "schemas"
    record, samples, _ = records(exported(kgqa, "eee", *run, rules()))
    jsonschema.validate(record, json.loads((schemas / "eval.schema.json").read_text("utf-8")))
    schema = json.loads((schemas / "instance_level_eval.schema.json").read_text("utf-8"))
    for line in samples:
        jsonschema.validate(line, schema)


def test_what_only_retrieves_is_no_evaluation_of_a_model(kgqa: Kgqa, tmp_path: Path) -> None:
    assert kgqa("run", "method=retrieve_only", "limit=2", *QUICK, "out=one").code == 0
    ran = kgqa("report", "one", "--format", "eee", "--out", "eee")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "--format eee: one has no answers of a model" in ran.err
    assert not list(tmp_path.glob("eee*"))


def test_the_hubs_own_parser_reads_the_card(kgqa: Kgqa) -> None:
    hub = pytest.importorskip("huggingface_hub")
    folder = exported(kgqa, "card", "method=trace")
    card = hub.DatasetCard.load(folder / "README.md").data.to_dict()
    assert card["task_categories"] == ["question-answering"]
    assert card["size_categories"] == ["n<1K"]
    assert all((folder / each["data_files"]).is_file() for each in card["configs"])
    assert "license" not in card


def test_the_help_says_what_an_export_holds(kgqa: Kgqa) -> None:
    said = kgqa("report", "--help").out
    assert all(f"  {form} " in said for form in FORMATS)
    assert "as private as your documents" in said
