"""A person's mistake: one line that names the key or file:line, the value and the remedy; exit code 2; nothing lost."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import replies_kept, started


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("method=trac", "Did you mean trace"),
        ("dataset=musiqu", "Did you mean musique"),
        ("model=smollm", "Did you mean smollm2_135m"),
        ("engine=vlm", "no such engine"),
        ("engine=null", "no such engine"),
        ("+@=x", "+@=x"),
        ("@=-1.5", "'@=-1.5': expected key=value"),
        ("ranker=null", "ranker=null: method=trace needs one"),
        ("demonstrations_ranker=null", "demonstrations_ranker=null: method=trace needs one"),
        ("demonstrations_ranker=lexicl", "no such demonstrations_ranker. Did you mean lexical"),
        ("limt=3", "Did you mean limit"),
        ("method.bean=3", "method.bean=3: unknown key. Did you mean beam"),
        ("limit=-1", "limit=-1: must be at least 1"),
        ("limit=abc", "limit=abc"),
        ("max_failure_rate=-0.1", "max_failure_rate=-0.1"),
        ("max_failure_rate=1.5", "max_failure_rate=1.5"),
        ("max_parallel_questions=0", "max_parallel_questions=0: must be at least 1"),
        ("method.beam=zero", "method.beam=zero"),
        ("method.beam=0", "method.beam=0: must be at least 1"),
        ("method.context=tripels", "method.context=tripels"),
        ("ids=[nothing]", "ids=nothing: no such question"),
        ("+dataset.verified=[null]", "dataset.verified=[null]: expected a folder of kgqa data verify, or null"),
        ("dataset.verified=1.5", "dataset.verified=1.5: expected a folder of kgqa data verify, or null"),
        ("run_name=a/b", "run_name=a/b: must be a plain folder name"),
        ("roles.reader=gpt", "roles.reader=gpt"),
        ("scoring=squad", "squad"),
        ("limit", "expected key=value"),
        ("seed=1,2", "seed=1,2: several values: write a list as seed=[1,2]"),
        ("dataset.path=a#b", "dataset.path=a#b: cannot be read. Close all brackets, or put quotes around"),
        ("dataset.path=nowhere.jsonl", "nowhere.jsonl"),
        ("method._target_=os.system", "Only these and kgqa"),
        ("+hydra=[null]", "kgqa: +hydra=[null]: works only with kgqa run -m and kgqa reproduce"),
        ("~hydra", "kgqa: ~hydra: works only with"),
        ("engine._target_=7", "kgqa: engine._target_=7: no module in this name"),
        ("engine._target_=Mine", "kgqa: engine._target_=Mine: no module in this name"),
        ("engine._target_=[a]", "kgqa: engine._target_=['a']: no module in this name"),
        pytest.param("limit=" + "9" * 5_000, "kgqa: limit=999", id="many digits"),
        pytest.param("method.few_shot.path=" + "x" * 5_000, "xxx: File name too long", id="a long path"),
    ],
)
def test_a_wrong_override_is_one_line_and_exit_code_2(kgqa: Kgqa, override: str, said: str) -> None:
    ran = kgqa("run", *QUICK, override)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not Path("outputs/demo").exists()


RECORD = {
    "id": "2hop__1_2",
    "question": "Who?",
    "answer": "Ann",
    "paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "Ann.", "is_supporting": True}],
}
LINE = json.dumps(RECORD).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "questions.jsonl"),
        (LINE + b"\n" + LINE[:40], "questions.jsonl:2"),
        (LINE + b"\n\xff\xfe" + LINE, "questions.jsonl"),
        (json.dumps({"_id": "a", "context": [], "supporting_facts": []}).encode(), "questions.jsonl:1"),
        (LINE + b"\n" + LINE, "2hop__1_2"),
        (LINE.replace(b'"Ann"', b'""', 1), "questions.jsonl:1"),
        (gzip.compress(LINE * 100)[:-20], "questions.jsonl"),
    ],
    ids=["empty", "truncated", "not UTF-8", "another schema", "duplicate id", "no answer", "truncated gzip"],
)
def test_a_broken_data_file_is_one_line_with_its_place(kgqa: Kgqa, tmp_path: Path, content: bytes, said: str) -> None:
    name = "questions.jsonl.gz" if content[:2] == b"\x1f\x8b" else "questions.jsonl"
    (tmp_path / name).write_bytes(content)
    ran = kgqa("run", "method=no_context", "dataset=musique", f"dataset.path={name}", *QUICK)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not Path("outputs/musique").exists()


def test_a_full_disk_stops_the_run_and_the_same_command_goes_on(kgqa: Kgqa, tmp_path: Path) -> None:
    """A limit on file size is refused by the kernel like a full disk, and needs no privileges."""
    arguments = ["run", "method=trace", "limit=6", *QUICK]
    running = started(arguments, tmp_path, file_limit=60_000)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 2
    assert "Free disk space or set KGQA_CACHE" in err
    assert all(line.startswith("kgqa: ") for line in err.splitlines())  # what is wrong, what is kept, how to go on
    kept = replies_kept(tmp_path)
    assert kept > 0
    ran = kgqa(*arguments)
    assert ran.code == 0
    cost = ran.json("metrics.json")["cost"]
    assert cost["paid"]["calls"] + cost["extraction_paid"]["calls"] <= replies_kept(tmp_path) - kept


def test_a_model_that_writes_garbage_or_nothing_is_counted_and_not_lost(kgqa: Kgqa, tmp_path: Path) -> None:
    rules = tmp_path / "rules.jsonl"
    rules.write_text(
        json.dumps({"match": "Title:", "reply": "<<;;>\x00 ; <a;b>"}) + "\n" + json.dumps({"match": ".", "reply": ""})
    )
    ran = kgqa("run", "method=trace", "limit=2", f"engine.rules={rules}", *QUICK)
    assert ran.code == 0
    metrics = ran.json("metrics.json")
    assert metrics["failed"] == 0
    assert metrics["answerless"] == 2
    assert metrics["flags"]["empty_answer"] == 2
    assert metrics["flags"]["no_chain"] == 2
    assert metrics["graph"]["malformed"] > 0
    assert metrics["scores"]["em"]["mean"] == 0
