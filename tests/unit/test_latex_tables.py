"""LaTeX tables of reports fit the text of a page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kgqa.report.section import Section, latex

DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs,rotating,graphicx}
\begin{document}
%s
\end{document}
"""
WIDTHS = pytest.mark.parametrize(
    ("columns", "start", "packages"),
    [
        (3, r"\begin{table}[t]" + "\n\\centering\n\\caption", "booktabs"),
        (5, r"\begin{table}[t]" + "\n\\centering\n\\footnotesize", "booktabs"),
        (8, r"\begin{sidewaystable}[t]", "booktabs,rotating"),
        (20, r"\begin{sidewaystable}[t]", "booktabs,rotating,graphicx"),
    ],
    ids=["normal", "small", "turned", "scaled"],
)


def table_of(columns: int) -> str:
    row = ["a name", *["45.2 [39, 51]"] * (columns - 1)]
    return latex("title", [Section("Scores", [f"c{n}" for n in range(columns)], [row] * 3)])


@WIDTHS
def test_wide_table_is_made_smaller(columns: int, start: str, packages: str) -> None:
    text = table_of(columns)
    assert start in text
    assert text.startswith(f"% needs \\usepackage{{{packages}}}\n")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@WIDTHS
def test_table_fits_a_page(tmp_path: Path, columns: int, start: str, packages: str) -> None:
    (tmp_path / "page.tex").write_text(DOCUMENT % table_of(columns), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "page.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "Overfull" not in run.stdout
