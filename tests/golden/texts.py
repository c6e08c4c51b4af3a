"""Compare prompts with the texts of a folder, one file per prompt.

After an intended change, write the texts again with `KGQA_UPDATE_GOLDEN=1 pytest tests/golden` and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kgqa.types import Prompt


def check_text(folder: str, name: str, prompt: Prompt, has_prefill: bool = True) -> None:
    text = "".join(f"=== {message.role}\n{message.content}\n" for message in prompt.messages)
    text += f"=== prefill\n{prompt.prefill}\n" if has_prefill else ""
    file = Path(__file__).parent / folder / f"{name}.txt"
    if os.environ.get("KGQA_UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def check_names(folder: str, names: Iterable[str]) -> None:
    """No golden text is left over."""
    assert {file.stem for file in (Path(__file__).parent / folder).glob("*.txt")} == set(names)
