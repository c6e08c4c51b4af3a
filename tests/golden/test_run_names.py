"""The names of runs: what is settled about an experiment must not find another folder, nor answer anew.

A run's name also holds its method's code, which is left out here: it changes with the method.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.calls import Generate
from kgqa.experiment.config.composing import compose
from kgqa.experiment.session.engines import Engines, Pool, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.identity import run_identity
from kgqa.experiment.session.session import Session
from kgqa.runtime.codec import call_key
from kgqa.runtime.folder import run_name
from kgqa.types import Message, Prompt

NAMES = {
    "method=trace dataset=demo experiment=quick limit=3": "6e9c7be5",
    "method=no_context dataset=demo": "7705879a",
    "method=no_context dataset=demo model=gpt_4o_mini engine=openai": "bfb002e6",
    "method=golden dataset=demo roles.reader=gpt_4o_mini@openai": "fde0797b",
    "method=knowtrace dataset=demo": "5a2c9df7",
    "method=knowtrace dataset=demo roles.reader=gpt_4o_mini@openai": "bf0ea409",
    "method=kgp dataset=demo model=qwen2_5_coder_1_5b graph=tfidf": "6851f1a6",
    "method=no_context dataset=demo engine=vllm": "4bf039a9",
    "method=safe dataset=demo method.feedback=model roles.feedback=qwen2_5_coder_1_5b@vllm": "24efe8c9",
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
        identity = {key: value for key, value in run_identity(session).items() if key != "code"}
    assert run_name(identity) == NAMES[command]


@pytest.mark.parametrize("engine", CALL_KEYS)
def test_a_call_keeps_its_key_in_the_call_cache(engine: str) -> None:
    engines = Engines(role_nodes(compose([f"engine={engine}"])), Pool())
    call = Generate(Prompt("test/name", (Message("user", "Who?"),)), 5)
    assert call_key(engines("reader").identity(), call)[:12] == CALL_KEYS[engine]
