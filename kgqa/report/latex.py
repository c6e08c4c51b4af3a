"""A run's scores, breakdowns and costs as LaTeX tables (package booktabs)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kgqa.artifacts.run import FinishedRun
from kgqa.report.content import estimates, sections
from kgqa.report.notices import notices

_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    "−": "$-$", "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip


def latex(run: FinishedRun) -> str:
    """Return the scores with their intervals, then every other table that has named columns, except the settings."""
    scores = [
        (label, f"{score.mean:.1f}", f"[{score.low:.1f}, {score.high:.1f}]", str(score.n))
        for label, score in estimates(run)
    ]
    caption = f"{run.title}, scored by the {run.metrics.profile} profile, in percent"
    caption += f" ({run.simulation_note})" if run.simulation_note else ""
    tables = [table(caption, ("score", "mean", "95 % interval", "questions"), scores)]
    tables += [
        table(f"{section.title}: {run.title}", section.header, section.rows)
        for section in sections(run)
        if section.header and section.title != "Settings"
    ]
    told = "".join(f"% {' '.join(text.replace('**', '').split())}\n" for text in notices(run))
    return f"% needs \\usepackage{{booktabs}}\n{told}\n" + "\n".join(tables)


def escape_latex(text: str) -> str:
    """For LaTeX's text mode, on one line."""
    return re.sub(r"[\\~^–−±<>|&%$#_{}]", lambda match: _SPECIAL[match[0]], " ".join(text.split()))


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return render_styled_table(caption, header, ([escape_latex(cell) for cell in row] for row in rows))


def render_styled_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the same with cells that are LaTeX already."""
    lines = [" & ".join(row) + r" \\" for row in ([escape_latex(name) for name in header], *rows)]
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{escape_latex(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )
