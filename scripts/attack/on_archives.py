"""Archives of data sets: zip, tar, tar.gz and HotpotQA's tar of bz2 files, as they may come out of a broken download or
from somebody who means harm.

Nothing is written but the members that are wanted, whole, and where they belong.
"""

from __future__ import annotations

import bz2
import io
import json
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.attack import bending
from scripts.attack.forms import hotpotqa
from scripts.attack.judging import Harm
from scripts.attack.trial import Trial

WANTED = {"dev.json": b'[{"a": 1}]' * 200, "train.json": b'[{"b": 2}]' * 200}
ABSTRACTS = "abstracts.jsonl.gz"
STRANGE_NAMES = (
    "../../dev.json", "/tmp/attacked/dev.json", "a/../../../dev.json", "dev.json/", "..", "", "C:\\dev.json",
    "a\x00b", "\x1b[31m", "dev.json\n", "x" * 300, "\udcff",
)  # fmt: skip
BOMB = 60 << 20  # bytes


def main(argv: Sequence[str]) -> int:
    """What `kgqa data prepare` does with an archive once its checksum is right; "unpack" or "abstracts", and a file."""
    from kgqa.datasets.unpacking import unpack, unpack_abstracts
    from kgqa.errors import UsageError

    kind, archive = argv[0], Path(argv[1])
    try:
        if kind == "unpack":
            unpack(archive, tuple(WANTED), Path("there"))
        else:
            unpack_abstracts(archive, Path("there") / ABSTRACTS, lambda _: None)
    except UsageError as error:
        print(f"kgqa: {error}", file=sys.stderr)
        return 2
    return 0


def archives(trial: Trial) -> None:
    name = trial.dice.choice(tuple(_MADE))
    raw = _MADE[name](trial)
    trial.done.append(name)
    harmed = trial.dice.random() < 0.5
    if harmed:
        bits = trial.dice.choice((1, 20, None))
        raw, what = (
            (bending.flipped(raw, trial.dice, bits), "bits flipped") if bits else bending.damaged(raw, trial.dice)
        )
        trial.done.append(what)
    (trial.work / "archive").write_bytes(raw)
    (trial.work / "there").mkdir()
    kind = "abstracts" if name == "abstracts" or trial.dice.random() < 0.1 else "unpack"
    before = _everything(trial.folder)
    ended = trial.kgqa(kind, "archive", program="scripts.attack.on_archives")
    written = _everything(trial.folder) - before - set(_in(trial.terminal))
    allowed = {trial.work / "there" / each for each in (*WANTED, ABSTRACTS)}
    if strays := sorted(written - allowed):
        trial.found(Harm.SILENT, f"written: {', '.join(map(str, strays))[:300]}")
    if ended.code == 0 and name == "members" and kind == "unpack" and not harmed:
        for member, content in WANTED.items():
            if (trial.work / "there" / member).read_bytes() != content:
                trial.found(Harm.SILENT, f"{member} is another one")


def _everything(folder: Path) -> set[Path]:
    return set(_in(folder))


def _in(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if not file.is_dir()]


def _members(trial: Trial) -> bytes:
    """As they should be: in a zip, a tar or a compressed tar."""
    return _packed(trial, [(f"data/{name}", content) for name, content in WANTED.items()])


def _strange(trial: Trial) -> bytes:
    strange = trial.dice.choice(STRANGE_NAMES)
    trial.done.append(ascii(strange))
    return _packed(trial, [(strange, b"harm"), *WANTED.items()])


def _twice(trial: Trial) -> bytes:
    return _packed(trial, [*WANTED.items(), *((f"again/{name}", b"other") for name in WANTED)])


def _missing(trial: Trial) -> bytes:
    return _packed(trial, [("dev.json", WANTED["dev.json"])])


def _bomb(trial: Trial) -> bytes:
    return _packed(trial, [("big", b"\x00" * BOMB), *WANTED.items()])


def _abstracts(trial: Trial) -> bytes:
    lines = [{"title": part[0], "text": part[1]} for record in hotpotqa() for part in record["context"]]
    if trial.dice.random() < 0.6:
        changed, what = bending.bent(lines, trial.dice)
        trial.done.append(what)
        lines = changed if isinstance(changed, list) else lines
    shard = bz2.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    if trial.dice.random() < 0.3:
        shard, what = bending.damaged(shard, trial.dice)
        trial.done.append(what)
    return _tarred([("enwiki/AA/wiki_00.bz2", shard)], "w:bz2")


def _links(trial: Trial) -> bytes:
    """A tar whose wanted member is a link, a device or a folder."""
    written = io.BytesIO()
    kind = trial.dice.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE))
    trial.done.append(f"a member of type {kind!r}")
    with tarfile.open(fileobj=written, mode="w") as archive:
        member = tarfile.TarInfo("dev.json")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
        _add(archive, "train.json", WANTED["train.json"])
    return written.getvalue()


def _encrypted(_: Trial) -> bytes:
    """A zip that says that its members are."""
    raw = bytearray(_zipped(list(WANTED.items())))
    for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = raw.find(sign)
        while at >= 0:
            raw[at + place] |= 1
            at = raw.find(sign, at + 1)
    return bytes(raw)


def _unknown_packing(_: Trial) -> bytes:
    """A zip whose members are packed in a way that nobody knows."""
    raw = bytearray(_zipped(list(WANTED.items())))
    for sign, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = raw.find(sign)
        while at >= 0:
            raw[at + place] = 98
            at = raw.find(sign, at + 1)
    return bytes(raw)


def _packed(trial: Trial, members: list[tuple[str, bytes]]) -> bytes:
    kind = trial.dice.choice(("zip", "w", "w:gz", "w:bz2", "w:xz"))
    return _zipped(members) if kind == "zip" else _tarred(members, kind)


def _zipped(members: list[tuple[str, bytes]]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name.encode("utf-8", "replace").decode() or "x", content)
    return written.getvalue()


def _tarred(members: list[tuple[str, bytes]], mode: str) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members:
            _add(archive, name, content)
    return written.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


_MADE: Mapping[str, Callable[[Trial], bytes]] = {
    "members": _members,
    "strange names": _strange,
    "members twice": _twice,
    "a member missing": _missing,
    "a bomb": _bomb,
    "abstracts": _abstracts,
    "links": _links,
    "encrypted": _encrypted,
    "an unknown packing": _unknown_packing,
}

if __name__ == "__main__":
    sys.exit(main([os.fsdecode(word) for word in map(os.fsencode, sys.argv[1:])]))
