"""Run search programs inside the program that searches, so that their calls are in its trace and cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from kgqa.calls import Call, Gather, Program, Search
from kgqa.protocols import SearchProgram

T = TypeVar("T")


def with_search_program(
    programs: Iterable[tuple[str, Program[T]]], searches: SearchProgram | None
) -> Iterable[tuple[str, Program[T]]]:
    """Return programs with searches that `searches` answers. None: return them unchanged."""
    if searches is None:
        return programs
    return ((key, _run(program, searches)) for key, program in programs)


async def _run(program: Program[T], searches: SearchProgram) -> T:
    """Run a program and pass its calls on, except searches."""
    reply: Any = None
    try:
        while True:
            try:
                call = program.throw(reply) if isinstance(reply, Exception) else program.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = await _answer(call, searches)
    finally:
        program.close()


async def _answer(call: Call[Any], searches: SearchProgram) -> Any:
    """Return the reply to a call, or the exception to raise in the program."""
    try:
        match call:
            case Search(keywords=None):
                return await searches.search(call)
            case Gather():
                return await Gather(*(_run(program, searches) for program in call.programs))
        return await call
    except Exception as error:  # noqa: BLE001 - as the scheduler raises a failed call in its program
        return error
