"""An index on disk: a corpus, what a retriever made of it, and a manifest without which none of it is used.

passages.jsonl  offsets.bin  titles.bin    the corpus
corpus.json                                written when it is complete: a killed build goes on from here
finder/                                    the retriever's own files
manifest.json                              written last, after everything it names
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kgqa.errors import DataError
from kgqa.protocols import KeptElsewhere, Retriever
from kgqa.retrieval.checksums import describe_files, find_changed
from kgqa.retrieval.passages import LINES, OFFSETS, TITLES, Corpus, StoredPassages, store
from kgqa.retrieval.search import PassageIndex
from kgqa.types import Json, Passage
from kgqa.util.fs import (
    AGAIN,
    as_open_as_folder,
    digest,
    ensure_dir,
    explain_storage_errors,
    has_content,
    json_text,
    lock_file,
    replace_file,
    sha256,
)
from kgqa.util.jsonio import decode_json

FORMAT = 2  # 2: ids of passages have 16 digits
CORPUS, FINDER, MANIFEST = "corpus.json", "finder", "manifest.json"
DIGEST = "digest"  # of the rest of the manifest, so that a changed bit of it is seen, too
Advance = Callable[[str, int, int | None], None]  # stage, passages more, passages in all if that is known


@dataclass(frozen=True)
class IndexFolder:
    """The folder of a retriever's index of a corpus.

    made_from: the corpus' identity as its dataset gives it. command: what builds the index, for messages.
    """

    path: Path
    retriever: Retriever
    made_from: Mapping[str, Json]
    command: str

    def finished(self) -> bool:
        """Return whether there is an index, which `open` may still refuse."""
        return has_content(self.path / MANIFEST)

    def build(self, passages: Iterable[Passage], advance: Advance) -> Mapping[str, Json]:
        """Make the index unless it is there and whole; gives its manifest.

        One that is there is read as a whole, and built anew where a bit of it has changed; what a server should have of
        it and has not is loaded there. A build that was killed
        goes on from the stored passages, and as far as the retriever can from its own part.
        Where another process is building it, this one waits, and takes what that one made.

        Raises:
            DataError: the corpus is empty or contradicts itself.
            StorageError: the disk is full or refuses.
        """
        waiting = "waiting for another kgqa process to index these"
        with lock_file(self.path / ".lock", lambda: advance(waiting, 0, None)):
            if self.finished():
                try:
                    manifest = self.verify()
                except DataError:  # damaged: what it consists of cannot be trusted either
                    self._remove(MANIFEST, CORPUS)
                else:
                    self._restore(advance)
                    return manifest
            corpus = self._store(passages, advance)
            with explain_storage_errors(self.path):
                ensure_dir(self.path / FINDER)
            with closing(StoredPassages(self.path)) as stored:
                self.retriever.build(stored, self.path / FINDER, lambda n: advance("indexing", n, corpus.count))
            return self._finish(corpus)

    def open(self, seed: int = 0) -> PassageIndex:
        """Return the index, ready to search. Of a large one a sample of its files is read, drawn by `seed`.

        Raises:
            DataError: there is none, it is damaged, or of another corpus or retriever.
        """
        manifest = self.manifest()
        try:
            name = find_changed(self.path, manifest["files"], seed)
        except OSError as error:
            raise self._reject(f"damaged index: {error.filename} cannot be read ({error.strerror})") from error
        if name is not None:
            raise self._reject(f"damaged index: {name} changed since it was written")
        passages = StoredPassages(self.path)
        finder = self.retriever.open(passages, self.path / FINDER)
        return PassageIndex(manifest["corpus"], passages, self.retriever, finder)

    def manifest(self) -> Mapping[str, Any]:
        """Return the manifest, checked against what was asked for and what lies on disk, but for the content of
        files.
        """
        if not self.finished():
            raise DataError(f"{self.path}: no finished index here; run: {self.command}")
        written = self._read(MANIFEST)
        if written.get("format") != FORMAT:
            raise self._reject(f"format {written.get('format')} where {FORMAT} is expected")
        if written.get(DIGEST, _digest(written)) != _digest(written):
            raise self._reject(f"damaged index: {MANIFEST} changed since it was written")
        if not {"corpus", "made_from", "retriever", "files"} <= written.keys():
            raise self._reject(f"{MANIFEST} is not whole")
        try:
            self._check(written)
        except (KeyError, TypeError, AttributeError) as error:  # one of before there was a digest
            raise self._reject(f"{MANIFEST} is damaged at {error}") from error
        return written

    def _check(self, written: Mapping[str, Any]) -> None:
        for key, wanted in (("made_from", self.made_from), ("retriever", self.retriever.identity())):
            differing = _differing(written[key], _plain(wanted))
            if differing:
                what = "corpus" if key == "made_from" else "retriever"
                raise self._reject(f"the index of another {what}: it differs in {', '.join(differing)}")
        for name, recorded in written["files"].items():
            file = self.path / name
            size = file.stat().st_size if file.is_file() else None
            if size != recorded["bytes"]:
                raise self._reject(f"{name} has {size} bytes where {recorded['bytes']} were written")
        corpus = Corpus(**written["corpus"])
        if (self.path / OFFSETS).stat().st_size != 8 * (corpus.count + 1):
            raise self._reject(f"{OFFSETS} does not have {corpus.count} passages")

    def verify(self) -> Mapping[str, Any]:
        """Return the manifest, after every file was compared with its hash.

        Raises:
            DataError: naming the first file that changed.
        """
        manifest = self.manifest()
        for name, written in manifest["files"].items():
            if sha256(self.path / name) != written["sha256"]:
                raise self._reject(f"damaged index: {name} changed since it was written")
        return manifest

    def _restore(self, advance: Advance) -> None:
        if isinstance(self.retriever, KeptElsewhere):
            with closing(StoredPassages(self.path)) as stored:
                self.retriever.restore(stored, self.path / FINDER, lambda n: advance("indexing", n, len(stored)))

    def _store(self, passages: Iterable[Passage], advance: Advance) -> Corpus:
        """Return the corpus: as an earlier build left it complete, else written now."""
        purpose = _plain({"format": FORMAT, "made_from": self.made_from, "retriever": self.retriever.identity()})
        if has_content(self.path / CORPUS):
            corpus_file = self._read(CORPUS)
            if corpus_file.get("for") == purpose:
                with suppress(KeyError, TypeError):  # damaged: the passages are stored again
                    return Corpus(**corpus_file["corpus"])
        self._remove(CORPUS, FINDER)  # a part of another corpus' index must not be gone on from
        corpus = store(passages, self.path, lambda n: advance("reading", n, None))
        self._write(CORPUS, {"for": purpose, "corpus": asdict(corpus)})
        return corpus

    def _finish(self, corpus: Corpus) -> Mapping[str, Any]:
        with explain_storage_errors(self.path):
            own = sorted(file for file in (self.path / FINDER).rglob("*") if file.is_file())
            for file in own:  # made by libraries
                as_open_as_folder(file)
            files = [*(self.path / name for name in (LINES, OFFSETS, TITLES)), *own]
            written = describe_files(self.path, files)
        manifest = {
            "format": FORMAT,
            "corpus": asdict(corpus),
            "made_from": self.made_from,
            "retriever": self.retriever.identity(),
            "files": written,
        }
        self._write(MANIFEST, {**manifest, DIGEST: _digest(manifest)})
        return self.manifest()

    def _read(self, name: str) -> dict[str, Any]:
        try:
            value = decode_json((self.path / name).read_bytes())
        except (OSError, ValueError) as error:
            raise self._reject(f"{name} cannot be read ({error})") from error
        return value if isinstance(value, dict) else {}

    def _write(self, name: str, value: Mapping[str, Json]) -> None:
        replace_file(self.path / name, json_text(value), AGAIN)

    def _remove(self, *names: str) -> None:
        with explain_storage_errors(self.path):
            for name in names:
                path = self.path / name
                if path.is_dir():
                    shutil.rmtree(path)
                path.unlink(missing_ok=True)

    def _reject(self, why: str) -> DataError:
        return DataError(f"{self.path}: {why}; delete the folder and run: {self.command}")


def _plain(value: Mapping[str, Json]) -> dict[str, Any]:
    """Return a value as it comes back from a JSON file: tuples become lists, keys become strings."""
    plain: dict[str, Any] = json.loads(json.dumps(value))
    return plain


def _digest(manifest: Mapping[str, Json]) -> str:
    return digest({key: value for key, value in manifest.items() if key != DIGEST}, 16)


def _differing(written: Mapping[str, Json], wanted: Mapping[str, Json]) -> list[str]:
    keys = sorted({*written, *wanted})
    return [f"{key} ({written.get(key)} → {wanted.get(key)})" for key in keys if written.get(key) != wanted.get(key)]
