"""Threads of one process that append to one partition at the same time: one swap brings what all of them want."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.clients.producer import Producer, SequencedProducer
from reconciler.embedded.segments.gate import PendingAppend, RecentHeads
from reconciler.embedded.segments.head import head_register, read_head
from reconciler.errors import OutOfOrderSequenceError, ProducerFencedError, RetryableError, UnansweredError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.deaths import Fault, Fuse, opened
from tests.embedded.samples import cluster_in, contents, values
from tests.embedded.stores import DiedError, KeyedStore, WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.embedded.context import ClusterContext
    from reconciler.objectstore.base import ObjectStore, StoredObject

TOPIC = "shop:orders"
ROOT = Path(__file__).resolve().parents[3]
WITHIN_S = 30.0
"""Longer than anything here takes on a slow machine: a wait that never ends fails the test."""


class Lines(RecentHeads):
    """Tells who stands in line."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.standing: Counter[object] = Counter()
        self.is_over = False
        super().__init__()

    def join_queue(self, line: object, ours: PendingAppend) -> None:
        super().join_queue(line, ours)
        with self.changed:
            self.standing[line] += 1
            self.changed.notify_all()

    def leave_queue(self, line: object, ours: PendingAppend) -> None:
        super().leave_queue(line, ours)
        with self.changed:
            self.standing[line] -= 1

    def gather(self, count: int) -> None:
        """Return when so many stand in line, or nobody comes any more."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.is_over or sum(self.standing.values()) >= count, WITHIN_S)

    def end(self) -> None:
        with self.changed:
            self.is_over = True
            self.changed.notify_all()


class Held(WatchedStore):
    """Holds the first swap of a head back until `held` threads stand in line.

    `on_swap` and `after_swap` are called around each with its number. `loses` names the swap that lands and gives no
    answer; where it `fails_after`, the next read of a head fails too. A `fuse` can end the process at any write.
    """

    def __init__(self, inner: ObjectStore, lines: Lines) -> None:
        super().__init__(inner, before=self._before, after=self._after)
        self.lines = lines
        self.held = self.swaps = 0
        self.loses = -1
        self.fails_after = False
        self.on_swap: Callable[[int], None] = lambda _number: None
        self.after_swap: Callable[[int], None] = lambda _number: None
        self.fuse = Fuse()

    def watch(self, held: int) -> None:
        self.held, self.swaps = held, 0
        self.calls.clear()

    def get(self, key: str) -> StoredObject | None:
        self.fuse.check()
        if self.fails_after and self.swaps == self.loses and key.startswith("heads/"):
            self.fails_after = False
            raise RetryableError("the store is not there", hint="Try it again.")
        return super().get(key)

    def _before(self, what: str, key: str) -> None:
        if is_swap := what == "swap" and key.startswith("heads/"):
            self.swaps += 1
            if self.swaps == 1 and self.held:
                self.lines.gather(self.held)
        self._burn(self.fuse.before, what, key)
        if is_swap:
            self.on_swap(self.swaps)

    def _after(self, what: str, key: str) -> None:
        self._burn(self.fuse.after, what, key)
        if what == "swap" and key.startswith("heads/"):
            self.after_swap(self.swaps)
            if self.swaps == self.loses:
                raise UnansweredError("no answer from the store", hint="Run it again.")

    def _burn(self, fuse: Callable[[str, str], None], what: str, key: str) -> None:
        try:
            fuse(what, key)
        except DiedError:
            self.lines.end()
            raise


@dataclass
class Shared:
    """A cluster of one topic with one record, whose writers stand in lines that can be seen."""

    store: ObjectStore
    held: Held
    cluster: EmbeddedCluster
    context: ClusterContext

    @classmethod
    def on(cls, store: ObjectStore) -> Shared:
        lines = Lines()
        held = Held(store, lines)
        cluster = cluster_in(held)
        cluster.create_namespace("shop")
        cluster.create_topic(TOPIC)
        shared = cls(store, held, cluster, replace(cluster.context, heads=lines))
        shared.append("first")
        return shared

    @property
    def topic_id(self) -> str:
        return self.cluster.topic(TOPIC).id

    @property
    def values(self) -> list[bytes | None]:
        return [value for _, value in contents(opened(self.store).log(TOPIC))]

    def append(self, text: str, *, to: int = 0) -> OffsetRange:
        producer = Producer(self.context)
        producer.send(TOPIC, text, partition=to)
        return producer.flush()[TOPIC][to]

    def together(self, *appends: Callable[[], OffsetRange | None]) -> list[Future[OffsetRange]]:
        """Let the first begin a swap; it ends when all others, each on a thread, stand in line behind it."""
        self.held.watch(len(appends))
        with ThreadPoolExecutor(len(appends)) as threads:
            futures = [threads.submit(appends[0])]
            self.held.lines.gather(1)
            futures += [threads.submit(append) for append in appends[1:]]
        return futures

    def appends(self, *texts: str, to: int = 0) -> list[Callable[[], OffsetRange]]:
        return [partial(self.append, text, to=to) for text in texts]


@pytest.fixture
def shared(store: ObjectStore) -> Shared:
    return Shared.on(store)


def check_said(shared: Shared, said: dict[str, OffsetRange]) -> None:
    """See that each is there once, at the offset that was said."""
    found = shared.values
    assert len(found) == len(set(found))
    assert {text: found.index(text.encode()) for text in said} == {text: one.start for text, one in said.items()}


def test_sixteen_threads_append_to_one_partition_by_far_fewer_swaps_than_appends(shared: Shared) -> None:
    writers, appends = 16, 6
    active = writers

    def write(writer: int) -> dict[str, OffsetRange]:
        nonlocal active
        producer = Producer(shared.context)
        said = {}
        for number in range(appends):
            producer.append(TOPIC, values(f"{writer}-{number}"))
            said[f"{writer}-{number}"] = producer.flush()[TOPIC][0]
        with lines.changed:
            active -= 1
            lines.changed.notify_all()
        return said

    def gather(_swap: int) -> None:
        with lines.changed:
            assert lines.changed.wait_for(lambda: sum(lines.standing.values()) >= active, WITHIN_S)

    lines = shared.held.lines
    shared.held.watch(0)
    shared.held.on_swap = gather
    with ThreadPoolExecutor(writers) as threads:
        said = [each for one in threads.map(write, range(writers)) for each in one.items()]
    assert shared.held.count("put", "topics/") == len(said) == writers * appends
    assert shared.held.count("swap", "heads/") <= writers * appends / 4
    assert len(shared.values) == 1 + writers * appends
    check_said(shared, dict(said))


def test_those_that_wait_go_with_the_next_swap_in_the_order_in_which_they_came(shared: Shared) -> None:
    futures = shared.together(*shared.appends("a", "b", "c", "d"))
    assert shared.held.count("swap", "heads/") == 2
    assert shared.held.count("get", "heads/") == 0
    check_said(shared, dict(zip("abcd", [future.result() for future in futures], strict=True)))
    assert shared.values[:2] == [b"first", b"a"]


def test_appends_to_a_partition_never_written_all_get_there(shared: Shared) -> None:
    shared.cluster.alter_topic(TOPIC, partitions=2)
    check_second_partition(shared, [future.result() for future in shared.together(*shared.appends(*"abcd", to=1))])


def check_second_partition(shared: Shared, said: Sequence[OffsetRange]) -> None:
    found = contents(shared.cluster.log(TOPIC), 1)
    assert found == sorted((one.start, text.encode()) for text, one in zip("abcd", said, strict=True))
    assert [offset for offset, _ in found] == [0, 1, 2, 3]


def test_where_several_meet_at_a_head_that_is_not_there_one_makes_it_and_the_others_follow(store: ObjectStore) -> None:
    shared = Shared.on(store)
    shared.cluster.alter_topic(TOPIC, partitions=2)

    def refuse(swap: int) -> None:
        if swap == 1:
            raise RetryableError("the store is busy", hint="Try it again.")

    shared.held.on_swap = refuse
    check_second_partition(shared, [future.result() for future in shared.together(*shared.appends(*"abcd", to=1))])


# -- refused


def test_an_append_that_is_refused_fails_alone(shared: Shared) -> None:
    wrong = SequencedProducer(shared.context, "jumps")
    wrong.append(TOPIC, 0, values("numbered 0"), sequence=0)
    futures = shared.together(
        *shared.appends("a", "b"),
        lambda: wrong.append(TOPIC, 0, values("numbered 7"), sequence=7),
        *shared.appends("c"),
    )
    with pytest.raises(OutOfOrderSequenceError, match=r"7 \(incoming seq\. number\), 0 \(current end"):
        futures[2].result()
    check_said(shared, {text: futures[place].result() for text, place in (("a", 0), ("b", 1), ("c", 3))})
    assert b"numbered 7" not in shared.values
    assert shared.held.count("swap", "heads/") == 2


def test_where_all_are_refused_nothing_is_swapped(shared: Shared) -> None:
    newer = SequencedProducer(shared.context, "id", epoch=1)
    newer.append(TOPIC, 0, values("newer"), sequence=0)
    before = shared.values
    older = [SequencedProducer(shared.context, "id") for _ in range(3)]
    futures = shared.together(
        *shared.appends("a"), *[lambda one=one: one.append(TOPIC, 0, values("x"), sequence=0) for one in older]
    )
    assert futures[0].result() == OffsetRange(2, 3)
    for future in futures[1:]:
        with pytest.raises(ProducerFencedError, match="Epoch of producer id"):
            future.result()
    assert shared.values == [*before, b"a"]
    assert shared.held.count("swap", "heads/") == 1


def test_a_refusal_by_a_head_that_another_process_had_changed_is_decided_anew(store: ObjectStore) -> None:
    shared = Shared.on(store)
    ours = SequencedProducer(shared.context, "id")
    ours.append(TOPIC, 0, values("0"), sequence=0)

    def other_appends(swap: int) -> None:
        if swap == 1:
            other = SequencedProducer(opened(store).context, "id")
            other.append(TOPIC, 0, values("1"), sequence=1)

    shared.held.on_swap = other_appends
    futures = shared.together(
        *shared.appends("a", "b"), lambda: ours.append(TOPIC, 0, values("2"), sequence=2), *shared.appends("c")
    )
    assert [future.result() for future in futures if future.exception() is None] == [
        future.result() for future in futures
    ]
    assert sorted(value for value in shared.values if value) == [b"0", b"1", b"2", b"a", b"b", b"c", b"first"]


def seal(store: ObjectStore, topic_id: str) -> None:
    register = head_register(store, topic_id, 0)
    held = register.read()
    assert held is not None
    register.swap(held, held.value | {"writer": "someone else"}, epoch=held.epoch + 1)


def test_no_append_of_a_group_slips_past_a_sealed_head(shared: Shared) -> None:
    shared.held.on_swap = lambda swap: seal(shared.store, shared.topic_id) if swap == 2 else None
    futures = shared.together(*shared.appends("a", "b", "c", "d"))
    assert futures[0].result() == OffsetRange(1, 2)
    for future in futures[1:]:
        with pytest.raises(UserError, match="accepts no records now: someone else may write"):
            future.result()
    assert shared.values == [b"first", b"a"]


def test_a_group_whose_topic_is_deleted_meanwhile_is_refused_and_leaves_no_head(shared: Shared) -> None:
    def delete(swap: int) -> None:
        if swap == 1 and TOPIC in shared.cluster.topics():
            opened(shared.store).delete_topic(TOPIC)
            opened(shared.store).finish_deletions()

    shared.held.on_swap = delete
    futures = shared.together(*shared.appends("a", "b", "c"))
    for future in futures:
        with pytest.raises(UserError, match="shop:orders was deleted or unmounted"):
            future.result()
    assert [listed.key for listed in shared.store.list("heads/")] == []


def test_a_group_lies_under_the_key_that_holds_when_it_is_swapped() -> None:
    store = KeyedStore()
    shared = Shared.on(store)

    def encrypt(swap: int) -> None:
        if swap == 1:
            opened(store).encrypt_namespace("shop", "key-1")

    shared.held.on_swap = encrypt
    futures = shared.together(*shared.appends("a", "b", "c"))
    check_said(shared, {text: future.result() for text, future in zip("abc", futures, strict=True)})
    opened(store).finish_rewrites()
    found = read_head(store, shared.topic_id, 0)
    assert found is not None
    assert {(entry.kms_key_id, store.key_of[entry.key]) for entry in found.entries} == {("key-1", "key-1")}


# -- answers that are lost, threads that end, processes that die


@pytest.mark.parametrize("swap", [1, 2])
def test_a_shared_swap_whose_answer_is_lost_is_found_by_all_it_was_for(shared: Shared, swap: int) -> None:
    shared.held.loses = swap
    futures = shared.together(*shared.appends("a", "b", "c", "d"))
    assert len(shared.values) == 5
    check_said(shared, {text: future.result() for text, future in zip("abcd", futures, strict=True)})


@pytest.mark.parametrize("swap", [1, 2])
def test_so_it_is_where_the_store_then_fails_and_each_tries_again(shared: Shared, swap: int) -> None:
    shared.held.loses = swap
    shared.held.fails_after = True
    futures = shared.together(*shared.appends("a", "b", "c", "d"))
    assert len(shared.values) == 5
    check_said(shared, {text: future.result() for text, future in zip("abcd", futures, strict=True)})


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("swap", [1, 2])
def test_where_the_thread_that_swaps_is_interrupted_the_next_one_goes_on(
    shared: Shared, swap: int, *, lands: bool
) -> None:
    def interrupt(number: int) -> None:
        if number == swap:
            raise KeyboardInterrupt

    if lands:
        shared.held.after_swap = interrupt
    else:
        shared.held.on_swap = interrupt
    futures = shared.together(*shared.appends("a", "b", "c", "d"))
    (interrupted,) = [place for place, future in enumerate(futures) if future.exception() is not None]
    assert isinstance(futures[interrupted].exception(), KeyboardInterrupt)
    said = {text: future.result() for text, future in zip("abcd", futures, strict=True) if not future.exception()}
    assert len(said) == 3
    check_said(shared, said)
    assert (b"abcd"[interrupted : interrupted + 1] in shared.values) is lands


def test_who_waits_too_long_for_another_thread_is_told_that_it_may_be_there(shared: Shared) -> None:
    impatient = Producer(shared.context, delivery_timeout_ms=1)
    impatient.append(TOPIC, values("impatient"))

    def give_up(swap: int) -> None:
        if swap == 1:
            with pytest.raises(RetryableError, match=r"another thread of this process .* may have been written or not"):
                impatient.flush()

    shared.held.on_swap = give_up
    assert shared.append("a") == OffsetRange(1, 2)
    assert shared.values == [b"first", b"a"]


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("write", range(9))
def test_a_process_that_dies_at_any_write_loses_nothing_that_was_said_and_leaves_nothing_twice(
    write: int, *, done: bool
) -> None:
    shared = Shared.on(MemoryStore())
    fuse = Fuse()
    fuse.arm(Fault(write, "dies after" if done else "dies before"))
    shared.held.fuse = fuse
    futures = shared.together(*shared.appends("a", "b", "c", "d"))
    said = {text: future.result() for text, future in zip("abcd", futures, strict=True) if future.exception() is None}
    assert {type(future.exception()) for future in futures} <= {type(None), DiedError}
    check_said(shared, said)
    missing = [text for text in "abcd" if text.encode() not in shared.values]
    again = replace(shared, context=opened(shared.store).context)
    check_said(shared, said | {text: again.append(text) for text in missing})
    assert len(shared.values) == 5


# -- travelling


def test_heads_travel_without_what_is_known_and_without_those_who_wait() -> None:
    heads = RecentHeads()
    heads.join_queue("line", PendingAppend(lambda head, _epoch: head, "mark", 1))
    alone = PendingAppend(lambda head, _epoch: head, "mark", 1)
    copy.deepcopy(heads).join_queue("line", alone)
    assert alone.turn.is_set()


def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path)], cwd=ROOT, capture_output=True, check=False, timeout=WITHIN_S
    )
    assert ended.stdout.decode().split() == ["child", "True", "parent", "True"], ended.stderr.decode()


FORKING = """
import os
from reconciler.embedded.segments.gate import RecentHeads, PendingAppend

def wanted():
    return PendingAppend(lambda head, epoch: head, "mark", 1)

heads, before, ours = RecentHeads(), wanted(), wanted()
heads.join_queue("line", before)
heads._lock.acquire()
child = os.fork()
if child == 0:
    heads.append_in_turn("line", ours, lambda found: print("child", found == [ours], flush=True))
    os._exit(0)
os.waitpid(child, 0)
heads._lock.release()
heads.append_in_turn("line", before, lambda found: print("parent", found[0] is before))
"""
