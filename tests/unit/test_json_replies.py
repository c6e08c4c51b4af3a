"""Lists in replies that should be JSON."""

from __future__ import annotations

import pytest

from kgqa.prompting.json_replies import read_list
from kgqa.types import Json

FACTS = [["a", "is", "b"], ["c", "is", "d"]]
REPLIES: dict[str, tuple[str, list[Json] | None]] = {
    "complete": ('{"facts": [["a", "is", "b"], ["c", "is", "d"]]}', FACTS),
    "with text around": ('Sure: {"facts": []}.', []),
    "cut in a string": ('{"facts": [["a", "is", "b"], ["c", "is", "d"], ["e', FACTS),
    "cut behind an item": ('{"named": [], "facts" : [["a", "is", "b"],\n ["c", "is", "d"]', FACTS),
    "broken item": ('{"facts": [["a", "is", "b"], ["c", "is", "d"], [e, "is", "f"]]}', FACTS),
    "cut in the first item": ('{"facts": [["a", "is', None),
    "no list": ('{"facts": "a"}', None),
    "no key": ('{"triples": [["a", "is", "b"]]}', None),
    "no JSON": ("None of them.", None),
}


@pytest.mark.parametrize("name", REPLIES)
def test_complete_items_of_a_list_are_read(name: str) -> None:
    text, items = REPLIES[name]
    assert read_list(text, "facts") == items
