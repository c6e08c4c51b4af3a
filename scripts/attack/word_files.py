"""Word files (.docx), sound and harmed: as little of one as is one."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable, Mapping

from scripts.attack import bending

_MAIN = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/></Types>'
)
_RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    f'<Relationship Id="r1" Type="{_OFFICE}" Target="word/document.xml"/></Relationships>'
)
_TEXT = "<w:p><w:r><w:t>Anna was born in Rome.</w:t></w:r></w:p>"


def _file(body: str = _TEXT, before: str = "", document: str = "word/document.xml") -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("[Content_Types].xml", _TYPES)
        packed.writestr("_rels/.rels", _RELATIONS)
        text = f'{before}<w:document xmlns:w="{_MAIN}"><w:body>{body}</w:body></w:document>'
        packed.writestr(document, text.encode("utf-8", "surrogatepass"))
    return written.getvalue()


def _nested(depth: int) -> str:
    return "<w:tbl><w:tr><w:tc>" * depth + _TEXT + "</w:tc></w:tr></w:tbl>" * depth


def _laughing() -> bytes:
    names = [f'<!ENTITY a{place} "{f"&a{place - 1};" * 10 if place else "ha"}">' for place in range(12)]
    return _file("<w:p><w:r><w:t>&a11;</w:t></w:r></w:p>", f"<!DOCTYPE w:document [{''.join(names)}]>")


def _of_elsewhere() -> bytes:
    entity = '<!DOCTYPE w:document [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    return _file("<w:p><w:r><w:t>&x;</w:t></w:r></w:p>", entity)


WORD_FILES: Mapping[str, Callable[[random.Random], bytes]] = {
    "sound": lambda _: _file(),
    "bits": lambda dice: bending.flipped(_file(), dice, dice.choice((1, 10, 100))),
    "bytes": lambda dice: bending.damaged(_file(), dice)[0],
    "no document": lambda _: _file(document="word/other.xml"),
    "no XML": lambda _: _file("<w:p"),
    "a link outwards": lambda _: _file(document="../../word/document.xml"),
    "half a surrogate": lambda _: _file(_TEXT.replace("Anna", "\ud800")),
    "orders to a terminal": lambda _: _file(_TEXT.replace("Anna", "\u009b31m\u202eAnna")),
    "tables in tables": lambda dice: _file(_nested(dice.choice((50, 2000, 50_000)))),
    "20,000 paragraphs": lambda _: _file("<w:p/>" * 20_000),
    "a line of 2 MB": lambda _: _file(_TEXT.replace("Anna", "x" * 2_000_000)),
    "entities of entities": lambda _: _laughing(),
    "an entity of elsewhere": lambda _: _of_elsewhere(),
    "a bomb": lambda _: _file(" " * (257 << 20)),
}
