"""`method=command`: programs of others as a method, also those that misbehave."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent, indent

import pytest

import kgqa
from kgqa.artifacts.trace import TracedQuestion
from kgqa.cli.main import main
from kgqa.errors import KgqaError
from kgqa.extras.serve.processes import find_marked
from kgqa.runtime.display import QUIET

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package)
pytestmark = pytest.mark.usefixtures("own_folder")
AGENT = """
import json, os, sys, urllib.request

def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))

def search(query, k=2):
    return post(os.environ["RETRIEVE_URL"], {"query": query, "topk": k})["result"]

def chat(text):
    body = {"model": "any", "temperature": 0, "messages": [{"role": "user", "content": text}]}
    return post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)["choices"][0]["message"]["content"]

question = os.environ.get("QUESTION", "")
"""
ANSWERS = "found = search(question)\nreply = chat(found[0]['contents'])\n"


def run(script: str, *words: str, start: str = AGENT, limit: int = 2, **keys: object) -> kgqa.Run:
    Path("agent.py").write_text(start + dedent(script), encoding="utf-8")
    return kgqa.run(
        *words, method="command", dataset="demo", engine="scripted", limit=limit, max_failure_rate=1.0, display=QUIET,
        **keys,  # type: ignore[arg-type]
    )  # fmt: skip


def first(run: kgqa.Run) -> TracedQuestion:
    return run.question(str(run.predictions[0]["question_id"]))


def test_last_line_is_the_answer_and_searches_evidence() -> None:
    traced = first(run(ANSWERS + "print('thinking')\nprint(' Ann ')"))
    assert traced.prediction.answer == "Ann"
    assert [call.kind for call in traced.calls] == ["run_agent", "search", "generate"]
    assert traced.prediction.evidence == tuple(item["id"] for item in traced.calls[1].items or ())
    assert traced.notes["searches"][0][0] == traced.question.text


@pytest.mark.slow
def test_sampled_calls_of_repeats_have_other_seeds() -> None:
    sampled = AGENT.replace('"temperature": 0', '"temperature": 1')
    runs = [
        run("print(chat(question))", f"repeat={repeat}", start=sampled, limit=1)
        for repeat in (1, 2)
    ]
    seeds = {
        call.json().get("seed")
        for each in runs
        for call in first(each).calls
        if call.kind == "generate"
    }
    assert len(seeds - {None}) == 2


def test_json_has_answer_evidence_and_flags() -> None:
    script = """
    found = search(question, 3)
    print(json.dumps({"answer": 42, "evidence": [found[1]["id"], found[0]["title"], "nowhere"], "flags": {"odd": 2}}))
    """
    traced = first(run(script))
    ids = [item["id"] for item in traced.calls[1].items or ()]
    assert traced.prediction.answer == "42"
    assert traced.prediction.evidence == (ids[1], ids[0])
    assert traced.prediction.flags == {"odd": 2, "unknown_evidence": 1}


def test_costs_and_recall_are_those_of_its_calls() -> None:
    metrics = run(ANSWERS + "print(reply)").metrics
    assert metrics.cost.method.calls == 2
    assert metrics.calls == {"RunAgent": 2, "Search": 2, "Generate": 2}
    assert metrics.retrieval is not None


def test_scope_own_searches_passages_of_the_question() -> None:
    traced = first(run("print(len(search('bridge', 50)))", "method.scope=own"))
    ids = {item["id"] for item in traced.calls[1].items or ()}
    assert ids
    assert ids <= {passage.id for passage in traced.question.passages}


def test_lines_are_answered_by_one_process() -> None:
    script = """
    for number, line in enumerate(sys.stdin):
        task = json.loads(line)
        os.environ["RETRIEVE_URL"] = task["retrieve_url"]
        print(json.dumps({"answer": f"{number} {os.getpid()}", "evidence": [search(task["question"])[0]["id"]]}))
        sys.stdout.flush()
    """
    rows = run(script, "method.input=lines", "method.parallel=1", limit=3).predictions
    numbers, processes = zip(*(str(row["answer"]).split() for row in rows), strict=True)
    assert sorted(numbers) == ["0", "1", "2"]
    assert len(set(processes)) == 1
    assert all(row["evidence"] for row in rows)


MISBEHAVIOR: dict[str, tuple[str, str]] = {
    "crashes": ("1 / 0", "exit code 1: ZeroDivisionError: division by zero"),
    "is killed": ("import signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
    "hangs": ("import time; time.sleep(600)", "method.timeout=3 s"),
    "ignores signals": (
        "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 15)]; time.sleep(600)",
        "method.timeout=3 s",
    ),
    "floods the model": ("while True: chat('again')", "more than max_calls=19 calls"),
    "floods the output": ("while True: print('x' * 10_000)", "method.timeout=3 s"),
    "hangs with a child": ("import time; os.fork(); time.sleep(600)", "method.timeout=3 s"),
    "leaves a daemon and crashes": (
        "import time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nsys.exit(3)", "exit code 3",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("script", "problem"), MISBEHAVIOR.values(), ids=MISBEHAVIOR)
def test_agent_that_misbehaves_fails_its_question_only(script: str, problem: str) -> None:
    guarded = (
        f"if os.environ['QUESTION_ID'].endswith('_01'):\n{indent(script, '    ')}\nprint('Ann')"
    )
    started = time.monotonic()
    finished = run(guarded, "method.timeout=3", "max_calls=20")
    first_row, second_row = finished.predictions
    assert problem in str(first_row["error"])
    assert second_row["answer"] == "Ann"
    assert time.monotonic() - started < 60
    assert not _list_children()


def test_orphan_child_does_not_fail_the_question() -> None:
    script = "import time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nprint('Ann')"
    traced = first(run(script))
    assert (traced.prediction.answer, traced.prediction.flags) == ("Ann", {"left_processes": 1})
    assert not _list_children()


@pytest.mark.parametrize(
    "printed", ["b'\\xff\\xfe\\x00\\x1b[31m'", "b'\\x00' * 100_000"], ids=["binary", "zeros"]
)
def test_binary_output_is_an_answer_like_any_other(printed: str) -> None:
    finished = run(f"sys.stdout.buffer.write({printed})")
    assert finished.metrics.failed == 0
    assert finished.report.is_file()


def test_errors_are_in_the_trace() -> None:
    traced = first(run("print('about to fail', file=sys.stderr)\nsys.exit(4)"))
    assert traced.calls[0].reply == {
        "output": "", "errors": "about to fail\n", "exit_code": 4,
        "problem": "the agent ended with exit code 4: about to fail",
    }  # fmt: skip


def test_tokens_of_a_question_are_limited() -> None:
    row = run("while True: chat('word ' * 50)", "method.max_question_tokens=200").predictions[0]
    assert "method.max_question_tokens=200" in str(row["error"])


def test_agent_gets_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "a-secret-value-1234")
    monkeypatch.setenv("PLAIN", "a-secret-value-1234 inside")
    monkeypatch.setenv("HARMLESS", "seen")
    script = "print([name for name in ('MY_API_KEY', 'PLAIN', 'HARMLESS') if name in os.environ])"
    assert first(run(script)).prediction.answer == "['HARMLESS']"
    assert first(
        run(script, "method.keep_env=[MY_API_KEY]", run_name="kept")
    ).prediction.answer == ("['MY_API_KEY', 'HARMLESS']")


def test_token_of_another_question_is_worthless() -> None:
    script = """
    import time, urllib.error
    mine = os.environ["RETRIEVE_URL"]
    with open("tokens", "a") as file:
        file.write(mine + chr(10))
    for url in set(open("tokens").read().split()) - {mine}:
        try:
            post(url, {"query": "bridge"})
            print("reached")
        except urllib.error.HTTPError as error:
            print(error.code)
    """
    answers = [str(row["answer"]) for row in run(script, "method.parallel=1", limit=2).predictions]
    assert sorted(answers) == ["", "401"]


def test_changed_agent_is_another_run() -> None:
    folders = {run(f"print({text!r})").folder for text in ("a", "b", "a")}
    assert len(folders) == 2


def test_other_files_are_part_of_the_agent() -> None:
    folders = []
    for text in ("a", "b"):
        Path("prompt.txt").write_text(text, encoding="utf-8")
        folders.append(run("print('a')", "method.files=['*.txt']").folder)
    assert folders[0] != folders[1]


INVALID: Mapping[str, tuple[str, str]] = {
    "file": ('method.command="python missing.py"', "no file missing.py"),
    "program": ("method.command=no_such_program", "no program no_such_program"),
    "empty": ("method.command=''", "empty"),
    "pattern": ("method.files=[*.none]", "method.files=*.none"),
    "quotes": ('method.command="python \'agent.py"', "method.command"),
}


@pytest.mark.parametrize(("word", "message"), INVALID.values(), ids=INVALID)
def test_invalid_command_stops_before_any_question(word: str, message: str) -> None:
    with pytest.raises(KgqaError, match=message.replace("*", r"\*")):
        run("print('a')", word)


def test_dry_run_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("agent.py").write_text("print('a')", encoding="utf-8")
    assert (
        main(
            ["run", "method=command", "dataset=demo", "engine=scripted", "limit=1", "dry_run=true"]
        )
        == 2
    )
    assert "only running python agent.py shows its calls" in capsys.readouterr().err


def _list_children() -> list[int]:
    """Return the processes of agents that this process started and that are still there."""
    return find_marked(f"{os.getpid()}-") if sys.platform == "linux" else []


def test_processes_are_detected_by_their_mark() -> None:
    assert os.getpid() not in find_marked("")
