"""A reply while it is being written token by token: stop strings, length, sampling."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from kgqa.calls import Generate
from kgqa.engines.grammar import Constraint

Tensor = Any  # torch is imported late and not checked
SPARE = 16  # tokens decoded in front of a possible stop string, so that a character split over tokens comes out whole


class DecodedReply:
    """One row of a batch. Its own decoding settings alone decide when it ends and what is drawn."""

    def __init__(
        self,
        call: Generate,
        decode: Callable[[list[int]], str],
        ends: Collection[int],
        constraint: Constraint | None,
    ) -> None:
        self._call, self._decode, self._ends, self._constraint = call, decode, ends, constraint
        self._tokens: list[int] = []
        self._longest_stop = max(map(len, call.stop), default=0)
        self._generator: Any = None
        self.finish: Literal["stop", "length"] = "length"
        self.spent = 0  # tokens drawn, the end token included

    @property
    def text(self) -> str:
        """Return what was written, up to the first stop string."""
        written = self._decode(self._tokens)
        cuts = [cut for stop in self._call.stop if (cut := written.find(stop)) >= 0]
        return written[: min(cuts, default=None)]

    def pick(self, logits: Tensor) -> int | None:
        """Return a token drawn at the call's temperature; None for the likeliest of all. A missing seed counts as 0."""
        import torch

        if self._constraint:
            logits = self._constraint.allowed(logits)
        if self._call.temperature == 0:
            return int(logits.argmax()) if self._constraint else None
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(self._call.seed or 0)
        # On the CPU and in double precision: the same seed draws the same token on every device
        chances = torch.softmax(logits.double().cpu() / self._call.temperature, -1)
        if self._call.top_p < 1:
            ordered, order = chances.sort(descending=True, stable=True)
            ordered[ordered.cumsum(-1) - ordered >= self._call.top_p] = 0  # keeps the token that crosses top_p
            chances = torch.zeros_like(chances).scatter(-1, order, ordered)
        return int(torch.multinomial(chances, 1, generator=self._generator))

    def push(self, token: int) -> bool:
        """Return true when the reply is complete: an end token, a stop string, all that its schema wants, or
        `max_tokens`.
        """
        self.spent += 1
        if token in self._ends:
            self.finish = "stop"
            return True
        self._tokens.append(token)
        complete = self._constraint is not None and self._constraint.push(token)
        if complete or (self._longest_stop and self._stops()):
            self.finish = "stop"
            return True
        return self.spent >= self._call.max_tokens

    def _stops(self) -> bool:
        """Return whether the reply ends with a stop string. Only its end is decoded: an earlier one would have been
        seen.
        """
        tail = self._decode(self._tokens[-self._longest_stop - SPARE :])
        return any(stop in tail for stop in self._call.stop)
