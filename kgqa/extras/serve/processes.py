"""Agents in processes of their own: their environment, their limits, and their end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kgqa.extras.serve.session import AgentSession
from kgqa.methods.command import CommandAgent
from kgqa.types import AgentReply, Question
from kgqa.util.redaction import is_secret, redact, secret_variables

# bytes at the end of an agent's output that are read and stored
SHOWN = 16_000
# seconds for pipes that other processes hold open
GRACE = 2.0
POLL = 0.02  # seconds
# variable that all processes of an agent inherit, so that none is left
MARK = "KGQA_SESSION"


class Processes:
    """Runs a command. Each process leads its own group, and nothing of the group outlives its question."""

    def __init__(self, agent: CommandAgent) -> None:
        self._agent = agent
        self._idle: list[Process] = []  # that wait for a line
        self._marks: dict[int, str] = {}  # of running processes, by id

    async def run(self, question: Question, session: AgentSession, address: str) -> AgentReply:
        """Run a process that answers a question."""
        if self._agent.input == "lines":
            return await self._send_line(question, session, address)
        return await self._run_once(question, session, address)

    def kill_all(self) -> None:
        for process_id, mark in list(self._marks.items()):
            kill_processes(process_id, mark)

    async def _run_once(
        self, question: Question, session: AgentSession, address: str
    ) -> AgentReply:
        variables = {
            name.upper(): value
            for name, value in describe_session(question, session, address).items()
        }
        keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), session.token)
        process = await self._start({**variables, **keys}, session.token, stdin=DEVNULL)
        output, errors = End(process.stdout), End(process.stderr)
        try:
            problem = await self._wait(asyncio.ensure_future(wait_for_exit(process)), session)
        finally:
            left = self._end(process)
        await asyncio.wait([output.reading, errors.reading], timeout=GRACE)
        if not problem and process.returncode:
            problem = _explain_exit(process.returncode, errors.text)
        flags = ("left_processes",) if left and not problem else ()
        return AgentReply(
            output.text, errors.text, process.returncode, problem, session.searches, flags
        )

    async def _send_line(
        self, question: Question, session: AgentSession, address: str
    ) -> AgentReply:
        """Send the question to a process that waits for one, or to a new one."""
        process = (
            self._idle.pop() if self._idle else await self._start({}, session.token, stdin=PIPE)
        )
        assert process.stdin is not None
        assert process.stdout is not None
        line = json.dumps(
            {"api_key": session.token, **describe_session(question, session, address)}
        )
        reading = asyncio.ensure_future(_exchange(process, line))
        problem = await self._wait(reading, session)
        answer = "" if problem or reading.cancelled() else reading.result()
        if not problem and not answer:
            problem = "the agent ended before it answered"
        if problem:
            self._end(process)
            errors = End(process.stderr)
            await asyncio.wait([errors.reading], timeout=GRACE)
            return AgentReply(answer, errors.text, process.returncode, problem, session.searches)
        self._idle.append(process)
        return AgentReply(answer, searches=session.searches)

    async def _start(self, variables: Mapping[str, str], mark: str, stdin: int) -> Process:
        # the number of this process tells its agents from those of other runs
        mark = f"{os.getpid()}-{mark}"
        environment = {**clean_environment(self._agent.keep_env), **variables, MARK: mark}
        # so that no agent outlives kgqa, even if kgqa is killed
        guard = (
            [setpriv, "--pdeathsig", "KILL", "--"] if (setpriv := shutil.which("setpriv")) else []
        )
        process = await asyncio.create_subprocess_exec(
            *guard,
            *self._agent.argv,
            env=environment,
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
            limit=SHOWN,
            start_new_session=True,
        )
        self._marks[process.pid] = mark
        return process

    async def _wait(self, work: asyncio.Future[Any], session: AgentSession) -> str:
        """Wait for a process. Return why it was stopped, or ""."""
        stopped = asyncio.ensure_future(asyncio.wrap_future(session.stopped))
        finished, _ = await asyncio.wait(
            [work, stopped], timeout=self._agent.timeout, return_when=asyncio.FIRST_COMPLETED
        )
        stopped.cancel()
        if work in finished:
            return ""
        work.cancel()
        return (
            session.stopped.result()
            if stopped in finished
            else f"more than method.timeout={self._agent.timeout:g} s"
        )

    def _end(self, process: Process) -> bool:
        """Kill what is left of a process. Return whether there were others than itself."""
        return kill_processes(process.pid, self._marks.pop(process.pid))


class End:
    """Reads a pipe to its end, and keeps its last bytes. What is not UTF-8 is replaced."""

    def __init__(self, pipe: asyncio.StreamReader | None) -> None:
        assert pipe is not None
        self._pipe, self._bytes = pipe, b""
        self.reading = asyncio.ensure_future(self._read())

    @property
    def text(self) -> str:
        return redact(self._bytes.decode("utf-8", "replace").replace("\0", "\ufffd"))

    async def _read(self) -> None:
        while part := await self._pipe.read(SHOWN):
            self._bytes = (self._bytes + part)[-SHOWN:]


async def wait_for_exit(process: Process) -> None:
    """Wait until a process has ended, even if a child of it holds its pipes. `Process.wait` waits for those, too."""
    while process.returncode is None:
        await asyncio.sleep(POLL)


async def _exchange(process: Process, line: str) -> str:
    """Send a line and return the next line of the process, or "" if it ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):
        process.stdin.write(f"{line}\n".encode())
        await process.stdin.drain()
    try:
        answer = await process.stdout.readline()
    except ValueError:  # longer than the limit
        return ""
    return answer.decode("utf-8", "replace").strip()


def describe_session(question: Question, session: AgentSession, address: str) -> dict[str, str]:
    """Return what an agent gets to know, by the names of variables and of keys of a line."""
    base = f"{address}/s/{session.token}"
    return {
        "openai_base_url": f"{base}/v1",
        "anthropic_base_url": base,
        "retrieve_url": f"{base}/retrieve",
        "mcp_url": f"{base}/mcp",
        "model": session.abilities.model,
        "question": question.text,
        "question_id": question.id,
    }


def clean_environment(names: tuple[str, ...]) -> dict[str, str]:
    """Return the environment without variables whose names or values are secret, except `kept`."""
    secrets = [value.strip() for value in secret_variables().values()]
    return {
        name: value
        for name, value in os.environ.items()
        if name in names or not (is_secret(name) or any(secret in value for secret in secrets))
    }


def kill_processes(leader: int, mark: str) -> bool:
    """Kill the group of a process, and on Linux all that have its mark in another group. Return whether there were any.

    The leader itself may have ended.
    """
    is_alive = False
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
        is_alive = True
    for process_id in find_marked(mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process_id, signal.SIGKILL)
            is_alive = True
    return is_alive


def find_marked(mark: str) -> list[int]:
    """Return the processes whose environment has the mark. Only Linux shows environments."""
    wanted, processes = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes():
                processes.append(int(folder.name))
    return processes


def _explain_exit(code: int, errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    reason = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the agent ended with {reason}" + (f": {lines[-1][:300]}" if lines else "")
