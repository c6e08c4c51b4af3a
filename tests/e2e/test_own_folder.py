"""A folder of a person's own: what `kgqa new` writes there runs, is swept over, and is run again when it changes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import invalidate_caches, resources
from pathlib import Path

import pytest

import kgqa as api
from kgqa.artifacts.manifest import Manifest
from kgqa.cli.system import FIRST_RUNS
from kgqa.extras.viewer.table import name_rows, read_rows
from kgqa.prompting import template_hash
from tests.e2e.conftest import Kgqa, run_in

Run = Callable[[str], str]


@pytest.fixture(name="kgqa")
def run_here(kgqa: Kgqa) -> Iterator[Run]:
    """Run a command line in an own folder and give its output. Modules of that folder are imported anew."""

    def run(line: str) -> str:
        sys.modules.pop("mine", None)
        invalidate_caches()
        ran = kgqa(*line.split())
        return ran.out + ran.err

    yield run
    sys.modules.pop("mine", None)


@pytest.mark.slow
def test_what_kgqa_new_writes_runs_and_passes_its_test(kgqa: Run, tmp_path: Path) -> None:
    for group in ("method", "dataset", "retriever"):
        command = FIRST_RUNS[group].format(name=f"own_{group}")
        assert command in kgqa(f"new {group} own_{group}")
        folder = tmp_path / kgqa(command.removeprefix("kgqa ")).splitlines()[-1]
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        assert metrics["questions"] > 1
        assert metrics["failed"] == 0
        assert "this name exists. Choose another name" in kgqa(f"new {group} own_{group}")
    files = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()]
    assert sorted(file for file in files if not file.startswith("outputs") and file.endswith(("l", ".py", ".j2"))) == [
        "conf/dataset/own_dataset.yaml", "data/own_dataset.jsonl",
        "own_dataset.py", "own_method.py", "own_retriever.py", "prompts/own_method/answer.j2",
        *(f"test_own_{group}.py" for group in ("dataset", "method", "retriever")),
    ]  # fmt: skip
    tested = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *map(str, tmp_path.glob("test_own_*.py")),
    ]
    ended = subprocess.run(tested, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices", ["method=compared_method", "method=retrieve_read retriever=compared_retriever"]
)
def test_run_with_own_code_is_read_by_other_commands(kgqa: Run, choices: str) -> None:
    group = choices.rpartition("compared_")[2]
    kgqa(f"new {group} compared_{group}")
    command = "run dataset=demo engine=scripted limit=2"
    own = kgqa(f"{command} {choices}").splitlines()[-1]
    other = kgqa(f"{command} method=no_context").splitlines()[-1]
    assert "no difference shown" in kgqa(f"compare {own} {other}")
    assert f"{own}: 2 questions" in kgqa(f"explain {own}")
    assert "evaluation.json" in kgqa(f"evaluate {own} judge=em")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param("def answer(:", "half.py:1: invalid syntax", id="syntax error"),
        pytest.param("class Other: ...", "half.py has no class Half(Method)", id="no class"),
    ],
)
def test_module_without_a_method_is_explained(
    kgqa: Run, tmp_path: Path, code: str, reason: str
) -> None:
    (tmp_path / "half.py").write_text(code)
    message = f"kgqa: method=half: no such method. {reason}"
    assert kgqa("run method=half dataset=demo").splitlines() == [message]


def test_passages_of_an_own_dataset_are_searched(kgqa: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("mine", encoding="utf-8")
    assert kgqa("new method mine") == "kgqa: mine.py: this file exists. Choose another name.\n"
    assert [file.name for file in tmp_path.iterdir()] == ["mine.py"]
    assert "use small letters, digits and underscores only" in kgqa("new method Mine")
    assert "an installed module has this name" in kgqa("new method json")
    (tmp_path / "mine.py").unlink()
    kgqa("new dataset mine")
    folder = (
        tmp_path / kgqa("run method=retrieve_read dataset=mine engine=scripted").splitlines()[-1]
    )
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert (metrics["failed"], metrics["retrieval"]["recall"]["15"]["mean"]) == (0, 100.0)
    (tmp_path / "data" / "mine.jsonl").unlink()
    assert "no mine.jsonl (plain or .gz) in" in (
        error := kgqa("run method=golden dataset=mine engine=scripted")
    )
    assert "put it in one of these folders" in error


def test_new_model_names_its_weights(kgqa: Run) -> None:
    for number, (source, key) in enumerate([
        ("Qwen/Qwen3-8B", "hub: Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B-GGUF:q8.gguf", "hub: Qwen/Qwen3-8B-GGUF:q8.gguf"),
        ("/weights/q8.gguf", "path: /weights/q8.gguf"),
        ("", "hub: Qwen/Qwen3-0.6B"),
    ]):  # fmt: skip
        assert f"kgqa run model=mine{number}" in kgqa(f"new model mine{number} {source}")
        assert f"{key} #" in Path(f"conf/model/mine{number}.yaml").read_text(encoding="utf-8")


def test_first_failure_of_each_kind_shows_own_lines(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new method mine")
    module, template = tmp_path / "mine.py", tmp_path / "prompts" / "mine" / "answer.j2"
    text = module.read_text(encoding="utf-8")
    line = text[: text.index("render(self.prompt")].count("\n") + 1
    # kgqa renders the prompt of the first question before the first call
    template.write_text(
        template.read_text(encoding="utf-8").replace(
            "{{ context }}", "{{ context if 'Candle' in question else contexts }}"
        ),
        encoding="utf-8",
    )
    ran = kgqa("run method=mine dataset=demo engine=scripted limit=3").splitlines()
    assert [each for each in ran if "undefined" in each and "kgqa:" not in each] == [
        "failed: 3hop1__demo_03: UnknownValue: prompts/mine/answer.j2:5: 'contexts' is undefined. Did you mean context?"
    ]
    assert any(each.startswith(f"  mine.py:{line}: render(") for each in ran)
    log = (tmp_path / ran[-1] / "log.jsonl").read_text(encoding="utf-8").splitlines()
    traces = [each["traceback"] for each in map(json.loads, log) if "traceback" in each]
    assert len(traces) == 1
    assert "Traceback (most recent call last)" in traces[0]
    module.write_text(text.replace("await Search", "Search"), encoding="utf-8")
    ran = kgqa("run method=mine dataset=demo engine=scripted limit=3").splitlines()
    assert "Is `await` missing before Search(…)?" in ran[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"),
    [
        ("        return Answer(", "        return text\n        return Answer(", "async def answer",
         "TypeError: {}: answer must return Answer(text: str, …), not str"),
        ("            text,\n", "            None,\n", "async def answer",
         "TypeError: {}: answer must return Answer(text: str, …), not Answer(text=None)"),
        ('{"model", "pool"}', '{"model"}', "await Search", '{}: this method awaits Search: add "pool" to its `uses`'),
        ('{"model", "pool"}', '{"pool"}', "await Generate", '{}: this method calls a model: add "model" to its `uses`'),
        ("        text = reply", "        while True:\n            await CountTokens('a')\n        text = reply",
         "await CountTokens('a')", "more than max_calls=50 calls. End the loop, or increase max_calls ({})"),
        ("        return Answer(", "        raise SystemExit(7)\n        return Answer(", "raise SystemExit",
         "RuntimeError: SystemExit: 7 ({})"),
        ("        return Answer(", "        return Answer('x', notes={'a': object()})\n        return Answer(",
         "async def answer", "{}: the notes of the Answer are no JSON: Object of type object is not JSON serializable"),
        ("        return Answer(", "        return Answer('x', notes={'chains': ['a']})\n        return Answer(",
         "async def answer", "{}: the notes of the Answer have a wrong value: chains"),
        ("        return Answer(", "        return Answer('x', notes=['a'])\n        return Answer(",
         "async def answer", "{}: the notes of the Answer have a wrong value"),
        ("        return Answer(", "        return Answer('x', evidence=(1,))\n        return Answer(",
         "async def answer", "{}: the Answer has a wrong value: evidence.0=1 is not a valid string"),
        ("        return Answer(", "        return Answer('x', figures={'a': float('inf')})\n        return Answer(",
         "async def answer", "{}: the Answer has a wrong value: figures.a=inf is not a finite number"),
        ("        text = reply", "        await Generate('Who?', 5)\n        text = reply",
         "await Generate('Who?'",
         "TypeError: prompt must be a Prompt, such as kgqa.prompting.render returns, not str ({})"),
        ("        text = reply", "        return Answer(reply)\n        text = reply", "async def answer",
         "not Answer(text=Completion(text="),
        ("        text = reply", "        import asyncio\n        await asyncio.sleep(1)\n        text = reply",
         "await asyncio.sleep",
         "RuntimeError: no running event loop ({}). A method can await only the calls of kgqa.calls"),
        ('{"model", "pool"}', '{"modal", "pool"}', "",
         "method._target_=mine.Mine: uses contains 'modal'. Did you mean"),
        ('frozenset({"model", "pool"})', '"model"', "", "method._target_=mine.Mine: uses='model' is no set"),
        ("\nfrom kgqa.types", "\nraise SystemExit(7)\nfrom kgqa.types", "raise SystemExit",
         "{}: SystemExit: 7)"),
    ],
    ids=[
        "returns-str", "returns-no-text", "no-pool", "no-model", "endless-loop", "exits", "notes", "notes-of-chains",
        "notes-in-list", "evidence",
        "figures", "prompt", "reply", "asyncio", "unknown-need", "needs-no-set", "exits-at-import",
    ],
)  # fmt: skip
def test_defect_of_a_method_names_its_line(
    kgqa: Run, tmp_path: Path, right: str, wrong: str, line: str, message: str
) -> None:
    kgqa("new method mine")
    module = tmp_path / "mine.py"
    text = module.read_text(encoding="utf-8")
    assert right in text
    text = text.replace(right, wrong)
    module.write_text(text, encoding="utf-8")
    place = f"mine.py:{text[: text.index(line)].count(chr(10)) + 1}"
    assert message.format(place) in kgqa(
        "run method=mine dataset=demo engine=scripted limit=2 max_calls=50"
    )


def test_own_metric_is_in_scores_and_comparisons(kgqa: Run, tmp_path: Path) -> None:
    command = FIRST_RUNS["metric"]
    assert command in kgqa("new metric brevity")
    folder = tmp_path / kgqa(command.removeprefix("kgqa ")).splitlines()[-1]
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["scores"]["brevity"]["n"] == 3
    assert metrics["scores"]["brevity"]["mean"] > 0
    lines = kgqa(
        "run -m method=golden,no_context dataset=demo engine=scripted limit=3"
    ).splitlines()
    (header,) = [line for line in lines if line.startswith("cell  method")]
    assert header.split() == ["cell", "method", "EM", "F1", "Brevity", "calls", "tokens"]
    assert "\nBrevity  golden – no_context" in kgqa("compare demo/golden demo/no_context")
    assert "Brevity" in (folder / "report.md").read_text(encoding="utf-8")


def test_own_metric_and_judge_are_in_groups_of_reports(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new metric mine")
    kgqa("run method=golden dataset=demo engine=scripted limit=4 judge=em output_dir=judged")
    header = "| hops | questions | EM | F1 | Mine | judge accuracy |"
    assert header in (tmp_path / "judged/report.md").read_text(encoding="utf-8")
    kgqa("run method=golden dataset=demo engine=scripted limit=4 output_dir=plain")
    assert f"{header.removesuffix(' judge accuracy |')}\n" in (
        tmp_path / "plain/report.md"
    ).read_text(encoding="utf-8")
    kgqa("evaluate plain judge=em")
    assert header in (tmp_path / "plain/evaluation.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("baseline", ["", "baseline=run_base"], ids=["alone", "baseline"])
def test_own_metric_is_explained_by_hops(kgqa: Run, baseline: str) -> None:
    kgqa("new metric mine")
    for method, folder in (("golden", "mine"), ("no_context", "base")):
        kgqa(f"run method={method} dataset=demo engine=scripted limit=4 output_dir=run_{folder}")
    out = kgqa(f"explain run_mine {baseline}".strip())
    assert re.search(r"\nMine +2 ", out.partition("By hops")[2]), out


def test_replaced_verdicts_name_no_prompt(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new judge my_judge")
    template = next((tmp_path / "prompts/my_judge").glob("*.j2"))
    judged = "dataset=demo engine=scripted limit=3 judge=my_judge"
    for folder, line in (("before", ""), ("after", "Answer briefly.\n")):
        template.write_text(line + template.read_text(encoding="utf-8"), encoding="utf-8")
        kgqa(f"run method=golden {judged} output_dir={folder}")
    assert "A  golden · prompts/my_judge/" in kgqa("compare before after")
    kgqa("evaluate before after judge=my_judge model=qwen3_8b engine=scripted")
    assert "prompts/my_judge/" not in kgqa("compare before after")


def test_changed_judge_is_said_to_replace_verdicts(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new judge mine")
    module = tmp_path / "mine.py"
    line = "run method=golden dataset=demo engine=scripted limit=2 judge=mine"
    assert "replace those before" not in kgqa(line)
    assert "replace those before" not in kgqa(line)
    module.write_text(module.read_text(encoding="utf-8") + "CHANGED = True\n", encoding="utf-8")
    warning = "warning: judge=mine has other code, prompts, settings or models than before. Its"
    assert warning in kgqa(line)


def test_replaced_verdicts_name_no_module(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new judge mine")
    module = tmp_path / "mine.py"
    judged = "dataset=demo engine=scripted limit=3 judge=mine"
    for folder, line in (("before", ""), ("after", "CHANGED = True\n")):
        module.write_text(module.read_text(encoding="utf-8") + line, encoding="utf-8")
        kgqa(f"run method=golden {judged} output_dir={folder}")
    assert "A  golden · mine.py " in kgqa("compare before after")
    kgqa("evaluate before after judge=mine model=qwen3_8b engine=scripted")
    assert "mine.py" not in kgqa("compare before after")


FAILING = "def mine(question, answer):\n    return 1 / (question.id[-1] != '3')\n"
FAILURE = (
    r"warning: metric mine has no score: conf/metric/mine\.yaml: question 3hop1__demo_03, answer '.*': "
    r"ZeroDivisionError: division by zero \(mine\.py:2\)\. "
)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param("run method=golden {}", 2, id="run"),
        pytest.param("run -m method=golden,no_context {}", 2, id="sweep"),
        pytest.param("evaluate golden", 2, id="evaluate"),
        pytest.param("explain golden", 0, id="explain"),
        pytest.param("compare golden no_context", 0, id="compare"),
        pytest.param("plan golden no_context", 0, id="plan"),
    ],
)
def test_failing_metric_hides_no_other_score(
    kgqa: Run, tmp_path: Path, command: str, code: int
) -> None:
    kgqa("new metric mine")
    (tmp_path / "mine.py").write_text(FAILING, encoding="utf-8")
    runs = "dataset=demo engine=scripted limit=3"
    for method in ("golden", "no_context"):
        kgqa(f"run method={method} {runs} output_dir={method}")
    ran = run_in(tmp_path, *command.format(runs).split())
    out = ran.out + ran.err
    assert ran.code == code, out
    assert "F1" in out
    assert "Mine" not in out
    assert len(re.findall(FAILURE, out)) == 1


def test_run_of_a_failing_metric_is_scored_again(kgqa: Run, tmp_path: Path) -> None:
    line = "run method=golden dataset=demo engine=scripted limit=3 output_dir=mine"
    kgqa("new metric mine")
    module = tmp_path / "mine.py"
    code = "from pathlib import Path\n\ndef mine(question, answer):\n    return Path('words').read_text()\n"
    module.write_text(code)
    kgqa(line)
    report = (tmp_path / "mine/report.md").read_text(encoding="utf-8")
    assert "**Warning**: metric mine has no score" in report
    assert "| F1 |" in report
    # not a change of the code
    (tmp_path / "words").write_text("one")
    assert "must return a number from 0 to 1 or None, not 'one'" in kgqa(line)
    module.write_text("def mine(question, answer):\n    return 0.5\n")
    # this process has imported the old module
    (tmp_path / "conf/metric/mine.yaml").touch()
    kgqa(line)
    metrics = json.loads((tmp_path / "mine/metrics.json").read_text(encoding="utf-8"))
    assert metrics["scores"]["mine"]["mean"] == 50.0
    assert metrics["cost"]["paid"]["calls"] == 0
    assert "already complete" in kgqa(line)


def test_failing_metric_is_not_tuned(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new metric mine")
    (tmp_path / "mine.py").write_text("def mine(question, answer):\n    return 1 / 0\n")
    line = "tune method=retrieve_read method.passages=3,5 dataset=demo engine=scripted"
    out = kgqa(f"{line} tune.dev=3 tune.test=3 tune.metric=mine")
    assert "kgqa: metric mine has no score: conf/metric/mine.yaml: question" in out


@pytest.mark.parametrize("command", ["compare", "plan"])
def test_failing_metric_can_be_omitted(kgqa: Run, tmp_path: Path, command: str) -> None:
    for method in ("golden", "no_context"):
        kgqa(f"run method={method} dataset=demo engine=scripted limit=3 output_dir={method}")
    kgqa("new metric mine")
    code = "def mine(question, answer):\n    return 1 / 0\n"
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    failure = kgqa(f"{command} golden no_context")
    assert re.search(r"answer '.*': ZeroDivisionError: division by zero \(mine\.py:2\)\. ", failure)
    assert "The answers are saved. Correct the metric, then run the same command again" in failure
    assert "ZeroDivisionError" not in kgqa(f"{command} golden no_context metrics=em,f1")
    assert kgqa(f"{command} golden no_context metrics=mine").startswith("kgqa: metric mine has no")


@pytest.mark.parametrize("command", ["compare", "compare --out c.md", "plan"])
def test_undefined_metric_is_not_compared(kgqa: Run, tmp_path: Path, command: str) -> None:
    for method in ("golden", "no_context"):
        kgqa(f"run method={method} dataset=demo engine=scripted limit=2 output_dir={method}")
    kgqa("new metric mine")
    code = "def mine(question, answer):\n    return None\n"
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    out = kgqa(f"{command} golden no_context metrics=mine")
    assert out == "kgqa: no question has a score in two of these runs. Choose other metrics=\n"


ERRORS = """
from kgqa.types import Question


