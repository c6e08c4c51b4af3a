"""Who can call the server, and when its limits end a session."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import requests

from kgqa.extras.serve.server import Server
from kgqa.extras.serve.session import AgentSession, Limits
from tests.serve.worlds import BRIDGE, EVERYTHING, MILL, chat, open_world, post

STRANGERS: dict[str, Mapping[str, str]] = {
    "page": {"Origin": "http://evil.example"},
    "own origin": {"Origin": "http://127.0.0.1"},
    "null origin": {"Origin": "null"},
    "image": {"Sec-Fetch-Site": "cross-site"},
    "rebound name": {"Host": "evil.example"},
    "rebound name with port": {"Host": "evil.example:8745"},
    "name inside": {"Host": "127.0.0.1.evil.example"},
}


@pytest.mark.parametrize("headers", STRANGERS.values(), ids=STRANGERS)
def test_web_page_cannot_call_the_server(headers: Mapping[str, str]) -> None:
    with open_world(["Ann"]) as (address, world, _):
        body = '{"messages": [{"role": "user", "content": "Who?"}]}'
        response = requests.post(
            f"{address}/v1/chat/completions", data=body, headers=headers, timeout=30
        )
        preflight = requests.options(f"{address}/v1/chat/completions", headers=headers, timeout=30)
    assert (response.status_code, preflight.status_code) == (403, 403)
    assert "access-control-allow-origin" not in {
        name.lower() for name in (*response.headers, *preflight.headers)
    }
    assert not world.calls


@pytest.mark.parametrize(
    "path", ["v1/chat/completions", "retrieve", "s/x/v1/chat/completions", "s//retrieve"]
)
def test_path_without_a_token_reaches_no_question(path: str) -> None:
    with open_world() as (address, world, session):
        root = address.removesuffix(f"/s/{session.token}")
        response = post(f"{root}/{path}", {"queries": ["a"]})
    assert response.status_code in (401, 404)
    assert not world.calls


def test_token_of_an_ended_question_is_worthless() -> None:
    server = Server()
    session = AgentSession(lambda program: program.close(), EVERYTHING)
    server.sessions.add(session)
    address = f"{server.open()}/s/{session.token}"
    server.sessions.remove(session)
    try:
        assert chat(address).status_code == 401
    finally:
        server.close()


def test_waiting_request_ends_with_its_question() -> None:
    session = AgentSession(lambda program: program.close(), EVERYTHING)
    from kgqa.calls import Search

    future = session.submit(Search("a", 1))
    session.stop()
    with pytest.raises(Exception, match="has ended"):
        future.result(timeout=5)


def test_shared_server_elsewhere_needs_its_token() -> None:
    session = AgentSession(lambda program: program.close(), EVERYTHING)
    server = Server(session, host="0.0.0.0")
    root = server.open().replace("0.0.0.0", "127.0.0.1")
    try:
        codes = [
            requests.get(f"{root}/v1/models", headers=headers, timeout=30).status_code
            for headers in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": f"Bearer {session.token}"},
            )
        ]
        codes.append(requests.get(f"{root}/s/{session.token}/v1/models", timeout=30).status_code)
    finally:
        server.close()
    assert codes == [401, 401, 200, 200]


def test_calls_of_a_question_are_limited() -> None:
    with open_world(["a", "b", "c"], limits=Limits(calls=2)) as (address, world, session):
        codes = [chat(address).status_code for _ in range(4)]
    assert codes == [200, 200, 403, 403]
    assert session.stopped.result() == "more than max_calls=2 calls"
    assert len(world.calls) == 2


def test_large_body_is_rejected() -> None:
    with open_world() as (address, _, _):
        response = requests.post(f"{address}/retrieve", data=b" " * (33 * 2**20), timeout=60)
    assert response.status_code == 400


SEARCHES: dict[str, tuple[str, dict[str, object], object]] = {
    "Search-R1": ("retrieve", {"queries": ["a", "b"], "topk": 1}, [1, 1]),
    "one query": ("retrieve", {"query": "a", "topk": 2}, 2),
    "FlashRAG": ("search", {"query": "a", "top_n": 2}, 2),
    "FlashRAG's batch": ("batch_search", {"query": ["a", "b"], "top_n": 1}, [1, 1]),
}


@pytest.mark.parametrize(("path", "body", "sizes"), SEARCHES.values(), ids=SEARCHES)
def test_search_answers_in_the_form_of_its_request(
    path: str, body: dict[str, object], sizes: object
) -> None:
    with open_world() as (address, _, _):
        reply = post(f"{address}/{path}", body).json()
    reply = reply["result"] if path == "retrieve" else reply
    assert (len(reply) if isinstance(sizes, int) else [len(each) for each in reply]) == sizes
    first = reply[0] if isinstance(sizes, int) else reply[0][0]
    assert (first["id"], first["contents"]) == (BRIDGE.id, '"Bridge"\nAnn built the bridge.')


def test_scores_are_reciprocal_ranks() -> None:
    with open_world() as (address, _, _):
        body = {"queries": ["a"], "topk": 2, "return_scores": True}
        (results,) = post(f"{address}/retrieve", body).json()["result"]
        pair = post(f"{address}/search", {"query": "a", "top_n": 2, "return_score": True}).json()
    assert [(hit["document"]["id"], hit["score"]) for hit in results] == [
        (BRIDGE.id, 1.0),
        (MILL.id, 0.5),
    ]
    assert pair[1] == [1.0, 0.5]


def test_session_remembers_its_searches() -> None:
    with open_world() as (address, _, session):
        post(f"{address}/retrieve", {"queries": ["a", "b"], "topk": 1})
    assert session.searches == (("a", (BRIDGE,)), ("b", (BRIDGE,)))
