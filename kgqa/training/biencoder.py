"""Bi-encoders as MDR and DPR train them: first token → linear layer → layer norm, inner product, in-batch softmax.

The batch decides how hard the task is, so it is not what fits into memory: embeddings of the whole batch are computed
first, then the gradient of each is carried back a few texts at a time (Gao et al., RepL4NLP 2021).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgqa.artefacts.form import checked, read_lines
from kgqa.constraints import Count, Natural, Positive
from kgqa.errors import ConfigError
from kgqa.storage import storing
from kgqa.training.job import ENCODER, Job
from kgqa.training.loop import Lesson, Network, Tensor
from kgqa.training.schedule import Schedule
from kgqa.training.texts import Rows

UNIT_SCALE = 20.0  # sentence-transformers' own for cosines: without it a softmax over them is nearly flat


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file of pairs. `hop`: 1 where the anchor is the question, 2 behind its first fact; None: no order.

    `question`: lines of one question go together, and its other positives are no negatives of this anchor.
    """

    id: str
    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    question: str = ""
    hop: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """All lines of a question: what a batch is counted in."""

    id: str
    lines: tuple[Line, ...]
    length: int  # texts; they are put into tokens when they are embedded


@dataclass(frozen=True)
class BiEncoderTraining(Schedule):
    """One encoder for both sides. `negatives`: of each line, beside the batch's. `dimension`: of the linear layer.

    max_question, max_follow_up, max_passage: tokens of a question, of one with facts behind it, and of a passage.
    batch: questions a step; texts_at_once: that are carried back together.
    """

    dimension: Count | None  # None: neither linear layer nor layer norm, the base's own pooling stays
    max_question: Count
    max_follow_up: Count
    max_passage: Count
    negatives: Natural
    scale: Positive | None  # of inner products; None: 1, and 20 where the base makes unit vectors
    texts_at_once: Count

    def read(self, file: Path, base: Path) -> Rows:
        """By question, in the file's order. Raises DataError naming the line."""
        del base
        by_question: dict[str, list[Line]] = {}
        for place, value in read_lines(file):
            line = checked(Line, value, place)
            by_question.setdefault(line.question or line.id, []).append(line)
        asked = [Asked(name, tuple(lines), len(lines)) for name, lines in by_question.items()]
        return Rows(tuple(asked), 0, 0)  # type: ignore[arg-type]

    def network(self, base: Path, device: Any) -> Any:
        """Raises ConfigError: the base is no encoder, or there are several processes."""
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Dense, LayerNorm, Pooling, Transformer

        if self.processes > 1:
            raise ConfigError(
                f"train.processes={self.processes}: a bi-encoder is trained by one, as its batch is one softmax; "
                "lower train.texts_at_once where memory is short"
            )
        torch.manual_seed(self.seed)
        try:
            if self.dimension is None:
                network = SentenceTransformer(str(base), device=str(device), local_files_only=True)
            else:
                words = Transformer(str(base), max_seq_length=self.max_follow_up)
                width = words.get_word_embedding_dimension()
                pooling = Pooling(width, pooling_mode="cls")
                dense = Dense(width, self.dimension, activation_function=torch.nn.Identity())
                network = SentenceTransformer(
                    modules=[words, pooling, dense, LayerNorm(self.dimension)], device=str(device)
                )
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"train.base={self.base}: {base}: not an encoder: {error}") from error
        network.similarity_fn_name = "dot" if self.dimension is not None else network.similarity_fn_name
        return network.float()

    def lesson(self, network: Any, rows: Rows, held_out: Rows) -> Lesson:
        return Lesson(
            network,
            rows.rows,
            lambda asked: _batch(asked, self.negatives),
            lambda trained, batch: self._loss(trained, self._embedded(trained, batch["texts"]), batch),
            lambda trained: self.losses(trained, held_out)[0],
            backward=self._backward,
        )

    def losses(self, network: Any, held_out: Rows) -> tuple[float | None, dict[str, list[float | None]]]:
        """Of the held-out questions: the mean loss of a line among its own question's texts, and figures of each
        question by hop: 1 where the gold passage is first, and its reciprocal rank. At the second hop the first fact is
        in the anchor and known: it counts in the loss, as in training, and not among those that are ranked."""
        import torch

        figures: dict[str, list[float | None]] = {}
        losses: list[float] = []
        was_training = network.training
        network.eval()
        for place, asked in enumerate(held_out.rows):
            batch = _batch([asked], None)
            with torch.inference_mode():
                embedded = self._embedded(network, batch["texts"])
                scores = _scores(embedded, batch)
                losses.append(float(self._loss(network, embedded, batch)) / len(batch["gold"]))
            known = torch.tensor(batch["known"], device=scores.device)
            for hop, row, gold in zip(batch["hops"], scores.masked_fill(known, -torch.inf), batch["gold"], strict=True):
                rank = 1 + int((row > row[gold]).sum())
                shown = f", hop {hop}" if hop is not None else ""
                for name, value in ((f"first place{shown}", float(rank == 1)), (f"reciprocal rank{shown}", 1 / rank)):
                    listed = figures.setdefault(name, [None] * len(held_out.rows))
                    listed[place] = value
        network.train(was_training)
        return (sum(losses) / len(losses) if losses else None), figures

    def answer(self, network: Any, base: Path, held_out: Rows) -> list[str]:
        del network, base, held_out
        return []  # it writes nothing

    def save(self, network: Any, job: Job) -> None:
        """A folder of sentence-transformers, whole or not at all. Raises StorageError: the disk is full or refuses."""
        fresh = job.place / f"{ENCODER}.new"
        with storing(fresh):
            shutil.rmtree(fresh, ignore_errors=True)
            network.save(str(fresh), create_model_card=False, safe_serialization=True)
            shutil.rmtree(job.place / ENCODER, ignore_errors=True)
            fresh.replace(job.place / ENCODER)

    def _backward(self, trainer: Any, network: Network, batch: dict[str, Any]) -> Tensor:
        """The gradient of a batch that need not fit into memory; gives the loss."""
        import torch

        pieces = list(_pieces(batch["texts"], self.texts_at_once))
        chances, found = [], []
        with torch.no_grad():
            for piece in pieces:
                chances.append(_chance(network))
                with trainer.compute_loss_context_manager():
                    found.append(self._embedded(network, piece).float())
            trainer.tokens += self._tokens(network, batch["texts"])
        embedded = torch.cat(found).requires_grad_()
        loss = self._loss(network, embedded, batch) / len(batch["gold"])
        loss.backward()
        gradients = embedded.grad.split([len(each) for each in found])
        for piece, chance, gradient in zip(pieces, chances, gradients, strict=True):
            with _same_chance(chance), trainer.compute_loss_context_manager():
                again = self._embedded(network, piece).float()
            trainer.accelerator.backward((again * gradient).sum() / trainer.current_gradient_accumulation_steps)
        return loss.detach() / trainer.current_gradient_accumulation_steps

    def _embedded(self, network: Network, texts: Sequence[tuple[str, str]]) -> Tensor:
        """(texts, dimension), in their order; texts of a kind have a length of their own."""
        import torch

        longest = {"question": self.max_question, "follow-up": self.max_follow_up, "passage": self.max_passage}
        device = next(network.parameters()).device
        ordered: list[Tensor] = [None] * len(texts)
        for kind, most in longest.items():
            places = [place for place, (name, _) in enumerate(texts) if name == kind]
            if not places:
                continue
            features = network.tokenizer(
                [texts[place][1] for place in places], padding=True, truncation=True, max_length=most,
                return_tensors="pt",
            )  # fmt: skip
            out = network({name: value.to(device) for name, value in features.items()})["sentence_embedding"]
            for place, embedding in zip(places, out, strict=True):
                ordered[place] = embedding
        return torch.stack(ordered)

    def _tokens(self, network: Network, texts: Sequence[tuple[str, str]]) -> int:
        """Of all texts, cut as they are embedded."""
        lengths = network.tokenizer([text for _, text in texts], truncation=True, max_length=self.max_follow_up)
        return sum(map(len, lengths["input_ids"]))

    def _loss(self, network: Network, embedded: Tensor, batch: dict[str, Any]) -> Tensor:
        """Softmax over all passages of the batch, summed over the anchors."""
        import torch

        gold = torch.tensor(batch["gold"], device=embedded.device)
        scale = self.scale or (1.0 if network.similarity_fn_name == "dot" else UNIT_SCALE)
        return torch.nn.functional.cross_entropy(scale * _scores(embedded, batch).float(), gold, reduction="sum")


