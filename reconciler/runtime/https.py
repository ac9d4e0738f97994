"""HTTPS with urllib3, the environment's proxy and given certificate authorities."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from botocore.httpsession import get_cert_path
from urllib3 import PoolManager, ProxyManager
from urllib3.util import make_headers, parse_url

from reconciler.errors import UserError

_CONNECTIONS: Final = 16
"""Connections that a pool keeps open: as many as parallel calls."""


def is_success(status: int) -> bool:
    """Return whether a status is 2xx."""
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


@cache
def make_ssl_context(file: str | None = None, folder: str | None = None, *, extra: str = "") -> ssl.SSLContext:
    """Return a cached context that trusts a PEM file, else a folder, else public authorities, and `extra` (PEM)."""
    try:
        context = ssl.create_default_context(
            cafile=file or (None if folder else get_cert_path(verify=True)), capath=None if file else folder
        )
    except OSError as error:
        message = f"the certificates in {file or folder} cannot be read: {error.strerror or error}"
        raise UserError(message, hint="Correct SSL_CERT_FILE or SSL_CERT_DIR.") from error
    if extra:
        context.load_verify_locations(cadata=extra)
    return context


def open_pool(url: str, context: ssl.SSLContext | None, headers: Mapping[str, str] | None = None) -> PoolManager:
    """Return a connection pool for the host of `url`, without retries; callers pass `redirect=False`."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return PoolManager(maxsize=_CONNECTIONS, headers=headers, ssl_context=context, retries=False)
    try:
        address = parse_url(proxy if "://" in proxy else f"http://{proxy}")
        return ProxyManager(
            address.url,
            maxsize=_CONNECTIONS,
            proxy_headers=make_headers(proxy_basic_auth=unquote(address.auth)) if address.auth else None,
            proxy_ssl_context=context,
            headers=headers,
            ssl_context=context,
            retries=False,
        )
    except ValueError as error:
        # The message omits the proxy's URL, which may contain a password.
        message = "the proxy that the environment names cannot be used"
        raise UserError(message, hint="Correct HTTPS_PROXY, or name the host in NO_PROXY.") from error