def errors(question: Question, answer: str) -> float:
    return float(answer == "wrong")
"""


@pytest.fixture
def with_errors(kgqa: Run, tmp_path: Path) -> None:
    """Write a metric of which 0 is the best, and run the best and the worst method."""
    (tmp_path / "mine.py").write_text(ERRORS, encoding="utf-8")
    (tmp_path / "conf/metric").mkdir(parents=True)
    text = "_target_: mine.errors\nlabel: Error rate\nlower_is_better: true\n"
    (tmp_path / "conf/metric/errors.yaml").write_text(text, encoding="utf-8")
    rule = {"match": ".", "reply": "wrong"}
    (tmp_path / "rules.jsonl").write_text(json.dumps(rule), encoding="utf-8")
    for method, more in (("no_context", "engine.rules=rules.jsonl"), ("golden", "")):
        line = f"run method={method} dataset=demo engine=scripted limit=8 output_dir={method}"
        kgqa(f"{line} {more}".strip())


@pytest.mark.usefixtures("with_errors")
def test_lower_value_of_an_own_metric_wins(
    kgqa: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = kgqa("compare no_context golden metrics=errors --out c.json")
    (row,) = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["differences"]
    assert (row["difference"], row["first_wins"], row["second_wins"]) == (100.0, 0, 8)
    assert " golden wins " in out
    monkeypatch.chdir(tmp_path)
    explained = api.compare("no_context", "golden", metrics=["errors"]).choose_explained()
    assert explained == ("golden", "no_context")


@pytest.mark.usefixtures("with_errors")
@pytest.mark.parametrize(
    ("command", "best"),
    [
        ("tune tune.metric=errors tune.dev=3 tune.test=3", "engine.rules=null (chosen)"),
        (
            "run -m hydra/sweeper=optuna sweep.metric=errors hydra.sweeper.n_trials=3 limit=3",
            "best errors: 0.0 in cell",
        ),
    ],
    ids=["tune", "search"],
)
def test_lowest_value_of_an_own_metric_is_chosen(kgqa: Run, command: str, best: str) -> None:
    if "optuna" in command:
        pytest.importorskip("optuna")
    out = kgqa(
        f"{command} method=golden dataset=demo engine=scripted engine.rules=rules.jsonl,null"
    )
    assert best in out


@pytest.mark.usefixtures("with_errors")
@pytest.mark.parametrize(
    "command",
    [
        "compare no_context golden metrics=errors",
        "plan no_context golden metrics=errors",
        "evaluate no_context golden",
        "explain golden",
        "run -m method=golden,no_context dataset=demo engine=scripted limit=8",
    ],
    ids=["compare", "plan", "evaluate", "explain", "sweep"],
)
def test_arrow_means_that_lower_is_better(kgqa: Run, command: str) -> None:
    out = kgqa(command)
    assert "Error rate ↓  " in out.replace("\n", "  ")
    assert out.count("↓: a lower value is better.") == 1


@pytest.mark.usefixtures("with_errors")
@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("report no_context golden --table paper metrics=errors", "no_context/table.tex"),
        ("compare no_context golden --out c.tex", "c.tex"),
        ("report golden --format latex", "golden/report.tex"),
    ],
    ids=["paper", "compare", "run"],
)
def test_caption_explains_the_arrow(kgqa: Run, tmp_path: Path, command: str, file: str) -> None:
    kgqa(command)
    table = (tmp_path / file).read_text(encoding="utf-8")
    assert r"Error rate $\downarrow$" in table
    assert r"$\downarrow$: a lower value is better." in table


@pytest.mark.usefixtures("with_errors")
def test_score_with_an_arrow_is_plotted(kgqa: Run, tmp_path: Path) -> None:
    line = "run -m method=golden,no_context dataset=demo engine=scripted limit=8 sweep.name=s"
    kgqa(line)
    page = (tmp_path / "outputs/sweeps/s/report.html").read_text(encoding="utf-8")
    assert "Error rate ↓ against cost" in page


@pytest.mark.usefixtures("with_errors")
def test_arrow_is_explained_in_a_report(tmp_path: Path) -> None:
    text = (tmp_path / "golden/report.md").read_text(encoding="utf-8")
    assert text.count("| Error rate ↓ | 0.0 ") == 1
    assert text.count("↓: a lower value is better.") == 1


PARTLY = """
def partly(question, answer):
    if question.id.endswith(("1", "3")):
        return None
    return 1 / (1 + len(answer) % 7)
