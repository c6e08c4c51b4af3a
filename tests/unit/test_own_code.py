"""Your configurations, classes and prompts: found before kgqa's and hashed. Unknown keys and API keys are refused."""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kgqa.cli.main import main
from kgqa.config import building as parts
from kgqa.config.building import build
from kgqa.config.composing import compose, parse_axes
from kgqa.config.files import describe_choice, groups
from kgqa.config.keys import find_sources
from kgqa.config.scaffolding import find_unused_templates
from kgqa.config.settings import read_settings
from kgqa.config.user_code import find_user_parts, hash_user_code
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError, UsageError
from kgqa.identity.program_code import program_hash, user_code
from kgqa.prompting import find_missing_values, find_unsent_text, render
from kgqa.system.models import list_presets
from kgqa.util.plugins import import_code, import_member
from tests.unit.files import refusal, write

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
pytestmark = pytest.mark.usefixtures("own_folder")


def own_method(name: str, text: str = METHOD.format(name="Mine")) -> None:
    write(f"{name}.py", text)
    write(
        f"conf/method/{name}.yaml",
        f"# mine\n_target_: {name}.Mine\ndepth: 3\norigins:\n  ours: {{depth: tried 1 to 5}}\n",
    )


def test_own_choice_wins_over_the_built_in_one() -> None:
    own_method("depths")
    assert groups()["method"][:2] == ["depths", "all_documents"]
    config = compose(["method=depths", "method.depth=4"])
    assert vars(parts.method(config["method"])) == {"depth": 4}
    assert (
        find_sources(config)["method.depth"]
        == "set on the command line; default: 3 (not in the paper; tried 1 to 5)"
    )
    assert parse_axes(["method=glob(dep*)"])[0].values == ("depths",)
    own_method("golden")
    config = compose(["method=golden"])
    assert config["method"] == {"_target_": "golden.Mine", "depth": 3}
    own = find_user_parts(config)
    assert own
    assert (own.choices, list(own.files)) == (
        {"method=golden": "conf/method/golden.yaml"},
        ["golden.py"],
    )
    assert find_user_parts(compose(["method=trace"])) is None


MINE = METHOD.format(name="Mine")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param(
            "no_colon", "class Mine\n", "no_colon.py:1: syntax error: expected ':'", id="no colon"
        ),
        pytest.param(
            "lacking",
            "import no_such_library\n",
            "lacking.py:1: No module named 'no_such_library'",
            id="lacking",
        ),
        pytest.param(
            "failing",
            "\n\nx = y\n",
            "failing.py:3: NameError: name 'y' is not defined",
            id="failing",
        ),
        pytest.param(
            "other", "class Main: ...\n", "other has no 'Mine'. Did you mean Main?", id="other"
        ),
        pytest.param(
            "lazy",
            MINE.replace("depth", "length"),
            "unknown key. Choose from: method.length.",
            id="lazy",
        ),
        pytest.param(
            "typed",
            MINE.replace("depth: int", "depth: 'Depth'"),
            "name 'Depth' is not defined",
            id="typed",
        ),
        pytest.param(
            "no_method",
            MINE.replace("answer", "reply"),
            "method._target_=no_method.Mine: not a method: missing answer",
            id="no_method",
        ),
    ],
)
def test_error_of_an_own_module_is_one_line(name: str, text: str, message: str) -> None:
    own_method(name, text)
    assert message in refusal(
        lambda name: parts.method(compose([f"method={name}"])["method"]), name
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("from kgqa.scoring.normalisation import normalize", "kgqa.scoring.normalization?"),
        (
            "from kgqa.artifacts.verdicts import Vot",
            "'kgqa.artifacts.verdicts'). Did you mean Vote?",
        ),
        ("from kgqa.scoring import normalisation", "Did you mean normalization?"),
        ("import near_healper", "Did you mean near_helper?"),
        ("from near_helper import shortn", "'near_helper'). Did you mean shorten?"),
    ],
    ids=["module", "class", "module of a package", "own module", "own function"],
)
def test_wrong_import_names_the_near_name(line: str, message: str) -> None:
    write("near_helper.py", "def shorten(): ...\n")
    write("caller.py", f"{line}\n")
    with pytest.raises(ConfigError, match=f"caller.py:1: .*{re.escape(message)}$"):
        import_code("caller")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("brief.breif", "brief has no 'breif'. Did you mean brief?"),
        ("breif.brief", "no module 'breif' in "),
        ("breif.brief", ". Did you mean brief?"),
    ],
    ids=["function", "module", "hint"],
)
def test_wrong_target_names_the_near_name(target: str, message: str) -> None:
    write("brief.py", "def brief(question, answer): ...\n")
    with pytest.raises(ConfigError, match=re.escape(message)):
        import_member(target)


