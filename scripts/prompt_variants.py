"""Prompts measured on the same questions: what the variants are, and tables of their scores with paired differences."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kgqa.artefacts.metrics import Estimate
from kgqa.errors import ConfigError
from kgqa.scoring.intervals import estimate

TEMPLATE = "template="
Scores = Sequence[float | None]  # one a question, as a share; None: the question does not define it


class Variant(NamedTuple):
    """A prompt to measure: overrides of the configuration, and a template in place of kgqa's."""

    name: str
    overrides: tuple[str, ...]
    template: Path | None

    @classmethod
    def of(cls, words: Sequence[str]) -> Variant:
        """A name, then `template=FILE.j2` and overrides such as `method.demonstrations=none`, in any order."""
        name, *keys = words
        if "=" in name:
            raise ConfigError(f"--prompt {name}: begins with a name of the prompt, e.g. --prompt ours {name}")
        files = [Path(key.removeprefix(TEMPLATE)) for key in keys if key.startswith(TEMPLATE)]
        for file in files:
            if not file.is_file():
                raise ConfigError(f"--prompt {name}: template={file}: no such file")
        overrides = tuple(key for key in keys if not key.startswith(TEMPLATE))
        return cls(name, overrides, files[-1] if files else None)


@contextmanager
def shown_by(file: Path | None, name: str) -> Iterator[None]:
    """Calls are rendered with this file as the template `name`, which kgqa finds as it finds anybody's own."""
    if file is None:
        yield
        return
    before = os.environ.get("KGQA_CONF")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "conf").mkdir()
        template = Path(folder) / "prompts" / f"{name}.j2"
        template.parent.mkdir(parents=True)
        shutil.copyfile(file, template)
        os.environ["KGQA_CONF"] = str(Path(folder) / "conf")
        try:
            yield
        finally:
            os.environ.pop("KGQA_CONF") if before is None else os.environ.update(KGQA_CONF=before)


def table(measured: Mapping[str, Mapping[str, Scores]], seed: int = 0) -> str:
    """Of each variant's scores by name: percent with 95 % bootstrap intervals; differences are to the first variant."""
    reference, *others = measured
    lines = [f"| | {' | '.join([reference, *(f'{name} | {name} − {reference}' for name in others)])} |"]
    lines.append("| --- " * (2 * len(measured)) + "|")
    for score, first in measured[reference].items():
        cells = [_shown(estimate(first, seed))]
        for name in others:
            scores = measured[name][score]
            cells += [_shown(estimate(scores, seed)), _shown(estimate(differences(scores, first), seed), "+")]
        lines.append(f"| {score} | {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(scores: Scores, reference: Scores) -> Scores:
    """Question by question, where both define the score."""
    pairs = zip(scores, reference, strict=True)
    return [None if one is None or other is None else one - other for one, other in pairs]


def _shown(figure: Estimate, sign: str = "") -> str:
    if figure.mean is None:
        return "–"
    return f"{figure.mean:{sign}.1f} [{figure.low:{sign}.1f}, {figure.high:{sign}.1f}]"