"""


def test_plan_counts_questions_without_a_score(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new metric partly")
    (tmp_path / "partly.py").write_text(PARTLY, encoding="utf-8")
    for method in ("golden", "all_documents"):
        kgqa(f"run method={method} dataset=demo engine=scripted output_dir={method}")
    out = kgqa("plan golden all_documents metrics=partly difference=5")
    assert "Partly: 28 of the pilot's 36 questions have it in both runs" in out
    lines = [re.split("  +", line) for line in out.splitlines()]
    header = next(line for line in lines if line[0] == "runs")
    row = dict(zip(header, next(line for line in lines if line[1:2] == ["Partly"]), strict=True))
    assert row["pilot questions"] == "28"
    # the spread is known: all 36 questions show what 28 defined ones show
    again = kgqa(f"plan golden all_documents metrics=partly difference={row['all 36 show']}")
    planned = next(line for line in again.splitlines() if line.startswith("golden – "))
    assert abs(int(re.split("  +", planned)[2]) - 36) <= 1


@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param("metrics", "metric", id="plural"),
        pytest.param("Judge", "judge", id="capital"),
        pytest.param("retreiver", "retriever", id="typo"),
        pytest.param("demonstrations_ranker", "ranker", id="second choice"),
        pytest.param("metric", None, id="known"),
        pytest.param("db", None, id="other program"),
    ],
)
def test_misspelled_group_folder_is_named(
    kgqa: Run, tmp_path: Path, name: str, target: str | None
) -> None:
    folder = tmp_path / "conf" / name
    folder.mkdir(parents=True)
    problem = f"conf/{name}: kgqa reads no folder of this name"
    assert problem not in kgqa("evaluate last")
    (folder / "mine.yaml").write_text("_target_: mine.one\n")
    (tmp_path / "mine.py").write_text("def one(question, answer):\n    return 1.0\n")
    warning = f"warning: {problem}. Did you mean conf/{target}?"
    assert kgqa("evaluate last").count(warning) == (target is not None)
    remedy = f"{problem}\n    → move its files to conf/{target}"
    assert kgqa("doctor").count(remedy) == (target is not None)


@pytest.mark.parametrize("parameters", ["answer", "question, answer, gold", "*, question, answer"])
def test_metric_of_other_parameters_is_named(kgqa: Run, tmp_path: Path, parameters: str) -> None:
    (tmp_path / "mine.py").write_text(f"def one({parameters}):\n    return 1.0\n")
    (tmp_path / "conf" / "metric").mkdir(parents=True)
    (tmp_path / "conf" / "metric" / "one.yaml").write_text("_target_: mine.one\n")
    out = kgqa("run method=golden dataset=demo engine=scripted limit=3")
    assert out == (
        "kgqa: mine.py:1: must take (question, answer) or (question, answer, prediction)\n"
    )


def test_new_metric_is_scored_without_new_calls(kgqa: Run, tmp_path: Path) -> None:
    line = "run method=golden dataset=demo engine=scripted limit=3"
    kgqa(line)
    kgqa("new metric later")
    added = (
        "scored without later, which its reports lack. "
        "Score its answers again without new calls: kgqa run method=golden"
    )
    assert [added in kgqa(each) for each in ("evaluate last", "report last")] == [True, True]
    folder = tmp_path / kgqa(line).splitlines()[-1]
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert "later" in metrics["scores"]
    assert metrics["cost"]["paid"]["calls"] == 0
    assert "already complete" in kgqa(line)
    assert added not in kgqa("report last")


def test_second_metric_of_a_module_is_scored(kgqa: Run, tmp_path: Path) -> None:
    line = "run method=golden dataset=demo engine=scripted limit=3"
    (tmp_path / "mine.py").write_text("def one(question, answer):\n    return 1.0\n")
    (tmp_path / "conf" / "metric").mkdir(parents=True)
    for name in ("first", "second"):
        (tmp_path / "conf" / "metric" / f"{name}.yaml").write_text("_target_: mine.one\n")
        folder = tmp_path / kgqa(line).splitlines()[-1]
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        assert name in metrics["scores"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "return 7",
            "': must return a number from 0 to 1 or None, not 7. The answers are saved.",
        ),
        ("return 1 / 0", "ZeroDivisionError: division by zero (mine.py:2)"),
    ],
    ids=["out-of-range", "raises"],
)
def test_wrong_metric_names_its_line(kgqa: Run, tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "conf" / "metric").mkdir(parents=True)
    (tmp_path / "conf" / "metric" / "mine.yaml").write_text(
        "_target_: mine.mine\n", encoding="utf-8"
    )
    (tmp_path / "mine.py").write_text(
        f"def mine(question, answer):\n    {code}\n", encoding="utf-8"
    )
    assert message in kgqa("run method=golden dataset=demo engine=scripted limit=3")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("em", "_target_: mine.mine", "em.yaml: kgqa has a metric of this name. Rename the file"),
        ("judge", "_target_: mine.mine", "judge.yaml: kgqa has a metric of this name. Rename"),
        ("tokens", "_target_: mine.mine", "tokens.yaml: kgqa has a metric of this name. Rename"),
        ("mine", "_target_: mine", "mine.yaml: _target_=mine: write MODULE.FUNCTION"),
        ("mine", "_target_: json.loads", "no module 'json' in"),
        ("mine", "target: mine.mine", "target: unknown key. Did you mean _target_?"),
        ("mine", "higher_is_better: true", "unknown key. A higher value is better without it"),
        ("mine", "label: mine", "mine.yaml: must have the line _target_"),
        ("mine", "a: [", "conf/metric/mine.yaml:2: did not find expected node content"),
    ],
    ids=[
        "taken",
        "judge",
        "cost",
        "no-module",
        "other-module",
        "unknown-key",
        "direction",
        "no-target",
        "yaml",
    ],
)
def test_wrong_file_of_a_metric_is_named(
    kgqa: Run, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "def mine(question, answer):\n    return 1\n", encoding="utf-8"
    )
    (tmp_path / "conf" / "metric").mkdir(parents=True)
    (tmp_path / "conf" / "metric" / f"{name}.yaml").write_text(text, encoding="utf-8")
    assert message in kgqa("run method=golden dataset=demo engine=scripted limit=3")


def test_changed_metric_is_named_by_reports(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new metric mine")
    run = "run method=golden dataset=demo engine=scripted limit=3 output_dir=run"
    kgqa(run)
    warning = "run was scored before you changed mine, and its reports have the earlier scores."
    assert warning not in kgqa("report run --format md")
    module = tmp_path / "mine.py"
    module.write_text(module.read_text("utf-8") + "\n# changed\n", encoding="utf-8")
    assert warning in kgqa("report run --format md")
    table = "report run --table paper --format md metrics"
    assert warning in kgqa(f"{table}=em,mine")
    assert warning not in kgqa(f"{table}=em")
    kgqa(run)
    assert warning not in kgqa("report run --format md")


@pytest.mark.slow
def test_own_judge_runs(kgqa: Run, tmp_path: Path) -> None:
    command = FIRST_RUNS["judge"].format(name="strict")
    created = kgqa("new judge strict")
    assert f"{command}\n    engine=scripted gives no verdicts" in created
    out = kgqa(command.removeprefix("kgqa "))
    assert "engine=scripted gives no verdicts, so judge=strict" in out
    folder = tmp_path / out.splitlines()[-1]
    judged = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["judge"]
    assert (judged["judge"], list(judged["prompts"])) == ("strict", ["strict/verdict"])
    tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_strict.py"]
    assert subprocess.run(tested, cwd=tmp_path, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("severe", None, "Create prompts/severe/verdict.j2", id="missing"),
        pytest.param("lenient", "Is it right?", "verdict.j2: no {% block user %}", id="no block"),
    ],
)
def test_judge_without_its_prompt_makes_no_call(
    kgqa: Run, tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    kgqa(f"new judge {name}")
    template = tmp_path / "prompts" / name / "verdict.j2"
    template.unlink()
    if text is not None:
        template.write_text(text, encoding="utf-8")
    out = kgqa(f"run method=golden dataset=demo engine=scripted limit=1 judge={name}")
    assert out.startswith("kgqa: ")
    assert message in out
    assert not (tmp_path / "outputs" / "demo").exists()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param("{{ question", "prompts/trace/select.j2:24: expected token", id="syntax"),
        pytest.param(
            "{{ quesion }}",
            "prompts/trace/select.j2:23: 'quesion' is undefined. Did you mean question?",
            id="unknown value",
        ),
        pytest.param(
            "{{ question.txt }}",
            "prompts/trace/select.j2:23: no value .txt of a text. Write the name",
            id="attribute",
        ),
    ],
)
def test_broken_prompt_makes_no_call(kgqa: Run, tmp_path: Path, broken: str, message: str) -> None:
    kgqa("new prompt trace/select")
    template = tmp_path / "prompts" / "trace" / "select.j2"
    text = template.read_text("utf-8")
    template.write_text(text.replace("{{ question }}", broken), "utf-8")
    rankers = "ranker=lexical demonstrations_ranker=lexical"
    out = kgqa(f"run method=trace dataset=demo engine=scripted limit=1 {rankers}")
    assert f"kgqa: {message}" in out
    assert not (tmp_path / "outputs" / "demo").exists()
    other = kgqa("run method=golden dataset=demo engine=scripted limit=1")
    assert "0 failed" in other


def test_error_that_depends_on_replies_is_of_its_question(kgqa: Run, tmp_path: Path) -> None:
    """Simulated replies can cause it, so it does not stop the run before the first call."""
    kgqa("new prompt reader/answer")
    template = tmp_path / "prompts" / "reader" / "answer.j2"
    text = template.read_text("utf-8")
    template.write_text(text.replace("{{ question }}", "{{ question + 1 }}"), "utf-8")
    out = kgqa("run method=golden dataset=demo engine=scripted limit=1")
    assert "failed: 2hop__demo_01: PromptError: prompts/reader/answer.j2:" in out
    assert "TypeError" in out


JUDGE = """from dataclasses import dataclass
from kgqa.judge.judges import AnyJudge, Verdict

