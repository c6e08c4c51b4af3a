"""Fuzz the command line: keys and values that users can mistype."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.conftest import FAST, FUZZ, check_message, run_kgqa, temporary_folder

NAMES = """limit seed sample ids budget method.max_answer_tokens method.k dataset.split dataset.path retriever model
engine roles.reader judge kg graph no_such_key method.no_such_key"""
KEYS = st.sampled_from(NAMES.split())
VALUES = st.one_of(
    st.text(max_size=12).filter(lambda text: "\0" not in text and not text.startswith("$")),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        ("null", "true", "[]", "{}", "[1,", "{a:", "'", '"', "a,b", "1..2", "-0", "1e400", "=", "@", "x@y@z")
    ),
)


@FUZZ
@given(key=KEYS, value=VALUES)
@example(key="limit", value="9" * 5000)
@example(key="method", value="trace=x")
@example(key="+method.k", value="5")
@example(key="~method", value="")
def test_any_override_succeeds_or_gets_a_message(key: str, value: str) -> None:
    with temporary_folder() as folder:
        keys = ("method=no_context", "dataset=demo", "limit=1", *FAST, f"{key}={value}", "dry_run=true")
        check_message(run_kgqa(folder, "run", *keys))


@FUZZ
@given(words=st.lists(st.text(alphabet="abkmrun-=. é\n", max_size=8), max_size=4))
@example(words=["run", "--help", "x"])
@example(words=["--version", "run"])
@example(words=["show", ""])
def test_any_command_line_succeeds_or_gets_a_message(words: list[str]) -> None:
    if words[:1] not in (["view"], ["demo"], ["doctor"]):  # these start servers and load weights
        with temporary_folder() as folder:
            check_message(run_kgqa(folder, *words))
