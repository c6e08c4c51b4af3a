"""The tools `search` and `read` for clients of the Model Context Protocol, with the official package `mcp`.

This module needs the package. It is imported with the first request of an MCP client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.transport_security import TransportSecuritySettings

from kgqa.extras.serve.session import AgentSession
from kgqa.types import Passage

MOST = 50  # passages of one result


def build_server(find_session: Callable[[Any], AgentSession | None]) -> Any:
    """Return a server with the two tools.

    find_session: returns the session of a request. It gets None from a client on standard input.
    """
    server = MCPServer(
        "kgqa", instructions="Search a collection of passages, and read the passages of a page."
    )

    def session_of(context: Any) -> AgentSession:
        session = find_session(context.request_context.request)
        if session is None:
            raise ValueError("no open question has this token")
        return session

    @server.tool(structured_output=False)  # type: ignore[untyped-decorator]
    async def search(query: str, context: Context, k: int = 5) -> str:
        """Search for passages. Returns the k best ones, best first, each with its id, title and text."""
        passages = await session_of(context).search(query, max(1, min(k, MOST)))
        return format_passages(passages) or "No passage was found."

    @server.tool(structured_output=False)  # type: ignore[untyped-decorator]
    async def read(title: str, context: Context) -> str:
        """Read all passages of the page with this title."""
        return (
            format_passages(await session_of(context).read(title))
            or "There is no page with this title."
        )

    return server


def build_manager(find_session: Callable[[Any], AgentSession | None]) -> Any:
    """Return what answers HTTP requests. Hosts and origins are checked before."""
    server = build_server(find_session)
    trusting = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server.streamable_http_app(stateless_http=True, json_response=True, transport_security=trusting)
    return server.session_manager


def format_passages(passages: Sequence[Passage]) -> str:
    return "\n\n".join(f"[{passage.id}] {passage.title}\n{passage.text}" for passage in passages)
