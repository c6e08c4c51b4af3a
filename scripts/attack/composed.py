"""What a fork need not compose again.

Hydra takes 0.15 seconds for a configuration, two thirds of what a short command takes in a fork; and most tries begin
with one of ten command lines. So forks hand on what they composed: for the same words, environment and folder, and only
where no conf/ of a person's own is read. Real processes compose for themselves, and so does each new command line.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any


def handed_on(folder: Path) -> None:
    """From now on in this process and its forks, by files in `folder`, which all may write."""
    from kgqa.experiment.config import composing

    folder.mkdir(parents=True)
    for name in ("compose", "_known_keys"):
        made: Callable[[Sequence[str]], Any] = getattr(composing, name)
        for module in tuple(sys.modules.values()):
            if name in vars(module) and vars(module)[name] is made:
                setattr(module, name, kept(made, folder))


def kept(made: Callable[[Sequence[str]], Any], folder: Path) -> Callable[[Sequence[str]], Any]:
    def once(overrides: Sequence[str]) -> Any:
        from kgqa.places import conf_folders

        if len(conf_folders()) > 1:
            return made(overrides)
        asked = repr((made.__name__, list(overrides), sorted(os.environ.items()), os.getcwd()))
        file = folder / sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()
        with suppress(OSError):
            return pickle.loads(file.read_bytes())
        composed = made(overrides)
        with suppress(OSError):  # the command's files may be limited
            unfinished = file.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(pickle.dumps(composed))
            unfinished.rename(file)
        return composed

    return once
