"""A sweep's plan and folder through any life: cells are distinct and in order, done ones stay, others run again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kgqa.artifacts.sweep import CellState, ListedCell, SweepPlan, cell_file, sweep_name
from kgqa.config.axes import expand_grid, parse_axes
from kgqa.errors import ConfigError
from kgqa.runtime.sweep_folder import SweepFolder, keep_state
from kgqa.util.fs import text_digest
from tests.unit.test_run_folder_life import Killed, contents, hurried, killed_at

# what a person writes behind `=`, by what it means
VALUES = {
    "1": 1, "2": 2, "'1'": "1", "1.0": 1.0, "true": True, "'true'": "true", "null": None, "'null'": "null", "a": "a",
    '"a"': "a", "a b": "a b", "[1,2]": [1, 2], "['1',2]": ["1", 2],
}  # fmt: skip
SWEPT = st.dictionaries(
    st.sampled_from(["seed", "method.beam", "limit", "retriever.fields.title"]),
    st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(SWEPT)
def test_the_cells_of_a_grid_are_distinct_named_apart_and_in_a_stable_order(swept: dict[str, list[str]]) -> None:
    overrides = [f"{key}={','.join(values)}" for key, values in swept.items()]
    cells = list(expand_grid(parse_axes(overrides)))
    assert cells == list(expand_grid(parse_axes(overrides)))
    words = [tuple(given) for _, given in cells]
    assert len(set(words)) == len(words)
    assert len({name for name, _ in cells}) == len(cells)
    count = 1
    for values in swept.values():
        count *= len({repr(VALUES[value]) for value in values})
    assert len(cells) == count


ENDS = st.dictionaries(st.integers(0, 3), st.sampled_from(["running", "done", "failed", "not run"]))


class Life(RuleBasedStateMachine):
    @initialize(count=st.integers(1, 4), searching=st.booleans(), killed=st.none() | st.integers(0, 20), ends=ENDS)
    def begin(self, count: int, searching: bool, killed: int | None, ends: dict[int, str]) -> None:
        """searching: its cells are proposed one by one, and it begins with none each time. killed: as it begins."""
        self.hurried = hurried()
        self.root = Path(mkdtemp())
        self.path = self.root / "sweep"
        self.frozen = [f"seed: {number}\n" for number in range(count)]
        self.search = "random" if searching else None
        self.states: dict[int, str] = {}
        if killed is None or searching:
            self.launched(ends)
        else:
            self.killed_as_it_is_launched({}, killed, after=True)

    def teardown(self) -> None:
        self.hurried.close()
        shutil.rmtree(self.root)

    def _launch(self) -> None:
        first = 0 if self.search else len(self.frozen)
        self.states = {number: status for number, status in self.states.items() if status == "done"}
        with SweepFolder(self.path, self._plan(first), self.frozen[:first]) as folder:
            with pytest.raises(ConfigError, match="another kgqa process is working on this sweep"):
                SweepFolder(self.path, self._plan(first), self.frozen[:first])
            for count in range(first + 1, len(self.frozen) + 1):
                folder.grow(self._plan(count), self.frozen[:count])
                if self.states.get(count - 1) != "done":
                    self._end(count - 1, "failed")  # which growing further must not take away

    def _plan(self, count: int) -> SweepPlan:
        return plan(self.frozen[:count]).replace(search=self.search)

    def _end(self, number: int, status: str) -> None:
        keep_state(self.path, number, CellState(status=status, run=None, seconds=1.0, error=None))  # type: ignore[arg-type]
        self.states[number] = status

    @rule(ends=ENDS)
    def launched(self, ends: dict[int, str]) -> None:
        """The same command again: what is done stays, everything else is tried again."""
        self._launch()
        assert [cell.number for cell in SweepPlan.read(self.path).cells] == list(range(len(self.frozen)))
        self.cells_end(ends)

    @precondition(lambda self: (self.path / "sweep.json").is_file())
    @rule(ends=ENDS)
    def cells_end(self, ends: dict[int, str]) -> None:
        for number, status in ends.items():
            if (self.path / "sweep.json").is_file() and number < len(self.frozen) and self.states.get(number) != "done":
                self._end(number, status)

    @precondition(lambda self: not self.search)
    @rule(ends=ENDS, write=st.integers(0, 20), after=st.booleans())
    def killed_as_it_is_launched(self, ends: dict[int, str], write: int, after: bool) -> None:
        if ends:
            self.cells_end(ends)
        before = dict(self.states)
        try:
            with killed_at(write, after=after):
                self._launch()
        except Killed:
            pass
        kept = {number: CellState.read(self.path, number) for number in before}
        self.states = {number: state.status for number, state in kept.items() if state}
        assert self.states.items() <= before.items()
        assert {number for number, status in before.items() if status == "done"} <= self.states.keys()

    @precondition(lambda self: (self.path / "sweep.json").is_file())
    @rule(place=st.integers(0, 3))
    def another_sweep_is_refused(self, place: int) -> None:
        before = contents(self.path)
        for other in ([*self.frozen, "seed: 9\n"], changed(self.frozen, place), self.frozen[::-1]):
            if other != self.frozen:
                assert sweep_name(other) != sweep_name(self.frozen)
                with pytest.raises(ConfigError, match="holds another sweep"):
                    SweepFolder(self.path, plan(other), other)
        with pytest.raises(ConfigError, match="holds another sweep"):
            SweepFolder(self.path, plan([]).replace(search="grid"), [])
        assert contents(self.path) == before

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def a_full_disk_left_an_empty_file(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.states)))
        cell_file(self.path, number, "json").write_bytes(b"")
        del self.states[number]

    @precondition(lambda self: (self.path / "sweep.json").is_file())
    @rule()
    def a_full_disk_left_an_empty_list(self) -> None:
        (self.path / "sweep.json").write_bytes(b"")
        self._launch()

    @invariant()
    def every_cell_that_is_listed_is_frozen_as_it_is_listed(self) -> None:
        if (self.path / "sweep.json").is_file():
            cells = SweepPlan.read(self.path).cells
            assert [cell.frozen for cell in cells] == [text_digest(text, 16) for text in self.frozen[: len(cells)]]
            frozen = [cell_file(self.path, cell.number, "yaml").read_text() for cell in cells]
            assert frozen == self.frozen[: len(cells)]

    @invariant()
    def every_state_is_as_it_was_told(self) -> None:
        if (self.path / "sweep.json").is_file():
            found = {number: CellState.read(self.path, number) for number in range(len(self.frozen))}
            assert {number: state.status for number, state in found.items() if state} == self.states


def plan(frozen: Sequence[str]) -> SweepPlan:
    cells = tuple(
        ListedCell(number=number, name=f"cell {number}", overrides=(), run=None) for number in range(len(frozen))
    )
    return SweepPlan(command=(), axes={}, cells=cells)


def changed(frozen: Sequence[str], place: int) -> list[str]:
    return [f"{text}limit: 3\n" if number == place else text for number, text in enumerate(frozen)]


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=60, stateful_step_count=12, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
