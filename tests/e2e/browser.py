"""A headless Chromium, spoken to in the DevTools protocol over its pipe: no driver, no port, nothing to install."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
READY = "document.documentElement?.dataset.ready === 'yes'"


class Browser:
    """One page. `complaints` collects what the page's console and the browser's log say, and uncaught exceptions."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        take, self._send = os.pipe()
        receive, give = os.pipe()
        self._process = _started(CHROMIUM, profile, (take, give))
        os.close(take)
        os.close(give)
        self._receive: BinaryIO = os.fdopen(receive, "rb", buffering=0)
        self._unread = b""
        self._count = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        # keys go to the focused page
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        self.resize(1280, 900)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.close(self._send)
        self._receive.close()
        self._process.terminate()
        self._process.wait(timeout=30)

    def resize(self, width: int, height: int) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """The system's colour scheme: "light" or "dark"."""
        self.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def open(self, file: Path, fragment: str = "", ready: str = READY) -> None:
        self.visit(f"{file.resolve().as_uri()}{fragment}", ready)

    def visit(self, url: str, ready: str = READY) -> None:
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=url)
        self.wait(ready)

    def wait(self, condition: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not self._holds(condition):
            assert time.monotonic() < deadline, (
                f"not within {seconds} s: {condition}; {self.complaints}"
            )
            time.sleep(0.02)

    def _holds(self, condition: str) -> bool:
        """Return whether a condition is true. It is not while the browser leaves the page."""
        try:
            return bool(self.value(condition))
        except AssertionError as error:
            if "navigated" not in str(error):
                raise
            return False

    def value(self, expression: str) -> Any:
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": {"Enter": "\r"}.get(key, key)} if len(key) == 1 or key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {})
            )

    def ask(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        session = {"sessionId": self._session} if self._session else {}
        os.write(self._send, json.dumps({**message, **session}).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def _next(self) -> Any:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._receive], [], [], 120)
            assert ready, "Chromium says nothing"
            chunk = self._receive.read(65536)
            assert chunk, "Chromium is gone"
            self._unread += chunk
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def _note(self, event: Any) -> None:
        error = {
            "Runtime.exceptionThrown": lambda p: p["exceptionDetails"],
            "Runtime.consoleAPICalled": lambda p: p["args"],
            "Log.entryAdded": lambda p: p["entry"],
            "Page.javascriptDialogOpening": lambda p: p["message"],
        }
        if event.get("method") in error:
            self.complaints.append(str(error[event["method"]](event["params"])))


def _started(program: str, profile: Path, ends: tuple[int, int]) -> subprocess.Popen[bytes]:
    """Chromium reads commands from its descriptor 3 and answers on 4."""
    arguments = (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
        "--remote-debugging-pipe", f"--user-data-dir={profile}",
    )  # fmt: skip
    # the shell puts the pipes where Chromium looks for them, whatever numbers they have here
    script = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
    return subprocess.Popen(
        ["bash", "-c", script, "bash", program, *arguments], pass_fds=ends,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
