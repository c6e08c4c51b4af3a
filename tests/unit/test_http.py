"""What goes wrong with a server, in words, against real sockets of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from kgqa.util import http
from tests.file_server import Behaviour, serving


@pytest.fixture
def server() -> Iterator[Behaviour]:
    with serving(Behaviour(content=b"content")) as behaviour:
        yield behaviour


def failure(url: str, silence: float = 5.0) -> http.NoResponse:
    with pytest.raises(http.NoResponse) as raised, http.create_client(silence) as client, http.translate_errors():
        client.get(url)
    return raised.value


def test_an_answer_arrives_also_where_the_server_sends_one_elsewhere(server: Behaviour) -> None:
    with http.create_client(5.0) as client, http.translate_errors():
        assert client.get(server.url).content == b"content"
        assert client.get(server.url.replace("/file", "/moved")).content == b"content"
    with http.create_client(5.0, redirected=False) as client:
        assert client.get(server.url.replace("/file", "/moved")).status_code == 302


def test_a_status_that_says_no_is_an_answer(server: Behaviour) -> None:
    with http.create_client(5.0) as client, http.translate_errors():
        assert http.status_line(client.get(f"{server.url}s")) == "HTTP 404 Not Found"


def test_nobody_at_the_address_is_told_from_a_connection_that_breaks(server: Behaviour) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        absent = failure(f"http://127.0.0.1:{unused.getsockname()[1]}/")
    assert isinstance(absent, http.ServerNotFound)
    assert "refused" in str(absent)
    assert isinstance(failure("http://no-such-host.invalid/"), http.ServerNotFound)
    server.cut_after = [3]
    broken = failure(server.url)
    assert not isinstance(broken, http.ConnectionFailed)
    assert str(broken) == "the connection broke (RemoteProtocolError)"


def test_a_server_that_falls_silent_is_given_up(server: Behaviour) -> None:
    server.silence, server.cut_after = threading.Event(), [3]
    silent = failure(server.url, 0.1)
    server.silence.set()
    assert isinstance(silent, http.ResponseTimeout)
    assert str(silent) == "timed out"


def test_an_address_that_is_none_is_said_in_words() -> None:
    assert "port" in str(failure("http://127.0.0.1:port/"))
