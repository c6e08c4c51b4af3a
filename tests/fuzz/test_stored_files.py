"""Any bytes in a stored file: the result is that of the undamaged file, or one line with the file and what to do.

The files are those of the table in docs/GUARANTEES.md. KGQA_FUZZ=1000 tries more examples.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kgqa.artifacts.call_schema import reply_json
from kgqa.artifacts.manifest import MANIFEST, Manifest
from kgqa.artifacts.metrics import METRICS
from kgqa.artifacts.predictions import PREDICTIONS, run_predictions
from kgqa.artifacts.run import IDENTITY, SETTINGS, FinishedRun
from kgqa.artifacts.schema import read_json
from kgqa.artifacts.trace import TRACE, read_questions, read_trace
from kgqa.cache.in_flight import find_reply
from kgqa.cache.key import cache_key
from kgqa.cache.maintenance import export_calls, import_calls
from kgqa.cache.store import INSERT, CallCache, Origin, checksum
from kgqa.calls import Call, Choose, CountTokens, Generate, Rank, Search
from kgqa.errors import DataError, KgqaError
from kgqa.types import Choice, Completion, Message, Passage, Prompt, Usage
from kgqa.util.fs import sha256
from kgqa.util.jsonio import stream_members, stream_records
from tests.fuzz.test_files import DAMAGE, FUZZ, KEYS, damage, run_kgqa, temporary_folder

HUGE = "9" * 400
# what a JSON parser accepts, or nearly, and a reader must bound
VALUES = (
    "null",
    "true",
    "-1",
    "1.5",
    '"x"',
    "{}",
    "[]",
    "NaN",
    "-Infinity",
    "1e400",
    HUGE,
    "[" * 300,
    '"\\ud800"',
    "",
)
# in JSON as kgqa writes it
VALUE = re.compile(r'(?<=: )(?:"[^"]*"|-?[\d.]+|null|true|false|\[|\{)')
CHANGES = st.one_of(
    DAMAGE.map(lambda change: lambda data: damage(data, change)),
    st.binary(max_size=300).map(lambda content: lambda _: content),
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(VALUES)).map(
        lambda both: replace_value(*both)
    ),
)
Change = Callable[[bytes], bytes]


def replace_value(share: float, value: str) -> Change:
    """Return a change that puts another value in the place of one."""

    def change(data: bytes) -> bytes:
        text = data.decode("utf-8", "surrogateescape")
        places = list(VALUE.finditer(text))
        if not places:
            return data
        place = places[int(share * len(places))]
        return (text[: place.start()] + value + text[place.end() :]).encode(
            "utf-8", "surrogateescape"
        )

    return change


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and its call cache."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_kgqa("run", *KEYS).code == 0
    return folder


def read_run(folder: Path) -> Any:
    """Return all that commands read of a finished run."""
    return (
        FinishedRun.read(folder),
        read_json(folder / IDENTITY),
        run_predictions(folder),
        list(read_questions(folder)),
        [traced.json() for traced in read_trace(folder)],
    )


def read_or_refuse(read: Callable[[], Any], file: Path) -> Any:
    """Return what a reader returns, or None if it raises an error of one line with the name of the file."""
    try:
        return read()
    except KgqaError as error:
        message = str(error)
    assert file.name in message
    assert len(message) < 1_000
    return None


def comparable(run: Any) -> Any:
    finished, *rest = run
    return [finished.metrics.json(), finished.manifest.json(), finished.settings, *rest]


@FUZZ
@given(change=CHANGES, name=st.sampled_from([METRICS, PREDICTIONS, TRACE, SETTINGS]))
def test_changed_result_of_a_run_is_never_used(finished: Path, change: Change, name: str) -> None:
    with temporary_folder() as folder:
        run = Path(shutil.copytree(finished / "run", folder / "run"))
        expected = comparable(read_run(run))
        (run / name).write_bytes(change((run / name).read_bytes()))
        result = read_or_refuse(lambda: read_run(run), run / name)
        assert result is None or comparable(result) == expected


@FUZZ
@given(
    change=CHANGES,
    name=st.sampled_from([METRICS, PREDICTIONS, TRACE, MANIFEST, SETTINGS, IDENTITY]),
)
def test_any_file_of_a_run_is_read_or_refused(finished: Path, change: Change, name: str) -> None:
    """The hashes fit, so that the readers themselves meet the damage."""
    with temporary_folder() as folder:
        run = Path(shutil.copytree(finished / "run", folder / "run"))
        content = (run / name).read_bytes()
        if name == TRACE:
            whole = (
                zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read()
            )
            content = zstandard.compress(change(whole))
        else:
            content = change(content)
        hashes = {each: sha256(run / each) for each in (METRICS, PREDICTIONS, TRACE)}
        (run / name).write_bytes(content)
        if name != MANIFEST:
            sealed = Manifest.read(run).replace(files=hashes | {name: sha256(run / name)})
            (run / MANIFEST).write_text(json.dumps(sealed.json()), encoding="utf-8")
        read_or_refuse(lambda: read_run(run), run / name)


PROMPT = Prompt("x", (Message("user", "Who?"),))
REPLIES: list[tuple[Call[Any], Any]] = [
    (Generate(PROMPT, 5), Completion("Ann", usage=Usage(3, 1, 2, 0.5))),
    (Choose(PROMPT, ("A", "B")), Choice((-0.1, -2.0), 0.9)),
    (Rank("query", ("one", "two")), (0.5, 1.5)),
    (CountTokens("text"), 2),
    (Search("query", 2), (Passage.of("Title", "The text."),)),
]


@FUZZ
@given(
    change=CHANGES,
    number=st.integers(0, len(REPLIES) - 1),
    stored=st.sampled_from([0, -1, 10**18, None, "x", 1.5]),
)
def test_stored_value_is_a_reply_or_requested_again(
    change: Change, number: int, stored: Any
) -> None:
    call, reply = REPLIES[number]
    key = cache_key({}, call)
    value = change(json.dumps(reply_json(reply)).encode()).decode("utf-8", "replace")
    with temporary_folder() as folder, closing(CallCache(folder)) as cache:
        with cache._database.writing() as connection:
            row = (key, value, checksum(key.encode(), value.encode()), "e", "m", stored)
            connection.execute(f"INSERT {INSERT}", row)
        cached = find_reply(cache, key, call)
        cache.usages(Origin("e", "m"), 5)
        assert cached is None or json.loads(json.dumps(reply_json(cached))) is not None
        assert cache.damaged == (cached is None)
        if isinstance(cached, Completion | Choice):
            assert 0 <= cached.usage.tokens < 2**40
        if isinstance(call, Search) and cached:
            assert cached == reply
        cache.put([(key, reply_json(reply))])
        assert find_reply(cache, key, call) == (cached or reply)


@FUZZ
@given(change=CHANGES, is_packed=st.booleans())
def test_export_of_calls_is_read_completely_or_refused(
    finished: Path, change: Change, is_packed: bool
) -> None:
    with temporary_folder() as folder:
        file = folder / "calls.jsonl.zst"
        count = export_calls(finished / "outputs/.cache", file)["calls"]
        content = file.read_bytes()
        if is_packed:
            file.write_bytes(change(content))
        else:
            whole = zstandard.ZstdDecompressor().stream_reader(content).read()
            file.write_bytes(zstandard.compress(change(whole)))
        counts = read_or_refuse(lambda: import_calls(folder / "cache", file), file)
        with closing(CallCache(folder / "cache")) as cache:
            assert len(cache) == (count if counts else 0)


@FUZZ
@given(
    content=st.one_of(
        st.binary(max_size=200), st.text('[]{}\\",:0a \n', max_size=200).map(str.encode)
    )
)
def test_any_question_file_is_read_or_refused(content: bytes) -> None:
    with temporary_folder() as folder:
        file = folder / "q.json"
        file.write_bytes(content)
        read_or_refuse(lambda: list(stream_records(file)), file)
        read_or_refuse(lambda: list(stream_members(file)), file)


MEASURE = """
import sys
from pathlib import Path
from kgqa.artifacts.schema import read_json, read_lines
from kgqa.artifacts.trace import read_trace
from kgqa.cache.maintenance import import_calls
from kgqa.cache.shared import SharedReplies
from kgqa.errors import DataError
from kgqa.util.jsonio import stream_records
path = Path(sys.argv[2])
try:
    readers = {
        "json": read_json, "lines": read_lines, "records": stream_records, "trace": read_trace,
        "calls": lambda path: import_calls(path.parent / "cache", path),
        "shared": lambda path: SharedReplies(path).read(),
    }
    list(readers[sys.argv[1]](path))
    end = "read"
