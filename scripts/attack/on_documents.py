"""A person's own documents and questions: text, Markdown, HTML, Word files and PDFs, odd, huge, encrypted or broken.

Each folder is read or refused in one line, in a time that grows with its size and not with its square.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.attack import bending
from scripts.attack.bending import Bytes
from scripts.attack.judging import Harm
from scripts.attack.on_inputs import whole_run
from scripts.attack.trial import QUICK, Trial
from scripts.attack.word_files import WORD_FILES

PDFS = Path(__file__).resolve().parents[2] / "kgqa/demos/pdf"
QUESTIONS = (
    {"question": "Where was Anna born?", "answer": "Rome", "support": [{"title": "a", "text": "born in Rome"}]},
    {"id": "z", "question": "Where is Bob?", "answers": ["Paris", "P"], "type": "content", "support": ["a"]},
)
TEXTS: Mapping[str, str] = {
    "a line of 400 kB without blanks": "x" * 400_000,
    "2 MB of words in a line": "word " * 400_000,
    "200,000 lines": "a\n" * 200_000,
    "300,000 blanks": " " * 300_000,
    "sentences without end": "a.b!c?" * 60_000,
    "combining marks": "e" + "\u0301" * 200_000,
    "Chinese without blanks": "\u4e2d\u6587" * 100_000,
    "nothing but signs": "*#_`[](){}<>|~" * 5000,
    "deep quotes": ">" * 20_000 + " x",
    "deep lists": "".join(f"{'  ' * depth}- x\n" for depth in range(600)),
    "zeros": "\x00" * 1000,
    "half a table": "|a|b|\n|--|\n" * 5000,
}
PAGES: Mapping[str, str] = {
    "brackets": "<" * 100_000,
    "deep": "<div>" * 50_000 + "x",
    "a declaration without end": "<!DOCTYPE" + "[" * 5000,
    "entities": "&" * 100_000 + "#x110000;",
    "no such characters": "&#x110000;&#xD800;&#0;&#99999999999999999999;",
    "a section without end": "<![CDATA[x",
    "comments without end": "<!-- " * 10_000,
    "a long attribute": "<a href='" + "x" * 100_000,
    "many attributes": "<a " + "b=1 " * 50_000 + ">x</a>",
    "a script without end": "<script>x",
    "a condition": "<![if" + " x" * 100,
    "instructions": "<?php " * 1000,
    "a table of 20,000 cells": "<table>" + "<td>x" * 20_000,
}
NAMES = (
    "\n.txt", "\x1b[31m.txt", "<img src=x onerror=alert(1)>.txt", "a\u202e.txt", "=1+1.txt", "é.txt", "e\u0301.txt",
    " .txt", "..txt", ".hidden.txt", "a\\b.txt", "$(id).txt", "[bold].txt", "\udcff\udcfe.txt", "a\u2028b.txt",
    "x" * 250 + ".txt", "a.TXT",
)  # fmt: skip
PDF_DAMAGES: Mapping[str, Bytes] = {
    "bits": lambda raw, dice: bending.flipped(raw, dice, dice.choice((1, 10, 200))),
    "cut": lambda raw, dice: raw[: dice.randrange(len(raw))],
    "a later version": lambda raw, _: b"%PDF-9.9\n" + raw[9:],
    "ends many times": lambda raw, _: raw + b"%%EOF" * 100,
    "no table of objects": lambda raw, _: raw.replace(b"xref", b"xrxf"),
    "no pages": lambda raw, _: raw.replace(b"/Pages", b"/Pagez"),
    "no lengths": lambda raw, _: raw.replace(b"/Length", b"/Lengtx"),
    "wrong lengths": lambda raw, _: raw.replace(b"/Length ", b"/Length 9"),
    "other filters": lambda raw, _: raw.replace(b"/FlateDecode", b"/LZWDecode  "),
    "pages in a circle": lambda raw, _: raw.replace(b"/Kids [", b"/Kids [ 1 0 R 2 0 R 3 0 R 4 0 R "),
    "a huge page": lambda raw, _: raw.replace(b"/MediaBox [ 0 0", b"/MediaBox [ -9999999999 -9e30"),
    "empty": lambda *_: b"",
    "zeros": lambda raw, _: bytes(len(raw)),
    "text": lambda *_: b"no PDF at all",
}


def folders(trial: Trial) -> None:
    """As a data set."""
    _harmed(trial)
    words = ("dataset=folder", "dataset.path=documents")
    if trial.dice.random() < 0.3:
        trial.kgqa("data", "check", *words)
        return
    method = trial.dice.choice(("retrieve_read", "golden", "trace"))
    ended = trial.kgqa("run", f"method={method}", *words, *QUICK, "limit=1", "out=run")
    if ended.code == 0:
        whole_run(trial, trial.work / "run")


def asked(trial: Trial) -> None:
    """By `kgqa ask`, which leaves out what cannot be read, and says so."""
    _harmed(trial)
    places = trial.dice.choice((("documents",), ("documents/a.txt", "documents"), ("documents/b.html",)))
    in_json = trial.dice.random() < 0.5
    ended = trial.kgqa("ask", "Where was Anna born?", *places, *QUICK, *(["--json"] if in_json else []))
    if ended.code == 0:
        said = [json.loads(ended.out)["page"]] if in_json else ended.out.split("\n")
        if not any(line.startswith("outputs/asked/") and (trial.work / line).is_file() for line in said):
            trial.found(Harm.SILENT, f"it ended well and names no page that is there: {said}")


def _harmed(trial: Trial) -> None:
    folder = trial.work / "documents"
    folder.mkdir()
    (folder / "a.txt").write_text("Anna was born in Rome.\n\nBob lives in Paris.", encoding="utf-8")
    (folder / "b.html").write_text("<p>Rome is in <b>Italy</b></p>", encoding="utf-8")
    (folder / "c.md").write_text("# T\n\nhello", encoding="utf-8")
    (folder / "questions.jsonl").write_bytes(bending.as_lines(QUESTIONS))
    name = trial.dice.choice(tuple(_WAYS))
    trial.done.append(name)
    _WAYS[name](folder, trial)


def _questions(folder: Path, trial: Trial) -> None:
    file = folder / "questions.jsonl"
    change: Callable[[], tuple[bytes, str]] = trial.dice.choice(
        (
            lambda: bending.bent_file(file.read_bytes(), trial.dice, True),
            lambda: bending.damaged(file.read_bytes(), trial.dice),
        )
    )
    changed, what = change()
    trial.done.append(what)
    file.write_bytes(changed)


def _text(folder: Path, trial: Trial) -> None:
    name = trial.dice.choice(tuple(TEXTS))
    trial.done.append(name)
    (folder / trial.dice.choice(("a.txt", "c.md"))).write_text(TEXTS[name], encoding="utf-8")


def _page(folder: Path, trial: Trial) -> None:
    name = trial.dice.choice(tuple(PAGES))
    trial.done.append(name)
    (folder / "b.html").write_text(PAGES[name], encoding="utf-8")


def _bytes(folder: Path, trial: Trial) -> None:
    file = folder / trial.dice.choice(("a.txt", "b.html", "c.md"))
    changed, what = bending.damaged(file.read_bytes() * trial.dice.choice((1, 50)), trial.dice)
    trial.done.append(f"{file.name}: {what}")
    file.write_bytes(changed)


def _name(folder: Path, trial: Trial) -> None:
    name = trial.dice.choice(NAMES)
    trial.done.append(ascii(name))
    (folder / name).write_text("some text here", encoding="utf-8")


def _special(folder: Path, trial: Trial) -> None:
    """Files that are none."""
    what = trial.dice.choice(("/dev/zero", "a pipe", "a circle", "a link to nowhere", "a folder", "no right to read"))
    trial.done.append(what)
    if what == "a pipe":
        os.mkfifo(folder / "x.txt")
    elif what == "a folder":
        (folder / "x.txt").mkdir()
    elif what == "no right to read":
        (folder / "x.txt").write_text("x", encoding="utf-8")
        (folder / "x.txt").chmod(0)
    else:
        target = {"a circle": folder, "a link to nowhere": Path("/nowhere/at/all")}.get(what, Path(what))
        (folder / "x.txt").symlink_to(target)


def _pdf(folder: Path, trial: Trial) -> None:
    name, source = trial.dice.choice(tuple(PDF_DAMAGES)), trial.dice.choice(sorted(PDFS.glob("*.pdf")))
    trial.done.append(f"{source.name}: {name}")
    (folder / "x.pdf").write_bytes(PDF_DAMAGES[name](source.read_bytes(), trial.dice))


def _made_pdf(folder: Path, trial: Trial) -> None:
    """Encrypted, without text, and with very much of it."""
    from reportlab.pdfgen.canvas import Canvas

    what = trial.dice.choice(
        ("encrypted", "encrypted, no password to read", "no text", "300 pages", "30,000 letters in a line")
    )
    trial.done.append(what)
    written = io.BytesIO()
    password = {"encrypted": "secret", "encrypted, no password to read": ""}.get(what)
    canvas = Canvas(written, encrypt=password) if password is not None else Canvas(written)
    for page in range(300 if what == "300 pages" else 1):
        if what != "no text":
            canvas.drawString(50, 700, "x" * 30_000 if "letters" in what else f"Anna was born in Rome, page {page}.")
        canvas.showPage()
    canvas.save()
    (folder / "x.pdf").write_bytes(written.getvalue())


def _word_file(folder: Path, trial: Trial) -> None:
    name = trial.dice.choice(tuple(WORD_FILES))
    trial.done.append(name)
    (folder / "x.docx").write_bytes(WORD_FILES[name](trial.dice))


_WAYS: Mapping[str, Callable[[Path, Trial], None]] = {
    "questions": _questions,
    "text": _text,
    "HTML": _page,
    "bytes": _bytes,
    "a name": _name,
    "no file": _special,
    "PDF": _pdf,
    "a PDF made": _made_pdf,
    "a Word file": _word_file,
}
