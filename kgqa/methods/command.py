"""A program as a method: it gets the question and addresses of a model and a search, and prints the answer."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import Annotated, Literal

from kgqa.errors import ConfigError
from kgqa.methods.outside import OURS, OutsideAgent
from kgqa.types import JsonObject
from kgqa.util.fs import sha256
from kgqa.util.settings import NotIdentity, Setting

# words with these ends are files
SCRIPTS = (".py", ".js", ".ts", ".sh")


@dataclass(frozen=True)
class CommandAgent(OutsideAgent):
    """Run a command for each question, or a few processes that get one JSON line per question."""

    command: Annotated[
        str, Setting("The command, as in a shell, but without its operators.", ours=OURS)
    ] = "python agent.py"
    files: Annotated[
        tuple[str, ...],
        Setting(
            "Files and patterns that define the agent. Those that the command names are always included."
        ),
        NotIdentity("the identity has the hash of their contents"),
    ] = ()
    input: Annotated[
        Literal["environment", "lines"],
        Setting(
            "How questions reach the agent: environment (a process per question) | lines (one JSON line per question "
            "on standard input, one line per answer on standard output).",
            ours=OURS,
        ),
    ] = "environment"
    keep_env: Annotated[
        tuple[str, ...],
        Setting("Variables that the agent gets although their names say that they hold a secret."),
        NotIdentity("the agent's own access", reported=False),
    ] = ()

    @property
    def name(self) -> str:
        return self.command

    @cached_property
    def argv(self) -> list[str]:
        """Return the command with the path of its program. `python` is the Python that runs kgqa."""
        words = self._words
        program = sys.executable if words[0] in ("python", "python3") else shutil.which(words[0])
        if program is None:
            raise ConfigError(
                f"method.command={self.command}: there is no program {words[0]}. Install it, or fix this"
            )
        return [program, *words[1:]]

    @cached_property
    def _words(self) -> list[str]:
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise ConfigError(f"method.command={self.command}: {error}") from error
        if not words:
            raise ConfigError(
                'method.command is empty. Set it, e.g. method.command="python agent.py"'
            )
        return words

    def loads(self) -> JsonObject:
        """Return the hash of the agent's files. Their places do not count."""
        _ = self.argv  # the program exists
        digests = sorted(sha256(file) for file in set(self.list_files()))
        return {"files": hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]}

    def list_files(self) -> Iterator[Path]:
        """Yield the files that define the agent. Raises ConfigError: one is missing."""
        program, *words = self._words
        for word in [program] * (os.sep in program and not os.path.isabs(program)) + words:
            if Path(word).is_file():
                yield Path(word).resolve()
            elif Path(word).suffix in SCRIPTS:
                raise ConfigError(
                    f"method.command={self.command}: there is no file {word} in this folder"
                )
        for pattern in self.files:
            files = [
                Path(name).resolve()
                for name in glob(pattern, recursive=True)
                if Path(name).is_file()
            ]
            if not files:
                raise ConfigError(
                    f"method.files={pattern}: no such file. Fix the name or the pattern"
                )
            yield from files