@dataclass(frozen=True)
class Mine(AnyJudge):
    role_forms = dict()

    async def judge(self, judged):
        {code}
"""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        pytest.param(
            "return True",
            "TypeError: mine.py:8: judge must return Verdict(label, votes) with the label 'correct', 'incorrect', "
            "'not_attempted' or None, not True",
            id="bool",
        ),
        pytest.param("return Verdict('right')", "None, not Verdict(label='right'", id="label"),
        pytest.param(
            "return Verdict(1 / 0)", "ZeroDivisionError: division by zero (mine.py:9)", id="error"
        ),
    ],
)
def test_defect_of_a_judge_names_its_line(
    kgqa: Run, tmp_path: Path, code: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(JUDGE.format(code=code), encoding="utf-8")
    (tmp_path / "conf" / "judge").mkdir(parents=True)
    (tmp_path / "conf" / "judge" / "mine.yaml").write_text("_target_: mine.Mine\n", "utf-8")
    out = kgqa("run method=golden judge=mine dataset=demo engine=scripted limit=3")
    assert out.count("failed: ") == 1
    assert message in out
    assert "3 failed" in out


def test_prompt_of_a_judge_is_tried_before_a_call(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new judge mine")
    template = tmp_path / "prompts" / "mine" / "verdict.j2"
    template.write_text(template.read_text("utf-8").replace("{{ answer", "{{ anwser"), "utf-8")
    out = kgqa("run method=golden judge=mine dataset=demo engine=scripted limit=3")
    error = "kgqa: prompts/mine/verdict.j2:9: 'anwser' is undefined. Did you mean answer?"
    assert out.splitlines()[-1] == error
    assert not (tmp_path / "outputs" / "demo").exists()
    kgqa("run method=golden dataset=demo engine=scripted limit=3 output_dir=run")
    out = kgqa("evaluate run judge=mine model=smollm2_135m engine=scripted")
    assert out.strip() == error
    assert not (tmp_path / "run" / "verdicts.jsonl").exists()


def test_values_that_a_judges_prompt_lacks_are_named(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new judge mine")
    template = tmp_path / "prompts" / "mine" / "verdict.j2"
    template.write_text(template.read_text("utf-8").replace("{{ answer }}", ""), "utf-8")
    warning = "warning: prompts/mine/verdict.j2 does not use answer. The model does not see it."
    words = "dataset=demo engine=scripted limit=3"
    assert kgqa(f"run method=golden judge=mine {words} output_dir=run").count(warning) == 1
    judged = "judge=mine model=smollm2_135m engine=scripted"
    assert kgqa(f"evaluate run {judged}").count(warning) == 1


def test_judge_without_forms_makes_no_call(kgqa: Run, tmp_path: Path) -> None:
    text = JUDGE.format(code="return Verdict('correct')").replace("role_forms", "roles_of")
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    (tmp_path / "conf" / "judge").mkdir(parents=True)
    (tmp_path / "conf" / "judge" / "mine.yaml").write_text("_target_: mine.Mine\n", "utf-8")
    out = kgqa("run method=golden judge=mine dataset=demo engine=scripted limit=3")
    message = "judge._target_=mine.Mine: not a judge: missing role_forms. See docs/OWN_CODE.md"
    assert out.strip() == f"kgqa: {message}"


def test_judge_without_labels_is_named(kgqa: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(JUDGE.format(code="return Verdict(None)"), encoding="utf-8")
    (tmp_path / "conf" / "judge").mkdir(parents=True)
    (tmp_path / "conf" / "judge" / "mine.yaml").write_text("_target_: mine.Mine\n", "utf-8")
    out = kgqa("run method=golden judge=mine dataset=demo engine=scripted limit=3")
    assert out.count("mine: mine.py:8 returned the label None") == 1


def test_unknown_label_of_a_judge_makes_no_call(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new judge mine")
    module = tmp_path / "mine.py"
    text = module.read_text("utf-8").replace('"right": "correct"', '"right": "ok"')
    module.write_text(text, "utf-8")
    out = kgqa("run method=golden judge=mine dataset=demo engine=scripted limit=3")
    line = text[: text.index("def find_form")].count("\n") + 1
    labels = "'correct', 'incorrect', 'not_attempted'"
    message = f"the form's vocabulary has 'right': 'ok'. Labels are {labels}"
    assert out == f"kgqa: mine.py:{line}: {message}\n"
    assert not (tmp_path / "outputs" / "demo").exists()


METHOD = """from dataclasses import dataclass
from kgqa.protocols import Method
from kgqa.types import Answer