@pytest.mark.parametrize(
    ("name", "words"),
    [("plain_default", ""), ("plain_set", "method.depth=4")],
    ids=["default", "set"],
)
def test_settings_of_a_plain_class_are_an_error(name: str, words: str) -> None:
    own_method(name, MINE.replace("@dataclass(frozen=True)\n", ""))
    with pytest.raises(ConfigError, match=rf"{name}\.Mine has the settings depth, but is no data"):
        parts.method(compose([f"method={name}", *words.split()])["method"])


def test_missing_default_of_a_file_is_named() -> None:
    write("conf/method/variant.yaml", "defaults: [ircto, _self_]\n")
    message = "conf/method/variant.yaml: defaults: no such method: ircto. Did you mean ircot?"
    assert message in refusal(lambda: compose(["method=variant"]))


def test_class_without_settings_needs_no_dataclass() -> None:
    text = MINE.replace("@dataclass(frozen=True)\n", "").replace("    depth: int\n", "")
    write("bare_class.py", text)
    write("conf/method/bare_class.yaml", "_target_: bare_class.Mine\n")
    assert parts.method(compose(["method=bare_class"])["method"]).uses == frozenset()


@pytest.mark.parametrize(
    "field", ["model: object", "model: object = None", ""], ids=["needed", "default", "none"]
)
def test_engine_file_needs_only_its_class(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "echo", raising=False)
    importlib.invalidate_caches()
    members = (
        "streaming = estimates_tokens = batch_size = render = count_tokens = close = answer = None"
    )
    text = f"from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Echo:\n    {field}\n    {members}\n"
    write("echo.py", text)
    write("conf/engine/echo.yaml", "_target_: echo.Echo\n")
    config = compose(["method=no_context", "dataset=demo", "engine=echo"])
    assert type(parts.engine(config["engine"], config["model"])).__name__ == "Echo"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        pytest.param(
            "os.system",
            r"no module 'os' in .* Only these and kgqa's own are imported",
            id="os.system",
        ),
        pytest.param(
            "print", r"Write MODULE\.CLASS\. Only your modules and kgqa's are imported", id="print"
        ),
        pytest.param("json.loads", "Rename your module", id="json.loads"),
    ],
)
def test_nothing_else_that_is_installed_can_be_built(target: str, message: str) -> None:
    write("json.py", "loads = print\n")
    with pytest.raises(ConfigError, match=message):
        parts.method({"_target_": target})


