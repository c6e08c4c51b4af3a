"""Write the folder of a run or of another stage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kgqa.artifacts.call_schema import format_call, format_reply
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.metrics import METRICS as METRICS_FILE
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.predictions import PARTIAL_PREDICTIONS, PREDICTIONS, Prediction
from kgqa.artifacts.run import IDENTITY, SETTINGS, Chosen, FinishedRun
from kgqa.artifacts.schema import as_json, read_json
from kgqa.artifacts.trace import PARTIAL_TRACE, TRACE, TracedCall, TracedQuestion
from kgqa.artifacts.verdicts import VERDICTS
from kgqa.config.files import Config, flatten, format_yaml
from kgqa.config.overrides import describe_changes
from kgqa.errors import ConfigError
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Json, Question
from kgqa.util.digests import digest
from kgqa.util.fs import (
    OUT_ELSEWHERE,
    explain_storage_errors,
    has_content,
    hash_text,
    json_text,
    jsonl_text,
    lock_file,
    remove_folder,
    replace_file,
    sha256,
)
from kgqa.util.places import outputs

T = TypeVar("T")
CONFIG = "config.yaml"
# files that a run replaces
_REPLACED = (
    CONFIG,
    MANIFEST,
    METRICS_FILE,
    PARTIAL_PREDICTIONS,
    PARTIAL_TRACE,
    PREDICTIONS,
    SETTINGS,
    TRACE,
    VERDICTS,
    "report.html",
    "report.md",
)


class RunFolder:
    """The files of one run. Opening the folder locks it and binds it to this configuration.

    Raises:
        ConfigError: the folder belongs to another configuration, or another process is writing it.
        StorageError: it cannot be created or written.
    """

    def __init__(self, path: Path, identity: Mapping[str, Json]) -> None:
        import zstandard

        self.path = path
        self._compressor = zstandard.ZstdCompressor(level=3)
        # set after an error without paid calls: `close` removes a new folder without answers
        self.is_worthless = False
        # another one can contain files of the user
        self._is_new = not path.is_dir() or not any(path.iterdir())
        with explain_storage_errors(path, OUT_ELSEWHERE), ExitStack() as opened:
            opened.enter_context(lock_folder(path, identity, "this run", "another run_name="))
            self._trace = opened.enter_context((path / PARTIAL_TRACE).open("wb"))
            self._partial = opened.enter_context(
                (path / PARTIAL_PREDICTIONS).open(
                    "w",
                    encoding="utf-8",
                    # a lone surrogate becomes JSON's own escape
                    errors="backslashreplace",
                )
            )
            self._opened = opened.pop_all()

    def record(
        self, question: Question, prediction: Prediction, records: Iterable[CallRecord]
    ) -> None:
        """Store a finished question: its prediction, and its calls as a separate zstd frame."""
        line = json.dumps(prediction.json(), ensure_ascii=False)
        frame = self._compressor.compress(trace_question(question, prediction, records).line())
        with explain_storage_errors(self.path, OUT_ELSEWHERE):
            self._partial.write(f"{line}\n")
            self._partial.flush()
            self._trace.write(frame)
            self._trace.flush()

    def write(self, name: str, text: str) -> Path:
        """Replace a file of the folder, completely or not at all."""
        return replace_file(self.path / name, text)

    def remove(self, name: str) -> None:
        with explain_storage_errors(self.path, OUT_ELSEWHERE):
            (self.path / name).unlink(missing_ok=True)

    def finish(
        self, lines: Iterable[Mapping[str, Json]], config: Config, run: FinishedRun
    ) -> FinishedRun:
        """Write all files of the run except the reports, replacing those of an earlier run, and return it.

        The earlier metrics go first: a run without them is not finished, and these must not be read with its settings.

        Args:
            lines: of `predictions.jsonl`.
        """
        with explain_storage_errors(self.path, OUT_ELSEWHERE):
            (self.path / METRICS_FILE).unlink(missing_ok=True)
        # until `write_metrics` without hashes, so that no file differs from them after a kill
        self.write(MANIFEST, json_text(run.manifest.replace(files=None).json()))
        self.write(PREDICTIONS, jsonl_text(lines))
        with explain_storage_errors(self.path, OUT_ELSEWHERE):
            (self.path / PARTIAL_TRACE).replace(self.path / TRACE)
            (self.path / PARTIAL_PREDICTIONS).unlink(missing_ok=True)
        self.write(
            CONFIG,
            format_yaml({key: value for key, value in config.items() if key != "choices"}),
        )
        return self.write_metrics(
            run, run.metrics.replace(predictions=sha256(self.path / PREDICTIONS))
        )

    def write_metrics(self, run: FinishedRun, metrics: Metrics) -> FinishedRun:
        """Write the manifest with all hashes, then the settings and the metrics. Return the run.

        The metrics are last: after a kill the folder has none, or a file that differs from its hash.
        """
        settings = Chosen(choices=run.choices, settings=run.settings)
        texts = {SETTINGS: json_text(as_json(settings)), METRICS_FILE: json_text(metrics.json())}
        hashes = {name: sha256(self.path / name) for name in (PREDICTIONS, TRACE)}
        hashes |= {name: hash_text(text) for name, text in texts.items()}
        manifest = run.manifest.replace(files=hashes)
        self.write(MANIFEST, json_text(manifest.json()))
        for name, text in texts.items():
            self.write(name, text)
        return replace(run, manifest=manifest, metrics=metrics)

    def close(self) -> None:
        """Close the files. Raise StorageError if the disk is full."""
        with explain_storage_errors(self.path, OUT_ELSEWHERE):
            self._opened.close()
        names = (METRICS_FILE, PREDICTIONS, PARTIAL_PREDICTIONS)
        has_answers = any(has_content(self.path / name) for name in names)
        if self.is_worthless and self._is_new and not has_answers:
            remove_folder(self.path, outputs())


@contextmanager
def lock_folder(
    folder: Path, identity: Mapping[str, Json], what: str, remedy: str
) -> Iterator[None]:
    """Lock a folder and bind it to a configuration. Raise ConfigError with the keys that differ if it has another."""

    def refuse() -> None:
        raise ConfigError(
            f"{folder}: another kgqa process is writing {what}. Wait for it, or set {remedy}."
        )

    with lock_file(folder / ".lock", refuse, OUT_ELSEWHERE):
        target = folder / IDENTITY
        if has_content(target):
            saved = read_json(target, remedy="Remove the folder, or set another run_name=.")
            old, new = flatten(saved if isinstance(saved, dict) else {}), flatten(identity)
            if differing := describe_changes(old, new):
                raise ConfigError(
                    f"{folder} belongs to another configuration. It differs in {', '.join(differing)}. "
                    "Set another run_name= or output_dir=, or remove the folder."
                )
        else:
            replace_file(target, json_text(identity))
        yield


def refuse_foreign_files(folder: Path, replaced: Iterable[str] = _REPLACED) -> None:
    """Raise ConfigError if `output_dir` is no folder, or one that kgqa did not open with files that it would replace.

    A run and a collection write their identity first.
    """
    if file := next((path for path in (folder, *folder.parents) if path.is_file()), None):
        raise ConfigError(f"output_dir={folder}: {file} is a file. Name a folder")
    if (folder / IDENTITY).exists():
        return
    if foreign := [name for name in replaced if (folder / name).exists()]:
        raise ConfigError(
            f"output_dir={folder}: the folder has files that kgqa did not write ({', '.join(foreign)}). "
            "Name a new folder"
        )


def run_name(identity: Mapping[str, Json]) -> str:
    """Return 8 hex digits of everything that can change an answer."""
    return digest(identity, 8)


def trace_question(
    question: Question, prediction: Prediction, records: Iterable[CallRecord]
) -> TracedQuestion:
    """Return a question with its calls in the form of the trace."""
    calls = (
        TracedCall(
            path=record.path,
            reply=format_reply(record.call, record.reply),
            cached=record.cached,
            queued=round(record.queued, 6),
            **format_call(record.call),
        )
        for record in records
    )
    return TracedQuestion(question, prediction, tuple(calls))
