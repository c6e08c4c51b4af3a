"""Find the address and the key of a server, and connect: settings that engine=openai and encoders share."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from kgqa.engines.openai.hold import RetryPolicy
from kgqa.engines.openai.transport import LOOPBACK, Transport
from kgqa.errors import ConfigError
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.validators import Natural, Patience, Seconds

log = logging.getLogger(__name__)

DEFAULT_URL = "https://api.openai.com/v1"
URL_VARIABLE = "OPENAI_BASE_URL"
ADDRESS = "must be an address like http://127.0.0.1:8000/v1"
# seconds that a server can fail, and that a port of this machine can be closed from the start
SERVER_TIMEOUT, CLOSED_TIMEOUT = 120.0, 10.0
REACHING = NotIdentity("how the server is reached, not what it replies", reported=False)


@dataclass(frozen=True)
class ServerAccess:
    """The settings of a part that uses a server. group: the group of their keys in messages."""

    base_url: Annotated[
        str | None,
        Setting(
            "Address, e.g. http://127.0.0.1:8000/v1. null: $OPENAI_BASE_URL, otherwise https://api.openai.com/v1."
        ),
        NotIdentity("what it loads has the address, or the name of the deployment", reported=False),
    ] = None
    api_key_env: Annotated[
        str,
        Setting(
            "Name of the environment variable with the API key. If it is not set, no key is sent."
        ),
        REACHING,
    ] = "OPENAI_API_KEY"
    timeout: Annotated[Seconds, Setting("Timeout of one attempt in seconds."), REACHING] = 300.0
    retries: Annotated[
        Natural,
        Setting(
            "Retries of a call that fails while the server answers others, or with a sampled reply that cannot be "
            "parsed. Then the question fails."
        ),
        REACHING,
    ] = 8
    backoff: Annotated[
        Seconds,
        Setting(
            "Seconds before the second attempt, doubled each time up to 16. Retry-After replaces it."
        ),
        REACHING,
    ] = 0.5
    server_timeout: Annotated[
        Patience | None,
        Setting(
            "Seconds without any response, while all calls wait. Then the run stops with exit code 3. null: 120, or 10 "
            "if the port is closed from the start."
        ),
        REACHING,
    ] = None

    group: ClassVar[str]

    def find_address(self) -> str:
        return find_address(self.base_url, self.api_key_env, self.group)

    def find_key(self) -> str | None:
        return find_key(self.api_key_env, self.find_address(), self.group)

    def open_transport(
        self, on_rate_limited: Callable[[], None] = lambda: None, kind: type[Transport] = Transport
    ) -> Transport:
        limits = find_limits(self.server_timeout)
        policy = RetryPolicy(self.timeout, self.retries, self.backoff, *limits)
        address, key = self.find_address(), self.find_key()
        return kind(address, key, policy, on_rate_limited=on_rate_limited, group=self.group)


def find_limits(server_timeout: float | None) -> tuple[float, float]:
    """Return the seconds that a server can fail, and those for a port that is closed from the start.

    A closed port is mostly a wrong one. A user who sets the seconds waits for a server that is starting.
    """
    if server_timeout is None:
        return SERVER_TIMEOUT, CLOSED_TIMEOUT
    return server_timeout, server_timeout


def find_address(base_url: str | None, key_variable: str, group: str = "engine") -> str:
    """Return the server's address from the configuration or the environment. Raise ConfigError if it is invalid.

    Messages do not repeat a name, password or query of the address, nor a wrong variable: they can be secrets.
    """
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", key_variable):
        raise ConfigError(
            f"{group}.api_key_env: must be the NAME of an environment variable, in capitals"
        )
    url = base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    check_address(f"{group}.base_url" if base_url else f"${URL_VARIABLE}", url, key_variable)
    return url.rstrip("/")


def check_address(name: str, url: object, key_variable: str = "OPENAI_API_KEY") -> None:
    """Raise a ConfigError for an invalid address. name: the key or variable that sets it."""
    try:
        parts = urlsplit(str(url))
        port = parts.port
    except ValueError:
        # [::1 without its bracket, a port above 65535 or with letters
        raise ConfigError(f"{name}={url}: {ADDRESS}") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"{name} must not contain a user name, password or query. Put the key into ${key_variable}"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"{name}={url}: {ADDRESS}")


def find_key(variable: str, url: str, group: str = "engine") -> str | None:
    """Return the API key from the environment. Raise ConfigError if it is invalid, or OpenAI's server needs one."""
    value = os.environ.get(variable, "").strip()
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"${variable} contains characters that no key has. Set it again.")
    if not value and url == DEFAULT_URL:
        server = "server" if group == "engine" else f"{group}.base_url"
        raise ConfigError(
            f"${variable} is not set, and {DEFAULT_URL} requires a key: "
            f"export {variable}=…, or name your own server: {server}=URL (or ${URL_VARIABLE})"
        )
    if value and url != DEFAULT_URL:
        _name_receiver(variable, urlsplit(url).scheme, urlsplit(url).hostname or "")
    return value or None


@cache
def _name_receiver(variable: str, scheme: str, host: str) -> None:
    """Print once which other server gets a key."""
    if host in LOOPBACK:
        return
    if scheme == "http":
        remedy = "Use an https address, or set api_key_env to the name of a variable without a key."
        log.warning(
            "warning: the key of $%s is sent to %s without encryption. %s", variable, host, remedy
        )
    elif variable == "OPENAI_API_KEY":
        log.warning("The key of $%s is sent to %s. Another key: api_key_env=NAME", variable, host)
