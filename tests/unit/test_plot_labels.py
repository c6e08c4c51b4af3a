"""Labels of a plot's points: none over another, and one for points in one place."""

from __future__ import annotations

from itertools import combinations

from kgqa.report.plot_labels import Label, place_labels
from kgqa.report.plots import Plot, Point, Series, svg


def labels(*points: tuple[float, float, str]) -> list[Label]:
    return list(place_labels([Label(*point) for point in points], [point[:2] for point in points], 640))


def overlap(one: Label, other: Label) -> bool:
    a, b = one.box, other.box
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_labels_of_points_near_each_other_do_not_cover_each_other() -> None:
    shown = labels(*((100 + 5 * n, 200 + n, f"method_{n}") for n in range(6)))
    assert len(shown) == 6
    assert not [pair for pair in combinations(shown, 2) if overlap(*pair)]
    assert any(label.moved for label in shown)


def test_points_in_one_place_share_a_label_that_counts_what_has_no_room() -> None:
    assert [label.text for label in labels((100, 200, "trace"), (101, 200, "golden"))] == ["trace, golden"]
    many = labels(*((100, 200, f"max_answer_tokens={n}") for n in range(9)))
    assert [label.text for label in many] == ["max_answer_tokens=0 and 8 more"]


def test_a_label_at_the_right_end_goes_to_the_left_of_its_point() -> None:
    (label,) = labels((620, 200, "all_documents"))
    assert label.box[2] < 620
    assert 'text-anchor="end"' in svg(
        Plot("", "x", "y", [Series("", [Point(0, 0), Point(9, 1, label="all_documents")], 0)])
    )
