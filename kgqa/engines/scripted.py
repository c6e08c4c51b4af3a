"""An engine without a model, for tests: replies from a file of rules, otherwise from a hash of the prompt."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Choose, ModelCall, ModelReply
from kgqa.engines.base import BaseEngine
from kgqa.engines.chat import reject_tools
from kgqa.engines.thinking import read_reply
from kgqa.errors import DataError
from kgqa.types import Choice, Completion, JsonObject, Usage
from kgqa.util.fs import read_small_text
from kgqa.util.jsonio import decode_json
from kgqa.util.settings import ORDER_OF_SUMS, NotIdentity, Setting
from kgqa.util.validators import Count, Validator

WORD = re.compile(r"[^\W\d_]\w+")
# of the prompt: they contain the question or the passage
LAST_LINES = 3
Delay = Annotated[
    float, Validator("must be between 0 and 3600 seconds", lambda seconds: 0 <= seconds < 3600)
]


class Rule(NamedTuple):
    """A line of the file of rules. adapters: the adapter that it is limited to, or none."""

    pattern: re.Pattern[str]
    reply: str
    adapters: tuple[str, ...]

    def matches(self, text: str, adapter: Adapter | None) -> bool:
        is_allowed = not self.adapters or (adapter is not None and adapter.name in self.adapters)
        return is_allowed and self.pattern.search(text) is not None


@dataclass(frozen=True)
class Scripted(BaseEngine):
    """The same prompt always gets the same reply. Only the model's name counts.

    `rules` is a JSONL file of {"match": regular expression, "reply": text}. The first rule that matches the prompt
    answers. A rule with "adapter": NAME is only for calls with that adapter. Without a match, the reply is a triple of
    three words of the prompt's end. A choice is an arbitrary but fixed distribution. `delay` is the time of a batch in
    seconds.
    """

    rules: Annotated[
        str | None,
        Setting(
            'A JSONL file of {"match": regular expression, "reply": text}. null: replies from a hash of the prompt.'
        ),
        NotIdentity("the rules are in what it loads"),
    ] = None
    delay: Annotated[
        Delay, Setting("Seconds per batch."), NotIdentity("takes time only", reported=False)
    ] = 0.0
    batch_size: Annotated[Count, Setting("Number of calls per batch."), ORDER_OF_SUMS] = 16

    streaming: ClassVar[bool] = False
    calls_functions: ClassVar[bool] = False
    lists_logprobs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = self._rules

    @property
    def estimates_tokens(self) -> bool:
        return True

    def loads(self) -> JsonObject:
        """Return the model's name, because it has no weights, and the rules."""
        rules = [[rule.pattern.pattern, rule.reply, *rule.adapters] for rule in self._rules]
        return {"model_name": self.model.name, "rules": rules}

    def render(self, call: ModelCall) -> str:
        reject_tools(call)
        return "\n".join(
            [*(message.content for message in call.prompt.messages), call.prompt.prefill]
        )

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def answer(
        self, calls: Sequence[ModelCall], adapter: Adapter | None = None
    ) -> Sequence[ModelReply | Exception]:
        """Answer calls, with an adapter if there is one. It changes all replies without a rule."""
        time.sleep(self.delay)
        seconds = self.delay / len(calls) if calls else 0.0
        return [self._reply(call, seconds, adapter) for call in calls]

    def close(self) -> None:
        """Free nothing."""

    def _reply(self, call: ModelCall, seconds: float, adapter: Adapter | None) -> ModelReply:
        text = self.render(call)
        salted = f"{text}{getattr(call, 'seed', None)}{adapter.digest() if adapter else ''}"
        digest = hashlib.sha256(salted.encode("utf-8", "backslashreplace")).digest()
        if isinstance(call, Choose):
            weights = [digest[n % len(digest)] / 32 for n in range(len(call.options))]
            total = math.log(sum(map(math.exp, weights)))
            usage = Usage(self.count_tokens(text), 0, 1, seconds)
            mass = (
                math.exp(-digest[0] / 32) if len(call.options) == 1 else None
            )  # the likelihood of a text
            return Choice(tuple(weight - total for weight in weights), mass, usage)
        reply = next((rule.reply for rule in self._rules if rule.matches(text, adapter)), None)
        if reply is None:
            words = WORD.findall(" ".join(text.splitlines()[-LAST_LINES:])) or ["nothing"]
            reply = "<{}; {}; {}>".format(*(words[digest[n] % len(words)] for n in range(3)))
        before, stop = call.split_at_stop(reply)
        tokens = before.split(" ")
        output = tokens[: call.max_tokens]
        usage = Usage(self.count_tokens(text), 0, len(output), seconds)
        is_complete = output == tokens
        stopped_by = (stop if is_complete else "") if call.stop else None
        completion = Completion(
            " ".join(output), "stop" if is_complete else "length", usage, stopped_by=stopped_by
        )
        return read_reply(call, completion)

    @cached_property
    def _rules(self) -> list[Rule]:
        return _read(Path(self.rules)) if self.rules else []


def _read(file: Path) -> list[Rule]:
    """Return the rules of a file. Raise DataError with file:line."""
    try:
        # not at U+2028 as `splitlines`
        lines = read_small_text(file).removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"engine.rules={file}: {getattr(error, 'strerror', None) or error}. Name a JSONL file of match and reply."
        ) from error
    rules = []
    for number, line in enumerate(lines, start=1):
        try:
            rule = decode_json(line)
            adapters = (str(rule["adapter"]),) if "adapter" in rule else ()
            rules.append(Rule(re.compile(rule["match"], re.DOTALL), str(rule["reply"]), adapters))
        except (ValueError, KeyError, TypeError, re.error) as error:  # noqa: PERF203 - with the line's number
            raise DataError(f'{file}:{number}: not {{"match": …, "reply": …}} ({error})') from error
    return rules
