"""A store as its clients see it, through a proxy that spoils answers, and the same store asked directly.

A module says by its fixture `server` which kinds of store it is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import pytest

from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.open import open_store
from tests.servers.clouds import CloudServer
from tests.servers.proxy import Proxy
from tests.servers.weed import S3Server

Server: TypeAlias = S3Server | CloudServer


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def url(server: Server) -> str:
    return server.url("answers")


@pytest.fixture
def store(server: Server, proxy: Proxy, url: str) -> ObjectStore:
    """The store as its clients see it: through the proxy."""
    return open_store(server.settings(url=url, endpoint=proxy.endpoint))


@pytest.fixture
def truth(server: Server, url: str) -> ObjectStore:
    """The same store, asked directly."""
    return open_store(server.settings(url=url))


def body_of(store: ObjectStore, key: str) -> bytes:
    found = store.get(key)
    assert found is not None
    return found.body
