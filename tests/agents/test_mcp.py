"""MCP clients search and read over HTTP and on standard input. `make test-agents` installs the package `mcp`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serve.test_remote import open_server

pytest.importorskip("mcp")
pytestmark = pytest.mark.usefixtures("own_folder")
WORDS = ["retriever=bm25", "dataset=demo"]


async def use(server: Any) -> tuple[list[str], str, str, str]:
    """Return the names of the tools, a result of each, and what an unknown page is."""
    from mcp import Client

    async with Client(server) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        results = await client.call_tool("search", {"query": "Candle Bridge", "k": 2})
        page = await client.call_tool("read", {"title": "Candle Bridge"})
        missing = await client.call_tool("read", {"title": "No such page"})
    return names, results.content[0].text, page.content[0].text, missing.content[0].text


def check(used: tuple[list[str], str, str, str]) -> None:
    names, results, page, missing = used
    assert names == ["search", "read"]
    assert len(results.split("\n\n")) == 2
    assert page.split("] ")[1].startswith("Candle Bridge\n")
    assert missing == "There is no page with this title."


def test_client_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with open_server(*WORDS) as address:
        check(asyncio.run(use(f"{address}/mcp")))


def test_client_on_standard_input() -> None:
    from mcp import StdioServerParameters, stdio_client

    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "kgqa", "serve", *WORDS, "--stdio"], env=environment
    )
    check(asyncio.run(use(stdio_client(command))))
