"""Format texts for users."""

from __future__ import annotations


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun: 1 question, 1,200 questions."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
