"""What a training takes, reckoned from its recipe, its base's size and how much it learns: steps, memory, hours."""

from __future__ import annotations

from dataclasses import dataclass

from kgqa.experiment.train.shapes import Shapes
from kgqa.training import BiEncoderTraining
from kgqa.training.schedule import Schedule

BYTES = {"bfloat16": 2.0, "float32": 4.0, "nf4": 0.6}  # a parameter of the base; NF4 with its scales and embeddings
TRAINED = 16  # bytes a trainable parameter: itself, its gradient and Adam's two moments in float32
LOGITS = 12  # bytes a logit: in float32 with its gradient and its softmax
KEPT = 34  # bytes of activations a token, a layer and a unit of width (Korthikanti et al., 2022, without attention)
CHECKPOINTED = 2  # of these, where they are computed twice
FLOPS = 6  # a parameter and token: forwards, backwards and, in an adapter's place, activations again
FORWARD = 2  # of these forwards alone, as an answer takes them
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "A6000": 155e12, "L40": 181e12, "4090": 165e12}  # bfloat16
SHARE = 0.38  # of the peak that is reached


@dataclass(frozen=True)
class Reckoning:
    """`shapes`: None where the base's size is not known. `tokens`: of one pass over all; `longest`: of one at most."""

    training: Schedule
    shapes: Shapes | None
    examples: int
    questions: int
    tokens: int
    longest: int

    @property
    def pairs(self) -> bool:
        """Whether pairs of texts are learnt, whose batches count questions."""
        return isinstance(self.training, BiEncoderTraining)

    @property
    def epochs(self) -> float:
        training = self.training
        if training.max_steps and self.examples:
            return training.max_steps * training.batch / self.examples
        return training.epochs

    @property
    def steps(self) -> int:
        return self.training.steps(self.questions if self.pairs else self.examples)

    @property
    def trainable(self) -> int | None:
        if self.shapes is None:
            return None
        rank = getattr(self.training, "rank", None)
        if rank is None:
            return round(self.shapes.parameters)
        return self.shapes.adapter(rank, self.training.targets)  # type: ignore[attr-defined]

    @property
    def memory(self) -> dict[str, float]:
        """Bytes by what takes them; empty where the base's size is not known."""
        training, shapes = self.training, self.shapes
        if shapes is None or self.trainable is None:
            return {}
        lora = hasattr(training, "rank")
        form = "nf4" if getattr(training, "quantization", "none") == "nf4" else training.precision
        rows = getattr(training, "texts_at_once", training.batch_per_device)
        often = CHECKPOINTED if getattr(training, "activation_checkpointing", False) else KEPT
        places = self.longest * rows
        return {
            "base": shapes.parameters * BYTES[form] if lora else 0.0,
            "trainable": float(self.trainable * TRAINED),
            "logits": 0.0 if self.pairs else float(min(places, 512 * rows) * shapes.vocabulary * LOGITS),
            "activations": float(places * shapes.layers * shapes.width * often + places * shapes.width * KEPT),
        }

    def seconds(self, speed: float) -> float | None:
        """At so many FLOPs a second; None where the base's size is not known."""
        return None if self.shapes is None else self.tokens * self.epochs * FLOPS * self.shapes.parameters / speed

    @property
    def on_h100(self) -> float | None:
        """Seconds; float32 is computed at half of bfloat16's speed, as TF32."""
        return self.seconds(PEAK["H100"] * SHARE / (2 if self.training.precision == "float32" else 1))
