"""From what was named to the texts of a training: collected examples rendered as inference renders them, or a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kgqa.artefacts.collected import STAGE, Collected
from kgqa.artefacts.manifest import MANIFEST
from kgqa.artefacts.stage import StageManifest
from kgqa.calls import Generate
from kgqa.errors import ConfigError, DataError
from kgqa.examples import EXAMPLES, Example, Positive, read_examples
from kgqa.experiment.config import parts
from kgqa.experiment.config.composing import compose
from kgqa.experiment.train.examples import Paired, Parted, Written, divided, drawn, part, some_of, texts_of
from kgqa.experiment.train.request import TrainRequest
from kgqa.storage import outputs

Render = Callable[[Example], str]


def prepared(request: TrainRequest) -> Parted:
    """Raises ConfigError: there are no examples; DataError: they cannot be read, the line is named."""
    given = request.given or _newest(request)
    if given.is_dir():
        return _of_folder(request, given)
    training, kind = request.training, "pair" if request.pairs else "text"
    return part(texts_of(given, kind), training.held_out, request.count, training.seed)


def _newest(request: TrainRequest) -> Path:
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


def _of_folder(request: TrainRequest, folder: Path) -> Parted:
    """What the folder holds out stays held out; of that as many questions are measured as `train.held_out` says."""
    manifest = _manifest(folder)
    collected = manifest.came_to(Collected, folder)
    training = request.training
    made = list(read_examples(manifest.file(folder, EXAMPLES)))
    texts = drawn(_texts(request, made, folder), training.seed)
    measured = some_of(collected.held_out, training.held_out, collected.questions, training.seed)
    known = frozenset(collected.held_out)
    return replace(
        divided(texts, known, frozenset(measured), request.count),
        collected=folder,
        made_of=tuple(collected.datasets),
        templates=collected.templates,
        text_hashes=collected.question_hashes.texts,
    )


def _manifest(folder: Path) -> StageManifest:
    """Of whichever recipe."""
    named = folder.resolve().parent.name
    try:
        return StageManifest.read(folder, f"{STAGE} {named}")
    except DataError as error:
        other = re.search(rf"made by kgqa ({STAGE} \w+),", str(error))
        if other is None:
            raise
        return StageManifest.read(folder, other[1])


def _texts(request: TrainRequest, made: Sequence[Example | Positive], folder: Path) -> list[Written | Paired]:
    wanted = Positive if request.pairs else Example
    if other := next((example for example in made if not isinstance(example, wanted)), None):
        what = "pairs of texts, for an encoder" if isinstance(other, Positive) else "prompts with their targets"
        raise ConfigError(f"train={request.recipe}: {folder} holds {what}; choose another recipe, or other examples")
    if request.pairs:
        return [_paired(example) for example in made if isinstance(example, Positive)]
    render = renderer(request)
    return [written(example, render) for example in made if isinstance(example, Example)]


def renderer(request: TrainRequest) -> Render:
    """As engine=transformers renders it when it answers; a dry run without the weights takes the bare messages."""
    if request.config["dry_run"] and not request.base.here:
        return lambda example: "\n\n".join(message.content for message in example.prompt.messages)
    config = compose(["engine=transformers"])
    engine = parts.engine(config["engine"], request.base.node)
    return lambda example: engine.render(Generate(example.prompt, 1, role=example.role))


def written(example: Example, render: Render) -> Written:
    """Prompt and target as the model sees them.

    Where the prompt ends in the middle of a line, as a prefill and a text that goes on do, a blank stands between them:
    that is what models write there, and what readers strip off.
    """
    prompt = render(example)
    goes_on = example.prompt.form == "completion" or example.prompt.prefill
    blank = " " if goes_on and not prompt[-1:].isspace() and not prompt.endswith(">") else ""
    question = f"{example.origin.dataset}/{example.question}"
    return Written(example.id, question, prompt, blank + example.target, example.label)


def _paired(example: Positive) -> Paired:
    """`hop`: of labels such as "hop 2"."""
    word, _, number = example.label.partition(" ")
    hop = int(number) if word == "hop" and number.isdigit() else None
    question = f"{example.origin.dataset}/{example.question}"
    return Paired(example.id, question, example.anchor, example.positive, example.negatives, hop)
