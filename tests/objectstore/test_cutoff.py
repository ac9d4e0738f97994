"""What was cut off counts as not written: its place is taken, or what was there before is put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from reconciler.errors import LostRaceError, UserError
from reconciler.objectstore.open import open_store
from reconciler.objectstore.register import Register, create, is_cut_off, put_back
from tests.servers.stores import KINDS, fresh_store

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.objectstore.base import ObjectStore
    from tests.servers.weed import S3Server

WHOLE: Final = '{"a": [1, "é"]}'.encode()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path)


@pytest.fixture
def versioned(s3_server: S3Server) -> ObjectStore:
    return open_store(s3_server.settings(url=s3_server.versioned()))


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_every_beginning_of_an_object_is_cut_off(length: int) -> None:
    assert is_cut_off(WHOLE[:length])


@pytest.mark.parametrize("body", [WHOLE, b"{}", b"null", b"{,", b"no JSON", b"\xff\xff", b'{"a": "\xff'])
def test_what_is_whole_or_was_never_ours_is_not_cut_off(body: bytes) -> None:
    assert not is_cut_off(body)


@pytest.mark.parametrize("left", [b"", WHOLE[:5]])
def test_whoever_creates_takes_the_place_of_what_was_cut_off(store: ObjectStore, left: bytes) -> None:
    store.put("key", left)
    create(store, "key", WHOLE)
    assert _body(store) == WHOLE
    with pytest.raises(LostRaceError):
        create(store, "key", b"{}")
    assert _body(store) == WHOLE


def test_a_store_without_versions_puts_nothing_back(store: ObjectStore) -> None:
    store.put("key", WHOLE)
    store.put("key", b"")
    assert not put_back(store, "key")
    assert _body(store) == b""


@pytest.mark.parametrize(
    ("history", "is_put_back"),
    [
        pytest.param([b"{}", WHOLE, b""], True, id="emptied"),
        pytest.param([b"{}", WHOLE, WHOLE[:4], b""], True, id="twice"),
        pytest.param([WHOLE], False, id="whole"),
        pytest.param([b""], False, id="never whole"),
        pytest.param([WHOLE, b"by hand", b""], False, id="something else before"),
        pytest.param([WHOLE, None, b""], False, id="deleted before"),
        pytest.param([WHOLE, None], False, id="deleted"),
    ],
)
def test_the_last_whole_version_is_put_back_and_nothing_older(
    versioned: ObjectStore, history: list[bytes | None], *, is_put_back: bool
) -> None:
    for body in history:
        if body is None:
            versioned.delete(["key"])
        else:
            versioned.put("key", body)
    versioned.put("key-2", b"{}")
    before = versioned.get("key")
    assert put_back(versioned, "key") == is_put_back
    assert is_put_back or versioned.get("key") == before
    assert not is_put_back or _body(versioned) == WHOLE


def test_a_register_that_was_cut_off_is_as_it_was_and_fences_as_it_did(versioned: ObjectStore) -> None:
    register = Register(versioned, "key", format="reconciler.test/1")
    first = register.swap(None, {"a": 1}, epoch=3, mark="one")
    held = register.swap(first, {"a": 2}, mark="two")
    versioned.put("key", b"")
    with pytest.raises(UserError, match=r"there is nothing in it.*cluster check CLUSTER --repair"):
        register.read()
    with pytest.raises(LostRaceError):
        register.swap(held, {"a": 3})
    assert put_back(versioned, "key")
    assert register.read() == held
    with pytest.raises(LostRaceError):
        register.swap(first, {"a": 4})
    assert register.swap(held, {"a": 3}).value == {"a": 3}


def _body(store: ObjectStore) -> bytes | None:
    found = store.get("key")
    return None if found is None else found.body
