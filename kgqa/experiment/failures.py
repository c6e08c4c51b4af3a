"""Show and log the failures of questions and verdicts."""

from __future__ import annotations

import re
import traceback
from typing import Any

from kgqa.errors import KgqaError, PromptError
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import log_event
from kgqa.util.redaction import describe_error, format_frames

# of failures that are shown and logged with their traceback
MAX_KINDS = 20


def report_failure(
    event: str, error: Exception, line: str, kinds: set[str], display: Display
) -> None:
    """Log a failure. The first of each kind is shown, too, and its traceback is logged. A kind ignores numbers.

    Args:
        event: of the log.
        kinds: those that were shown. A new one is added.
    """
    kind = re.sub(r"\d+", "0", describe_error(error))
    fields: dict[str, Any] = {"cause": type(error).__name__}
    if kind not in kinds and len(kinds) < MAX_KINDS:
        kinds.add(kind)
        fields["traceback"] = "".join(traceback.format_exception(error))
        display.line(f"failed: {line}", alarm=True)
        # of a prompt: the line of the method that does not pass the value
        if isinstance(error, PromptError) or not isinstance(error, KgqaError):
            for frame in format_frames(error):
                display.line(f"  {frame}", alarm=True)
    log_event(event, line, **fields)
