"""Full fine-tuning of models that read with one half and write with the other, such as T5.

A rendered prompt of theirs is what the reader is given, its end token, the token a writer starts with, and what the
reply is made to begin with; so it is taken apart again here.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgqa.artefacts.form import read_json
from kgqa.constraints import Count, Natural
from kgqa.errors import ConfigError
from kgqa.storage import storing
from kgqa.training.job import MODEL, Job
from kgqa.training.loop import Lesson, Tensor
from kgqa.training.lora import AT_ONCE, held_out_loss, summed_entropy
from kgqa.training.schedule import Schedule
from kgqa.training.texts import IGNORED, Row, Rows, Tokens, TooLong, padded, texts

FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "spiece.model")


@dataclass(frozen=True, slots=True)
class Pair(Row):
    """`ids`: what is written; `begins`: where in it the completion does. `read`: what the reader is given, `seen` what
    the writer sees: the same one place later, behind its start token."""

    read: tuple[int, ...]
    seen: tuple[int, ...]


@dataclass(frozen=True)
class Seq2SeqTraining(Schedule):
    """All weights of an encoder-decoder model. `max_input`, `max_output`: tokens read and written."""

    max_input: Count
    max_output: Count
    too_long: TooLong
    activation_checkpointing: bool  # computes activations twice in place of keeping them
    group_by_length: bool
    replies: Natural
    reply_tokens: Count

    def read(self, file: Path, base: Path) -> Rows:
        """The examples in the model's tokens. Raises DataError naming the line."""
        tokens, start = Tokens(base), _start(base)
        rows, left_out, cut = [], 0, 0
        for text in texts(file):
            read, begun = parted(tokens.encode(text.prompt), tokens.end, start)
            written = [*begun, *tokens.encode(text.completion), tokens.end]
            if len(read) > self.max_input or len(written) > self.max_output:
                if self.too_long == "leave_out" or len(begun) >= self.max_output:
                    left_out += 1
                    continue
                read, written, cut = [*read[: self.max_input - 1], tokens.end], written[: self.max_output], cut + 1
            length = len(read) + len(written)
            rows.append(Pair(text.id, tuple(written), len(begun), length, tuple(read), (start, *written[:-1])))
        return Rows(tuple(rows), left_out, cut)

    def network(self, base: Path, device: Any) -> Any:
        """Raises ConfigError: the base is no encoder-decoder model."""
        import torch
        from transformers import AutoModelForSeq2SeqLM

        try:
            # its weights stay in float32 whatever the precision of the passes: small steps would be lost in bfloat16
            network = AutoModelForSeq2SeqLM.from_pretrained(base, dtype=torch.float32, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"train.base={self.base}: {base}: not an encoder-decoder model: {error}") from error
        if self.activation_checkpointing:
            network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        network.config.use_cache = False
        return network.to(device)

    def lesson(self, network: Any, rows: Rows, held_out: Rows) -> Lesson:
        return Lesson(
            network,
            rows.rows,
            self._collate,
            self.summed_loss,
            lambda trained: held_out_loss(self, trained, held_out.rows)[0],
            alike=self.group_by_length,
        )

    def losses(self, network: Any, held_out: Rows) -> tuple[float | None, dict[str, list[float | None]]]:
        """Of the held-out examples: the mean over their labels, and each one's own."""
        mean, each = held_out_loss(self, network, held_out.rows)
        return mean, {"loss": each}

    def answer(self, network: Any, base: Path, held_out: Rows) -> list[str]:
        """The likeliest replies to the first held-out prompts."""
        import torch

        tokens, device = Tokens(base), next(network.parameters()).device
        pairs = [row for row in held_out.rows[: self.replies] if isinstance(row, Pair)]
        written: list[str] = []
        network.eval()
        for first in range(0, len(pairs), AT_ONCE):
            some = pairs[first : first + AT_ONCE]
            read = padded([pair.read for pair in some], 0, left=False).to(device)
            mask = padded([[1] * len(pair.read) for pair in some], 0, left=False).to(device)
            with torch.inference_mode():
                ids = network.generate(
                    input_ids=read, attention_mask=mask, max_new_tokens=self.reply_tokens, do_sample=False,
                    use_cache=True, eos_token_id=tokens.end,
                )  # fmt: skip
            written += [tokens.decode(row) for row in ids[:, 1:].tolist()]
        return written

    def save(self, network: Any, job: Job) -> None:
        """The model with its tokenizer, as a whole or not at all. Raises StorageError: the disk is full or refuses."""
        fresh, base = job.place / f"{MODEL}.new", Path(job.base)
        with storing(fresh):
            shutil.rmtree(fresh, ignore_errors=True)
            network.config.use_cache = True
            network.save_pretrained(fresh, safe_serialization=True)
            for name in FILES:
                if (base / name).is_file():
                    shutil.copyfile(base / name, fresh / name)
            shutil.rmtree(job.place / MODEL, ignore_errors=True)
            fresh.replace(job.place / MODEL)

    def _collate(self, pairs: list[Pair]) -> dict[str, Tensor]:
        labels = [[IGNORED] * pair.begins + list(pair.ids[pair.begins :]) for pair in pairs]
        return {
            "input_ids": padded([pair.read for pair in pairs], 0, left=False),
            "attention_mask": padded([[1] * len(pair.read) for pair in pairs], 0, left=False),
            "decoder_input_ids": padded([pair.seen for pair in pairs], 0, left=False),
            "decoder_attention_mask": padded([[1] * len(pair.ids) for pair in pairs], 0, left=False),
            "labels": padded(labels, IGNORED, left=False),
        }

    @staticmethod
    def summed_loss(network: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Cross-entropy in nats, summed over the labels."""
        own = {name: value for name, value in inputs.items() if name != "labels"}
        return summed_entropy(network(**own, use_cache=False).logits, inputs["labels"])


def parted(prompt: list[int], end: int, start: int) -> tuple[list[int], list[int]]:
    """What is read, its end token included, and what the reply begins with; a prompt without that seam is all read."""
    seams = [place for place in range(len(prompt) - 1) if prompt[place : place + 2] == [end, start]]
    if not seams:
        return [*prompt, *([] if prompt[-1:] == [end] else [end])], []
    return prompt[: seams[-1] + 1], prompt[seams[-1] + 2 :]


def _start(folder: Path) -> int:
    config = read_json(folder / "config.json")
    start = config.get("decoder_start_token_id") if isinstance(config, dict) else None
    if not isinstance(start, int):
        raise ConfigError(f"{folder / 'config.json'}: no decoder_start_token_id; it is no encoder-decoder model")
    return start
