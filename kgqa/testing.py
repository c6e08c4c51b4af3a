"""Helpers for tests of methods: a plain function answers the calls of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kgqa.calls import Call, Gather, Program

T = TypeVar("T")
Reply = Callable[[Call[Any]], Any]


def drive(program: Program[T], reply: Reply, widths: list[int] | None = None) -> T:
    """Run a program and return its result.

    Args:
        reply: answers each call. A reply that is an exception is raised in the program.
        widths: collects the number of programs in each `gather` of the outermost program.
    """
    answer: Any = None
    while True:
        try:
            call = program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        if not isinstance(call, Gather):
            answer = reply(call)
            continue
        if widths is not None:
            widths.append(len(call.programs))
        answer = [_run_child(child, reply) for child in call.programs]


def _run_child(program: Program[Any], reply: Reply) -> Any:
    try:
        return drive(program, reply)
    except Exception as error:  # noqa: BLE001 - settle() hands any failure of a child to its parent
        return error
