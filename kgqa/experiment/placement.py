"""Place models, encoder and index on GPUs, stage by stage. Pure functions of sizes: nothing is loaded.

Each model gets whole GPUs, as few as it fits on. The GPUs that are left hold copies of the stage's first model, which
is the reader or the judge. A model that two stages do not share is stopped between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from kgqa.errors import ConfigError

GB = 1e9
# bytes of a GPU for activations, CUDA graphs and libraries
OVERHEAD = 3 * GB
# GPUs per copy of a model: vLLM splits attention heads evenly
SPLITS = (1, 2, 4, 8, 16)
# context lengths that a message proposes, longest first
LENGTHS = (65_536, 32_768, 16_384, 8_192, 4_096, 2_048)
# bytes per number of keys and values in half precision, which a model stores for each
HALF, BOTH = 2, 2


@dataclass(frozen=True)
class Demand:
    """Describe what a model, or an encoder with its index, needs.

    name: for users. key: the prefix of its engine's keys in messages. weights: bytes. per_token: bytes of keys and
    values of a token. kv_heads: if a stage has more GPUs than these, they hold copies. tokens: the longest prompt and
    reply. share: of a GPU's memory that it can use. least: the fewest GPUs per copy. stages: parts of the layers, each
    on own GPUs. copies: None: the GPUs that are left, if it is the first of its stage. splits: whether it can
    be split among any number of GPUs, as an index can.
    """

    name: str
    key: str
    weights: float
    per_token: float = 0.0
    tokens: int = 0
    share: float = 0.9
    least: int = 1
    copies: int | None = None
    splits: bool = False
    stages: int = 1
    kv_heads: int | None = None

    def bytes_per_gpu(self, split: int) -> float:
        """Return the memory on each of `split` GPUs, with room for one prompt of full length."""
        return self.weights / split + self.prompt_per_gpu(split) + OVERHEAD

    def prompt_per_gpu(self, split: int) -> float:
        """Return the bytes of a prompt of full length on each of `split` GPUs."""
        shares = split if self.kv_heads is None else min(split, self.kv_heads * self.stages)
        return self.per_token * self.tokens / shares

    def find_split(self, memory: float, most: int) -> int | None:
        """Return the fewest GPUs that hold a copy, or None if `most` GPUs of `memory` bytes do not."""
        even = sorted({self.least, *(self.stages * number for number in SPLITS)})
        splits = range(1, most + 1) if self.splits else even
        fitting = (
            n
            for n in splits
            if self.least <= n <= most and self.bytes_per_gpu(n) <= self.share * memory
        )
        return next(fitting, None)


@dataclass(frozen=True)
class Placed:
    """A model on its GPUs. devices: positions among the visible GPUs. used: bytes on each."""

    demand: Demand
    stage: str
    devices: tuple[int, ...]
    split: int
    copies: int
    used: float


@dataclass(frozen=True)
class Placement:
    """The places of all stages on `gpus` GPUs of `memory` bytes."""

    gpus: int
    memory: float
    places: tuple[Placed, ...]

    def find(self, name: str) -> Placed | None:
        return next((each for each in self.places if each.demand.name == name), None)

    def rows(self, names: Sequence[int | str]) -> list[tuple[str, str, str, str]]:
        """Return stage, component, GPUs and memory of each place, for users. names: of the GPUs."""
        return [
            (each.stage, each.demand.name, _describe_gpus(each, names), _describe_memory(each))
            for each in self.places
        ]


def place(stages: Mapping[str, Sequence[Demand]], gpus: int, memory: float) -> Placement:
    """Return the placement of the demands of each stage. The first demand of a stage gets the GPUs that are left.

    Args:
        memory: bytes of each GPU.

    Raises:
        ConfigError: they do not fit. The message names the smallest change that would fit.
    """
    places: list[Placed] = []
    for stage, demands in stages.items():
        splits = [demand.find_split(memory, gpus) for demand in demands]
        if (
            None in splits
            or sum(_count(*each) for each in zip(demands, splits, strict=True)) > gpus
        ):
            raise ConfigError(_explain_misfit(stage, demands, gpus, memory))
        places += _fill(stage, demands, [split for split in splits if split], gpus)
    return Placement(gpus, memory, tuple(places))


def _count(demand: Demand, split: int | None) -> int:
    """Return the GPUs of all copies that the demand requires."""
    return (split or 0) * (demand.copies or 1)


def _fill(
    stage: str, demands: Sequence[Demand], splits: Sequence[int], gpus: int
) -> Iterator[Placed]:
    """Yield the places of a stage. Those with few GPUs come first, so that the copies are next to each other."""
    left = gpus - sum(_count(*each) for each in zip(demands, splits, strict=True))
    start = gpus
    for number, (demand, split) in reversed(list(enumerate(zip(demands, splits, strict=True)))):
        copies = demand.copies or 1
        if number == 0 and demand.copies is None and not demand.splits:
            copies += left // split
        start -= copies * split
        yield Placed(
            demand,
            stage,
            tuple(range(start, start + copies * split)),
            split,
            copies,
            demand.bytes_per_gpu(split),
        )


def _fits(demands: Sequence[Demand], gpus: int, memory: float) -> bool:
    splits = [demand.find_split(memory, gpus) for demand in demands]
    return (
        None not in splits
        and sum(_count(*each) for each in zip(demands, splits, strict=True)) <= gpus
    )


def _explain_misfit(stage: str, demands: Sequence[Demand], gpus: int, memory: float) -> str:
    """Return the message for a stage that does not fit, with the smallest change that would."""
    sizes = ", ".join(f"{demand.name} {demand.bytes_per_gpu(1) / GB:.0f} GB" for demand in demands)
    change = next(_propose(demands, gpus, memory), "smaller models or GPUs with more memory")
    here = f"{gpus} GPU{'s' if gpus > 1 else ''} of {memory / GB:.0f} GB"
    return (
        f"gpus={gpus}: stage {stage!r} does not fit on {here} ({sizes}). It would fit with {change}"
    )


def _propose(demands: Sequence[Demand], gpus: int, memory: float) -> Iterator[str]:
    """Yield changes that would fit, the smallest first: a shorter context, fewer copies, then more GPUs."""
    for tokens in LENGTHS:
        for number, demand in enumerate(demands):
            if demand.per_token and tokens < demand.tokens:
                shorter = [
                    *demands[:number],
                    replace(demand, tokens=tokens),
                    *demands[number + 1 :],
                ]
                if _fits(shorter, gpus, memory):
                    yield f"{demand.key}.max_model_len={tokens}"
    for demand in demands:
        if demand.copies and _fits([replace(each, copies=None) for each in demands], gpus, memory):
            yield f"{demand.key}.data_parallel=1"
    for count in range(gpus + 1, 65):
        if _fits(demands, count, memory):
            yield f"gpus={count}"
            return


def _describe_gpus(placed: Placed, names: Sequence[int | str]) -> str:
    """Return the GPUs of a place, such as "1-7 (7 copies)" or "0-3 (split over 4)"."""
    used = [names[device] for device in placed.devices]
    ranges = [
        [name for _, name in run]
        for _, run in groupby(
            enumerate(used), lambda each: each[1] - each[0] if isinstance(each[1], int) else each[1]
        )
    ]
    text = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in ranges)
    parts = [
        f"{placed.copies} copies" if placed.copies > 1 else "",
        f"split over {placed.split}" if placed.split > 1 else "",
    ]
    notes = ", each ".join(filter(None, parts))
    return f"{text} ({notes})" if notes else text


def _describe_memory(placed: Placed) -> str:
    demand = placed.demand
    parts = {
        "weights" if demand.per_token else "vectors and weights": demand.weights / placed.split
    }
    if demand.per_token:
        parts[f"a prompt of {demand.tokens:,} tokens"] = demand.prompt_per_gpu(placed.split)
    listed = " + ".join(f"{size / GB:.1f} {name}" for name, size in parts.items())
    return f"{placed.used / GB:.1f} GB of each GPU ({listed} + {OVERHEAD / GB:.0f} other)"


def bytes_per_token(layers: int, kv_heads: int, head_size: int) -> float:
    """Return the bytes of a token's keys and values in half precision."""
    return float(layers * kv_heads * head_size * HALF * BOTH)


def merge_names(names: Iterable[str]) -> str:
    """Return the roles that share a model, for users."""
    return ", ".join(dict.fromkeys(name or "model" for name in names))
