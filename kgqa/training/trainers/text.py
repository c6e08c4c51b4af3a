"""The base class of trainers for models that write: LoRA adapters and encoder-decoders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgqa.training.trainers.base import Trainer
from kgqa.training.trainers.process import TrainTask
from kgqa.util.validators import Count, Natural


@dataclass(frozen=True)
class TextTrainer(Trainer):
    """The settings of trainers for models that write.

    truncation: truncate longer examples. false: leave them out.
    activation_checkpointing: compute activations twice instead of storing them.
    replies: number of held-out prompts that are answered before and after training, in up to `reply_tokens` tokens.
    """

    truncation: bool
    activation_checkpointing: bool
    group_by_length: bool
    replies: Natural
    reply_tokens: Count

    @property
    def skips_long(self) -> bool:
        return not self.truncation

    def arguments(self, task: TrainTask, rows: Any, held_out: Any) -> dict[str, Any]:
        """Return the values for the library's training arguments."""
        from kgqa.training.trainers.library import arguments

        return {
            **arguments(self, task, rows, held_out),
            "gradient_checkpointing": self.activation_checkpointing,
            "train_sampling_strategy": "group_by_length" if self.group_by_length else "random",
        }

    def datasets(self, task: TrainTask, rows: Any, held_out: Any) -> dict[str, Any]:
        """Return the values for the library's trainer: both datasets and the tokenizer."""
        from datasets import Dataset

        from kgqa.training.trainers.library import load_tokenizer

        return {
            "train_dataset": Dataset.from_list(rows.rows),
            "eval_dataset": Dataset.from_list(held_out.rows) if held_out.rows else None,
            "processing_class": load_tokenizer(Path(task.base)),
        }

    def prompt_of(self, row: Any) -> list[int]:
        """Return the tokens of a prompt."""
        tokens: list[int] = row["input_ids"]
        return tokens

    def evaluate(self, trainer: Any, held_out: Any) -> tuple[dict[str, list[float]], list[str]]:
        """Return no figures, and the replies to the first held-out prompts."""
        from kgqa.training.trainers.library import generate_replies

        prompts = [self.prompt_of(row) for row in held_out.rows[: self.replies]]
        return {}, generate_replies(trainer.model, trainer.processing_class, prompts, self.reply_tokens)
