"""A traversal of KGP from a trace: as lines for a terminal, and as a picture of the part of the graph it saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kgqa.artifacts.trace import TracedQuestion
from kgqa.artifacts.trace_notes import Traversal

SHOWN = 110  # characters of a passage in a line
ASIDE = 20  # neighbours drawn that were never chosen; of more the ones with the most links
BOX, ROW, GAP = 190, 34, 130  # pixels: a node's width, the distance between rows, and between columns
STYLE = 'font-family="system-ui, sans-serif" font-size="11" fill="currentColor"'
SEED, CHOSEN, OTHER = "#2f7fb5", "#3f9461", "#7f8b8c"  # legible on white and on black


def traversal_lines(traced: TracedQuestion, walked: Traversal) -> Iterator[str]:
    """Return the seeds in their order; below each step what was looked for and what was chosen. A star marks gold
    passages.
    """
    texts, gold = _texts(traced), traced.question.support

    def named(passage_id: str) -> str:
        return f"{'*' if passage_id in gold else ' '} {texts.get(passage_id, passage_id)[:SHOWN]}"

    yield f"agent: {walked.agent} · {len(walked.seeds)} seeds · {len(walked.paths)} paths"
    for step in walked.steps:
        indent = "    " * (len(step.path) - 1)
        yield f"{indent}{named(step.path[-1])}"
        wanted = f"looks for {step.evidence!r} among " if step.evidence else "chooses among "
        yield f"{indent}    {wanted}{step.neighbours} neighbours"
        for passage_id in step.chosen:
            yield f"{indent}    → {named(passage_id)}"
    stepped = {step.path[0] for step in walked.steps}
    for seed in walked.seeds:
        if seed not in stepped:
            yield f"{named(seed)}   (not walked on from: the budget was spent)"


Place = tuple[int, str]  # a passage in a column: 0 for seeds, n for what the n-th step of a path visited


@dataclass(frozen=True)
class Node:
    column: int
    row: int

    @property
    def left(self) -> int:
        return 20 + self.column * (BOX + GAP)

    @property
    def top(self) -> int:
        return 60 + self.row * ROW


def traversal_svg(traced: TracedQuestion, walked: Traversal) -> str:
    """Return a column of seeds, one for each hop, and one of neighbours that were never visited; lines are edges.

    A passage stands once in each column that reached it. Gold passages have a star and a thick frame.
    """
    texts, gold = _texts(traced), traced.question.support
    around = _around(traced)
    visits = {
        ((len(step.path) - 1, step.path[-1]), (len(step.path), chosen))
        for step in walked.steps
        for chosen in step.chosen
    }
    visited = [(0, seed) for seed in walked.seeds] + sorted({end for _, end in visits})
    aside = _aside(visited, around)
    nodes = _place_nodes([*visited, *aside])
    passed_over = [(start, end) for start in visited for end in aside if end[1] in around.get(start[1], ())]
    width = max([640, *(node.left + BOX + 20 for node in nodes.values())])
    height = max((node.top for node in nodes.values()), default=60) + ROW + 30
    hidden = len({other for others in around.values() for other in others} - {passage for _, passage in nodes})
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" {STYLE}>',
        f'<text x="20" y="24" font-size="14">{_xml(traced.question.text)}</text>',
        f'<text x="20" y="44">{escape(_legend(walked.agent, hidden))}</text>',
    ]
    parts += [_line(nodes[start], nodes[end], OTHER, 0.6) for start, end in passed_over]
    parts += [_line(nodes[start], nodes[end], CHOSEN, 1.6) for start, end in sorted(visits)]
    for place, node in nodes.items():
        colour = OTHER if place in aside else CHOSEN if place[0] else SEED
        parts += _box(node, texts.get(place[1], place[1]), colour, gold=place[1] in gold)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _aside(visited: Sequence[Place], around: Mapping[str, Sequence[str]]) -> list[Place]:
    """Return the neighbours that were never visited, those with the most edges first, in a column behind the last."""
    known = {passage for _, passage in visited}
    edges = Counter(other for others in around.values() for other in others if other not in known)
    last = max((column for column, _ in visited), default=0) + 1
    return [(last, passage) for passage, _ in edges.most_common(ASIDE)]


def _place_nodes(places: Sequence[Place]) -> dict[Place, Node]:
    rows = Counter[int]()
    nodes = {}
    for place in places:
        nodes[place] = Node(place[0], rows[place[0]])
        rows[place[0]] += 1
    return nodes


def _around(traced: TracedQuestion) -> dict[str, Sequence[str]]:
    """Return, for each passage, its neighbours in the trace."""
    calls = (call for call in traced.calls if call.kind == "neighbours" and call.items is not None)
    return {call.request["passage_id"]: call.items or () for call in calls}


def _legend(agent: str, hidden: int) -> str:
    more = f", {hidden} more not drawn" if hidden else ""
    return f"agent {agent}: seeds blue, visited green, neighbours passed over grey{more}; ★ gold"


def _line(start: Node, end: Node, colour: str, width: float) -> str:
    x1, y1, x2, y2 = start.left + BOX, start.top + 11, end.left, end.top + 11
    middle = (x1 + x2) / 2
    path = f"M {x1} {y1} C {middle} {y1}, {middle} {y2}, {x2} {y2}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-opacity=".7"/>'


def _box(node: Node, text: str, colour: str, *, gold: bool) -> list[str]:
    label = f"{'★ ' if gold else ''}{text}"
    shown = label if len(label) <= 28 else f"{label[:27]}…"
    frame = f'rx="4" fill="{colour}" fill-opacity=".14" stroke="{colour}" stroke-width="{3 if gold else 1}"'
    return [
        f'<rect x="{node.left}" y="{node.top}" width="{BOX}" height="22" {frame}><title>{_xml(text)}</title></rect>',
        f'<text x="{node.left + 6}" y="{node.top + 15}">{_xml(shown)}</text>',
    ]


def _xml(text: str) -> str:
    """Escape a text for XML and replace control characters, which texts of PDFs can contain, by blanks."""
    return escape("".join(letter if letter.isprintable() else " " for letter in text))


def _texts(traced: TracedQuestion) -> dict[str, str]:
    """ "Title: text" by passage id; of passages found elsewhere than in the question's own, what the trace says."""
    texts = {passage.id: f"{passage.title}: {passage.text}" for passage in traced.question.passages}
    prediction = traced.prediction
    titles = dict(zip(prediction.evidence or (), prediction.evidence_titles, strict=False))
    return {passage_id: title for passage_id, title in titles.items() if title} | texts
