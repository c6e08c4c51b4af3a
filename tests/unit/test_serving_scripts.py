"""Servers that the project's scripts start: for this machine alone, and only for who has the key."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROGRAM = '#!/bin/sh\necho "key=${VLLM_API_KEY-none}"\necho "$@"\necho "$MALLOC_MMAP_MAX_"\n'


def served(tmp_path: Path, *options: str, **environment: str) -> tuple[list[str], str]:
    """What the script would start: the key it is given, its words; and what it told."""
    program = tmp_path / "python"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o700)
    kept = {name: value for name, value in os.environ.items() if name != "VLLM_API_KEY"}
    command = ["bash", str(ROOT / "scripts" / "serve_vllm.sh"), "MODEL", *options]
    ran = subprocess.run(
        command, env={**kept, "PYTHON": str(program), **environment}, capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines(), ran.stderr


def test_a_server_gets_a_key_that_is_shown_once_and_stands_in_no_command(tmp_path: Path) -> None:
    (key, words, _), told = served(tmp_path)
    made = key.removeprefix("key=")
    assert re.fullmatch(r"[0-9a-f]{32}", made)
    assert told == f"runs that ask this server need: export OPENAI_API_KEY={made}\n"
    assert made not in words
    assert served(tmp_path)[0][0] != key


@pytest.mark.parametrize(("given", "key"), [("s3cret", "key=s3cret"), ("", "key=none")])
def test_a_key_of_ones_own_is_taken_and_not_shown(tmp_path: Path, given: str, key: str) -> None:
    (taken, *_), told = served(tmp_path, VLLM_API_KEY=given)
    assert (taken, told) == (key, "")


def test_a_server_listens_on_this_machine_alone(tmp_path: Path) -> None:
    (_, words, _), _ = served(tmp_path, "--host", "0.0.0.0")
    assert words.endswith("--host 127.0.0.1")
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    ports = [port for service in composed["services"].values() for port in service["ports"]]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
