"""retriever=elasticsearch: where the server is, who asks, and settings that are refused."""

from __future__ import annotations

import base64
import json
import logging
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kgqa.errors import ConfigError
from kgqa.protocols import Query
from kgqa.retrieval import elasticsearch_server
from kgqa.retrieval.elasticsearch_server import Server
from kgqa.util import optional_deps as extras
from tests.retrieval.elasticsearch_faults import GREEN, SECRET, build, opened, refusal, settings
from tests.retrieval.elasticsearch_servers import Faulty, serving

pytestmark = pytest.mark.usefixtures("no_server_named")


# Where the server is and who asks


def test_an_unreachable_server_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elasticsearch_server, "WAITS", (60,))  # not waited for: it never answered
    monkeypatch.setenv("KGQA_ES_URL", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"KGQA_ES_URL=http://127.0.0.1:9: cannot be reached \(.*refused\)"):
        build(tmp_path)
    with pytest.raises(ConfigError, match="cannot be reached"):
        opened(tmp_path).find([Query("soup", 1)])


def test_opening_an_index_asks_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_ES_URL", "http://127.0.0.1:9")
    opened(tmp_path).close()


@pytest.mark.parametrize("url", ["127.0.0.1:9200", "http://127.0.0.1", "ftp://127.0.0.1:9200", "http://127.0.0.1:port"])
def test_an_address_needs_scheme_host_and_port(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_ES_URL", url)
    with pytest.raises(ConfigError, match=f"KGQA_ES_URL={url}: expected scheme, host and port"):
        Server()


def test_an_address_with_credentials_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_ES_URL", f"http://reader:{SECRET}@127.0.0.1:9200")
    with pytest.raises(ConfigError, match="put them into KGQA_ES_USER and KGQA_ES_PASSWORD") as raised:
        Server()
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"USER": "reader"}, "only one of the two is set"),
        ({"PASSWORD": SECRET}, "only one of the two is set"),
        ({"API_KEY": SECRET, "USER": "reader", "PASSWORD": SECRET}, "both are set; unset one"),
        ({"CA": "/no/such/file.pem"}, "needs an https address"),
        ({"CA": "/no/such/file.pem", "URL": "https://127.0.0.1:9200"}, "no readable PEM certificate"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    given: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"KGQA_ES_{name}", value)
    with pytest.raises(ConfigError, match=message) as raised:
        Server()
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({"API_KEY": SECRET}, f"ApiKey {SECRET}"),
        ({"USER": "reader", "PASSWORD": SECRET}, "Basic " + base64.b64encode(f"reader:{SECRET}".encode()).decode()),
        ({}, None),
    ],
)
def test_credentials_go_to_the_server_and_nowhere_else(
    faulty: Faulty,
    tmp_path: Path,
    given: dict[str, str],
    header: str | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    for name, value in given.items():
        monkeypatch.setenv(f"KGQA_ES_{name}", value)
    faulty.replies = {"GET": (401, refusal("security_exception", "unable to authenticate user [reader]"))}
    with pytest.raises(ConfigError, match="unauthorised with") as raised:
        build(tmp_path)
    assert {headers.get("Authorization") or headers.get("authorization") for _, headers in faulty.asked} == {header}
    written = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    seen = [str(raised.value), repr(raised.value.__cause__), caplog.text, written, repr(settings())]
    encoded = header.split()[1] if header else SECRET
    assert not [text for text in seen if SECRET in text or encoded in text]
    assert "[reader]" not in str(raised.value)
    assert SECRET not in json.dumps(settings().identity())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key in one file."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("the program openssl, which makes a certificate, is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    key, made = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(made)]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    made.write_text(made.read_text() + key.read_text())
    return made


def test_a_server_with_a_certificate_of_its_own_needs_it_named(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Faulty({"GET /_cluster/health": (200, GREEN)}), certificate) as server:
        monkeypatch.setenv("KGQA_ES_URL", server.url)
        with pytest.raises(ConfigError, match=r"certificate.*; set KGQA_ES_CA to the file of the server's"):
            Server().require_health()
        monkeypatch.setenv("KGQA_ES_CA", str(certificate))
        Server().require_health()


# Settings


def test_an_absent_client_library_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "version", absent)
    with pytest.raises(ConfigError, match=r"pip install 'kgqa\[elasticsearch\]'"):
        Server()


def test_many_places_are_filtered_in_clauses_a_server_takes() -> None:
    places = tuple(range(70_000))
    (clause,) = settings().query(Query("soup", 5, among=places))["query"]["bool"]["filter"]
    parts = [part["terms"]["place"] for part in clause["bool"]["should"]]
    assert [len(part) for part in parts] == [65_536, 4_464]
    assert [place for part in parts for place in part] == list(places)
