"""An Elasticsearch server: where it is, who asks, and in one line what went wrong.

All of it comes from the environment, so that no credential gets into a configuration, a manifest or a log:

    KGQA_ES_URL                          scheme, host and port; default http://127.0.0.1:9200
    KGQA_ES_API_KEY                      an API key, or
    KGQA_ES_USER and KGQA_ES_PASSWORD    a user
    KGQA_ES_CA                           the file with the certificate of the server's own authority
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kgqa.errors import ConfigError, DataError, EngineDied, EngineError, KgqaError
from kgqa.types import Json
from kgqa.util.optional_deps import require_packages

T = TypeVar("T")
logger = logging.getLogger(__name__)
_told: set[str] = set()  # warnings of servers

DEFAULT_URL = "http://127.0.0.1:9200"
WAITS = (1, 2, 4, 8, 16, 32)  # seconds before another try: a node that restarts is back within them
BUSY = frozenset({429, 502, 503, 504})  # HTTP: too many requests, a proxy without its server, unavailable
REQUEST_SECONDS = 60


class Server:
    """The client library's connection, with patience: a request is tried again while the server is away or busy.

    Not so the first one: a wrong address or a server that was never started is told at once.
    """

    def __init__(self) -> None:
        self.url = os.environ.get("KGQA_ES_URL", "").rstrip("/") or DEFAULT_URL
        self._client = _client(self.url)
        self._answered = False

    def ask(self, request: Callable[[Any], T]) -> T:
        """Return what `request(client)` gives.

        Raises:
            ConfigError: address, credentials, certificate or version are wrong.
            DataError: there is no such index.
            EngineDied: the server went away and did not come back.
            EngineError: the server refused this request.
        """
        from elastic_transport import ApiError, TransportError

        waits = iter(WAITS if self._answered else ())
        while True:
            try:
                reply = request(self._client)
            except (ApiError, TransportError) as error:  # noqa: PERF203 - one request takes far longer
                wait = next(waits, None) if _passing(error) else None
                if wait is None:
                    raise self._explain(error) from None  # what it hides could show a header of the request
                time.sleep(wait)
            else:
                self._answered = True
                _tell_warnings(self.url, getattr(reply, "meta", None))
                return reply

    def require_health(self, index: str | None = None) -> None:
        """Refuse a cluster, or an index, that has lost shards; nothing where this user may not ask.

        Raises:
            DataError: its status is red, and stays so for five seconds.
        """
        # Red for a moment while the server starts or opens an index. It answers 408 when its time is over.
        health = self.ask(
            lambda client: client.options(ignore_status=(403, 408)).cluster.health(
                index=index, wait_for_status="yellow", timeout="5s"
            )
        )
        if health.get("status") == "red":
            what = f"index {index}" if index else "the cluster"
            raise DataError(
                f"{self.url}: {what} is red, {health['unassigned_shards']} shards have no node; "
                "GET _cluster/allocation/explain tells why"
            )

    def close(self) -> None:
        self._client.close()

    def _explain(self, error: Exception) -> KgqaError:
        from elastic_transport import ApiError
        from elasticsearch import UnsupportedProductError

        where = f"KGQA_ES_URL={self.url}"
        if isinstance(error, UnsupportedProductError):
            return ConfigError(f"{where}: this server is not Elasticsearch; give the address of an 8.x or 9.x server")
        reason = f"HTTP {error.meta.status}" if isinstance(error, ApiError) else _reason(error)
        if self._answered and _passing(error):
            return EngineDied(
                f"{where}: the server does not answer any more, {sum(WAITS)} s were waited ({reason}); start it "
                "and run the same command again, what was done is kept"
            )
        if isinstance(error, ApiError):
            return _refusal(where, error)
        if "certificate" in reason.lower():
            return ConfigError(f"{where}: {reason}; set KGQA_ES_CA to the file of the server's certificate authority")
        return ConfigError(f"{where}: cannot be reached ({reason}); start the server or set KGQA_ES_URL")


def _tell_warnings(url: str, meta: Any) -> None:
    """What the server warns of in a header, each warning once in this process."""
    header = str(meta.headers.get("warning") or "") if meta is not None else ""
    for warning in re.findall(r'"([^"]*)"', header) or filter(None, [header.strip()]):
        if warning not in _told:
            _told.add(warning)
            logger.warning("KGQA_ES_URL=%s: the server warns: %s", url, " ".join(warning.split()))


def client_major() -> int:
    """Return the client library's own major version, which decides the servers it can talk to."""
    import elasticsearch

    return int(elasticsearch.__version__[0])


