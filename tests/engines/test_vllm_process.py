"""vLLM's process and the requests to it, with a stand-in for vLLM."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.openai.connection import Connection
from kgqa.engines.openai.text_protocol import COMPLETIONS
from kgqa.engines.openai.transport import Transport
from kgqa.engines.vllm.engine import ADDRESS, POLICY
from kgqa.engines.vllm.process import VllmProcess, write_options
from kgqa.errors import ConfigError, ServerLost
from tests.engines.vllm_stand_in import write_package

MODEL = {"model": "weights", "served_model_name": "m"}


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., VllmProcess]:
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    environment = write_package(tmp_path)
    return lambda devices=(), **options: VllmProcess({**MODEL, **options}, environment, devices)


async def complete(process: VllmProcess, prompt: str) -> str:
    transport = Transport(ADDRESS, None, POLICY, socket=process.socket)
    connection = Connection(transport, "vllm", "m", 1000)
    try:
        await connection.connect()
        assert connection.context == 512
        response = await connection.complete(COMPLETIONS, {"prompt": prompt, "max_tokens": 1})
        return str(response.reply.text)
    finally:
        await transport.close()


async def run(process: VllmProcess, prompt: str) -> str:
    try:
        await process.start()
        return await complete(process, prompt)
    finally:
        process.stop()


@pytest.mark.parametrize(
    ("devices", "visible"),
    [((2, 3), "2,3"), (("GPU-5a", "MIG-1b"), "GPU-5a,MIG-1b")],
    ids=["numbers", "names"],
)
def test_process_sees_only_its_devices(
    start: Any, devices: tuple[int | str, ...], visible: str
) -> None:
    assert asyncio.run(run(start(devices), "hello")) == visible


def test_key_of_other_servers_is_not_required(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    assert asyncio.run(run(start([0]), "hello")) == "0"


def test_socket_is_in_a_private_folder(start: Any) -> None:
    process = start()
    assert process.socket.parent.stat().st_mode & 0o077 == 0
    process.stop()
    assert not process.socket.parent.exists()


def test_folder_for_files_can_be_deep(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("deep" * 25)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert asyncio.run(run(start([0]), "hello")) == "0"


def test_two_servers_run_side_by_side(start: Any) -> None:
    async def both() -> list[str]:
        return [*await asyncio.gather(run(start([0]), "a"), run(start([1]), "b"))]

    assert asyncio.run(both()) == ["0", "1"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model": "broken"}, "engine=vllm does not start: ValueError: no such quantization"),
        ({"nonsense": 1}, "engine.extra_args: .*--nonsense"),
    ],
    ids=["error of vLLM", "unknown option"],
)
def test_failed_start_names_the_reason(start: Any, options: dict[str, Any], reason: str) -> None:
    process = start(**options)
    with pytest.raises(ConfigError, match=reason):
        asyncio.run(run(process, "hello"))


def test_crash_ends_the_calls_and_not_the_run(start: Any) -> None:
    process = start()

    async def crash() -> Any:
        await process.start()
        with pytest.raises(ServerLost):
            await complete(process, "crash")
        return await process.explain_crash()

    error = asyncio.run(crash())
    process.stop()
    assert "vLLM crashed" in str(error)


def test_crash_is_no_error_of_a_call(start: Any) -> None:
    process = start()

    async def crash() -> list[Any]:
        await process.start()
        transport = Transport(ADDRESS, None, POLICY, socket=process.socket)
        connection = Connection(transport, "vllm", "m", 1000)
        await connection.connect()
        request = partial(connection.complete, COMPLETIONS)
        waiting = asyncio.create_task(request({"prompt": "wait", "max_tokens": 1}))
        await request({"prompt": "hello", "max_tokens": 1})
        crashing = request({"prompt": "crash", "max_tokens": 1})
        try:
            return [*await asyncio.gather(waiting, crashing, return_exceptions=True)]
        finally:
            await transport.close()

    errors = asyncio.run(crash())
    process.stop()
    # another call was answered meanwhile
    assert [type(error) for error in errors] == [ServerLost, ServerLost]


@pytest.mark.slow
def test_killed_run_takes_its_server_along(tmp_path: Path) -> None:
    environment = {**os.environ, **write_package(tmp_path), "KGQA_HOME": str(tmp_path)}
    program = (
        "import asyncio, os; from kgqa.engines.vllm.process import VllmProcess\n"
        f"process = VllmProcess({MODEL}, {{}})\n"
        "asyncio.run(process.start())\n"
        "print(process._process.pid, process.socket, flush=True)\n"
        "input()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        server, socket = parent.stdout.readline().split()
        parent.kill()
    wait_for_end(int(server))
    assert not Path(socket).parent.exists()


def test_server_of_an_ended_run_ends(tmp_path: Path) -> None:
    environment = {**os.environ, **write_package(tmp_path)}
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder = tmp_path / "sockets"
    folder.mkdir()
    command = [sys.executable, "-m", "kgqa.engines.vllm.server", str(ended.pid), str(folder)]
    server = subprocess.Popen(
        [*command, "--uds", str(folder / "socket")], env=environment, start_new_session=True
    )
    assert server.wait(30) < 0


def wait_for_end(process: int) -> None:
    deadline = time.monotonic() + 30
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(process)


def is_alive(process: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def test_options_are_written_as_vllm_reads_them() -> None:
    options = {
        "model": "m",
        "dtype": None,
        "enable_lora": True,
        "enforce_eager": False,
        "config": {"a": 1},
    }
    written = [*write_options({**options, "lora_modules": ["a=b", "c=d"]})]
    assert written == [
        "--model", "m", "--enable-lora", "--no-enforce-eager", "--config", '{"a": 1}', "--lora-modules", "a=b", "c=d",
    ]  # fmt: skip
