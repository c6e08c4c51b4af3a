"""The environment variables of kgqa, and typos in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

VARIABLES = (
    "KGQA_CACHE",
    "KGQA_CONF",
    "KGQA_DATA",
    "KGQA_ES_API_KEY",
    "KGQA_ES_CA",
    "KGQA_ES_PASSWORD",
    "KGQA_ES_URL",
    "KGQA_ES_USER",
    "KGQA_HOME",
    "KGQA_REPLIES",
    "KGQA_SESSION",
    "KGQA_TRAINED",
)
# a smaller similarity is probably a variable or a folder of another program
SIMILARITY = 0.8


def find_misspelled(names: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each variable that kgqa does not read, but with a name close to one that it reads."""
    for name in sorted(names):
        if not name.startswith("KGQA_") or name.startswith("KGQA_TEST_") or name in VARIABLES:
            continue
        if close := get_close_matches(name, VARIABLES, n=1, cutoff=SIMILARITY):
            yield f"${name} is not a variable of kgqa. Did you mean {close[0]}?"
