"""An index on disk: a corpus, the retriever's files, and a manifest with their checksums.

passages.jsonl  offsets.npy  titles.npy    the corpus
finder/                                    the retriever's own files
manifest.json                              written last: without it the index is not used
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kgqa.artifacts.schema import Artifact, Count, check_json, read_json
from kgqa.calls import Program
from kgqa.errors import DataError
from kgqa.identity.component import identity_of
from kgqa.protocols import ExpandingRetriever, MeasuredRetriever, Progress, Retriever
from kgqa.retrieval.passages import LINES, OFFSETS, TITLES, StoredPassages, store
from kgqa.retrieval.search import PassageIndex
from kgqa.retrieval.vector_store import store_vectors
from kgqa.types import Json, JsonObject, Passage
from kgqa.util.fs import (
    AGAIN,
    ensure_dir,
    explain_storage_errors,
    has_content,
    json_text,
    lock_file,
    quick_sha256,
    remove,
    replace_file,
    sha256,
)

# 3: offsets and titles are NumPy arrays
FORMAT: Literal[3] = 3
FINDER, MANIFEST, LOCK = "finder", "manifest.json", ".lock"
# stage, passages more, passages in all if that is known
Advance = Callable[[str, int, int | None], None]
# writes files of the retriever for the stored passages before it builds its index
Prepare = Callable[[Sequence[Passage], Path, Progress], None]
# with the model of an `ExpandingRetriever`
RunProgram = Callable[[Program[Sequence[Passage]]], Sequence[Passage]]


class _StoredCorpus(Artifact):
    """The facts of `passages.Corpus`. Other keys are counts, such as the passages without triples."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Count] = Field(init=False)

    hash: str
    count: Annotated[Count, Field(gt=0)]
    equal_texts: Count


class _StoredFile(Artifact):
    bytes: Count
    sha256: str


class _Manifest(Artifact):
    format: Literal[3]
    corpus: _StoredCorpus
    made_from: Mapping[str, Json]
    retriever: Mapping[str, Json]
    files: Mapping[str, _StoredFile]


