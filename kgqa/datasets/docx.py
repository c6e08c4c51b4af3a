"""The text of a Word file (.docx): mammoth makes HTML of it, `html_text` makes text of that."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

from kgqa.datasets.html_text import Page, page
from kgqa.errors import ConfigError, DataError

LARGEST = 1 << 28  # bytes of all that is packed in it: a small file can be made to unpack to any size


def read(file: Path) -> Page:
    """Return headings, paragraphs, lists, footnotes and cells in their order, as of an HTML page; pictures are left
    out.

    Raises:
        DataError: the file is no DOCX, is broken, or unpacks to more than `LARGEST`.
        ConfigError: mammoth is not installed.
    """
    try:
        import mammoth
    except ImportError as error:
        raise ConfigError(f"{file}: .docx files need mammoth; pip install 'kgqa[documents]'") from error
    try:
        written = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; take it out of the folder") from None
    try:
        _refuse_bomb(zipfile.ZipFile(io.BytesIO(written)), file)
        html: str = mammoth.convert_to_html(io.BytesIO(written), convert_image=_no_image).value
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 - a broken archive or XML: mammoth lets through what its parsers throw
        cause = f"{type(error).__name__}: {error}"
        raise DataError(f"{file}: no DOCX that can be read ({cause}); save it anew as .docx") from None
    return page(html)


def _refuse_bomb(packed: zipfile.ZipFile, file: Path) -> None:
    unpacked = sum(part.file_size for part in packed.infolist())
    if unpacked > LARGEST:
        raise DataError(f"{file}: unpacks to {unpacked:,} bytes; take it out, or save it without its pictures")


def _no_image(image: Any) -> list[Any]:  # noqa: ARG001 - mammoth's signature
    return []
