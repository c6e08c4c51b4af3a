"""What a training will take, before it begins: steps, parameters, memory against the device, hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.trained import Trained, kept_trainings
from kgqa.counting import counted
from kgqa.engines.weights import is_gguf
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.machine.hardware import GB, cores, gpus, memory
from kgqa.experiment.train.examples import Parted, Written
from kgqa.experiment.train.request import TrainRequest
from kgqa.experiment.train.running import finished
from kgqa.experiment.train.shapes import Shapes, read, reckoned
from kgqa.extras import absent
from kgqa.storage import home

BYTES = {"bfloat16": 2.0, "float32": 4.0, "nf4": 0.6}  # a parameter of the base; NF4 with its scales and embeddings
TRAINED = 16  # bytes a trainable parameter: itself, its gradient and Adam's two moments in float32
LOGITS = 12  # bytes a logit: in float32 with its gradient and its softmax
KEPT = 34  # bytes of activations a token, a layer and a unit of width (Korthikanti et al., 2022, without attention)
CHECKPOINTED = 2  # of these, where they are computed twice
FLOPS = 6  # a parameter and token: forwards, backwards and, in an adapter's place, activations again
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "A6000": 155e12, "L40": 181e12, "4090": 165e12}  # bfloat16
SHARE = 0.38  # of the peak that is reached
CORE = 25e9  # FLOPs a second of a core of a CPU
CHARACTERS = 4  # a token, where no tokenizer is here


@dataclass(frozen=True)
class Plan:
    """`tokens`: of one pass over all examples. `longest`: tokens of one, at most."""

    request: TrainRequest
    examples: Parted
    shapes: Shapes | None
    tokens: int
    longest: int
    counted: bool  # by the base's own tokenizer
    rate: float | None  # tokens a second of an earlier training here
    done: Path | None  # where it is trained already

    @property
    def example(self) -> Iterator[tuple[str, str]]:
        first = self.examples.train[0]
        if isinstance(first, Written):
            yield f"prompt of {first.id}", first.prompt
            yield "what it shall write", first.completion
        else:
            yield f"anchor of {first.id}", first.anchor
            yield "its passage", first.positive

    @property
    def epochs(self) -> float:
        training, count = self.request.training, len(self.examples.train)
        return training.max_steps * training.batch / count if training.max_steps else training.epochs

    @property
    def steps(self) -> int:
        train = self.examples.questions if self.request.pairs else self.examples.train
        return self.request.training.steps(len(train))

    @property
    def trainable(self) -> int | None:
        if self.shapes is None:
            return None
        rank = getattr(self.request.training, "rank", None)
        if rank is None:
            return round(self.shapes.parameters)
        return self.shapes.adapter(rank, self.request.training.targets)  # type: ignore[attr-defined]

    @property
    def memory(self) -> dict[str, float]:
        """Bytes by what takes them; empty where the base's size is not known."""
        training, shapes = self.request.training, self.shapes
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
            "logits": 0.0 if self.request.pairs else float(min(places, 512 * rows) * shapes.vocabulary * LOGITS),
            "activations": float(places * shapes.layers * shapes.width * often + places * shapes.width * KEPT),
        }

    def seconds(self) -> tuple[float, str] | None:
        """On this machine, and where that is from; None where the base's size is not known."""
        tokens = self.tokens * self.epochs
        if self.rate:
            return tokens / self.rate, "measured: this machine's last training of this base"
        if self.shapes is None:
            return None
        speed, device = _speed()
        return tokens * FLOPS * self.shapes.parameters / speed, f"estimated: {device}"

    def rows(self) -> Iterator[tuple[str, str]]:
        """For a person."""
        training = self.request.training
        train = f"{counted(len(self.examples.train), 'example')} of {counted(len(self.examples.questions), 'question')}"
        held = self.examples
        yield "examples", train
        yield "held out", f"{counted(len(held.held_out), 'example')} of {len(held.held_out_questions):,} questions"
        yield "steps", f"{self.steps:,} of {training.batch} ({self.epochs:g} epochs)"
        about = "" if self.counted else ", estimated: no tokenizer of the base is here"
        yield "tokens", f"{self.tokens:,} an epoch, {self.longest:,} the longest example{about}"
        if self.shapes and self.trainable is not None:
            note = ", reckoned from its size" if self.shapes.reckoned else ""
            yield "trainable parameters", f"{self.trainable:,} of {self.shapes.parameters:,.0f}{note}"
        if self.memory:
            parts = ", ".join(f"{name} {size / GB:.1f}" for name, size in self.memory.items() if size >= GB / 20)
            yield "memory", f"about {sum(self.memory.values()) / GB:.1f} GB ({parts}); here: {_room() / GB:.0f} GB"
        if taken := self.seconds():
            yield "time", f"about {_hours(taken[0])} ({taken[1]})"
        if self.shapes and not gpus():
            on_h100 = self.tokens * self.epochs * FLOPS * self.shapes.parameters / (PEAK["H100"] * SHARE)
            yield "", f"about {_hours(on_h100)} on one H100 (estimated: {SHARE:.0%} of its peak)"
        yield "weights", "here" if self.request.base.here else "not here: kgqa models says how to get them"
        yield "folder", str(self.done or self.request.name)

    @property
    def alarms(self) -> list[str]:
        """What will not work as it is."""
        told = []
        if self.memory and sum(self.memory.values()) > _room():
            told.append(f"more memory than is here; {_remedy(self.request)}")
        if self.done:
            told.append(f"trained already: {self.done}")
        return told