def _client(url: str) -> Any:
    require_packages("elasticsearch", "elasticsearch")
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise ConfigError("KGQA_ES_URL: holds credentials; put them into KGQA_ES_USER and KGQA_ES_PASSWORD")
    if parts.scheme not in ("http", "https") or not _has_host_and_port(url):
        raise ConfigError(f"KGQA_ES_URL={url}: expected scheme, host and port, e.g. {DEFAULT_URL}")
    from elasticsearch import Elasticsearch, ElasticsearchWarning

    warnings.filterwarnings("ignore", category=ElasticsearchWarning)  # `_tell_warnings` says them, once and in a line
    return Elasticsearch(
        url,
        **_credentials(),
        **_authority(parts.scheme),
        request_timeout=REQUEST_SECONDS,
        max_retries=0,  # its own tries follow each other without a pause
    )


def _has_host_and_port(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname and parts.port)
    except ValueError:  # a port that is no number
        return False


def _credentials() -> dict[str, Any]:
    key, user, password = (os.environ.get(f"KGQA_ES_{name}", "") for name in ("API_KEY", "USER", "PASSWORD"))
    if key and (user or password):
        raise ConfigError("KGQA_ES_API_KEY and KGQA_ES_USER: both are set; unset one")
    if bool(user) != bool(password):
        raise ConfigError("KGQA_ES_USER and KGQA_ES_PASSWORD: only one of the two is set")
    if key:
        return {"api_key": key}
    return {"basic_auth": (user, password)} if user else {}


def _credentials_given() -> str:
    return {"api_key": "KGQA_ES_API_KEY", "basic_auth": "KGQA_ES_USER and KGQA_ES_PASSWORD"}.get(
        next(iter(_credentials()), ""), "no credentials"
    )


def _authority(scheme: str) -> dict[str, Any]:
    file = os.environ.get("KGQA_ES_CA", "")
    if not file:
        return {}
    if scheme != "https":
        raise ConfigError(f"KGQA_ES_CA={file}: needs an https address in KGQA_ES_URL")
    try:
        ssl.create_default_context(cafile=file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"KGQA_ES_CA={file}: no readable PEM certificate ({error})") from None
    return {"ca_certs": file}


def _passing(error: Exception) -> bool:
    """Return a failure that time may mend."""
    import elastic_transport as transport

    if isinstance(error, transport.ApiError):
        return error.meta.status in BUSY
    lost = isinstance(error, (transport.ConnectionError, transport.ConnectionTimeout))
    return lost and not isinstance(error, transport.TlsError)


def _reason(error: BaseException) -> str:
    """Return the innermost cause in one line: the outer messages only say that there was an error."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _refusal(where: str, error: Any) -> KgqaError:
    """Return what an answer with an HTTP status of 400 and above means. The server's own words on a 401 name the
    user.
    """
    status, kind, reason = error.meta.status, *_kind_and_reason(error.body)
    given = _credentials_given()
    if kind == "media_type_header_exception" or status == 406:
        return ConfigError(
            f"{where}: the server is older than the client library {client_major()}.x; "
            f"pip install 'elasticsearch<{client_major()}'"
        )
    if status == 401:
        return ConfigError(
            f"{where}: unauthorised with {given}; set KGQA_ES_API_KEY, or KGQA_ES_USER and KGQA_ES_PASSWORD"
        )
    if status == 403 and kind in ("security_exception", ""):
        return ConfigError(
            f"{where}: forbidden with {given}; it needs the index privileges read and view_index_metadata on kgqa-* to "
            "search, and to load the index privilege all and the cluster privilege monitor"
        )
    if kind == "index_not_found_exception":
        return DataError(f"{where}: {reason}; run kgqa data index again")
    return EngineError(f"{where}: HTTP {status} {kind}: {reason}")


def _kind_and_reason(body: Json) -> tuple[str, str]:
    if isinstance(body, Mapping) and isinstance(error := body.get("error"), Mapping):
        return str(error.get("type", "")), str(error.get("reason", ""))
    return "", str(body)[:200].replace("\n", " ")