@dataclass(frozen=True)
class Mine(Method):
    uses = frozenset()
    def answer(self, question):
        return Answer("x")
"""


@pytest.mark.parametrize(
    ("group", "name", "text"),
    [
        pytest.param("method", "answer", METHOD, id="method"),
        pytest.param(
            "judge",
            "judge",
            JUDGE.format(code="return None").replace("async def", "def"),
            id="judge",
        ),
    ],
)
def test_plain_function_for_a_coroutine_is_named(
    kgqa: Run, tmp_path: Path, group: str, name: str, text: str
) -> None:
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    (tmp_path / "conf" / group).mkdir(parents=True)
    (tmp_path / "conf" / group / "mine.yaml").write_text("_target_: mine.Mine\n", "utf-8")
    choice = {"method": "golden", group: "mine"}
    words = " ".join(f"{key}={value}" for key, value in choice.items())
    out = kgqa(f"run {words} dataset=demo engine=scripted limit=3")
    expected = f"{name} must be a coroutine. Write async def {name}, without yield"
    assert out == f"kgqa: mine.py:8: {expected}\n"


def test_runs_with_other_prompts_differ_in_the_list(kgqa: Run, tmp_path: Path) -> None:
    line = "run method=golden dataset=demo engine=scripted limit=2"
    kgqa(line)
    assert "prompt reader/answer" not in kgqa("runs")
    kgqa("new prompt reader/answer")
    kgqa("new prompt trace/select")
    for name in ("reader/answer", "trace/select"):
        template = tmp_path / "prompts" / f"{name}.j2"
        text = template.read_text("utf-8").replace("{% block user %}", "{% block user %}Be brief.")
        template.write_text(text, "utf-8")
    # golden does not use the ranker and trace/select
    kgqa(f"{line} ranker=lexical")
    folders = {
        "prompts/reader/answer.j2"
        if Manifest.read(each.parent).own
        else "prompt reader/answer of kgqa": each.parent
        for each in Path("outputs/demo").rglob("metrics.json")
    }
    listed = kgqa("runs")
    assert [listed.count(name) for name in folders] == [1, 1]
    assert "trace/select" not in listed
    compared = kgqa(f"compare {' '.join(map(str, folders.values()))}")
    lines = [f"{letter}  golden · {name}" for letter, name in zip("AB", folders, strict=True)]
    assert [line in compared for line in lines] == [True, True]
    titles = {row.title for row in name_rows(read_rows(Path("outputs")))}
    assert titles == {f"golden · {name}" for name in folders}


def test_setting_without_a_value_is_not_listed(kgqa: Run) -> None:
    for count in ("limit=2", "sample=2"):
        kgqa(f"run method=golden dataset=demo engine=scripted {count}")
    titles = {row.title for row in name_rows(read_rows(Path("outputs")))}
    assert titles == {"golden", "golden · sample 2"}


def test_variants_of_a_prompt_have_hashes(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new prompt reader/answer")
    template = tmp_path / "prompts/reader/answer.j2"
    hashes = []
    for word in ("brief", "short"):
        text = template.read_text("utf-8")
        template.write_text(
            text.replace("{% block user %}", f"{{% block user %}}Be {word}."), "utf-8"
        )
        kgqa("run method=golden dataset=demo engine=scripted limit=2")
        hashes.append(template_hash("reader/answer")[:6])
    listed = kgqa("runs")
    assert [f"prompts/reader/answer.j2 {sha256}" in listed for sha256 in hashes] == [True, True]
    assert f"prompts/reader/answer.j2 is {hashes[1]} now" in listed


def test_sweep_names_a_changed_prompt(kgqa: Run, tmp_path: Path) -> None:
    line = "run -m method=golden dataset=demo engine=scripted limit=2 sweep.name=one"
    kgqa("new prompt reader/answer")
    assert "has a new run" not in kgqa(line) + kgqa(line)
    (earlier,) = Path("outputs/demo/golden/scripted").iterdir()
    template = tmp_path / "prompts" / "reader" / "answer.j2"
    text = template.read_text("utf-8").replace("{% block user %}", "{% block user %}Be brief.")
    template.write_text(text, "utf-8")
    out = kgqa(line)
    assert "cell 0 has a new run with prompts/reader/answer.j2 " in out
    assert f". The earlier run is {earlier}. " in out


def test_runs_with_other_data_differ_in_the_file(kgqa: Run, tmp_path: Path) -> None:
    demo = resources.files("kgqa.datasets").joinpath("demo.jsonl").read_text("utf-8")
    line = "run method=golden dataset=demo dataset.path=own.jsonl engine=scripted limit=2"
    for text in (demo, demo.replace("Candle", "Copper")):
        (tmp_path / "own.jsonl").write_text(text, "utf-8")
        kgqa(line)
    assert kgqa("runs").count(" own.jsonl ") == 2


def test_sweep_compares_prompts_of_an_own_method(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new method mine")
    folder = tmp_path / "prompts" / "mine"
    text = (folder / "answer.j2").read_text("utf-8")
    (folder / "short.j2").write_text(text.replace("Write only", "Be short. Write only"), "utf-8")
    two = "run -m method=mine method.prompt=mine/answer,mine/short dataset=demo engine=scripted limit=2"
    kgqa(f"{two} sweep.name=prompts")
    compared = kgqa("compare prompts")
    assert "B  mine · prompt mine/short" in compared
    template = (folder / "short.j2").read_text("utf-8")
    (folder / "short.j2").write_text(template.replace("{{ question", "{{ quest"), "utf-8")
    broken = kgqa("run method=mine method.prompt=mine/short dataset=demo engine=scripted limit=1")
    assert "kgqa: prompts/mine/short.j2:7: 'quest' is undefined" in broken


def test_runs_of_other_questions_differ_in_them(kgqa: Run) -> None:
    for choice in ("limit=2", "limit=2 shard=1/2", "limit=2 shard=2/2"):
        kgqa(f"run method=no_context dataset=demo engine=scripted {choice}")
    listed = kgqa("runs").splitlines()
    assert sum("  questions  " in line for line in listed[1:]) == 3


def test_prompts_of_a_method_are_listed(kgqa: Run) -> None:
    listed = kgqa("new prompt method=trace")
    assert "trace/select" in listed
    assert "ircot/" not in listed
    assert "method=nothing: kgqa has no template" in kgqa("new prompt method=nothing")


def test_own_prompt_is_a_copy_of_a_known_prompt(kgqa: Run, tmp_path: Path) -> None:
    assert "run method=trace dataset=demo" in kgqa("new prompt trace/select")
    assert (
        (tmp_path / "prompts" / "trace" / "select.j2").read_text(encoding="utf-8").startswith("{#")
    )
    assert "select.j2: this file exists. Edit it" in kgqa("new prompt trace/select")
    assert "trace/selct: kgqa has no template of this name. Did you mean trace/select" in kgqa(
        "new prompt trace/selct"
    )
    (tmp_path / "prompts" / "trace" / "selct.j2").write_text("", encoding="utf-8")
    assert "selct.j2: no method renders this template" in " ".join(kgqa("doctor").split())


def test_broken_files_are_rows_of_models_and_doctor(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new model sound")
    kgqa("new method mine")
    folder = tmp_path / "conf" / "model"
    (folder / "cut.yaml").write_text("hub: [a\n", encoding="utf-8")
    (folder / "odd.yaml").write_text("hub: a/b\ncontexts: 7\n", encoding="utf-8")
    with (tmp_path / "mine.py").open("a", encoding="utf-8") as module:
        module.write("    more: int\n    least: int = 3\n")
    listed = kgqa("models").split()
    assert {"cut:", "odd:", "sound", "smollm2_135m"} <= set(listed)
    report = " ".join(kgqa("doctor").split())
    assert "conf/model/cut.yaml:2: did not find expected" in report
    assert (
        "conf/model/odd.yaml: model.contexts=7: unknown key. Did you mean model.context?" in report
    )
    missing = "non-default argument 'more' follows default argument"
    assert missing in report
    assert missing in kgqa("run method=mine dataset=demo engine=scripted")


def test_doctor_lists_own_metrics(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new metric words")
    broken = tmp_path / "conf/metric/broken.yaml"
    broken.write_text("_target_: words.missing\n", encoding="utf-8")
    lines = [" ".join(line.split()) for line in kgqa("doctor words broken").splitlines()]
    assert "✓ words conf/metric/words.yaml" in lines
    assert any(line.startswith(f"✗ broken {broken}: ") for line in lines)


def test_unknown_prompt_gets_the_prompts_of_its_method(kgqa: Run) -> None:
    message = kgqa("new prompt trace/zzz")
    assert "reader/answer, trace/answer_released" in message
    assert "cot/" not in message


def test_method_without_own_templates_names_those_it_uses(kgqa: Run) -> None:
    message = kgqa("new prompt ircot/reason")
    assert "Choose from: few_shot/answer, few_shot/titles. List all: kgqa new prompt" in message


def test_prompts_are_listed_with_the_runs_that_use_them(kgqa: Run) -> None:
    lines = [" ".join(line.split()) for line in kgqa("new prompt").splitlines()]
    assert "few_shot/answer method=ircot, method=retrieve_read" in lines
    assert "judge/kgp method=golden judge=kgp" in lines


def test_copied_prompt_is_in_the_run_that_follows(kgqa: Run, tmp_path: Path) -> None:
    out = kgqa("new prompt reader/answer")
    assert "also used by: method=all_documents, method=golden, method=trace" in out
    template = tmp_path / "prompts" / "reader" / "answer.j2"
    text = template.read_text("utf-8").replace("{% block user %}", "{% block user %}Be brief.")
    template.write_text(text, "utf-8")
    (command,) = (line.strip() for line in out.splitlines() if "--prompts" in line)
    assert "Be brief." in kgqa(f"{command.removeprefix('kgqa ')} engine=scripted")
