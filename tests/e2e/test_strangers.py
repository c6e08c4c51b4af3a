"""Folders and texts of strangers cannot call code, send a key, choose an address or put live HTML into a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgqa.config.building import build
from kgqa.config.user_code import load_run_config
from kgqa.errors import ConfigError, DataError
from kgqa.report.section import Section, markdown
from tests.e2e.conftest import Kgqa
from tests.e2e.judged_runs import JUDGED_BY, answered, refused

WRITES = {"_target_": "kgqa.util.fs.replace_file", "path": "written.txt", "text": "by a stranger"}


def edit_config(folder: Path, **nodes: Any) -> None:
    """Change the configuration of a run's folder, as a stranger can."""
    file = folder / "config.yaml"
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    for group, node in nodes.items():
        config[group] = node if "_target_" in node else {**config[group], **node}
    file.write_text(yaml.safe_dump(config), encoding="utf-8")


def test_run_folder_cannot_call_a_function(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "a", "judge=three_way")
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    for command in [
        ("evaluate", "RUN", "judge=kgp", *JUDGED_BY),
        ("compare", "RUN", "RUN"),
        ("evaluate", "--calibrate", "RUN", "other=kgp", *JUDGED_BY),
        ("cache", "export", "calls.jsonl.zst", "--run", "RUN"),
        ("evaluate", "RUN"),
    ]:
        (folder / "trace.jsonl.zst").unlink() if command == ("evaluate", "RUN") else None
        for group in ("dataset", "engine", "method", "model", "kg"):
            (folder / "config.yaml").write_text(config, encoding="utf-8")
            edit_config(folder, **{group: WRITES})
            ran = kgqa(*(str(folder) if word == "RUN" else word for word in command))
            refused(ran, f"{group}._target_={WRITES['_target_']}: not a class of a {group}")
            assert not Path("written.txt").exists()


def test_inner_target_of_run_folder_is_checked(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    edit_config(folder, model={"prices": WRITES})
    refused(kgqa("evaluate", str(folder)), "model.prices._target_=kgqa.util.fs.replace_file: not a class of a model")


def test_class_of_own_folder_is_refused_unless_conf_names_it(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    Path("mine.py").write_text("import pathlib\npathlib.Path('written.txt').touch()\n", encoding="utf-8")
    edit_config(folder, method={"_target_": "mine.Mine"})
    refused(kgqa("evaluate", str(folder)), "_target_=mine.Mine: not a class of a method")
    assert not Path("written.txt").exists()
    Path("conf/method").mkdir(parents=True)
    Path("conf/method/mine.yaml").write_text("_target_: mine.Mine\n", encoding="utf-8")
    assert kgqa("evaluate", str(folder)).code == 0


@pytest.mark.parametrize("target", ["kgqa.util.fs.replace_file", "kgqa.methods.trace.Trace", "kgqa.errors.ConfigError"])
def test_preset_cannot_build_function_or_class_of_other_group(target: str) -> None:
    with pytest.raises(ConfigError, match=f"engine._target_={target}: not a class of a engine".replace(".", r"\.")):
        build({"_target_": target, "path": "x", "text": "y"}, "engine")


def test_own_function_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_function.py").write_text("def make():\n    raise AssertionError\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"own_function\.make: not a class"):
        build({"_target_": "own_function.make"}, "method")


@pytest.mark.parametrize("command", [("evaluate", "RUN", "judge=kgp"), ("evaluate", "--calibrate", "RUN", "other=kgp")])
def test_judge_takes_no_address_from_run_folder(
    command: tuple[str, ...], kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "correct-horse-battery")
    folder = answered(kgqa, "a", "judge=three_way")
    engine = yaml.safe_load(Path(__file__).parents[2].joinpath("conf/engine/openai.yaml").read_text(encoding="utf-8"))
    edit_config(folder, engine={**engine, "base_url": "http://127.0.0.1:9/v1", "api_key_env": "SECRET_OF_MINE"})
    words = [str(folder) if word == "RUN" else word for word in command]
    refused(kgqa(*words), "which engine runs the judge? Add engine=NAME")
    assert kgqa(*words, *JUDGED_BY).code == 0


def test_judge_takes_no_path_from_run_folder(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    edit_config(folder, model={"path": "/etc/passwd"})
    refused(
        kgqa("evaluate", str(folder), "judge=kgp", *JUDGED_BY),
        "the run's model is not one of your presets. Add model=NAME",
    )


def test_text_of_server_is_not_live_in_markdown() -> None:
    hostile = "<img src=x onerror=alert(1)> [a](http://b) ![c](http://d) [e][f] \n\n[f]: http://g\n# h"
    section = Section("", ("cell",), [(hostile,)], (hostile,), hostile)
    text = markdown(hostile, [section, Section(hostile, (), [])], [hostile])
    assert "<img" not in text
    assert "](" not in text
    assert "![" not in text
    assert "][" not in text
    assert not [line for line in text.splitlines() if line.startswith(("[f]:", "# h"))]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.sampled_from(["dataset", "engine", "method", "model", "kg", "model.prices", "method.few_shot"]),
    package=st.sampled_from(["kgqa", "os", "mine", "builtins"]),
    names=st.lists(
        st.sampled_from(["util", "fs", "replace_file", "system", "errors", "Trace"]), min_size=1, max_size=4
    ),
)
def test_no_other_target_of_run_folder_is_accepted(place: str, package: str, names: list[str], tmp_path: Path) -> None:
    config: dict[str, Any] = {group: {} for group in ("dataset", "engine", "model", "roles", "method", "kg")}
    group, _, inner = place.partition(".")
    node = {"_target_": ".".join([package, *names])}
    config[group] = {inner: node} if inner else node
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with pytest.raises(DataError, match="not a class of a"):
        load_run_config(tmp_path)