except DataError as error:
    end = "refused"
# unlike ru_maxrss, this does not start with the memory of the parent
status = Path("/proc/self/status").read_text()
print(end, int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""
LARGE: dict[str, tuple[str, str, bytes]] = {
    "lists": ("json", "refused", b"[],"),
    "objects": ("json", "refused", b"{},"),
    "texts": ("lines", "refused", b'"\xc3\xa91",'),
    "depth": ("records", "refused", b"["),
    "one text": ("records", "refused", b"a"),
    "trace": ("trace", "refused", b"[],"),
    "exported calls": ("calls", "refused", b"[],"),
    "shared replies": ("shared", "read", b"[],"),
    "records": ("records", "read", b'{"id": "1", "text": "' + b"a" * 1000 + b'"},'),
}


@pytest.mark.slow
@pytest.mark.parametrize(("reader", "end", "part"), LARGE.values(), ids=LARGE)
def test_large_files_need_less_than_1_gib(
    reader: str, end: str, part: bytes, tmp_path: Path
) -> None:
    size = 150 << 20
    head, tail = (b'["', b'"]') if part == b"a" else (b"[", b"1]")
    content = head + part * (size // len(part)) + tail
    path = tmp_path / "big.json"
    path.write_bytes(content)
    if reader == "trace":
        path = tmp_path
        (tmp_path / TRACE).write_bytes(zstandard.compress(content))
    if reader == "calls":
        path.write_bytes(zstandard.compress(content))
    if reader == "shared":
        path = tmp_path
        (tmp_path / "big.jsonl").write_bytes(content)
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, reader, path], capture_output=True, text=True, check=True
    )
    outcome, peak = measured.stdout.split()
    assert outcome == end
    assert int(peak) < 1024


@pytest.mark.slow
def test_values_at_the_limit_need_less_than_1_gib(tmp_path: Path) -> None:
    """The most expensive values: 8 million empty objects, in a file that is not refused for its length."""
    (tmp_path / "most.json").write_bytes(b"[" + b"{}," * 3_990_000 + b"0]")
    command = [sys.executable, "-c", MEASURE, "json", str(tmp_path / "most.json")]
    measured = subprocess.run(command, capture_output=True, text=True, check=True)
    outcome, peak = measured.stdout.split()
    assert outcome == "read"
    assert int(peak) < 1024


@pytest.mark.slow
def test_message_of_a_refused_file_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 50_000)
    with pytest.raises(
        DataError,
        match=r"deep\.json: not readable \(it is nested too deeply\)\. Run the same command",
    ):
        read_json(tmp_path / "deep.json")
