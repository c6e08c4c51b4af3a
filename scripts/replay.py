"""Replay docs/RESULTS.md from its archives of calls and compare every predictions.jsonl with its recorded hash.

    python scripts/replay.py                 all cells that this environment can replay
    python scripts/replay.py --update        write docs/results/predictions.json

No model is loaded: all replies come from docs/results. The questions are read from `KGQA_DATA`, and the weights of
qwen2_5_coder_1_5b are only hashed. The cells of TRACE need the extra sentence-transformers for their ranker.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# replies of the H200, and those of one CPU: the same calls have other replies there
CALLS = ROOT / "docs/results/calls.jsonl.zst"
CPU_CALLS = ROOT / "docs/results/calls_cpu.jsonl.zst"
HASHES = ROOT / "docs/results/predictions.json"
DATA = ("questions/hotpotqa_dev.json.gz", "questions/hotpot_dev_distractor_v1.json")
SETTINGS = "seed=1 model=qwen2_5_coder_1_5b engine=vllm engine.enforce_eager=true"
DATASETS = "dataset=hotpotqa,2wiki,musique"
RANKER = "ranker=minilm demonstrations_ranker=minilm"
TRACE = f"method=trace kg.demonstrations=fixed {RANKER} {DATASETS} sample=80 limit=20"
# the entity graph as it was when the calls were made
ENTITY_GRAPH = (
    "retriever=entity_graph retriever.fold_names=false"
    " retriever.title_weight=1.0 retriever.passage_weight=0.1"
)
GROUPS = {
    "reading": f"method=no_context,golden,all_documents,retrieve_read,iter_retgen,self_ask,react {DATASETS} sample=80",
    # with the examples that the page was made with. MuSiQue's replies are read otherwise now, which needs new calls
    "knowtrace": "method=knowtrace method.exploration_few_shot.path=knowtrace_explore_yes_no.jsonl"
    " dataset=hotpotqa,2wiki sample=80",
    "graphs": f"method=sg_prompt,ge_reasoning,era_cot {DATASETS} sample=80",
    "ircot": f"method=ircot {DATASETS} sample=80",
    "kgp": "method=kgp dataset=hotpotqa,musique sample=40",
    "safe": f"method=safe method.repeats=continue {DATASETS} sample=40",
    "grid": f"method=retrieve_read,search_agent {ENTITY_GRAPH} {DATASETS} sample=80",
    "grid_ircot": f"method=ircot {ENTITY_GRAPH} dataset=musique sample=80 limit=40",
    "trace": f"{TRACE} method.context=triples,documents",
    "trace_top": f"{TRACE} method.top=20",
    "trace_selector": f"{TRACE} method.selector=false",
    "trace_layout": f"{TRACE} method.reader_layout=released",
}
CPU = "dataset=hotpotqa sample=80 limit=40"
# copied to where the commands run
ALTERNATING = ROOT / "docs/results/knowtrace_alternating.jsonl"
EXAMPLES = f"knowtrace_explore.jsonl,knowtrace_explore_yes_no.jsonl,{ALTERNATING.name}"
CPU_GROUPS = {
    "cpu_reading": f"method=all_documents dataset.perturb=null,remove_gold {CPU}",
    "cpu_knowtrace": f"method=knowtrace method.exploration_few_shot.path={EXAMPLES} {CPU}",
    "cpu_safe": f"method=safe method.feedback=none,self {CPU}",
}


def run_kgqa(arguments: list[str], folder: Path) -> None:
    """Run one kgqa command in `folder`.

    Raises:
        SystemExit: The command failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGQA_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "kgqa", *arguments]
    process = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise SystemExit(
            f"kgqa {' '.join(arguments)} ended with {process.returncode}:\n{process.stderr[-2000:]}"
        )


def replay(calls: Path, groups: dict[str, str], folder: Path) -> None:
    """Run the groups in `folder`, with a cache of these calls only."""
    folder.mkdir()
    shutil.copy(ALTERNATING, folder)
    run_kgqa(["cache", "import", str(calls)], folder)
    commands = [
        ["run", "-m", *keys.split(), *SETTINGS.split(), f"sweep.name={group}"]
        for group, keys in groups.items()
    ]
    # no model computes, so each process needs one core
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as workers:
        list(workers.map(lambda command: run_kgqa(command, folder), commands))


def hash_predictions(folder: Path) -> dict[str, list[str]]:
    """Return the sorted SHA-256 hashes of all predictions by `dataset/method`, or `cpu/dataset/method`."""
    hashes: dict[str, list[str]] = defaultdict(list)
    for file in folder.glob("*/outputs/*/*/*/*/predictions.jsonl"):
        machine, _, dataset, method, *_ = file.relative_to(folder).parts
        key = f"cpu/{dataset}/{method}" if machine == "cpu" else f"{dataset}/{method}"
        hashes[key].append(hashlib.sha256(file.read_bytes()).hexdigest())
    return {key: sorted(values) for key, values in sorted(hashes.items())}


def main() -> int:
    """Replay all groups and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write docs/results/predictions.json")
    options = parser.parse_args()
    data = Path(os.environ.get("KGQA_DATA") or ROOT / "data").resolve()
    if not any((data / file).is_file() for file in DATA):
        print(
            f"replay skipped: no {' or '.join(DATA)} in {data}. Set KGQA_DATA to a folder with the question files."
        )
        return 0
    os.environ["KGQA_DATA"] = str(data)
    groups = dict(GROUPS)
    if find_spec("sentence_transformers") is None:
        groups = {name: keys for name, keys in groups.items() if RANKER not in keys}
        print("skipped: trace (needs the extra sentence-transformers)")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kgqa-replay-") as name:
        folder = Path(name)
        replay(CALLS, groups, folder / "h200")
        replay(CPU_CALLS, CPU_GROUPS, folder / "cpu")
        hashes = hash_predictions(folder)
    if options.update:
        HASHES.write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")
    expected = json.loads(HASHES.read_text(encoding="utf-8"))
    if "trace" not in groups:
        expected = {key: values for key, values in expected.items() if not key.endswith("/trace")}
    different = sorted(
        key for key in {**hashes, **expected} if hashes.get(key) != expected.get(key)
    )
    cells = sum(map(len, hashes.values()))
    print(
        f"replayed {cells} cells in {time.monotonic() - start:.0f} s, {len(different)} of {len(expected)} groups differ"
    )
    for key in different:
        print(f"  {key}: {hashes.get(key)} instead of {expected.get(key)}")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
