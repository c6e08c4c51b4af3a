"""The HTTP server: its routes, its port, and who can reach it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kgqa.engines.event_loop import EventLoopThread
from kgqa.errors import ConfigError
from kgqa.extras.serve import anthropic_api, openai_api, responses_api, retrieve
from kgqa.extras.serve.session import AgentSession, Sessions, error_status
from kgqa.types import Json
from kgqa.util.optional_deps import require_packages
from kgqa.util.redaction import redact
from kgqa.util.text import one_line

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

HOST = "127.0.0.1"
LOCAL = ("127.0.0.1", "localhost", "[::1]")
# connections that wait: several hundred agents can start at once
BACKLOG = 1024
MOST_BYTES = 32 * 2**20  # of a request
SHUTDOWN_SECONDS = 1
Answer = Callable[[Mapping[str, Json], AgentSession], Awaitable[Any]]


@dataclass(frozen=True)
class Guard:
    """Reject requests of web pages, and of hosts that only resolve to this address (DNS rebinding).

    names: accepted hosts. None: any, for a server of which every path has a token.
    """

    app: ASGIApp
    names: tuple[str, ...] | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        name = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        is_page = "origin" in headers or headers.get("sec-fetch-site", "none") != "none"
        if is_page or (self.names is not None and name not in self.names):
            await PlainTextResponse(
                "kgqa serve: not for web pages, and only at its own address\n", 403
            )(scope, receive, send)
        else:
            await self.app(scope, receive, send)


@dataclass
class Server:
    """A server in its own thread. `open` returns its address.

    shared: the session of paths without a token. None: every path needs one.
    """

    shared: AgentSession | None = None
    host: str = HOST
    port: int = 0
    sessions: Sessions = field(default_factory=Sessions)
    loop: EventLoopThread = field(default_factory=lambda: EventLoopThread("kgqa-serve"))

    _server: Any = field(default=None, init=False)
    _serving: Future[None] | None = field(default=None, init=False)
    _listening: socket.socket | None = field(default=None, init=False)

    def open(self) -> str:
        """Listen, and return the address without a slash at its end.

        Raises ConfigError: the extra is missing, or the address cannot be used.
        """
        require_packages("serve", "starlette", "uvicorn")
        import uvicorn

        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            self._listening = socket.create_server(
                (self.host, self.port), family=family, backlog=BACKLOG
            )
            # asyncio does so only for sockets that name their protocol. Otherwise each response takes 40 ms
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise ConfigError(
                f"--host {self.host} --port {self.port}: {reason}. Use another one"
            ) from None
        # cut connections at the end are no errors
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        config = uvicorn.Config(
            Guard(self.application(), LOCAL if self.host in LOCAL else None),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._serving = self.loop.submit(self._server.serve(sockets=[self._listening]))
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        """End all connections."""
        if self._serving is not None:
            self._server.should_exit = True
            wait([self._serving], timeout=5 * SHUTDOWN_SECONDS)
        self.loop.close()
        if self._listening is not None:
            self._listening.close()

    def application(self) -> Starlette:
        from starlette.applications import Starlette
        from starlette.routing import Mount, Route

        answers = {
            "/v1/chat/completions": self._generation(openai_api.chat),
            "/v1/completions": self._generation(openai_api.complete),
            "/v1/responses": self._generation(responses_api.respond),
            "/v1/messages": self._generation(anthropic_api.create_message),
            "/retrieve": self._json(retrieve.retrieve),
            "/search": self._json(retrieve.search),
            "/batch_search": self._json(retrieve.search),
        }
        routes = [Route(path, endpoint, methods=["POST"]) for path, endpoint in answers.items()]
        routes.append(Route("/retrieve", self._describe_index))
        routes.append(Route("/mcp", Mcp(self)))
        routes.append(Route("/v1/models", self._list_models))
        return Starlette(routes=[*routes, Mount("/s/{token}", routes=routes)])

    def find_session(self, request: Request) -> AgentSession | None:
        """Return the session of a request's path."""
        token = request.path_params.get("token")
        if token is None:
            return self.shared if self.host in LOCAL else self._check_key(request)
        is_shared = self.shared is not None and secrets.compare_digest(
            token.encode(), self.shared.token.encode()
        )
        return self.shared if is_shared else self.sessions.find(token)

    def _check_key(self, request: Request) -> AgentSession | None:
        """Return the shared session if the request has its token as an API key."""
        headers = request.headers
        key = headers.get("authorization", "").removeprefix("Bearer ") or headers.get(
            "x-api-key", ""
        )
        is_right = self.shared is not None and secrets.compare_digest(
            key.encode(), self.shared.token.encode()
        )
        return self.shared if is_right else None

    def _json(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        return partial(self._respond, answer, _json_response)

    def _generation(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        return partial(self._respond, answer, _generation_response)

    async def _respond(
        self, answer: Answer, form: Callable[[Any], Response], request: Request
    ) -> Response:
        """Answer a request, or say in OpenAI's form of errors what is wrong."""
        from pydantic import ValidationError

        session = self.find_session(request)
        if session is None:
            return _error(401, "no open question has this token")
        try:
            return form(await answer(await _read_body(request), session))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            return _error(400, f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}")
        except Exception as error:  # noqa: BLE001 - whatever a call raises is an error of this request
            return _error(error_status(error), str(error) or type(error).__name__)

    async def _describe_index(self, request: Request) -> Response:
        """Return the name of what is searched, for the run ID of a client."""
        session = self.find_session(request)
        if session is None:
            return _error(401, "no open question has this token")
        return _json_response({"index": session.abilities.index})

    async def _list_models(self, request: Request) -> Response:
        session = self.find_session(request)
        if session is None:
            return _error(401, "no open question has this token")
        names = [session.abilities.model] if session.abilities.model else []
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "kgqa"} for name in names]
        return _json_response({"object": "list", "data": data})


@dataclass
class Mcp:
    """Answers MCP clients. The package is imported with their first request."""

    server: Server

    _manager: Any = None
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        if self.server.find_session(Request(scope)) is None:
            await _error(401, "no open question has this token")(scope, receive, send)
            return
        try:
            async with self._starting:
                if self._manager is None:
                    self._manager = await self._start()
        except ConfigError as error:
            await _error(501, str(error))(scope, receive, send)
            return
        await self._manager.handle_request(scope, receive, send)

    async def _start(self) -> Any:
        require_packages("mcp", "mcp")
        from kgqa.extras.serve.mcp_api import build_manager

        manager, started = build_manager(self.server.find_session), asyncio.Event()

        async def hold() -> None:
            async with manager.run():
                started.set()
                await asyncio.Event().wait()

        self.server.loop.submit(hold())  # it ends with the loop
        await started.wait()
        return manager


async def _read_body(request: Request) -> dict[str, Json]:
    """Return the JSON object of a request. Raises ValueError: it is none, or too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise ValueError(f"a request must have at most {MOST_BYTES:,} bytes")
    value = json.loads(body)
    if not isinstance(value, dict):
        raise TypeError("a request must be a JSON object")
    return value


def _json_response(value: Json) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(value)


def _generation_response(reply: openai_api.ServedReply) -> Response:
    from starlette.responses import JSONResponse, StreamingResponse

    if reply.events is not None:
        return StreamingResponse(reply.events, media_type="text/event-stream")
    return JSONResponse(reply.response)


def _error(status: int, message: str) -> Response:
    from starlette.responses import JSONResponse

    kind = "invalid_request_error" if status == 400 else "kgqa_error"
    return JSONResponse(
        {"error": {"message": one_line(redact(message)), "type": kind, "code": None}}, status
    )
