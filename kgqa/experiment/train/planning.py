"""What a training will take, before it begins: steps, parameters, memory against the device, hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.trained import Trained, kept_trainings
from kgqa.counting import counted
from kgqa.engines.weights import is_gguf
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.machine.hardware import GB, gpus, memory, product_speed
from kgqa.experiment.train.examples import Parted, Written
from kgqa.experiment.train.reckoning import PEAK, SHARE, Reckoning
from kgqa.experiment.train.request import TrainRequest
from kgqa.experiment.train.running import finished
from kgqa.experiment.train.shapes import Shapes, read, reckoned
from kgqa.extras import absent
from kgqa.storage import home

CHARACTERS = 4  # a token, where no tokenizer is here


@dataclass(frozen=True)
class Plan:
    """`kept`: examples not left out as too long. `tokens`: of one pass over them. `longest`: of one at most."""

    request: TrainRequest
    examples: Parted
    kept: int
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
    def reckoning(self) -> Reckoning:
        questions = len(self.examples.questions)
        return Reckoning(self.request.training, self.shapes, self.kept, questions, self.tokens, self.longest)

    @property
    def memory(self) -> dict[str, float]:
        """Bytes by what takes them; empty where the base's size is not known."""
        return self.reckoning.memory

    def seconds(self) -> tuple[float, str] | None:
        """On this machine, and where that is from; None where the base's size is not known."""
        if self.rate:
            return (
                self.tokens * self.reckoning.epochs / self.rate,
                "measured: this machine's last training of this base",
            )
        speed, device = _speed()
        hoped = self.reckoning.seconds(speed)
        return None if hoped is None else (hoped, f"estimated: {device}")

    def rows(self) -> Iterator[tuple[str, str]]:
        """For a person."""
        training, reckoning = self.request.training, self.reckoning
        train = f"{counted(len(self.examples.train), 'example')} of {counted(len(self.examples.questions), 'question')}"
        held = self.examples
        yield "examples", train
        about = "" if self.counted else ", estimated: no tokenizer of the base is here"
        if too_long := len(self.examples.train) - self.kept:
            yield "left out", f"{too_long:,} of them, longer than train.max_length={_longest(self.request):,}{about}"
        yield "held out", f"{counted(len(held.held_out), 'example')} of {len(held.held_out_questions):,} questions"
        yield "steps", f"{reckoning.steps:,} of {training.batch} ({reckoning.epochs:g} epochs)"
        yield "tokens", f"{self.tokens:,} an epoch, {self.longest:,} the longest example{about}"
        if self.shapes and reckoning.trainable is not None:
            note = ", reckoned from its size" if self.shapes.reckoned else ""
            yield "trainable parameters", f"{reckoning.trainable:,} of {self.shapes.parameters:,.0f}{note}"
        if self.memory:
            parts = ", ".join(f"{name} {size / GB:.1f}" for name, size in self.memory.items() if size >= GB / 20)
            yield "memory", f"about {sum(self.memory.values()) / GB:.1f} GB ({parts}); here: {_room() / GB:.0f} GB"
        if taken := self.seconds():
            yield "time", f"about {hours_text(taken[0])} ({taken[1]})"
        if not gpus() and (on_h100 := reckoning.on_h100):
            yield "", f"about {hours_text(on_h100)} on one H100 (estimated: {SHARE:.0%} of its peak)"
        yield "weights", "here" if self.request.base.here else "not here: kgqa models says how to get them"
        yield "folder", str(self.done or self.request.name)

    @property
    def alarms(self) -> list[str]:
        """What will not work as it is."""
        told = []
        if self.memory and sum(self.memory.values()) > _room():
            told.append(f"more memory than is here; {_remedy(self.request)}")
        if self.examples.train and self.counted and not self.kept:
            told.append("no example is short enough; raise train.max_length, or give train.too_long=cut")
        if self.done:
            told.append(f"trained already: {self.done}")
        return told


def planned(request: TrainRequest, examples: Parted) -> Plan:
    """Loads nothing heavy; weights may be missing."""
    folder = _folder(request)
    lengths, counted = _lengths(examples, folder)
    limit = _longest(request)
    counts = [min(length, limit) for length in lengths if length <= limit or not _leaves_out(request)]
    here = request.folder(examples) if request.base.here else None
    return Plan(
        request=request,
        examples=examples,
        kept=len(counts),
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
    return Plan(request, Parted((), ()), 0, shapes, tokens, 0, counted=False, rate=_measured_rate(request), done=None)


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


def _lengths(examples: Parted, folder: Path | None) -> tuple[list[int], bool]:
    """Tokens of each example with the one that ends it, and whether the base's own tokenizer counted them."""
    listed = [_texts(example) for example in examples.train]
    if folder is None or absent(["tokenizers"]) or not (folder / "tokenizer.json").is_file():
        return [sum(map(len, texts)) // CHARACTERS + 1 for texts in listed], False
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    return [
        1 + sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts) for texts in listed
    ], True


def _longest(request: TrainRequest) -> int:
    training = request.training
    longest = getattr(training, "max_length", None)
    if longest is None:
        lengths = ("max_input", "max_output", "max_question", "max_follow_up", "max_passage")
        longest = sum(getattr(training, name, 0) for name in lengths)
    return int(longest)


def _leaves_out(request: TrainRequest) -> bool:
    """Whether what is longer than `train.max_length` is left out; of sequence-to-sequence models it is not foreseen."""
    training = request.training
    return hasattr(training, "max_length") and getattr(training, "too_long", "") == "leave_out"


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
    speed = product_speed()
    return speed, f"as fast as a product of matrices here, {speed / 1e9:,.0f} GFLOPs"


def _room() -> float:
    return float(max((gpu.memory for gpu in gpus()), default=memory()))


def _remedy(request: TrainRequest) -> str:
    if getattr(request.training, "quantization", "") == "none":
        return "give train.quantization=nf4, or a smaller train.max_length"
    if request.pairs:
        return "lower train.texts_at_once"
    return "lower train.max_length or train.batch_per_device, or take a smaller train.base"


def hours_text(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{max(1, round(seconds / 60))} minutes"
