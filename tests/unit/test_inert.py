"""Text of others in a terminal: no orders, whatever it says and whatever the terminal can encode."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table

from kgqa.inert import inert, inert_json, one_line, spell_out
from kgqa.runtime.display import PlainLines
from kgqa.terminal.console import Terminal

ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SHOWN = {
    "\x1b[31mred": "␛[31mred",
    "\x00": "␀",
    "a\rb": "a␍b",
    "\x7f": "␡",
    "\x9b2J": "�2J",
    "abc\u202ecba": "abc�cba",
    "\u2066x\u2069": "�x�",
    "caf\udce9": "caf\\udce9",
    "a\r\nb\tc\nd": "a\nb\tc\nd",
    "漢字 é 🤷‍♀️ \u2028": "漢字 é 🤷‍♀️ \u2028",
}


@pytest.mark.parametrize("text", SHOWN)
def test_what_a_terminal_takes_for_an_order_is_shown(text: str) -> None:
    assert inert(text) == SHOWN[text]


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_holds_an_order_and_json_says_the_same(text: str) -> None:
    assert not ORDERS.search(inert(text))
    assert "\n" not in one_line(text)
    assert json.loads(inert_json(json.dumps(text, ensure_ascii=False))) == text
    assert inert(inert(text)) == inert(text)


@pytest.mark.parametrize("text", [text for text in SHOWN if "\n" not in text and "\u2028" not in text])
def test_lines_tables_and_titles_of_the_terminal_are_inert(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    table = Table("a", escape(text), title=escape(text))
    table.add_row("b", escape(text))
    terminal.line(text)
    terminal.show(table)
    out = capsys.readouterr().out
    assert not ORDERS.search(out)
    assert out.count(SHOWN[text]) == 4


def test_lines_of_a_log_are_inert() -> None:
    stream = io.StringIO()
    PlainLines(stream).line("\x1b]0;title\x07 of \u202egnp.exe")
    assert stream.getvalue() == "␛]0;title␇ of �gnp.exe\n"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", b"... -> caf\\xe9 \\u6f22 --- ^["), ("latin-1", b"... -> caf\xe9 \\u6f22 --- ^[")],
)
def test_what_a_terminal_cannot_encode_is_spelt_out(
    encoding: str, shown: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    spell_out()
    sys.stdout.write(inert("… → café 漢 ─━─ \x1b"))
    sys.stdout.flush()
    assert raw.getvalue() == shown