def planned(request: TrainRequest, examples: Parted) -> Plan:
    """Loads nothing heavy; weights may be missing."""
    folder = _folder(request)
    counts, counted = _counts(request, examples, folder)
    here = request.folder(examples) if request.base.here else None
    return Plan(
        request=request,
        examples=examples,
        shapes=_shapes(request, folder),
        tokens=sum(counts),
        longest=max(counts, default=0),
        counted=counted,
        rate=_measured_rate(request),
        done=here if here and finished(here) else None,
    )


def planned_for(request: TrainRequest, tokens: int) -> Plan:
    """The same of examples that are not there yet, of which only so many tokens are known."""
    shapes = _shapes(request, _folder(request))
    return Plan(request, Parted((), ()), shapes, tokens, 0, counted=False, rate=_measured_rate(request), done=None)


def _folder(request: TrainRequest) -> Path | None:
    """The base as a transformers folder, where it is one or was turned into one already."""
    model = request.base.model
    if model is None:
        from kgqa import hub

        return hub.on_disk(request.base.encoder or "")
    if not request.base.here:
        return None
    try:
        weights = model.locate()
    except (ConfigError, DataError):
        return None
    if not is_gguf(weights):
        return weights
    found = [*(home() / "models").glob(f"{weights.stem}-{model.digest()[:12]}-bf16")]
    return found[0] if found else None


def _shapes(request: TrainRequest, folder: Path | None) -> Shapes | None:
    if folder and any(folder.glob("*.safetensors")):
        shapes = read(folder)
        smallest, rank = shapes.smallest(), getattr(request.training, "rank", 0)
        if smallest and rank > min(smallest[1:]):
            raise ConfigError(
                f"train.rank={rank}: too large for {smallest[0]}, which has {smallest[2]} × {smallest[1]} weights; "
                f"take {min(smallest[1:])} or less"
            )
        return shapes
    size = request.base.parameters
    return reckoned(size) if size else None


def _counts(request: TrainRequest, examples: Parted, folder: Path | None) -> tuple[list[int], bool]:
    """Tokens of each example, and whether the base's own tokenizer counted them."""
    texts = [" ".join(_texts(example)) for example in examples.train]
    limit = _longest(request)
    if folder is None or absent(["tokenizers"]) or not (folder / "tokenizer.json").is_file():
        return [min(len(text) // CHARACTERS + 1, limit) for text in texts], False
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    return [min(len(tokenizer.encode(text, add_special_tokens=False).ids), limit) for text in texts], True


def _longest(request: TrainRequest) -> int:
    training = request.training
    longest = getattr(training, "max_length", None)
    if longest is None:
        lengths = ("max_input", "max_output", "max_question", "max_follow_up", "max_passage")
        longest = sum(getattr(training, name, 0) for name in lengths)
    return int(longest)


def _texts(example: object) -> Iterable[str]:
    if isinstance(example, Written):
        return example.prompt, example.completion
    return (example.anchor, example.positive, *example.negatives)  # type: ignore[attr-defined]


def _measured_rate(request: TrainRequest) -> float | None:
    """Tokens a second of the newest training of the same kind on the same base."""
    base = request.base.digest() if request.base.here else None
    for kept in kept_trainings() if base else ():
        if kept.ended:
            trained = Trained.read(kept.folder)
            if (trained.kind, trained.base_sha256) == (request.kind, base) and trained.seconds > 0:
                return trained.tokens / float(trained.seconds)
    return None


def _speed() -> tuple[float, str]:
    """FLOPs a second that can be hoped for, and of what."""
    for gpu in gpus():
        for name, peak in PEAK.items():
            if name in gpu.name:
                return peak * SHARE, f"{SHARE:.0%} of {gpu.name}'s peak"
        return PEAK["A6000"] * SHARE, f"{gpu.name} taken for an A6000"
    return CORE * cores(), f"{cores()} cores at {CORE / 1e9:.0f} GFLOPs"


def _room() -> float:
    return float(max((gpu.memory for gpu in gpus()), default=memory()))


def _remedy(request: TrainRequest) -> str:
    if getattr(request.training, "quantization", "") == "none":
        return "give train.quantization=nf4, or a smaller train.max_length"
    if request.pairs:
        return "lower train.texts_at_once"
    return "lower train.max_length or train.batch_per_device, or take a smaller train.base"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{max(1, round(seconds / 60))} minutes"
