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
from kgqa.experiment.composing import choose_nodes, compose_experiment
from kgqa.experiment.engines import Engines, Pool, role_nodes
from kgqa.experiment.experiment import RANKERS
from kgqa.experiment.identity import identify
from kgqa.experiment.session import Session
from kgqa.identity.component import identity_of
from kgqa.runtime.folder import run_name
from kgqa.types import Message, Prompt

# otherwise the best that is installed
HERE = "model=smollm2_135m engine=llamacpp"
NAMES = {
    f"method=trace dataset=demo experiment=quick limit=3 {HERE}": "943b1f38",
    f"method=no_context dataset=demo {HERE}": "b3ea421e",
    "method=no_context dataset=demo model=gpt_4o_mini engine=openai": "55d9fa66",
    f"method=golden dataset=demo roles.reader=gpt_4o_mini@openai {HERE}": "d527d21a",
    f"method=knowtrace dataset=demo {HERE}": "1bc02e4e",
    f"method=knowtrace dataset=demo roles.reader=gpt_4o_mini@openai {HERE}": "1cde1c50",
    "method=kgp dataset=demo model=qwen2_5_coder_1_5b graph=tfidf": "2c8d3d47",
    "method=no_context dataset=demo model=smollm2_135m engine=vllm": "9d51eaff",
    f"method=safe dataset=demo method.feedback=model roles.feedback=qwen2_5_coder_1_5b@vllm {HERE}": "8887109a",
}
CALL_KEYS = {
    "llamacpp": "bb38a04dae97",
    "scripted": "58d9c7aebb0e",
    "transformers": "49b9cd916add",
    "vllm": "1cfbe0eb6c89",
}


@pytest.mark.parametrize("command", NAMES)
def test_a_run_keeps_its_name(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Session(compose_experiment(command.split())) as session:
        identity = {
            key: value for key, value in identify(session.experiment).items() if key != "code"
        }
    identity = {key: value for key, value in identity.items() if key not in RANKERS}
    assert run_name(identity) == NAMES[command]


@pytest.mark.parametrize("engine", CALL_KEYS)
def test_a_call_keeps_its_key_in_the_call_cache(engine: str) -> None:
    engines = Engines(role_nodes(compose([f"engine={engine}"]), choose_nodes), Pool())
    call = Generate(Prompt("test/name", (Message("user", "Who?"),)), 5)
    assert cache_key(identity_of(engines("reader")), call)[:12] == CALL_KEYS[engine]
