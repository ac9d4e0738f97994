"""Answers that are lost, late, repeated or cut off beneath the client: every write happens once, and is known."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import pytest

from reconciler.errors import LeaseError, LostRaceError, MissingObjectError, RetryableError
from reconciler.objectstore import s3_client as s3client
from reconciler.objectstore import swap
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.register import Register, RegisterSnapshot
from reconciler.objectstore.s3_client import compute_busy_pause
from reconciler.objectstore.s3_store import SINGLE_BYTES
from reconciler.objectstore.settings import Patience
from reconciler.providers.secrets import read_patience
from reconciler.state.lockfile import LeaseTerms
from tests.objectstore.conftest import body_of
from tests.servers.proxy import FailedChore, Lost, Proxy, Slow
from tests.servers.weed import BUCKET, S3Server

FORMAT = "reconciler.test/1"
LARGE = bytes(range(256)) * (SINGLE_BYTES // 256 + 5)


@pytest.fixture
def server(s3_server: S3Server) -> S3Server:
    return s3_server


# -- conditional writes


def test_an_update_whose_answer_was_lost_and_overwritten_happens_once(
    store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    def count(held: RegisterSnapshot | None) -> dict[str, object]:
        return {"count": 1 if held is None else held.value["count"] + 1}

    theirs = Register(truth, "r", format=FORMAT)
    theirs.update(count, mark="before")
    proxy.on("PUT", Lost(then=lambda: theirs.update(count, mark="theirs") and None), key="/r")
    held = Register(store, "r", format=FORMAT).update(count, mark="ours")
    assert held is not None
    assert held.value == {"count": 3}
    assert held.marks == ("before", "ours", "theirs")


@pytest.mark.thorough
def test_a_conflict_in_progress_is_no_lost_race(store: ObjectStore, truth: ObjectStore, proxy: Proxy) -> None:
    first = store.swap("head", b"nonce-1", expected=None)
    proxy.on("PUT", FailedChore(409, "ConditionalRequestConflict"), key="head", times=3)
    store.swap("head", b"nonce-2", expected=first)
    assert body_of(truth, "head") == b"nonce-2"


def test_a_swap_of_what_is_gone_is_a_lost_race_where_the_store_says_404(store: ObjectStore, proxy: Proxy) -> None:
    first = store.swap("head", b"nonce-1", expected=None)
    store.delete(["head"])
    proxy.on("PUT", FailedChore(404, "NoSuchKey"), key="head")
    with pytest.raises(LostRaceError) as caught:
        store.swap("head", b"nonce-2", expected=first)
    assert caught.value.current is None


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that give up after a moment."""
    monkeypatch.setattr(s3client, "CONDITIONAL_READ_SECONDS", 0.3)
    monkeypatch.setattr(swap, "PATIENCE_SECONDS", 0.2)


