"""Who may ask the viewer, and how it begins and ends."""

from __future__ import annotations

import re
import socket
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kgqa.cli.main import main
from kgqa.util import optional_deps as extras
from kgqa.util.optional_deps import install_command
from tests.viewer.viewing import Viewing


def test_requests_without_the_token_are_rejected(viewing: Viewing) -> None:
    for path in ("/", "/?token=guess", "/?token=", "/work", "/assets/viewer.js", "/run/a/b/c/d"):
        response, text = viewing.ask(path, {"Cookie": f"kgqa_view_{viewing.port}=guess"})
        assert response.status == 403
        assert text.count("\n") == 1
        assert not response.getheader("set-cookie")


def test_token_sets_a_cookie_that_scripts_cannot_read(viewing: Viewing) -> None:
    response, _ = viewing.ask(viewing.address.partition(f"{viewing.port}")[2], {})
    assert response.status == 200
    cookie = response.getheader("set-cookie")
    assert cookie == f"{viewing.cookie}; Path=/; HttpOnly; SameSite=Strict"
    assert viewing.ask("/", {"Cookie": viewing.cookie})[0].status == 200


def test_other_host_names_are_rejected(viewing: Viewing) -> None:
    """DNS rebinding: a page's own name that suddenly points here; its browser would send it the cookie's answer."""
    for host in ("evil.example", f"evil.example:{viewing.port}", "127.0.0.1", f"127.0.0.1:{viewing.port}.evil.example"):
        assert viewing.ask("/work", {"Cookie": viewing.cookie, "Host": host})[0].status == 403
    assert viewing.ask("/work", {"Cookie": viewing.cookie, "Host": f"localhost:{viewing.port}"})[0].status == 200


def test_other_sites_cannot_read_or_change(viewing: Viewing) -> None:
    mine, other = {"Cookie": viewing.cookie}, {"Origin": "http://evil.example"}
    assert viewing.ask("/work", mine | other)[0].status == 403
    for origin in (other, {}, {"Origin": "null"}, {"Origin": f"http://localhost:{viewing.port}"}):
        assert viewing.ask("/ask/cancel", mine | origin, "POST", "")[0].status == 403
    assert viewing.post("/ask/cancel") == ""


def test_every_reply_has_the_policy_and_no_inline_script(viewing: Viewing, keys: dict[str, str]) -> None:
    both = f"/compare?run={keys['trace']}&run={keys['no_context']}"
    for path in ("/", both, "/plots", "/ask", "/work", "/assets/viewer.js", "/nowhere", "/run/no/such"):
        response, text = viewing.ask(path, {"Cookie": viewing.cookie})
        policy = response.getheader("content-security-policy") or ""
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert response.getheader("x-content-type-options") == "nosniff"
        if "text/html" in (response.getheader("content-type") or ""):
            assert not re.findall(r"<script(?![^>]*src=)|<style|<\w[^<>]* (?:style|on\w+)=", text)


def test_other_files_are_not_served(viewing: Viewing) -> None:
    for path in (
        "/assets/../guard.py",
        "/assets/%2e%2e%2fguard.py",
        "/run/../../../etc/passwd",
        "/run/%2e%2e/%2e%2e/x",
    ):
        response, text = viewing.ask(path, {"Cookie": viewing.cookie})
        assert response.status in (400, 404)
        assert "root:" not in text
        assert "DNS" not in text


def test_interrupt_ends_it_without_output(folder: Path) -> None:
    viewing = Viewing.start(folder)
    viewing.get("/work")
    code, out, err = viewing.interrupt()
    assert (code, err) == (0, "")
    assert "Traceback" not in out


def test_start_error_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["view", str(folder / "outputs"), "--no-browser", "--port", str(port)]) == 2
    assert f"kgqa: --port {port}: Address already in use. Use another" in capsys.readouterr().err
    assert main(["view", str(folder / "nowhere"), "--no-browser"]) == 2
    assert f"{folder / 'nowhere'}: no such folder" in capsys.readouterr().err
    assert main(["view", "--port", "70000"]) == 2
    assert "must be from 0 to 65535" in capsys.readouterr().err


def test_a_missing_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(extras, "version", absent)
    assert main(["view", str(folder / "outputs"), "--no-browser"]) == 2
    assert install_command("view") in capsys.readouterr().err
