"""What happens around the steps of a training: each is said, checkpoints come by the clock, and a stop is heeded."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from kgqa.errors import DataError
from kgqa.training.checkpoints import mark, step_of
from kgqa.training.order import Order
from kgqa.training.progress import Progress, Said, told
from kgqa.training.schedule import Schedule
from kgqa.training.stopping import Stop

GO_ON, SAVE, HOURS, INTERRUPTED = range(4)  # the largest that any process says is what all do


def wait_for_all(args: Any) -> None:
    """For all processes to come here."""
    if args.world_size > 1:
        import torch

        torch.distributed.barrier()


class Watcher:
    """Says each step, saves by the clock, stops where it is to be stopped."""

    lesson: Any  # of `loop`
    trainer: Any

    def __init__(self, schedule: Schedule, progress: Progress, stop: Stop, order: Order) -> None:
        self._schedule, self._progress, self._stop, self._order = schedule, progress, stop, order
        self._saved = self._began = time.monotonic()
        self._before = (0, 0.0)  # tokens and seconds of earlier sittings
        self.why: str | None = None

    def resume(self, folder: Path, checkpoint: Path | None) -> None:
        """Take up the sums where the checkpoint has them."""
        step = step_of(checkpoint) if checkpoint else 0
        for said in told(folder):
            if said.event == "step" and said.step == step:
                self._before = (said.tokens or 0, float(said.seconds or 0))

    @property
    def tokens(self) -> int:
        """Of padding nothing; of other processes as many as of this one."""
        return self._before[0] + int(self.trainer.tokens) * int(self.trainer.args.world_size)

    @property
    def seconds(self) -> float:
        return self._before[1] + time.monotonic() - self._began

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self._saved = self._began = time.monotonic()
        self._progress.say(Said(event="begin", step=state.global_step, steps=state.max_steps))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self._order.epoch = math.floor((state.epoch or 0) + 1e-6)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        del args, control
        if "loss" not in logs:
            return
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            raise DataError(
                f"the loss at step {state.global_step:,} is no number any more; lower train.learning_rate, or take "
                "train.precision=float32"
            )
        self._progress.say(
            Said(
                event="step",
                step=state.global_step,
                epoch=round(state.epoch, 4),
                loss=loss,
                learning_rate=logs["learning_rate"],
                tokens=self.tokens,
                seconds=round(self.seconds, 2),
            )
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        due = time.monotonic() - self._saved >= 60 * self._schedule.save_minutes
        wanted = {None: SAVE if due else GO_ON, "hours": HOURS, "interrupted": INTERRUPTED}[self._stop.why()]
        decided = _largest(wanted, args)
        last = state.global_step >= state.max_steps
        control.should_save = last or decided >= SAVE
        if decided > SAVE and not last:
            self.why = {HOURS: "hours", INTERRUPTED: "interrupted"}[decided]
            control.should_training_stop = True
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """The first process alone measures: the others go on to the next gradient and wait there. After the last step
        the worker does, with all figures."""
        del control
        if self.why is None and state.global_step < state.max_steps and args.process_index == 0:
            self._progress.held_out(state.global_step, self.lesson.held_out(getattr(model, "module", model)))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del control
        wait_for_all(args)
        self._saved = time.monotonic()
        if args.process_index == 0:
            mark(Path(args.output_dir) / f"checkpoint-{state.global_step}")
            self._progress.say(Said(event="saved", step=state.global_step))


def _largest(wanted: int, args: Any) -> int:
    """What the most urgent of all processes wants."""
    if args.world_size == 1:
        return wanted
    import torch

    said = torch.tensor([wanted], device=args.device)
    torch.distributed.all_reduce(said, op=torch.distributed.ReduceOp.MAX)
    return int(said)
