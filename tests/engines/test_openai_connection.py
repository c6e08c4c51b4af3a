"""How the engine's requests travel: through proxies, with nothing that was not meant for the server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from kgqa.engines.openai.connection import Connections, Received
from kgqa.util import http
from tests.engines.misbehaving import SECRET, Serving
from tests.engines.openai_calls import CALLS, REPLIES, asked


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


def told(replies: list[object]) -> list[str]:
    return [str(getattr(reply, "text", reply)) for reply in replies]


@pytest.mark.parametrize("written", ["http://127.0.0.1:{port}", "127.0.0.1:{port}"])
def test_a_proxy_of_the_environment_is_used(serving: Serving, proxied: pytest.MonkeyPatch, written: str) -> None:
    proxy = serving()
    proxied.setenv("http_proxy", written.format(port=proxy.port))
    assert told(asked(None, CALLS[:2], base_url="http://models.invalid/v1")) == REPLIES[:2]


def test_no_proxy_is_used_for_what_is_exempt(serving: Serving, proxied: pytest.MonkeyPatch) -> None:
    server, proxy = serving(), serving()
    proxied.setenv("http_proxy", proxy.url)
    proxied.setenv("no_proxy", "127.0.0.1")
    assert told(asked(server, CALLS[:2])) == REPLIES[:2]
    assert not proxy.asked


def test_a_password_file_of_other_programs_is_not_read(
    serving: Serving, proxied: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login someone password hidden\n", encoding="utf-8")
    proxied.setenv("HOME", str(tmp_path))
    server = serving()
    asked(server, CALLS[:1])
    assert server.keys == {f"Bearer {SECRET}"}
    proxied.delenv("OPENAI_API_KEY")
    server = serving()
    asked(server, CALLS[:1])
    assert server.keys == {None}


def received(url: str, most: int = 1 << 20) -> Received:
    async def ask() -> Received:
        connections = Connections(url, {}, 10)
        try:
            return await connections.ask("GET", url, None, most)
        finally:
            await connections.close()

    return asyncio.run(ask())


def test_nobody_at_the_address_is_told_from_an_answer_that_is_too_long(serving: Serving) -> None:
    server = serving()
    assert received(f"{server.url}/models").status == 200
    with pytest.raises(http.ResponseTooLong):
        received(f"{server.url}/models", most=10)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(http.ServerNotFound):
            received(f"http://127.0.0.1:{unused.getsockname()[1]}/")
    for nowhere in ("http://no-such-host.invalid/", "http://127.0.0.1:port/"):
        with pytest.raises(http.ServerNotFound):
            received(nowhere)
