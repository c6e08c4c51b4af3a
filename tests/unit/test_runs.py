"""Runs are found again: by the beginning of a name, as "last", and soon among thousands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kgqa.artifacts.run import find_run, list_runs, list_sweeps
from kgqa.cli.main import main
from kgqa.errors import ConfigError

FINISHED = Path(__file__).parents[1] / "golden" / "artefacts" / "trace" / "metrics.json"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(name: str, written: int, *files: str) -> Path:
    """A run of that name, written at that time; what it does not say of itself is none of our business."""
    folder = Path("outputs") / name
    folder.mkdir(parents=True)
    for file in files or ("identity.json", "metrics.json"):
        text = FINISHED.read_text(encoding="utf-8") if file == "metrics.json" else "{}"
        (folder / file).write_text(text, encoding="utf-8")
        os.utime(folder / file, (written, written))
    return folder


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        find_run(text)
    return str(refused.value)


def test_a_run_is_found_by_its_path_or_the_beginning_of_its_name() -> None:
    first = run("demo/trace/small/beeb5e9d", 1)
    run("demo/golden/small/be000000", 2)
    for text in (str(first), f"{first}/", "beeb5e9d", "bee", "trace/small/b", "trace", "demo/tr", "outputs/demo/trace"):
        assert find_run(text) == first
    for number in range(7):
        run(f"demo/trace/small/ce00000{number}", number)
    said = "demo/trace/small/ce000006, demo/trace/small/ce000005"
    assert refusal("ce").startswith(f"ce: matches several runs: {said}")
    assert refusal("ce").endswith("and 2 more. Add more of the name.")
    run("demo/trace/small/ce", 9)  # by name=ce
    assert find_run("ce").name == "ce"


def test_last_is_the_run_that_ended_last() -> None:
    assert "no finished run in outputs/" in refusal("last")
    older = run("demo/trace/small/a", 1)
    newer = run("demo/trace/small/b", 2)
    begun = run("demo/trace/small/c", 3, "identity.json")
    assert find_run("last") == newer
    os.utime(older / "metrics.json", (5, 5))
    assert find_run("last") == older
    assert [each.folder for each in list_runs()] == [older, begun, newer]
    assert [each.ended for each in list_runs()] == [True, False, True]


def test_sweeps_and_other_folders() -> None:
    run("demo/trace/small/a", 1)
    sweep = run("sweeps/beams", 2, "sweep.json", "report.html")
    run("index/demo/bm25/0f0f0f", 1, "manifest.json")
    run(".cache/x/y/z", 1)
    assert find_run("beams", sweeps=True) == find_run("sweeps/b", sweeps=True) == find_run("last", sweeps=True) == sweep
    assert "beams: no finished run matches" in refusal("beams")
    assert [each.name for each in list_sweeps()] == ["sweeps/beams"]
    assert [each.name for each in list_runs()] == ["demo/trace/small/a"]
    assert "List runs: kgqa runs" in refusal("0f")


def test_runs_lists_what_is_asked_for_the_last_one_first(capsys: pytest.CaptureFixture[str]) -> None:
    run("demo/trace/small/a", 86_400)
    run("demo/golden/small/b", 10 * 86_400)
    run("musique/trace/large/c", 20 * 86_400, "identity.json")

    def listed(*words: str) -> list[str]:
        assert main(["runs", *words]) == 0
        return capsys.readouterr().out.splitlines()

    everything = listed()
    names = [line.split()[2] for line in everything[1:]]
    assert names == ["musique/trace/large/c", "demo/golden/small/b", "demo/trace/small/a"]
    assert "not finished" in everything[1]
    assert (len(listed("method=trace", "dataset=demo")), len(listed("tr"))) == (2, 3)
    assert listed("--limit", "1")[-1] == "1 of 3. All: --limit 3"
    assert "no such runs" in listed("model=huge")[0]
    read = json.loads("".join(listed("--json", "model=small")))
    assert [each["folder"] for each in read] == ["outputs/demo/golden/small/b", "outputs/demo/trace/small/a"]
    assert read[0]["questions"] == json.loads(FINISHED.read_text(encoding="utf-8"))["questions"]
    assert json.loads("".join(listed("--json", "musique")))[0]["em"] is None


def test_filters_and_ambiguous_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (("--limit 0", "at least 1"), ("methods=x", "Did you mean method")):
        assert main(["runs", *words.split()]) == 2
        assert said in capsys.readouterr().err
    run("demo/trace/small/ab", 1)
    run("demo/trace/small/ac", 2)
    for command in ("show", "report", "report --format trec --out o", "evaluate", "compare last"):
        assert main([*command.split(), "a"]) == 2
        said = "kgqa: a: matches several runs: demo/trace/small/ac, demo/trace/small/ab. Add more of the name.\n"
        assert capsys.readouterr().err == said
