"""The rules of compare-and-swap, over every kind of store and every kind of bad network.

What a writer may conclude from an answer, or from none: a write is done once or not at all, whoever did it knows, and
nobody is told that somebody was faster who was not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.errors import LostRaceError, UnansweredError
from reconciler.objectstore import cloud_client, s3_client, swap
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.register import Register, RegisterSnapshot
from reconciler.runtime.retry import Backoff
from tests.contracts.faulty import CLIENT_GIVES_UP_S, Faulty, faulty_store
from tests.contracts.wire import Fault, Wire
from tests.servers.stores import KINDS

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, Version

FORMAT = "reconciler.test/1"
UNDONE = [fault for fault in Fault if not fault.is_done]


@pytest.fixture(params=KINDS)
def faulty(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    monkeypatch.setattr(swap, "_BACKOFF", Backoff(first_s=0.0002, longest_s=1.0, spread=0.5))
    for client in (s3_client, cloud_client):
        monkeypatch.setattr(client, "CONDITIONAL_READ_SECONDS", CLIENT_GIVES_UP_S)
    yield from faulty_store(request, tmp_path / "store")


def body_of(store: ObjectStore, key: str = "a") -> bytes:
    found = store.get(key)
    assert found is not None
    return found.body


def overwrite(store: ObjectStore, body: bytes, key: str = "a") -> Version:
    """Swap whatever is there: another writer, who is quick."""
    found = store.get(key)
    return store.swap(key, body, expected=None if found is None else found.version)


def append(register: Register, item: str) -> list[str]:
    held = register.update(lambda held: {"items": [*(held.value["items"] if held else []), item]}, mark=item)
    assert held is not None
    items: list[str] = held.value["items"]
    return items


# -- one writer: it is done once, and the writer knows


@pytest.mark.parametrize("fault", Fault)
def test_a_create_happens_once_and_returns_what_is_there(faulty: Faulty, fault: Fault) -> None:
    faulty.on(fault)
    version = faulty.client.swap("a", b"nonce-1", expected=None)
    found = faulty.truth.get("a")
    assert found is not None
    assert (found.body, found.version) == (b"nonce-1", version)


@pytest.mark.parametrize("fault", Fault)
def test_a_swap_happens_once_and_can_be_built_upon(faulty: Faulty, fault: Fault) -> None:
    first = faulty.client.swap("a", b"nonce-1", expected=None)
    faulty.on(fault)
    second = faulty.client.swap("a", b"nonce-2", expected=first)
    faulty.client.swap("a", b"nonce-3", expected=second)
    assert body_of(faulty.truth) == b"nonce-3"
    faulty.deliver()
    assert body_of(faulty.truth) == b"nonce-3"


@pytest.mark.thorough
@pytest.mark.parametrize("fault", UNDONE)
def test_a_network_that_stays_bad_is_no_lost_race_and_what_was_asked_for_may_be_asked_again(
    faulty: Faulty, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "TRIES", 2)
    first = faulty.client.swap("a", b"nonce-1", expected=None)
    faulty.on(fault, times=2)
    with pytest.raises(UnansweredError) as caught:
        faulty.client.swap("a", b"nonce-2", expected=first)
    assert caught.value.hint
    assert body_of(faulty.truth) == b"nonce-1"
    faulty.client.swap("a", b"nonce-3", expected=first)
    faulty.deliver()
    assert body_of(faulty.truth) == b"nonce-3"


# -- two writers: exactly one wins, and each record is there once


@pytest.mark.parametrize("fault", Fault)
def test_a_swap_that_another_one_overtook_is_a_lost_race_with_what_is_there_now(faulty: Faulty, fault: Fault) -> None:
    first = faulty.client.swap("a", b"nonce-1", expected=None)
    faulty.on(fault, then=lambda: overwrite(faulty.truth, b"theirs") and None)
    with pytest.raises(LostRaceError) as caught:
        faulty.client.swap("a", b"nonce-2", expected=first)
    assert caught.value.current == b"theirs"
    faulty.deliver()
    assert body_of(faulty.truth) == b"theirs"


@pytest.mark.parametrize("fault", Fault)
def test_an_update_is_recorded_once_whoever_gets_in_between(faulty: Faulty, fault: Fault) -> None:
    ours, theirs = (Register(store, "r", format=FORMAT) for store in (faulty.client, faulty.truth))
    append(theirs, "before")
    faulty.on(fault, then=lambda: append(theirs, "theirs") and None)
    append(ours, "ours")
    faulty.deliver()
    held = theirs.read()
    assert held is not None
    done = ["before", "ours", "theirs"] if fault.is_done else ["before", "theirs", "ours"]
    assert (held.value["items"], list(held.marks)) == (done, done)


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [Fault.LATE, Fault.CONFLICT])
def test_a_write_that_gave_up_and_the_same_update_asked_again_are_one_record(
    faulty: Faulty, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try arrives when the second one has read: it is found, or refused, and never done beside it."""
    monkeypatch.setattr(swap, "TRIES", 1)
    register = Register(faulty.client, "r", format=FORMAT)
    append(register, "before")
    faulty.on(fault)
    faulty.on(Fault.SLOW, then=faulty.deliver)
    append(register, "ours")
    faulty.deliver()
    held = Register(faulty.truth, "r", format=FORMAT).read()
    assert held is not None
    assert held.value["items"] == ["before", "ours"]


