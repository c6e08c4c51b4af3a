"""Every Eval Ever 0.3.0: one record of a run's scores in percent, data/DATASET/DEVELOPER/MODEL/UUID.json."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from kgqa.artifacts.metrics import METRICS as METRICS_FILE
from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.run import SCRIPTED, FinishedRun
from kgqa.errors import ConfigError
from kgqa.scoring.questions import METRICS
from kgqa.types import Json
from kgqa.util.digests import text_digest
from kgqa.util.fs import ensure_dir, json_text, replace_file

VERSION = "0.3.0"
# engines that run weights on this machine
LIBRARIES = ("llamacpp", "transformers", "vllm")
# as `settings.json` writes a missing value
UNSET = "null"
_UNFIT = re.compile(r"[^\w.-]+")  # in a folder's name


def write_every_eval_ever(run: FinishedRun, folder: Path) -> None:
    """Write the record of a run. Raises ConfigError: the run called no model, or answered nothing."""
    if "model" not in run.choices or run.metrics.score("em").mean is None:
        raise ConfigError(
            f"--format eee: {run.folder} has no answers of a model. Use --format trec for a method that only retrieves."
        )
    record = _record(run)
    model_id, evaluation_id = record["model_info"]["id"], record["evaluation_id"]
    developer, _, model = model_id.partition("/")
    path = "/".join(
        ["data", *(_UNFIT.sub("_", part) for part in (run.manifest.dataset.name, developer, model))]
    )
    # the same for the same record
    name = uuid.UUID(hex=text_digest(evaluation_id, 32), version=4)
    ensure_dir(folder / path)
    replace_file(folder / path / f"{name}.json", json_text(record))


def _record(run: FinishedRun) -> dict[str, Json]:
    settings, code, time = (
        {key: value for key, value, _ in run.settings},
        run.manifest.kgqa,
        end_time(run),
    )
    engine, hub = (
        run.choices.get("engine", "unknown"),
        settings.get("model.hub", UNSET).strip("'").partition(":")[0],
    )
    model = _model(run.choices["model"], engine, settings.get("model.name"))
    if hub != UNSET and engine != SCRIPTED:
        model["id"], model["additional_details"]["model_availability"] = hub, "open_weights"
    seconds = str(int(time.timestamp()))
    name = f"{run.manifest.dataset.name}-{run.choices['method']}-{run_id(run)}"
    return {
        "schema_version": VERSION,
        "evaluation_id": f"{name}/{model['id']}/{seconds}",
        "evaluation_timestamp": time.isoformat(timespec="seconds"),
        "retrieved_timestamp": seconds,
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
        "model_info": {**model, "inference_engine": {"name": engine}},
        "evaluation_results": list(_results(run)),
    }


def _model(preset: str, engine: str, name: str | None = None) -> dict[str, Json]:
    deployment = "self_deployed" if engine in LIBRARIES else "unknown"
    details = {"deployment_type": deployment, "model_availability": "unknown"}
    if engine == SCRIPTED:
        preset = name = "no model"
    return {
        "name": preset,
        "id": f"{engine or 'unknown'}/{name or preset}",
        "additional_details": details,
    }


def _results(run: FinishedRun) -> Iterator[dict[str, Json]]:
    """Yield the scores that are defined, and the judge's."""
    for name, metric in METRICS.items():
        if (score := run.metrics.score(name)).mean is not None:
            more = {"metric_name": metric.label, "lower_is_better": metric.lower_is_better}
            yield _result(run, name, score, more)
    if (judge := run.metrics.judge) and judge.accuracy.mean is not None:
        prompts = ", ".join(f"{template} {digest}" for template, digest in judge.prompts.items())
        models = [_model(*label.partition("@")[::2]) for label in judge.models.values()]
        scoring = {
            "judges": [{"model_info": model} for model in models],
            "input_prompt": f"kgqa templates and their hashes: {prompts}",
        }
        more = {"metric_name": judge.judge, "lower_is_better": False, "llm_scoring": scoring}
        yield _result(run, "judge", judge.accuracy, more)


def _result(
    run: FinishedRun, name: str, score: Estimate, more: Mapping[str, Json]
) -> dict[str, Json]:
    interval = {
        "lower": score.low,
        "upper": score.high,
        "confidence_level": 0.95,
        "method": "wilson",
    }
    settings = {key: value for key, value, _ in run.settings if key.startswith("method.")}
    dataset, method = run.manifest.dataset, run.choices["method"]
    return {
        "evaluation_name": f"{dataset.name} with {method}",
        "evaluation_result_id": f"{dataset.name}/{method}/{name}",
        "source_data": {
            "dataset_name": dataset.name,
            "source_type": "other",
            "additional_details": {"sha256": dataset.sha256, "profile": run.metrics.profile},
        },
        "metric_config": {
            "metric_id": f"kgqa.{name}",
            "metric_kind": "accuracy" if name in ("em", "judge") else name,
            "metric_unit": "percent",
            "score_type": "continuous",
            "min_score": 0,
            "max_score": 100,
            **more,
        },
        "score_details": {
            "score": score.mean,
            **_count_failed(run, name),
            "uncertainty": {"num_samples": score.n, "confidence_interval": interval},
        },
        "generation_config": {
            "generation_args": {"eval_plan": {"name": method, "steps": [], "config": settings}}
        },
    }


def _count_failed(run: FinishedRun, name: str) -> dict[str, Json]:
    """Return how many questions failed, which the score counts as 0, and the score of the others."""
    metrics = run.metrics
    if not metrics.failed:
        return {}
    others = (metrics.answered or {}).get(name)
    answered = (
        {}
        if others is None or others.mean is None
        else {"score_of_answered_questions": f"{others.mean:.4f}"}
    )
    return {"details": {"failed_questions": str(metrics.failed), **answered}}


def run_id(run: FinishedRun) -> str:
    """Return 8 hex digits of the run's settings, code and data."""
    return text_digest(repr((run.settings, run.manifest.code, run.manifest.dataset.sha256)), 8)


def end_time(run: FinishedRun) -> datetime:
    """Return when the run's metrics were written."""
    return datetime.fromtimestamp((run.folder / METRICS_FILE).stat().st_mtime, tz=timezone.utc)
