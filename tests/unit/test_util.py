"""kgqa.util: files are written whole, locked and hashed; secrets are removed; installation commands fit."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

from kgqa.config.composing import compose
from kgqa.errors import ConfigError, StorageError
from kgqa.util import fs, optional_deps
from kgqa.util.digests import digest, ids_digest, text_digest
from kgqa.util.optional_deps import install_command
from kgqa.util.redaction import MARK, ApiKey, describe_error, is_secret, redact
from kgqa.util.text import seconds_text

HASH = "0fe09ff55fd9b43815b2339907d83d7cad91f8320ac5677102f0088817ddab64"
HOLD = """
import sys
from pathlib import Path
from kgqa.util.fs import lock_file
with lock_file(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holding(file: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until its input ends."""
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


def refuse() -> None:
    raise ConfigError("taken")


def test_lock_is_free_after_its_process_dies(tmp_path: Path) -> None:
    file = tmp_path / "below" / ".lock"
    with holding(file) as other:
        assert fs.is_locked(file)
        with pytest.raises(ConfigError, match="taken"), fs.lock_file(file, refuse):
            pytest.fail("held twice")
        other.kill()
        other.wait()
    assert not fs.is_locked(file)
    with fs.lock_file(file, refuse):
        assert fs.is_locked(file)


def test_file_is_replaced_completely_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file.txt"
    assert fs.replace_file(file, "old") == file
    with fs.replace_atomically(file) as fresh:
        fresh.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"

    def fail() -> None:
        with fs.replace_atomically(file) as fresh:
            fresh.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (file.read_text(), os.listdir(file.parent)) == ("new", ["file.txt"])


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Free disk space or set output_dir=DIR, then"),
        (errno.EACCES, "Get permission to write there or set output_dir=DIR, then"),
        (errno.EPERM, "Get permission to write there or set output_dir=DIR, then"),
        (errno.EROFS, "Make the disk writable or set output_dir=DIR, then"),
        (errno.ENOTDIR, "Name another path, or move what is there"),
    ],
    ids=["full", "no access", "not permitted", "read-only", "no folder"],
)
def test_remedy_suits_the_error_of_the_disk(number: int, remedy: str) -> None:
    with (
        pytest.raises(StorageError, match=rf"^F: {os.strerror(number)}\. {remedy}"),
        fs.explain_storage_errors(Path("F"), fs.OUT_ELSEWHERE),
    ):
        raise OSError(number, os.strerror(number))


def test_disk_error_names_the_file_and_a_fix(tmp_path: Path) -> None:
    def fill() -> None:
        with fs.replace_atomically(tmp_path / "file") as fresh:
            fresh.symlink_to("/dev/full")
            fresh.write_text("more than there is room for")

    with pytest.raises(
        StorageError, match=r"file: No space left on device\. Free disk space, then run the same"
    ):
        fill()
    assert not os.listdir(tmp_path)
    here = Path("F")
    with (
        pytest.raises(StorageError, match=r"^F: it refused\. else$"),
        fs.explain_storage_errors(here, "else"),
    ):
        raise OSError("it refused")
    with (
        pytest.raises(StorageError, match=r"^F: Read-only file system\. "),
        fs.explain_storage_errors(here),
    ):
        raise OSError(errno.EROFS, "a long story")


def test_digests_are_stable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name folders and keys of the cache."""
    value = {"b": [1, None, 2.5], "a": "Zürich"}
    assert (digest(value, 12), digest(value, 12, ensure_ascii=False)) == (
        "1e38a7aed236",
        "03edd21a5e5c",
    )
    assert (text_digest("Zürich", 16), ids_digest(["a", "b"])) == (
        "4251685e06cab635",
        "7e18f737311b2dc3",
    )
    file = fs.replace_file(tmp_path / "file", "a\udc80")
    assert file.read_bytes() == b"a\\udc80"
    assert fs.sha256(file) == fs.quick_sha256(file) == HASH


@pytest.mark.parametrize(
    ("size", "notes"),
    [pytest.param(3, 0, id="small file"), pytest.param(fs.BLOCK + 1, 2, id="large file")],
)
def test_only_hash_of_a_large_file_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, notes: int
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("KGQA_HOME", str(home))
    file = fs.replace_file(tmp_path / "weights", "a" * size)
    first = fs.quick_sha256(file)
    assert first == fs.sha256(file)
    fs.replace_file(file, "b" * size)
    assert fs.quick_sha256(file) == fs.sha256(file) != first
    assert len(list(home.rglob("*.txt"))) == notes


def test_home_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fs.replace_file(tmp_path / "weights", "a" * (fs.BLOCK + 1))
    monkeypatch.setenv("KGQA_HOME", str(file))
    assert fs.quick_sha256(file) == fs.sha256(file)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(errno.ENOSYS, id="ENOSYS"),
        pytest.param(errno.EOPNOTSUPP, id="EOPNOTSUPP"),
        pytest.param(errno.ENOLCK, id="ENOLCK"),
    ],
)
def test_disk_without_locks_is_reported_with_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fs, "network_disk", lambda _: "lustre")
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(
        StorageError, match=r"this disk \(lustre\) has no file locks.*output_dir=DIR.*KGQA_CACHE"
    ):
        fs.lock_file(tmp_path / "run" / ".lock").__enter__()
    # a lock file that stays would be another process's
    assert list((tmp_path / "run").iterdir()) == []


