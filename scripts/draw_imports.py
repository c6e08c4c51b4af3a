"""Draw the packages of kgqa and their imports into docs/imports.svg.

    python scripts/draw_imports.py            write the drawing
    python scripts/draw_imports.py --check    fail if it differs from the code

A box is a package, and an arrow an import. An arrow is omitted if others lead to the same package. Every box is above
all that it imports.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

FILE = Path(__file__).resolve().parents[1] / "docs" / "imports.svg"
# modules without knowledge of questions, in one box
BASE = "util · types · errors · calls"
BASE_MODULES = frozenset(BASE.split(" · "))
# they start the command line, or are for tests
OMITTED = frozenset({"__main__", "testing"})
EXTRAS = "extras"
WIDTH, ROW, HEIGHT, GAP = 900, 74, 34, 24
LETTER = 8.2

Arrows = Mapping[str, set[str]]


def find_arrows() -> dict[str, set[str]]:
    """Return what each package imports, with imports inside functions and under `TYPE_CHECKING`."""
    graph = grimp.build_graph("kgqa", cache_dir=None)
    arrows = defaultdict[str, set[str]](set)
    for module in graph.modules:
        package = name_box(module)
        for imported in map(name_box, graph.find_modules_directly_imported_by(module)):
            if package and imported and package != imported:
                arrows[package].add(imported)
    return dict(arrows)


def name_box(module: str) -> str:
    """Return the box of a module, or "" if it has none."""
    package = module.partition(".")[2].partition(".")[0]
    if package in BASE_MODULES:
        return BASE
    return "" if package in OMITTED else package


def list_extras() -> list[str]:
    graph = grimp.build_graph("kgqa", cache_dir=None)
    return sorted(module.rpartition(".")[2] for module in graph.find_children("kgqa.extras"))


def omit_detours(arrows: Arrows) -> dict[str, set[str]]:
    """Return the arrows without those that lead to what another arrow leads to, too."""
    reachable = dict[str, set[str]]()
    for box in TopologicalSorter(arrows).static_order():
        direct = arrows.get(box, set())
        reachable[box] = direct.union(*(reachable[each] for each in direct))
    direct_only = {}
    for box, direct in arrows.items():
        others = set[str]().union(*(reachable[each] for each in direct))
        direct_only[box] = direct - others
    return direct_only


def find_rows(arrows: Arrows) -> list[list[str]]:
    """Return the boxes from the bottom row to the top row: each is one row above the highest that it imports."""
    height = dict[str, int]()
    for box in TopologicalSorter(arrows).static_order():
        height[box] = 1 + max((height[each] for each in arrows.get(box, ())), default=-1)
    rows = [
        sorted(box for box in height if height[box] == number)
        for number in range(max(height.values()) + 1)
    ]
    assert rows[-1] == [EXTRAS], "the core imports an extra"
    return rows


def draw() -> str:
    arrows = omit_detours(find_arrows())
    rows = find_rows(arrows)
    labels = {EXTRAS: f"extras, each optional:  {' · '.join(list_extras())}"}
    bottom = 20 + ROW * len(rows)
    places = dict[str, tuple[float, float, float]]()
    for number, row in enumerate(rows):
        widths = [LETTER * len(labels.get(box, box)) + GAP for box in row]
        # rows are shifted in turn, so that fewer arrows pass behind boxes
        left = (WIDTH - sum(widths) - 2 * GAP * (len(row) - 1)) / 2 + (number % 2) * GAP
        for box, width in zip(row, widths, strict=True):
            places[box] = (left, bottom - ROW * (number + 1), width)
            left += width + 2 * GAP
    lines = [
        draw_arrow(places[box], places[each])
        for box in sorted(arrows)
        for each in sorted(arrows[box])
    ]
    boxes = [
        draw_box(labels.get(box, box), place, is_extra=box == EXTRAS)
        for box, place in places.items()
    ]
    border = places[EXTRAS][1] + HEIGHT + 8
    core = f'<text x="12" y="{border + 22:.0f}" class="side">core</text>'
    frame = f'<path d="M8 {border:.0f}H{WIDTH - 8}" class="border"/>'
    return "\n".join(
        [HEAD.format(width=WIDTH, height=bottom), *lines, frame, core, *boxes, "</svg>", ""]
    )


HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<title>Packages of kgqa and their imports</title>
<style>
text {{ font: 14px sans-serif }}
.arrow {{ stroke: #8a97a8; fill: none; marker-end: url(#head) }}
.box {{ fill: #eef3f9; stroke: #44607f }}
.extra {{ fill: #fff6e5; stroke: #b07d1e; stroke-dasharray: 5 4 }}
.border {{ stroke: #b07d1e; stroke-dasharray: 2 5 }}
.side {{ fill: #44607f; font-style: italic }}
</style>
<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">
<path d="M0 0L7 3L0 6z" fill="#8a97a8"/></marker></defs>
<rect width="{width}" height="{height}" fill="white"/>"""


def draw_arrow(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    x, y = start[0] + start[2] / 2, start[1] + HEIGHT
    to_x, to_y = end[0] + end[2] / 2, end[1]
    bend = (to_y - y) / 2
    points = f"M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}"
    return f'<path class="arrow" d="{points}"/>'


def draw_box(label: str, place: tuple[float, float, float], *, is_extra: bool) -> str:
    left, top, width = place
    kind = "extra" if is_extra else "box"
    shape = f'<rect class="{kind}" x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{HEIGHT}" rx="5"/>'
    middle = f'x="{left + width / 2:.0f}" y="{top + HEIGHT / 2 + 5:.0f}" text-anchor="middle"'
    return f"{shape}<text {middle}>{label}</text>"


def main(arguments: list[str]) -> int:
    drawing = draw()
    if "--check" not in arguments:
        FILE.write_text(drawing, encoding="utf-8")
        return 0
    if FILE.read_text(encoding="utf-8") == drawing:
        return 0
    print(
        "docs/imports.svg differs from the imports. Run: python scripts/draw_imports.py",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