@dataclass(frozen=True)
class IndexFolder:
    """The folder of a retriever's index of a corpus.

    made_from: the corpus' identity as its dataset gives it. command: what builds the index, for messages. vectors: the
    folder of `VectorStore`, None to encode all passages again.
    """

    path: Path
    retriever: Retriever
    made_from: JsonObject
    command: str
    vectors: Path | None = None

    def finished(self) -> bool:
        """Return whether there is an index, which `open` may still refuse."""
        return has_content(self.path / MANIFEST)

    def build(
        self,
        passages: Iterable[Passage],
        advance: Advance,
        run: RunProgram | None = None,
        prepare: Prepare | None = None,
    ) -> JsonObject:
        """Build the index unless it exists undamaged and without failed calls, and return its manifest.

        An interrupted build is repeated; a retriever can reuse its files of it. If another process is building the
        index, this one waits and uses the result.

        Raises:
            DataError: the corpus is empty or contradicts itself.
            StorageError: the disk is full or refuses.
        """
        wait = lock_file(
            self.path / LOCK,
            lambda: advance("waiting for another kgqa process to index these", 0, None),
        )
        with wait, store_vectors(self.vectors):
            if self.finished():
                with suppress(DataError):
                    earlier = self.manifest()
                    if not earlier["corpus"].get("failed"):
                        return earlier
                with explain_storage_errors(self.path):
                    remove(self.path / FINDER)
            # a damaged folder can have a link or a folder instead of a file
            with explain_storage_errors(self.path):
                for name in (MANIFEST, LINES, OFFSETS, TITLES):
                    remove(self.path / name)
            corpus = store(passages, self.path, lambda n: advance("reading", n, None))
            with explain_storage_errors(self.path):
                finder = ensure_dir(self.path / FINDER)
            added: Sequence[Passage] = ()
            if isinstance(self.retriever, ExpandingRetriever) and self.retriever.writer:
                assert run is not None
                with closing(StoredPassages(self.path)) as stored:
                    whole = list(stored)
                added = run(
                    self.retriever.expand(whole, finder, lambda n: advance("writing", n, None))
                )
                expanded = store([*whole, *added], self.path, lambda _: None)
                corpus = replace(expanded, duplicates=corpus.duplicates)
            with closing(StoredPassages(self.path)) as stored:
                if prepare is not None:
                    prepare(stored, finder, lambda n: advance("importing", n, corpus.count))
                self.retriever.build(stored, finder, lambda n: advance("indexing", n, corpus.count))
                measured = self.retriever if isinstance(self.retriever, MeasuredRetriever) else None
                lacks = measured.count_lacks(stored, finder) if measured else {}
            with explain_storage_errors(self.path):
                described = {
                    name: {
                        "bytes": (self.path / name).stat().st_size,
                        "sha256": quick_sha256(self.path / name),
                    }
                    for name in self._list_files()
                }
            manifest: dict[str, Json] = {
                "format": FORMAT,
                "corpus": {
                    **asdict(corpus),
                    **({"added": len(added)} if added else {}),
                    **{name: count for name, count in lacks.items() if count},
                },
                "made_from": self.made_from,
                "retriever": identity_of(self.retriever),
                "files": described,
            }
            replace_file(self.path / MANIFEST, json_text(manifest), AGAIN)
            return manifest

    def open(self) -> PassageIndex:
        """Return the index, ready to search. Raises DataError as `manifest`."""
        manifest, passages = self.manifest(), StoredPassages(self.path)
        finder = self.retriever.open(passages, self.path / FINDER)
        return PassageIndex(self.retriever, manifest["corpus"], passages, finder)

    def manifest(self, hash_file: Callable[[Path], str] = quick_sha256) -> Mapping[str, Any]:
        """Return the manifest after comparing every checksum. `sha256` reads also files that seem unchanged.

        Raises:
            DataError: there is no index, it is damaged, or of another corpus or retriever.
        """
        if not self.finished():
            raise DataError(f"{self.path}: no finished index. Run: {self.command}")
        file, remedy = self.path / MANIFEST, f"Delete the folder and run: {self.command}"
        manifest: dict[str, Any] = read_json(file, remedy=remedy)
        check_json(_Manifest, manifest, str(file), remedy)
        expected = {"made_from": self.made_from, "retriever": identity_of(self.retriever)}
        for key, wanted in json.loads(json.dumps(expected)).items():
            saved, name = manifest[key], "corpus" if key == "made_from" else key
            if differing := [
                f"{setting} ({saved.get(setting)} → {wanted.get(setting)})"
                for setting in sorted({*saved, *wanted})
                if saved.get(setting) != wanted.get(setting)
            ]:
                raise self._reject(
                    f"the index of another {name}: it differs in {', '.join(differing)}"
                )
        self._check_files(manifest["files"], hash_file)
        with closing(StoredPassages(self.path)) as passages:
            if len(passages) != manifest["corpus"]["count"]:
                raise self._reject(f"damaged index: {MANIFEST} has another number of passages")
        return manifest

    def _check_files(
        self, files: Mapping[str, Mapping[str, Any]], hash_file: Callable[[Path], str]
    ) -> None:
        """Raise DataError if a file changed, is missing, or is not in the manifest."""
        try:
            for name, described in files.items():
                if hash_file(self.path / name) != described["sha256"]:
                    raise self._reject(f"damaged index: {name} changed since it was written")
            # opening an index can add hidden files, such as locks
            names = [name for name in self._list_files() if not Path(name).name.startswith(".")]
        except (OSError, ValueError) as error:
            raise self._reject(f"damaged index ({error})") from error
        if unlisted := [name for name in names if name not in files]:
            raise self._reject(f"damaged index: {unlisted[0]} is not in {MANIFEST}")

    def _list_files(self) -> Iterator[str]:
        """Yield the names of the files of the corpus and the retriever."""
        yield from (LINES, OFFSETS, TITLES)
        for file in sorted((self.path / FINDER).rglob("*")):
            if file.is_file():
                yield str(file.relative_to(self.path))

    def verify(self) -> Mapping[str, Any]:
        """Return the manifest after reading every file."""
        return self.manifest(sha256)

    def _reject(self, why: str) -> DataError:
        return DataError(f"{self.path}: {why}. Delete the folder and run: {self.command}")