SECRET = "sk-or/Tr0ub4dor/and-three+more"


def test_secrets_are_known_by_name_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    key, text = ApiKey(SECRET), f"You sent {SECRET}, which is wrong."
    assert key.is_in(text)
    assert not key.is_in("You sent what is wrong.")
    body = f"You sent {MARK}, which is wrong."
    assert (key.redact(text), repr(key)) == (body, MARK)
    assert key.redact_json({"a": [text, 1, None], SECRET: {}}) == {"a": [body, 1, None], MARK: {}}
    secret = "OPENAI_API_KEY HF_TOKEN KGQA_ES_PASSWORD AWS_SECRET_ACCESS_KEY my_secret GOOGLE_APPLICATION_CREDENTIALS"
    assert all(map(is_secret, secret.split()))
    assert not any(
        map(is_secret, ["TOKENIZERS_PARALLELISM", "KGQA_DATA", "MONKEY", "SSH_KEY_FILE", "HOME"])
    )
    monkeypatch.setenv("SOME_SERVICE_PASSWORD", "correct-horse")
    message = "cannot log in with correct-horse at http://me:hunter22@host/v1?api_key=abcdefgh&n=1"
    clean = f"cannot log in with {MARK} at http://{MARK}@host/v1?api_key={MARK}&n=1"
    assert redact(message) == clean
    assert redact("{'Authorization': 'Bearer abc.def'}") == f"{{'Authorization': 'Bearer {MARK}'}}"
    assert describe_error(OSError(message)) == f"OSError: {clean}"
    assert (
        redact("write to me@host.org or see https://host/a@b")
        == "write to me@host.org or see https://host/a@b"
    )


