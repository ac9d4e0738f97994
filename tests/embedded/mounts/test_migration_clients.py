"""Producers, transactions, readers and upkeep beside a migration, before or after each of its writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.records.log import OffsetRange
from tests.embedded.mounts.migrants import (
    CLICKS,
    ORDERS,
    Bucket,
    again,
    digests,
    drive,
    expected,
    filled,
    manifest_owners,
    places,
    process,
    refusal,
    rivals,
    rows,
    send,
    swept,
    tail,
    without_threads,
)

if TYPE_CHECKING:
    from reconciler.embedded.clients.producer import Producer
    from reconciler.embedded.cluster import EmbeddedCluster

FOUND = (UserError, RetryableError)


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


_NUMBERS = itertools.count()


def _append(producers: dict[int, Producer], said: list[tuple[int, bytes]]) -> None:
    """Append to all partitions as producers do that have been at it for long; note what is acknowledged."""
    for partition, producer in producers.items():
        value = f"late{next(_NUMBERS)}".encode()
        producer.send(CLICKS, value, partition=partition)
        error = refusal(producer.flush)
        if error is None:
            said.append((partition, value))
        else:
            words = str(error)
            assert "INVALID_TOPIC_EXCEPTION" in words or "was deleted" in words or "does not exist" in words, words


@pytest.mark.fact("F-R-104", "F-R-106", "F-R-107")
@pytest.mark.parametrize("is_after", [False, True])
def test_whatever_was_acknowledged_before_or_after_any_write_of_an_unmount_is_there_after_the_mount(
    is_after: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    bucket = filled()
    location = bucket.location(CLICKS)
    west = process(bucket, "west")
    producers = {partition: west.producer() for partition in range(3)}
    said: list[tuple[int, bytes]] = []
    refused, last = 0, ""

    def append(_what: str, key: str) -> None:
        nonlocal refused, last
        is_again, last = key == last, key  # Who lost a race to an append wins the next one.
        if not is_again and not key.startswith(("transactions/", "groups/")):
            before = len(said)
            _append(producers, said)
            refused += len(said) == before

    west.mounts.unmount(CLICKS)
    _append({0: producers[0], 1: producers[1]}, said)
    hook = {"after" if is_after else "before": append}
    drive(process(bucket, "west", **hook))
    tail(bucket.west)
    bucket.mounted(location)
    found = [(number, value) for number, _, value in rows(bucket.east, CLICKS)]
    assert len(said) > 10
    assert refused > 10
    assert set(said) <= set(found)
    assert len(found) == len(set(found))
    ghosts = {(number, value) for number, value in found if value is not None and value.startswith(b"late")} - set(said)
    assert ghosts == set()


@pytest.mark.fact("F-R-104", "F-R-107")
@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize("partition", range(3))
def test_an_append_that_the_whole_cut_overtakes_before_any_of_its_writes_is_there_or_refused(
    partition: int,
    is_used: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    bucket = filled()
    location = bucket.location(CLICKS)
    number = bucket.west.mounts.unmount(CLICKS, is_automatic=False)
    bucket.west.mounts.ask(number, "prepare")
    bucket.west.mounts.drive(number)
    outcomes = set()
    for at in itertools.count():
        now = again(bucket)
        ahead: list[int] = []

        def meet(_what: str, _key: str, now: Bucket = now, ahead: list[int] = ahead) -> None:
            for before in ahead[:1]:
                ahead[:] = [before - 1] * (before > 0)
                if before == 0:
                    for verb in ("execute", "finish", "delete"):
                        now.west.mounts.ask(number, verb)
                        now.west.mounts.drive(number)

        producer = process(now, "west", before=meet).producer()
        if is_used:
            producer.send(CLICKS, "first", partition=partition)
            producer.flush()
        ahead.append(at)
        producer.send(CLICKS, "late", partition=partition)
        said = refusal(producer.flush)
        if ahead:
            break
        now.mounted(location)
        found = [value for _, _, value in rows(now.east, CLICKS)]
        assert found.count(b"late") == (said is None)
        assert (b"first" in found) == is_used
        outcomes.add(said is None)
    # A first append writes once more, when it is there to stay: the cut takes it along then.
    assert outcomes == ({False, True} if partition == 2 and not is_used else {False})


@pytest.mark.fact("F-R-103", "F-R-104")
def test_a_first_append_that_lands_once_all_is_uploaded_is_refused_and_not_missed_by_the_mount() -> None:
    bucket = filled()
    location = bucket.location(CLICKS)
    number = bucket.west.mounts.unmount(CLICKS, is_automatic=False)
    waiting = ["prepare", "execute"]

    def meet(_what: str, key: str) -> None:
        while waiting and key.startswith("heads/"):
            bucket.west.mounts.ask(number, waiting.pop(0))
            bucket.west.mounts.drive(number)

    producer = process(bucket, "west", before=meet).producer()
    producer.send(CLICKS, "late", partition=2)
    assert isinstance(refusal(producer.flush), UserError)
    bucket.west.mounts.drive_to_end(number)
    bucket.mounted(location)
    assert digests(bucket.east, CLICKS) == expected()[CLICKS]


@pytest.mark.thorough
@pytest.mark.fact("F-R-108")
@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_that_ends_before_any_write_of_an_unmount_is_wholly_there_or_not_at_all(
    commits: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    bucket = filled()
    location = bucket.location(CLICKS)
    bucket.west.mounts.unmount(CLICKS)
    ended: list[ReconcilerError | None] = []

    outcomes = set()
    for at in itertools.count():
        now, met = again(bucket), False
        producer = now.west.producer("shop:both", transaction_timeout_ms=900_000)
        producer.init_transactions()
        producer.begin()
        for partition in range(2):
            producer.send(CLICKS, "both", partition=partition)
        producer.flush()
        end, writes = producer.commit if commits else producer.abort, itertools.count()

        def meet(_what: str, _key: str, at: int = at, end: Any = end, writes: Iterator[int] = writes) -> None:
            nonlocal met
            if next(writes) == at:
                met = True
                ended.append(refusal(end))

        drive(process(now, "west", before=meet))
        if not met:
            break
        tail(now.west)
        now.mounted(location)
        found = [number for number, _, value in rows(now.east, CLICKS) if value == b"both"]
        is_committed = commits and ended[-1] is None
        assert found == ([0, 1] if is_committed else [])
        outcomes.add(is_committed)
    assert outcomes == ({True, False} if commits else {False})


@pytest.mark.fact("F-R-105")
def test_a_reader_that_is_open_across_the_cut_reads_the_whole_or_is_told() -> None:
    bucket = filled()
    bucket.west.finish_transactions()
    log = bucket.west.log(ORDERS)
    whole = [b"o0", b"o1", b"o2"]
    reader = iter(log.read(0, OffsetRange(0, 100)))
    got = [row["value"] for row in next(reader).to_pylist()]
    bucket.west.mounts.unmount(ORDERS)
    tail(bucket.west)
    error = None
    try:
        for batch in reader:
            got += [row["value"] for row in batch.to_pylist()]
    except UserError as found:
        error = found
    assert got == whole[: len(got)]
    assert got == whole or error is not None
    for read in (lambda: list(log.read(0, OffsetRange(0, 100))), log.read_bounds, lambda: log.bounds_of(0)):
        assert isinstance(refusal(read), UserError), read


JOBS = ("roll", "upload", "compact", "merge", "retain")


@pytest.mark.thorough
@pytest.mark.fact("F-R-125")
@pytest.mark.parametrize("job", [*JOBS, "sweep", "finish_deletions"])
def test_upkeep_of_the_origin_that_wakes_up_after_the_topic_moved_harms_nobody(job: str) -> None:
    bucket = filled()
    west = bucket.west
    west.finish_transactions()
    locations = places(bucket, CLICKS, ORDERS)
    for number in range(4):
        send(west, ORDERS, f"o{number}")
        west.upkeep().roll()
    west.upkeep().upload()
    west.alter_topic(ORDERS, {"retention.bytes": "1", "cleanup.policy": "compact,delete"})
    send(west, ORDERS, "x", "y")
    before: list[object] = []

    def rival(now: Bucket) -> None:
        now.west.mounts.unmount(ORDERS, CLICKS)
        tail(now.west)
        now.mounted(locations[1], ORDERS)
        send(now.east, ORDERS, "on east")
        before.append(digests(now.east, ORDERS))

    def do(cluster: EmbeddedCluster) -> None:
        if job in {"sweep", "finish_deletions"}:
            getattr(cluster, job)()
        else:
            tended = getattr(cluster.upkeep(), job)()
            assert len(tended.errors) <= 2

    if job == "finish_deletions":
        _drive_out(bucket, CLICKS)
    moves = partial(_moved, before=before) if job == "finish_deletions" else rival
    for left, said in rivals(bucket, "west", do, moves):
        assert said is None or isinstance(said, FOUND), said
        assert digests(left.east, ORDERS) == before[-1]
        assert manifest_owners(left, locations[1], 1) == {"east"}
        swept(left, "west")
        swept(left, "east")
        assert digests(left.east, ORDERS) == before[-1]


def _drive_out(bucket: Bucket, full_name: str) -> None:
    """Unmount a topic, and leave what is local of it."""
    bucket.west.mounts.unmount(full_name)
    drive(bucket.west)


def _moved(now: Bucket, before: list[object]) -> None:
    location = now.location(ORDERS)
    _drive_out(now, ORDERS)
    now.mounted(location, ORDERS)
    before.append(digests(now.east, ORDERS))
