"""What calls cost, and estimates of planned calls: dollars only if prices are known, speed from the call cache."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kgqa.artifacts.metrics import Flagged
from kgqa.cache.store import CallCache, Origin, StoredUsage
from kgqa.engines.weights import Prices
from kgqa.errors import EngineError
from kgqa.experiment.dry_run import PlannedCalls
from kgqa.experiment.estimates import (
    Estimated,
    Estimator,
    Range,
    RoleHistory,
    format_range,
    read_history,
)
from kgqa.runtime.costs import Ledger, PriceOf, Tally
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Completion, Usage
from tests.engines_for_tests import ask

RUN = Path(__file__).parents[1] / "golden/artefacts/trace"
MODEL = Origin("engine", "model")


def call(
    number: int, seconds: float, prompt: int = 100, output: int = 10, *, cached: int = 0
) -> StoredUsage:
    return StoredUsage(prompt, cached, output, seconds, number, generated=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Range(660, 660), "about 660"),
        (Range(659.6, 660.4), "about 660"),
        (Range(600, 660), "600 to 660"),
    ],
    ids=["equal", "equal in print", "range"],
)
def test_range_has_two_ends_if_they_differ(value: Range, text: str) -> None:
    assert format_range(value, "{:,.0f}") == text


def plan(calls: int, programs: int, *, prompt: int = 100, output: int = 50) -> PlannedCalls:
    return PlannedCalls(
        engine="model@engine", origin=MODEL, at_once=1, prices=Prices(1.0, 0.1, 10.0), render=str,
        every=Tally(calls), new=Tally(calls, Usage(calls * prompt, 0, calls * output)),
        new_programs={(1, number) for number in range(programs)},
    )  # fmt: skip


def cache_with(folder: Path, calls: Sequence[StoredUsage]) -> CallCache:
    cache = CallCache(folder)
    for number, one in enumerate(calls):
        usage = [one.prompt, one.cached, one.output, one.seconds]
        cache.put([(f"key{number}", {"text": "", "usage": usage, "flags": []})], MODEL)
    # a count of tokens has no usage
    cache.put([("count", 12)], MODEL)
    return cache


def test_time_is_a_range_or_unknown(tmp_path: Path) -> None:
    cache = cache_with(tmp_path / "three", [call(0, 1.0), call(0, 1.0), call(0, 1.0)])
    estimated = Estimator(cache).estimate({"reader": plan(6, 6, output=10)}, "")
    assert estimated.seconds is not None
    assert estimated.seconds.low < 6.0 < estimated.seconds.high * 1.3
    assert estimated.tokens == Range(660, 660)
    assert estimated.usd is not None
    assert estimated.usd.low == pytest.approx(6 * (100 + 100) / 1e6)
    estimated = Estimator(cache_with(tmp_path, [])).estimate(
        {"reader": plan(11, 11, output=10)}, ""
    )
    assert estimated.seconds is None
    assert "no call of model@engine is in the call cache" in " ".join(estimated.lines())
    assert Estimated.sum([estimated, estimated]).seconds is None
    estimated = Estimator(cache_with(tmp_path, [])).estimate(
        {"agent": plan(20, 5, output=10)}, "any"
    )
    # a question makes one call, or all that are planned
    assert estimated.tokens == Range(5 * 101, 20 * 110)
    assert "because no run of any with these settings is finished here" in " ".join(estimated.notes)
    few, many = (RoleHistory(questions=count, calls=4 * count).calls_of(1) for count in (2, 200))
    assert few.low < many.low < 4 < many.high < few.high


def test_calls_per_question_come_from_finished_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RUN, "outputs/demo/trace/scripted/one")
    planned = plan(1_000, 10)
    planned.engine = "smollm2_135m@scripted"
    estimated = Estimator(cache_with(tmp_path / "cache", [call(0, 1.0)])).estimate(
        {"selector": planned}, "trace"
    )
    selector = read_history("trace")["selector", planned.engine]
    tokens = 10 * (selector.prompt_tokens + selector.output_tokens) / 2  # it had two questions
    assert estimated.tokens.low < tokens < estimated.tokens.high < 1_000 * 150
    assert (
        "calls: as many per question as in 1 finished run of trace with these settings here"
        in estimated.notes
    )


def test_scripted_engine_takes_no_time(tmp_path: Path) -> None:
    planned = plan(1_000, 10)
    planned.engine = "smollm2_135m@scripted"
    estimated = Estimator(cache_with(tmp_path, [])).estimate({"reader": planned}, "")
    assert estimated.seconds == Range()
    assert "limit=3" not in " ".join(estimated.lines())
    assert "engine=scripted calls no model" in " ".join(estimated.notes)


PRICES = Prices(input=1.0, cached=0.5, output=10.0)
REPLY = Completion(
    "said", usage=Usage(prompt_tokens=1000, cached_tokens=400, output_tokens=50, seconds=0.5)
)


def record(
    reply: object = REPLY, *, role: str = "reader", cached: bool = False, queued: float = 0.0
) -> CallRecord:
    return CallRecord((0,), ask("say", role), reply, cached, queued)


def ledger(*records: CallRecord, price: PriceOf = lambda role: PRICES) -> Ledger:
    ledger = Ledger(price=price)
    for each in records:
        ledger.add(each)
    return ledger


def test_dollars_need_prices() -> None:
    costs = ledger(record(queued=1.5), record(queued=0.25), record(cached=True)).costs(2)
    assert costs.method.usd == 3 * (600 * 1.0 + 400 * 0.5 + 50 * 10.0) / 1e6
    assert costs.paid.usd == pytest.approx(costs.method.usd * 2 / 3)
    assert (costs.method.by_role["reader"].usd, ledger(record(cached=True)).costs(1).paid.usd) == (
        costs.method.usd,
        0,
    )
    assert (costs.paid.queue_seconds, costs.method.queue_seconds) == (
        1.75,
        None,
    )  # only paid calls wait
    reply = replace(REPLY, usage=replace(REPLY.usage, reasoning_tokens=40))
    costs = ledger(record(reply), record(role="judge")).costs(1)
    assert (costs.method.output_tokens, costs.method.reasoning_tokens) == (100, 40)
    assert costs.method.by_role["judge"].reasoning_tokens is None
    assert (
        costs.method.by_role["reader"].usd == costs.method.by_role["judge"].usd
    )  # reasoning is paid as output
    both = ledger(
        record(), record(role="selector"), price=lambda role: PRICES if role == "reader" else None
    )
    costs = both.costs(1)
    assert costs.method.usd is costs.paid.usd is costs.method.by_role["selector"].usd is None
    assert costs.method.by_role["reader"].usd is not None
    flagged = replace(REPLY, flags=("no_prefill", "no_prefill"))
    costs = ledger(record(flagged, cached=True), record(), record(), record()).costs(1)
    assert costs.method.by_role["reader"].flags == {"no_prefill": Flagged(calls=1, share=0.25)}
    assert costs.paid.flags == {}
    free, charged = EngineError("no"), EngineError("no")
    charged.charge(REPLY.usage)
    costs = ledger(record(free), record(charged)).costs(1)
    assert (costs.paid.calls, costs.paid.prompt_tokens, costs.method.calls) == (
        1,
        REPLY.usage.prompt_tokens,
        2,
    )


def test_estimate_of_more_questions_is_scaled() -> None:
    estimate = Estimated(10, 4, Range(100, 200), Range(10, 20), Range(1, 2))
    scaled = estimate.scaled(2.5)
    assert scaled == Estimated(25, 10, Range(250, 500), Range(25, 50), Range(2.5, 5))


@pytest.mark.parametrize(
    ("outputs", "tokens"),
    [([10, 20, 30], Range(6 * 120, 6 * 140)), ([40, 40], Range(6 * 140, 6 * 150))],
    ids=["mean of the cached calls to twice that", "up to the limit of the call"],
)
def test_output_tokens_are_estimated_from_cached_calls(
    tmp_path: Path, outputs: list[int], tokens: Range
) -> None:
    cache = cache_with(tmp_path, [call(0, 1.0, output=output) for output in outputs])
    estimated = Estimator(cache).estimate({"reader": plan(6, 6, output=50)}, "")
    assert estimated.tokens == tokens
