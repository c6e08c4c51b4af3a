"""Run agents that are no programs of kgqa: the service that answers `RunAgent`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kgqa.cache.in_flight import Done, Request, ServiceReply
from kgqa.calls import RunAgent
from kgqa.experiment.session import Runner
from kgqa.extras.serve.processes import Processes
from kgqa.extras.serve.server import HOST, Server
from kgqa.extras.serve.session import AgentAbilities, AgentSession, Limits
from kgqa.extras.serve.tools import run_function
from kgqa.identity.component import identity_of
from kgqa.methods.command import CommandAgent
from kgqa.methods.function import Function
from kgqa.methods.outside import OutsideAgent
from kgqa.runtime.services import Service
from kgqa.types import AgentReply
from kgqa.util.digests import digest
from kgqa.util.optional_deps import require_packages


@dataclass(frozen=True)
class Visitors:
    """Agents that others start: they call a server that runs until it is stopped. Each of their calls is on its own.

    announce: called with the address and the token when the server is open.
    """

    agent: OutsideAgent
    announce: Callable[[str, str], None]
    host: str = HOST
    port: int = 0
    # one MCP client on standard input, instead of HTTP
    is_stdio: bool = False


class Agents(Service):
    """Opens a session for each question, runs its agent there, and closes it."""

    listens = True

    def __init__(self, runner: Runner, done: Done) -> None:
        self._runner, self._done = runner, done
        self._settings = runner.experiment.settings
        self._abilities = find_abilities(runner)
        self._server = Server()
        self._processes: Processes | None = None
        # of the loop, which starts later
        self._places: asyncio.Semaphore | None = None

    def submit(self, request: Request) -> None:
        call: RunAgent = request.call
        if isinstance(call.agent, Visitors):
            self._open_server(call.agent, request.ticket)
        else:
            self._server.loop.submit(self._run(call, request.ticket))

    def stop(self, timeout: float) -> None:  # noqa: ARG002 - nothing of an agent is worth waiting for
        if self._processes is not None:
            self._processes.kill_all()
        self._server.close()

    @cached_property
    def _address(self) -> str:
        return self._server.open()

    def _open_server(self, visitors: Visitors, ticket: int) -> None:
        agent = visitors.agent
        session = AgentSession(
            self._runner.adopt,
            self._abilities,
            Limits(None, None, agent.temperature, agent.max_tokens, agent.passages),
            key=self._settings.call_seed,
            is_endless=True,
        )
        if visitors.is_stdio:
            self._server.loop.submit(self._serve_stdio(session, ticket))
            return
        self._server = Server(session, visitors.host, visitors.port)
        visitors.announce(self._address, session.token)

    async def _serve_stdio(self, session: AgentSession, ticket: int) -> None:
        """Serve until the client closes its end."""
        reply: AgentReply | Exception = AgentReply("")
        try:
            require_packages("mcp", "mcp")
            from kgqa.extras.serve.mcp_api import build_server

            await build_server(lambda _: session).run_stdio_async()
        except Exception as error:  # noqa: BLE001 - the command ends with it
            reply = error
        self._done.put(ServiceReply(ticket, reply, cached=False))

    async def _run(self, call: RunAgent, ticket: int) -> None:
        if self._places is None:
            self._places = asyncio.Semaphore(call.agent.parallel)
        async with self._places:
            await self._run_now(call, ticket)

    async def _run_now(self, call: RunAgent, ticket: int) -> None:
        started = time.monotonic()
        session = self._open_session(call, ticket)
        try:
            reply: AgentReply | Exception = await self._run_agent(call, session)
        except Exception as error:  # noqa: BLE001 - whatever fails here is an error of its question
            reply = error
        finally:
            self._server.sessions.remove(session)
        self._done.put(
            ServiceReply(ticket, reply, cached=False, seconds=time.monotonic() - started)
        )

    def _open_session(self, call: RunAgent, ticket: int) -> AgentSession:
        agent: OutsideAgent = call.agent
        # the run of the agent is one of the question's calls
        most = self._settings.max_calls - 1
        session = AgentSession(
            lambda program: self._runner.adopt(program, ticket),
            self._abilities,
            Limits(
                most, agent.max_question_tokens, agent.temperature, agent.max_tokens, agent.passages
            ),
            call.question.passages if agent.scope == "own" else None,
            f"{self._settings.call_seed}/{call.question.id}",
        )
        self._server.sessions.add(session)
        return session

    async def _run_agent(self, call: RunAgent, session: AgentSession) -> AgentReply:
        match call.agent:
            case Function():
                return await run_function(call.agent, call.question, session, self._address)
            case CommandAgent():
                if self._processes is None:
                    self._processes = Processes(call.agent)
                return await self._processes.run(call.question, session, self._address)
        raise TypeError(f"{type(call.agent).__name__} is no agent from outside")


def find_abilities(runner: Runner) -> AgentAbilities:
    """Return what agents can reach: the models and the search of a run."""
    experiment, engines = runner.experiment, runner.engines
    index = digest(identity_of(runner.index), 12) if runner.index is not None else ""
    if not experiment.asks_models:
        return AgentAbilities(search=bool(index), index=index)
    engine: Any = engines("reader")
    base = getattr(engine, "base", engine)
    return AgentAbilities(
        model=str(engines.model("reader").name),
        roles=frozenset(filter(None, experiment.role_nodes)),
        functions=getattr(base, "calls_functions", False),
        logprobs=getattr(base, "lists_logprobs", False),
        prefill=getattr(base, "continues_messages", True),
        search=bool(index),
        index=index,
    )
