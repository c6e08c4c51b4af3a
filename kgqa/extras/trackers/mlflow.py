"""MLflow: a run of an experiment on a server, in a database or in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import Annotated

from kgqa.errors import ConfigError, TrackerError
from kgqa.protocols import TrackedRun
from kgqa.util.optional_deps import install_command
from kgqa.util.settings import Setting

# parameters and metrics in a request, MLflow's limits
AT_ONCE, METRICS_AT_ONCE = 100, 1000
# two retries instead of minutes of them, and no telemetry
ENVIRONMENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_DISABLE_TELEMETRY": "true"}


@dataclass(frozen=True)
class MlflowTracker:
    """`uri`: of the server or store. None: MLFLOW_TRACKING_URI, otherwise MLflow's default."""

    uri: Annotated[
        str | None,
        Setting(
            "Address of a server, or a store. null: $MLFLOW_TRACKING_URI, otherwise MLflow's default."
        ),
    ] = None
    experiment: Annotated[str, Setting("Name of the group of runs in MLflow.")] = "kgqa"

    def check(self) -> None:
        if find_spec("mlflow") is None:
            raise ConfigError(
                f"tracker=mlflow: not installed. {install_command('mlflow')}, or remove tracker=."
            )

    def log(self, run: TrackedRun) -> str:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import mlflow
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException

        at = int(time.time() * 1000)
        try:
            client = mlflow.MlflowClient(self.uri)
            existing = client.get_experiment_by_name(self.experiment)
            number = (
                existing.experiment_id if existing else client.create_experiment(self.experiment)
            )
            logged = client.create_run(number, run_name=run.name).info
            for some in _batches(
                (Param(name, value) for name, value in run.parameters.items()), AT_ONCE
            ):
                client.log_batch(logged.run_id, params=some)
            client.log_batch(
                logged.run_id,
                metrics=[Metric(name, value, at, 0) for name, value in run.metrics.items()],
            )
            points = (
                Metric(name, value, at, step)
                for name, line in run.series.items()
                for step, value in line
            )
            for some in _batches(points, METRICS_AT_ONCE):
                client.log_batch(logged.run_id, metrics=some)
            for file in run.files:
                client.log_artifact(logged.run_id, str(file))
            client.set_terminated(logged.run_id)
        except (MlflowException, OSError) as error:
            raise TrackerError(f"MLflow accepted only a part of the run: {error}") from error
        return f"MLflow run {logged.run_id} of experiment {self.experiment}"


def _batches(values: Iterator[object], size: int) -> Iterator[list[object]]:
    while some := list(islice(values, size)):
        yield some
