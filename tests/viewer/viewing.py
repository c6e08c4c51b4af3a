"""A `kgqa view` process and requests to it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from html import unescape
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


@dataclass
class Viewing:
    """`address`: as the command printed it, with the token."""

    process: subprocess.Popen[str]
    address: str

    @classmethod
    def start(cls, folder: Path, *arguments: str) -> Viewing:
        command = [sys.executable, "-m", "kgqa", "view", "--no-browser", "--port", "0", *arguments]
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.communicate(timeout=10)
        return cls(process, address)

    @property
    def base(self) -> str:
        return self.address.partition("?")[0]

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port
        return port

    @property
    def cookie(self) -> str:
        (token,) = parse_qs(urlsplit(self.address).query)["token"]
        return f"kgqa_view_{self.port}={token}"

    def ask(
        self, path: str, headers: dict[str, str], method: str = "GET", body: str = ""
    ) -> tuple[HTTPResponse, str]:
        """As any program on this machine could."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            host = {"Host": f"127.0.0.1:{self.port}", **headers}
            connection.putrequest(method, path, skip_host=True)
            for name, value in (host | {"Content-Length": str(len(body))}).items():
                connection.putheader(name, value)
            connection.endheaders(body.encode())
            response = connection.getresponse()
            return response, response.read().decode()

    def get(self, path: str) -> str:
        return self.ask(path, {"Cookie": self.cookie})[1]

    def error(self, path: str) -> str:
        return _alarm(self.get(path))

    def interrupt(self) -> tuple[int, str, str]:
        """Code, and what it said."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def _alarm(page: str) -> str:
    return unescape(
        "".join(re.findall(r'<p class="alarm" role="alert">(.*?)</p>', page, re.DOTALL))
    )
