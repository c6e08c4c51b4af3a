"""Unknown keys and API keys are rejected, on the command line and in presets."""

from __future__ import annotations

import string
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgqa.config.composing import check_known_keys, compose
from kgqa.config.settings import RunSettings
from kgqa.errors import ConfigError, UsageError
from kgqa.experiment.experiment import Experiment

KEYS = {
    "openai": "sk-proj-4fKq0ZBvR7mN2xW8yT1cL5hJ",
    "anthropic": "sk-ant-api03-4fKq0ZBvR7mN2xW8yT1cL5hJ",
    "hugging face": "hf_" + "aB3" * 12,
    "github": "ghp_" + "aB3" * 12,
    "groq": "gsk_" + "aB3" * 12,
    "google": "AIza" + "aB3-_" * 7,
    "aws": "AKIA" + "ABC7" * 4,
    "bearer": "Bearer abcdefghij0123456789",
}
NO_KEYS = (
    "data/task-1234567890123456789012.jsonl",
    "sk-learn",
    "hf_tokenizer",
    "outputs/disk-2/run-1234567890abcdef1234",
)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+limitt=3", "limitt=3: unknown key. Did you mean limit"),
        ("+samples=3", "samples=3: unknown key. Did you mean sample"),
        ("+retreiver.k1=3", "retreiver: unknown key. Did you mean retriever"),
        ("+roles.raeder=qwen3_8b", "roles.raeder=qwen3_8b: unknown key. Did you mean roles.reader"),
        ("+kg.require_exist=true", "kg.require_exist=True: unknown key. Did you mean require_existing"),
        ("+kg.path=x", "kg.path=x: unknown key"),
        ("+reranker.a=1", "reranker: no preset is chosen"),
        ("+retriever.k2=1", "retriever.k2=1: unknown key. Choose from: fields"),
        ("+engine.base_ulr=1", "engine.base_ulr=1: unknown key"),
        ("+hydra.foo=1", "works only with kgqa run -m and kgqa reproduce"),
    ],
)
def test_unknown_key_with_plus_is_rejected(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        compose(["method=no_context", override])
    assert message in str(error.value)


def test_known_key_with_plus_is_accepted() -> None:
    assert compose(["+limit=3", "++dataset.verified=null"])["limit"] == 3


@pytest.fixture
def own_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    return tmp_path / "conf"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("limitt: 3", "conf/experiment/mine.yaml: limitt=3: unknown key. Did you mean limit"),
        ("samples: 3", "conf/experiment/mine.yaml: samples=3: unknown key"),
        ("retreiver: {k1: 1}", "conf/experiment/mine.yaml: retreiver: unknown key. Did you mean retriever"),
        ("method: {baem: 3}", "conf/experiment/mine.yaml: method.baem=3: unknown key. Did you mean beam"),
        ("retriever: {k2: 3}", "conf/experiment/mine.yaml: retriever.k2=3: unknown key"),
        ("kg: {require_exist: true}", "conf/experiment/mine.yaml: kg.require_exist=True: unknown key"),
        ("roles: {raeder: qwen3_8b}", "conf/experiment/mine.yaml: roles.raeder=qwen3_8b: unknown key"),
        ("sweep: {name: x}", "conf/experiment/mine.yaml: sweep: unknown key"),
        ("hydra: {launcher: {n_jobs: 2}}", "conf/experiment/mine.yaml: hydra: "),
    ],
)
def test_unknown_key_in_preset_is_rejected(lines: str, message: str, own_conf: Path) -> None:
    (own_conf / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{lines}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        compose(["experiment=mine"])
    assert message in str(error.value)


@pytest.mark.parametrize("name", KEYS)
def test_api_key_as_value_is_rejected_and_not_repeated(name: str, own_conf: Path) -> None:
    (own_conf / "experiment" / "mine.yaml").write_text(
        f"# @package _global_\nengine: {{extra_body: {{user: '{KEYS[name]}'}}}}\n", encoding="utf-8"
    )
    for overrides in (
        [f"+openai_api_key='{KEYS[name]}'"],
        [f"run_nam='{KEYS[name]}'"],
        ["experiment=mine", "engine=openai"],
    ):
        with pytest.raises(ConfigError, match=r"looks like an API key") as error:
            compose(overrides)
        assert KEYS[name] not in str(error.value)


@pytest.mark.parametrize("value", NO_KEYS)
def test_value_without_key_is_accepted(value: str) -> None:
    assert compose([f"output_dir='{value}'"])["output_dir"] == value


@settings(max_examples=50)
@given(st.text(string.ascii_lowercase + "_", min_size=1, max_size=12))
def test_no_unknown_root_key_is_accepted(name: str) -> None:
    config = compose_default()
    if name not in config:
        with pytest.raises(ConfigError, match=r"unknown key|is now"):
            check_known_keys({name: 1, **config}, config["choices"])


@settings(max_examples=15)
@given(
    group=st.sampled_from(["method", "dataset", "model", "engine", "kg", "retriever", "ranker", "judge", "roles"]),
    name=st.text(string.ascii_lowercase + "_", min_size=1, max_size=12),
)
def test_no_unknown_key_of_a_group_is_accepted(group: str, name: str) -> None:
    known = compose_default().get(group) or {}
    if name not in known:
        for plus in ("", "+"):
            with pytest.raises(ConfigError) as error:
                Experiment.of([f"{plus}{group}.{name}=1", "engine=scripted"])
            assert group in str(error.value)


@cache
def compose_default() -> dict[str, Any]:
    config = compose([])
    check_known_keys({key: config[key] for key in config if key != "choices"}, config["choices"])
    return config


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BOMB.encode(), "conf/experiment/mine.yaml: 72 aliases (*name), the maximum is 20"),
        ("limit: 3 # é\n".encode("utf-16"), "conf/experiment/mine.yaml: not UTF-8"),
        ("limit: 3 # é\n".encode("latin-1"), "conf/experiment/mine.yaml: not UTF-8"),
        (b"seed: 1\nlimit: ??? # later\n", "conf/experiment/mine.yaml:2: limit: a value is missing"),
        (b"defaults:\n  - mine\n", "a file names itself in its defaults"),
    ],
)
def test_file_that_no_run_can_use_is_named(content: bytes, message: str, own_conf: Path) -> None:
    (own_conf / "experiment" / "mine.yaml").write_bytes(content)
    with pytest.raises(UsageError) as error:
        compose(["experiment=mine"])
    assert message in str(error.value)


def test_preset_without_its_package_line_is_refused(own_conf: Path) -> None:
    (own_conf / "experiment" / "mine.yaml").write_text("limit: 2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.yaml: its keys have no effect\. Put '# @package _global_'"):
        compose(["experiment=mine"])
    (own_conf / "experiment" / "mine.yaml").write_text("# @package _global_\nlimit: 2\n", encoding="utf-8")
    assert compose(["experiment=mine"])["limit"] == 2


@pytest.mark.parametrize("folder", ["/", "/tmp/..", str(Path.home())])
def test_root_and_home_are_no_folder_of_a_run(folder: str) -> None:
    with pytest.raises(ConfigError, match="a run needs its own folder"):
        RunSettings.of(compose([f"output_dir={folder}"]))
    with pytest.raises(ConfigError, match=r"a value is missing\. Set limit=VALUE"):
        compose(["limit=???"])
