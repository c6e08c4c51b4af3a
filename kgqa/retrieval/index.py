"""An index on disk: a corpus, the retriever's files, and a manifest with their checksums.

passages.jsonl  offsets.bin  titles.bin    the corpus
finder/                                    the retriever's own files
manifest.json                              written last: without it the index is not used
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kgqa.calls import Program
from kgqa.errors import DataError
from kgqa.protocols import ExpandingRetriever, Retriever
from kgqa.retrieval.passages import LINES, OFFSETS, TITLES, StoredPassages, store
from kgqa.retrieval.search import PassageIndex
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import (
    AGAIN,
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
FINDER, MANIFEST = "finder", "manifest.json"
# Bytes of an index up to which opening it compares checksums: 0.15 s if the CPU has SHA-256, otherwise 0.6 s
CHECKED_ON_OPENING = 256 << 20
Advance = Callable[[str, int, int | None], None]  # stage, passages more, passages in all if that is known
RunProgram = Callable[[Program[Sequence[Passage]]], Sequence[Passage]]  # with the model of an `ExpandingRetriever`


@dataclass(frozen=True)
class IndexFolder:
    """The folder of a retriever's index of a corpus.

    made_from: the corpus' identity as its dataset gives it. command: what builds the index, for messages.
    """

    path: Path
    retriever: Retriever
    made_from: JsonObject
    command: str

    def finished(self) -> bool:
        """Return whether there is an index, which `open` may still refuse."""
        return has_content(self.path / MANIFEST)

    def build(self, passages: Iterable[Passage], advance: Advance, run: RunProgram | None = None) -> JsonObject:
        """Build the index unless it exists undamaged, and return its manifest.

        An interrupted build is repeated; a retriever can reuse its files of it. If another process is building the
        index, this one waits and uses the result.

        Raises:
            DataError: the corpus is empty or contradicts itself.
            StorageError: the disk is full or refuses.
        """
        with lock_file(
            self.path / ".lock", lambda: advance("waiting for another kgqa process to index these", 0, None)
        ):
            if self.finished():
                try:
                    return self.verify()
                except DataError:
                    with explain_storage_errors(self.path):
                        (self.path / MANIFEST).unlink()
                        shutil.rmtree(self.path / FINDER, ignore_errors=True)
            corpus = store(passages, self.path, lambda n: advance("reading", n, None))
            with explain_storage_errors(self.path):
                finder = ensure_dir(self.path / FINDER)
            added: Sequence[Passage] = ()
            if isinstance(self.retriever, ExpandingRetriever) and self.retriever.writer:
                assert run is not None
                with closing(StoredPassages(self.path)) as stored:
                    whole = list(stored)
                added = run(self.retriever.expand(whole, finder, lambda n: advance("writing", n, None)))
                expanded = store([*whole, *added], self.path, lambda _: None)
                corpus = replace(expanded, duplicates=corpus.duplicates)
            with closing(StoredPassages(self.path)) as stored:
                self.retriever.build(stored, finder, lambda n: advance("indexing", n, corpus.count))
            with explain_storage_errors(self.path):
                own = [file for file in finder.rglob("*") if file.is_file()]
                files = [*(self.path / name for name in (LINES, OFFSETS, TITLES)), *sorted(own)]
                described = {
                    str(file.relative_to(self.path)): {"bytes": file.stat().st_size, "sha256": sha256(file)}
                    for file in files
                }
            manifest = {
                "format": FORMAT,
                "corpus": {**asdict(corpus), **({"added": len(added)} if added else {})},
                "made_from": self.made_from,
                "retriever": self.retriever.identity(),
                "files": described,
            }
            replace_file(self.path / MANIFEST, json_text({**manifest, "digest": digest(manifest, 16)}), AGAIN)
            return self.manifest()

    def open(self) -> PassageIndex:
        """Return the index, ready to search. The checksums of a large one are not compared, see `verify`.

        Raises:
            DataError: there is none, it is damaged, or of another corpus or retriever.
        """
        manifest = self.manifest()
        if sum(described["bytes"] for described in manifest["files"].values()) <= CHECKED_ON_OPENING:
            self._compare_checksums(manifest)
        passages = StoredPassages(self.path)
        finder = self.retriever.open(passages, self.path / FINDER)
        return PassageIndex(self.retriever, manifest["corpus"], passages, finder)

    def verify(self) -> Mapping[str, Any]:
        """Return the manifest after comparing every checksum. Raises DataError: names the first changed file."""
        manifest = self.manifest()
        self._compare_checksums(manifest)
        return manifest

    def manifest(self) -> Mapping[str, Any]:
        """Return the manifest. Raises DataError: corpus, retriever or the sizes of the files differ from it."""
        if not self.finished():
            raise DataError(f"{self.path}: no finished index. Run: {self.command}")
        try:
            manifest: dict[str, Any] = decode_json((self.path / MANIFEST).read_bytes())
            if manifest["format"] != FORMAT:
                raise self._reject(f"format {manifest['format']} where {FORMAT} is expected")
            if manifest.pop("digest") != digest(manifest, 16):
                raise self._reject(f"damaged index: {MANIFEST} changed since it was written")
            for key, name, identity in (
                ("made_from", "corpus", self.made_from),
                ("retriever", "retriever", self.retriever.identity()),
            ):
                if differing := _list_differences(manifest[key], json.loads(json.dumps(identity))):
                    raise self._reject(f"the index of another {name}: it differs in {', '.join(differing)}")
            for name, described in manifest["files"].items():
                file = self.path / name
                size = file.stat().st_size if file.is_file() else None
                if size != described["bytes"]:
                    raise self._reject(f"{name} has {size} bytes where {described['bytes']} were written")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._reject(f"{MANIFEST} is damaged ({error})") from error
        return manifest

    def _compare_checksums(self, manifest: Mapping[str, Any]) -> None:
        for name, described in manifest["files"].items():
            try:
                found = sha256(self.path / name)
            except OSError as error:
                raise self._reject(f"damaged index: {name} cannot be read ({error.strerror})") from error
            if found != described["sha256"]:
                raise self._reject(f"damaged index: {name} changed since it was written")

    def _reject(self, why: str) -> DataError:
        return DataError(f"{self.path}: {why}. Delete the folder and run: {self.command}")


def _list_differences(saved: JsonObject, expected: JsonObject) -> list[str]:
    keys = sorted({*saved, *expected})
    return [f"{key} ({saved.get(key)} → {expected.get(key)})" for key in keys if saved.get(key) != expected.get(key)]