def test_own_templates_load_by_name() -> None:
    write("prompts/mine/ask.j2", "{% block user %}Who built {{ what }}?{% endblock %}")
    assert render("mine/ask", what="it").messages[0].content == "Who built it?"
    with pytest.raises(
        ConfigError,
        match=r"mine/aks.j2: no such template in prompts, nor among kgqa's\. .*mine/ask",
    ):
        render("mine/aks")
    write("prompts/mine/bad.j2", "{% block user %}\n{{ what }\n{% endblock %}")
    with pytest.raises(ConfigError, match=r"^prompts/mine/bad.j2:2: "):
        render("mine/bad")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "{% for each in texts %}{{ each }}",
            "{% for %} is not closed. Add {% endfor %}",
            id="not closed",
        ),
        pytest.param(
            "{% block user %}{{ question.txt }}{% endblock %}",
            "no value .txt of a text. Write the name of the text alone, e.g. {{ question }}",
            id="attribute",
        ),
    ],
)
def test_error_in_an_own_template_is_plain(text: str, message: str) -> None:
    write("prompts/mine/bad.j2", text)
    with pytest.raises(ConfigError) as error:
        render("mine/bad", question="Who?", texts=[])
    assert str(error.value) == f"prompts/mine/bad.j2:1: {message}"


def test_prompt_that_is_added_later_is_used() -> None:
    values = {"question": "Who?", "context": ""}
    shipped = render("reader/answer", **values)
    write("prompts/reader/answer.j2", "{% block user %}Mine{% endblock %}")
    assert render("reader/answer", **values).messages[0].content == "Mine"
    Path("prompts/reader/answer.j2").unlink()
    assert render("reader/answer", **values) == shipped


def test_template_needs_a_block_for_a_message() -> None:
    write("prompts/reader/answer.j2", "Question: {{ question }}")
    with pytest.raises(
        ConfigError,
        match=r"^prompts/reader/answer\.j2: no \{% block user %\}\. Write the prompt between",
    ):
        render("reader/answer", question="Who?")


@pytest.mark.parametrize(
    ("name", "text", "missing"),
    [
        pytest.param("reader/answer", "Answer this.", ["context", "question"], id="no input"),
        pytest.param("reader/answer", "Q: {{ question }}", ["context"], id="no context"),
        pytest.param("reader/answer", "{% include 'mine/start.j2' %}", None, id="include"),
        pytest.param("reader/answer", "{{ question", None, id="broken"),
        pytest.param("corag/sub_answer", "{{ documents }}", ["query"], id="no query"),
        pytest.param(
            "trace/select_released",
            "{{ question }} {{ options }}",
            ["examples", "may_stop", "so_far", "unit"],
            id="several",
        ),
        pytest.param("judge/kgp", "{{ question }} {{ golds }}", ["answer"], id="judge"),
        pytest.param("mine/verdict", "{{ question }}", ["answer", "golds"], id="own judge"),
        pytest.param("mine/ask", "Answer this.", None, id="own"),
    ],
)
def test_values_that_a_prompt_lacks_are_named(
    name: str, text: str, missing: list[str] | None
) -> None:
    file = write(f"prompts/{name}.j2", f"{{% block user %}}{text}{{% endblock %}}")
    needs = {"mine/verdict": ("question", "answer", "golds")}
    assert find_missing_values(needs) == ({file: missing} if missing else {})


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        pytest.param("{% block user %}Answer.{% endblock %}\n\nUse one word.\nOr two.", "Use one word.", id="text"),
        pytest.param("{% block user %}Answer.{% endblock %}{{ question }}", "{{ … }}", id="value"),
        pytest.param("Now: {% block completion %}Answer.{% endblock %}", "Now:", id="completion"),
        pytest.param("{# a note #}\n{% block user %}Answer.{% endblock %}\n", None, id="comment"),
        pytest.param("A part that others include.", None, id="included part"),
        pytest.param("{% block user %}Answer.{% endblock", None, id="broken"),
    ],
)  # fmt: skip
def test_text_outside_of_blocks_is_named(text: str, outside: str | None) -> None:
    file = write("prompts/reader/answer.j2", text)
    block = "completion" if "completion" in text else "user"
    assert find_unsent_text() == ({file: (outside, block)} if outside else {})


