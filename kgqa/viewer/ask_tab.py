"""The ask tab: one question at a time, answered by a `kgqa ask --json` process so that it can be cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.artifacts.predictions import SUFFIX, SavedAnswer, answers_folder
from kgqa.config import building as parts
from kgqa.config.composing import resolve_node
from kgqa.config.files import describe_choice, groups
from kgqa.config.overrides import override_key, override_values
from kgqa.errors import ConfigError, DataError
from kgqa.util.jsonio import decode_json
from kgqa.util.text import escape_control, one_line

MAX_LENGTH = 2000  # characters of a question
MAX_SAVED = 50  # earlier questions on the page
MAX_LINES = 40  # of progress
NEEDS_GOLD = ("golden",)


@dataclass(frozen=True)
class Choices:
    """The folders and methods of the page. A request can use only these.

    Args:
        root: the folder of runs that is shown.
        documents: folders with documents.
        overrides: `key=value` of the command line, used for every question.
    """

    root: Path
    documents: tuple[Path, ...]
    overrides: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the folders. Raises DataError: one does not exist."""
        if not self.root.is_dir():
            raise DataError(f"{self.root}: no such folder. Name an outputs/ folder, e.g. kgqa view outputs")
        for folder in self.documents:
            if not folder.is_dir():
                raise DataError(f"--documents {folder}: no such folder. Name a folder with documents")

    def folders(self) -> dict[str, Path]:
        """Return the folders by the name on the page."""
        return {escape_control(str(folder)): folder for folder in self.documents}

    @cached_property
    def methods(self) -> dict[str, str]:
        """Return the methods that call a model and need no gold answer, with a line about each."""
        built = {
            name: parts.method(resolve_node("method", name)) for name in groups()["method"] if name not in NEEDS_GOLD
        }
        return {name: describe_choice("method", name) for name, method in built.items() if "model" in method.uses}

    @property
    def method(self) -> str:
        return str(override_values(self.overrides).get("method", "trace"))

    def command(self, form: Mapping[str, str]) -> list[str]:
        """Return the command that answers the question of a form.

        Raises UsageError: the question is empty or too long, or a value is not one of the choices.
        """
        question, folders = one_line(form.get("question", "")), self.folders()
        documents, method = form.get("documents", ""), form.get("method", "")
        if not question or len(question) > MAX_LENGTH:
            raise ConfigError(f"question {question!r:.40}: must have 1 to {MAX_LENGTH:,} characters")
        if documents not in folders:
            raise DataError(f"{documents!r:.80}: not one of the folders. Start with kgqa view --documents FOLDER")
        if method not in self.methods:
            raise ConfigError(f"method {method!r:.40}: not one of the choices")
        words = [*(word for word in self.overrides if override_key(word) != "method"), f"method={method}"]
        # the space and "./" keep a question or a folder from being parsed as an option
        folder = os.path.join(os.curdir, folders[documents])
        return [sys.executable, "-m", "kgqa", "ask", "--json", f" {question}", folder, *words]


class Question:
    """The question that is being answered, or was answered last."""

    def __init__(self) -> None:
        self.text = ""
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        self.answer: SavedAnswer | None = None
        self.error = ""
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self, text: str, command: list[str]) -> None:
        """Start the process. Raises ConfigError: another question is being answered."""
        if self.running:
            raise ConfigError("another question is being answered. Wait for its answer, or cancel it")
        self.text, self.answer, self.error = text, None, ""
        self.lines.clear()
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        self._task = asyncio.create_task(self._read(self._process))

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End the process as Ctrl-C does. Replies and triples that it received are in the cache."""
        if self.running and self._process:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _read(self, process: Process) -> None:
        assert process.stdout
        assert process.stderr
        output = asyncio.create_task(process.stdout.read())
        async for line in process.stderr:
            self.lines.append(line.decode(errors="replace").rstrip())
        try:
            text = (await output).decode(errors="replace")
            self.answer = SavedAnswer.read(Path(decode_json(text)["page"]).with_suffix(SUFFIX))
        except (ValueError, DataError):
            last = next((line for line in reversed(self.lines) if line.startswith("kgqa: ")), "")
            self.error = last.removeprefix("kgqa: ") or f"stopped (exit code {await process.wait()})"


def list_answers() -> list[tuple[str, SavedAnswer]]:
    """Return the latest saved answers by the name of their page, newest first, without damaged ones."""
    files = sorted(answers_folder().glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    answers = []
    for file in files[:MAX_SAVED]:
        with suppress(DataError):
            answers.append((file.stem, SavedAnswer.read(file)))
    return answers


def read_page(name: str) -> str:
    """Return the page of a saved answer. Raises DataError: no answer has this name."""
    pages = {file.stem: file for file in answers_folder().glob("*.html")}
    if name not in pages:
        raise DataError(f"{name}: no such answer in {answers_folder()}")
    return pages[name].read_text(encoding="utf-8", errors="replace")
