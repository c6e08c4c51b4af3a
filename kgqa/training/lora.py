"""LoRA and QLoRA on a causal model: peft's adapters under transformers' Trainer, with a loss of our own.

Only the logits from the first token that is to be learnt on are computed: of a long prompt's 150,000 logits a token
none is ever in memory. Adapters are plain PEFT (no saved modules, no DoRA), so that every engine reads them.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from kgqa.artefacts.form import read_json
from kgqa.constraints import Bound, Count, Natural
from kgqa.errors import ConfigError, DataError
from kgqa.extras import keep_four_bits
from kgqa.storage import json_text, replace_file, storing
from kgqa.training.job import ADAPTER, Job
from kgqa.training.loop import Lesson, Tensor
from kgqa.training.schedule import Schedule
from kgqa.training.texts import IGNORED, Row, Rows, Tokens, TooLong, causal_rows, padded

Share = Annotated[float, Bound("must be at least 0 and below 1", lambda share: 0 <= share < 1)]
AT_ONCE = 8  # held-out examples in a pass


@dataclass(frozen=True)
class LoraTraining(Schedule):
    """An adapter on a causal model. `targets`: names of layers, or ["all-linear"]: all but the last.

    quantization: nf4 holds the base in 4 bits (QLoRA, Dettmers et al. 2023). loss_on: the target, or the prompt, too.
    replies: so many held-out prompts are answered, in up to `reply_tokens`, before and after.
    """

    rank: Count
    alpha: Count
    dropout: Share
    targets: tuple[str, ...]
    quantization: Literal["none", "nf4"]
    double_quantization: bool
    max_length: Count
    too_long: TooLong
    loss_on: Literal["target", "all"]
    activation_checkpointing: bool  # computes activations twice in place of keeping them
    group_by_length: bool
    replies: Natural
    reply_tokens: Count

    def read(self, file: Path, base: Path) -> Rows:
        """The examples in the model's tokens. Raises DataError naming the line."""
        return causal_rows(file, Tokens(base), self.max_length, self.too_long)

    def network(self, base: Path, device: Any) -> Any:
        """The base with a fresh adapter, ready to be trained.

        Raises:
            ConfigError: the base is no causal model, the rank is too large, or what NF4 needs is missing.
        """
        import torch
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

        network = self._base(base, device)
        check_rank(network, self.rank, self.targets)
        if self.quantization == "nf4":
            keep_four_bits(network)
            network = prepare_model_for_kbit_training(network, use_gradient_checkpointing=False)
        if self.activation_checkpointing:
            network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            network.enable_input_require_grads()
        network.config.use_cache = False
        torch.manual_seed(self.seed)
        targets = "all-linear" if self.targets == ("all-linear",) else list(self.targets)
        return get_peft_model(
            network,
            LoraConfig(
                r=self.rank, lora_alpha=self.alpha, lora_dropout=self.dropout, target_modules=targets,
                bias="none", task_type="CAUSAL_LM",
            ),
        )  # fmt: skip

    def lesson(self, network: Any, rows: Rows, held_out: Rows) -> Lesson:
        return Lesson(
            network,
            rows.rows,
            self._collate,
            _summed_loss,
            lambda trained: held_out_loss(self, trained, held_out.rows)[0],
            alike=self.group_by_length,
        )

    def losses(self, network: Any, held_out: Rows) -> tuple[float | None, dict[str, list[float | None]]]:
        """Of the held-out examples: the mean over their labels, and each one's own."""
        mean, each = held_out_loss(self, network, held_out.rows)
        return mean, {"loss": each}

    def answer(self, network: Any, base: Path, held_out: Rows) -> list[str]:
        """The likeliest replies to the first held-out prompts."""
        tokens = Tokens(base)
        prompts = [row.ids[: row.begins] for row in held_out.rows[: self.replies]]
        written: list[str] = []
        network.eval()
        for first in range(0, len(prompts), AT_ONCE):
            written += _written(network, tokens, prompts[first : first + AT_ONCE], self.reply_tokens)
        return written

    def save(self, network: Any, job: Job) -> None:
        """The adapter, as a whole or not at all. Raises StorageError: the disk is full or refuses."""
        fresh = job.place / f"{ADAPTER}.new"
        with storing(fresh):
            shutil.rmtree(fresh, ignore_errors=True)
            network.save_pretrained(fresh, safe_serialization=True)
            (fresh / "README.md").unlink(missing_ok=True)  # peft's form; the card lies above
            _settle_config(fresh / "adapter_config.json", job.named)
            shutil.rmtree(job.place / ADAPTER, ignore_errors=True)
            fresh.replace(job.place / ADAPTER)

    def _collate(self, rows: list[Row]) -> dict[str, Tensor]:
        """Padded on the left, so that what is to be learnt stands at the end of every row."""
        masked = [1 if self.loss_on == "all" else row.begins for row in rows]
        labels = [[IGNORED] * first + list(row.ids[first:]) for row, first in zip(rows, masked, strict=True)]
        mask = padded([[1] * row.length for row in rows], 0, left=True)
        return {
            "input_ids": padded([row.ids for row in rows], 0, left=True),
            "attention_mask": mask,
            "position_ids": (mask.cumsum(-1) - 1).clamp(min=0),
            "labels": padded(labels, IGNORED, left=True),
        }

    def _base(self, folder: Path, device: Any) -> Any:
        import torch
        from transformers import AutoModelForCausalLM

        settings: dict[str, Any] = {"dtype": getattr(torch, self.precision), "local_files_only": True}
        if self.quantization == "nf4":
            settings |= {"quantization_config": self._nf4(), "device_map": {"": device}}
        try:
            network = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa", **settings)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"train.base={self.base}: {folder}: not a causal model: {error}") from error
        return network if "device_map" in settings else network.to(device)

    def _nf4(self) -> Any:
        import torch
        from transformers import BitsAndBytesConfig

        if find_spec("bitsandbytes") is None:
            raise ConfigError(
                "train.quantization=nf4 needs bitsandbytes; pip install 'kgqa[quantization]', or give "
                "train.quantization=none"
            )
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it tells of every cast
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=self.double_quantization,
            bnb_4bit_compute_dtype=getattr(torch, self.precision),
            bnb_4bit_quant_storage=getattr(torch, self.precision),  # what FSDP can shard
        )