@pytest.mark.thorough
@pytest.mark.usefixtures("hasty")
def test_an_update_that_was_not_answered_looks_for_its_mark_and_goes_on(
    store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    proxy.on("PUT", FailedChore(503, "SlowDown"), key="/r", times=5)
    proxy.on("PUT", Slow(1), key="/r")
    proxy.on("GET", FailedChore(503, "SlowDown"), key="/r", times=2)
    held = Register(store, "r", format=FORMAT).update(
        lambda held: {"count": 1 if held is None else held.value["count"] + 1}, mark="ours"
    )
    assert held is not None
    assert (held.value, held.marks) == ({"count": 1}, ("ours",))
    assert Register(truth, "r", format=FORMAT).read() == held


@pytest.mark.usefixtures("hasty")
def test_an_update_may_be_refused_between_its_tries(store: ObjectStore, truth: ObjectStore, proxy: Proxy) -> None:
    proxy.on("PUT", FailedChore(503, "SlowDown"), key="/r", times=1_000)
    tries = []

    def change(_held: RegisterSnapshot | None) -> dict[str, object]:
        tries.append(1)
        if len(tries) == 3:
            message = "the lease is lost"
            raise LeaseError(message, hint="Look at their run.")
        return {}

    with pytest.raises(LeaseError):
        Register(store, "r", format=FORMAT).update(change, mark="ours")
    assert truth.get("r") is None


def test_what_a_holder_writes_ends_before_its_lease_does() -> None:
    terms = LeaseTerms()
    request = s3client.CONDITIONAL_CONNECT_SECONDS + s3client.CONDITIONAL_READ_SECONDS
    last_write = swap.PATIENCE_SECONDS + request
    assert last_write <= terms.lease_s - terms.give_up_s
    assert last_write + request <= terms.lease_s - terms.may_start_s


# -- everything else


@pytest.mark.thorough
def test_a_large_body_whose_last_answer_was_lost_is_there_once(
    store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    proxy.on("PUT", Lost(), key="partNumber=2")
    proxy.on("POST", Lost(), key="uploadId=")
    store.put("large", LARGE)
    assert body_of(truth, "large") == LARGE


def test_a_large_body_that_fails_in_the_middle_leaves_nothing(
    store: ObjectStore, truth: ObjectStore, proxy: Proxy, s3_server: S3Server, url: str
) -> None:
    proxy.on("PUT", FailedChore(400, "EntityTooLarge"), key="partNumber=2")
    with pytest.raises(Exception, match="too large"):
        store.put("large", LARGE)
    assert truth.get("large") is None
    uploads = s3_server.client().list_multipart_uploads(Bucket=BUCKET, Prefix=url.rpartition("/")[2])
    assert uploads.get("Uploads", []) == []


def test_an_object_too_large_for_one_copy_is_copied_in_parts(
    store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    truth.put("body", b"0123456789" * 1_000)
    proxy.on("PUT", FailedChore(400, "InvalidRequest", "larger than the maximum allowable size"), key="copied")
    store.copy_from("copied", store, "body")
    assert body_of(truth, "copied") == b"0123456789" * 1_000
    assert proxy.count("PUT", "partNumber=1") == 1


def test_a_copy_between_buckets_of_one_endpoint_never_passes_through_us(store: ObjectStore, proxy: Proxy) -> None:
    store.put("body", b"1" * 10_000)
    before = sum(len(one.body) for one in proxy.asked)
    store.copy_from("copied", store, "body")
    assert proxy.count("GET", "body") == 0
    assert sum(len(one.body) for one in proxy.asked) == before


def test_an_object_that_vanishes_is_named(store: ObjectStore) -> None:
    with pytest.raises(MissingObjectError, match="a/b"):
        store.get_range("a/b", 0, 10)
    with pytest.raises(MissingObjectError, match="a/b"):
        store.copy_from("c", store, "a/b")


# A store that is busy is asked again after pauses that double; one that does not answer in time, at once.


def through(server: S3Server, proxy: Proxy, patience: Patience) -> ObjectStore:
    return open_store(replace(server.settings(endpoint=proxy.endpoint), patience=patience))


@pytest.mark.fact("F-R-054")
def test_pauses_double_from_what_is_set_and_end_at_twenty_seconds() -> None:
    for attempt, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (9, 20.0), (20, 20.0)):
        assert all(longest / 2 <= compute_busy_pause(attempt, 100) <= longest for _ in range(20))
    assert compute_busy_pause(1, 1000) >= 0.5


@pytest.mark.fact("F-R-054")
@pytest.mark.parametrize("status", [503, 429])
def test_a_busy_store_is_asked_again_after_longer_and_longer_pauses(
    s3_server: S3Server, proxy: Proxy, status: int
) -> None:
    store = through(s3_server, proxy, Patience(initial_backoff_ms=40))
    store.put("before", b"")
    times: list[float] = []
    for _ in range(4):
        proxy.on("PUT", FailedChore(status, "SlowDown", then=lambda: times.append(time.monotonic())), key="busy")
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
    proxy.on("PUT", FailedChore(503, "SlowDown"), key="busy", times=100)
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
    assert read_patience({}) == Patience(100, 30_000, 10_000, 5_000)
    properties = {"cloud_storage_initial_backoff_ms": "250", "cloud_storage_segment_upload_timeout_ms": "1m"}
    assert read_patience(properties) == Patience(250, 60_000, 10_000, 5_000)
    assert read_patience({"cloud_storage_initial_backoff_ms": "soon"}) == Patience(100, 30_000, 10_000, 5_000)
