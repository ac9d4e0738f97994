"""What a register refuses to read, and to write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
import pytest

from reconciler.errors import BrokenInvariantError, LostRaceError, RetryableError, UnansweredError, UserError
from reconciler.objectstore.base import ObjectStore, StoredObject, Version
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.register import Register, create_object, is_truncated_json, restore_truncated
from tests.servers.stores import KINDS, fresh_store

if TYPE_CHECKING:
    from tests.servers.weed import S3Server


WHOLE = {"format": "reconciler.test/2", "epoch": 1, "nonce": "n", "marks": []}


def read(body: bytes) -> object:
    store = MemoryStore()
    store.put("r", body)
    return Register(store, "r", format="reconciler.test/2").read()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        orjson.dumps({**WHOLE, "format": "reconciler.other/1"}),
        orjson.dumps({**WHOLE, "format": "reconciler.test/x"}),
        orjson.dumps({**WHOLE, "format": None}),
        orjson.dumps({key: value for key, value in WHOLE.items() if key != "epoch"}),
        orjson.dumps({**WHOLE, "marks": "m"}),
        orjson.dumps({**WHOLE, "nonce": 7}),
        orjson.dumps(WHOLE)[:-5],
    ],
)
def test_a_damaged_register_is_named_with_what_to_do(body: bytes) -> None:
    with pytest.raises(UserError, match=r"memory://.*: r cannot be read: .+ Restore it"):
        read(body)


def test_a_register_of_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(UserError, match=r"newer version of reconciler \(reconciler.test/3\).*pip install"):
        read(orjson.dumps({**WHOLE, "format": "reconciler.test/3"}))


def test_a_register_of_an_older_version_is_read() -> None:
    assert read(orjson.dumps({**WHOLE, "format": "reconciler.test/1", "x": 1})) is not None


def test_a_value_cannot_stand_in_for_the_frame() -> None:
    register = Register(MemoryStore(), "r", format="reconciler.test/2")
    with pytest.raises(BrokenInvariantError):
        register.swap(None, {"epoch": 7})


def test_an_epoch_never_goes_back() -> None:
    register = Register(MemoryStore(), "r", format="reconciler.test/2")
    held = register.swap(None, {}, epoch=5)
    with pytest.raises(BrokenInvariantError):
        register.swap(held, {}, epoch=4)


class _Gone(MemoryStore):
    """Takes a write without an answer; from then on it cannot be read either."""

    is_gone = False

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        super().swap(key, body, expected=expected)
        self.is_gone = True
        raise UnansweredError("no answer", hint="Run it again.")

    def get(self, key: str) -> StoredObject | None:
        if self.is_gone:
            raise RetryableError("no way to it", hint="Run it again.")
        return super().get(key)


def test_a_write_without_an_answer_stays_one_where_it_cannot_be_read_back() -> None:
    register = Register(_Gone(), "r", format="reconciler.test/1")
    with pytest.raises(UnansweredError, match="no way to it"):
        register.update(lambda _: {"value": 1}, mark="m", patience_s=0.1)


# What was cut off counts as not written: its place is taken, or what was there before is put back.


WHOLE_OBJECT: Final = '{"a": [1, "é"]}'.encode()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path)


@pytest.fixture
def versioned(s3_server: S3Server) -> ObjectStore:
    return open_store(s3_server.settings(url=s3_server.versioned()))


@pytest.mark.parametrize("length", range(len(WHOLE_OBJECT)))
def test_every_beginning_of_an_object_is_cut_off(length: int) -> None:
    assert is_truncated_json(WHOLE_OBJECT[:length])


@pytest.mark.parametrize("body", [WHOLE_OBJECT, b"{}", b"null", b"{,", b"no JSON", b"\xff\xff", b'{"a": "\xff'])
def test_what_is_whole_or_was_never_ours_is_not_cut_off(body: bytes) -> None:
    assert not is_truncated_json(body)


@pytest.mark.parametrize("left", [b"", WHOLE_OBJECT[:5]])
def test_whoever_creates_takes_the_place_of_what_was_cut_off(store: ObjectStore, left: bytes) -> None:
    store.put("key", left)
    create_object(store, "key", WHOLE_OBJECT)
    assert _body(store) == WHOLE_OBJECT
    with pytest.raises(LostRaceError):
        create_object(store, "key", b"{}")
    assert _body(store) == WHOLE_OBJECT


def test_a_store_without_versions_puts_nothing_back(store: ObjectStore) -> None:
    store.put("key", WHOLE_OBJECT)
    store.put("key", b"")
    assert not restore_truncated(store, "key")
    assert _body(store) == b""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("history", "is_put_back"),
    [
        pytest.param([b"{}", WHOLE_OBJECT, b""], True, id="emptied"),
        pytest.param([b"{}", WHOLE_OBJECT, WHOLE_OBJECT[:4], b""], True, id="twice"),
        pytest.param([WHOLE_OBJECT], False, id="whole"),
        pytest.param([b""], False, id="never whole"),
        pytest.param([WHOLE_OBJECT, b"by hand", b""], False, id="something else before"),
        pytest.param([WHOLE_OBJECT, None, b""], False, id="deleted before"),
        pytest.param([WHOLE_OBJECT, None], False, id="deleted"),
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
    assert restore_truncated(versioned, "key") == is_put_back
    assert is_put_back or versioned.get("key") == before
    assert not is_put_back or _body(versioned) == WHOLE_OBJECT


def test_a_register_that_was_cut_off_is_as_it_was_and_fences_as_it_did(versioned: ObjectStore) -> None:
    register = Register(versioned, "key", format="reconciler.test/1")
    first = register.swap(None, {"a": 1}, epoch=3, mark="one")
    held = register.swap(first, {"a": 2}, mark="two")
    versioned.put("key", b"")
    with pytest.raises(UserError, match=r"there is nothing in it.*cluster check CLUSTER --repair"):
        register.read()
    with pytest.raises(LostRaceError):
        register.swap(held, {"a": 3})
    assert restore_truncated(versioned, "key")
    assert register.read() == held
    with pytest.raises(LostRaceError):
        register.swap(first, {"a": 4})
    assert register.swap(held, {"a": 3}).value == {"a": 3}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("history", "is_new"),
    [
        pytest.param([b""], True, id="never whole"),
        pytest.param([WHOLE_OBJECT[:4], b""], True, id="never whole, twice"),
        pytest.param([orjson.dumps(WHOLE), b""], False, id="emptied"),
        pytest.param(
            [orjson.dumps(WHOLE), None, b""], False, id="deleted before: the order within a second is not known"
        ),
    ],
)
def test_a_register_whose_first_write_was_cut_off_counts_as_never_written(
    versioned: ObjectStore, history: list[bytes | None], *, is_new: bool
) -> None:
    for body in history:
        if body is None:
            versioned.delete(["key"])
        else:
            versioned.put("key", body)
    register = Register(versioned, "key", format="reconciler.test/2")
    if is_new:
        assert register.read() is None
        held = register.update(lambda before: None if before else {"a": 1}, mark="one")
        assert register.read() == held
    else:
        with pytest.raises(UserError, match="there is nothing in it"):
            register.read()
    with pytest.raises(LostRaceError):
        register.swap(None, {"a": 2})


def test_without_versions_only_who_knows_it_takes_a_register_for_new(store: ObjectStore) -> None:
    store.put("key", b"{")
    with pytest.raises(UserError, match="it ends in the middle"):
        Register(store, "key", format="reconciler.test/2").read()
    with pytest.raises(LostRaceError):
        Register(store, "key", format="reconciler.test/2").swap(None, {"a": 1})
    known = Register(store, "key", format="reconciler.test/2", is_new=lambda _: True)
    assert known.read() is None
    assert known.swap(None, {"a": 1}).value == {"a": 1}
    with pytest.raises(LostRaceError):
        known.swap(None, {"a": 2})


def _body(store: ObjectStore) -> bytes | None:
    found = store.get("key")
    return None if found is None else found.body