def test_unexpected_error_has_its_place() -> None:
    with pytest.raises(AttributeError) as error:
        _ = ApiKey.leftout  # type: ignore[attr-defined]
    line = error.value.__traceback__.tb_lineno if error.value.__traceback__ else 0
    assert describe_error(error.value).endswith(
        f"has no attribute 'leftout' (tests/unit/test_util.py:{line})"
    )
    with pytest.raises(ValueError, match="Expecting value") as decoded:
        json.loads("?")
    assert re.search(r"\(tests/unit/test_util\.py:\d+\)$", describe_error(decoded.value))
    with pytest.raises(ConfigError) as foreseen:
        raise ConfigError("beam=0: must be at least 1")
    assert describe_error(foreseen.value) == "ConfigError: beam=0: must be at least 1"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        pytest.param(
            "model.name=${oc.env:OPENAI_API_KEY}", "model.name reads $OPENAI_API_KEY", id="variable"
        ),
        pytest.param(
            "model.name='a ${oc.env:OPENAI_API_KEY,none}'",
            "model.name reads $OPENAI_API_KEY",
            id="variable in a text",
        ),
        pytest.param(
            "model.name='${oc.decode:${oc.env:OPENAI_API_KEY}}'",
            "model.name reads $OPENAI_API_KEY",
            id="decoded variable",
        ),
        pytest.param(
            f"run_name='{SECRET}'", "run_name holds the value of $OPENAI_API_KEY", id="value"
        ),
        pytest.param(
            f"engine.extra_body={{user: '{SECRET}'}}",
            "engine.extra_body.user holds the value of $OPENAI_API_KEY",
            id="value in a mapping",
        ),
        pytest.param(
            "+anything=0wn-variable-of-a-server",
            "anything holds the value of $MY_SERVER",
            id="value of the engine's key",
        ),
        pytest.param(
            "engine.base_url='http://me:hunter22@host/v1'",
            "engine.base_url: an address must not contain a user name",
            id="user in an address",
        ),
        pytest.param(
            "engine.base_url='http://host/v1?api_key=hunter22'",
            "engine.base_url: an address must not contain",
            id="key in an address",
        ),
        pytest.param(
            "+anything='see postgresql://me:hunter22@host/db'",
            "anything: an address must not contain a user name",
            id="address of a database",
        ),
    ],
)
def test_secret_as_a_value_is_rejected(
    monkeypatch: pytest.MonkeyPatch, override: str, says: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("MY_SERVER", "0wn-variable-of-a-server")
    with pytest.raises(ConfigError) as refused:
        compose(["dataset=demo", "engine=openai", "engine.api_key_env=MY_SERVER", override])
    assert says in str(refused.value)
    assert not any(secret in str(refused.value) for secret in (SECRET, "0wn-variable", "hunter22"))


ROOT = Path(__file__).parents[2]
SERVE = ["bash", str(ROOT / "scripts" / "serve_vllm.sh"), "MODEL"]
PROGRAM = '#!/bin/sh\necho "key=${VLLM_API_KEY-none}"\necho "$@"\necho "$MALLOC_MMAP_MAX_"\n'


def served(tmp_path: Path, *options: str, **environment: str) -> tuple[list[str], str]:
    """What the script would start: the key it is given, its words; and what it told."""
    program = tmp_path / "python"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o700)
    variables = {name: value for name, value in os.environ.items() if name != "VLLM_API_KEY"}
    variables |= {"PYTHON": str(program), **environment}
    ran = subprocess.run(
        [*SERVE, *options], env=variables, capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines(), ran.stderr


def test_server_is_local_and_hides_its_key(tmp_path: Path) -> None:
    (key, words, _), output = served(tmp_path, "--host", "0.0.0.0")
    assert words.endswith("--host 127.0.0.1")
    secret = key.removeprefix("key=")
    assert re.fullmatch(r"[0-9a-f]{32}", secret)
    assert output == f"runs that ask this server need: export OPENAI_API_KEY={secret}\n"
    assert secret not in words
    assert served(tmp_path)[0][0] != key


@pytest.mark.parametrize(
    ("variable", "line"), [("s3cret", "key=s3cret"), ("", "key=none")], ids=["own key", "no key"]
)
def test_own_key_of_a_server_is_not_shown(variable: str, line: str, tmp_path: Path) -> None:
    (own, *_), output = served(tmp_path, VLLM_API_KEY=variable)
    assert (own, output) == (line, "")


@pytest.mark.parametrize(
    "option", [["--api-key", SECRET], [f"--api-key={SECRET}"]], ids=["two words", "one word"]
)
def test_key_on_the_command_line_is_rejected(option: list[str]) -> None:
    process = subprocess.run([*SERVE, *option], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "set VLLM_API_KEY" in process.stderr
    assert SECRET not in process.stderr


def test_containers_listen_on_this_machine_only() -> None:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    ports = [port for service in composed["services"].values() for port in service["ports"]]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_command_fits_the_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / ".venv/bin"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(optional_deps, "__file__", str(tmp_path / "kgqa/util/optional_deps.py"))
    monkeypatch.setattr(optional_deps, "find_spec", lambda _: object())
    for is_clone, pip, command in [
        (False, programs / "pip", "pip install 'kgqa[pdf]'"),
        (True, programs / "pip", "pip install -e '.[pdf]'"),
        (True, "/bin/pip", ".venv/bin/python -m pip install -e '.[pdf]'"),
    ]:
        if is_clone:
            (tmp_path / "pyproject.toml").touch()
        monkeypatch.setattr(shutil, "which", lambda _, pip=pip: str(pip))
        assert install_command("pdf") == command
    # an environment of uv has no pip
    monkeypatch.setattr(optional_deps, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "executable", "/tools/kgqa/bin/python")
    assert install_command("pdf") == "uv pip install --python /tools/kgqa/bin/python -e '.[pdf]'"


def test_folder_in_place_of_a_file_is_no_full_disk(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    message = r"report\.html: Is a directory\. Name another path, or move what is there"
    with pytest.raises(StorageError, match=message):
        fs.replace_file(tmp_path / "report.html", "text")


@pytest.mark.parametrize("name", ["null", "stdout", "../dev/full"])
def test_device_is_never_replaced(name: str) -> None:
    """The path that is moved there does not exist, so that a failure of this test breaks no device."""
    device = Path("/dev") / name
    with (
        pytest.raises(StorageError, match=f"{name}: a device. Name a file"),
        fs.replace_atomically(device),
    ):
        pass
    assert device.exists()


def test_file_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    start = f"report[1].html.{socket.gethostname()}-"
    left, running, other = (
        tmp_path / f"{start}{process}.new" for process in (ended.pid, os.getppid(), "x")
    )
    for file in (left, running, other):
        file.write_text("half")
    fs.replace_file(tmp_path / "report[1].html", "complete")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "report[1].html", running, other])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.0123, "12 ms"),
        (0.0996, "100 ms"),
        (0.1, "0.1 s"),
        (1234.56, "1,234.6 s"),
    ],
)
def test_short_latency_is_in_milliseconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
