"""What every store of objects must do, over every implementation."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconciler.errors import LostRaceError, MissingObjectError, RetryableError, UserError
from reconciler.objectstore.base import ObjectStore, StoredObject, Version
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.register import MARKS, Register, RegisterSnapshot
from reconciler.state.lease import acquire
from tests.contracts.lossy import LossyStore
from tests.servers.stores import KINDS, fresh_store
from tests.state.samples import claim
from tests.state.simulation import Simulation, simulate

FORMAT = "reconciler.test/2"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "deep" / "store")


@pytest.fixture(params=KINDS)
def other(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "other")


def body_of(store: ObjectStore, key: str) -> bytes:
    found = store.get(key)
    assert found is not None
    return found.body


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [listed.key for listed in store.list(prefix)]


# -- reading and writing


def test_a_store_that_was_never_written_is_empty(store: ObjectStore) -> None:
    assert store.get("a/b") is None
    assert keys(store) == []


@pytest.mark.parametrize("body", [b"", b"x", b"\x00\xff" * 1000, memoryview(b"seen")])
def test_what_is_put_is_what_is_read(store: ObjectStore, body: bytes | memoryview) -> None:
    store.put("a/b.bin", body)
    assert body_of(store, "a/b.bin") == bytes(body)


def test_a_large_body_is_whole(store: ObjectStore) -> None:
    body = bytes(range(256)) * (1 << 16)
    store.put("large", body)
    assert body_of(store, "large") == body
    assert store.get_range("large", len(body) - 3, 10) == body[-3:]


def test_a_range_ends_where_the_object_does(store: ObjectStore) -> None:
    store.put("a", b"0123456789")
    assert store.get_range("a", 2, 3) == b"234"
    assert store.get_range("a", 8, 100) == b"89"
    assert store.get_range("a", 10, 5) == b""
    assert store.get_range("a", 99, 5) == b""


def test_a_range_of_a_missing_object_is_an_error(store: ObjectStore) -> None:
    with pytest.raises(MissingObjectError):
        store.get_range("nothing", 0, 1)


def test_a_folder_is_no_object(store: ObjectStore) -> None:
    store.put("a/b/c", b"1")
    assert store.get("a/b") is None
    assert store.get("a/b/c/d") is None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "../a",
        "a/../b",
        "a/..",
        "./a",
        ".",
        "..",
        "a/\0b",
        ".store/stripes/00",
        "a/.store/b",
        "a\ud800",
    ],
)
def test_a_key_that_would_leave_the_store_is_refused_by_every_call(store: ObjectStore, key: str) -> None:
    calls = (
        lambda: store.get(key),
        lambda: store.get_range(key, 0, 1),
        lambda: store.put(key, b"x"),
        lambda: store.swap(key, b"x", expected=None),
        lambda: store.copy_from(key, store, "a"),
        lambda: store.delete([key]),
    )
    for call in calls:
        with pytest.raises(UserError):
            call()


@pytest.mark.parametrize("key", ["a:b/c", "ä/ö ü", "%2F", "a..b", "-", "a" * 200, "~", ".hidden/x"])
def test_unusual_keys_are_ordinary(store: ObjectStore, key: str) -> None:
    store.put(key, b"1")
    assert body_of(store, key) == b"1"
    assert keys(store) == [key]


def test_a_control_character_is_kept_or_refused_and_never_changed(store: ObjectStore) -> None:
    if store.url.startswith(("gs://", "az://")):  # their client takes none
        with pytest.raises(UserError, match="would change the key 'tab"):
            store.put("tab\there", b"1")
        assert keys(store) == []
        return
    store.put("tab\there", b"1")
    assert keys(store) == ["tab\there"]


def test_a_backslash_is_no_slash(tmp_path: Path) -> None:
    # Not asked of the S3 server of these tests, which takes one for the other.
    for store in (MemoryStore(), DirectoryStore(tmp_path)):
        store.put("a\\b", b"1")
        assert keys(store) == ["a\\b"]


# -- listing and deleting


def test_a_listing_is_sorted_by_key_as_text_not_by_folder(store: ObjectStore) -> None:
    names = ["a-b", "a.b", "a/b", "a/b-c", "a/b.c", "a0", "b", "a/c/d", "a/c-d", "é", "z/a", "Z"]
    for name in names:
        store.put(name, name.encode())
    assert keys(store) == sorted(names)
    assert [listed.size for listed in store.list("")] == [len(name.encode()) for name in sorted(names)]


def test_a_prefix_is_text_not_a_folder(store: ObjectStore) -> None:
    for name in ("run/1", "run/10", "run/2", "runner", "other"):
        store.put(name, b"")
    assert keys(store, "run/1") == ["run/1", "run/10"]
    assert keys(store, "run") == ["run/1", "run/10", "run/2", "runner"]
    assert keys(store, "run/") == ["run/1", "run/10", "run/2"]
    assert keys(store, "none/at/all") == []


def test_the_hint_of_a_listing_changes_with_every_write(store: ObjectStore) -> None:
    hints = set()
    version = None
    for number in range(50):
        version = store.swap("a", f"{number:03}".encode(), expected=version)
        (listed,) = store.list("a")
        hints.add(listed.hint)
    assert len(hints) == 50


def test_deleting_is_done_once_and_twice(store: ObjectStore) -> None:
    for name in ("a/b/c", "a/b/d", "e"):
        store.put(name, b"")
    store.delete(["a/b/c", "nothing", "e"])
    store.delete(["a/b/c"])
    assert keys(store) == ["a/b/d"]


def test_what_was_a_folder_can_become_an_object(store: ObjectStore) -> None:
    store.put("a/b/c", b"1")
    store.delete(["a/b/c"])
    store.put("a", b"2")
    assert keys(store) == ["a"]


# -- copying


def test_a_copy_is_the_same_bytes(store: ObjectStore, other: ObjectStore) -> None:
    body = bytes(range(256)) * 70_000
    other.put("from/here", body)
    store.copy_from("to/there", other, "from/here")
    assert body_of(store, "to/there") == body
    other.put("empty", b"")
    store.copy_from("empty", other, "empty")
    assert body_of(store, "empty") == b""


def test_a_copy_outlives_its_source(store: ObjectStore, other: ObjectStore) -> None:
    other.put("a", b"kept")
    store.copy_from("b", other, "a")
    other.delete(["a"])
    assert body_of(store, "b") == b"kept"


def test_copying_a_missing_object_is_an_error_and_leaves_nothing(store: ObjectStore, other: ObjectStore) -> None:
    with pytest.raises(MissingObjectError):
        store.copy_from("b", other, "a")
    assert keys(store) == []


# -- the condition


def test_only_one_creates(store: ObjectStore) -> None:
    store.swap("a", b"first", expected=None)
    with pytest.raises(LostRaceError) as caught:
        store.swap("a", b"second", expected=None)
    assert caught.value.current == b"first"
    assert body_of(store, "a") == b"first"


def test_a_swap_based_on_what_was_read_is_made(store: ObjectStore) -> None:
    store.swap("a", b"1", expected=None)
    read = store.get("a")
    assert read is not None
    version = store.swap("a", b"2", expected=read.version)
    after = store.get("a")
    assert after is not None
    assert (after.body, after.version) == (b"2", version)


def test_a_swap_based_on_an_old_version_is_refused(store: ObjectStore) -> None:
    old = store.swap("a", b"1", expected=None)
    store.swap("a", b"2", expected=old)
    with pytest.raises(LostRaceError) as caught:
        store.swap("a", b"3", expected=old)
    assert caught.value.current == b"2"
    assert body_of(store, "a") == b"2"


def test_a_swap_of_what_is_gone_is_refused_and_creates_nothing(store: ObjectStore) -> None:
    version = store.swap("a", b"1", expected=None)
    store.delete(["a"])
    with pytest.raises(LostRaceError) as caught:
        store.swap("a", b"2", expected=version)
    assert caught.value.current is None
    assert store.get("a") is None


def test_a_version_nobody_gave_is_refused(store: ObjectStore) -> None:
    store.swap("a", b"1", expected=None)
    with pytest.raises(LostRaceError):
        store.swap("a", b"2", expected=Version("made up"))


def test_of_threads_that_create_at_once_one_wins(store: ObjectStore) -> None:
    barrier = threading.Barrier(8)

    def create(number: int) -> bool:
        barrier.wait()
        try:
            store.swap("a/b/c", str(number).encode(), expected=None)
        except LostRaceError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert sum(won) == 1
    assert body_of(store, "a/b/c") == str(won.index(True)).encode()


def test_folders_that_come_and_go_lose_no_write(store: ObjectStore) -> None:
    def churn(number: int) -> None:
        for turn in range(40):
            key = f"a/b/{number}-{turn}"
            store.put(key, b"x")
            assert store.get(key) is not None
            store.delete([key])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))
    assert keys(store) == []


# -- answers that are lost


def test_a_writer_whose_answer_was_lost_knows_its_own_voice(store: ObjectStore) -> None:
    lossy = LossyStore(store)
    first = lossy.swap("a", b"nonce-1", expected=None)
    second = lossy.swap("a", b"nonce-2", expected=first)
    read = store.get("a")
    assert read is not None
    assert (read.body, read.version) == (b"nonce-2", second)


def test_a_lost_answer_that_was_overwritten_is_a_lost_race_with_the_newer_body(store: ObjectStore) -> None:
    def intrude() -> None:
        read = store.get("a")
        assert read is not None
        store.swap("a", b"theirs", expected=read.version)

    with pytest.raises(LostRaceError) as caught:
        LossyStore(store, meanwhile=intrude).swap("a", b"ours", expected=None)
    assert caught.value.current == b"theirs"


# -- where it is opened


def test_a_store_travels(store: ObjectStore) -> None:
    store.put("a", b"1")
    twin = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
    assert twin.url == store.url
    assert body_of(twin, "a") == b"1"


def test_a_store_that_keeps_its_word_passes_the_probe_and_keeps_nothing_of_it(store: ObjectStore) -> None:
    assert list(store.find_violated_conditions()) == []
    assert keys(store) == []


class _Unconditional(MemoryStore):
    """Stores that do not do one of the four calls of a probe as they should; each by its own method."""

    def __init__(self, ignores: Callable[[Version | None, StoredObject | None], bool]) -> None:
        super().__init__()
        self.ignores = ignores

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        found = self.get(key)
        if not self.ignores(expected, found):
            return super().swap(key, body, expected=expected)
        self.put(key, body)
        written = self.get(key)
        assert written is not None
        return written.version


class _CreatesNothing(MemoryStore):
    """Takes `If-None-Match: *` for a condition that never holds."""

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        if expected is None:
            raise LostRaceError(key, None, hint="Read it again.")
        return super().swap(key, body, expected=expected)


class _RefusesItsOwn(MemoryStore):
    """Returns versions it does not know again, as where a gateway writes the ETags anew."""

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        return Version("W/" + super().swap(key, body, expected=expected))


class _Forgetful(MemoryStore):
    """Says yes and keeps something else."""

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        return super().swap(key, body if expected is None else body + b"?", expected=expected)


OVERWRITES = "it overwrites an object that was to be created only if absent"
STALE = "it accepts a swap based on an old version"
BROKEN = [
    pytest.param(lambda: _Unconditional(lambda _expected, _found: True), [OVERWRITES, STALE], id="no condition"),
    pytest.param(
        lambda: _Unconditional(lambda expected, _found: expected is None), [OVERWRITES], id="no If-None-Match"
    ),
    pytest.param(lambda: _Unconditional(lambda expected, _found: expected is not None), [STALE], id="no If-Match"),
    pytest.param(_CreatesNothing, ["it does not create a missing object"], id="no create"),
    pytest.param(_RefusesItsOwn, ["it refuses a swap based on the version it returned"], id="no swap"),
    pytest.param(_Forgetful, ["it does not return what was written last"], id="no reading back"),
]


@pytest.mark.parametrize(("broken", "problems"), BROKEN)
def test_the_probe_names_what_a_store_does_not_honour_and_leaves_nothing(
    broken: Callable[[], MemoryStore], problems: list[str]
) -> None:
    store = broken()
    assert list(store.find_violated_conditions()) == problems
    assert keys(store) == []


@pytest.mark.parametrize(("broken", "problems"), BROKEN)
def test_no_state_is_kept_where_the_probe_finds_anything(
    broken: Callable[[], MemoryStore], problems: list[str]
) -> None:
    store = broken()
    with pytest.raises(UserError, match=f"cannot keep a state: {problems[0]}") as caught:
        simulate(acquire(store, Simulation(), claim("one")))
    assert "conditional writes" in caught.value.hint
    assert keys(store) == []


# -- registers


def count(held: RegisterSnapshot | None) -> dict[str, object]:
    return {"count": 1 if held is None else held.value["count"] + 1}


def test_a_register_never_written_reads_as_none(store: ObjectStore) -> None:
    assert Register(store, "r", format=FORMAT).read() is None


def test_a_register_returns_what_was_swapped_in(store: ObjectStore) -> None:
    register = Register(store, "r", format=FORMAT)
    held = register.swap(None, {"x": [1, None, "ü"]}, epoch=3, mark="m")
    read = register.read()
    assert read == held
    assert (held.value, held.epoch, held.marks) == ({"x": [1, None, "ü"]}, 3, ("m",))
    after = register.swap(held, {"x": []})
    assert (after.epoch, after.marks) == (3, ("m",))


def test_a_register_that_moved_refuses_the_slower_writer(store: ObjectStore) -> None:
    register = Register(store, "r", format=FORMAT)
    held = register.swap(None, {"x": 1})
    register.swap(held, {"x": 2})
    with pytest.raises(LostRaceError):
        register.swap(held, {"x": 3})


def test_a_register_that_returns_to_an_old_value_still_refuses_who_read_the_old_one(store: ObjectStore) -> None:
    register = Register(store, "r", format=FORMAT)
    held = register.swap(None, {"x": "A"})
    register.swap(register.swap(held, {"x": "B"}), {"x": "A"})
    with pytest.raises(LostRaceError):
        register.swap(held, {"x": "C"})


def test_a_register_keeps_the_marks_of_its_last_swaps(store: ObjectStore) -> None:
    register = Register(store, "r", format=FORMAT)
    held = None
    for number in range(MARKS + 10):
        held = register.swap(held, {}, mark=str(number))
    assert held is not None
    assert held.marks == tuple(str(number) for number in range(10, MARKS + 10))


def test_an_update_whose_answer_was_lost_and_overwritten_happens_once(store: ObjectStore) -> None:
    register = Register(store, "r", format=FORMAT)

    def intrude() -> None:
        register.update(count, mark="theirs")

    held = Register(LossyStore(store, meanwhile=intrude), "r", format=FORMAT).update(count, mark="ours")
    assert held is not None
    assert (held.value, held.marks) == ({"count": 2}, ("ours", "theirs"))


def test_an_update_is_repeatable_after_a_client_that_gave_up(store: ObjectStore) -> None:
    impatient = Register(LossyStore(store, retries=False), "r", format=FORMAT)
    with pytest.raises(RetryableError):
        impatient.update(count, mark="ours")
    held = Register(store, "r", format=FORMAT).update(count, mark="ours")
    assert held is not None
    assert held.value == {"count": 1}


def test_an_update_with_nothing_to_do_writes_nothing(store: ObjectStore) -> None:
    register = Register(store, "r", format=FORMAT)
    assert register.update(lambda _: None, mark="m") is None
    assert register.read() is None


def test_an_update_that_fences_raises_the_epoch(store: ObjectStore) -> None:
    register = Register(store, "r", format=FORMAT)
    for turn in (1, 2):
        held = register.update(lambda _: {}, mark=f"seal-{turn}", raises_epoch=True)
        assert held is not None
        assert held.epoch == turn


@pytest.mark.thorough
def test_updates_of_many_threads_all_happen(store: ObjectStore) -> None:
    register = Register(store, "r", format=FORMAT)

    def run(number: int) -> None:
        for turn in range(20):
            register.update(count, mark=f"{number}-{turn}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run, range(6)))
    held = register.read()
    assert held is not None
    assert held.value == {"count": 120}
    assert len(set(held.marks)) == 120


def test_an_update_that_always_loses_says_so_when_its_patience_ends(store: ObjectStore) -> None:
    register = Register(store, "r", format=FORMAT)
    calls = 0

    def overtaken(held: RegisterSnapshot | None) -> dict[str, object]:
        nonlocal calls
        calls += 1
        register.swap(held, {})
        return {}

    with pytest.raises(LostRaceError):
        register.update(overtaken, mark="m", patience_s=0)
    assert calls == 1
