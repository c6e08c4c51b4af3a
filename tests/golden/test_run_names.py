"""Test that run names and cache keys stay the same.

A run's name also contains its method's code and what rankers say of themselves, which are left out here because they
change with the method and with the installed packages.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.cache.key import cache_key
from kgqa.calls import Generate
from kgqa.config.composing import compose
from kgqa.experiment.engines import Engines, Pool, role_nodes
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.session import Session
from kgqa.runtime.folder import run_name
from kgqa.types import Message, Prompt

HERE = "model=smollm2_135m engine=llamacpp"  # otherwise the best that is installed
NAMES = {
    f"method=trace dataset=demo experiment=quick limit=3 {HERE}": "da8b7d43",
    f"method=no_context dataset=demo {HERE}": "1a008104",
    "method=no_context dataset=demo model=gpt_4o_mini engine=openai": "52533b03",
    f"method=golden dataset=demo roles.reader=gpt_4o_mini@openai {HERE}": "87477cc6",
    f"method=knowtrace dataset=demo {HERE}": "96adb561",
    f"method=knowtrace dataset=demo roles.reader=gpt_4o_mini@openai {HERE}": "e72476a4",
    "method=kgp dataset=demo model=qwen2_5_coder_1_5b graph=tfidf": "3f60867c",
    "method=no_context dataset=demo model=smollm2_135m engine=vllm": "ce9dfe5d",
    f"method=safe dataset=demo method.feedback=model roles.feedback=qwen2_5_coder_1_5b@vllm {HERE}": "d642b5aa",
}
CALL_KEYS = {
    "llamacpp": "ecb63871df1f",
    "scripted": "8340f53cef0e",
    "transformers": "eae4f972c048",
    "vllm": "adc522fd3219",
}


@pytest.mark.parametrize("command", NAMES)
def test_a_run_keeps_its_name(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Session(Experiment.of(command.split())) as session:
        identity = {key: value for key, value in session.experiment.identity.items() if key != "code"}
    for group in ("ranker", "reranker", "demonstrations_ranker"):
        identity |= {group: {**node, "identity": None}} if (node := identity.get(group)) else {}
    assert run_name(identity) == NAMES[command]


@pytest.mark.parametrize("engine", CALL_KEYS)
def test_a_call_keeps_its_key_in_the_call_cache(engine: str) -> None:
    engines = Engines(role_nodes(compose([f"engine={engine}"])), Pool())
    call = Generate(Prompt("test/name", (Message("user", "Who?"),)), 5)
    assert cache_key(engines("reader").identity(), call)[:12] == CALL_KEYS[engine]
