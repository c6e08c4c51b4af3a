"""Full fine-tuning of encoder-decoder models such as T5, by transformers' Seq2SeqTrainer.

A rendered prompt consists of what the encoder reads with its end token, the start token of the decoder, and what the
reply has to start with. It is split there again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kgqa.artifacts.schema import check_json, read_lines
from kgqa.errors import ConfigError
from kgqa.training.trainers.base import Trainer
from kgqa.training.trainers.process import TextExample, TrainTask
from kgqa.util.validators import Count, Natural

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "spiece.model",
)  # fmt: skip


@dataclass(frozen=True)
class Seq2SeqTraining(Trainer):
    """All weights of an encoder-decoder model. `max_input`, `max_output`: tokens read and written.

    truncation: truncate longer examples. false: leave them out.
    replies: number of held-out prompts that are answered before and after training, in up to `reply_tokens` tokens.
    """

    max_input: Count
    max_output: Count
    truncation: bool
    activation_checkpointing: bool  # compute activations twice instead of storing them
    group_by_length: bool
    replies: Natural
    reply_tokens: Count

    title: ClassVar[str] = "full fine-tuning"
    output: ClassVar[str] = "model"

    @property
    def packages(self) -> tuple[str, tuple[str, ...]]:
        return "train", ("torch", "transformers", "accelerate", "datasets")

    @property
    def longest(self) -> int:
        return self.max_input + self.max_output

    def load(self, file: Path, base: Path) -> Any:
        """Read the examples as tokens. Raises DataError naming the line."""
        from transformers import AutoConfig

        from kgqa.training.trainers.library import Rows, encode, load_tokenizer

        tokenizer = load_tokenizer(base)
        start = getattr(AutoConfig.from_pretrained(base), "decoder_start_token_id", None)
        if not isinstance(start, int):
            raise ConfigError(f"train.base={self.base}: {base}: not an encoder-decoder model")
        rows, left_out, cut = [], 0, 0
        for location, line in read_lines(file):
            text = check_json(TextExample, line, location)
            read, begin = split_prompt(encode(tokenizer, text.prompt), tokenizer.eos_token_id, start)
            labels = [*begin, *encode(tokenizer, text.completion), tokenizer.eos_token_id]
            if len(read) > self.max_input or len(labels) > self.max_output:
                if not self.truncation:
                    left_out += 1
                    continue
                read = [*read[: self.max_input - 1], tokenizer.eos_token_id]
                labels, cut = labels[: self.max_output], cut + 1
            rows.append({"id": text.id, "input_ids": read, "labels": labels})
        return Rows(rows, sum(len(row["input_ids"]) + len(row["labels"]) for row in rows), left_out, cut)

    def build(self, task: TrainTask, rows: Any, held_out: Any) -> Any:
        """Return transformers' trainer for these rows. Raises ConfigError: the base is not an encoder-decoder model."""
        import torch
        from datasets import Dataset
        from transformers import (
            AutoModelForSeq2SeqLM,
            DataCollatorForSeq2Seq,
            Seq2SeqTrainer,
            Seq2SeqTrainingArguments,
        )

        from kgqa.training.trainers.library import arguments, load_tokenizer

        args = Seq2SeqTrainingArguments(
            **arguments(self, task, rows, held_out),
            gradient_checkpointing=self.activation_checkpointing,
            train_sampling_strategy="group_by_length" if self.group_by_length else "random",
        )
        try:
            # weights are float32 whatever the precision of the passes: bfloat16 would lose small steps
            network = AutoModelForSeq2SeqLM.from_pretrained(task.base, dtype=torch.float32, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"train.base={self.base}: {task.base}: not an encoder-decoder model: {error}") from error
        tokenizer = load_tokenizer(Path(task.base))
        return Seq2SeqTrainer(
            model=network,
            args=args,
            train_dataset=Dataset.from_list(rows.rows),
            eval_dataset=Dataset.from_list(held_out.rows) if held_out.rows else None,
            data_collator=DataCollatorForSeq2Seq(tokenizer, network),
            processing_class=tokenizer,
        )

    def evaluate(self, trainer: Any, held_out: Any) -> tuple[dict[str, list[float]], list[str]]:
        """Return no figures, and the replies to the first held-out prompts."""
        from kgqa.training.trainers.library import generate_replies

        prompts = [row["input_ids"] for row in held_out.rows[: self.replies]]
        return {}, generate_replies(trainer.model, trainer.processing_class, prompts, self.reply_tokens)

    def save(self, trainer: Any, task: TrainTask, folder: Path) -> None:
        """Save the model with the tokenizer of its base."""
        trainer.model.config.use_cache = True
        trainer.model.save_pretrained(folder)
        copy_tokenizer(Path(task.base), folder)


def copy_tokenizer(base: Path, folder: Path) -> None:
    """Copy the files of a tokenizer unchanged."""
    for name in TOKENIZER_FILES:
        if (base / name).is_file():
            shutil.copyfile(base / name, folder / name)


def split_prompt(prompt: list[int], end: int, start: int) -> tuple[list[int], list[int]]:
    """Return what the encoder reads, with its end token, and what the reply starts with."""
    seams = [location for location in range(len(prompt) - 1) if prompt[location : location + 2] == [end, start]]
    if not seams:
        return [*prompt, *([] if prompt[-1:] == [end] else [end])], []
    return prompt[: seams[-1] + 1], prompt[seams[-1] + 2 :]
