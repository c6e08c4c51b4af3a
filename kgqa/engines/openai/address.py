"""Find a server's address and key in the configuration and the environment."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from kgqa.errors import ConfigError

DEFAULT_URL = "https://api.openai.com/v1"
URL_VARIABLE = "OPENAI_BASE_URL"


def address(base_url: str | None, key_variable: str) -> str:
    """Return a name, password or query in it could be a secret, so it is refused and not repeated.

    Raises:
        ConfigError: it is no address, or holds more than one.
    """
    url = base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"engine.base_url (or ${URL_VARIABLE}) must hold no name, password or query: "
            f"put the key into ${key_variable}"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"engine.base_url={url}: must be like http://127.0.0.1:8000/v1")
    return url.rstrip("/")


def key(variable: str, url: str) -> str | None:
    """Read when it is needed and kept by the endpoint alone.

    Raises:
        ConfigError: it is none, or the server is OpenAI's own and there is none.
    """
    value = os.environ.get(variable, "").strip()
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"${variable} holds characters that no key has; set it again")
    if not value and url == DEFAULT_URL:
        raise ConfigError(
            f"${variable} is not set, and {DEFAULT_URL} answers nobody without a key: "
            f"export {variable}=…, or name your own server: engine.base_url=URL (or ${URL_VARIABLE})"
        )
    return value or None
