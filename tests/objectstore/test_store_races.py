"""Many at once on one object of a real server, of each kind: exactly one wins, and nothing is lost."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import LostRaceError
from reconciler.objectstore.open import open_store
from reconciler.objectstore.register import Register, RegisterSnapshot

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, Version

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
FORMAT = "reconciler.test/1"

# Started together, each tells by its output which of the keys it created, then counts.
RACING = """
import pickle, sys
from reconciler.errors import LostRaceError
from reconciler.objectstore.register import Register
store, me = pickle.load(sys.stdin.buffer), sys.argv[1]
store.get("nothing")
print("ready", flush=True)
sys.stdin.buffer.readline()
won = []
for key in range(20):
    try:
        store.swap(f"race/{key}", f"{me}-{key}".encode(), expected=None)
    except LostRaceError:
        continue
    won.append(str(key))
register = Register(store, "count", format="reconciler.test/1")
for turn in range(10):
    register.update(lambda held: {"count": (held.value["count"] if held else 0) + 1}, mark=f"{me}-{turn}")
print(" ".join(won), flush=True)
"""


@pytest.fixture(params=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """A fresh place on a server of each kind, with all it needs to travel."""
    return open_store(request.getfixturevalue(f"{request.param}_server").settings("races"))


def test_of_threads_that_swap_at_once_one_wins_every_time(store: ObjectStore) -> None:
    threads, turns = 16, 5
    barrier = Barrier(threads)

    def swap(number: int, expected: Version | None, turn: int) -> bool:
        barrier.wait()
        try:
            store.swap("a", f"{turn}-{number}".encode(), expected=expected)
        except LostRaceError:
            return False
        return True

    with ThreadPoolExecutor(threads) as pool:
        for turn in range(turns):
            found = store.get("a")
            expected = None if found is None else found.version
            won = list(
                pool.map(lambda number, expected=expected, turn=turn: swap(number, expected, turn), range(threads))
            )
            assert sum(won) == 1
            after = store.get("a")
            assert after is not None
            assert after.body == f"{turn}-{won.index(True)}".encode()


def test_of_processes_that_create_at_once_one_wins_each_key_and_every_update_happens(store: ObjectStore) -> None:
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", RACING, str(number)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for number in range(4)
    ]
    for one in racing:
        assert one.stdin is not None
        one.stdin.write(pickle.dumps(store))
        one.stdin.flush()
    for one in racing:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
    won = [[int(key) for key in one.communicate(b"go\n", timeout=120)[0].split()] for one in racing]
    assert [one.returncode for one in racing] == [0] * 4
    assert sorted(key for keys in won for key in keys) == list(range(20))
    for number, keys in enumerate(won):
        for key in keys:
            found = store.get(f"race/{key}")
            assert found is not None
            assert found.body == f"{number}-{key}".encode()
    held = Register(store, "count", format=FORMAT).read()
    assert isinstance(held, RegisterSnapshot)
    assert held.value == {"count": 40}
    assert len(set(held.marks)) == 40


def test_a_listing_of_thousands_is_whole_and_a_deletion_of_thousands_too(store: ObjectStore) -> None:
    names = [f"many/{number:05}" for number in range(1_234)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, b""), names))
    assert [listed.key for listed in store.list("many/")] == names
    store.delete(iter(["many/00000-none", *names]))
    assert list(store.list("")) == []
