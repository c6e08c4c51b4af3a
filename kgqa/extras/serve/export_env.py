"""`kgqa export env`: the questions, the scores and the agent of a run as an environment of verifiers 0.4."""

from __future__ import annotations

import re
import shlex
import shutil
from argparse import Namespace
from pathlib import Path

from kgqa.cli.terminal import Terminal
from kgqa.errors import ConfigError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.experiment import Experiment
from kgqa.methods.command import CommandAgent
from kgqa.types import Json
from kgqa.util.fs import json_text, jsonl_text, replace_file

TEMPLATES = Path(__file__).parent / "environment"
# suffixes of the templates that belong to the package
IN_PACKAGE = (".py",)


def export_env(args: Namespace, terminal: Terminal) -> None:
    """Write the environment into a new folder, which is the last line of the output."""
    experiment = compose_experiment(["method=command", *args.overrides])
    if not isinstance(experiment.method, CommandAgent):
        raise ConfigError(
            "kgqa export env: an environment runs a command. Set method.command= and no other method="
        )
    name = f"kgqa-{re.sub(r'[^a-z0-9]+', '-', experiment.name('dataset').lower())}"
    folder = Path(args.out or name)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"--out {folder}: this folder has files. Choose a new one")
    write_environment(experiment, experiment.method, name, folder)
    terminal.result(folder)


def write_environment(experiment: Experiment, agent: CommandAgent, name: str, folder: Path) -> None:
    """Write the package: templates, questions, settings and the files of the agent."""
    package = name.replace("-", "_")
    shaping = ("retriever", "dataset", "collection")
    own = [
        each for each in experiment.overrides if each.partition("=")[0].partition(".")[0] in shaping
    ]
    words = {"PACKAGE": package, "PROJECT": name, "SERVE": shlex.join(own)}
    for template in sorted(TEMPLATES.glob("*.txt")):
        target = Path(template.name.removesuffix(".txt"))
        place = folder / package / target if target.suffix in IN_PACKAGE else folder / target
        text = template.read_text(encoding="utf-8")
        replace_file(place, re.sub("|".join(words), lambda match: words[match[0]], text))
    questions = (
        {"id": each.id, "prompt": each.text, "golds": list(each.answers)}
        for each in experiment.data.questions
    )
    replace_file(folder / package / "questions.jsonl", jsonl_text(questions))
    settings: dict[str, Json] = {
        "profile": experiment.profile,
        "command": shlex.split(agent.command),
    }
    replace_file(folder / package / "environment.json", json_text(settings))
    (folder / package / "agent").mkdir()
    for file in agent.list_files():
        shutil.copy2(file, folder / package / "agent" / file.name)
