"""Compare what a run needs with what its models, retrievers and servers can do, before the first call and any cost.

A method lists its needs in `uses`. Most have a form for every engine: a transcript goes into a message, a choice is
read from a reply, and a flag counts both. `check_capabilities` rejects needs without another form. `check_servers`
contacts the servers of models and encoders. What only a call can tell, such as the endpoints of a hosted model, ends
the run at the first call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from kgqa.cache.store import Origin
from kgqa.errors import ConfigError
from kgqa.experiment.experiment import RANKERS
from kgqa.experiment.session import Session
from kgqa.identity.component import identity_of
from kgqa.protocols import ReachesServer


def check_capabilities(session: Session) -> None:
    """Raise ConfigError if the engine or the retriever lacks what the method needs. Nothing is loaded or contacted."""
    experiment, uses = session.experiment, session.experiment.method.uses
    method = experiment.name("method")
    if "functions" in uses and not _can(session.engines("reader"), "calls_functions"):
        raise ConfigError(
            f"method={method} needs function calls, and engine={experiment.choices.get('engine')} has no function "
            "calls here. Set method.protocol=text if the method has it, or use a server with engine=openai and "
            "engine.endpoints=both."
        )
    if "stops" in uses and not _can(session.engines("reader"), "reports_stops"):
        raise ConfigError(
            f"method.closed_tags=true: the server of engine={experiment.choices.get('engine')} does not report which "
            "stop string ended a reply. Use a vLLM, SGLang or llama.cpp server, or set method.closed_tags=false. If it "
            "is one of them behind a proxy, set engine.server=vllm, sglang or llamacpp."
        )
    if "pool" in uses and not session.retriever.pools:
        raise ConfigError(
            f"method={method} searches a question's own passages, and retriever={experiment.name('retriever')} "
            "cannot. Choose another retriever, e.g. retriever=bm25, or method.scope=corpus if the method has it."
        )


def check_servers(session: Session) -> None:
    """Check each server of the run, unless stored replies may be enough.

    Raises:
        ConfigError: a key or a library is missing, or a server lacks the model or the endpoint.
        EngineDied: there is no server.
    """
    session.engines.check_ready(session.cache)
    session.judge_engines.check_ready(session.cache)
    experiment = session.experiment
    parts: list[Any] = [session.ranker(group) for group in RANKERS if group in experiment.choices]
    if experiment.searches:
        parts.append(session.retriever)
    for part in parts:
        servers = list(find_servers(part))
        if servers and not session.cache.has_calls(Origin.of(identity_of(part))):
            for server in servers:
                server.check_server()


def find_servers(part: object) -> Iterator[ReachesServer]:
    """Yield a component, and those in it, that contact a server."""
    if isinstance(part, ReachesServer):
        yield part
    for field in fields(part) if is_dataclass(part) else ():
        yield from find_servers(getattr(part, field.name))


def _can(engine: Any, ability: str) -> bool:
    return bool(getattr(getattr(engine, "base", engine), ability, True))
