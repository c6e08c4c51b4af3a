"""List the messages and replies of a question, for formats with messages, models and tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from kgqa.artifacts.metrics import METRICS
from kgqa.artifacts.run import AS_READER, FinishedRun
from kgqa.artifacts.trace import TracedCall, TracedQuestion

MODEL_CALLS = ("generate", "choose")
RETRIEVALS = ("search", "neighbours")


@dataclass(frozen=True, slots=True)
class Turn:
    role: str  # system, user, assistant
    content: str
    thought: str = ""


def turns(call: TracedCall) -> Iterator[Turn]:
    """Yield a model call's messages, the reply last; none where it was not answered."""
    for role, content in call.request["prompt"]["messages"]:
        yield Turn(role, content)
    if (text := reply_text(call)) is not None:
        yield Turn("assistant", f"{call.request['prompt']['prefill']}{text}", call.reply.get("thought", ""))


def reply_text(call: TracedCall) -> str | None:
    """Return what a model wrote, or the option that it took for the likeliest; None where it failed."""
    if call.error is not None or call.kind == "generate":
        return call.text
    options: list[str] = call.request["options"]
    return max(zip(call.reply["logprobs"], options, strict=True), key=lambda pair: pair[0])[1]


def is_agentic(traced: TracedQuestion) -> bool:
    """Return whether something was looked up after a model had replied, so that its reply may have led there."""
    kinds = [call.kind for call in traced.calls if call.kind in MODEL_CALLS + RETRIEVALS]
    first = next((place for place, kind in enumerate(kinds) if kind in MODEL_CALLS), len(kinds))
    return any(kind in RETRIEVALS for kind in kinds[first:])


def model_of(run: FinishedRun, role: str) -> str:
    """Return what was chosen for a role: a preset's name, as in "gpt_4o_mini@openai" where it has an engine of its
    own.
    """
    chosen = {key: value for key, value, _ in run.settings}
    own = chosen.get(f"roles.{role}", "None")
    if own == "None" and role in AS_READER:
        own = chosen.get("roles.reader", "None")
    model = run.choices.get("model", "")
    return model if own == "None" else f"{model}{own}" if own.startswith("+") else own


def end_time(run: FinishedRun) -> datetime:
    """When its metrics were written."""
    return datetime.fromtimestamp((run.folder / METRICS).stat().st_mtime, tz=timezone.utc)


def whole(text: str) -> str:
    """Return the text with a question mark for halves of characters, which no UTF-8 holds."""
    return text.encode("utf-8", "replace").decode()
