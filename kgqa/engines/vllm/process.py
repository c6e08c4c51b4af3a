"""vLLM's server as a process of this run. It listens on a socket file that only this user can open."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from kgqa.errors import ConfigError, EngineDied
from kgqa.types import Json
from kgqa.util.fs import ensure_dir
from kgqa.util.places import home

POLL = 0.2  # seconds
CLOSING = 10.0  # seconds
# seconds until the server of a crashed engine has ended
ENDING = 20.0
SHOWN = 400  # characters of an error
# of a folder's path: that of a socket file has up to 103, with "/kgqa-vllm-", 8 characters, a slash and a UUID
MOST_BYTES = 47
# unless the user sets another level
QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONWARNINGS": "ignore",
}
# the key of servers that the user starts; this one would then refuse calls without it
KEY = "VLLM_API_KEY"
# a line of a log without the name of its process and the time
PREFIX = re.compile(r"^(\(\w+[^)]*\) )?([A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] )?")
ERROR = re.compile(r"^[\w.]*(Error|Exception|Exit|Interrupt): .|^[\w.-]+: error: ")


class VllmProcess:
    """vLLM's server with these options. It has no port, so other users cannot reach it.

    devices: numbers or names of the GPUs that it sees. Empty: all.
    """

    def __init__(
        self,
        options: Mapping[str, Json],
        environment: Mapping[str, str],
        devices: Sequence[int | str] = (),
    ) -> None:
        self._options, self._environment, self._devices = options, environment, devices
        # mkdtemp makes the folder with mode 0700
        self._folder = TemporaryDirectory(prefix="kgqa-vllm-", dir=_find_short_folder())
        # deleted unless something failed
        self._log = home() / "logs" / f"vllm-{os.getpid()}-{id(self)}.log"
        self._failed = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return Path(self._folder.name) / "socket"

    async def start(self) -> None:
        """Start the server and wait for it. Raise ConfigError if it does not start."""
        ensure_dir(self._log.parent)
        _allow_open_files()
        command = [sys.executable, "-m", "kgqa.engines.vllm.server", str(os.getpid())]
        command += [self._folder.name, *write_options(self._options)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - options of the configuration
                [*command, "--uds", str(self.socket)],
                env=self._build_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches only kgqa, which ends all processes of the group
                start_new_session=True,
            )
        while not self._listens():
            if self._process.poll() is not None:
                raise self._explain_start()
            await asyncio.sleep(POLL)

    async def explain_crash(self) -> EngineDied | None:
        """Return the error of a server that ends, or None if it runs on."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, ENDING)
            return EngineDied(f"vLLM crashed: {self._read_error()}")
        return None

    def stop(self) -> None:
        """End the server and all its processes, also while they are starting."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSING / 2)
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._folder.cleanup()
        if not self._failed:
            self._log.unlink(missing_ok=True)

    def _build_environment(self) -> dict[str, str]:
        visible = (
            {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self._devices))} if self._devices else {}
        )
        # a fork would lose the threads of the server
        spawn = {
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            # its processes have socket files, too
            "VLLM_RPC_BASE_PATH": self._folder.name,
        }
        inherited = {name: value for name, value in os.environ.items() if name != KEY}
        return {**QUIET, **inherited, **spawn, **self._environment, **visible}

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def _explain_start(self) -> ConfigError:
        error = self._read_error()
        if "unrecognized arguments" in error:
            return ConfigError(f"engine.extra_args: {error}")
        return ConfigError(f"engine=vllm does not start: {error}")

    def _read_error(self) -> str:
        """Return the last error of vLLM's processes, and the log file."""
        self._failed = True
        lines = [
            PREFIX.sub("", line)
            for line in self._log.read_text("utf-8", errors="replace").splitlines()
        ]
        places = [number for number, line in enumerate(lines) if ERROR.match(line)]
        if not places:
            return f"no reason given, see {self._log}"
        # an error that points to another one explains nothing
        place = next(
            (each for each in reversed(places) if "See root cause above" not in lines[each]),
            places[-1],
        )
        reason = " ".join(" ".join(lines[place : place + 4]).split())[:SHOWN]
        return f"{reason} (more in {self._log})"


def _find_short_folder() -> str:
    """Return the folder for temporary files, or /tmp if paths of socket files would be too long in it."""
    folder = gettempdir()
    return folder if len(os.fsencode(folder)) <= MOST_BYTES else "/tmp"  # noqa: S108 - mkdtemp's folder is private


def _allow_open_files() -> None:
    """Allow one connection for each parallel call. Each copy of a model has up to 1,024, the usual limit of files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def write_options(options: Mapping[str, Json]) -> Iterator[str]:
    """Return options as vLLM's command line has them. None is vLLM's default."""
    for name, value in options.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{option}" if value else f"--no-{option}"
        elif isinstance(value, list):
            yield from (f"--{option}", *map(str, value))
        elif value is not None:
            yield f"--{option}"
            yield json.dumps(value) if isinstance(value, Mapping) else str(value)
