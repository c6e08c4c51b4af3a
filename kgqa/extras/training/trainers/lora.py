"""LoRA and QLoRA on a causal model, by trl's SFTTrainer.

Adapters are plain PEFT (no saved modules, no DoRA), so that every engine reads them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from kgqa.errors import ConfigError
from kgqa.extras.training.trainers.base import MODULES, Row, Rows, TextTrainer, encode
from kgqa.extras.training.trainers.process import TextExample, TrainTask
from kgqa.util.optional_deps import keep_four_bits
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Validator

Share = Annotated[float, Validator("must be at least 0 and below 1", lambda share: 0 <= share < 1)]


@dataclass(frozen=True)
class LoraTraining(TextTrainer):
    """An adapter on a causal model. `target_modules`: names of layers, or ["all-linear"]: all but the last.

    quantization: nf4 stores the base in 4 bits (QLoRA, Dettmers et al. 2023).
    loss_on: the target, or the prompt as well.
    """

    lora_r: Annotated[Count, Setting("Rank of the adapter.", code="released code")] = 8
    lora_alpha: Annotated[
        Count, Setting("Scale of the adapter: lora_alpha / lora_r.", code="released code")
    ] = 16
    dropout: Annotated[Share, Setting("Dropout of the adapter.", code="released code")] = 0.05
    target_modules: Annotated[
        tuple[str, ...], Setting("Modules with an adapter.", code="only q and v")
    ] = ("all-linear",)
    quantization: Annotated[
        Literal["none", "nf4"], Setting("Base weights: none | nf4 (QLoRA).", paper="§4: LoRA")
    ] = "none"
    double_quantization: Annotated[bool, Setting("Quantize the scales of nf4 weights, too.")] = (
        False
    )
    max_length: Annotated[
        Count, Setting("Maximum tokens of an example.", ours="the released code has 256")
    ] = 8192
    loss_on: Annotated[
        Literal["target", "all"],
        Setting("Tokens with a loss: target | all, as in experiment=kgp_llama_released."),
    ] = "target"

    title: ClassVar[str] = "LoRA adapter"
    output: ClassVar[str] = "adapter"

    @property
    def packages(self) -> tuple[str, tuple[str, ...]]:
        modules = (*MODULES, "peft", "trl")
        return (
            ("train", modules)
            if self.quantization == "none"
            else ("train,quantization", (*modules, "bitsandbytes"))
        )

    @property
    def longest(self) -> int:
        return self.max_length

    def tokenize(self, tokenizer: Any, example: TextExample) -> tuple[Row | None, int, bool]:
        prompt = encode(tokenizer, example.prompt)
        ids = [*prompt, *encode(tokenizer, example.completion), tokenizer.eos_token_id]
        is_long = len(ids) > self.max_length
        if is_long and (not self.truncation or len(prompt) >= self.max_length):
            return None, 0, False
        ids = ids[: self.max_length]
        mask = [0] * len(prompt) + [1] * (len(ids) - len(prompt))
        return {"input_ids": ids, "completion_mask": mask}, len(ids), is_long

    def build(self, task: TrainTask, rows: Rows, held_out: Rows) -> Any:
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
            return SFTTrainer(
                model=network, args=args, peft_config=adapter, **self.datasets(task, rows, held_out)
            )
        except ValueError as error:
            if "Target modules" not in str(error):
                raise
            names = ",".join(self.target_modules)
            raise ConfigError(
                f"train.target_modules={names}: the base has no such layer: {error}"
            ) from error

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
                # so that FSDP can shard it
                bnb_4bit_quant_storage=dtype,
            )
        try:
            network = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, local_files_only=True, **settings
            )
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"train.base={self.base}: {folder}: not a causal model: {error}"
            ) from error
        keep_four_bits(network)
        network.config.use_cache = False
        return network

    def prompt_of(self, row: Row) -> list[int]:
        return list(row["input_ids"][: row["completion_mask"].index(1)])

    def save(self, trainer: Any, task: TrainTask, folder: Path) -> None:
        """Save the adapter, with equal bytes for equal trainings."""
        config = trainer.model.peft_config["default"]
        # instead of a path of this machine
        config.base_model_name_or_path = task.base_name
        config.target_modules = sorted(config.target_modules)  # PEFT has a set
        trainer.model.save_pretrained(folder)
        # PEFT's empty card; ours is in the folder above
        (folder / "README.md").unlink(missing_ok=True)
