"""Generated input: whatever comes in, kgqa succeeds, or prints one clear message and exits with code 2."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kgqa.cli.main import main
from kgqa.util.places import package_folder
from tests.e2e.conftest import DEMO, QUICK, Ran

# derandomized: the same examples in every run; KGQA_FUZZ=1000 tries more of them, other ones each time
EXAMPLES = int(os.environ.get("KGQA_FUZZ", "0"))
FUZZ = settings(
    derandomize=not EXAMPLES,
    max_examples=EXAMPLES or 12,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def run_kgqa(*arguments: str) -> Ran:
    """Run one command within this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return Ran(code, out.getvalue(), err.getvalue())


def check_message(result: Ran) -> None:
    """Check that a command succeeded, or failed with code 2 and a message instead of a traceback."""
    assert result.code in (0, 2), result
    text = result.out + result.err
    assert "Traceback" not in text, text
    if result.code == 2:
        assert result.err.strip(), "an error without a message"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Work in an empty folder for one example: hypothesis repeats the test within one `tmp_path`."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.chdir(name)
        yield Path(name)


# where to change a file (as a share of its length), what to write there, and how many bytes to remove
DAMAGE = st.tuples(
    st.floats(0, 1),
    st.one_of(
        st.binary(max_size=8),
        st.sampled_from([b"", b"\n", b'"', b"{", b"}", b"null", b"NaN", b"\xff", b"\0"]),
    ),
    st.integers(0, 40),
)
KEYS = ("method=no_context", "dataset=demo", "limit=3", *QUICK, "output_dir=run")


def damage(data: bytes, change: tuple[float, bytes, int]) -> bytes:
    """Return `data` with some bytes replaced."""
    share, text, length = change
    start = int(share * len(data))
    return data[:start] + text + data[start + length :]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and its call cache."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_kgqa("run", *KEYS).code == 0
    return folder


@FUZZ
@given(change=DAMAGE)
def test_damaged_questions(change: tuple[float, bytes, int]) -> None:
    with temporary_folder() as folder:
        (folder / "q.jsonl").write_bytes(damage(DEMO.read_bytes()[:4000], change))
        check_message(
            run_kgqa("run", *KEYS[:1], "dataset=demo", "dataset.path=q.jsonl", "limit=2", *QUICK)
        )


@pytest.mark.slow
@FUZZ
@given(change=DAMAGE)
def test_damaged_yaml(change: tuple[float, bytes, int]) -> None:
    with temporary_folder() as folder:
        own = folder / "conf/method/mine.yaml"
        own.parent.mkdir(parents=True)
        own.write_bytes(
            damage((package_folder().parent / "conf/method/no_context.yaml").read_bytes(), change)
        )
        check_message(
            run_kgqa("run", "method=mine", "dataset=demo", "limit=1", *QUICK, "dry_run=true")
        )


@FUZZ
@given(
    change=DAMAGE,
    name=st.sampled_from(["predictions.jsonl", "metrics.json", "trace.jsonl.zst", "manifest.json"]),
)
def test_damaged_run_folder(finished: Path, change: tuple[float, bytes, int], name: str) -> None:
    with temporary_folder() as folder:
        shutil.copytree(finished, folder, dirs_exist_ok=True)
        file = folder / "run" / name
        file.write_bytes(damage(file.read_bytes(), change))
        check_message(run_kgqa("show", "run"))
        check_message(run_kgqa("report", "run"))


@pytest.mark.slow
@FUZZ
@given(change=DAMAGE)
def test_damaged_cache_never_changes_predictions(
    finished: Path, change: tuple[float, bytes, int]
) -> None:
    with temporary_folder() as folder:
        shutil.copytree(finished, folder, dirs_exist_ok=True)
        expected = (folder / "run/predictions.jsonl").read_bytes()
        shutil.rmtree(folder / "run")
        for file in (folder / "outputs/.cache").glob("*.sqlite"):
            file.write_bytes(damage(file.read_bytes(), change))
        result = run_kgqa("run", *KEYS)
        check_message(result)
        if result.code == 0:
            assert (folder / "run/predictions.jsonl").read_bytes() == expected


NAMES = """limit seed sample ids budget method.max_answer_tokens method.k dataset.split dataset.path retriever model
engine roles.reader judge kg graph no_such_key method.no_such_key"""
KEY = st.sampled_from(NAMES.split())
VALUES = st.one_of(
    st.text(max_size=12).filter(lambda text: "\0" not in text and not text.startswith("$")),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        (
            "null",
            "true",
            "[]",
            "{}",
            "[1,",
            "{a:",
            "'",
            '"',
            "a,b",
            "1..2",
            "-0",
            "1e400",
            "=",
            "@",
            "x@y@z",
        )
    ),
)


@FUZZ
@given(key=KEY, value=VALUES)
@example(key="limit", value="9" * 5000)
@example(key="method", value="trace=x")
@example(key="+method.k", value="5")
@example(key="~method", value="")
def test_any_override_succeeds_or_gets_a_message(key: str, value: str) -> None:
    with temporary_folder():
        keys = (
            "method=no_context",
            "dataset=demo",
            "limit=1",
            *QUICK,
            f"{key}={value}",
            "dry_run=true",
        )
        check_message(run_kgqa("run", *keys))


@FUZZ
@given(words=st.lists(st.text(alphabet="abkmrun-=. é\n", max_size=8), max_size=4))
@example(words=["run", "--help", "x"])
@example(words=["--version", "run"])
@example(words=["show", ""])
def test_any_command_line_succeeds_or_gets_a_message(words: list[str]) -> None:
    # these start servers and load weights
    if words[:1] not in (["view"], ["demo"], ["doctor"]):
        with temporary_folder():
            check_message(run_kgqa(*words))
