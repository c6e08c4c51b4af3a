"""Test that run names and cache keys stay the same.

A run's name also contains its method's code, which is left out here because it changes with the method.
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

NAMES = {
    "method=trace dataset=demo experiment=quick limit=3": "85da7a76",
    "method=no_context dataset=demo": "d7ad9141",
    "method=no_context dataset=demo model=gpt_4o_mini engine=openai": "1b4d54fd",
    "method=golden dataset=demo roles.reader=gpt_4o_mini@openai": "22d61bc3",
    "method=knowtrace dataset=demo": "5bfd6e6e",
    "method=knowtrace dataset=demo roles.reader=gpt_4o_mini@openai": "2568ffe3",
    "method=kgp dataset=demo model=qwen2_5_coder_1_5b graph=tfidf": "520e2d06",
    "method=no_context dataset=demo engine=vllm": "becc6467",
    "method=safe dataset=demo method.feedback=model roles.feedback=qwen2_5_coder_1_5b@vllm": "d728d766",
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
    assert run_name(identity) == NAMES[command]


@pytest.mark.parametrize("engine", CALL_KEYS)
def test_a_call_keeps_its_key_in_the_call_cache(engine: str) -> None:
    engines = Engines(role_nodes(compose([f"engine={engine}"])), Pool())
    call = Generate(Prompt("test/name", (Message("user", "Who?"),)), 5)
    assert cache_key(engines("reader").identity(), call)[:12] == CALL_KEYS[engine]
