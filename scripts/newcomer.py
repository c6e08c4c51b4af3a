"""Do what a newcomer does, on a terminal of 80 columns: clone, demo, README, tests, and rows of the install table.

    python3 -m scripts.newcomer FOLDER            clone into FOLDER, set up and run everything
    python3 -m scripts.newcomer FOLDER --no-tests without make test
    python3 -m scripts.newcomer --transformers    only the row of the install table with PyTorch, in .venv-engines

HOME is empty, no environment is active and there are no data files. A command fails if its exit code is not 0, if it
prints a traceback, or if the terminal is silent for longer than `SILENCE` seconds.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from scripts.readme import quickstart

ROOT = Path(__file__).resolve().parents[1]
SILENCE = 30.0
SIZE = struct.pack("HHHH", 24, 80, 0, 0)  # lines and columns
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MODEL = "simulated"


@dataclass
class Ended:
    """A command that has run on a terminal."""

    typed: str
    code: int
    seconds: float
    silence: float
    output: str

    @property
    def problem(self) -> str:
        if self.code:
            return f"exit code {self.code}"
        _, found, traceback = self.output.partition("Traceback (most recent call last)")
        if found:
            # its last line names the error, and is the first that is not indented
            last = next((line for line in traceback.splitlines()[1:] if line[:1].strip()), "")
            return f"a traceback: {last.strip()}"
        # pip is silent while it unpacks packages
        is_silent = self.silence > SILENCE and "/pip " not in self.typed
        return f"silent for {self.silence:.0f} s" if is_silent else ""

    def show(self) -> None:
        state = f"FAILED ({self.problem})" if self.problem else "ok"
        print(
            f"newcomer: {state} in {self.seconds:.0f} s, longest silence {self.silence:.1f} s: {self.typed}",
            flush=True,
        )


def run_on_terminal(typed: str, folder: Path, environment: dict[str, str]) -> Ended:
    """Run a command in bash on a pseudo-terminal, and show its output."""
    started = last = time.monotonic()
    silence, output, unfinished = 0.0, bytearray(), b""
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.execvpe("bash", ["bash", "-ec", typed], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, SIZE)
    while True:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        silence = max(silence, time.monotonic() - last)
        if not ready:
            continue
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            # Linux reports the end of a pseudo-terminal so
            chunk = b""
        if not chunk:
            break
        last = time.monotonic()
        output += chunk
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        for line in lines:
            print(plain_line(line), flush=True)
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ended = Ended(
        typed.strip(), code, time.monotonic() - started, silence, output.decode(errors="replace")
    )
    ended.show()
    return ended


def plain_line(line: bytes) -> str:
    """Return what a terminal shows of a line in the end: without colors and what was drawn over."""
    text = CONTROL.sub("", line.decode(errors="replace"))
    return text.rstrip("\r").rpartition("\r")[2]


def empty_environment(home: Path, *programs: Path) -> dict[str, str]:
    """Return the environment of a user with an empty HOME. Settings of package indexes and proxies stay."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("KGQA_", "VIRTUAL_ENV", "COLUMNS"))
    }
    places = [
        place
        for place in kept["PATH"].split(os.pathsep)
        if not (Path(place) / "activate").is_file()
    ]
    path = os.pathsep.join([*map(str, programs), *places])
    return {**kept, "HOME": str(home), "PATH": path, "TERM": "xterm-256color", "PY_COLORS": "0"}


class Simulated(BaseHTTPRequestHandler):
    """A server with OpenAI's endpoints and one model, which gives one answer to everything."""

    def do_GET(self) -> None:
        self._answer(
            {"data": [{"id": MODEL, "object": "model"}]} if self.path == "/v1/models" else None
        )

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Pellery"},
        }
        usage = {"prompt_tokens": 9, "completion_tokens": 2}
        is_chat = self.path == "/v1/chat/completions"
        self._answer({"model": MODEL, "choices": [choice], "usage": usage} if is_chat else None)

    def _answer(self, value: object) -> None:
        content = json.dumps(value or {"detail": "Not Found"}).encode()
        self.send_response(200 if value else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def walk(folder: Path, model: str, *, tests: bool) -> list[Ended]:
    """Clone, and run the demo, README's commands, the tests, and README's server command with the core alone."""
    clone = (
        folder
        / "projects-of-this-year"
        / "question-answering-over-several-documents"
        / "a clone of kgqa"
        / "kgqa"
    )
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    plain = empty_environment(folder / "home")
    active = empty_environment(folder / "home", clone / ".venv/bin")
    ended = [run_on_terminal(f"make demo MODEL={model}" if model else "make demo", clone, plain)]
    for command, needs in quickstart():
        if needs:
            print(f"newcomer: skipped (needs {needs}): {command.strip()}", flush=True)
        else:
            ended.append(run_on_terminal(command, clone, active))
    if tests:
        ended.append(run_on_terminal("make test", clone, plain))
    return [*ended, *_walk_core(folder, clone, plain)]


def _walk_core(folder: Path, clone: Path, environment: dict[str, str]) -> list[Ended]:
    (command,) = [command for command, needs in quickstart() if needs == "a server"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Simulated)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{server.server_port}", command).replace(
        "=…", "=none"
    )
    core = folder / "core"
    wheel = f"python3 -m venv {core} && {core}/bin/pip wheel --no-deps -w {core}/dist '{clone}'"
    install = f"{core}/bin/pip install -c '{clone}/constraints.txt' {core}/dist/*.whl"
    empty = folder / "empty"
    empty.mkdir()
    ended = [run_on_terminal(each, empty, environment) for each in (wheel, install)]
    ended.append(run_on_terminal(command, empty, empty_environment(folder / "home", core / "bin")))
    server.shutdown()
    return ended


def walk_transformers() -> list[Ended]:
    """Run README's comparison with PyTorch, in the environment of make test-engines."""
    command = "kgqa run -m method=no_context,golden dataset=demo limit=2 engine=transformers model=smollm2_135m"
    environment = {
        **os.environ,
        "PATH": f"{ROOT / '.venv-engines/bin'}{os.pathsep}{os.environ['PATH']}",
    }
    return [run_on_terminal(command, ROOT, environment)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="an empty folder for the clone")
    parser.add_argument("--no-tests", action="store_true", help="leave out make test")
    parser.add_argument(
        "--model", default="", help="the model of the demo (default: that of make demo)"
    )
    parser.add_argument("--transformers", action="store_true", help="only the row with PyTorch")
    chosen = parser.parse_args()
    if not chosen.transformers and chosen.folder is None:
        parser.error("name an empty folder")
    if chosen.transformers:
        ended = walk_transformers()
    else:
        ended = walk(chosen.folder.resolve(), chosen.model, tests=not chosen.no_tests)
    print("newcomer: summary")
    for each in ended:
        each.show()
    return int(any(each.problem for each in ended))


if __name__ == "__main__":
    raise SystemExit(main())
