"""Test the command line: help of every command, usage errors, and texts in the terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.cli.commands import BY_NAME, PROGRAM, help_of, parse
from kgqa.cli.main import main
from kgqa.cli.parsing import Command
from kgqa.cli.terminal import Terminal
from kgqa.config.files import config_files
from kgqa.experiment.compare import SUFFIXES
from kgqa.runtime.display import PlainLines
from kgqa.util.registry import load_function
from kgqa.util.text import escape_control, escape_json, one_line, protect_streams

COMMANDS = [PROGRAM, *BY_NAME.values()]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.program)
def test_examples_of_every_help_page_parse(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.name.split(), "--help"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"usage: {command.program} ")
    examples = re.split(r"^examples?:\n", output, flags=re.MULTILINE)[-1].splitlines()
    assert examples
    assert [
        example for example in examples if not f"{example} ".startswith(f"  {command.program} ")
    ] == []
    for example in examples:
        parse([word for word in example.split()[1:] if word != "--help"])
    if command.function:
        assert callable(load_function(command.function))


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("kg export a=1 --corpus b=2 --format graphml c=3", id="options last"),
        pytest.param("kg export --corpus a=1 b=2 --format=graphml c=3", id="options first"),
    ],
)
def test_words_and_options_in_any_order(line: str) -> None:
    args = parse(line.split())
    assert (args.overrides, args.corpus, args.format) == (["a=1", "b=2", "c=3"], True, "graphml")


def test_long_values_and_folders_named_like_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # longer than a file name can be
    ids = f"ids=[{','.join(f'2hop__{number}' for number in range(500))}]"
    assert parse(["collect", "safe", "dataset=demo", ids]).overrides == ["dataset=demo", ids]
    monkeypatch.chdir(tmp_path)
    Path("seed=1").mkdir()  # a folder is no key=value
    args = parse(["evaluate", "seed=1", "seed=2", "--subset"])
    assert (args.positionals, args.overrides) == (["seed=1"], ["seed=2"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("version", "version: no such command. Use kgqa --version", id="version"),
        pytest.param("sweep", "sweep: no such command. Use kgqa run -m with lists", id="sweep"),
        pytest.param("methods", "methods: no such command. Use kgqa run --help", id="methods"),
        pytest.param("ruN", "ruN: no such command. Did you mean run?", id="ruN"),
        pytest.param(
            "kg build --corpse",
            "--corpse: no such option of kgqa kg build. Did you mean --corpus",
            id="kg build --corpse",
        ),
        pytest.param(
            "show", "RUN is missing. Example: kgqa show last. List runs: kgqa runs", id="show"
        ),
        pytest.param(
            "show a b c",
            "c: unexpected argument of kgqa show. Example: kgqa show last",
            id="show a b c",
        ),
        pytest.param("show a --limit 0", "--limit 0: must be at least 1", id="show a --limit 0"),
        pytest.param(
            "show last --question 3",
            "--question: no such option of kgqa show. Write the value without it: kgqa show RUN [QUESTION]",
            id="show last --question 3",
        ),
        pytest.param("run -m", "kgqa run -m: nothing to run. Add keys with lists", id="run -m"),
        pytest.param(
            "compare", "RUN is missing. Example: kgqa compare musique/trace", id="compare"
        ),
        pytest.param(
            "report a --format htm",
            "--format htm: no such value. Did you mean html",
            id="report a --format htm",
        ),
        pytest.param(
            "run method=trace,ircot limit=3",
            "a list of values is a sweep: kgqa run -m method=trace,ircot",
            id="run method=trace,ircot limit=3",
        ),
        pytest.param(
            "run method=trace,irctt",
            "method=irctt: no such method. Did you mean ircot",
            id="run method=trace,irctt",
        ),
        pytest.param(
            "run method=irctt --help",
            "method=irctt: no such method. Did you mean ircot",
            id="run method=irctt --help",
        ),
        pytest.param(
            "data prepare dataset=x",
            "data prepare: no such command. Choose from: check, check-index, download",
            id="data prepare dataset=x",
        ),
        pytest.param(
            "run kg.offline=true",
            "kg.offline=True: unknown key. Choose from: ",
            id="run kg.offline=true",
        ),
        pytest.param(
            "run --method trace",
            "--method: no such option of kgqa run. Write method=trace",
            id="run --method trace",
        ),
        pytest.param(
            "run --dry-run method=trace",
            "--dry-run: no such option of kgqa run. Write dry_run=true",
            id="run --dry-run",
        ),
        pytest.param(
            "run trace", "'trace': expected key=value. Did you mean method=trace?", id="run trace"
        ),
        pytest.param(
            "data check musique", "Did you mean dataset=musique?", id="data check musique"
        ),
        pytest.param(
            "run method=golden limit = 3",
            "'limit': expected key=value without spaces: limit=VALUE",
            id="run limit = 3",
        ),
        pytest.param(
            "run limit= 3", "'3': expected key=value without spaces, e.g. method", id="run limit= 3"
        ),
        pytest.param("run --seed=3", "Write seed=3", id="run --seed=3"),
        pytest.param("run --seed", "Write seed=VALUE", id="run --seed"),
        pytest.param("run --resume", "Every run resumes", id="run --resume"),
        pytest.param("run --nonsense", "Settings are written KEY=VALUE", id="run --nonsense"),
        pytest.param("compare a b --alpha 0.01", "Write alpha=0.01", id="compare --alpha"),
        pytest.param(
            "compare a b --metric f1",
            "All metrics are measured and compared",
            id="compare --metric",
        ),
        pytest.param(
            "compare a b --bogus",
            "Settings are written KEY=VALUE, such as scoring=VALUE",
            id="compare --bogus",
        ),
        pytest.param(
            "compare a, b",
            "a,: no finished run matches. Separate names by spaces",
            id="compare a, b",
        ),
        pytest.param(
            "report a --open=x", "--open: this option has no value. See kgqa", id="--open=x"
        ),
        pytest.param("view --port abc", "--port abc: must be an integer. See", id="--port abc"),
        pytest.param("report a --out", "--out: a value is missing. See kgqa", id="--out"),
        pytest.param(
            "new metric f1",
            "f1: kgqa has a metric of this name. Choose another",
            id="new metric f1",
        ),
        pytest.param(
            "models all", "models all: no such command. Choose from: trained", id="models all"
        ),
        pytest.param(
            "judge last",
            "judge: no such command. Use kgqa evaluate RUN judge=NAME, or judge=NAME with kgqa run",
            id="judge last",
        ),
        pytest.param(
            "cache clear",
            "cache clear: no such command. Use kgqa cache prune --yes",
            id="cache clear",
        ),
        pytest.param(
            "export last",
            "export last: no such command. To export a run: kgqa report RUN --format csv",
            id="export last",
        ),
        pytest.param(
            "run --limit 3",
            "--limit: no such option of kgqa run. Write limit=3",
            id="run --limit 3",
        ),
        pytest.param(
            "serve method=trace",
            "method=trace: kgqa serve has no method=…: remove it",
            id="serve method",
        ),
        pytest.param(
            "serve model=m port=80",
            "port=80: not a key of kgqa serve. Write --port 80",
            id="port=80",
        ),
        pytest.param(
            "run -m method=trace method.beam=range(5,3)",
            "method.beam=range(5,3): no values",
            id="empty range",
        ),
        pytest.param(
            "view --host 0.0.0.0",
            "--host: no such option of kgqa view. kgqa view listens on 127.0.0.1 only",
            id="view --host",
        ),
        pytest.param(
            "collect kgpp", "collect=kgpp: no such recipe. Did you mean kgp?", id="collect kgpp"
        ),
        pytest.param(
            "run kg=trac", "kg=trac: no such knowledge graph. Did you mean trace", id="run kg=trac"
        ),
        pytest.param(
            "ask Who built the mill? docs", "Who built: put the question in quotes", id="ask"
        ),
        pytest.param("ask Who? nofolder", "nofolder: no such file or folder", id="ask nothing"),
        pytest.param(
            "cache prune --older-than 1week",
            "--older-than 1week: must be a number of days, such as 7",
            id="older-than",
        ),
        pytest.param(
            "evaluate pyproject.toml",
            "pyproject.toml: a file, not a run. To score answers of another program: kgqa evaluate --predictions",
            id="evaluate file",
        ),
    ],
)
def test_usage_error_is_one_line_with_a_fix(
    capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    assert main(line.split()) == 2
    output = capsys.readouterr().err
    assert message in output
    assert output.count("\n") == 1


@pytest.mark.parametrize("line", ["serve", "data check"])
def test_help_of_a_command_without_keys_has_a_reason(
    capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert main(line.split()) == 2
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith(f"kgqa: kgqa {line}: key=value is missing. Example: kgqa {line} ")
    assert second.startswith("usage: ")


@pytest.mark.parametrize("name", sorted(config_files("judge")))
def test_help_of_evaluate_lists_every_judge(name: str) -> None:
    listed = re.findall(
        r"(?m)^  ([a-z_, ]+?)  +", help_of(BY_NAME["evaluate"]).partition("judges, ")[2]
    )
    assert name in ", ".join(listed).split(", ")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_help_of_compare_lists_every_format(suffix: str) -> None:
    assert f"FILE{suffix}" in help_of(BY_NAME["compare"])


def test_last_value_of_a_key_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cfg", "limit=2", "method=golden", "limit=3"]) == 0
    output = capsys.readouterr()
    assert "limit: 3" in output.out
    assert "limit= is set more than once. The last one counts: limit=3" in output.err
    assert "method=" not in output.err


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_keeps_a_control_character(text: str) -> None:
    assert not CONTROL.search(escape_control(text))
    assert "\n" not in one_line(text)
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text
    assert escape_control(escape_control(text)) == escape_control(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("\x1b[31mred", "\\x1b[31mred", id="x1b31mred"),
        pytest.param("a\rb", "a\\x0db", id="ax0db"),
        pytest.param("\x7f", "\\x7f", id="x7f"),
        pytest.param("\x9b2J", "\\x9b2J", id="x9b2J"),
        pytest.param("abc\u202ecba", "abc\\u202ecba", id="abcu202ecba"),
        pytest.param("\u2066x\u2069", "\\u2066x\\u2069", id="u2066xu2069"),
        pytest.param("caf\udce9", "caf\\udce9", id="cafudce9"),
        pytest.param("[red]x[/]", "[red]x[/]", id="redx/"),
    ],
)
def test_control_characters_are_escaped(
    capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    assert escape_control(text) == expected
    Terminal().line(text)
    Terminal().table(("a", text), [("b", text)], title=text)
    output = capsys.readouterr().out
    assert not CONTROL.search(output)
    assert output.count(expected) == 4


def test_streams_escape_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (escape_control("a\r\nb\tc\nd"), escape_control("漢字 é 🤷‍♀️ \u2028")) == (
        "a\nb\tc\nd",
        "漢字 é 🤷‍♀️ \u2028",
    )
    stream = io.StringIO()
    PlainLines(stream).line("\x1b]0;title\x07 of \u202egnp.exe")
    assert stream.getvalue() == "\\x1b]0;title\\x07 of \\u202egnp.exe\n"
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    protect_streams()
    sys.stdout.write("café 漢")
    sys.stdout.flush()
    assert raw.getvalue() == b"caf\xe9 \\u6f22"


def test_evaluate_accepts_a_server() -> None:
    assert parse(
        ["evaluate", "last", "judge=three_way", "server=http://127.0.0.1:8000/v1"]
    ).overrides
