"""Five files of a world that nobody has read about, one of each kind that `kgqa ask` reads."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

LIGHTHOUSE = """# The lighthouse of Korrin Head

The lighthouse of Korrin Head was built in 1884 by the engineer Hesper Vall. It stands on the northern cape of the
island of Tarvas and is 41 metres high. Its lamp was made by the Brandel glassworks in Oustry.

## Keepers

The first keeper was Aldous Penn, who stayed for thirty years. Since 1990 the lighthouse is kept by Piet Marlow.
Visitors may climb it on Sundays from May to September.
"""
ENGINEER = """Hesper Vall was an engineer. She was born in Oustry in 1849 as a daughter of the clockmaker Jonas Vall.

She studied at the Academy of Merrin, where she was the first woman to pass the examination in mechanics. Hesper Vall
also built the bridge at Sandrow, which was opened in 1891. She died in 1912 in Sandrow.
"""
TOWN = """<!doctype html><html><head><title>Towns</title><style>p { margin: 0 }</style></head><body>
<h1>Oustry</h1>
<p>Oustry is a town in the province of <b>Lethe Vale</b>. It lies on the river Ambel and is known for its glass.</p>
<p>The mayor of Oustry is Dorrit Sayle. She was a teacher before she was elected in 2019.</p>
<table><tr><th>Year</th><th>Inhabitants</th></tr><tr><td>1900</td><td>3,120</td></tr><tr><td>2000</td><td>8,450</td></tr></table>
</body></html>
"""
MINUTES = """Minutes of the harbour council of Sandrow
The ferry Grey Heron is replaced by the ferry Northern Star. The Northern Star sails from Sandrow to Korrin Head three \
times a day. Its captain is Ilse Tander.
The council pays 240,000 crowns for the Northern Star. The bridge at Sandrow will be painted next spring."""
SURVEY = (
    "The river Ambel rises in the Hollin Hills and flows into Lake Merrin. It is 84 kilometres long.",
    "The Academy of Merrin stands on the shore of Lake Merrin. It was founded in 1790 by Orsola Finch.",
)  # a page each
FILES = ("lighthouse.md", "vall.txt", "oustry.html", "minutes.docx", "survey.pdf")

BORN = "Where was the builder of the lighthouse born?"
# in place of a model: what it reads in each file, and what it answers
RULES = (
    (
        r"Text: # The lighthouse of Korrin Head.*Triples:\s*<$",
        "<lighthouse of Korrin Head; built by; Hesper Vall>",
    ),
    (r"Text: Hesper Vall was an engineer.*Triples:\s*<$", "<Hesper Vall; born in; Oustry>"),
    (r"Text: Oustry\n\nOustry is a town.*Triples:\s*<$", "<Oustry; lies on; the river Ambel>"),
    (r"Text: Minutes of the harbour.*Triples:\s*<$", "<Northern Star; replaced; Grey Heron>"),
    (r"Text: The river Ambel rises.*Triples:\s*<$", "<river Ambel; rises in; the Hollin Hills>"),
    (
        r"Text: The Academy of Merrin stands.*Triples:\s*<$",
        "<Academy of Merrin; founded by; Orsola Finch>",
    ),
    (r"Question: Where was the builder", "Oustry"),
    (r"Question: Which ferry", "Northern Star"),
    (r"Question: Where does the Ambel", "the Hollin Hills"),
    (r"Question: Who founded", "Orsola Finch"),
)
_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_TYPES = """<?xml version="1.0" encoding="UTF-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/word/document.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"""
_RELATIONS = """<?xml version="1.0" encoding="UTF-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"
 Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/>
</Relationships>"""


def write_island(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "lighthouse.md").write_text(LIGHTHOUSE, encoding="utf-8")
    (folder / "vall.txt").write_text(ENGINEER, encoding="utf-8")
    (folder / "oustry.html").write_text(TOWN, encoding="utf-8")
    write_docx(folder / "minutes.docx", MINUTES.splitlines())
    write_pdf(folder / "survey.pdf", SURVEY)
    return folder


def write_docx(file: Path, paragraphs: Sequence[str]) -> None:
    body = "".join(f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for text in paragraphs)
    document = f'<?xml version="1.0"?><w:document xmlns:w="{_NAMESPACE}"><w:body>{body}</w:body></w:document>'
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("[Content_Types].xml", _TYPES)
        packed.writestr("_rels/.rels", _RELATIONS)
        packed.writestr("word/document.xml", document)


def write_pdf(file: Path, pages: Sequence[str]) -> None:
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate

    style = getSampleStyleSheet()["BodyText"]
    flow = [part for text in pages for part in (Paragraph(text, style), PageBreak())]
    SimpleDocTemplate(str(file), invariant=1).build(flow[:-1])
