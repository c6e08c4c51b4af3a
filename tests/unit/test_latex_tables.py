"""LaTeX tables of reports fit the text of a page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kgqa.report.section import Section, latex
from tests.unit.test_comparison_table import fake_entry
from tests.unit.test_comparison_table import table_of as compared_runs

DOCUMENT = r"""\documentclass%s{article}
\usepackage{booktabs,rotating,graphicx}
\begin{document}
%s
\end{document}
"""
WIDTHS = pytest.mark.parametrize(
    ("columns", "start", "packages"),
    [
        (3, r"\begin{table*}[t]" + "\n\\centering\n\\caption", "booktabs"),
        (5, r"\begin{table*}[t]" + "\n\\centering\n\\footnotesize", "booktabs"),
        (8, r"\begin{sidewaystable*}[t]", "booktabs,rotating"),
        (20, r"\begin{sidewaystable*}[t]", "booktabs,rotating,graphicx"),
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


PAGES = pytest.mark.parametrize("options", ["", "[twocolumn]"], ids=["one column", "two columns"])
NEEDS_LATEX = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")


@pytest.mark.slow
@NEEDS_LATEX
@PAGES
@WIDTHS
def test_table_fits_a_page(
    tmp_path: Path, columns: int, start: str, packages: str, options: str
) -> None:
    check_fit(tmp_path, table_of(columns), options)


@pytest.mark.slow
@NEEDS_LATEX
@PAGES
@pytest.mark.parametrize("name", ["short", "a_very_long_name_of_a_method"], ids=["short", "long"])
def test_comparison_fits_a_page(tmp_path: Path, name: str, options: str) -> None:
    runs = {letter: fake_entry(f"{name}_{letter}") for letter in "AB"}
    check_fit(tmp_path, compared_runs(**runs).latex(), options)


def check_fit(folder: Path, table: str, options: str) -> None:
    (folder / "page.tex").write_text(DOCUMENT % (options, table), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "page.tex"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "Overfull" not in run.stdout
