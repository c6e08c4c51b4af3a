"""A server with one session, whose calls a scripted world answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from kgqa.calls import Program
from kgqa.extras.serve.server import Server
from kgqa.extras.serve.session import AgentAbilities, AgentSession, Limits
from kgqa.testing import drive
from kgqa.types import Json, Passage
from tests.method_world import Reply, World

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package)
EVERYTHING = AgentAbilities("stand-in", frozenset({"judge"}), functions=True, search=True)
NO_LIMITS = Limits()
BRIDGE = Passage.of("Bridge", "Ann built the bridge.")
MILL = Passage.of("Mill", "Bo built the mill.")


@contextmanager
def open_world(
    replies: Iterable[Reply] = (),
    *,
    abilities: AgentAbilities = EVERYTHING,
    limits: Limits = NO_LIMITS,
    key: str = "q",
) -> Iterator[tuple[str, World, AgentSession]]:
    """Yield the address of a session, the world that answers its calls, and the session."""
    world = World(replies, (BRIDGE, MILL))

    def start(program: Program[Any]) -> None:
        drive(program, world)

    session = AgentSession(start, abilities, limits, key=key)
    server = Server()
    server.sessions.add(session)
    try:
        yield f"{server.open()}/s/{session.token}", world, session
    finally:
        server.close()


def post(address: str, body: Json, **headers: str) -> requests.Response:
    return requests.post(address, json=body, headers=headers, timeout=30)


def chat(address: str, **keys: Json) -> requests.Response:
    """Send one message of a user."""
    return post(
        f"{address}/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Who?"}], **keys},
    )