def check_rank(network: Any, rank: int, targets: tuple[str, ...]) -> None:
    """Raises ConfigError: a target that no layer is called, or a rank above the smaller side of a layer it adapts."""
    last = network.get_output_embeddings()
    linear = {
        name: (module.in_features, module.out_features)
        for name, module in network.named_modules()
        if hasattr(module, "in_features") and module is not last
    }
    if targets != ("all-linear",):
        for target in targets:
            if not any(name.endswith(target) for name in linear):
                known = sorted({name.rpartition(".")[2] for name in linear})
                raise ConfigError(f"train.targets={target}: the base has no such layer; it has {', '.join(known)}")
        linear = {name: shape for name, shape in linear.items() if name.endswith(targets)}
    name, shape = min(linear.items(), key=lambda each: min(each[1]))
    if rank > min(shape):
        raise ConfigError(
            f"train.rank={rank}: too large for {name}, which has {shape[0]} × {shape[1]} weights; "
            f"take {min(shape)} or less"
        )


def _summed_loss(network: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Cross-entropy in nats, summed over the labels."""
    labels, own = inputs["labels"], {name: value for name, value in inputs.items() if name != "labels"}
    first = int((labels != IGNORED).any(0).int().argmax())  # the leftmost label of any row
    logits = network(**own, logits_to_keep=labels.shape[1] - first + 1).logits  # (rows, kept, vocabulary)
    return summed_entropy(logits[:, :-1], labels[:, first:])


def summed_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """logits: (rows, places, vocabulary); labels: (rows, places), the token that each of them should give."""
    import torch

    wanted = labels != IGNORED
    return torch.nn.functional.cross_entropy(logits[wanted].float(), labels[wanted], reduction="sum")


def held_out_loss(training: Any, network: Any, rows: tuple[Row, ...]) -> tuple[float | None, list[float | None]]:
    """Nats a label over all, and each row's own mean, in the rows' order; None where there are none."""
    import torch

    if not rows:
        return None, []
    was_training, device = network.training, next(network.parameters()).device
    network.eval()
    each, labels = [0.0] * len(rows), [0] * len(rows)
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, training.precision == "bfloat16"):
        for place, row in enumerate(rows):
            batch = {name: value.to(device) for name, value in training._collate([row]).items()}
            labels[place] = int((batch["labels"] != IGNORED).sum())
            each[place] = float(_loss_of(training)(network, batch))
    network.train(was_training)
    means: list[float | None] = [loss / count for loss, count in zip(each, labels, strict=True)]
    return sum(each) / sum(labels), means


def _loss_of(training: Any) -> Any:
    return getattr(training, "summed_loss", _summed_loss)


def _written(network: Any, tokens: Tokens, prompts: list[tuple[int, ...]], longest: int) -> list[str]:
    import torch

    device = next(network.parameters()).device
    ids = padded(prompts, tokens.end, left=True).to(device)
    mask = padded([[1] * len(prompt) for prompt in prompts], 0, left=True).to(device)
    with torch.inference_mode():
        written = network.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=longest, do_sample=False, use_cache=True,
            eos_token_id=tokens.end, pad_token_id=tokens.end,
        )  # fmt: skip
    return [tokens.decode(row) for row in written[:, ids.shape[1] :].tolist()]


def _settle_config(file: Path, named: str) -> None:
    """The same bytes each time: peft lists its layers in the order of a set, and names the base by this machine's
    path."""
    config = read_json(file)
    if not isinstance(config, dict):
        raise DataError(f"{file}: not a JSON object")
    layers = config.get("target_modules")
    settled = {**config, "base_model_name_or_path": named, "target_modules": sorted(layers) if layers else layers}
    replace_file(file, json_text(dict(sorted(settled.items()))))
