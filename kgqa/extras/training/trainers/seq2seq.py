"""Full fine-tuning of encoder-decoder models such as T5, by transformers' Seq2SeqTrainer.

A rendered prompt consists of what the encoder reads with its end token, the start token of the decoder, and what the
reply has to start with. It is split there again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from kgqa.artifacts.trained import MODEL
from kgqa.errors import ConfigError
from kgqa.extras.training.trainers.base import Row, Rows, TextTrainer, encode
from kgqa.extras.training.trainers.process import TextExample, TrainTask
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "spiece.model",
)  # fmt: skip


@dataclass(frozen=True)
class Seq2SeqTraining(TextTrainer):
    """All weights of an encoder-decoder model. `max_input`, `max_output`: tokens read and written."""

    max_input: Annotated[Count, Setting("Maximum tokens of a prompt.", code="released code")] = 512
    max_output: Annotated[Count, Setting("Maximum tokens of a reply.", code="released code")] = 512

    title: ClassVar[str] = "full fine-tuning"
    output: ClassVar[str] = MODEL

    @property
    def longest(self) -> int:
        return self.max_input + self.max_output

    def tokenize(self, tokenizer: Any, example: TextExample) -> tuple[Row | None, int, bool]:
        start = _decoder_start(tokenizer.name_or_path)
        read, begin = split_prompt(encode(tokenizer, example.prompt), tokenizer.eos_token_id, start)
        labels = [*begin, *encode(tokenizer, example.completion), tokenizer.eos_token_id]
        is_long = len(read) > self.max_input or len(labels) > self.max_output
        if is_long and not self.truncation:
            return None, 0, False
        if len(read) > self.max_input:
            read = [*read[: self.max_input - 1], tokenizer.eos_token_id]
        labels = labels[: self.max_output]
        return {"input_ids": read, "labels": labels}, len(read) + len(labels), is_long

    def build(self, task: TrainTask, rows: Rows, held_out: Rows) -> Any:
        import torch
        from transformers import (
            AutoModelForSeq2SeqLM,
            DataCollatorForSeq2Seq,
            Seq2SeqTrainer,
            Seq2SeqTrainingArguments,
        )

        args = Seq2SeqTrainingArguments(**self.arguments(task, rows, held_out))
        try:
            # weights are float32 whatever the precision of the passes: bfloat16 would lose small steps
            network = AutoModelForSeq2SeqLM.from_pretrained(
                task.base, dtype=torch.float32, local_files_only=True
            )
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"train.base={self.base}: {task.base}: not an encoder-decoder model: {error}"
            ) from error
        data = self.datasets(task, rows, held_out)
        collator = DataCollatorForSeq2Seq(data["processing_class"], network)
        return Seq2SeqTrainer(model=network, args=args, data_collator=collator, **data)

    def save(self, trainer: Any, task: TrainTask, folder: Path) -> None:
        """Save the model with the tokenizer of its base."""
        trainer.model.config.use_cache = True
        trainer.model.save_pretrained(folder)
        copy_tokenizer(Path(task.base), folder)


@cache
def _decoder_start(base: str) -> int:
    """Return the token with which the decoder starts."""
    from transformers import AutoConfig

    start = getattr(AutoConfig.from_pretrained(base), "decoder_start_token_id", None)
    if not isinstance(start, int):
        raise ConfigError(f"train.base={base}: not an encoder-decoder model")
    return start


def copy_tokenizer(base: Path, folder: Path) -> None:
    """Copy the files of a tokenizer unchanged."""
    for name in TOKENIZER_FILES:
        if (base / name).is_file():
            shutil.copyfile(base / name, folder / name)


def split_prompt(prompt: list[int], end: int, start: int) -> tuple[list[int], list[int]]:
    """Return what the encoder reads, with its end token, and what the reply starts with."""
    seams = [
        location
        for location in range(len(prompt) - 1)
        if prompt[location : location + 2] == [end, start]
    ]
    if not seams:
        return [*prompt, *([] if prompt[-1:] == [end] else [end])], []
    return prompt[: seams[-1] + 1], prompt[seams[-1] + 2 :]
