"""Configurations, classes and prompts of one's own: found beside kgqa's, before them, and refused in one line."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kgqa.config import building as parts
from kgqa.config.composing import compose, parse_axes
from kgqa.config.files import config_file, find_sources, groups
from kgqa.config.user_code import find_user_parts, hash_user_code
from kgqa.errors import ConfigError
from kgqa.prompting import render, template_names
from kgqa.system.models import load_preset
from kgqa.util import plugins as places

METHOD = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class {name}:
    depth: int
    uses: ClassVar[frozenset[str]] = frozenset()

    async def answer(self, question):
        ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory of a person's own, of which Python knows nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGQA_CONF", raising=False)
    places.packages.cache_clear()
    yield tmp_path
    places.packages.cache_clear()


def write(file: str, text: str) -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def own_method(name: str, text: str = METHOD.format(name="Mine")) -> None:
    write(f"{name}.py", text)
    write(f"conf/method/{name}.yaml", f"# mine\n_target_: {name}.Mine\ndepth: 3 # tried 1 to 5\n")


def refusal(name: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parts.method(compose([f"method={name}"])["method"])
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.usefixtures("folder")
def test_a_choice_of_ones_own_is_listed_first_composed_and_built() -> None:
    own_method("depths")
    assert groups()["method"][:2] == ["depths", "all_documents"]
    config = compose(["method=depths", "method.depth=4"])
    assert vars(parts.method(config["method"])) == {"depth": 4}
    assert find_sources(config)["method.depth"] == "set on the command line; default: 3 (tried 1 to 5)"
    assert parse_axes(["method=glob(dep*)"])[0].values == ("depths",)


@pytest.mark.usefixtures("folder")
def test_a_choice_of_ones_own_wins_over_ours_and_is_said_to() -> None:
    own_method("golden")
    config = compose(["method=golden"])
    assert config["method"] == {"_target_": "golden.Mine", "depth": 3}
    said = find_user_parts(config)
    assert said
    assert said.choices == {"method=golden": "conf/method/golden.yaml"}
    assert list(said.files) == ["golden.py"]
    assert find_user_parts(compose(["method=trace"])) is None


def test_an_installed_package_declares_components(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "site"
    monkeypatch.syspath_prepend(str(site))
    point = EntryPoint("lab", "lab_of_tests", places.ENTRY_POINTS)
    monkeypatch.setattr(places, "entry_points", lambda group: [point])
    with pytest.raises(ConfigError, match=r"lab = lab_of_tests: no such package\. Reinstall"):
        groups()
    write("site/lab_of_tests/__init__.py", "")
    write("site/lab_of_tests/walks.py", METHOD.format(name="Walk"))
    write("site/lab_of_tests/conf/method/walk.yaml", "_target_: lab_of_tests.walks.Walk\ndepth: 1 # ours\n")
    write("site/lab_of_tests/prompts/walk/step.j2", "{% block user %}Step{% endblock %}")
    importlib.invalidate_caches()
    config = compose(["method=walk"])
    assert vars(parts.method(config["method"])) == {"depth": 1}
    assert "walk/step" in template_names()
    assert [Path(file).name for file in hash_user_code(config)] == ["__init__.py", "step.j2", "walks.py"]
    write("conf/method/walk.yaml", "_target_: lab_of_tests.walks.Walk\ndepth: 2 # mine\n")
    assert config_file("method", "walk") == Path("conf/method/walk.yaml")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("broken", "class Mine\n", "broken.py:1: expected ':'"),
        ("lacking", "import no_such_library\n", "lacking.py:1: No module named 'no_such_library'"),
        ("failing", "\n\nx = y\n", "failing.py:3: NameError: name 'y' is not defined"),
        ("other", "class Yours: ...\n", "has no attribute 'Mine'"),
        ("lazy", METHOD.format(name="Mine").replace("depth", "length"), "unknown key. Did you mean length?"),
        ("typed", METHOD.format(name="Mine").replace("depth: int", "depth: 'Depth'"), "name 'Depth' is not defined"),
        (
            "no_method",
            METHOD.format(name="Mine").replace("answer", "reply"),
            "method._target_=no_method.Mine: not a method: missing answer",
        ),
    ],
)
def test_what_is_wrong_with_ones_own_module_is_one_line(name: str, text: str, said: str) -> None:
    own_method(name, text)
    assert said in refusal(name)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("os.system", r"no module 'os' in .* Only these and kgqa's own are imported"),
        ("subprocess.run", r"no module 'subprocess' in .* Only these and kgqa's own are imported"),
        ("print", r"Write MODULE\.CLASS\. Only your modules and kgqa's are imported"),
        (".x", r"Write MODULE\.CLASS\. Only your modules and kgqa's are imported"),
    ],
)
def test_nothing_else_that_is_installed_can_be_built(target: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parts.method({"_target_": target})
    write("json.py", "loads = print\n")
    with pytest.raises(ConfigError, match="Rename your module"):
        parts.method({"_target_": "json.loads"})


@pytest.mark.usefixtures("folder")
def test_templates_of_ones_own_are_found_by_name_and_errors_name_file_and_line() -> None:
    write("prompts/mine/ask.j2", "{% block user %}Who built {{ what }}?{% endblock %}")
    assert render("mine/ask", what="it").messages[0].content == "Who built it?"
    with pytest.raises(ConfigError, match=r"mine/aks.j2: no such template in prompts, nor among kgqa's\. .*mine/ask"):
        render("mine/aks")
    write("prompts/mine/bad.j2", "{% block user %}\n{{ what }\n{% endblock %}")
    with pytest.raises(ConfigError, match=r"^prompts/mine/bad.j2:2: "):
        render("mine/bad")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("choice", "text", "said"),
    [
        ("method", "_target_: [1\n", r"conf/method/mine.yaml:2: expected ',' or '\]'"),
        ("method", "depth: 1\n", "conf/method/mine.yaml: no key _target_"),
        ("method", "", "conf/method/mine.yaml: no key _target_"),
        ("dataset", "_target_: mine.Mine\nname: mine\n", "conf/dataset/mine.yaml: no key profile"),
        ("model", "rate: 1\n", "conf/model/mine.yaml: model.rate=1: unknown key"),
        ("model", "defaults: [mine, _self_]\n", "model=mine: a file names itself in its defaults"),
    ],
)
def test_a_file_that_is_no_component_is_named(choice: str, text: str, said: str) -> None:
    write(f"conf/{choice}/mine.yaml", text)
    with pytest.raises(ConfigError, match=f"(?m)\\A[^\n]*{said}[^\n]*\\Z"):
        compose([f"{choice}=mine"])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "differs"),
    [
        ("hub: a/b\n", {"hub": "a/b"}),
        ("hub: a/b\ncontext: 512\nname: short\n", {"hub": "a/b", "context": 512, "name": "short"}),
        ("defaults: [t5_large, _self_]\nhub: a/b\n", {"hub": "a/b", "like": "t5_large"}),
        ("defaults:\n  - t5_large\n  - _self_\nhub: a/b\n", {"hub": "a/b", "like": "t5_large"}),
    ],
)
def test_model_needs_few_keys_in_run_and_lists(text: str, differs: dict[str, Any]) -> None:
    write("conf/model/mine.yaml", text)
    base = vars(load_preset(differs.pop("like")).model) if "like" in differs else {"thinking": "off", "context": 32768}
    expected = {**base, "name": "mine", **differs}
    model = vars(load_preset("mine").model)
    assert {key: model[key] for key in expected} == expected
    assert parts.model(compose(["model=mine"])["model"]) == load_preset("mine").model
    assert parts.model(compose(["model=mine", "model.path=x", "model.name=y"])["model"]).name == "y"
