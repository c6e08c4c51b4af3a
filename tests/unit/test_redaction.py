"""Keys and passwords: found in any spelling, left out of what is said, refused as values."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from kgqa.config.composing import compose
from kgqa.errors import ConfigError
from kgqa.util.redaction import MARK, Key, describe_error, is_secret, redact

SECRET = "sk-or/Tr0ub4dor/and-three+more"


def test_api_key_is_found_and_removed() -> None:
    key, text = Key(SECRET), f"You sent {SECRET}, which is wrong."
    assert key.is_in(text)
    assert not key.is_in("You sent what is wrong.")
    shown = f"You sent {MARK}, which is wrong."
    assert key.redact(text) == shown
    assert repr(key) == MARK
    assert key.redact_json({"a": [text, 1, None], SECRET: {}}) == {"a": [shown, 1, None], MARK: {}}


@pytest.mark.parametrize(
    ("variable", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("HF_TOKEN", True),
        ("KGQA_ES_PASSWORD", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("my_secret", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("KGQA_DATA", False),
        ("MONKEY", False),
        ("SSH_KEY_FILE", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("HOME", False),
    ],
)
def test_the_name_of_a_variable_says_whether_it_is_secret(variable: str, secret: bool) -> None:
    assert is_secret(variable) is secret


def test_an_error_that_nobody_foresaw_has_its_place_beside_its_words() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = Key.leftout  # type: ignore[attr-defined]
    line = caught.value.__traceback__.tb_lineno if caught.value.__traceback__ else 0
    assert describe_error(caught.value).endswith(f"has no attribute 'leftout' (tests/unit/test_redaction.py:{line})")
    with pytest.raises(ValueError, match="Expecting value") as decoded:
        json.loads("?")
    assert re.search(r"\(tests/unit/test_redaction\.py:\d+\)$", describe_error(decoded.value))
    with pytest.raises(ConfigError) as foreseen:
        raise ConfigError("beam=0: must be at least 1")
    assert describe_error(foreseen.value) == "ConfigError: beam=0: must be at least 1"


def test_lines_and_errors_leave_without_the_environments_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SERVICE_PASSWORD", "correct-horse")
    message = "cannot log in with correct-horse at http://me:hunter22@host/v1?api_key=abcdefgh&n=1"
    clean = f"cannot log in with {MARK} at http://{MARK}@host/v1?api_key={MARK}&n=1"
    assert redact(message) == clean
    assert redact("{'Authorization': 'Bearer abc.def'}") == f"{{'Authorization': 'Bearer {MARK}'}}"
    assert describe_error(OSError(message)) == f"OSError: {clean}"
    assert redact("write to me@host.org or see https://host/a@b") == "write to me@host.org or see https://host/a@b"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.name=${oc.env:OPENAI_API_KEY}", "model.name reads $OPENAI_API_KEY"),
        ("model.name='a ${oc.env:OPENAI_API_KEY,none}'", "model.name reads $OPENAI_API_KEY"),
        ("model.name='${oc.decode:${oc.env:OPENAI_API_KEY}}'", "model.name reads $OPENAI_API_KEY"),
        ("output_dir=${oc.env:OPENAI_API_KEY}", "output_dir reads $OPENAI_API_KEY"),
        (f"run_name='{SECRET}'", "run_name holds the value of $OPENAI_API_KEY"),
        (f"+anything='before {SECRET} behind'", "anything holds the value of $OPENAI_API_KEY"),
        (f"engine.extra_body={{user: '{SECRET}'}}", "engine.extra_body.user holds the value of $OPENAI_API_KEY"),
        ("+anything=0wn-variable-of-a-server", "anything holds the value of $MY_SERVER"),
        (f"limit='{SECRET}'", "limit holds the value of $OPENAI_API_KEY"),
        (
            "engine.base_url='http://me:hunter22@host/v1'",
            "engine.base_url: an address must not contain a user name",
        ),
        ("engine.base_url='http://host/v1?api_key=hunter22'", "put the key into the variable that engine.api_key_env"),
        (
            "+anything='see postgresql://me:hunter22@host/db'",
            "anything: an address must not contain a user name",
        ),
    ],
)
def test_a_secret_as_a_value_is_refused_and_not_repeated(
    override: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("MY_SERVER", "0wn-variable-of-a-server")
    with pytest.raises(ConfigError) as refused:
        compose(["dataset=demo", "engine=openai", "engine.api_key_env=MY_SERVER", override])
    assert says in str(refused.value)
    assert not any(secret in str(refused.value) for secret in (SECRET, "0wn-variable", "hunter22"))


def test_a_key_of_vllms_server_goes_by_the_environment_not_by_the_list_of_processes() -> None:
    script = Path(__file__).parents[2] / "scripts" / "serve_vllm.sh"
    for words in (["--api-key", SECRET], [f"--api-key={SECRET}"]):
        ran = subprocess.run(["bash", str(script), "model", *words], capture_output=True, text=True, check=False)
        assert ran.returncode == 2
        assert "set VLLM_API_KEY" in ran.stderr
        assert SECRET not in ran.stderr
