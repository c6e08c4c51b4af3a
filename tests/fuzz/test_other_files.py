"""Any bytes in a file of a sweep, a judge, a training, an index or a user: read, or one line with its name.

The files are those of the table in docs/GUARANTEES.md. KGQA_FUZZ=1000 tries more examples.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.artifacts.evaluation import EVALUATION, Evaluation, read_evaluation
from kgqa.artifacts.examples import read_examples
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.sweep import Sweep
from kgqa.artifacts.trained import Trained
from kgqa.artifacts.verdicts import VERDICTS, read_verdicts
from kgqa.cache.shared import SharedReplies
from kgqa.calls import Search
from kgqa.config.files import load_yaml
from kgqa.datasets.corpus import read as read_corpus
from kgqa.datasets.verified import load_flagged
from kgqa.engines.batches import BatchNotes
from kgqa.engines.scripted import _read as read_rules
from kgqa.experiment.calibration import read_labels
from kgqa.experiment.prediction_files import read_predictions
from kgqa.extras.viewer.table import read_rows
from kgqa.kg.exchange import IMPORT_FORMATS, read_passages
from kgqa.retrieval.dense import PROGRESS, _read_progress
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.lexical import Tfidf
from kgqa.retrieval.vector_store import VectorStore
from kgqa.runtime.monitor import read_heartbeats
from tests.fuzz.test_files import FUZZ, temporary_folder
from tests.fuzz.test_stored_files import CHANGES, Change, read_or_refuse
from tests.retrieval.conftest import MADE_FROM, PASSAGES

SAVED = Path(__file__).parents[1] / "golden/artefacts"


@dataclass(frozen=True)
class File:
    """A stored file: where it is, what it contains, and what reads it. `place` is in a folder of its own."""

    place: str
    content: str
    read: Callable[[Path], Any]


def json_lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def saved(name: str) -> str:
    return (SAVED / name).read_text("utf-8")


TRIPLES = [["Ann", "born in", "Oslo"]]
EXAMPLE = {
    "id": "1",
    "question": "q1",
    "role": "reader",
    "prompt": {"name": "x", "messages": [{"role": "user", "content": "Who?"}]},
    "target": "Ann",
    "label": "gold",
    "origin": {"dataset": "demo", "place": 1, "made_by": "gold"},
}
BEAT = {
    "what": "run", "folder": "outputs/x", "command": "", "host": "h", "pid": 1, "started": 1.0, "updated": 9e9,
    "stage": "questions", "ended": 1, "failed": 0, "count": 2, "calls": 1, "tokens": 5, "usd": None,
    "seconds_left": 3,
}  # fmt: skip
METRICS = Metrics.read(SAVED / "trace")
EVALUATED = Evaluation(source="run", scores=METRICS, notes=())
FILES = {
    "sweep": File("sweep.json", saved("sweep/sweep.json"), lambda file: Sweep.read(file.parent)),
    "cell": File(
        "cells/000.json",
        saved("sweep/cells/000.json"),
        lambda file: Sweep.read(file.parent.parent),
    ),
    "verdicts": File(
        VERDICTS, saved(f"trace/{VERDICTS}"), lambda file: read_verdicts(file.parent)
    ),
    "evaluation": File(
        EVALUATION, json.dumps(EVALUATED.json()), lambda file: read_evaluation(file.parent, METRICS)
    ),
    "examples": File("examples.jsonl", json_lines(EXAMPLE), lambda file: [*read_examples(file)]),
    "training": File(MANIFEST, '{"name": "x", "rank": 8}', lambda file: Trained.read(file.parent)),
    "triples of hipporag": File(
        "kg.json",
        json.dumps({"docs": [{"passage": "Ann\nIn Oslo.", "extracted_triples": TRIPLES}]}),
        lambda file: read_passages(file, "hipporag"),
    ),
    "triples of openie": File(
        "kg.json",
        json.dumps({"sentences": [{"openie": [], "tokens": [{"originalText": "Ann"}]}]}),
        lambda file: read_passages(file, "openie"),
    ),
    "triples": File(
        "kg.jsonl",
        json_lines({"title": "Ann", "text": "In Oslo.", "triples": TRIPLES}),
        lambda file: read_passages(file, "jsonl"),
    ),
    "triples as a table": File(
        "kg.tsv",
        "head\trelation\ttail\ttext\nAnn\tborn in\tOslo\tIn Oslo.\n",
        lambda file: read_passages(file, "tsv"),
    ),
    "labels": File("labels.csv", "question_id,correct,run\nq1,1,\nq2,0,\n", read_labels),
    "list of questions": File("list.txt", "Who?\nWhere?\n", lambda file: load_flagged(str(file))),
    "rules": File("rules.jsonl", json_lines({"match": "Who", "reply": "Ann"}), read_rules),
    "predictions": File(
        "answers.jsonl", json_lines({"question_id": "q1", "answer": "Ann"}), read_predictions
    ),
    "official predictions": File(
        "answers.json",
        json.dumps({"answer": {"q1": "Ann"}, "sp": {"q1": [["Ann", 0]]}}),
        read_predictions,
    ),
    "corpus": File(
        "corpus.jsonl", json_lines({"title": "Ann", "text": "In Oslo."}), lambda file: [*read_corpus(file)]
    ),
    "configuration": File("mine.yaml", "_target_: mine.Mine\nbeam: 5\n", load_yaml),
}  # fmt: skip


def test_all_formats_of_triples_are_tried() -> None:
    tried = {name for name in FILES if name.startswith("triples")}
    assert len(tried) == len(IMPORT_FORMATS)


@pytest.mark.parametrize("name", FILES)
def test_sound_file_is_read(name: str) -> None:
    """Otherwise the next test would try only files that are refused. A training has many more keys."""
    with temporary_folder() as folder:
        stored = FILES[name]
        assert (write(folder, stored, stored.content.encode()) is None) == (name == "training")


def write(folder: Path, stored: File, content: bytes) -> Any:
    """Return what is read from the folder with this content in the file."""
    if stored.place.startswith(("sweep", "cells")):
        shutil.copytree(SAVED / "sweep", folder, dirs_exist_ok=True)
    (folder / stored.place).write_bytes(content)
    return read_or_refuse(lambda: stored.read(folder / stored.place), folder / stored.place)


@pytest.mark.parametrize("name", FILES)
@FUZZ
@given(change=CHANGES)
def test_any_file_is_read_or_refused(name: str, change: Change) -> None:
    with temporary_folder() as folder:
        write(folder, FILES[name], change(FILES[name].content.encode()))


@FUZZ
@given(change=CHANGES)
def test_any_heartbeat_is_read_or_ignored(change: Change) -> None:
    with temporary_folder() as folder:
        (folder / ".running").mkdir()
        (folder / ".running/x.json").write_bytes(change(json.dumps(BEAT).encode()))
        for beat in read_heartbeats(folder):
            beat.describe()


ROOT_FILES = {
    "d/m/x/bad/metrics.json": saved("trace/metrics.json"),
    "d/m/x/bad/settings.json": saved("trace/settings.json"),
    "d/m/x/bad/manifest.json": saved("trace/manifest.json"),
    "sweeps/s/sweep.json": saved("sweep/sweep.json"),
    "sweeps/s/cells/000.json": saved("sweep/cells/000.json"),
    ".running/x.json": json.dumps({**BEAT, "updated": 9e9}),
}


def make_root(root: Path) -> None:
    """Make a folder of two runs, a sweep and work in progress."""
    for name in ("bad", "good"):
        shutil.copytree(SAVED / "trace", root / "d/m/x" / name)
    shutil.copytree(SAVED / "sweep", root / "sweeps/s")
    (root / ".running").mkdir()
    (root / ".running/x.json").write_text(ROOT_FILES[".running/x.json"], encoding="utf-8")


@FUZZ
@given(change=CHANGES, name=st.sampled_from([*ROOT_FILES]))
def test_any_damage_stops_only_its_own_row(change: Change, name: str) -> None:
    with temporary_folder() as folder:
        make_root(folder / "outputs")
        (folder / "outputs" / name).write_bytes(change(ROOT_FILES[name].encode()))
        rows = {row.key: row for row in read_rows(folder / "outputs")}
        assert rows["d/m/x/good"].figures
        assert not rows["d/m/x/good"].trouble


@pytest.mark.parametrize("place", ["a\0b", "outputs/.running/loop"], ids=["null", "loop"])
@pytest.mark.parametrize("name", [".running/x.json", "sweeps/s/cells/000.json"])
def test_wrong_path_in_a_file_stops_no_list(place: str, name: str, tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    make_root(root)
    (root / ".running/loop").symlink_to("loop")
    record = json.loads((root / name).read_text("utf-8"))
    key = "folder" if "folder" in record else "run"
    (root / name).write_text(json.dumps({**record, key: place, "status": "done"}), encoding="utf-8")
    assert "d/m/x/good" in {row.key for row in read_rows(root)}


EVENTS = json_lines(
    {"wave": "w", "ids": ["a", "b"], "since": 9e9}, {"wave": "w", "batch": "batch_1"}
)


@FUZZ
@given(change=CHANGES)
def test_any_notes_of_batches_are_read(change: Change) -> None:
    with temporary_folder() as folder:
        (folder / "notes.jsonl").write_bytes(change(EVENTS.encode()))
        assert all(
            isinstance(wave.batch, str)
            for wave in BatchNotes(folder / "notes.jsonl").read().values()
        )


@FUZZ
@given(change=CHANGES)
def test_any_file_of_shared_replies_is_read(change: Change) -> None:
    with temporary_folder() as folder:
        row = json.dumps(["key", '{"text": "A"}', 5, "e", "m", 0]) + "\n"
        (folder / "other.jsonl").write_bytes(change(2 * row.encode()))
        assert all(len(row) == 6 for row in SharedReplies(folder).read())


@FUZZ
@given(change=CHANGES)
def test_any_progress_of_an_index_is_a_count(change: Change) -> None:
    with temporary_folder() as folder:
        (folder / PROGRESS).write_bytes(change(b'{"done": 4, "settings": {"a": 1}}'))
        assert 0 <= _read_progress(folder, {"a": 1}) < 2**63


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> IndexFolder:
    """A finished index with few small files."""
    path = tmp_path_factory.mktemp("index")
    folder = IndexFolder(path, Tfidf(), MADE_FROM, "kgqa data index dataset=d")
    folder.build(PASSAGES, lambda *_: None)
    return folder


def search_railways(folder: IndexFolder) -> Any:
    with closing(folder.open()) as opened:
        return opened.search([Search("Which railway carried slate?", 3)])


@FUZZ
@given(change=CHANGES, share=st.floats(0, 1, exclude_max=True))
def test_any_file_of_an_index_is_never_believed(
    index: IndexFolder, change: Change, share: float
) -> None:
    with temporary_folder() as folder:
        damaged = replace(index, path=folder / "index")
        shutil.copytree(index.path, damaged.path)
        files = sorted(file for file in damaged.path.rglob("*") if file.is_file())
        file = files[int(share * len(files))]
        file.write_bytes(change(file.read_bytes()))
        expected = search_railways(index)
        result = read_or_refuse(lambda: search_railways(damaged), damaged.path)
        assert result in (None, expected)
        damaged.build(PASSAGES, lambda *_: None)
        assert search_railways(damaged) == expected


TEXTS = ("one", "two", "three")
ROWS = np.eye(3, dtype="<f4")


@FUZZ
@given(change=CHANGES)
def test_any_file_of_vectors_gives_the_same_vectors(change: Change) -> None:
    with temporary_folder() as folder:
        store = VectorStore(folder)
        store.encode({}, TEXTS, lambda _: ROWS)
        (file,) = folder.glob("*.sqlite")
        file.write_bytes(change(file.read_bytes()))
        vectors = read_or_refuse(
            lambda: store.encode(
                {}, TEXTS, lambda texts: ROWS[[TEXTS.index(text) for text in texts]]
            ),
            file,
        )
        assert vectors is None or np.array_equal(vectors, ROWS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_stored_vector_that_is_not_finite_is_encoded_again(tmp_path: Path, value: float) -> None:
    """Its checksum fits, as in a file that someone else wrote."""
    VectorStore(tmp_path).encode({}, TEXTS[:1], lambda _: np.full((1, 3), value, dtype="<f4"))
    assert np.array_equal(VectorStore(tmp_path).encode({}, TEXTS[:1], lambda _: ROWS[:1]), ROWS[:1])


def test_probe_of_another_type_is_ignored(tmp_path: Path) -> None:
    store = VectorStore(tmp_path)
    store.encode({}, TEXTS[:1], lambda _: ROWS[:1], is_checked=True)
    (file,) = tmp_path.glob("*.sqlite")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE probe SET text = 'one', vector = 5")
    vectors = store.encode({}, TEXTS, lambda texts: ROWS[3 - len(texts) :], is_checked=True)
    assert vectors.shape == (3, 3)
