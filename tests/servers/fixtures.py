"""Real servers of object storage for the tests of one worker: started when the first of them asks, ended with the last.

`s3_server` is the server; `s3_settings` a fresh location in it; `s3_environ` puts its AWS environment in place, for
locations that manifests name. `az_server` and `gs_server` are those of the other clouds. Where a test needs several
stores: `open_store(s3_server.settings("name"))`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers.clouds import CloudServer
from tests.servers.weed import S3Server

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.settings import StoreSettings


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server.start() as server:
        yield server


@pytest.fixture(scope="session")
def az_server() -> Iterator[CloudServer]:
    with CloudServer.start("az") as server:
        yield server


@pytest.fixture(scope="session")
def gs_server() -> Iterator[CloudServer]:
    with CloudServer.start("gs") as server:
        yield server


@pytest.fixture
def s3_settings(s3_server: S3Server) -> StoreSettings:
    return s3_server.settings()


@pytest.fixture
def s3_store(s3_settings: StoreSettings) -> ObjectStore:
    from reconciler.objectstore.open import open_store  # noqa: PLC0415 - only who asks for it pays

    return open_store(s3_settings)


@pytest.fixture
def s3_environ(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The AWS environment of this process, and what to add to that of a command."""
    environ = s3_server.environ()
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ
