"""Objects of frameworks as agents: modules of DSPy, and runnables of LangChain and LangGraph.

They are known by their methods. kgqa imports none of these packages.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kgqa.types import Json

# names that a chain can have for its input
INPUTS = ("question", "input", "query")
OUTPUTS = ("answer", "output", "result")
# LiteLLM's names of OpenAI's protocol and of any model
MODEL = "openai/any"


def call_module(module: Any, question: str, url: str, key: str) -> Any:
    """Call a module of DSPy, whose model is the one of the run. Its result has the attribute `answer`."""
    with _use_model(module, url, key):
        return module(question=question)


def invoke_runnable(runnable: Any, question: str, url: str, key: str) -> Json:
    """Invoke a runnable. Its configuration has `base_url` and `api_key` for models with configurable fields."""
    configurable = {"base_url": url, "api_key": key, "thread_id": key}
    return read_result(
        runnable.invoke(_write_input(runnable, question), {"configurable": configurable})
    )


def read_result(result: Any) -> Json:
    """Return the answer in the result of a runnable: a text, a message, or a mapping with messages or an answer."""
    if not isinstance(result, Mapping):
        return _text(result)
    if any(name in result for name in OUTPUTS):
        name = next(name for name in OUTPUTS if name in result)
        return {
            **{key: result[key] for key in ("evidence", "flags") if key in result},
            "answer": _text(result[name]),
        }
    messages = result.get("messages") or [""]
    return _text(messages[-1])


def _use_model(module: Any, url: str, key: str) -> AbstractContextManager[Any]:
    """Return a context of DSPy with the model of the run. A module from another package needs none."""
    dspy = sys.modules.get("dspy")
    if dspy is None or not isinstance(module, dspy.Module):
        return nullcontext()
    context: AbstractContextManager[Any] = dspy.context(
        lm=dspy.LM(MODEL, api_base=url, api_key=key, cache=False)
    )
    return context


def _write_input(runnable: Any, question: str) -> Json:
    """Return the question in the form that the runnable expects. A graph without a schema gets messages."""
    messages = {"messages": [{"role": "user", "content": question}]}
    if not hasattr(runnable, "get_input_jsonschema"):
        return messages
    names = runnable.get_input_jsonschema().get("properties", ())
    if "messages" in names:
        return messages
    return next(({name: question} for name in INPUTS if name in names), question)


def _text(value: Any) -> str:
    """Return the text of a message or of any other value."""
    content = (
        value.get("content", "") if isinstance(value, Mapping) else getattr(value, "content", value)
    )
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [part if isinstance(part, str) else part.get("text", "") for part in content]
        return "".join(parts)
    return str(content)