@pytest.mark.parametrize(
    ("name", "code", "hint"),
    [
        pytest.param("reader/answr.j2", "", "Did you mean reader/answer?", id="misspelled"),
        pytest.param("reader/answer.txt", "", "Rename it to answer.j2", id="suffix"),
        pytest.param("reader/notes.txt", "", None, id="note"),
        pytest.param("reader/mine.j2", "render('reader/mine')", None, id="own method"),
        pytest.param("mine/ask.j2", "", None, id="own folder"),
    ],
)
def test_template_without_use_is_named(name: str, code: str, hint: str | None) -> None:
    file = write(f"prompts/{name}", "{% block user %}{{ question }}{% endblock %}")
    write("mine.py", code)
    assert find_unused_templates() == ({file: hint} if hint else {})


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("answer.j2", "prompts/reader/answer.j2 does not use context, question"),
        ("answr.j2", "prompts/reader/answr.j2: no method renders this template. Did you mean"),
    ],
    ids=["no question", "misspelled"],
)
def test_run_warns_of_prompts(capsys: pytest.CaptureFixture[str], name: str, warning: str) -> None:
    write(f"prompts/reader/{name}", "{% block user %}Answer this.{% endblock %}")
    words = ("method=golden", "dataset=demo", "limit=1", "engine=scripted")
    assert main(["run", *words]) == 0
    assert capsys.readouterr().out.count(f"warning: {warning}") == 1


def test_render_edited_template() -> None:
    texts = []
    for template in ("{{ shown }} {{ text }}", "another {{ shown }}"):
        file = write("prompts/once/ask.j2", f"{{% block completion %}}{template}{{% endblock %}}")
        os.utime(file, (len(template), len(template)))
        texts.append(render("once/ask", shown="x", text="y").messages[0].content)
    assert texts == ["x y", "another x"]


@pytest.mark.parametrize(
    ("choice", "text", "message"),
    [
        pytest.param(
            "method",
            "_target_: [1\n",
            r"conf/method/mine.yaml:2: expected ',' or '\]'",
            id="open list",
        ),
        pytest.param(
            "method", "depth: 1\n", "conf/method/mine.yaml: no key _target_", id="no class"
        ),
        pytest.param(
            "dataset",
            "_target_: mine.Mine\nname: mine\n",
            "conf/dataset/mine.yaml: no key profile",
            id="no profile",
        ),
        pytest.param(
            "model",
            "rate: 1\n",
            "conf/model/mine.yaml: model.rate=1: unknown key",
            id="unknown key",
        ),
        pytest.param(
            "model",
            "defaults: [mine, _self_]\n",
            "model=mine: a file names itself in its defaults",
            id="own defaults",
        ),
    ],
)
def test_file_without_a_component_is_reported(choice: str, text: str, message: str) -> None:
    write(f"conf/{choice}/mine.yaml", text)
    with pytest.raises(ConfigError, match=f"(?m)\\A[^\n]*{message}[^\n]*\\Z"):
        compose([f"{choice}=mine"])


def find_model(name: str) -> Model:
    return next(preset.model for preset in list_presets() if preset.name == name)


def test_model_needs_few_keys_in_run_and_lists() -> None:
    for text, expected in [
        (
            "hub: a/b\ncontext: 512\nname: short\n",
            {"thinking": "off", "context": 512, "name": "short"},
        ),
        (
            "defaults:\n  - t5_large\n  - _self_\nhub: a/b\n",
            vars(find_model("t5_large")) | {"name": "mine"},
        ),
    ]:
        write("conf/model/mine.yaml", text)
        model = find_model("mine")
        assert vars(model).items() >= {**expected, "hub": "a/b"}.items()
        assert parts.model(compose(["model=mine"])["model"]) == model
    assert parts.model(compose(["model=mine", "model.path=x", "model.name=y"])["model"]).name == "y"


HASHED = '''from dataclasses import dataclass
from {steps} import first

@dataclass(frozen=True)
class Own:
    depth: int

    def answer(self, text: str) -> str:
        """One."""
        return first(text)  # the first
'''
STEPS = "def first(text: str) -> str:\n    return text[:1]\n"


