"""Every Eval Ever 0.3.0: one record of a run's scores, and a line a question beside it.

Scores are shares here, as those of questions are; kgqa's own files have percent. Where in its datastore a record lies
is part of the format: data/DATASET/DEVELOPER/MODEL/UUID.json.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.run import FinishedRun
from kgqa.errors import ConfigError
from kgqa.report.exports.rows import write_jsonl
from kgqa.report.exports.samples import sample
from kgqa.report.exports.transcript import end_time
from kgqa.report.questions import load_reported_questions
from kgqa.report.summary import SCORES
from kgqa.types import Json
from kgqa.util.fs import OUT_ELSEWHERE, ensure_dir, json_text, replace_file, sha256, text_digest

VERSION = "0.3.0"
LIBRARIES = ("llamacpp", "transformers", "vllm")  # engines that run weights here; a server may be anywhere
PRIMARY = "em"  # what the lines of questions score
_UNFIT = re.compile(r"[^\w.-]+")  # in a folder's name


def write_every_eval_ever(run: FinishedRun, folder: Path) -> None:
    """
    Raises:
        ConfigError: the run asked no model, or answered nothing.
    """
    if "model" not in run.choices or run.metrics.scores.em.mean is None:
        raise ConfigError(
            f"--format eee: {run.folder} has no answers of a model, which is what Every Eval Ever records; "
            "--format trec is for what only retrieves"
        )
    record = _record(run)
    model_id = record["model_info"]["id"]
    developer, _, model = model_id.partition("/")
    place = "/".join(["data", *(_UNFIT.sub("_", part) for part in (run.manifest.dataset.name, developer, model))])
    name = _uuid(record["evaluation_id"])
    ensure_dir(folder / place)
    samples = folder / place / f"{name}_samples.jsonl"
    keys = {"evaluation_id": record["evaluation_id"], "model_id": model_id, **_name_metric(run, PRIMARY)}
    lines = ({"schema_version": VERSION, **keys, **sample(reported)} for reported in load_reported_questions(run))
    write_jsonl(lines, samples)
    details = {
        "format": "jsonl",
        "file_path": f"{place}/{samples.name}",
        "hash_algorithm": "sha256",
        "checksum": sha256(samples),
        "total_rows": run.metrics.questions,
    }
    text = json_text({**record, "detailed_evaluation_results": details})
    replace_file(folder / place / f"{name}.json", text, OUT_ELSEWHERE)


def _record(run: FinishedRun) -> dict[str, Json]:
    model, time = _model(run), str(int(end_time(run).timestamp()))
    code = run.manifest.kgqa
    digest = text_digest(repr((run.settings, run.manifest.code, run.manifest.dataset.sha256)), 8)
    return {
        "schema_version": VERSION,
        "evaluation_id": f"{run.manifest.dataset.name}-{run.choices['method']}-{digest}/{model['id']}/{time}",
        "evaluation_timestamp": end_time(run).isoformat(timespec="seconds"),
        "retrieved_timestamp": time,
        "source_metadata": {
            "source_name": "kgqa",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": "kgqa",
            "version": code.version,
            "additional_details": {"commit": code.commit} if code.commit else {},
        },
        "model_info": model,
        "evaluation_results": list(_results(run)),
    }


def _model(run: FinishedRun) -> dict[str, Json]:
    """Return the model: its repository on the hub if the preset names one, otherwise its name under the engine."""
    settings = {key: value for key, value, _ in run.settings}
    hub, engine = settings.get("model.hub", "None").partition(":")[0], run.choices.get("engine", "unknown")
    name = settings.get("model.name", run.choices["model"])
    return {
        "name": run.choices["model"],
        "id": f"{engine}/{name}" if hub == "None" else hub,
        "inference_engine": {"name": engine},
        "additional_details": {
            "deployment_type": "self_deployed" if engine in LIBRARIES else "unknown",
            "model_availability": "unknown" if hub == "None" else "open_weights",
        },
    }


def _results(run: FinishedRun) -> Iterator[dict[str, Json]]:
    """Yield the scores that are defined, and the judge's."""
    for name, score in run.metrics.scores.named().items():
        if score.mean is not None:
            yield _result(run, name, score, {"metric_name": SCORES.get(name, name.replace("_", " "))})
    judge = run.metrics.judge
    if judge and judge.accuracy.mean is not None:
        prompts = ", ".join(f"{template} {digest}" for template, digest in judge.prompts.items())
        judges = [{"model_info": {**_judge_model(label)}} for label in judge.models.values()]
        scoring = {"judges": judges, "input_prompt": f"kgqa templates and their hashes: {prompts}"}
        yield _result(run, "judge", judge.accuracy, {"metric_name": judge.judge, "llm_scoring": scoring})


def _judge_model(label: str) -> dict[str, Json]:
    name, _, engine = label.partition("@")
    deployment = "self_deployed" if engine in LIBRARIES else "unknown"
    details = {"deployment_type": deployment, "model_availability": "unknown"}
    return {"name": name, "id": f"{engine or 'unknown'}/{name}", "additional_details": details}


def _result(run: FinishedRun, name: str, score: Estimate, more: Mapping[str, Json]) -> dict[str, Json]:
    method = {key: value for key, value, _ in run.settings if key.startswith("method.")}
    assert score.mean is not None
    interval = {
        "lower": _share(score.low),
        "upper": _share(score.high),
        "confidence_level": 0.95,
        "method": "bootstrap",
    }
    uncertainty = {"num_samples": score.n, **({} if score.low is None else {"confidence_interval": interval})}
    return {
        **_name_metric(run, name),
        "source_data": {
            "dataset_name": run.manifest.dataset.name,
            "source_type": "other",
            "additional_details": {"sha256": run.manifest.dataset.sha256, "profile": run.metrics.profile},
        },
        "metric_config": {
            "metric_id": f"kgqa.{name}",
            "metric_kind": "accuracy" if name in ("em", "judge") else name,
            "metric_unit": "proportion",
            "lower_is_better": name == "support_error_rate",
            "score_type": "continuous",
            "min_score": 0,
            "max_score": 1,
            **more,
        },
        "score_details": {"score": _share(score.mean), "uncertainty": uncertainty},
        "generation_config": {
            "generation_args": {"eval_plan": {"name": run.choices["method"], "steps": [], "config": method}}
        },
    }


def _name_metric(run: FinishedRun, score: str) -> dict[str, str]:
    name = f"{run.manifest.dataset.name} with {run.choices['method']}"
    return {
        "evaluation_name": name,
        "evaluation_result_id": f"{run.manifest.dataset.name}/{run.choices['method']}/{score}",
    }


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _uuid(evaluation_id: str) -> str:
    """Return the same for the same record; of the form that the datastore wants."""
    return str(uuid.UUID(hex=text_digest(evaluation_id, 32), version=4))
