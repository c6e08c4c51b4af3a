"""What calls cost: sums by role, US dollars only if prices are known, flags counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kgqa.artifacts.metrics import Flagged
from kgqa.engines.weights import Prices
from kgqa.errors import EngineError
from kgqa.runtime.costs import Ledger, PriceOf
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Completion, Usage
from tests.engines_for_tests import ask

PRICES = Prices(input=1.0, cached=0.5, output=10.0)
REPLY = Completion("said", usage=Usage(prompt_tokens=1000, cached_tokens=400, output_tokens=50, seconds=0.5))


def record(reply: object = REPLY, *, role: str = "reader", cached: bool = False, queued: float = 0.0) -> CallRecord:
    return CallRecord((0,), ask("say", role), reply, cached, queued)


def ledger(*records: CallRecord, price: PriceOf = lambda role: PRICES) -> Ledger:
    ledger = Ledger(price=price)
    for each in records:
        ledger.add(each)
    return ledger


def test_dollars_are_known_only_with_prices_and_flags_counted_once_per_call() -> None:
    costs = ledger(record(queued=1.5), record(queued=0.25), record(cached=True)).costs(2)
    assert costs.method.usd == 3 * (600 * 1.0 + 400 * 0.5 + 50 * 10.0) / 1e6
    assert costs.paid.usd == pytest.approx(costs.method.usd * 2 / 3)
    assert (costs.method.by_role["reader"].usd, ledger(record(cached=True)).costs(1).paid.usd) == (costs.method.usd, 0)
    assert (costs.paid.queue_seconds, costs.method.queue_seconds) == (1.75, None)  # only paid calls wait
    reply = replace(REPLY, usage=replace(REPLY.usage, reasoning_tokens=40))
    costs = ledger(record(reply), record(role="judge")).costs(1)
    assert (costs.method.output_tokens, costs.method.reasoning_tokens) == (100, 40)
    assert costs.method.by_role["judge"].reasoning_tokens is None
    assert costs.method.by_role["reader"].usd == costs.method.by_role["judge"].usd  # reasoning is paid as output
    both = ledger(record(), record(role="selector"), price=lambda role: PRICES if role == "reader" else None)
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
    assert (costs.paid.calls, costs.paid.prompt_tokens, costs.method.calls) == (1, REPLY.usage.prompt_tokens, 2)
