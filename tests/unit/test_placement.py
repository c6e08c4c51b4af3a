"""Models, encoder and index on GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.errors import ConfigError
from kgqa.experiment.placement import GB, Demand, Placement, bytes_per_token, place

# weights in GB, then layers, heads of keys and values, and their size
SIZES: dict[str, tuple[float, int, int, int]] = {
    "1B": (2.0, 16, 8, 64),
    "8B": (16.0, 32, 8, 128),
    "14B": (29.4, 48, 8, 128),
    "32B": (65.6, 64, 8, 128),
    "70B": (140.0, 80, 8, 128),
    "405B": (810.0, 126, 8, 128),
}


def demand(size: str, name: str = "", tokens: int = 8_192, **fields: Any) -> Demand:
    weights, *layers = SIZES[size]
    return Demand(
        name or size,
        f"roles.{name or size}.engine",
        weights * GB,
        bytes_per_token(*layers),
        tokens,
        **fields,
    )


def search(size: float) -> Demand:
    return Demand("search", "retriever", size * GB, copies=1, splits=True)


def layout(placement: Placement) -> dict[str, tuple[int, int]]:
    """Return the GPUs per copy and the copies of each demand."""
    return {each.demand.name: (each.split, each.copies) for each in placement.places}


def on(sizes: str, gpus: int, memory: float, *splits: tuple[int, int]) -> Any:
    return pytest.param(
        sizes.split("+"), gpus, memory, splits, id=f"{sizes} on {gpus} x {memory:g}"
    )


@pytest.mark.parametrize(
    ("sizes", "gpus", "memory", "splits"),
    [
        on("1B", 1, 24, (1, 1)),
        on("1B", 2, 24, (1, 2)),
        on("1B", 8, 80, (1, 8)),
        on("8B", 1, 24, (1, 1)),
        on("8B", 2, 16, (2, 1)),
        on("8B", 4, 24, (1, 4)),
        on("8B", 8, 40, (1, 8)),
        on("8B", 3, 16, (2, 1)),
        on("14B", 1, 40, (1, 1)),
        on("14B", 2, 24, (2, 1)),
        on("14B", 8, 24, (2, 4)),
        on("14B", 8, 80, (1, 8)),
        on("32B", 1, 80, (1, 1)),
        on("32B", 2, 48, (2, 1)),
        on("32B", 8, 40, (4, 2)),
        on("32B", 8, 24, (4, 2)),
        on("70B", 4, 80, (4, 1)),
        on("70B", 2, 96, (2, 1)),
        on("70B", 8, 80, (4, 2)),
        on("70B", 8, 40, (8, 1)),
        on("70B", 2, 141, (2, 1)),
        on("70B", 1, 192, (1, 1)),
        on("70B", 6, 80, (4, 1)),
        on("405B", 8, 141, (8, 1)),
        on("405B", 16, 80, (16, 1)),
        on("8B+1B", 2, 24, (1, 1), (1, 1)),
        on("8B+1B", 8, 24, (1, 7), (1, 1)),
        on("8B+8B", 4, 24, (1, 3), (1, 1)),
        on("8B+70B", 8, 80, (1, 4), (4, 1)),
        on("8B+70B", 5, 80, (1, 1), (4, 1)),
        on("70B+8B", 8, 80, (4, 1), (1, 1)),
        on("70B+8B", 9, 80, (4, 2), (1, 1)),
        on("14B+32B", 8, 24, (2, 2), (4, 1)),
        on("1B+8B+70B", 8, 80, (1, 3), (1, 1), (4, 1)),
    ],
)
def test_models_get_as_few_gpus_as_they_fit_on(
    sizes: list[str], gpus: int, memory: float, splits: tuple[tuple[int, int], ...]
) -> None:
    demands = [demand(size, f"{number}") for number, size in enumerate(sizes)]
    placement = place({"answer": demands}, gpus, memory * GB)
    assert layout(placement) == {f"{number}": split for number, split in enumerate(splits)}
    devices = [device for each in placement.places for device in each.devices]
    assert sorted(devices) == sorted(set(devices))
    assert set(devices) <= set(range(gpus))


@pytest.mark.parametrize(
    ("size", "gpus", "shards"), [(48.0, 8, 1), (110.0, 8, 2), (64.5, 4, 1), (250.0, 8, 4)], ids=str
)
def test_index_is_split_over_as_few_gpus_as_hold_it(size: float, gpus: int, shards: int) -> None:
    placement = place({"answer": [demand("8B"), search(size)]}, gpus, 80 * GB)
    assert layout(placement) == {"8B": (1, gpus - shards), "search": (shards, 1)}


def test_stages_use_the_same_gpus() -> None:
    placement = place({"answer": [demand("8B"), search(48)], "judge": [demand("70B")]}, 8, 80 * GB)
    devices = {each.demand.name: each.devices for each in placement.places}
    assert devices == {"8B": tuple(range(7)), "search": (7,), "70B": tuple(range(8))}
    assert ("judge", "70B", "0-7 (2 copies, each split over 4)") in [
        row[:3] for row in placement.rows(range(placement.gpus))
    ]


@pytest.mark.parametrize(
    ("fields", "split"),
    [({"least": 4}, (4, 2)), ({"copies": 2}, (1, 2)), ({"share": 0.2}, (2, 4))],
    ids=["split of the user", "copies of the user", "share of the memory"],
)
def test_keys_of_the_user_hold(fields: dict[str, Any], split: tuple[int, int]) -> None:
    assert layout(place({"answer": [demand("8B", **fields)]}, 8, 80 * GB)) == {"8B": split}


@pytest.mark.parametrize(
    ("demands", "gpus", "change"),
    [
        ([demand("70B", "judge", tokens=131_072)], 3, "gpus=4"),
        ([demand("8B", "reader", tokens=131_072)], 1, "roles.reader.engine.max_model_len=16384"),
        ([demand("8B", "reader", copies=4)], 2, "roles.reader.engine.data_parallel=1"),
        ([demand("8B", "reader"), demand("70B", "judge")], 4, "gpus=5"),
        ([Demand("reader", "engine", 1e14)], 1, "smaller models or GPUs with more memory"),
    ],
    ids=["more GPUs", "shorter context", "fewer copies", "two models", "no change"],
)
def test_misfit_names_the_smallest_change(demands: list[Demand], gpus: int, change: str) -> None:
    memory = 24 if "max_model_len" in change else 80
    with pytest.raises(ConfigError, match=rf"gpus={gpus}: stage 'answer' does not fit.*{change}"):
        place({"answer": demands}, gpus, memory * GB)


@pytest.mark.parametrize(
    ("split", "stages", "shares"),
    [(4, 1, 4), (8, 1, 4), (16, 2, 8)],
    ids=["split", "copied", "stages"],
)
def test_heads_of_keys_are_copied_not_split(split: int, stages: int, shares: int) -> None:
    model = demand("8B", kv_heads=4, stages=stages)
    assert model.prompt_per_gpu(split) == model.per_token * model.tokens / shares


def test_row_of_a_model_has_the_memory_of_its_parts() -> None:
    placement = place({"answer": [demand("70B", copies=1)]}, 4, 80 * GB)
    [(_, _, gpus, memory)] = placement.rows(range(4))
    # 80 layers with 8 heads of 128 numbers of 2 bytes, keys and values, 8,192 tokens, on 4 GPUs
    parts = "35.0 weights + 0.7 a prompt of 8,192 tokens + 3 other"
    assert memory == f"38.7 GB of each GPU ({parts})"
    assert "split over 4" in gpus