def _scores(embedded: Tensor, batch: dict[str, Any]) -> Tensor:
    """(anchors, passages), inner products; -inf for what is no negative."""
    import torch

    anchors = len(batch["gold"])
    scores = embedded[:anchors] @ embedded[anchors:].T
    return scores.masked_fill(torch.tensor(batch["masked"], device=scores.device), float("-inf"))


def _batch(asked: Sequence[Any], negatives: int | None) -> dict[str, Any]:
    """`texts`: the anchors, then the passages, with their kinds; `gold`: of each anchor, among the passages.

    A question's other positives are masked where they come later (MDR: the second fact is no wrong answer at the first
    hop, the first one is at the second), all of them where there is no order. `known`: of each anchor, the facts in it.
    `negatives`: of each line, None: all.
    """
    lines = [line for each in asked for line in each.lines]
    passages = [("passage", line.positive) for line in lines]
    owners: list[Line | None] = list(lines)
    for line in lines:
        for text in line.negatives[:negatives]:
            if ("passage", text) not in passages or negatives is not None:
                passages.append(("passage", text))
                owners.append(None)
    return {
        "texts": [("question" if (line.hop or 1) == 1 else "follow-up", line.anchor) for line in lines] + passages,
        "gold": list(range(len(lines))),
        "hops": [line.hop for line in lines],
        "masked": [[_is_no_negative(line, other) for other in owners] for line in lines],
        "known": [[_is_known(line, other) for other in owners] for line in lines],
    }


def _is_no_negative(line: Line, other: Line | None) -> bool:
    if other is None or other is line or not line.question or line.question != other.question:
        return False
    return line.hop is None or other.hop is None or other.hop > line.hop


def _is_known(line: Line, other: Line | None) -> bool:
    if other is None or not line.question or line.question != other.question:
        return False
    return line.hop is not None and other.hop is not None and other.hop < line.hop


def _pieces(texts: Sequence[tuple[str, str]], size: int) -> Iterator[Sequence[tuple[str, str]]]:
    for first in range(0, len(texts), size):
        yield texts[first : first + size]


def _chance(network: Network) -> Any:
    """The state of what draws dropout, so that the second pass draws the same."""
    import torch

    device = next(network.parameters()).device
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


@contextmanager
def _same_chance(chance: Any) -> Iterator[None]:
    import torch

    with torch.random.fork_rng():
        torch.set_rng_state(chance[0])
        if chance[1] is not None:
            torch.cuda.set_rng_state(chance[1])
        yield
