"""vLLM's asynchronous engine and the thread that talks to it. The model itself lives in processes of vLLM's own."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kgqa.engines.openmp import let_waiting_threads_sleep
from kgqa.engines.vllm.worker import LOG, RUN
from kgqa.errors import ConfigError, EngineDied, EngineError
from kgqa.util.fs import ensure_dir, home

T = TypeVar("T")
Output = Any  # vllm.RequestOutput; vLLM is imported late and not checked
CLOSING = 10.0  # seconds that closing may take before the processes are killed
QUIET = {  # unless the user wants to hear more
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONWARNINGS": "ignore",
}

_STARTING = threading.Lock()  # environment variables are the whole process's: one engine starts at a time


class Lora(NamedTuple):
    """An adapter as vLLM is told of it. `number`: from 1, its own among all that this engine is asked with."""

    number: int
    folder: str


@dataclass(frozen=True)
class LoopSettings:
    """The settings to start a vLLM engine with."""

    arguments: Mapping[str, Any]  # of vLLM's AsyncEngineArgs
    environment: Mapping[str, str]  # what vLLM takes from environment variables only


class VllmLoop:
    """One engine, started by the first call. `run` and `close` may be used from any thread."""

    def __init__(self, prepare: Callable[[], LoopSettings]) -> None:
        self._prepare = prepare  # may take its time
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._engine: Any = None
        self._started: asyncio.Task[None] | None = None
        self._asked = 0
        self._log = home() / "logs" / f"vllm-{os.getpid()}-{id(self)}.log"  # kept only where something failed
        self._failed = False
        self._thread = threading.Thread(target=self._serve, name="vllm", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], done: Callable[[asyncio.Task[T]], None]) -> None:
        """Have the loop do the work; `done` gets the finished task, or the cancelled one when the engine is closed."""

        def spawn() -> None:
            task = self._loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(done)

        with self._lock:
            if self._closed:
                work.close()
                raise EngineDied("the engine is closed")
            self._loop.call_soon_threadsafe(spawn)

    async def ready(self) -> None:
        """Start the engine, or wait for whoever does; its failure is everybody's."""
        if self._started is None:
            self._started = self._loop.create_task(self._start())
        await asyncio.shield(self._started)

    async def ask(self, prompt: Sequence[int], lora: Lora | None, **sampling: Any) -> Output:
        """Run one request to its end. `sampling` are the settings of vLLM's SamplingParams."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        self._asked += 1
        parameters = SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **sampling)
        request = {"type": "token", "prompt_token_ids": list(prompt)}
        try:
            adapter = LoRARequest(f"kgqa-{lora.number}", lora.number, lora.folder) if lora else None
            replies = self._engine.generate(request, parameters, f"kgqa-{self._asked}", lora_request=adapter)
            output = [reply async for reply in replies][-1]
        except EngineDeadError as error:
            raise EngineDied(f"vLLM's engine died: {self._last_words()}") from error
        if output.outputs[0].finish_reason not in ("stop", "length"):
            raise EngineError(f"vLLM gave the call up: {output.outputs[0].finish_reason}")
        return output

    async def beside(self, work: Callable[..., T], *given: Any) -> T:
        """Do something slow in another thread, so that no other call waits for it."""
        return await self._loop.run_in_executor(None, work, *given)

    def close(self) -> None:
        """Drop all requests and end vLLM's processes, also while they are starting."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._stop()))
        deadline = time.monotonic() + CLOSING
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._engine is None:  # starting blocks the loop until its processes are gone
                self._kill()
            self._thread.join(0.1)

    def _serve(self) -> None:
        # vLLM's processes inherit this thread's mask: Ctrl-C reaches this process alone, which ends them in order.
        # The resource tracker comes first, because starting it later would unblock the signal.
        from multiprocessing import resource_tracker

        with _environment({}):
            resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _start(self) -> None:
        let_waiting_threads_sleep()
        warnings.filterwarnings("ignore", module="vllm")  # for good: another thread's filters cannot be put back
        settings = await self.beside(self._prepare)
        ensure_dir(self._log.parent)
        with _environment({**settings.environment, RUN: str(os.getpid()), LOG: str(self._log)}):
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            try:
                config = AsyncEngineArgs(**settings.arguments).create_engine_config()
            except (ValueError, OSError, NotImplementedError) as error:
                raise ConfigError(f"engine=vllm: {_one_line(error)}") from error
            if self._closed:
                raise EngineDied("the engine is closed")
            try:
                self._engine = AsyncLLM.from_vllm_config(config)
            except (RuntimeError, ValueError, OSError) as error:
                raise ConfigError(f"engine=vllm does not start: {self._last_words()}") from error
        if "VLLM_LOGGING_LEVEL" not in os.environ:
            logging.getLogger("vllm").setLevel(logging.CRITICAL)  # our own errors say what is worth saying

    async def _stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._engine is not None:
            self._engine.shutdown(timeout=5)
            self._engine = None
        if not self._failed:
            self._log.unlink(missing_ok=True)
        self._loop.stop()

    def _kill(self) -> None:
        """End the processes that vLLM has started for this engine; those below them end with them."""
        for child in multiprocessing.active_children():
            with suppress(OSError):  # it is gone
                if f"{LOG}={self._log}".encode() in Path(f"/proc/{child.pid}/environ").read_bytes().split(b"\0"):
                    child.kill()

    def _last_words(self) -> str:
        """Return the last error that vLLM's processes wrote, and where to read more."""
        self._failed = True
        written = self._log.read_text(encoding="utf-8", errors="replace") if self._log.is_file() else ""
        errors = re.findall(r"\b(\w+(?:Error|Exception|Exit|Interrupt): .+)", written)
        return f"{errors[-1]} (more in {self._log})" if errors else f"no reason given; see {self._log}"


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Yield environment variables for vLLM and the processes it starts meanwhile; afterwards they are as they were."""
    with _STARTING:
        before = dict(os.environ)
        spawn = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}  # a fork would lose this process's threads
        os.environ.update({**QUIET, **before, **spawn, **settings})
        try:
            yield
        finally:
            for name in set(os.environ) - set(before):
                del os.environ[name]
            os.environ.update(before)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