def hashed(method: str = HASHED, steps: str = STEPS, depth: int = 1) -> str:
    write("hashed_method.py", method.format(steps="hashed_steps"))
    write("hashed_steps.py", steps)
    importlib.invalidate_caches()
    for name in ("hashed_method", "hashed_steps"):
        sys.modules.pop(name, None)
    return program_hash(import_code("hashed_method").Own(depth))


def test_hash_changes_with_code_and_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    plain = hashed()
    assert hashed(HASHED.replace("  # the first", "")) == plain
    assert hashed(HASHED.replace('"""One."""', '"""Another word on it."""')) == plain
    assert hashed(HASHED.replace("first(text)", "first(\n            text,\n        )")) == plain
    others = [
        hashed(), hashed( HASHED.replace("return first(text)", "return first(text) or text")),
        hashed(steps=STEPS.replace("[:1]", "[:2]")), hashed(depth=2),
    ]  # fmt: skip
    assert len(set(others)) == len(others)

    def shipped(method: str, *overrides: str) -> str:
        return program_hash(build(compose([f"method={method}", *overrides])["method"], "method"))

    plain = shipped("trace")
    # the same ones by another name
    assert shipped("trace", "method.few_shot.path=trace_chains_musique.jsonl") == plain
    assert shipped("trace", "method.few_shot.path=2wiki") != plain
    # kgp names this template with an f-string
    edited = {"trace": "trace/select", "kgp": "kgp/evidence_t5"}
    monkeypatch.setattr(
        "kgqa.identity.program_code.template_hash",
        lambda name: "changed" if name in edited.values() else "as it was",
    )
    changed = {method: shipped(method) for method in (*edited, "golden")}
    monkeypatch.setattr("kgqa.identity.program_code.template_hash", lambda name: "as it was")
    assert [method for method in changed if changed[method] != shipped(method)] == ["trace", "kgp"]


