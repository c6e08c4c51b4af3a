"""Functions, coroutines and objects of Python as methods."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import kgqa
from kgqa.calls import Search
from kgqa.config import files
from kgqa.errors import ConfigError, KgqaError
from kgqa.protocols import Need
from kgqa.runtime.display import QUIET
from kgqa.types import Answer, Json, Question
from kgqa.util import plugins

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package)
pytestmark = pytest.mark.usefixtures("own_folder")
MILL: list[dict[str, Json]] = [
    {
        "question": "Who built the mill?",
        "golden_answers": ["Bo", "Bo Li"],
        "passages": [
            ("Mill", "Bo built the mill."),
            {"title": "Bridge", "text": "Ann built the bridge."},
        ],
        "supporting_titles": ["Mill"],
    }
]


def run(method: object, *words: str, dataset: Any = MILL) -> kgqa.Run:
    return kgqa.run(
        *words,
        method=method,
        dataset=dataset,
        engine="scripted",
        limit=2,
        max_failure_rate=1.0,
        display=QUIET,
    )


def search_once(question: str, tools: Any) -> dict[str, Json]:
    results = tools.search(question, 1)
    reply = tools.generate(results[0].text)
    return {"answer": "Bo" if reply else "", "evidence": [results[0].title]}


async def search_and_wait(question: str, tools: Any) -> str:
    return str(tools.search(question)[0].text.split()[0])


def return_answer(question: str, tools: Any) -> Answer:
    return Answer("Bo", (tools.question.passages[0].id,))


def answer_without_tools(question: str) -> str:
    return "Bo"


@dataclass(frozen=True)
class Repeater:
    turns: int = 1

    def __call__(self, question: str) -> str:
        return " ".join(["Bo"] * self.turns)


@dataclass(frozen=True)
class OwnMethod:
    passages: int = 1
    uses: ClassVar[frozenset[Need]] = frozenset({"pool"})

    async def answer(self, question: Question) -> Answer:
        passages = await Search(question.text, self.passages, pool=question.passages)
        return Answer("Bo", tuple(passage.id for passage in passages))


AGENTS: dict[str, object] = {
    "function": search_once,
    "coroutine": search_and_wait,
    "answer": return_answer,
    "no tools": answer_without_tools,
    "object": Repeater(),
    "method": OwnMethod(),
}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_agent_answers_records(agent: object) -> None:
    finished = run(agent)
    (row,) = finished.predictions
    assert (row["answer"], row["error"], row["em"]) == ("Bo", None, 100)


def test_evidence_and_calls_are_those_of_the_tools() -> None:
    finished = run(search_once)
    assert finished.predictions[0]["evidence_titles"] == ["Mill"]
    assert [row["call"] for row in finished.calls] == ["run_agent", "search", "generate"]
    assert finished.metrics.cost.method.calls == 1


def test_run_is_named_after_the_function() -> None:
    assert run(search_once).folder.parts[1:3] == ("given", "search_once")


@pytest.mark.slow
def test_same_function_is_the_same_run() -> None:
    assert run(search_once).folder == run(search_once).folder


def test_settings_of_an_object_are_part_of_the_run() -> None:
    assert run(Repeater(1)).folder != run(Repeater(2)).folder


FACTOR: dict[Any, Any] = {"value": 1, 2: {"b", "a"}, (3, 4): object()}


def scale(number: int) -> int:
    return number * int(FACTOR["value"])


def around(text: str) -> Callable[[str], str]:
    return lambda question: text


def with_default(text: str) -> Callable[..., str]:
    def answer(question: str, tools: Any, text: str = text) -> str:
        return text

    return answer


def calling_others(factor: int) -> Callable[[str], str]:
    FACTOR["value"] = factor
    return lambda question: str(scale(2))


class Scaler:
    def __init__(self, factor: int) -> None:
        FACTOR["value"] = factor

    def answer(self, question: str) -> str:
        return str(scale(2))


@pytest.mark.parametrize(
    ("make", "values"),
    [(around, "AB"), (with_default, "AB"), (calling_others, (1, 3)), (Scaler, (1, 3))],
    ids=["closure", "default", "value of the module", "object"],
)
def test_values_from_outside_are_part_of_the_run(make: Any, values: Any) -> None:
    first, second = (run(make(value)) for value in values)
    again = run(make(values[0]))
    assert first.predictions[0]["answer"] != second.predictions[0]["answer"]
    assert first.folder != second.folder
    assert again.folder == first.folder


@pytest.mark.slow
def test_imported_code_is_part_of_the_run(tmp_path: Path) -> None:
    """In a process of its own, as a script."""
    (tmp_path / "script.py").write_text(
        "import kgqa, names\n"
        "def answer(question, tools):\n    return names.NAME\n"
        "run = kgqa.run(method=answer, dataset='demo', limit=1, engine='scripted')\n"
        "print(run.predictions[0]['answer'])\n",
        encoding="utf-8",
    )
    answers = []
    for name in ("Ann", "Bo"):
        (tmp_path / "names.py").write_text(f"NAME = {name!r}\n", encoding="utf-8")
        command = [sys.executable, "script.py"]
        process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        answers.append(process.stdout.split()[-1])
    assert answers == ["Ann", "Bo"]


def test_results_print_compare_and_open(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    one, other = run(Repeater(1)), run(Repeater(2))
    one.open()
    assert "Repeater on given" in str(one)
    assert "EM" in str(one.compare(other))
    assert opened == [one.report.absolute().as_uri()]


def fail(question: str) -> str:
    raise ValueError("no idea")


def leave(question: str) -> str:
    sys.exit(3)


def hang(question: str) -> str:
    import time

    time.sleep(2)
    return "late"


def flood(question: str, tools: Any) -> str:
    while True:
        tools.search("mill")


def return_nothing(question: str) -> Any:
    return None


FAILURES: dict[str, tuple[Callable[..., str], str]] = {
    "error": (fail, "ValueError: no idea"),
    "no return": (return_nothing, "Is `return` missing?"),
    "exit": (leave, "SystemExit"),
    "hangs": (hang, "method.timeout=1 s"),
    "floods": (flood, "max_calls=9"),
}


@pytest.mark.parametrize(("agent", "problem"), FAILURES.values(), ids=FAILURES)
def test_failed_function_is_a_failed_question(agent: Callable[..., str], problem: str) -> None:
    (row,) = run(agent, "method.timeout=1", "max_calls=10").predictions
    assert problem in str(row["error"])


def test_function_without_answer_names_its_line() -> None:
    (row,) = run(return_nothing).predictions
    line = return_nothing.__code__.co_firstlineno
    assert f"return_nothing (test_python.py:{line}): the function returned None" in str(
        row["error"]
    )


INVALID: dict[str, tuple[object, Any, str]] = {
    "class": (Repeater, MILL, "Pass an object, such as Repeater"),
    "no answer": (Repeater(), [{"question": "Who?"}], "record 1: answer=None"),
    "no question": (Repeater(), [{"answer": "Bo"}], "record 1"),
}


@pytest.mark.parametrize(("agent", "dataset", "message"), INVALID.values(), ids=INVALID)
def test_invalid_argument_is_one_line(agent: object, dataset: Any, message: str) -> None:
    with pytest.raises(KgqaError, match=message):
        run(agent, dataset=dataset)


def test_function_of_a_module_runs_on_the_command_line() -> None:
    Path("my_agent.py").write_text(
        "def answer(question, tools):\n    return tools.search(question, 1)[0].title\n"
    )
    finished = run("function", "method.function=my_agent:answer", dataset="demo")
    assert finished.metrics.failed == 0


def test_missing_function_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"method\.function=my_agent:none"):
        run("function", "method.function=my_agent:none", dataset="demo")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with two agents as entry points."""
    site = tmp_path / "site"
    info = site / "my_agents-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-agents\nVersion: 1.0\n")
    lines = [
        "[kgqa.components]",
        "installed_agent = installed_agents:answer",
        "method.installed_method = installed_agents:Own",
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (site / "installed_agents.py").write_text(
        "from dataclasses import dataclass\n"
        "from kgqa.types import Answer\n"
        "def answer(question):\n    return 'Bo'\n"
        "@dataclass(frozen=True)\n"
        "class Own:\n    word: str = 'Bo'\n    uses = frozenset()\n"
        "    async def answer(self, question):\n        return Answer(self.word)\n"
    )
    monkeypatch.syspath_prepend(site)
    for cached in (plugins.installed_components, files.list_installed_files):
        cached.cache_clear()
    yield
    for cached in (plugins.installed_components, files.list_installed_files):
        cached.cache_clear()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["installed_agent"], "Bo"),
        (["installed_method"], "Bo"),
        (["installed_method", "method.word=Al"], "Al"),
    ],
    ids=["function", "class", "setting"],
)
def test_installed_package_adds_methods(words: list[str], answer: str) -> None:
    name, *others = words
    assert run(name, *others).predictions[0]["answer"] == answer


