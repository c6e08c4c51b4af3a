"""Files that a test writes, and the refusals that it reads."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgqa.errors import UsageError


def jsonl(*records: Any) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def write(file: Path | str, content: Any) -> Path:
    """Write bytes or a text as they are, anything else as JSON; compressed if the file's name says so."""
    file, text = Path(file), content if isinstance(content, str | bytes) else json.dumps(content)
    data = text if isinstance(text, bytes) else text.encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


def refusal(
    ask: Callable[..., object], *arguments: Any, error: type[Exception] = UsageError
) -> str:
    """The message with which a call is refused: one line, as the person at the keyboard sees it."""
    with pytest.raises(error) as raised:
        ask(*arguments)
    assert "\n" not in str(raised.value)
    return str(raised.value)