READERS = {
    "file": 'Path("words.txt").read_text()',
    "module": 'Path(__file__).with_name("words.txt").read_text()',
    "folder": '(Path(__file__).parent / "lists" / "words.txt").read_text()',
    "join": 'Path(os.path.join(HERE, "lists", "words.txt")).read_text()',
    "composed": 'Path("words" + ".txt").read_text()',
    "listed": '[file.read_text() for file in sorted(Path("lists").iterdir())]',
    "later": 'None\n\ndef read():\n    return Path("lists/words.txt").read_text()',
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_file_that_own_method_reads_is_hashed(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    text = f"import os\nfrom pathlib import Path\nHERE = os.path.dirname(os.path.abspath(__file__))\nWORDS = {reader}\n"
    hashes = []
    for words in ("one", "two"):
        for name in ("words.txt", "lists/words.txt"):
            write(name, words)
        hashes.append(
            (hashed(text + HASHED), hash_user_code({"method": {"_target_": "hashed_method.Own"}}))
        )
    (first, files), (second, others) = hashes
    assert first != second
    assert [name for name in files if files[name] != others[name] and name.endswith("words.txt")]


KEYS = {
    "openai": "sk-proj-4fKq0ZBvR7mN2xW8yT1cL5hJ", "anthropic": "sk-ant-api03-4fKq0ZBvR7mN2xW8yT1cL5hJ",
    "hugging face": "hf_" + "aB3" * 12, "github": "ghp_" + "aB3" * 12, "groq": "gsk_" + "aB3" * 12,
    "google": "AIza" + "aB3-_" * 7, "aws": "AKIA" + "ABC7" * 4, "bearer": "Bearer abcdefghij0123456789",
}  # fmt: skip
NO_KEYS = (
    "data/task-1234567890123456789012.jsonl", "sk-learn", "hf_tokenizer", "outputs/disk-2/run-1234567890abcdef1234",
)  # fmt: skip


@pytest.mark.parametrize(
    ("override", "message"),
    [
        pytest.param("+limitt=3", "limitt=3: unknown key. Did you mean limit", id="+limitt=3"),
        pytest.param(
            "+retreiver.k1=3",
            "retreiver: unknown key. Did you mean retriever",
            id="+retreiver.k1=3",
        ),
        pytest.param(
            "+kg.require_exist=true",
            "kg.require_exist=True: unknown key. Did you mean kg.require_existing",
            id="+kg.require_exist=true",
        ),
        pytest.param("+reranker.a=1", "reranker: no preset is chosen", id="+reranker.a=1"),
        pytest.param(
            "+retriever.k2=1",
            "retriever.k2=1: unknown key. Choose from: retriever.fields",
            id="+retriever.k2=1",
        ),
        pytest.param(
            "+hydra.foo=1", "works only with kgqa run -m and kgqa reproduce", id="+hydra.foo=1"
        ),
    ],
)
def test_unknown_key_with_plus_is_rejected(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        compose(["method=no_context", override])


def test_valid_key_with_plus_is_accepted() -> None:
    assert compose(["+limit=3", "++dataset.verified=null"])["limit"] == 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param("limitt: 3", "limitt=3: unknown key. Did you mean limit", id="limitt 3"),
        pytest.param(
            "method: trace",
            "method: trace: choose it under defaults: - override /method: trace",
            id="method trace",
        ),
        pytest.param(
            "method: {baem: 3}",
            "method.baem=3: unknown key. Did you mean method.beam",
            id="method baem 3",
        ),
        pytest.param("sweep: {name: x}", "sweep: unknown key", id="sweep name x"),
        pytest.param("hydra: {launcher: {n_jobs: 2}}", "hydra: ", id="hydra launcher n_jobs 2"),
    ],
)
def test_unknown_key_in_preset_is_rejected(lines: str, message: str) -> None:
    write("conf/experiment/mine.yaml", f"# @package _global_\n{lines}\n")
    with pytest.raises(ConfigError, match=re.escape(f"conf/experiment/mine.yaml: {message}")):
        compose(["experiment=mine"])


@pytest.mark.parametrize("name", KEYS)
def test_api_key_as_value_is_rejected_and_not_repeated(name: str) -> None:
    with pytest.raises(ConfigError, match=r"looks like an API key") as error:
        compose([f"+openai_api_key='{KEYS[name]}'"])
    assert KEYS[name] not in str(error.value)


@pytest.mark.parametrize(
    "overrides",
    [["run_nam='{}'"], ["experiment=mine", "engine=openai"]],
    ids=["unknown key", "file"],
)
def test_api_key_in_other_places_is_rejected(overrides: list[str]) -> None:
    key = KEYS["openai"]
    write(
        "conf/experiment/mine.yaml",
        f"# @package _global_\nengine: {{extra_body: {{user: '{key}'}}}}\n",
    )
    with pytest.raises(ConfigError, match=r"looks like an API key") as error:
        compose([override.format(key) for override in overrides])
    assert key not in str(error.value)


def test_values_like_keys_are_accepted() -> None:
    extra = ", ".join(f"k{n}: {value!r}" for n, value in enumerate(NO_KEYS))
    config = compose([f"+engine.extra_body={{{extra}}}", "engine=openai"])
    assert tuple(config["engine"]["extra_body"].values()) == NO_KEYS


BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


def test_unusable_folders_and_files_are_reported() -> None:
    file = write("conf/experiment/mine.yaml", "# @package _global_\nlimit: 2\n")
    composed = compose(["experiment=mine"])
    assert composed["limit"] == 2
    for content, message in [
        (BOMB.encode(), "conf/experiment/mine.yaml: 72 aliases (*name), the maximum is 20"),
        ("limit: 3 # é\n".encode("utf-16"), "conf/experiment/mine.yaml: not UTF-8"),
        (b"limit: 2\n", "mine.yaml: its keys have no effect. Put '# @package _global_'"),
    ]:
        file.write_bytes(content)
        with pytest.raises(UsageError, match=re.escape(message)):
            compose(["experiment=mine"])
    for folder in ("/", "/tmp/..", str(Path.home())):
        with pytest.raises(ConfigError, match="a run needs its own folder"):
            read_settings({**composed, "output_dir": folder})


ONE_FILE = """
from dataclasses import dataclass
from typing import Annotated, ClassVar

from kgqa.protocols import Method
from kgqa.util.settings import Setting


@dataclass(frozen=True)
class StepBack(Method):
    depth: Annotated[int, Setting("Number of steps.", ours="a guess")] = 3
    uses: ClassVar[frozenset[str]] = frozenset({"model"})

    async def answer(self, question):
        ...
"""


def test_component_of_one_file_loads_by_name() -> None:
    write("step_back.py", f'"""Step back (ours). Needs model."""\n{ONE_FILE}')
    assert describe_choice("method", "step_back") == "Step back (ours). Needs model."
    config = compose(["method=step_back", "method.depth=5"])
    assert config["method"] == {"_target_": "step_back.StepBack", "depth": 5}
    assert (
        find_sources(config)["method.depth"]
        == "set on the command line; default: 3 (not in the paper; a guess)"
    )


def test_key_of_a_method_without_settings_names_the_method() -> None:
    write("plain.py", ONE_FILE.replace("StepBack", "Plain").replace("    depth:", "    # depth:"))
    message = "method.depth=5: unknown key. method=plain has no settings."
    with pytest.raises(ConfigError, match=re.escape(message)):
        compose(["method=plain", "method.depth=5"])


def test_yaml_of_the_same_name_comes_first() -> None:
    write("look_back.py", ONE_FILE.replace("StepBack", "LookBack"))
    assert compose(["method=look_back"])["method"]["depth"] == 3
    write("conf/method/look_back.yaml", "_target_: look_back.LookBack\ndepth: 9\n")
    assert compose(["method=look_back"])["method"]["depth"] == 9


def test_file_that_cannot_be_read_is_no_component() -> None:
    os.mkfifo("pipe.py")
    write("other.py", "class Another(Method):\n    pass\n")
    assert not {"pipe", "other"} & set(groups()["method"])


def test_threads_parse_code_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser of Python 3.11.4 to 3.11.8 fails when two threads use it (python/cpython#106905)."""
    parse, meeting, met = ast.parse, threading.Barrier(2), list[int]()

    def parse_together(source: bytes) -> ast.Module:
        with suppress(threading.BrokenBarrierError):
            met.append(meeting.wait(timeout=0.2))
        return parse(source)

    for number in range(2):
        write(f"method_{number}.py", METHOD.format(name="Mine") + f"\n\nDEPTH = {number}")
    with ThreadPoolExecutor(2) as pool, monkeypatch.context() as patch:
        patch.setattr(ast, "parse", parse_together)
        hashes = list(pool.map(user_code, ["method_0", "method_1"]))
    assert len(set(hashes)) == 2
    assert not met


@pytest.mark.parametrize(
    ("prompt", "is_used"),
    [("reader/answer", False), ("mine/verdict", True)],
    ids=["copy of kgqa's", "own"],
)
def test_own_code_has_the_prompts_it_can_name(prompt: str, *, is_used: bool) -> None:
    write("strict.py", METHOD.format(name="Strict"))
    before = user_code("strict")
    write(f"prompts/{prompt}.j2", "{% block user %}Mine{% endblock %}")
    assert (user_code("strict") != before) is is_used


def test_imported_method_brings_its_prompts() -> None:
    write("near.py", "from kgqa.methods import trace\n")
    before = user_code("near")
    write("prompts/trace/select.j2", "{% block user %}Mine{% endblock %}")
    assert user_code("near") != before
