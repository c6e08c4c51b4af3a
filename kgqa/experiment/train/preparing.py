"""From what was named to the texts of a training: collected examples rendered as inference renders them, or a file."""

from __future__ import annotations

from pathlib import Path

from kgqa.artefacts.manifest import MANIFEST
from kgqa.errors import ConfigError
from kgqa.experiment.train.examples import Parted, part, texts_of
from kgqa.experiment.train.request import TrainRequest
from kgqa.storage import outputs


def prepared(request: TrainRequest) -> Parted:
    """Raises ConfigError: there are no examples; DataError: they cannot be read, the line is named."""
    given = request.given or _collected(request)
    training, kind = request.training, "pair" if request.pairs else "text"
    return part(texts_of(given, kind), training.held_out, request.count, training.seed)


def _collected(request: TrainRequest) -> Path:
    """The newest folder of the recipe's examples."""
    recipe = request.training.collect
    if recipe is None:
        raise ConfigError("train.examples: name a folder of kgqa collect, or a file of rendered texts")
    found = [file.parent for file in (outputs() / "examples" / recipe).glob(f"*/{MANIFEST}")]
    if not found:
        raise ConfigError(
            f"train={request.recipe}: no examples in {outputs() / 'examples' / recipe}; make them first: "
            f"kgqa collect {recipe}, or give train.examples=FILE"
        )
    return max(found, key=lambda folder: (folder / MANIFEST).stat().st_mtime_ns)