def test_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert kgqa.__version__ == version("kgqa")


class Module:
    """An object with the methods of DSPy's modules."""

    named_predictors = acall = None

    def __init__(self, instructions: str = "Answer.") -> None:
        self.instructions = instructions

    def dump_state(self) -> Json:
        return {"instructions": self.instructions}

    def __call__(self, *, question: str) -> Any:
        tools = kgqa.current_tools()
        tools.search(question, 1)
        return SimpleNamespace(answer=tools.generate(f"{self.instructions} {question}") and "Bo")


class Graph:
    """An object with the methods of LangGraph's runnables."""

    ainvoke = None

    def __init__(self, properties: Json = None, result: Any = None) -> None:
        self._properties, self._result, self.seen = properties, result, list[Json]()

    def get_input_jsonschema(self) -> Json:
        return {"properties": self._properties or {}}

    def invoke(self, value: Json, config: Json) -> Any:
        tools = kgqa.current_tools()
        assert config["configurable"]["base_url"] == tools.url
        tools.search("mill", 1)
        self.seen.append(value)
        return self._result


class Untyped(Graph):
    """A runnable without a schema."""

    get_input_jsonschema = property()


MESSAGES: Json = {"messages": [{"role": "user", "content": "Who built the mill?"}]}
FORMS: dict[str, tuple[Graph, Json]] = {
    "messages": (Graph({"messages": {}}, {"messages": [SimpleNamespace(content="Bo")]}), MESSAGES),
    "question": (Graph({"question": {}}, "Bo"), {"question": "Who built the mill?"}),
    "text": (
        Graph({}, SimpleNamespace(content=[{"type": "text", "text": "B"}, "o"])),
        "Who built the mill?",
    ),
    "mapping": (Untyped(result={"messages": [], "answer": "Bo"}), MESSAGES),
}


@pytest.mark.parametrize(("graph", "sent"), FORMS.values(), ids=FORMS)
def test_runnable_gets_the_question_in_its_form(graph: Graph, sent: Json) -> None:
    (row,) = run(graph).predictions
    assert (row["error"], row["answer"], row["evidence_titles"]) == (None, "Bo", ["Mill"])
    assert graph.seen == [sent]


def test_module_is_called_with_the_question() -> None:
    finished = run(Module())
    assert finished.predictions[0]["answer"] == "Bo"
    assert [row["call"] for row in finished.calls] == ["run_agent", "search", "generate"]


def test_state_of_a_module_is_part_of_the_run() -> None:
    assert run(Module()).folder == run(Module()).folder
    assert run(Module("Be short.")).folder != run(Module()).folder


def test_tools_belong_to_a_question() -> None:
    with pytest.raises(ConfigError, match="no question"):
        kgqa.current_tools()
