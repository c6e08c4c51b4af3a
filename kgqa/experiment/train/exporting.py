"""What was trained for other programs: merged weights, a GGUF adapter, the examples in the forms that trainers read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kgqa.artefacts.form import read_json, read_lines
from kgqa.artefacts.manifest import MANIFEST
from kgqa.artefacts.trained import Trained
from kgqa.engines.gguf_header import read_header
from kgqa.engines.weights import is_gguf
from kgqa.errors import ConfigError, DataError, EngineDied
from kgqa.experiment.machine.adapters import adapter
from kgqa.experiment.train.base import Base
from kgqa.inert import one_line
from kgqa.runtime.display import Display
from kgqa.storage import replace_with_parts
from kgqa.training.gguf_adapter import Attention, write_gguf
from kgqa.training.job import ADAPTER, EXAMPLES, TRAIN

MERGED = "merged"


def export_examples(folder: Path, form: str, out: Path | None) -> Path:
    """What was trained on, a JSON line each, in alpaca's or sharegpt's form. Raises DataError: it is no text."""
    target = out or folder / f"{form}.jsonl"
    return replace_with_parts(target, (json.dumps(line, ensure_ascii=False) + "\n" for line in _formed(folder, form)))


def export_merged(folder: Path, out: Path | None, display: Display) -> Path:
    """Base and adapter as one transformers folder, by a process that may hold torch.

    Raises:
        ConfigError: it is no adapter, or the folder is there already.
        DataError: the base is another one now than it was trained on.
    """
    trained, target = _adapter(folder), out or folder / MERGED
    if target.exists():
        raise ConfigError(f"{target}: is there already; remove it or give --out")
    source = _base(trained).folder(display.line)
    display.line(f"merging {trained.name} into {trained.base}")
    command = [sys.executable, "-m", "kgqa.training.merging", str(source), str(folder / ADAPTER), str(target)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or [f"the process ended with {ended.returncode} and said nothing"]
        raise EngineDied(f"merging failed: {one_line(said[-1])[:200]}")
    return target


def export_gguf(name: str, out: Path | None) -> Path:
    """An adapter, trained here or anywhere, as llama.cpp reads it: beside the other unless told.

    Raises:
        ConfigError: there is none of that name, its base is not known or not here, or of another architecture.
        DataError: its file is damaged.
    """
    found = adapter(name)
    preset, _ = found.trained_on()
    if preset is None:
        raise ConfigError(f"adapter {name}: nothing says what it was trained on; name its base in conf/adapter")
    own = (found.folder.parent / MANIFEST).is_file()
    base = _base(Trained.read(found.folder.parent)) if own else Base.of(preset, encodes=False)
    model = base.model
    assert model is not None
    target = out or found.gguf
    write_gguf(found, _attention(model.locate()), target)
    return target


def _attention(weights: Path) -> Attention:
    if is_gguf(weights):
        return Attention.of_header(read_header(weights))
    config = read_json(weights / "config.json", remedy="get the model's folder again")
    return Attention.of_config(config if isinstance(config, dict) else {})


def _base(trained: Trained) -> Base:
    """What it was trained on, as it was chosen then. Raises DataError: its weights are others now."""
    chosen = {key: value for key, value, _ in trained.settings}.get("train.base", trained.base)
    base = Base.of(chosen.strip("'"), encodes=False)
    if base.digest() != trained.base_sha256:
        raise DataError(
            f"{trained.base}: its weights are {base.digest()[:12]} now, {trained.name} was trained on "
            f"{trained.base_sha256[:12]}; get those again"
        )
    return base


def _adapter(folder: Path) -> Trained:
    trained = Trained.read(folder)
    if not (folder / ADAPTER).is_dir():
        raise ConfigError(f"{folder}: whole weights, no adapter; they can be used as they are")
    return trained


def _formed(folder: Path, form: str) -> Iterator[dict[str, object]]:
    for place, line in read_lines(folder / EXAMPLES / TRAIN):
        if not isinstance(line, dict) or "prompt" not in line:
            raise DataError(f"{place}: a pair of texts; only prompts with completions have such a form")
        prompt, completion = line["prompt"], line["completion"]
        if form == "alpaca":
            yield {"instruction": prompt, "input": "", "output": completion}
        else:
            yield {"conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": completion}]}
