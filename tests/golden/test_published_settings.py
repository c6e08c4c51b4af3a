"""Test that the numbers of methods stay those of their papers and of the authors' programs.

A number changes here only with a better reading of its source. The source is in the field of the component.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from kgqa.util.settings import declared_fields
from tests.composed import composed_node

NUMBERS: dict[str, dict[str, Any]] = {
    "method=all_documents": {"max_answer_tokens": 25},
    "method=corag": {
        "passages": 5,
        "documents": 20,
        "max_steps": 6,
        "chains": 4,
        "temperature": 0.7,
        "max_query_tokens": 64,
        "max_answer_tokens": 128,
    },
    "method=era_cot": {"passages": 5, "threshold": 6, "relations_per_pair": 5, "max_tokens": 256},
    "method=ge_reasoning": {"passages": 5},
    "method=golden": {"max_answer_tokens": 25},
    "method=ircot": {"max_passages": 15, "max_steps": 8, "titles": 3},
    "method=iter_retgen": {"passages": 5},
    "method=kgp": {"seeds": 10, "branching": 3, "hops": 2, "budget": 30, "rounds": [5, 5, 5, 3, 2]},
    "method=knowtrace": {"passages": 5},
    "method=mdr": {"first_hop": 15, "second_hop": 3, "pairs": 30},
    "method=neighbourhood": {"seeds": 5},
    "method=no_context": {"max_answer_tokens": 25},
    "method=r1_searcher": {
        "passages": 5,
        "max_searches": 16,
        "max_turns": 16,
        "max_turn_tokens": 512,
    },
    "method=react": {"passages": 5, "max_step_tokens": 100},
    "method=react_tools": {"passages": 5, "max_turns": 10, "temperature": 0.0},
    "method=research": {"passages": 5, "max_searches": 8, "max_turns": 9, "max_turn_tokens": 1024},
    "method=retrieve_only": {"passages": 15},
    "method=retrieve_read": {"passages": 5, "titles": 3},
    "method=safe": {"passages": 10, "max_steps": 10, "max_retries": 3},
    "method=safe_teacher": {
        "temperature": 0.7,
        "passages": 10,
        "max_steps": 10,
        "max_retries": 3,
        "seed": 42,
    },
    "method=search_agent": {
        "passages": 3,
        "max_searches": 4,
        "max_turns": 5,
        "max_turn_tokens": 500,
    },
    "method=search_o1": {
        "passages": 10,
        "max_searches": 10,
        "max_turns": 15,
        "max_turn_tokens": 4096,
    },
    "method=self_ask": {"passages": 5},
    "method=sg_prompt": {"passages": 5},
    "method=simple_deep_searcher": {
        "passages": 10,
        "max_searches": 10,
        "max_turns": 15,
        "max_turn_tokens": 4096,
    },
    "method=step_search": {
        "passages": 3,
        "max_searches": 5,
        "max_turns": 6,
        "max_turn_tokens": 800,
    },
    "method=tool_agent": {"passages": 5, "max_turns": 10, "temperature": 0.0},
    "method=trace": {
        "candidates": 20,
        "max_length": 4,
        "beam": 5,
        "branch": 5,
        "chains": 5,
        "min_probability": 0.0001,
        "demonstration_count": 3,
        "max_answer_tokens": 25,
    },
    "method=verify": {"gleaning_rounds": 2, "literal_characters": 100, "max_path_tokens": 6000},
    "method=zero_search": {
        "passages": 5,
        "max_searches": 5,
        "max_turns": 6,
        "max_turn_tokens": 500,
    },
    "kg=openie": {"demonstration_count": 1},
    "kg=trace": {"max_tokens": 512, "max_prompt_tokens": 2048, "demonstration_count": 3},
    "kg=trace_released": {"max_tokens": 512, "max_prompt_tokens": 2048, "demonstration_count": 3},
}


def published_numbers(choice: str) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a choice that are numbers with a paper or the authors' program as their source."""
    node = composed_node(*choice.split("="))
    module, _, name = node["_target_"].rpartition(".")
    for key, declaration in declared_fields(getattr(importlib.import_module(module), name)).items():
        value = node.get(key)
        parts = value if isinstance(value, list | tuple) else [value]
        is_number = bool(parts) and all(type(part) in (int, float) for part in parts)
        if is_number and (declaration.setting.paper or declaration.setting.code):
            yield key, list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("choice", NUMBERS)
def test_numbers_are_those_of_the_source(choice: str) -> None:
    assert dict(published_numbers(choice)) == NUMBERS[choice]
