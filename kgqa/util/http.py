"""Certificates and proxies of HTTP clients."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kgqa.errors import ConfigError

# seconds to reach a server that many calls wait for
CONNECT = 10.0


def trusted_certificates() -> str:
    """Return the file or folder of trusted certificates: SSL_CERT_FILE, SSL_CERT_DIR, or those of requests."""
    from requests.certs import where

    for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        if path := os.environ.get(variable):
            if not Path(path).exists():
                raise ConfigError(
                    f"{variable}={path}: no readable PEM certificates. Correct it, or unset it"
                )
            return path
    return str(where())


def ssl_context() -> ssl.SSLContext:
    """Return a context with the trusted certificates."""
    path = trusted_certificates()
    try:
        is_folder = Path(path).is_dir()
        return ssl.create_default_context(
            cafile=None if is_folder else path, capath=path if is_folder else None
        )
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{path}: no readable PEM certificates ({error}). Correct it") from None


def find_proxy(url: str) -> str | None:
    """Return the proxy for an address from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
