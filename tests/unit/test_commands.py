"""The tree of commands: help of each with an example, and one line for what cannot be understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.cli import tree
from kgqa.cli.main import main
from kgqa.cli.parsing import Parser, parse
from kgqa.config.files import groups


def parsers(parser: Parser) -> Iterator[Parser]:
    yield parser
    for command in parser.commands.values():
        yield from parsers(command)


EVERY = list(parsers(tree()))


@pytest.mark.parametrize("parser", EVERY, ids=lambda parser: parser.prog)
def test_help_of_every_command_ends_in_an_example(parser: Parser, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*parser.prog.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {parser.prog} ")
    ending = shown.partition("\nexample")[2].splitlines()[1:]
    assert ending
    assert all(line.startswith(f"  {parser.prog} ") or line == f"  {parser.prog}" for line in ending)


@pytest.mark.parametrize("parser", EVERY, ids=lambda parser: parser.prog)
def test_every_example_is_understood(parser: Parser) -> None:
    for example in parser.examples:
        assert parse(tree(), [word for word in example.split()[1:] if word != "--help"]).run


def test_help_of_run_marks_defaults_and_says_what_each_method_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["run", "--help"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert (
        "  trace*         TRACE (Fang et al., Findings of EMNLP 2024): the reader is given chains of triples. "
        "Needs model, triples, ranker, demonstrations_ranker." in shown
    )
    assert "  engine=      llamacpp*, openai, scripted, transformers, vllm" in shown
    assert any(
        re.fullmatch("  limit=null +at most so many questions, the first in file order; null: all", line)
        for line in shown
    )
    assert set(groups()["method"]) <= {line.split()[0].rstrip("*") for line in shown if line.strip()}


def test_help_of_a_choice_shows_its_keys_with_defaults_and_sources(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["run", "--help", "method=kgp", "retriever=e5"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "method.seeds=10 supplement 8.2: first hop" in shown
    assert "Comes with retriever=tfidf_text, graph=tfidf." in shown
    assert 'retriever.separator=" " between title and text; BEIR\'s' in shown
    assert "limit=null" not in shown


STARTS_NOTHING = ["run", "tune", "kg", "kg build", "data index", "kg link", "data download"]


@pytest.mark.parametrize("command", STARTS_NOTHING)
def test_without_a_word_what_would_be_long_shows_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    assert capsys.readouterr().err.startswith(f"usage: kgqa {command} ")


@pytest.mark.parametrize(
    "line",
    ["kg build a=1 --corpus b=2 --workers 3 c=3", "kg build --corpus a=1 b=2 --workers=3 c=3"],
)
def test_words_stand_where_they_like_among_options(line: str) -> None:
    given = parse(tree(), line.split())
    assert (given.overrides, given.corpus, given.workers) == (["a=1", "b=2", "c=3"], True, 3)


def test_a_list_of_ids_may_be_longer_than_a_files_name() -> None:
    ids = f"ids=[{','.join(f'2hop__{number}' for number in range(500))}]"
    assert parse(tree(), ["collect", "safe", "dataset=demo", ids]).overrides == ["dataset=demo", ids]


def test_what_is_on_disk_is_a_place_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seed=1").mkdir()
    given = parse(tree(), ["evaluate", "seed=1", "seed=2", "--subset"])
    assert (given.places, given.overrides) == (["seed=1"], ["seed=2"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ruN", "ruN: no such command; did you mean run or runs?"),
        ("kg biuld", "kg biuld: no such command; did you mean build?"),
        ("kg build --corpse", "--corpse: no such option of kgqa kg build; did you mean --corpus"),
        ("run --multi", "--multi: no such option of kgqa run; did you mean --multirun"),
        ("show", "RUN is missing; e.g. kgqa show last"),
        ("show a b c", "c: one word too many for kgqa show; e.g. kgqa show last"),
        ("show a --svg b", "--svg: draws one question's walk; name it: kgqa show RUN QUESTION --svg FILE"),
        ("compare a", "another RUN is missing; e.g. kgqa compare demo/trace"),
        ("run method=trac --help", "method=trac: no such method; did you mean trace"),
        (
            "run method=trace,ircot limit=3",
            "a list of values is a sweep: kgqa run -m method=trace,ircot",
        ),
        ("run method=choice(trace,ircot)", "a list of values is a sweep: kgqa run -m method=choice(trace,ircot)"),
        ("run method=trace,irctt", "method=irctt: no such method; did you mean ircot"),
        ("data prepare dataset=x", "kgqa data prepare is now kgqa data download"),
        ("status", "kgqa status is now kgqa runs --running"),
        ("run kg.offline=true", "kg.offline is now kg.require_existing"),
        ("models all", "kgqa models all: expected trained"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1


def test_a_key_that_is_given_twice_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--cfg", "limit=2", "method=golden", "limit=3"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "kgqa: limit=2 limit=3: the last one counts\n"
    assert "limit: 3" in shown.out
