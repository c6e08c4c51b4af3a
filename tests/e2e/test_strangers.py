"""Folders and texts of strangers cannot call code or send a key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import yaml

from kgqa.cli import main as cli
from kgqa.config.building import build
from kgqa.errors import ConfigError
from kgqa.report.section import Section, markdown
from tests.e2e.conftest import QUICK, Kgqa, refused, write_file
from tests.e2e.judged_runs import JUDGED_BY, answered
from tests.unit.test_commands import CONTROL

WRITES = {"_target_": "kgqa.util.fs.replace_file", "path": "written.txt", "text": "by a stranger"}


def edit_config(folder: Path, **nodes: Any) -> None:
    file = folder / "config.yaml"
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    for group, node in nodes.items():
        config[group] = node if "_target_" in node else {**config[group], **node}
    file.write_text(yaml.safe_dump(config), encoding="utf-8")


@pytest.mark.slow
def test_run_folder_cannot_call_a_function(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "a", "judge=three_way")
    other = str(answered(kgqa, "b"))
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    Path("mine.py").write_text(
        "import pathlib\npathlib.Path('written.txt').touch()\n", encoding="utf-8"
    )

    def check(words: tuple[str, ...], message: str, **nodes: Any) -> None:
        (folder / "config.yaml").write_text(config, encoding="utf-8")
        edit_config(folder, **nodes)
        refused(kgqa(*(str(folder) if word == "RUN" else word for word in words)), message)
        assert not Path("written.txt").exists()

    target = WRITES["_target_"]
    for words, group in [
        (("evaluate", "RUN", "judge=kgp", *JUDGED_BY), "dataset"),
        (("compare", "RUN", other), "engine"),
        (("evaluate", "--calibrate", "RUN"), "method"),
        (("cache", "export", "calls.jsonl.zst", "--run", "RUN"), "model"),
        *((("evaluate", "RUN"), group) for group in ("dataset", "engine", "method", "model", "kg")),
    ]:
        check(words, f"{group}._target_={target}: not a class of a {group}", **{group: WRITES})
    check(
        ("evaluate", "RUN"),
        f"model.prices._target_={target}: not a class of a model",
        model={"prices": WRITES},
    )
    check(
        ("evaluate", "RUN"),
        "os.system: not a class of a",
        method={"few_shot": {"_target_": "os.system"}},
    )
    check(
        ("evaluate", "RUN"), "mine.Mine: not a class of a method", method={"_target_": "mine.Mine"}
    )
    write_file("conf/method/mine.yaml", "_target_: mine.Mine\n")
    assert kgqa("evaluate", str(folder)).code == 0  # a class that conf/ names
    (folder / "trace.jsonl.zst").unlink()
    check(("evaluate", "RUN"), f"kg._target_={target}: not a class of a kg", kg=WRITES)


def test_preset_builds_classes_of_its_group_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in (
        "kgqa.util.fs.replace_file",
        "kgqa.methods.trace.Trace",
        "kgqa.errors.ConfigError",
    ):
        with pytest.raises(
            ConfigError, match=rf"engine\._target_={re.escape(target)}: not a class of a engine"
        ):
            build({"_target_": target, "path": "x", "text": "y"}, "engine")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_function.py").write_text(
        "def make():\n    raise AssertionError\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"own_function\.make: not a class"):
        build({"_target_": "own_function.make"}, "method")


def test_judge_takes_no_address_from_run_folder(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "correct-horse-battery")
    folder = answered(kgqa, "a", "judge=three_way")
    engine = yaml.safe_load(
        Path(__file__).parents[2].joinpath("conf/engine/openai.yaml").read_text(encoding="utf-8")
    )
    edit_config(
        folder,
        engine={**engine, "base_url": "http://127.0.0.1:9/v1", "api_key_env": "SECRET_OF_MINE"},
    )
    words = ["evaluate", str(folder), "judge=kgp"]
    refused(kgqa(*words), "which model runs the judge? Add model=NAME and engine=NAME")
    refused(kgqa(*words, "engine=llamacpp"), "Add model=NAME, or server=URL")
    rules = "engine=scripted gives no verdicts. Write them to engine.rules=FILE, or choose a model"
    refused(kgqa(*words, "engine=scripted"), rules)
    local = SimpleNamespace(name="my_model")
    monkeypatch.setattr("kgqa.experiment.evaluate.list_local_models", lambda: [local])
    refused(kgqa(*words), "or server=URL. On this machine: roles.judge=my_model")
    assert kgqa(*words, *JUDGED_BY).code == 0


def test_text_of_server_is_not_live_in_markdown() -> None:
    hostile = (
        "<img src=x onerror=alert(1)> [a](http://b) ![c](http://d) [e][f] \n\n[f]: http://g\n# h"
    )
    section = Section("", ("cell",), [(hostile,)], (hostile,), hostile)
    text = markdown(hostile, [section, Section(hostile, (), [])], [hostile])
    assert "<img" not in text
    assert "](" not in text
    assert "![" not in text
    assert "][" not in text
    assert not [line for line in text.splitlines() if line.startswith(("[f]:", "# h"))]


class Panic(BaseException):
    """As libraries written in Rust raise."""


@pytest.mark.parametrize("error", [KeyError("x"), Panic("index"), OSError(5, "I/O")], ids=repr)
def test_an_unforeseen_error_is_one_line_and_a_file(
    error: BaseException, kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> NoReturn:
        raise error

    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-indeed")
    monkeypatch.setattr(cli, "_run", fails)
    ran = kgqa("run", "tracker.uri=http://me:password@host/", "x=sk-very-secret-indeed")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    (file,) = (tmp_path / "home" / "errors").iterdir()
    assert str(file) in ran.err
    assert file.stat().st_mode & 0o777 == 0o600
    report = file.read_text()
    for part in (
        "Traceback (most recent call last)",
        type(error).__name__,
        "kgqa run tracker.uri=http",
        "Python 3.",
    ):
        assert part in report
    assert not [secret for secret in ("password", "very-secret") if secret in report + ran.err]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert "Its traceback could not be written" in kgqa("runs").err


def test_questions_of_others_are_shown_without_orders(kgqa: Kgqa) -> None:
    hostile = "\x1b[31m \x9b2J \x7f \u202ereversed =1+1 \x07"
    passage = {
        "idx": 0,
        "title": f"Title {hostile}",
        "paragraph_text": f"Ann. {hostile}",
        "is_supporting": True,
    }
    record = {
        "id": f"q{hostile}",
        "question": f"=Who? {hostile}",
        "answer": f"=Ann {hostile}",
        "paragraphs": [passage],
    }
    Path("q.jsonl").write_text(json.dumps(record) + "\n")
    command = ("run", "method=no_context", "dataset=musique", "dataset.path=q.jsonl", *QUICK)
    runs = [kgqa(*command, "output_dir=run"), kgqa(*command, "seed=1", "output_dir=other")]
    runs += [
        kgqa("show", "run"),
        kgqa("show", "run", record["id"]),
        kgqa("runs"),
        kgqa("runs", "--json"),
    ]
    runs += [
        kgqa("compare", "run", "other"),
        kgqa("report", "run"),
        kgqa("show", "run", "q\x1b[31m"),
    ]
    runs += [
        kgqa("run", f"method={hostile}"),
        kgqa("run", f"run_name=\u202e{hostile}", *QUICK),
        kgqa(hostile),
    ]
    assert [each.code for each in runs] == [0] * 8 + [2] * 4
    assert not [each for each in runs if CONTROL.search(each.out + each.err)]
    assert "\\x1b[31m" in runs[3].out
    kgqa("report", "run", "--format", "csv")
    assert ",'=Who? " in Path("run/report.csv").read_text(encoding="utf-8")
