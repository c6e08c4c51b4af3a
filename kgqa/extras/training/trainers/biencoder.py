"""Bi-encoders as MDR and DPR train them, by sentence-transformers: in-batch softmax with a cached gradient.

The batch decides how hard the task is, so it is not limited by memory (Gao et al., RepL4NLP 2021). A batch has pairs of
one hop, so that the second fact of a question is not a negative at its first hop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from kgqa.artifacts.trained import ENCODER
from kgqa.errors import ConfigError
from kgqa.extras.training.trainers.base import MODULES, Row, Rows, Trainer
from kgqa.extras.training.trainers.process import PairExample, TrainTask
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural, Positive

# the default of sentence-transformers: without it, a softmax over cosines is nearly flat
COSINE_SCALE = 20.0


@dataclass(frozen=True)
class BiEncoderTraining(Trainer):
    """One encoder for both sides. `negatives`: per pair, in addition to the batch. `dimension`: of the linear layer.

    dimension: None keeps the pooling of the base, without linear layer and layer norm.
    max_question, max_follow_up, max_passage: tokens of a question, of a question with facts, and of a passage.
    scale: of inner products. None: 1, and 20 if the base makes unit vectors.
    chunk_size: texts with their gradient in memory at once.
    """

    dimension: Annotated[
        Count | None,
        Setting(
            "Dimensions of the vectors. null: the base's own pooling.",
            paper="supplement 8.2, Table 4",
            other="null keeps the base's own pooling",
        ),
    ] = 768
    max_question: Annotated[
        Count, Setting("Maximum tokens of a question.", code="released code")
    ] = 70
    max_follow_up: Annotated[
        Count,
        Setting(
            "Maximum tokens of question and first fact.",
            code="released code",
            paper="Table 4: of 128, 256, 350",
        ),
    ] = 350
    max_passage: Annotated[Count, Setting("Maximum tokens of a passage.", code="released code")] = (
        300
    )
    negatives: Annotated[
        Natural, Setting("Negative passages per example.", code="released code")
    ] = 1
    scale: Annotated[
        Positive | None,
        Setting(
            "Factor of inner products. null: 1 as released, or 20 for unit vectors, the default of "
            "sentence-transformers."
        ),
    ] = None
    chunk_size: Annotated[Count, Setting("Texts per forward pass. More need more memory.")] = 32

    title: ClassVar[str] = "bi-encoder"
    output: ClassVar[str] = ENCODER
    learns_pairs: ClassVar[bool] = True

    @property
    def packages(self) -> tuple[str, tuple[str, ...]]:
        return "train,sentence-transformers", (*MODULES, "sentence_transformers")

    @property
    def longest(self) -> int:
        return self.max_question + self.max_follow_up + self.max_passage

    def tokenize(self, tokenizer: Any, example: PairExample) -> tuple[Row, int, bool]:
        """Return the texts of a pair within their limits. Truncated pairs do not count."""

        def shorten(text: str, limit: int) -> tuple[str, int]:
            """Return the text within the limit, and its number of tokens."""
            encoded = tokenizer(
                text, truncation=True, max_length=limit, return_offsets_mapping=True
            )
            return text[: max(end for _, end in encoded["offset_mapping"])], len(
                encoded["input_ids"]
            )

        is_later = example.hop is not None and example.hop > 1
        anchor, size = shorten(
            example.anchor, self.max_follow_up if is_later else self.max_question
        )
        passages = [
            shorten(text, self.max_passage) for text in (example.positive, *example.negatives)
        ]
        positive, *negatives = (text for text, _ in passages)
        row = {"hop": example.hop, "anchor": anchor, "positive": positive, "negatives": negatives}
        return row, size + sum(count for _, count in passages[: 1 + self.negatives]), False

    def build(self, task: TrainTask, rows: Rows, held_out: Rows) -> Any:
        """Return sentence-transformers' trainer for these pairs.

        Raises ConfigError: the base is not an encoder, or there are several processes.
        """
        from sentence_transformers import (
            SentenceTransformerTrainer,
            SentenceTransformerTrainingArguments,
        )
        from sentence_transformers.losses import CachedMultipleNegativesRankingLoss
        from sentence_transformers.training_args import BatchSamplers

        if self.processes > 1:
            raise ConfigError(
                f"train.processes={self.processes}: a bi-encoder is trained by one process, because its batch is one "
                "softmax. Lower train.chunk_size if memory is short"
            )
        args = SentenceTransformerTrainingArguments(
            **self.arguments(task, rows, held_out), batch_sampler=BatchSamplers.NO_DUPLICATES
        )
        network = self._load_base(Path(task.base), args.device)
        scale = self.scale or (1.0 if network.similarity_fn_name == "dot" else COSINE_SCALE)
        loss = CachedMultipleNegativesRankingLoss(
            network, scale=scale, similarity_fct=network.similarity, mini_batch_size=self.chunk_size
        )
        return SentenceTransformerTrainer(
            model=network,
            args=args,
            train_dataset=self._datasets(rows.rows),
            eval_dataset=self._datasets(held_out.rows) if held_out.rows else None,
            loss=loss,
        )

    def _datasets(self, rows: Sequence[Row]) -> Any:
        """Return a dataset for each hop and number of negatives, since all rows of one have the same columns."""
        from datasets import Dataset, DatasetDict

        by_shape: dict[str, list[dict[str, str]]] = defaultdict(list)
        for row in rows:
            negatives = row["negatives"][: self.negatives]
            columns = {f"negative {number}": text for number, text in enumerate(negatives, 1)}
            line = {"anchor": row["anchor"], "positive": row["positive"], **columns}
            by_shape[f"hop {row['hop']}, {len(negatives)} negatives"].append(line)
        return DatasetDict(
            {name: Dataset.from_list(lines) for name, lines in sorted(by_shape.items())}
        )

    def _load_base(self, folder: Path, device: Any) -> Any:
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Dense, LayerNorm, Pooling, Transformer

        torch.manual_seed(self.seed)
        try:
            if self.dimension is None:
                return SentenceTransformer(
                    str(folder), device=str(device), local_files_only=True
                ).float()
            words = Transformer(str(folder), max_seq_length=self.max_follow_up)
            width = words.get_word_embedding_dimension()
            dense = Dense(width, self.dimension, activation_function=torch.nn.Identity())
            modules = [words, Pooling(width, pooling_mode="cls"), dense, LayerNorm(self.dimension)]
            network = SentenceTransformer(
                modules=modules, device=str(device), similarity_fn_name="dot"
            )
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"train.base={self.base}: {folder}: not an encoder: {error}"
            ) from error
        return network.float()

    def save(self, trainer: Any, task: TrainTask, folder: Path) -> None:
        """Save a folder of sentence-transformers."""
        del task
        trainer.model.save(str(folder), create_model_card=False, safe_serialization=True)
