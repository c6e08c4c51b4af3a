"""Experiment trackers, the real ones: MLflow's store in a folder, Weights & Biases offline."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from kgqa.errors import TrackerError
from kgqa.util.optional_deps import install_command
from tests.e2e.conftest import QUICK, Kgqa

RUN = ("run", "method=all_documents", "limit=3", *QUICK)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # else MLflow asks for a database, which mlflow-skinny lacks
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-own"))


def test_mlflow_has_parameters_scores_with_intervals_costs_and_the_report(kgqa: Kgqa, tmp_path: Path) -> None:
    mlflow: Any = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    uri = (tmp_path / "store").as_uri()
    ran = kgqa(*RUN, "tracker=mlflow", f"tracker.uri={uri}", "output_dir=one")
    assert ran.code == 0, ran.err
    assert "tracked: MLflow run" in ran.out
    client = mlflow.MlflowClient(uri)
    [found] = client.search_runs([client.get_experiment_by_name("kgqa").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "demo/all_documents/one"
    assert found.data.params["method"] == "all_documents"
    assert found.data.params["seed"] == "0"
    assert not [name for name in found.data.params if name.startswith(("retriever", "tracker"))]  # not used
    metrics = ran.json("metrics.json")
    for name, end in (("f1", "mean"), ("f1_low", "low"), ("f1_high", "high")):
        assert found.data.metrics[name] == metrics["scores"]["f1"][end]
    assert found.data.metrics["cost_method_prompt_tokens"] == metrics["cost"]["method"]["prompt_tokens"] > 0
    files = {file.path for file in client.list_artifacts(found.info.run_id)}
    assert {"report.html", "report.md", "metrics.json", "predictions.jsonl"} <= files


def test_wandb_offline_keeps_the_run_and_asks_no_network(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setattr(socket, "gethostname", lambda: "host-not-to-be-told")
    for name in ("USER", "LOGNAME", "USERNAME", "WANDB_API_KEY"):
        monkeypatch.setenv(name, f"{name}-not-to-be-told")
    ran = kgqa(*RUN, "tracker=wandb", "tracker.folder=kept", "output_dir=one")
    assert ran.code == 0, ran.err
    [folder] = (tmp_path / "kept/wandb").glob("offline-run-*")
    assert f"tracked: {folder.relative_to(tmp_path)}" in ran.out.replace(str(tmp_path) + "/", "")
    [kept] = folder.glob("*.wandb")
    recorded = kept.read_bytes()
    metrics = ran.json("metrics.json")
    for part in (b"dataset.profile", b"f1_low", b"cost_method_usd"):
        assert (part in recorded) == (part != b"cost_method_usd")  # no prices, so no cost in dollars
    assert json.dumps(metrics["scores"]["f1"]["high"]).encode() in recorded
    assert (folder / "files/report.html").read_text("utf-8") == (tmp_path / "one/report.html").read_text("utf-8")
    assert b"not-to-be-told" not in b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert not (folder / "files/requirements.txt").exists()


def test_unreachable_tracker_is_one_warning_without_its_password(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLFLOW_TRACKING_URI can hold a password, and MLflow's errors repeat the address."""

    def fail(*_: object) -> str:
        raise TrackerError("API request to http://user:hunter22@127.0.0.1:1/api failed")

    plain = kgqa(*RUN)
    monkeypatch.setattr("kgqa.trackers.mlflow.find_spec", lambda name: object())
    monkeypatch.setattr("kgqa.trackers.mlflow.MlflowTracker.log", fail)
    ran = kgqa(*RUN, "tracker=mlflow")
    assert (ran.code, ran.folder) == (0, plain.folder)  # a tracker does not make another run
    [said] = [line for line in ran.out.splitlines() if "tracker=mlflow" in line]
    assert said.startswith("warning: tracker=mlflow: API request to http://[key]@127.0.0.1:1/api failed")
    assert said.endswith("The run itself is complete")


def test_missing_package_and_address_with_credentials_are_refused_before_any_call(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("mlflow", "wandb"):
        monkeypatch.setattr(f"kgqa.trackers.{module}.find_spec", lambda name: None)
        ran = kgqa(*RUN, f"tracker={module}", "output_dir=one")
        assert ran.code == 2
        assert install_command(module) in ran.err
    assert not (tmp_path / "one").exists()
    ran = kgqa(*RUN, "tracker=mlflow", "tracker.uri='http://user:hunter22@127.0.0.1:5000'")
    assert ran.code == 2
    assert "tracker.uri: an address must not contain a user name, a password" in ran.err
    assert "hunter22" not in ran.out + ran.err
    assert not list(tmp_path.rglob("*.json"))
