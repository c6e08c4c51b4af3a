"""The tools of a Python function that answers a question: a model, a search, and the question itself."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kgqa.calls import Generate
from kgqa.errors import ConfigError
from kgqa.extras.serve.objects import call_module, invoke_runnable
from kgqa.extras.serve.processes import describe_session
from kgqa.extras.serve.session import AgentSession, NotSupported
from kgqa.methods.function import Function, is_module, is_runnable
from kgqa.types import AgentReply, Answer, Json, Message, Passage, Prompt, Question
from kgqa.util.redaction import describe_error, function_line


@dataclass(frozen=True)
class Tools:
    """The tools of one question. All calls are calls of kgqa: cached, resumed, counted and traced.

    url: an OpenAI-compatible server for this question only. api_key: its key. model: the name of its model.
    """

    question: Question
    url: str
    retrieve_url: str
    mcp_url: str
    api_key: str
    model: str
    _session: AgentSession

    @property
    def llm(self) -> Any:
        """Return a client of the package `openai`. Raises ConfigError: it is not installed."""
        try:
            from openai import OpenAI
        except ImportError:
            message = (
                "tools.llm needs the package openai. Install it, or use tools.generate or tools.url"
            )
            raise ConfigError(message) from None
        return OpenAI(base_url=self.url, api_key=self.api_key, max_retries=0)

    def generate(
        self,
        prompt: str | Sequence[Mapping[str, str]],
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
    ) -> str:
        """Return the model's reply to a prompt, or to messages with role and content."""
        if not self._session.abilities.model:
            raise NotSupported("there is no model here. Add model to method.needs")
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        prompt_messages = tuple(
            Message(message["role"], message["content"])  # type: ignore[arg-type]
            for message in messages
        )
        most = max_tokens or self._session.limits.max_tokens
        call = Generate(Prompt("agent/chat", prompt_messages), most, tuple(stop), temperature)
        return self._session.submit(call).result().text

    def search(self, query: str, k: int | None = None) -> list[Passage]:
        """Return the best passages for a query, best first. Each has `title`, `text` and `id`."""
        return list(self._session.submit_search(query, k).result())


# of the thread of a question, and of those that it starts with its context
_CURRENT: ContextVar[Tools | None] = ContextVar("kgqa_tools", default=None)


async def run_function(
    agent: Function, question: Question, session: AgentSession, address: str
) -> AgentReply:
    """Run a function in a thread of its own. One that takes longer than the timeout is left behind without calls."""
    values = describe_session(question, session, address)
    urls = (values["openai_base_url"], values["retrieve_url"], values["mcp_url"])
    tools = Tools(question, *urls, session.token, session.abilities.model, session)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(_call(agent.target, question.text, tools))
        except BaseException as error:  # noqa: BLE001 - whatever a user's function raises
            outcome.append(error)
        with suppress(RuntimeError):  # the run has ended before
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=work, name="kgqa-agent", daemon=True).start()
    stopped = asyncio.ensure_future(asyncio.wrap_future(session.stopped))
    waiting = asyncio.ensure_future(ended.wait())
    work_and_stop: list[asyncio.Future[Any]] = [waiting, stopped]
    await asyncio.wait(work_and_stop, timeout=agent.timeout, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    stopped.cancel()
    if not outcome:
        reason = (
            session.stopped.result()
            if session.stopped.done()
            else f"more than method.timeout={agent.timeout:g} s"
        )
        return AgentReply("", problem=reason, searches=session.searches)
    (result,) = outcome
    if isinstance(result, Exception):
        raise result
    if isinstance(result, BaseException):
        return AgentReply(
            "",
            problem=f"the function ended with {describe_error(result)}",
            searches=session.searches,
        )
    try:
        text, problem = _write(result), ""
    except TypeError as error:
        # without a traceback, which would show kgqa's own files
        target = agent.target
        place = f" ({function_line(target)})" if inspect.isfunction(target) else ""
        text, problem = "", f"{agent.function}{place}: {error}"
    return AgentReply(text, problem=problem, searches=session.searches)


def current_tools() -> Tools:
    """Return the tools of the question that this thread answers. Raises ConfigError: it answers none."""
    tools = _CURRENT.get()
    if tools is None:
        raise ConfigError(
            "kgqa.current_tools: no question is answered here. Call it in an agent of kgqa.run(method=…)"
        )
    return tools


def _call(target: Any, question: str, tools: Tools) -> Any:
    """Call a function with the question, and with the tools if it has a second parameter."""
    _CURRENT.set(tools)
    if is_module(target):
        return call_module(target, question, tools.url, tools.api_key)
    if is_runnable(target):
        return invoke_runnable(target, question, tools.url, tools.api_key)
    call = target if callable(target) else target.answer
    takes = [
        each
        for each in inspect.signature(call).parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    result = call(question, tools) if len(takes) > 1 else call(question)
    return asyncio.run(_await(result)) if inspect.isawaitable(result) else result


async def _await(result: Any) -> Any:
    return await result


def _write(result: Any) -> str:
    """Return a result as agents print it: a JSON object with an answer. Raises TypeError: there is none."""
    if isinstance(result, Answer):
        result = {
            "answer": result.text,
            "evidence": list(result.evidence),
            "flags": dict(result.flags),
        }
    elif not isinstance(result, Mapping):
        result = {"answer": getattr(result, "answer", result)}
    answer = result.get("answer", "")
    if answer is None:
        raise TypeError("the function returned None instead of an answer. Is `return` missing?")
    value: dict[str, Json] = {**result, "answer": str(answer)}
    return json.dumps(value, ensure_ascii=False, default=str)
