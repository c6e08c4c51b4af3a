"""From what was named to the texts of a training: collected examples rendered as inference renders them, or a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kgqa.artefacts.collected import STAGE, Collected
from kgqa.artefacts.manifest import MANIFEST
from kgqa.artefacts.question_hashes import id_hash
from kgqa.artefacts.stage import StageManifest
from kgqa.calls import Generate
from kgqa.errors import ConfigError, DataError
from kgqa.examples import EXAMPLES, Example, Positive, read_examples
from kgqa.experiment.collect.collecting import Collecting
from kgqa.experiment.config import parts
from kgqa.experiment.config.composing import compose
from kgqa.experiment.config.overrides import override_group, override_key
from kgqa.experiment.train.examples import Paired, Parted, Written, divided, drawn, part, some_of, texts_of
from kgqa.experiment.train.request import TrainRequest
from kgqa.runtime.display import Display
from kgqa.storage import outputs

OURS = ("train", "tracker", "experiment", "dry_run", "hydra")  # words that say nothing of examples
Render = Callable[[Example], str]


def prepared(request: TrainRequest, display: Display, folder: Path | None = None) -> Parted:
    """Collects examples where nothing says which, and says so.

    folder: of `kgqa collect`, in place of what the request names; its number of examples counts.

    Raises:
        ConfigError: there are no examples, and none can be made here.
        DataError: they cannot be read; the line is named.
    """
    given = folder or request.given or _collected(request, display)
    if given.is_dir():
        return _of_folder(request, given)
    training = request.training
    return part(texts_of(given, pairs=request.pairs), training.held_out, request.count, training.seed)


def _collected(request: TrainRequest, display: Display) -> Path:
    """What the other words of the command line say is collected; without such words the newest folder that fits."""
    if request.training.collect is None:
        raise ConfigError("train.examples: name a folder of kgqa collect, or a file of rendered texts")
    recipe, *words = request.training.collect.split()
    theirs = [word for word in request.overrides if override_group(word) not in OURS]
    if not theirs and (newest := _newest(recipe, words)):
        display.line(f"examples: {newest}, the newest of collect {recipe}")
        return newest
    collecting = Collecting.of(recipe, [*words, *theirs])
    command = " ".join(["kgqa collect", recipe, *words, *theirs])
    if collecting.finished is None and request.config["dry_run"]:
        raise ConfigError(f"train={request.recipe}: no examples yet, and a dry run collects none: {command}")
    display.line(f"examples: {collecting.stage.path}, as by {command}")
    collecting.collect(display, ["collect", recipe, *words, *theirs])
    return collecting.stage.path


def _newest(recipe: str, words: Sequence[str]) -> Path | None:
    """Of the folders that were collected with these settings."""
    wanted = {override_key(word).removeprefix("collect."): word.partition("=")[2] for word in words}
    found = []
    for file in (outputs() / "examples" / recipe).glob(f"*/{MANIFEST}"):
        settings = StageManifest.read(file.parent, f"{STAGE} {recipe}").identity.get("collect", {})
        if all(str(settings.get(key)) == value for key, value in wanted.items()):
            found.append(file)
    return max(found, key=lambda file: file.stat().st_mtime_ns).parent if found else None


def _of_folder(request: TrainRequest, folder: Path) -> Parted:
    """What the folder holds out stays held out; of that as many questions are measured as `train.held_out` says."""
    manifest = _manifest(folder)
    collected = manifest.came_to(Collected, folder)
    training = request.training
    made = list(read_examples(manifest.file(folder, EXAMPLES)))
    texts = drawn(_texts(request, made, folder), training.seed)
    measured = some_of(collected.held_out, training.held_out, collected.questions, training.seed)
    known = frozenset(collected.held_out)
    parted = divided(texts, known, frozenset(measured), request.count)
    ids = (id_hash(*question.split("/", 1)) for question in parted.questions)
    return replace(
        parted,
        collected=folder,
        made_of=tuple(collected.datasets),
        templates=collected.templates,
        text_hashes=collected.question_hashes.texts_of(ids),
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
