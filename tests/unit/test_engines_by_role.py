"""`Engines`: what each call and each second asks for is built once."""

from __future__ import annotations

import pytest

from kgqa.artifacts.run import AS_READER
from kgqa.config.composing import compose
from kgqa.experiment.engines import Engines, Pool, RoleBinding, role_nodes


def opened(pool: Pool) -> Engines:
    config = compose(["engine=scripted", "model=gpt_4o_mini"])
    return Engines({"": RoleBinding(config["model"], config["engine"])}, pool)


def test_roles_share_an_engine_until_it_is_discarded() -> None:
    pool = Pool()
    engines = opened(pool)
    first = engines("reader")
    assert engines("selector") is engines("reader") is opened(pool)("agent") is first
    engines.discard([first])
    assert engines("reader") is not first


@pytest.mark.parametrize("role", AS_READER)
def test_a_role_of_training_falls_back_to_the_readers_model(role: str) -> None:
    given = ["engine=scripted", "roles.reader=gpt_4o_mini@scripted"]
    with_reader = Engines(role_nodes(compose(given)), Pool())
    assert with_reader(role) is with_reader("reader") is not with_reader("selector")
    own = Engines(role_nodes(compose([*given, f"roles.{role}=qwen3_4b@scripted"])), Pool())
    assert own.label(role) == "qwen3_4b@scripted"
