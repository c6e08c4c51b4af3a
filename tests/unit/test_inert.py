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

from kgqa.cli.terminal.console import Terminal
from kgqa.runtime.display import PlainLines
from kgqa.util.terminal_text import escape_control, escape_json, escape_unencodable, one_line

ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SHOWN = {
    "\x1b[31mred": "\\x1b[31mred",
    "\x00": "\\x00",
    "a\rb": "a\\x0db",
    "\x7f": "\\x7f",
    "\x9b2J": "\\x9b2J",
    "abc\u202ecba": "abc\\u202ecba",
    "\u2066x\u2069": "\\u2066x\\u2069",
    "caf\udce9": "caf\\udce9",
    "a\r\nb\tc\nd": "a\nb\tc\nd",
    "漢字 é 🤷‍♀️ \u2028": "漢字 é 🤷‍♀️ \u2028",
}


@pytest.mark.parametrize("text", SHOWN)
def test_what_a_terminal_takes_for_an_order_is_shown(text: str) -> None:
    assert escape_control(text) == SHOWN[text]


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_holds_an_order_and_json_says_the_same(text: str) -> None:
    assert not ORDERS.search(escape_control(text))
    assert "\n" not in one_line(text)
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text
    assert escape_control(escape_control(text)) == escape_control(text)


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
    assert stream.getvalue() == "\\x1b]0;title\\x07 of \\u202egnp.exe\n"


def test_unencodable_characters_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    escape_unencodable()
    sys.stdout.write("café 漢")
    sys.stdout.flush()
    assert raw.getvalue() == b"caf\xe9 \\u6f22"
