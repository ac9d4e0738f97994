"""A store that is busy is asked again after pauses that double; one that does not answer in time, at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import RetryableError
from reconciler.objectstore.open import open_store
from reconciler.objectstore.s3_client import pause_after
from reconciler.objectstore.settings import Patience
from reconciler.providers.embedded.provider import patience_in
from tests.servers.proxy import Proxy, Refused, Slow

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from tests.servers.weed import S3Server


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with Proxy(s3_server.endpoint) as proxy:
        yield proxy


def through(server: S3Server, proxy: Proxy, patience: Patience) -> ObjectStore:
    return open_store(replace(server.settings(endpoint=proxy.endpoint), patience=patience))


@pytest.mark.fact("F-R-054")
def test_pauses_double_from_what_is_set_and_end_at_twenty_seconds() -> None:
    for attempt, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (9, 20.0), (20, 20.0)):
        assert all(longest / 2 <= pause_after(attempt, 100) <= longest for _ in range(20))
    assert pause_after(1, 1000) >= 0.5


@pytest.mark.fact("F-R-054")
@pytest.mark.parametrize("status", [503, 429])
def test_a_busy_store_is_asked_again_after_longer_and_longer_pauses(
    s3_server: S3Server, proxy: Proxy, status: int
) -> None:
    store = through(s3_server, proxy, Patience(initial_backoff_ms=40))
    store.put("before", b"")
    times: list[float] = []
    for _ in range(4):
        proxy.on("PUT", Refused(status, "SlowDown", then=lambda: times.append(time.monotonic())), key="busy")
    store.put("busy", b"now")
    times.append(time.monotonic())
    assert proxy.count("PUT", "busy") == 5
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(pause >= 0.02 * 2**attempt for attempt, pause in enumerate(pauses))
    found = store.get("busy")
    assert found is not None
    assert found.body == b"now"


@pytest.mark.fact("F-R-054")
def test_a_store_that_stays_busy_is_given_up_and_nothing_is_there(s3_server: S3Server, proxy: Proxy) -> None:
    store = through(s3_server, proxy, Patience(initial_backoff_ms=1))
    proxy.on("PUT", Refused(503, "SlowDown"), key="busy", times=100)
    with pytest.raises(RetryableError, match="throttling"):
        store.put("busy", b"")
    assert 5 < proxy.count("PUT", "busy") < 20
    assert store.get("busy") is None


@pytest.mark.fact("F-R-055")
def test_an_upload_past_its_time_is_tried_again(s3_server: S3Server, proxy: Proxy) -> None:
    store = through(s3_server, proxy, Patience(initial_backoff_ms=1, upload_ms=300))
    proxy.on("PUT", Slow(3.0), key="slow")
    began = time.monotonic()
    store.put("slow", b"now")
    assert time.monotonic() - began < 2.5
    assert proxy.count("PUT", "slow") == 2


@pytest.mark.fact("F-R-055")
def test_time_outs_and_pauses_are_those_of_the_cluster() -> None:
    assert patience_in({}) == Patience(100, 30_000, 10_000)
    properties = {"cloud_storage_initial_backoff_ms": "250", "cloud_storage_segment_upload_timeout_ms": "1m"}
    assert patience_in(properties) == Patience(250, 60_000, 10_000)
    assert patience_in({"cloud_storage_initial_backoff_ms": "soon"}) == Patience(100, 30_000, 10_000)
