"""transformers' Trainer around a loss of our own: the order of examples, checkpoints by the clock, stopping, figures.

The arguments are made before any network: they are what joins a process to the others that `accelerate launch` started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kgqa.training.checkpoints import KEPT, checkpoints, newest, step_of
from kgqa.training.job import CHECKPOINTS, Job
from kgqa.training.order import Item, Order
from kgqa.training.progress import Progress, Said
from kgqa.training.schedule import Schedule
from kgqa.training.stopping import Stop
from kgqa.training.watching import Watcher, wait_for_all

Tensor = Any  # torch is imported late and not checked
Network = Any
DECAYS = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
WAIT = 7200  # seconds that processes wait for the first one, which alone measures


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
        wait_for_all(args)
        return found
    wait_for_all(args)
    return next(iter(checkpoints(folder)), None)


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

    class Callback(Watcher, TrainerCallback):  # type: ignore[misc]
        pass

    return OwnLoss, Callback
