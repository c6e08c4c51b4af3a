"""Makes the PDFs of `dataset=pdf` from our own texts: python scripts/make_pdfs.py [FOLDER], else kgqa/demos/pdf.

Each scripts/pdfs/TITLE.md becomes TITLE.pdf. Of Markdown it knows headings, paragraphs, tables without a line of
dashes, and "---" for the next page. The same texts give the same bytes (reportlab's invariant mode).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from reportlab.lib.colors import black, lightgrey
from reportlab.lib.pagesizes import A5
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

REPOSITORY = Path(__file__).parents[1]
TEXTS = REPOSITORY / "scripts" / "pdfs"
SHIPPED = REPOSITORY / "kgqa" / "demos" / "pdf"
MARGIN = 54  # points
STYLES = getSampleStyleSheet()
GRID = TableStyle([("GRID", (0, 0), (-1, -1), 0.5, black), ("BACKGROUND", (0, 0), (-1, 0), lightgrey)])


def make(text: Path, target: Path) -> None:
    document = SimpleDocTemplate(
        str(target), pagesize=A5, title=text.stem, author="kgqa", invariant=1,
        leftMargin=MARGIN, rightMargin=MARGIN, topMargin=MARGIN, bottomMargin=MARGIN,
    )  # fmt: skip
    story = [part for block in text.read_text(encoding="utf-8").split("\n\n") for part in flowables(block.strip())]

    def numbered(canvas: Any, _: Any) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawCentredString(A5[0] / 2, MARGIN / 2, f"{text.stem} · {canvas.getPageNumber()}")

    document.build(story, onFirstPage=numbered, onLaterPages=numbered)


def flowables(block: str) -> list[Any]:
    if block == "---":
        return [PageBreak()]
    if block.startswith("|"):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        return [Table(rows, repeatRows=1, style=GRID, hAlign="LEFT"), Spacer(0, 10)]
    marks, _, heading = block.partition(" ")
    if set(marks) == {"#"}:
        return [Paragraph(escape(heading), STYLES[f"Heading{len(marks)}"])]
    return [Paragraph(escape(block), STYLES["Normal"]), Spacer(0, 8)]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for text in sorted(TEXTS.glob("*.md")):
        target = folder / f"{text.stem}.pdf"
        make(text, target)
        print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED)
