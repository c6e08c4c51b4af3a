"""The pages of docs/ can be found, and are complete where the code says what they must have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kgqa.cli.key_help import explain
from kgqa.config.files import config_files, group_names
from kgqa.reproduce.cells import is_mean
from kgqa.reproduce.tables import load_table, table_ids
from kgqa.util.variables import VARIABLES, find_misspelled
from tests.shown_commands import ROOT

README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
# a text that is the name of what a user sets, by its start
SET_BY_USERS = re.compile(
    '"((?:ANTHROPIC|CUDA|GEMINI|HF|KGQA|MLFLOW|OPENAI|SSL|TAGME|WANDB|XDG)_[A-Z_]+[A-Z])"'
)
SET_BY_KGQA = {
    "KGQA_SESSION": "marks the processes of an agent",
    "MLFLOW_DISABLE_TELEMETRY": "kgqa switches it on",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "kgqa lowers it",
}


def find_linked_pages(page: Path) -> set[Path]:
    """Return the pages of this folder tree that a page links to."""
    targets = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_readme_reaches_each_page_in_two_clicks() -> None:
    first = find_linked_pages(README)
    second = {linked for page in first if page.is_file() for linked in find_linked_pages(page)}
    assert [page.name for page in PAGES if page not in first | second] == []


def find_variables() -> set[str]:
    """Return the environment variables that the code names.

    A regular expression, because every process of the tests reads all files here.
    """
    texts = (file.read_text(encoding="utf-8") for file in (ROOT / "kgqa").rglob("*.py"))
    names = {match[1] for text in texts for match in SET_BY_USERS.finditer(text)}
    return names - SET_BY_KGQA.keys()


def test_variables_of_kgqa_are_listed() -> None:
    names = {name for name in find_variables() if name.startswith("KGQA_")}
    assert names - set(VARIABLES) == set()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("KGQA_CAHCE", "KGQA_CACHE"),
        ("KGQA_DATA_DIR", "KGQA_DATA"),
        ("KGQA_CACHE", None),
        ("KGQA_TEST_ES_URL", None),
        ("KGQA_UPDATE_GOLDEN", None),
        ("KGQA_KILLS", None),
        ("KGQA_FUZZ", None),
        ("OTHER_CACHE", None),
    ],
)
def test_misspelled_variable_is_reported(name: str, meant: str | None) -> None:
    warning = f"${name} is not a variable of kgqa. Did you mean {meant}?"
    assert list(find_misspelled([name, "PATH"])) == [warning] * (meant is not None)


@pytest.mark.parametrize("variable", sorted(find_variables()))
def test_environment_variable_is_documented(variable: str) -> None:
    page = (ROOT / "docs/ENVIRONMENT.md").read_text(encoding="utf-8")
    assert f"`{variable}`" in page


@pytest.mark.parametrize("group", ["method", "dataset", "engine", "judge", "reranker", "tracker"])
def test_page_of_choices_is_complete(group: str) -> None:
    page = (ROOT / "docs/CHOICES.md").read_text(encoding="utf-8")
    assert [name for name in config_files(group) if f"`{name}`" not in page] == []


def test_readme_counts_published_tables() -> None:
    ids = list(table_ids())
    # as kgqa reproduce --list counts them, without means of other cells
    tables = [load_table(name) for name in ids]
    cells = sum(not is_mean(table, cell) for table in tables for cell in table.cells)
    text = README.read_text(encoding="utf-8")
    assert f"{len(ids)} tables and figures of ten papers ({cells:,} cells)" in text
    assert len({name.partition("/")[0] for name in ids}) == 10


def test_bibtex_entry_has_the_version_of_citation_file() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    faq = (ROOT / "docs/FAQ.md").read_text(encoding="utf-8")
    assert f"version = {{{citation['version']}}}" in faq


@pytest.mark.slow
@pytest.mark.parametrize("group", group_names())
def test_help_names_user_pages_only(group: str) -> None:
    texts = [explain(group, [f"{group}={name}"]) for name in config_files(group)]
    assert [page for text in texts for page in re.findall(r"docs/dev/\S+", text)] == []


def test_help_says_how_a_model_is_chosen() -> None:
    text = " ".join(explain("run", []).split())
    assert "(default: the best one on this machine)" in text
    assert "smollm2_135m*" not in text
