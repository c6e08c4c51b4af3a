"""An engine without a model: replies from a file of rules, else from a hash of the prompt. For tests and trying out."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Choose, Generate, ModelCall, ModelReply
from kgqa.engines.adapted import AdaptedBatch
from kgqa.engines.thinking import split_thought
from kgqa.engines.weights import Model
from kgqa.errors import DataError
from kgqa.protocols import Engine
from kgqa.types import Choice, Completion, Json, Usage
from kgqa.util.jsonio import decode_json
from kgqa.util.validators import Count, Validator

WORD = re.compile(r"[^\W\d_]\w+")
LAST_LINES = 3  # of the prompt, from which words are taken: the question or the passage stands there
Delay = Annotated[float, Validator("must be between 0 and 3600 seconds", lambda seconds: 0 <= seconds < 3600)]


class Rule(NamedTuple):
    """A line of the file of rules. `only`: the adapter it names, if it names one."""

    pattern: re.Pattern[str]
    reply: str
    only: tuple[str, ...]

    def answers(self, text: str, adapter: Adapter | None) -> bool:
        through = adapter is not None and adapter.name in self.only
        return (through or not self.only) and self.pattern.search(text) is not None


@dataclass(frozen=True)
class Scripted:
    """The same prompt always gets the same reply.

    `rules` is a JSONL file of {"match": regular expression, "reply": text}; the first rule that matches the prompt
    answers. One with "adapter": NAME is for that adapter's calls alone. Without a match the reply is three capitalised
    words of the prompt's end in the form of a triple, and a choice is a fixed but arbitrary distribution. `delay` is
    the time of a batch in seconds.
    """

    model: Model  # only its name and context count
    rules: str | None
    delay: Delay
    batch_size: Count

    _views: dict[Adapter, AdaptedBatch] = field(default_factory=dict, init=False, repr=False, compare=False)

    streaming: ClassVar[bool] = False
    counts_freely: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _ = self._rules

    def identity(self) -> Mapping[str, Json]:
        rules = [[rule.pattern.pattern, rule.reply, *rule.only] for rule in self._rules]
        return {"engine": "scripted", "model": self.model.name, "rules": rules}

    def render(self, call: ModelCall) -> str:
        return "\n".join([*(message.content for message in call.prompt.messages), call.prompt.prefill])

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    @property
    def base(self) -> Engine:
        return self

    def with_adapter(self, adapter: Adapter) -> Engine:
        """Return the engine with an adapter. Calls through it get other replies, unless a rule answers both."""
        if adapter not in self._views:
            self._views[adapter] = AdaptedBatch(self, adapter, differs=False)  # there are no weights
        return self._views[adapter]

    def answer(self, calls: Sequence[ModelCall]) -> Sequence[ModelReply | Exception]:
        return self.answer_with(calls, None)

    def answer_with(self, calls: Sequence[ModelCall], adapter: Adapter | None) -> Sequence[ModelReply | Exception]:
        """Answer calls as `answer` does, through an adapter."""
        time.sleep(self.delay)
        seconds = self.delay / len(calls) if calls else 0.0
        return [self._reply(call, seconds, adapter) for call in calls]

    def close(self) -> None:
        """Nothing to free."""

    def _reply(self, call: ModelCall, seconds: float, adapter: Adapter | None) -> ModelReply:
        text = self.render(call)
        trained = adapter.digest() if adapter else ""
        digits = hashlib.sha256(
            f"{text}{getattr(call, 'seed', None)}{trained}".encode("utf-8", "backslashreplace")
        ).digest()
        if isinstance(call, Choose):
            weights = [digits[place % len(digits)] / 32 for place in range(len(call.options))]
            total = math.log(sum(map(math.exp, weights)))
            usage = Usage(self.count_tokens(text), 0, 1, seconds)
            return Choice(tuple(weight - total for weight in weights), None, usage)
        rules = (rule.reply for rule in self._rules if rule.answers(text, adapter))
        return self._completion(call, next(rules, None), digits, seconds)

    def _completion(self, call: Generate, ruled: str | None, digits: bytes, seconds: float) -> Completion:
        text, written = self.render(call), ruled
        if written is None:
            words = WORD.findall(" ".join(text.splitlines()[-LAST_LINES:])) or ["nothing"]
            head, relation, tail = (words[digits[place] % len(words)] for place in range(3))
            written = f"<{head}; {relation}; {tail}>"
        cuts = [cut for stop in call.stop if (cut := written.find(stop)) >= 0]
        tokens = written[: min(cuts, default=None)].split(" ")
        kept = tokens[: call.max_tokens]
        usage = Usage(self.count_tokens(text), 0, len(kept), seconds)
        return split_thought(Completion(" ".join(kept), "stop" if len(kept) == len(tokens) else "length", usage))

    @cached_property
    def _rules(self) -> list[Rule]:
        return _read(Path(self.rules)) if self.rules else []


def _read(file: Path) -> list[Rule]:
    """Raise DataError naming file:line."""
    try:
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")  # U+2028 and the like end no line
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"engine.rules={file}: {error}; name a JSONL file of match and reply") from error
    return [_rule(line, f"{file}:{number}") for number, line in enumerate(lines, start=1)]


def _rule(line: str, where: str) -> Rule:
    try:
        rule = decode_json(line)
        only = (str(rule["adapter"]),) if "adapter" in rule else ()
        return Rule(re.compile(rule["match"], re.DOTALL), str(rule["reply"]), only)
    except (ValueError, KeyError, TypeError, re.error) as error:
        raise DataError(f'{where}: not {{"match": …, "reply": …}} ({error})') from error
