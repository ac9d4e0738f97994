"""Whoever writes is killed in the middle of it: the store keeps nothing of what it got.

The server of these tests made an empty object of a body of which nothing had come, as long as it was sent no digest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pytest

from reconciler.errors import UnansweredError
from reconciler.objectstore.open import open_store
from tests.servers.proxy import Cut, Proxy

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, StoredObject
    from reconciler.objectstore.settings import StoreSettings
    from tests.servers.weed import S3Server

pytestmark = pytest.mark.thorough

BODY: Final = b'{"format": "reconciler.journal/1", "run": "one"}'
LARGE: Final = bytes(40 << 20)
"""Sent in parts."""
OLD: Final = b"what was there before"


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with Proxy(s3_server.endpoint) as found:
        yield found


def put(store: ObjectStore) -> None:
    store.put("key", BODY)


def create(store: ObjectStore) -> None:
    store.swap("key", BODY, expected=None)


def replace(store: ObjectStore) -> None:
    there = store.get("key")
    assert there is not None
    store.swap("key", BODY, expected=there.version)


def cuts() -> list[Cut]:
    return [Cut(head=0), Cut(head=1), Cut(head=200), *(Cut(body=n) for n in (0, 1, len(BODY) // 2, len(BODY) - 1))]


@pytest.mark.parametrize("write", [put, create, replace])
@pytest.mark.parametrize("cut", cuts(), ids=lambda cut: f"head {cut.head} body {cut.body}")
def test_what_was_cut_off_leaves_nothing_and_the_next_try_is_whole(
    s3_settings: StoreSettings, proxy: Proxy, write: Callable[[ObjectStore], None], cut: Cut
) -> None:
    _cut(open_store(s3_settings), _through(s3_settings, proxy), proxy, write, cut)


@pytest.mark.soak
@pytest.mark.parametrize("write", [put, create, replace])
def test_killed_at_every_byte(s3_settings: StoreSettings, proxy: Proxy, write: Callable[[ObjectStore], None]) -> None:
    direct, through = open_store(s3_settings), _through(s3_settings, proxy)
    for at in range(900):  # More than the head has, which is whole then.
        _cut(direct, through, proxy, write, Cut(head=at))
    for at in range(len(BODY)):
        _cut(direct, through, proxy, write, Cut(body=at))


def _cut(
    direct: ObjectStore, through: ObjectStore, proxy: Proxy, write: Callable[[ObjectStore], None], cut: Cut
) -> None:
    """Cut one write off, look what there is, and let it be tried again."""
    seen = list["StoredObject | None"]()
    direct.delete(["key"])
    if write is replace:
        direct.put("key", OLD)
    proxy.on("PUT", Cut(cut.head, cut.body, lambda: seen.append(direct.get("key"))), key="key")
    try:
        write(through)
    except UnansweredError:  # The server took longer to let go than a swap may take.
        write(through)
    assert [None if each is None else each.body for each in seen] == [OLD if write is replace else None]
    found = direct.get("key")
    assert found is not None
    assert found.body == BODY


def _through(settings: StoreSettings, proxy: Proxy) -> ObjectStore:
    return open_store(dataclasses.replace(settings, endpoint=proxy.endpoint))


def test_a_part_that_was_cut_off_is_sent_again(s3_settings: StoreSettings, proxy: Proxy) -> None:
    for at in (0, 1, 1 << 20):
        proxy.on("PUT", Cut(body=at), key="partNumber=2")
    _through(s3_settings, proxy).put("large", LARGE)
    found = open_store(s3_settings).get("large")
    assert found is not None
    assert found.body == LARGE
    sent = {name.lower() for each in proxy.asked if each.method == "PUT" for name in each.headers}
    assert "content-md5" in sent
    assert not {"x-amz-trailer", "transfer-encoding"} & sent
