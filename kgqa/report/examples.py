"""Build the report of collected examples: SAFE's Table 7, labels by place, dropped examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgqa.artifacts.collected import Collected
from kgqa.artifacts.examples import Example, Positive
from kgqa.artifacts.schema import Number
from kgqa.report.content import Section
from kgqa.report.spreadsheet import csv_text
from kgqa.report.verification import cost_section
from kgqa.types import Question
from kgqa.util.text import pluralize

REVIEWED = ("id", "question", "asked", "target", "label", "right", "remark")
Row = Sequence[str]


def example_sections(collected: Collected) -> list[Section]:
    """Return the sections of collected examples, without empty ones."""
    rows = [(name, f"{row.examples:,}", f"{row.questions:,}") for name, row in collected.datasets.items()]
    total = ("total", f"{collected.examples:,}", f"{collected.questions:,}")
    held_out = f"{pluralize(len(collected.held_out), 'question')} held out, with all their examples."
    whys = sorted(collected.dropped.items(), key=lambda item: (-item[1], item[0]))
    sections = [
        Section("Examples", ("data set", "instances", "unique questions"), [*rows, total], text=(held_out,)),
        _labels(collected),
        Section("Dropped", ("why", "count"), [(why, f"{count:,}") for why, count in whys]),
        Section("Made by", ("", "instances"), [(who, f"{count:,}") for who, count in collected.made_by.items()]),
        cost_section(collected.cost),
        Section("Figures", (), [(name, _number(value)) for name, value in collected.figures.items()]),
    ]
    return [section for section in sections if section.rows]


def _labels(collected: Collected) -> Section:
    """Return a column for each place."""
    places = sorted({place for counts in collected.labels.values() for place in counts})
    header = ("label", "instances", "percent", "held out", *(f"place {place}" for place in places))
    rows = []
    for label, counts in collected.labels.items():
        count = sum(counts.values())
        share = 100 * count / max(collected.examples, 1)
        at_places = (f"{counts.get(place, 0):,}" for place in places)
        rows.append((label, f"{count:,}", f"{share:.1f}", f"{collected.held_out_labels.get(label, 0):,}", *at_places))
    return Section("Labels and places", header, rows)


def _number(value: Number) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def review_csv(examples: Sequence[Example | Positive], questions: Iterable[tuple[str, Question]]) -> str:
    """Return a CSV with examples to review. Users fill in `right` (yes or no) and `remark`. The shared start of all
    prompts is omitted.
    """
    texts = {(dataset, question.id): question.text for dataset, question in questions}
    asked = [_format_prompt(example) for example in examples]
    begun = _common_lines(asked)
    rows = [
        (
            example.id,
            texts.get((example.origin.dataset, example.question), ""),
            said[begun:].strip(),
            example.target if isinstance(example, Example) else example.positive,
            example.label,
            "",
            "",
        )
        for example, said in zip(examples, asked, strict=True)
    ]
    return csv_text([REVIEWED, *rows])


def _format_prompt(example: Example | Positive) -> str:
    if isinstance(example, Positive):
        return example.anchor
    prompt = example.prompt
    return "\n\n".join([*(message.content for message in prompt.messages), prompt.prefill]).strip()


def _common_lines(texts: Sequence[str]) -> int:
    """Return length of the lines that all begin with; 0 for one text alone."""
    if len(texts) < 2:
        return 0
    first, last = min(texts), max(texts)
    same = next((n for n, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return first.rfind("\n", 0, same) + 1
