"""Runs that share a pool load a model once; nothing stays open behind them."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineDied
from kgqa.experiment.engines import Pool
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.run import Executed, execute
from kgqa.experiment.session import Runner, Session
from kgqa.runtime.display import QUIET
from kgqa.runtime.services import Service
from tests.e2e.conftest import QUICK, Kgqa

CELL = ["method=no_context", "limit=2", *QUICK]
EXTRACTING = ["method=trace", "limit=2", *QUICK]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the engines that load weights, at their first call, and those of them that are closed.

    An engine that only identifies the run loads nothing. All are closed in the end.
    """
    counts: Counter[str] = Counter()
    built: dict[int, Scripted] = {}
    loaded: set[int] = set()
    left: set[int] = set()
    build, route, close = Scripted.__post_init__, Runner._start_model, Scripted.close

    def count_built(self: Scripted) -> None:
        built[id(self)] = self  # so that no other gets its id
        left.add(id(self))
        build(self)

    def count_loaded(self: Runner, engine: Scripted) -> Service:
        if id(engine) not in loaded:
            loaded.add(id(engine))
            counts["loaded"] += 1
        return route(self, engine)

    def count_closed(self: Scripted) -> None:
        if id(self) in loaded:
            counts["closed"] += 1
        left.discard(id(self))
        close(self)

    monkeypatch.setattr(Scripted, "__post_init__", count_built)
    monkeypatch.setattr(Runner, "_start_model", count_loaded)
    monkeypatch.setattr(Scripted, "close", count_closed)
    yield counts
    assert not left


def run(overrides: Sequence[str], pool: Pool | None = None) -> Executed:
    with Session(Experiment.of(overrides), pool) as session:
        return execute(session, QUIET)


def test_runs_and_stages_with_one_pool_share_one_engine(kgqa: Kgqa, seen: Counter[str]) -> None:
    with closing(Pool()) as pool:
        for words in (["seed=1"], ["seed=2"], ["judge=kgp"]):
            assert run([*CELL, *words], pool).metrics.failed == 0
        assert seen == {"loaded": 1}
    assert seen == {"loaded": 1, "closed": 1}
    cost = run(EXTRACTING).metrics.cost
    assert cost.extraction_paid is not None
    assert cost.extraction_paid.calls > 0
    assert cost.paid.calls > 0
    assert seen == {"loaded": 2, "closed": 2}
    run([*CELL, "seed=3", "judge=kgp"])  # without a pool the reader's engine makes room for the judge's
    assert seen == {"loaded": 4, "closed": 4}


@pytest.mark.parametrize("cell", [CELL, EXTRACTING], ids=["answering", "extracting"])
def test_an_engine_that_died_is_not_given_to_the_next_run(
    kgqa: Kgqa, seen: Counter[str], monkeypatch: pytest.MonkeyPatch, cell: list[str]
) -> None:
    def dies(self: Scripted, calls: Sequence[Any]) -> Any:
        raise EngineDied("no memory left")

    with closing(Pool()) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(Scripted, "answer", dies)
            with pytest.raises(EngineDied, match="no memory left"):
                run(cell, pool)
        assert seen == {"loaded": 1, "closed": 1}
        assert run(cell, pool).metrics.failed == 0
    assert seen == {"loaded": 2, "closed": 2}


def test_ctrl_c_closes_the_engines_of_the_pool(kgqa: Kgqa, seen: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Scripted.answer

    def interrupts(self: Scripted, calls: Sequence[Any]) -> Any:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        return answer(self, calls)

    monkeypatch.setattr(Scripted, "answer", interrupts)
    with pytest.raises(KeyboardInterrupt), closing(Pool()) as pool:
        run(CELL, pool)
    assert seen["closed"] >= seen["loaded"] == 1
