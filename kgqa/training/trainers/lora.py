"""LoRA and QLoRA on a causal model, by trl's SFTTrainer.

Adapters are plain PEFT (no saved modules, no DoRA), so that every engine reads them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from kgqa.artifacts.schema import check_json, read_lines
from kgqa.errors import ConfigError
from kgqa.training.trainers.process import TextExample, TrainTask
from kgqa.training.trainers.text import TextTrainer
from kgqa.util.optional_deps import keep_four_bits
from kgqa.util.validators import Count, Validator

Share = Annotated[float, Validator("must be at least 0 and below 1", lambda share: 0 <= share < 1)]


@dataclass(frozen=True)
class LoraTraining(TextTrainer):
    """An adapter on a causal model. `target_modules`: names of layers, or ["all-linear"]: all but the last.

    quantization: nf4 stores the base in 4 bits (QLoRA, Dettmers et al. 2023).
    loss_on: the target, or the prompt as well.
    """

    lora_r: Count
    lora_alpha: Count
    dropout: Share
    target_modules: tuple[str, ...]
    quantization: Literal["none", "nf4"]
    double_quantization: bool
    max_length: Count
    loss_on: Literal["target", "all"]

    title: ClassVar[str] = "LoRA adapter"
    output: ClassVar[str] = "adapter"

    @property
    def packages(self) -> tuple[str, tuple[str, ...]]:
        modules = ("torch", "transformers", "accelerate", "peft", "trl", "datasets")
        return ("train", modules) if self.quantization == "none" else ("train,quantization", (*modules, "bitsandbytes"))

    @property
    def longest(self) -> int:
        return self.max_length

    def load(self, file: Path, base: Path) -> Any:
        from kgqa.training.trainers.library import Rows, encode, load_tokenizer

        tokenizer = load_tokenizer(base)
        rows, left_out, cut = [], 0, 0
        for location, line in read_lines(file):
            text = check_json(TextExample, line, location)
            prompt = encode(tokenizer, text.prompt)
            ids = [*prompt, *encode(tokenizer, text.completion), tokenizer.eos_token_id]
            if len(ids) > self.max_length:
                if not self.truncation or len(prompt) >= self.max_length:
                    left_out += 1
                    continue
                cut += 1
            mask = [0] * len(prompt) + [1] * (len(ids) - len(prompt))
            kept = slice(self.max_length)
            rows.append({"id": text.id, "input_ids": ids[kept], "completion_mask": mask[kept]})
        return Rows(rows, sum(len(row["input_ids"]) for row in rows), left_out, cut)

    def build(self, task: TrainTask, rows: Any, held_out: Any) -> Any:
        """Return trl's trainer. Raises ConfigError: the base is not a causal model, or has no such layer."""
        from peft import LoraConfig
        from trl import SFTConfig, SFTTrainer

        args = SFTConfig(
            **self.arguments(task, rows, held_out),
            max_length=self.max_length,
            completion_only_loss=self.loss_on == "target",
        )
        adapter = LoraConfig(
            r=self.lora_r, lora_alpha=self.lora_alpha, lora_dropout=self.dropout, bias="none", task_type="CAUSAL_LM",
            target_modules=self.target_modules[0] if self.target_modules == ("all-linear",) else [*self.target_modules],
        )  # fmt: skip
        network = self._load_base(Path(task.base), args.device)
        try:
            return SFTTrainer(model=network, args=args, peft_config=adapter, **self.datasets(task, rows, held_out))
        except ValueError as error:
            if "Target modules" not in str(error):
                raise
            last = network.get_output_embeddings()
            modules = [
                name for name, each in network.named_modules() if hasattr(each, "in_features") and each is not last
            ]
            known = ", ".join(sorted({name.rpartition(".")[2] for name in modules}))
            names = ",".join(self.target_modules)
            raise ConfigError(f"train.target_modules={names}: the base has no such layer. It has {known}") from error

    def _load_base(self, folder: Path, device: Any) -> Any:
        import torch
        from transformers import AutoModelForCausalLM, BitsAndBytesConfig

        dtype, settings = getattr(torch, self.precision), dict[str, Any]()
        if self.quantization == "nf4":
            logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it reports every cast
            settings["device_map"] = {"": device}
            settings["quantization_config"] = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=self.double_quantization,
                bnb_4bit_compute_dtype=dtype,
                bnb_4bit_quant_storage=dtype,  # so that FSDP can shard it
            )
        try:
            network = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, local_files_only=True, attn_implementation="sdpa", **settings
            )
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"train.base={self.base}: {folder}: not a causal model: {error}") from error
        keep_four_bits(network)
        network.config.use_cache = False
        return network

    def prompt_of(self, row: Any) -> list[int]:
        return list(row["input_ids"][: row["completion_mask"].index(1)])

    def save(self, trainer: Any, task: TrainTask, folder: Path) -> None:
        """Save the adapter, with equal bytes for equal trainings."""
        config = trainer.model.peft_config["default"]
        config.base_model_name_or_path = task.base_name  # instead of a path of this machine
        config.target_modules = sorted(config.target_modules)  # PEFT has a set
        trainer.model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)  # PEFT's empty card; ours is in the folder above


def merge(base: Path, adapter: Path, out: Path) -> None:
    """Write base and adapter as one transformers folder, in the base's own precision."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from kgqa.training.trainers.library import replace_folder
    from kgqa.training.trainers.seq2seq import copy_tokenizer

    network = AutoModelForCausalLM.from_pretrained(base, dtype="auto", local_files_only=True)
    merged = PeftModel.from_pretrained(network, str(adapter)).merge_and_unload()

    def save(folder: Path) -> None:
        merged.save_pretrained(folder)
        copy_tokenizer(base, folder)

    replace_folder(out, save)
