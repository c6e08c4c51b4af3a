"""Engines by role, with and without adapters: what a choice finds, what tells it apart, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.run import AS_READER
from kgqa.calls import Generate
from kgqa.config.composing import compose
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.composing import choose_nodes
from kgqa.experiment.engines import Engines, Pool, role_nodes
from kgqa.identity.component import identity_of
from kgqa.system.models import find_adapter
from kgqa.types import Message, Prompt
from tests.adapters_for_tests import write_artefact, write_lora
from tests.unit.files import write

CALL = Generate(Prompt("test/adapters", (Message("user", "Who is it?"),)), 8)
pytestmark = pytest.mark.usefixtures("own_folder")


def engines(*overrides: str) -> Engines:
    return Engines(role_nodes(compose(["engine=scripted", *overrides]), choose_nodes), Pool())


def test_adapter_is_newest_training_or_peft_folder() -> None:
    older, newer = (
        write_artefact(Path(f"outputs/trained/safe/{name}"), "x", "0", seed=n)
        for n, name in enumerate("ba")
    )
    os.utime(older / "manifest.json", (1, 1))
    (Path("outputs/trained/safe/c") / "checkpoints").mkdir(parents=True)
    assert find_adapter("safe").folder == newer.absolute() / "adapter"
    assert find_adapter("safe/b").folder == older.absolute() / "adapter"
    assert find_adapter("safe").trained_on() == ("x", ("0",))
    assert find_adapter("safe").gguf == newer.absolute() / "adapter.gguf"
    folder = write_lora(Path("mine"), rank=2, lora_alpha=6)
    assert find_adapter(str(folder.absolute())).digest() == find_adapter("mine").digest()
    assert find_adapter("mine").trained_on() == (None, ())
    adapter = find_adapter("mine")
    assert (adapter.rank, adapter.alpha, adapter.gguf.name) == (2, 6.0, "adapter.gguf")
    assert find_adapter("mine").matrices()["model.layers.1.self_attn.q_proj.lora_A"].shape == (
        2,
        64,
    )


def test_a_preset_names_its_folder_and_what_it_must_be() -> None:
    write_lora(Path("mine"))
    preset = write("conf/adapter/ours.yaml", "path: mine\nbase: qwen3_8b\nserved_name: lora-1\n")
    ours = find_adapter("ours")
    assert ours.digest() == find_adapter("mine").digest()
    assert (ours.trained_on(), ours.served_name) == (("qwen3_8b", ()), "lora-1")
    preset.write_text(f"path: mine\nsha256: {'b' * 64}\n")
    with pytest.raises(DataError, match=r"adapter ours: sha256 of .* is"):
        find_adapter("ours").digest()
    preset.write_text("path: mine\nrank: 4\n")
    with pytest.raises(ConfigError, match=r"adapter.rank=4: unknown key"):
        find_adapter("ours")
    preset.write_text(f"path: null\nsha256: {'a' * 64}\n")
    assert find_adapter("ours").digest() == "a" * 64


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        pytest.param(
            "smollm2_135m+saef",
            r"^roles.reader=smollm2_135m\+saef: no adapter saef: .*Did you mean safe\?$",
            id="unknown name",
        ),
        pytest.param(
            "smollm2_135m+",
            r"^roles.reader=smollm2_135m\+: no adapter after the \+. Add its name or folder$",
            id="no name",
        ),
        pytest.param(
            "+unfinished", "no adapter unfinished: not in conf/adapter", id="unfinished training"
        ),
        pytest.param(
            "+t5",
            "complete weights, not an adapter. Use them as PRESET:.*t5/ab/model",
            id="complete weights",
        ),
        pytest.param("+half", r"no adapter half: not in conf/adapter", id="half a folder"),
    ],
)
def test_invalid_adapter_is_rejected_with_its_key(choice: str, message: str) -> None:
    write_artefact(Path("outputs/trained/safe/ab"), "x", "0")
    for folder in ("outputs/trained/t5/ab/model", "half"):
        Path(folder).mkdir(parents=True)
    for file in ("unfinished/ab/settings.json", "t5/ab/manifest.json"):
        write(f"outputs/trained/{file}", {})
    with pytest.raises(ConfigError, match=message):
        engines(f"roles.reader={choice}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"use_dora": True}, "use_dora"), ({"peft_type": "IA3"}, "peft_type IA3")],
    ids=["dora", "ia3"],
)
def test_adapter_that_is_more_than_lora_is_rejected(settings: dict[str, Any], message: str) -> None:
    write_lora(Path("mine"), **settings)
    with pytest.raises(ConfigError, match=f"adapter mine: {message} in .* is more than plain LoRA"):
        find_adapter("mine").check_plain()


def test_roles_share_weights_and_keep_separate_keys() -> None:
    write_lora(Path("one"), seed=1)
    write_lora(Path("two"), seed=2)
    asked = engines(
        "roles.selector=+one", "roles.feedback=+two", "roles.agent=smollm2_135m+one@scripted"
    )
    reader, one, two, again = (asked(role) for role in ("reader", "selector", "feedback", "agent"))
    assert one.base is two.base is reader  # type: ignore[attr-defined]
    assert again is one
    identities = [identity_of(engine) for engine in (one, two)]
    assert identities == [
        {**identity_of(reader), "lora": find_adapter(name).digest()} for name in ("one", "two")
    ]
    assert [asked.label(role) for role in ("reader", "selector", "agent")] == [
        "smollm2_135m@scripted", "smollm2_135m+one@scripted", "smollm2_135m+one@scripted"
    ]  # fmt: skip
    alone = engines("roles.reader=+one")("reader")
    told_apart: list[Any] = [reader, one, two, alone]
    replies = [engine.answer([CALL])[0].text for engine in told_apart]
    assert (len(set(replies[:3])), replies[1]) == (3, replies[3])
    asked.discard([one])
    assert asked("reader") is not reader
    assert asked("feedback") is not two


def test_training_role_falls_back_to_reader_model() -> None:
    arguments = ["engine=scripted", "roles.reader=gpt_4o_mini@scripted"]
    pool = Pool()
    with_reader = Engines(role_nodes(compose(arguments), choose_nodes), pool)
    roles = [f"roles.{role}=qwen3_4b@scripted" for role in AS_READER]
    own = Engines(role_nodes(compose([*arguments, *roles]), choose_nodes), pool)
    assert with_reader("reader") is not with_reader("selector")
    assert [role for role in AS_READER if with_reader(role) is not with_reader("reader")] == []
    assert [own.label(role) for role in AS_READER] == ["qwen3_4b@scripted"] * len(AS_READER)
    assert own("reader") is with_reader("reader")
