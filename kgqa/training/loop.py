"""transformers' Trainer around a loss of our own: the order of examples, checkpoints by the clock, stopping, figures.

The arguments are made before any network: they are what joins a process to the others that `accelerate launch` started.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from kgqa.errors import DataError
from kgqa.storage import text_digest
from kgqa.training.checkpoints import KEPT, checkpoints, mark, newest, step_of
from kgqa.training.job import CHECKPOINTS, Job
from kgqa.training.progress import Progress, Said, told
from kgqa.training.schedule import Schedule
from kgqa.training.stopping import Stop

Tensor = Any  # torch is imported late and not checked
Network = Any
DECAYS = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
WAIT = 7200  # seconds that processes wait for the first one, which alone measures
GO_ON, SAVE, HOURS, INTERRUPTED = range(4)  # the largest that any process says is what all do


class Item(Protocol):
    """An example as its library has it."""

    @property
    def id(self) -> str: ...

    @property
    def length(self) -> int:
        """Tokens."""
        ...


@dataclass(frozen=True)
class Lesson:
    """What a library trains, on what, and how far off it is.

    collate: items → a batch, whose `labels` are -100 where nothing is to be learnt. loss: of a batch, summed over its
    labels. held_out: the loss where nothing was learnt, None without such examples.
    """

    network: Network
    items: Sequence[Item]
    collate: Callable[[list[Any]], dict[str, Tensor]]
    loss: Callable[[Network, dict[str, Tensor]], Tensor]
    held_out: Callable[[Network], float | None]
    alike: bool = False  # examples of like length together
    backward: Callable[[Any, Network, dict[str, Tensor]], Tensor] | None = None  # in place of loss and gradient


@dataclass(frozen=True)
class Fitted:
    """`why`: it stopped before its end, None at its end."""

    steps: int
    tokens: int
    seconds: float
    why: str | None


def arguments(schedule: Schedule, job: Job, examples: int) -> Any:
    """Made before any network."""
    import torch
    from transformers import TrainingArguments

    processes = int(os.environ.get("WORLD_SIZE", "1"))
    cpu = schedule.device == "cpu" or not torch.cuda.is_available()
    return TrainingArguments(
        output_dir=str(job.place / CHECKPOINTS),
        per_device_train_batch_size=schedule.batch_per_device,
        gradient_accumulation_steps=schedule.accumulated(processes),
        num_train_epochs=schedule.epochs,
        max_steps=schedule.max_steps or -1,
        learning_rate=schedule.learning_rate,
        lr_scheduler_type=DECAYS[schedule.decay],
        warmup_steps=schedule.warmup_steps(schedule.steps(examples)),
        weight_decay=schedule.weight_decay,
        max_grad_norm=schedule.clip,
        bf16=schedule.precision == "bfloat16",
        optim="adamw_torch",
        seed=schedule.seed,
        use_cpu=cpu,
        ddp_backend="gloo" if cpu and processes > 1 else None,
        ddp_find_unused_parameters=False,
        ddp_timeout=WAIT,
        save_strategy="no",  # by the clock, see `_Watcher`
        save_total_limit=KEPT,
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )


def fit(lesson: Lesson, job: Job, settings: tuple[Schedule, Any], progress: Progress, stop: Stop) -> Fitted:
    """Train to the end, or to where it is stopped; from the newest whole checkpoint on, if there is one.

    settings: with the `arguments` made from it.

    Raises:
        DataError: the loss is no number any more.
        StorageError: the disk is full or refuses.
    """
    from transformers.trainer_utils import set_seed

    schedule, args = settings
    folder = job.place / CHECKPOINTS

    def note(text: str) -> None:
        progress.say(Said(event="note", text=text))

    checkpoint = _agreed_checkpoint(folder, args, note)
    set_seed(schedule.seed)
    order = Order([item.id for item in lesson.items], [item.length for item in lesson.items], schedule, lesson.alike)
    watcher = _classes()[1](schedule, progress, stop, order)
    watcher.resume(job.place, checkpoint)
    trainer = _classes()[0](
        model=lesson.network, args=args, data_collator=lesson.collate, train_dataset=list(lesson.items),
        callbacks=[watcher],
    )  # fmt: skip
    trainer.lesson, trainer.order, watcher.lesson = lesson, order, lesson
    watcher.trainer = trainer
    if checkpoint:
        note(f"going on from step {step_of(checkpoint):,}")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return Fitted(trainer.state.global_step, watcher.tokens, watcher.seconds, watcher.why)


def _agreed_checkpoint(folder: Path, args: Any, tell: Callable[[str], None]) -> Path | None:
    """The first process looks and clears away; the others take the newest that is left."""
    if args.process_index == 0:
        found = newest(folder, tell)
        _wait(args)
        return found
    _wait(args)
    return next(iter(checkpoints(folder)), None)


def _wait(args: Any) -> None:
    """For all processes to come here."""
    if args.world_size > 1:
        import torch

        torch.distributed.barrier()


class Order:
    """The examples of an epoch: drawn from the seed, the epoch and their ids, whatever file they stood in.

    alike: examples of like length stand together within stretches of 50 batches, so that little is padded.
    """

    def __init__(self, ids: Sequence[str], lengths: Sequence[int], schedule: Schedule, alike: bool) -> None:
        self._ids, self._lengths, self._seed = ids, lengths, schedule.seed
        self._stretch = 50 * schedule.batch if alike else 0
        self._batch = schedule.batch
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        drawn = self._drawn(range(len(self._ids)), "")
        if not self._stretch:
            return iter(drawn)
        batches = []
        for first in range(0, len(drawn), self._stretch):
            stretch = sorted(drawn[first : first + self._stretch], key=lambda place: -self._lengths[place])
            batches += [stretch[at : at + self._batch] for at in range(0, len(stretch), self._batch)]
        whole, rest = [each for each in batches if len(each) == self._batch], batches[-1]
        named = self._drawn(range(len(whole)), "batch ")
        ordered = [place for batch in named for place in whole[batch]]
        return iter(ordered + (rest if len(rest) < self._batch else []))

    def _drawn(self, places: range, what: str) -> list[int]:
        def key(place: int) -> str:
            return text_digest(f"{self._seed} {self.epoch} {what}{place if what else self._ids[place]}")

        return sorted(places, key=key)


@cache
def _classes() -> tuple[Any, Any]:
    """Made on first use, because their bases lie in transformers."""
    from transformers import Trainer, TrainerCallback

    class OwnLoss(Trainer):  # type: ignore[misc]
        """Loss and gradient are the lesson's; a step's loss is the mean over its labels, on however many processes."""

        lesson: Lesson
        order: Order
        loss_is_scaled_for_ga = True
        tokens = 0  # of this process since it began

        def compute_loss(
            self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Tensor:
            del return_outputs
            count = (inputs["labels"] != -100).sum() if num_items_in_batch is None else num_items_in_batch
            return self.lesson.loss(model, inputs) / count * self.accelerator.num_processes

        def training_step(self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any = None) -> Tensor:
            self.model_accepts_loss_kwargs = True  # that `compute_loss` counts, and divides
            self.tokens += sum(int(inputs[name].sum()) for name in inputs if name.endswith("attention_mask"))
            if self.lesson.backward is None:
                return super().training_step(model, inputs, num_items_in_batch)
            model.train()
            return self.lesson.backward(self, model, self._prepare_inputs(inputs))

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            del train_dataset
            return self.order

    class Watcher(_Watcher, TrainerCallback):  # type: ignore[misc]
        pass

    return OwnLoss, Watcher


class _Watcher:
    """Says each step, saves by the clock, stops where it is to be stopped."""

    lesson: Lesson
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
        del control
        if self.why is None:
            self.measure(args, state.global_step, model)

    def measure(self, args: Any, step: int, model: Any) -> None:
        """The first process alone: the others go on to the next gradient and wait there."""
        if args.process_index == 0:
            loss = self.lesson.held_out(getattr(model, "module", model))
            if loss is not None:
                self._progress.say(Said(event="held_out", step=step, loss=loss))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del control
        _wait(args)
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
