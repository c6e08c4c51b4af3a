"""A sweep's folder, as it is claimed and written; what lies in it is `kgqa.artifacts.sweep`'s."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from kgqa.artifacts.sweep import SWEEP, CellState, SweepPlan, cell_file
from kgqa.errors import ConfigError
from kgqa.util.fs import OUT_ELSEWHERE, has_content, json_text, lock_file, replace_file, text_digest


class SweepFolder:
    """Opening claims the folder for these cells, and against other processes until it is closed.

    frozen: the cells' configurations as text, in the order of `plan.cells`. A search adds its cells one by one, so that
    it begins with none, and the folder may hold some from before.

    Raises:
        ConfigError: the folder holds another sweep, or another process is working on it.
        DataError: it is of another version of kgqa, or damaged.
        StorageError: it cannot be created or written.
    """

    def __init__(self, path: Path, plan: SweepPlan, frozen: Sequence[str]) -> None:
        self.path, self._kept = path, 0
        with ExitStack() as claim:
            claim.enter_context(lock_file(path / ".lock", self._refuse, OUT_ELSEWHERE))
            if has_content(path / SWEEP):
                before = SweepPlan.read(path)
                if before.search != plan.search:
                    raise ConfigError(f"{path} holds another sweep; give another sweep.name=, or remove the folder")
                if plan.search is None:
                    _refuse_another(path, [cell.frozen for cell in before.cells], list(map(_digest, frozen)))
            self.grow(plan, frozen)
            self._claim = claim.pop_all()

    def __enter__(self) -> SweepFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._claim.close()

    def grow(self, plan: SweepPlan, frozen: Sequence[str]) -> None:
        """Keep these cells, which go on from those kept so far."""
        for number, text in list(enumerate(frozen))[self._kept :]:
            if (state := CellState.read(self.path, number)) and state.status != "done":
                cell_file(self.path, number, "json").unlink()  # it is tried again
            replace_file(cell_file(self.path, number, "yaml"), text)
        self._kept = len(frozen)
        listed = zip(plan.cells, frozen, strict=True)
        cells = tuple(cell.replace(frozen=_digest(text)) for cell, text in listed)
        replace_file(self.path / SWEEP, json_text(plan.replace(cells=cells).json()))

    def _refuse(self) -> None:
        raise ConfigError(
            f"{self.path}: another kgqa process is working on this sweep; wait for it or give sweep.name="
        )


def keep_state(path: Path, number: int, state: CellState) -> None:
    replace_file(cell_file(path, number, "json"), json_text(state.json()))


def _refuse_another(path: Path, before: Sequence[str], now: Sequence[str]) -> None:
    if before == now:
        return
    if len(before) != len(now):
        differs = f"{len(before)} cells, not {len(now)}"
    else:
        others = [str(number) for number, (old, new) in enumerate(zip(before, now, strict=True)) if old != new]
        differs = f"another configuration in cell {', '.join(others[:5])}{' …' if len(others) > 5 else ''}"
    raise ConfigError(f"{path} holds another sweep: {differs}; give another sweep.name=, or remove the folder")


def _digest(text: str) -> str:
    return text_digest(text, 16)