# -- what comes late


@pytest.mark.parametrize("tries", [1, 3])
def test_a_write_that_arrives_before_the_next_one_is_told_to_that_as_somebodys_else(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """A store cannot know a caller's bodies: the caller finds its nonce in `current`, and goes on from there."""
    monkeypatch.setattr(swap, "TRIES", tries)
    first = faulty.client.swap("a", b"nonce-1", expected=None)
    faulty.on(Fault.LATE, times=tries)
    with pytest.raises(UnansweredError):
        faulty.client.swap("a", b"nonce-2", expected=first)
    faulty.deliver()
    with pytest.raises(LostRaceError) as caught:
        faulty.client.swap("a", b"nonce-3", expected=first)
    assert caught.value.current == b"nonce-2"


def test_a_late_write_finds_its_place_taken_also_where_the_content_returned_to_what_it_was(faulty: Faulty) -> None:
    """A → B → A: versions of S3 and of directories repeat with the content, so every body carries a nonce."""
    register = Register(faulty.truth, "r", format=FORMAT)
    held = register.swap(None, {"x": "A"})
    late = Register(faulty.client, "r", format=FORMAT)
    faulty.on(Fault.LATE, then=lambda: register.swap(register.swap(held, {"x": "B"}), {"x": "A"}) and None)
    with pytest.raises(LostRaceError):
        late.swap(held, {"x": "C"})
    faulty.deliver()
    after = register.read()
    assert after is not None
    assert after.value == {"x": "A"}


def test_without_a_nonce_a_late_write_would_find_the_place_it_meant(tmp_path: Path) -> None:
    """Why every body has one: what somebody else wrote since is lost."""
    store = DirectoryStore(tmp_path)
    first = store.swap("a", b"A", expected=None)
    wire = Wire(store)
    wire.on(Fault.LATE)
    wire.swap("a", b"B", expected=first)
    overwrite(store, b"A")
    wire.deliver()
    assert body_of(store) == b"B"


@pytest.mark.parametrize("fault", Fault)
def test_an_object_that_vanished_is_never_made_anew(faulty: Faulty, fault: Fault) -> None:
    first = faulty.client.swap("a", b"nonce-1", expected=None)
    faulty.on(fault, then=lambda: faulty.truth.delete(["a"]))
    with pytest.raises(LostRaceError) as caught:
        faulty.client.swap("a", b"nonce-2", expected=first)
    assert caught.value.current is None
    faulty.deliver()
    assert faulty.truth.get("a") is None


@pytest.mark.parametrize("status", [404, 412])
def test_whatever_a_store_says_of_what_is_gone_it_is_a_lost_race(status: int) -> None:
    store = MemoryStore()
    wire = Wire(store, status_of_missing=status)
    first = wire.swap("a", b"nonce-1", expected=None)
    store.delete(["a"])
    with pytest.raises(LostRaceError) as caught:
        wire.swap("a", b"nonce-2", expected=first)
    assert caught.value.current is None
    assert store.get("a") is None


# -- everything at once


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
def test_in_a_storm_every_update_of_every_writer_is_recorded_once(faulty: Faulty, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a repeatable storm, no secret
    register = Register(faulty.client, "r", format=FORMAT)
    for _ in range(12):
        faulty.on(chance.choice([fault for fault in Fault if fault is not Fault.SLOW]), then=faulty.deliver)

    def write(number: int) -> None:
        for turn in range(4):
            append(register, f"{number}-{turn}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    faulty.heal()
    faulty.deliver()
    held: Any = Register(faulty.truth, "r", format=FORMAT).read()
    assert isinstance(held, RegisterSnapshot)
    assert sorted(held.value["items"]) == sorted(f"{number}-{turn}" for number in range(3) for turn in range(4))
