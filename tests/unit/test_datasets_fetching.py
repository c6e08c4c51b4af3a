"""Downloads from a real HTTP server that cuts, lies, stalls and refuses."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets import fetching
from kgqa.datasets.fetching import fetch
from kgqa.datasets.sources import Source
from kgqa.errors import DataError, StorageError
from tests.file_server import Behaviour, serving

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Behaviour]:
    monkeypatch.setattr(fetching, "PAUSE", 0.001)
    monkeypatch.setattr(fetching, "SILENCE", 5.0)
    with serving(Behaviour(content=CONTENT)) as behaviour:
        yield behaviour


def source(*urls: str, **changes: Any) -> Source:
    known = {
        "content": "bytes", "licence": "none", "page": "kgqa", "folder": ".", "file": "file.bin",
        "bytes": len(CONTENT), "sha256": SHA256, "urls": urls,
    }  # fmt: skip
    return Source.model_validate({**known, **changes})


class Progress(list[tuple[int, int | None]]):
    def __call__(self, done: int, total: int | None) -> None:
        self.append((done, total))


def nothing(done: int, total: int | None) -> None:
    """Progress that nobody looks at."""


def refusal(found: Source, target: Path) -> str:
    with pytest.raises(DataError) as raised:
        fetch(found, target, nothing)
    assert "\n" not in str(raised.value)
    assert not target.exists()
    return str(raised.value)


def test_a_file_arrives_whole_and_progress_ends_at_its_size(server: Behaviour, tmp_path: Path) -> None:
    progress = Progress()
    fetch(source(server.url), tmp_path / "new" / "file.bin", progress)
    assert (tmp_path / "new" / "file.bin").read_bytes() == CONTENT
    assert progress[-1] == (len(CONTENT), len(CONTENT))
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["file.bin"]


def test_a_redirection_is_followed(server: Behaviour, tmp_path: Path) -> None:
    fetch(source(server.url.replace("/file", "/moved")), tmp_path / "file.bin", nothing)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_cut_connection_is_taken_up_where_it_was_cut(server: Behaviour, tmp_path: Path) -> None:
    server.cut_after = [300_000, 1, 500_000]
    fetch(source(server.url), tmp_path / "file.bin", nothing)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [0, 300_000, 300_001, 800_001]


def test_a_later_call_goes_on_from_what_an_earlier_one_left(server: Behaviour, tmp_path: Path) -> None:
    server.cut_after = [400_000, *[0] * fetching.ATTEMPTS]
    assert "the connection was cut at 400,000 of 1,048,576 bytes" in refusal(source(server.url), tmp_path / "file.bin")
    assert (tmp_path / "file.bin.part").stat().st_size == 400_000
    server.asked.clear()
    progress = Progress()
    fetch(source(server.url), tmp_path / "file.bin", progress)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [400_000]
    assert progress[0][0] > 400_000


def test_a_server_that_cannot_continue_a_file_sends_it_anew(server: Behaviour, tmp_path: Path) -> None:
    server.ranges, server.cut_after = False, [300_000]
    fetch(source(server.url), tmp_path / "file.bin", nothing)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [0, 300_000]


def test_a_server_that_always_cuts_at_one_place_is_given_up(server: Behaviour, tmp_path: Path) -> None:
    server.ranges, server.cut_after = False, [1000] * 50
    assert "the connection was cut at 1,000" in refusal(source(server.url), tmp_path / "file.bin")
    assert len(server.asked) == fetching.ATTEMPTS + 1


def test_without_a_length_the_checksum_tells_that_a_file_is_short(server: Behaviour, tmp_path: Path) -> None:
    server.length, server.cut_after = False, [1000]
    message = refusal(source(server.url), tmp_path / "file.bin")
    assert f"sha256 is {hashlib.sha256(CONTENT[:1000]).hexdigest()} of 1,000 bytes" in message


@pytest.mark.parametrize(
    "changes", [{"sha256": "0" * 64}, {"bytes": 7}, {"sha256": None, "bytes": 7}], ids=["sha256", "size", "size only"]
)
def test_a_file_that_is_not_the_expected_one_is_refused_and_removed(
    server: Behaviour, tmp_path: Path, changes: Any
) -> None:
    message = refusal(source(server.url, **changes), tmp_path / "file.bin")
    assert f"sha256 is {SHA256} of 1,048,576 bytes, expected" in message
    assert "it was not kept" in message
    assert not list(tmp_path.iterdir())


def test_a_web_page_in_place_of_the_file_is_named(server: Behaviour, tmp_path: Path) -> None:
    server.content = b"<!DOCTYPE html><html>too many downloads</html>"
    unchecked = source(server.url, sha256=None, bytes=None)
    assert "a web page came instead of the file" in refusal(unchecked, tmp_path / "file.bin")
    assert not list(tmp_path.iterdir())


def test_a_file_of_unknown_size_and_checksum_is_taken(server: Behaviour, tmp_path: Path) -> None:
    fetch(source(server.url, sha256=None, bytes=None), tmp_path / "file.bin", nothing)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_missing_file_is_asked_for_once(server: Behaviour, tmp_path: Path) -> None:
    assert "HTTP 404" in refusal(source(server.url + "s"), tmp_path / "file.bin")
    assert len(server.asked) == 1


def test_a_busy_server_is_asked_again(server: Behaviour, tmp_path: Path) -> None:
    server.statuses = [503, 429]
    fetch(source(server.url), tmp_path / "file.bin", nothing)
    assert len(server.asked) == 3


def test_a_server_that_stays_busy_is_given_up(server: Behaviour, tmp_path: Path) -> None:
    server.statuses = [503] * 50
    assert "HTTP 503" in refusal(source(server.url), tmp_path / "file.bin")
    assert len(server.asked) == fetching.ATTEMPTS


def test_a_connection_that_falls_silent_is_taken_up_again(
    server: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SILENCE", 0.2)
    server.silence, server.cut_after = threading.Event(), [200_000]
    threading.Timer(0.5, server.silence.set).start()
    fetch(source(server.url), tmp_path / "file.bin", nothing)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked[0] == 0
    assert server.asked[1] > 0


def test_a_part_that_is_already_whole_is_checked_and_kept(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    fetch(source(server.url), tmp_path / "file.bin", nothing)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    fetch(source(server.url), tmp_path / "file.bin", nothing)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_the_part_of_another_file_is_noticed_by_the_checksum(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"other" * 1000)
    assert "it was not kept" in refusal(source(server.url), tmp_path / "file.bin")
    fetch(source(server.url), tmp_path / "file.bin", nothing)


def test_a_second_url_is_tried(server: Behaviour, tmp_path: Path) -> None:
    fetch(source(server.url + "s", server.url), tmp_path / "file.bin", nothing)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_all_urls_that_failed_are_named(server: Behaviour, tmp_path: Path) -> None:
    urls = (server.url + "s", "ftp://127.0.0.1/file", "file:///etc/hostname")
    message = refusal(source(*urls), tmp_path / "file.bin")
    assert all(url in message for url in urls)
    assert message.count("only http and https are fetched") == 2


def test_a_server_that_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert "Connection refused" in refusal(source(f"http://127.0.0.1:{port}/file"), tmp_path / "file.bin")


def test_a_folder_that_cannot_be_made_is_named(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file where a folder is wanted")
    with pytest.raises(StorageError, match="to=FOLDER"):
        fetch(source(server.url), tmp_path / "folder" / "file.bin", nothing)
    assert not server.asked


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("size", [100, len(CONTENT)], ids=["less than a buffer", "more than a buffer"])
def test_a_full_disk_is_named(server: Behaviour, tmp_path: Path, size: int) -> None:
    server.content = CONTENT[:size]
    (tmp_path / "file.bin.part").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left on device; make room"):
        fetch(source(server.url), tmp_path / "file.bin", nothing)
    assert not (tmp_path / "file.bin").exists()
