"""Whatever a server lists as log-probabilities, a choice has finite shares that sum to 1, or it is refused."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kgqa.calls import Choose
from kgqa.engines.openai.option_logprobs import OptionScorer
from kgqa.engines.openai.payloads import read_response
from kgqa.types import Message, Prompt

OPTIONS = ("A", "B", "C")
NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.floats(), st.integers(), st.none(), st.booleans(), st.sampled_from([-9999.0, 1e-4, "-inf"])
)
ENTRIES = st.lists(
    st.fixed_dictionaries({"token": st.sampled_from(["A", " A", "B", "▁B", "C", "z", ""]), "logprob": NUMBERS}),
    max_size=8,
)


class Listing:
    """Stands in for a client, because no server lists such numbers on demand."""

    server = "hosted"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def plain_text(self, _: Choose) -> None:
        return None

    async def request(self, *_: Any) -> Any:
        return read_response(self.answer, has_logprobs=True), ()


@given(entries=ENTRIES)
@example(entries=[{"token": "A", "logprob": -0.1}, {"token": "B", "logprob": -9999.0}])
@example(entries=[{"token": "A", "logprob": math.nan}])
def test_listed_shares_are_a_distribution_or_refused(entries: list[Any]) -> None:
    listed = {"token": "A", "logprob": -0.1, "top_logprobs": entries}
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    answer = {"choices": [{"message": {"content": "A"}, "logprobs": {"content": [listed]}}], "usage": usage}
    client: Any = Listing(answer)
    call = Choose(Prompt("test/choose", (Message("user", "Pick."),)), OPTIONS)
    try:
        choice = asyncio.run(OptionScorer(client, call)._score_texts())
    except ValueError as error:  # the client repeats the call
        choice, refusal = None, str(error)
        assert "logprob" in refusal
    if choice is not None:
        assert all(map(math.isfinite, choice.logprobs))
        assert math.isclose(sum(map(math.exp, choice.logprobs)), 1, rel_tol=1e-6)
        assert choice.mass is None or 0 < choice.mass <= 1
