"""The documentation as a site: what is generated says all that there is, and the whole builds without a broken link."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kgqa.commands import tree
from kgqa.experiment.config.files import groups
from kgqa.experiment.reproduce.reading import table_ids
from scripts.site.pages import OUTSIDE, PAGES, log_entry, on_page_markdown, score

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = re.findall(r"^## (.*)$", (ROOT / "docs" / "LOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)


def slug(heading: str) -> str:
    """As the site's builder makes links of headings."""
    from markdown.extensions.toc import slugify

    return str(slugify(heading, "-"))


def test_the_zoo_has_a_row_for_each_method_data_set_retriever_and_model() -> None:
    page = PAGES["zoo.md"]()
    named = {name for group in ("method", "dataset", "retriever", "model") for name in groups()[group]}
    assert named == set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))


def test_every_score_of_the_zoo_stands_in_the_entry_of_the_log_that_it_names() -> None:
    figures = r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)"
    scored = 0
    for group in ("method", "dataset", "retriever", "model"):
        for name in groups()[group]:
            told, _, link = score(group, name).partition(" ([log](LOG.md#")
            if link:
                scored += 1
                entries = [heading for heading in HEADINGS if slug(heading) == link.removesuffix("))")]
                assert len(entries) == 1, link
                text = log_entry(entries[0].partition(": ")[2])[1]
                assert set(re.findall(figures, told)) <= set(re.findall(figures, text)), (name, told)
            else:
                assert told == "not measured"
    assert scored == 28
    assert score("method", "trace").startswith("HotpotQA 20 / 33, 2Wiki 20 / 20, MuSiQue 40 / 16 (")
    assert score("retriever", "bm25").startswith("HotpotQA 92.0, MuSiQue 65.0, 2Wiki 73.2 (")


def test_the_matrix_has_a_row_for_each_table_and_figure() -> None:
    assert re.findall(r"^\| `(\w+/\w+)`", PAGES["matrix.md"](), flags=re.MULTILINE) == table_ids()


def test_the_reference_has_every_command_and_every_choice() -> None:
    commands, keys = PAGES["reference/commands.md"](), PAGES["reference/keys.md"]()
    assert all(f"## kgqa {name}\n" in commands for name in tree().commands)
    assert all(f"### {group}={name}\n" in keys for group, names in groups().items() for name in names)


def test_what_lies_outside_the_site_is_named_and_not_linked() -> None:
    text = "see [the policy](../SECURITY.md), [it](../conf/a.yaml#l1) and [ours](CACHE.md)"
    shown = on_page_markdown(text, None, None, None)  # type: ignore[arg-type]
    assert shown == "see the policy (`SECURITY.md`), it (`conf/a.yaml`) and [ours](CACHE.md)"
    assert not OUTSIDE.search("[ours](CACHE.md)")


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs-material is not installed")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(ROOT / "scripts/site/mkdocs.yml"), "-d",
         str(tmp_path / "site")],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "site" / "reference" / "keys" / "index.html").is_file()
