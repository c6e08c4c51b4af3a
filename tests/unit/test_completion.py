"""TAB: what can follow a line, and the scripts that ask for it, in the shells that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kgqa.cli import COMMANDS, tree
from kgqa.cli.completion import SCRIPTS, complete
from kgqa.cli.main import main
from kgqa.config.files import groups

ROOT = Path(__file__).parents[2]
METHODS = groups()["method"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kgqa ", [command.NAME for commands in COMMANDS.values() for command in commands]),
        ("kgqa kg ", ["build", "stats", "link", "link-stats", "link-quality", "import", "export", "show"]),
        ("kgqa kg b", ["build"]),
        ("kgqa run me", ["method="]),
        ("kgqa run method=", [f"method={name}" for name in METHODS]),
        ("kgqa run -m method=trace,irc", ["method=trace,ircot"]),
        ("kgqa run method='irc", ["method=ircot"]),
        ("kgqa run method=trace method.be", ["method.beam="]),
        ("kgqa run method=ircot method.be", []),
        ("kgqa run method=ircot method.few_shot.dis", ["method.few_shot.distractors="]),
        ("kgqa run retriever=e5 retriever.shar", ["retriever.shard="]),  # of the file it builds on
        ("kgqa run method.beam=3 rol", ["roles."]),
        ("kgqa run roles.reader=gpt_oss", ["roles.reader=gpt_oss_120b"]),
        ("kgqa run dry_run=", ["dry_run=true", "dry_run=false"]),
        ("kgqa kg build limit=3 --corpus lim", ["limit="]),
        ("kgqa kg build --c", ["--corpus"]),
        ("kgqa report RUN --format ", ["html", "md", "csv", "latex", "jsonl", "eee", "otlp", "trec", "card"]),
        ("kgqa compare RUN RUN ", ["profile=", "seed=", "difference="]),
        ("kgqa evaluate RUN judge=three", ["judge=three_way"]),
        ("kgqa tune tune.me", ["tune.metric="]),
        ("kgqa show out", []),  # the shell knows files
        ("kgqa run method=nothing", []),
    ],
)
def test_what_can_follow(line: str, words: list[str]) -> None:
    assert [word for word, _ in complete(tree(), line)] == words


def test_what_a_key_means_stands_beside_it() -> None:
    assert complete(tree(), "kgqa run method=trace method.beam") == [("method.beam=", "5 §C.4")]


@pytest.mark.parametrize(("given", "said"), [((), "choose from: bash, fish, zsh"), (("fsih",), "did you mean fish")])
def test_a_shell_that_is_not_known_is_refused(
    given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--completion", *given]) == 2
    assert said in capsys.readouterr().err


def shell(name: str, script: str, tmp_path: Path) -> str:
    """What a script prints in a shell that has the completion and `kgqa`."""
    if (program := shutil.which(name)) is None:
        pytest.skip(f"no {name} here")
    command = tmp_path / "kgqa"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kgqa "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    (tmp_path / "script").write_text(f"{SCRIPTS[name]}\n{script}\n", encoding="utf-8")
    ended = subprocess.run(
        [program, str(tmp_path / "script")],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return ended.stdout


def test_bash_is_given_what_follows_the_last_break_of_a_word(tmp_path: Path) -> None:
    """As readline calls it: it has cut the word at = already."""
    asked = 'COMP_LINE="kgqa run method=kno" COMP_POINT=19; _kgqa; printf "%s\\n" "${COMPREPLY[@]}"'
    assert shell("bash", asked, tmp_path) == "knowtrace\n"


def test_fish_is_given_words_and_meanings(tmp_path: Path) -> None:
    found = shell("fish", 'complete -C "kgqa run method=kno"', tmp_path)
    assert found.startswith("method=knowtrace\tKnowTrace (Li et al., KDD 2025)")


def test_the_script_for_zsh_is_zsh(tmp_path: Path) -> None:
    assert shell("zsh", "print $+functions[_kgqa]", tmp_path) == "1\n"
