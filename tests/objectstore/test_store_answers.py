"""Answers that are lost, late, repeated or cut off beneath the client, of each kind of store: a write happens once."""

from __future__ import annotations

import threading
import time
from types import ModuleType
from urllib.parse import unquote

import pytest

from reconciler.errors import LostRaceError, RetryableError, UnansweredError
from reconciler.objectstore import cloud_client, s3_client, swap
from reconciler.objectstore.base import ObjectStore
from tests.objectstore.conftest import Server, body_of
from tests.servers.proxy import Broken, FailedChore, Late, Lost, Proxy, Repeated, Slow
from tests.servers.weed import S3Server

KINDS = ["s3", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("gs", "az"))]


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def client(server: Server) -> ModuleType:
    """The module with the time-outs and tries of the store's client."""
    return s3_client if isinstance(server, S3Server) else cloud_client


@pytest.fixture
def busy(server: Server) -> str:
    """The word with which such a store asks for a pause."""
    return "SlowDown" if isinstance(server, S3Server) else "ServerBusy"


# -- conditional writes


@pytest.mark.parametrize("fault", [Lost(), Repeated()], ids=["lost", "repeated"])
def test_a_write_knows_that_what_it_finds_is_its_own(
    fault: Lost | Repeated, store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    expected = None
    for body in (b"nonce-1", b"nonce-2"):
        proxy.on("PUT", fault, key="head")
        expected = store.swap("head", body, expected=expected)
        found = truth.get("head")
        assert found is not None
        assert (found.body, found.version) == (body, expected)
    assert store.swap("head", b"nonce-3", expected=expected)


def test_a_conditional_write_is_never_repeated_before_it_was_read_back(
    store: ObjectStore, proxy: Proxy, url: str
) -> None:
    proxy.on("PUT", Lost(), key="head")
    store.swap("head", b"nonce-1", expected=None)
    name = url.rpartition("/")[2]
    assert [one.method for one in proxy.asked if name in unquote(one.path)] == ["PUT", "GET"]


def test_a_lost_answer_that_was_overwritten_is_a_lost_race_with_the_newer_body(
    store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    first = store.swap("head", b"nonce-1", expected=None)

    def intrude() -> None:
        found = truth.get("head")
        assert found is not None
        truth.swap("head", b"theirs", expected=found.version)

    proxy.on("PUT", Lost(then=intrude), key="head")
    with pytest.raises(LostRaceError) as caught:
        store.swap("head", b"ours", expected=first)
    assert caught.value.current == b"theirs"


@pytest.mark.parametrize("before", ["nothing", "a body"])
def test_a_write_that_arrives_late_changes_nothing_any_more(
    before: str, store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    expected = None if before == "nothing" else store.swap("head", b"nonce-1", expected=None)
    late = Late(threading.Event())
    proxy.on("PUT", late, key="head")
    second = store.swap("head", b"nonce-2", expected=expected)  # tried again, for nothing of it was there
    third = truth.swap("head", b"nonce-3", expected=second)
    late.arrive.set()
    assert late.arrived.wait(30)
    found = truth.get("head")
    assert found is not None
    assert (found.body, found.version) == (b"nonce-3", third)


def test_an_answer_that_takes_too_long_is_read_back(
    store: ObjectStore, proxy: Proxy, client: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONDITIONAL_READ_SECONDS", 0.3)
    proxy.on("PUT", Slow(1.5), key="head")
    version = store.swap("head", b"nonce-1", expected=None)
    assert store.swap("head", b"nonce-2", expected=version)
    assert proxy.count("PUT", "head") == 2


def test_a_swap_that_nobody_answers_ends_after_one_try_and_one_look(
    store: ObjectStore, proxy: Proxy, client: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONDITIONAL_READ_SECONDS", 0.3)
    monkeypatch.setattr(swap, "PATIENCE_SECONDS", 0.2)
    proxy.on("PUT", Slow(20), key="head")
    proxy.on("GET", Slow(20), key="head", times=100)
    began = time.monotonic()
    with pytest.raises(UnansweredError, match="no answer in time"):
        store.swap("head", b"nonce-1", expected=None)
    assert time.monotonic() - began < 10
    assert (proxy.count("PUT", "head"), proxy.count("GET", "head")) == (1, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_store_is_asked_again(
    status: int, busy: str, store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    for method, key, times in (("PUT", "head", 3), ("PUT", "body", 2), ("GET", "body", 2)):
        proxy.on(method, FailedChore(status, busy), key=key, times=times)
    store.swap("head", b"nonce-1", expected=None)
    store.put("body", b"1")
    assert body_of(store, "body") == b"1"
    assert body_of(truth, "head") == b"nonce-1"


def test_a_store_that_stays_busy_is_given_up_and_nothing_is_written(
    busy: str, store: ObjectStore, truth: ObjectStore, proxy: Proxy, client: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ATTEMPTS", 2)
    monkeypatch.setattr(swap, "TRIES", 3)
    proxy.on("PUT", FailedChore(503, busy), times=1_000)
    for attempt in (lambda: store.swap("head", b"1", expected=None), lambda: store.put("body", b"1")):
        with pytest.raises(RetryableError, match="throttling"):
            attempt()
    assert list(truth.list("")) == []


# -- everything else


def test_unconditional_writes_whose_answer_was_lost_are_done(
    store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    for name in ("gone", "gone-2", "gone-3"):
        truth.put(name, b"")
    proxy.on("PUT", Lost(), key="body", times=2)
    proxy.on("PUT", Lost(), key="copied")
    for method in ("DELETE", "POST"):
        proxy.on(method, Lost())
    store.put("body", b"1")
    store.copy_from("copied", store, "body")
    store.delete(["gone"])
    store.delete(["gone-2", "nothing", "gone-3"])
    assert [listed.key for listed in truth.list("")] == ["body", "copied"]
    assert body_of(truth, "copied") == b"1"


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [Lost(), Broken()], ids=["lost", "broken off"])
def test_a_deletion_whose_answer_is_not_whole_is_asked_again(
    fault: Lost | Broken, store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    names = [f"gone-{number:03}" for number in range(300)]
    for name in names:
        truth.put(name, b"")
    for method in ("DELETE", "POST"):
        proxy.on(method, fault, times=2)
    store.delete(names)
    assert list(truth.list("")) == []


def test_a_deletion_of_one_after_another_is_asked_again_too(
    store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    for name in ("here", "there"):
        truth.put(name, b"")
    proxy.let_pass("POST", 1)  # The request for all of them, which names a missing one.
    for method in ("DELETE", "POST"):
        proxy.on(method, Broken(), times=3)
    store.delete(["missing", "here", "there"])
    assert list(truth.list("")) == []


def test_a_body_that_breaks_off_is_read_again(store: ObjectStore, proxy: Proxy) -> None:
    store.put("body", b"0123456789" * 1_000)
    proxy.on("GET", Broken(), key="body", times=3)
    assert body_of(store, "body") == b"0123456789" * 1_000
    proxy.on("GET", Broken(), key="body")
    assert store.get_range("body", 10, 5_000) == b"0123456789" * 500
