"""The matrices of a base: from the headers of its weights, or, where they are not here, reckoned from its size."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.form import read_json
from kgqa.errors import DataError
from kgqa.json_values import decoded

ASPECT = 128  # width of a layer for each layer, as most decoders have it
FACTOR = 12  # parameters of a layer by its width squared
SIDES = 19  # rows and columns of a layer's matrices by its width: grouped queries, a gated block of 2.9 widths
VOCABULARY = 128_000


@dataclass(frozen=True, slots=True)
class Shapes:
    """`sides`: by name, the rows and columns of each matrix that an adapter changes. `reckoned`: nothing was read."""

    parameters: float
    layers: int
    width: int
    vocabulary: int
    sides: tuple[tuple[str, int, int], ...]
    reckoned: bool = False

    def adapter(self, rank: int, targets: tuple[str, ...]) -> int:
        """Parameters of an adapter: rank · (rows + columns) of each matrix (Hu et al., 2021)."""
        chosen = [
            rows + columns
            for name, rows, columns in self.sides
            if targets == ("all-linear",) or name.endswith(tuple(f"{target}.weight" for target in targets))
        ]
        return rank * (sum(chosen) if chosen else SIDES * self.width * self.layers)

    def smallest(self) -> tuple[str, int, int] | None:
        """The matrix with the smallest side."""
        return min(self.sides, key=lambda matrix: min(matrix[1:]), default=None)


def read(folder: Path) -> Shapes:
    """Of a transformers folder. Raises DataError: a file of it is damaged."""
    config = read_json(folder / "config.json", missing="no such file; get the model's folder again")
    told = config.get("text_config", config) if isinstance(config, dict) else {}
    matrices = [
        (name, shape[0], shape[1])
        for file in sorted(folder.glob("*.safetensors"))
        for name, shape in _tensors(file)
        if len(shape) == 2
    ]
    inner = tuple(
        matrix for matrix in matrices if not any(word in matrix[0] for word in ("embed", "lm_head", "shared"))
    )
    parameters = sum(_size(shape) for file in folder.glob("*.safetensors") for _, shape in _tensors(file))
    return Shapes(
        parameters=parameters,
        layers=int(told.get("num_hidden_layers") or told.get("num_layers") or 0),
        width=int(told.get("hidden_size") or told.get("d_model") or 0),
        vocabulary=int(told.get("vocab_size") or 0),
        sides=inner,
    )


def reckoned(parameters: float) -> Shapes:
    """Of a decoder with so many parameters; within a tenth for those of 1 to 70 billion."""
    width = round((parameters * ASPECT / FACTOR) ** (1 / 3))
    return Shapes(parameters, max(1, width // ASPECT), width, VOCABULARY, (), reckoned=True)


def _tensors(file: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    try:
        with file.open("rb") as source:
            (length,) = struct.unpack("<Q", source.read(8))
            header = decoded(source.read(length))
        yield from ((name, tuple(tensor["shape"])) for name, tensor in header.items() if name != "__metadata__")
    except (OSError, ValueError, struct.error, KeyError, TypeError) as error:
        raise DataError(f"{file}: not readable as safetensors ({error}); get the model's folder again") from error


def _size(shape: tuple[int, ...]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product
