"""Weights & Biases: a run of a project, stored on disk for `wandb sync` or sent at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from kgqa.errors import ConfigError, TrackerError
from kgqa.protocols import TrackedRun
from kgqa.util.fs import ensure_dir
from kgqa.util.optional_deps import install_command
from kgqa.util.settings import Setting


@dataclass(frozen=True)
class WandbTracker:
    """`mode`: online sends with the key of WANDB_API_KEY or `wandb login`. offline writes to `folder`."""

    project: Annotated[str, Setting("Project in Weights & Biases.")] = "kgqa"
    mode: Annotated[
        Literal["offline", "online"],
        Setting("Offline: saved in the folder, `wandb sync` sends it | online: sent at once."),
    ] = "offline"
    folder: Annotated[str, Setting("Folder for W&B's own folder wandb/.")] = "outputs"

    def check(self) -> None:
        if find_spec("wandb") is None:
            raise ConfigError(
                f"tracker=wandb: not installed. {install_command('wandb')}, or remove tracker=."
            )

    def log(self, run: TrackedRun) -> str:
        import wandb

        # send neither console nor machine, packages, command, user or commit
        quiet = wandb.Settings(
            host="", silent=True, console="off", disable_git=True, disable_code=True, save_code=False,
            x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True, x_save_requirements=False,
        )  # fmt: skip
        try:
            ensure_dir(Path(self.folder))
            logged = wandb.init(
                project=self.project, name=run.name, config=dict(run.parameters), mode=self.mode,
                dir=self.folder, settings=quiet,
            )  # fmt: skip
            for step, values in _by_step(run.series).items():
                logged.log(values, step=step)
            logged.summary.update(dict(run.metrics))
            for file in run.files:
                logged.save(str(file), base_path=str(file.parent), policy="now")
            path = str(Path(logged.dir).parent) if self.mode == "offline" else str(logged.url)
            logged.finish()
            wandb.teardown()  # stop its service
        except (wandb.Error, OSError) as error:
            raise TrackerError(
                f"Weights & Biases accepted only a part of the run: {error}"
            ) from error
        return path


def _by_step(series: Mapping[str, tuple[tuple[int, float], ...]]) -> dict[int, dict[str, float]]:
    """Return the values by step. wandb accepts steps in ascending order only."""
    by_step: dict[int, dict[str, float]] = {}
    for name, line in series.items():
        for step, value in line:
            by_step.setdefault(step, {})[name] = value
    return dict(sorted(by_step.items()))
