"""Migrations that meet each other, their cancellation, a release or clients, before each of their writes."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.catalog.tiering import TopicLocation
from reconciler.embedded.mounting.releasing import release
from reconciler.embedded.remote.manifests.topicmanifest import read_topic_manifest
from reconciler.errors import OwnershipLostError, ReconcilerError, RetryableError, UserError
from reconciler.objectstore import register
from reconciler.records.log import OffsetRange
from tests.embedded.migrating import (
    CLICKS,
    ORDERS,
    Bucket,
    Mount,
    again,
    check_mounted,
    deaths,
    detached,
    digests,
    expected,
    filled,
    holders,
    look,
    manifest_owners,
    mount_both,
    owner_of,
    places,
    process,
    rivals,
    rows,
    send,
    swept,
    tail,
    undecided,
    without_threads,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.embedded.producing.producer import Producer

FOUND = (UserError, RetryableError)


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th write is the same one every time."""
    without_threads(monkeypatch)


def _only(cluster: EmbeddedCluster) -> int:
    (number,) = cluster.mounts.under_way()
    return number


def _drive(cluster: EmbeddedCluster) -> None:
    for number in cluster.mounts.under_way():
        cluster.mounts.drive(number)


def _finish(bucket: Bucket, *names: str) -> None:
    for name in names:
        tail(bucket.cluster(name))


# -- one claim


@pytest.mark.fact("F-R-111", "F-R-112")
def test_of_clusters_that_race_for_a_topic_before_every_write_one_wins() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    bucket.east.mounts.mount(Mount(locations[0], CLICKS))
    bucket.cluster("south").mounts.mount(Mount(locations[0], CLICKS))
    lost = 0
    for left, said in rivals(bucket, "east", _drive, lambda now: _race(now, "south")):
        winner = owner_of(left, locations[0])
        assert winner in {"east", "south"}
        loser = "south" if winner == "east" else "east"
        if loser == "east":
            assert isinstance(said, OwnershipLostError)
            assert left.cluster(winner).cluster_id in str(said)
        else:
            assert said is None
        lost += loser == "east"
        look(left, locations[0])
        _give_up(left, loser)
        assert left.cluster(loser).topics() == {}
        assert digests(left.cluster(winner), CLICKS) == expected()[CLICKS]
        assert manifest_owners(left, locations[0], 3) == {winner}
    assert lost > 3


def _race(bucket: Bucket, name: str) -> None:
    said = _said(lambda: _drive(bucket.cluster(name)))
    assert said is None or (isinstance(said, OwnershipLostError) and bucket.east.cluster_id in str(said))


def _give_up(bucket: Bucket, name: str) -> None:
    cluster = bucket.cluster(name)
    for number, migration in cluster.mounts.under_way().items():
        if migration.state != "finished":
            cluster.mounts.cancel(number)
        cluster.mounts.ask(number, "delete")
    tail(cluster)
    assert not cluster.mounts.under_way()


@pytest.mark.fact("F-R-111")
def test_of_ten_clusters_one_wins_and_the_others_hear_who() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    names = [f"c{number}" for number in range(10)]
    for name in names:
        bucket.cluster(name).mounts.mount(Mount(locations[0], CLICKS))

    def chain(at: int) -> Callable[[str, str], None]:
        begun = []

        def next_one(_what: str, key: str) -> None:
            if key.startswith("mountable/") and not begun and at + 1 < len(names):
                begun.append(at)
                said.append(_said(lambda: _drive(process(bucket, names[at + 1], before=chain(at + 1)))))

        return next_one

    said: list[ReconcilerError | None] = []
    said.append(_said(lambda: _drive(process(bucket, names[0], before=chain(0)))))
    winner = owner_of(bucket, locations[0])
    assert winner is not None
    assert said.count(None) == 1
    assert all(
        isinstance(each, OwnershipLostError) and bucket.cluster(winner).cluster_id in str(each) for each in said if each
    )
    for name in names:
        if name != winner:
            _give_up(bucket, name)
    assert holders(bucket, locations[0]) == [winner]


def _said(do: Callable[[], object]) -> ReconcilerError | None:
    try:
        do()
    except ReconcilerError as error:
        return error
    return None


# -- cancelled


def _cancel_if_legal(bucket: Bucket, name: str) -> bool:
    cluster = bucket.cluster(name)
    for number in cluster.mounts.under_way():
        said = _said(partial(cluster.mounts.cancel, number))
        if said is not None:
            assert "cannot cancel" in str(said)
            return False
        cluster.mounts.ask(number, "delete")
        return True
    return False


@pytest.mark.fact("F-R-120", "F-R-121", "F-R-123")
def test_a_mount_that_is_cancelled_before_any_write_claims_nothing_any_more() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    bucket.east.mounts.mount(Mount(locations[0], CLICKS), Mount(locations[1], ORDERS))
    cancelled: list[bool] = []
    for left, said in rivals(bucket, "east", _drive, lambda now: cancelled.append(_cancel_if_legal(now, "east"))):
        assert said is None or isinstance(said, FOUND)
        if not cancelled[-1]:
            tail(left.east)
            check_mounted(left, locations)
            continue
        tail(left.east)
        assert left.east.topics() == {}
        for location in locations:
            assert owner_of(left, location) is None
            assert manifest_owners(left, location, 3) == {"nobody"}
        mount_both(left, locations, "south")
        check_mounted(left, locations, "south")
    assert cancelled.count(True) > 5


@pytest.mark.fact("F-R-120", "F-R-121", "F-R-123")
def test_an_unmount_that_is_cancelled_before_any_write_takes_nothing_any_more() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    bucket.west.mounts.unmount(CLICKS, ORDERS)
    cancelled: list[bool] = []
    producers = []

    def rival(now: Bucket) -> None:
        cancelled.append(_cancel_if_legal(now, "west"))
        if cancelled[-1]:
            send(now.west, CLICKS, "again", partition=1)
            producers.append(undecided(now.west, "shop:late", CLICKS, "later", partition=2))

    for left, said in rivals(bucket, "west", _drive, rival):
        assert said is None or isinstance(said, FOUND)
        west = left.west
        if not cancelled[-1]:
            tail(west)
            mount_both(left, locations)
            check_mounted(left, locations)
            continue
        producers[-1].commit()
        send(west, CLICKS, "and again", partition=1)
        west.finish_transactions()
        assert not west.mounts.under_way()
        found = [value for _, _, value in rows(west, CLICKS)]
        assert {b"a", b"b", b"c", b"again", b"and again", b"later"} <= set(found)
        assert owner_of(left, locations[0]) == "west"
        assert manifest_owners(left, locations[0], 3) <= {"west"}
    assert cancelled.count(True) > 10


@pytest.mark.fact("F-R-123", "F-R-124")
@pytest.mark.parametrize("state", ["preparing", "prepared", "executing", "executed"])
@pytest.mark.parametrize("name", ["west", "east"])
def test_a_cancel_that_died_at_any_write_is_finished_by_the_next(name: str, state: str) -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    number = _until(bucket, name, state, locations)
    for left in deaths(bucket, name, lambda cluster: cluster.mounts.cancel(number)):
        look(left, *locations)
        cluster = left.cluster(name)
        if cluster.mounts.under_way()[number].state == state:
            cluster.mounts.cancel(number)
        tail(cluster)
        assert cluster.mounts.under_way()[number].state == "cancelled"
        cluster.mounts.ask(number, "delete")
        if name == "west":
            assert manifest_owners(left, locations[0], 3) <= {"west"}
            send(cluster, CLICKS, "again")
            cluster.mounts.unmount(CLICKS, ORDERS)
            tail(cluster)
        assert cluster.topics() == {}
        assert [owner_of(left, location) for location in locations] == [None, None]


def _until(bucket: Bucket, name: str, state: str, locations: list[str]) -> int:
    """Bring a migration of both topics, out of `west` or into `east`, to a state, and return its id."""
    if name == "west":
        mounts = bucket.west.mounts
        number = mounts.unmount(CLICKS, ORDERS, is_automatic=False)
    else:
        detached(bucket)
        mounts = bucket.east.mounts
        number = mounts.mount(Mount(locations[0], CLICKS), Mount(locations[1], ORDERS), is_automatic=False)
    mounts.ask(number, "prepare")
    if state in {"prepared", "executing", "executed"}:
        mounts.drive(number)
    if state in {"executing", "executed"}:
        mounts.ask(number, "execute")
    if state == "executed":
        mounts.drive(number)
    assert mounts.under_way()[number].state == state
    return number


# -- released


@pytest.mark.fact("F-R-111")
def test_a_release_before_any_write_of_a_mount_leaves_one_owner_or_none() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    bucket.east.mounts.mount(Mount(locations[0], CLICKS), Mount(locations[1], ORDERS))
    refused: list[ReconcilerError | None] = []
    for left, said in rivals(bucket, "east", _drive, lambda now: refused.append(_released(now, locations[0], "east"))):
        assert said is None or isinstance(said, FOUND), said
        _settled(left, locations, is_released=refused[-1] is None)
    assert refused.count(None) > 5


@pytest.mark.fact("F-R-111")
def test_a_mount_before_any_write_of_a_release_leaves_one_owner_or_none() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    detached(bucket)
    bucket.cluster("south")
    mounts = bucket.east.mounts
    number = mounts.mount(Mount(locations[0], CLICKS), Mount(locations[1], ORDERS), is_automatic=False)
    for verb in ("prepare", "execute", "finish"):
        mounts.ask(number, verb)
        if verb != "finish":
            mounts.drive(number)
    for left, said in rivals(
        bucket,
        "south",
        lambda south: _release(south, locations[0], bucket.east.cluster_id),
        lambda now: _said(lambda: _drive(now.east)),
    ):
        assert said is None
        _settled(left, locations, is_released=True)


def _released(bucket: Bucket, location: str, owner: str) -> ReconcilerError | None:
    return _said(lambda: _release(bucket.cluster("south"), location, bucket.cluster(owner).cluster_id))


def _release(cluster: EmbeddedCluster, location: str, owner: str) -> None:
    assert cluster.storage is not None
    release(cluster.storage, TopicLocation.parse(location), owner, now_ms=cluster.now_ms())


def _settled(left: Bucket, locations: list[str], *, is_released: bool) -> None:
    """See that what is released can be mounted by a third, and what is not is the second's."""
    east = left.east
    for number, migration in east.mounts.under_way().items():
        _said(partial(east.mounts.drive, number))
        if migration.state in {"executing", "executed"} and number in east.mounts.under_way():
            east.mounts.cancel(number)
            east.mounts.ask(number, "delete")
    tail(east)
    assert {migration.state for migration in east.mounts.under_way().values()} <= {"finished"}
    if not is_released:
        check_mounted(left, locations)
        return
    if CLICKS in east.topics():  # It came after the last look: as any owner that lives, east is refused from now on.
        send(east, CLICKS, "lost", partition=0)
        east.mounts.unmount(CLICKS)
        assert isinstance(_said(lambda: _drive(east)), OwnershipLostError)
        _give_up(left, "east")
        east.delete_topic(CLICKS)
    assert owner_of(left, locations[0]) is None
    assert manifest_owners(left, locations[0], 3) == {"nobody"}
    assert CLICKS not in east.topics()
    south = left.cluster("south")
    south.mounts.mount(Mount(locations[0], CLICKS))
    tail(south)
    assert digests(south, CLICKS) == expected()[CLICKS]
    assert manifest_owners(left, locations[0], 3) == {"south"}


@pytest.mark.fact("F-R-111")
def test_a_release_that_died_at_any_write_is_done_again_and_the_owner_that_lives_is_refused() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    west = bucket.west
    west.finish_transactions()
    west.upkeep().upload()
    bucket.cluster("south")
    for left in deaths(bucket, "south", lambda south: _release(south, locations[1], west.cluster_id)):
        if owner_of(left, locations[1]) == "west":
            _release(left.cluster("south"), locations[1], west.cluster_id)
        assert manifest_owners(left, locations[1], 1) == {"nobody"}
        send(left.west, ORDERS, "lost", "lost too")
        left.west.upkeep().roll()
        (error, *_) = left.west.upkeep().upload().errors
        assert isinstance(error, OwnershipLostError)
        south = left.cluster("south")
        south.mounts.mount(Mount(locations[1], ORDERS))
        tail(south)
        assert owner_of(left, locations[1]) == "south"
        before = digests(south, ORDERS)
        for job in ("roll", "upload", "merge", "retain", "compact"):
            getattr(left.west.upkeep(), job)()
        left.west.delete_topic(ORDERS)
        swept(left, "west")
        assert digests(south, ORDERS) == before
        assert manifest_owners(left, locations[1], 1) == {"south"}


@pytest.mark.fact("F-R-109")
def test_a_release_before_any_write_of_an_unmount_lets_it_come_to_an_end() -> None:
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    bucket.west.mounts.unmount(CLICKS, ORDERS)
    for left, said in rivals(bucket, "west", _drive, lambda now: _released(now, locations[0], "west")):
        assert said is None or isinstance(said, FOUND)
        west = left.west
        for number in west.mounts.under_way():
            if isinstance(_said(partial(west.mounts.drive, number)), OwnershipLostError):
                west.mounts.cancel(number)
        tail(west)
        assert {migration.state for migration in west.mounts.under_way().values()} <= {"cancelled"}
        if CLICKS not in west.topics():
            mount_both(left, locations)
            check_mounted(left, locations)


# -- overtaken by others who drive the same migration, and by all that may come after it


def _finished(bucket: Bucket) -> None:
    """Let others finish what is under way on `west` and `east`."""
    _finish(bucket, *(name for name in ("west", "east") if name in bucket.stores))


def _once_more(bucket: Bucket, name: str, to: str) -> None:
    """Move `CLICKS` on, with more records."""
    location = bucket.location(CLICKS, name)
    for number in range(4):
        send(bucket.cluster(name), CLICKS, f"{name}{number}", partition=number % 3)
        bucket.cluster(name).upkeep().roll()
        bucket.cluster(name).upkeep().upload()
        bucket.cluster(name).groups.commit("shop:readers", {(CLICKS, 0): 3 + number})
    bucket.unmounted(CLICKS, name)
    if to:
        bucket.mounted(location, CLICKS, to)


JOURNEYS: dict[str, tuple[str, ...]] = {
    "nothing more": (),
    "mounted elsewhere": ("east",),
    "mounted here again": ("west",),
    "mounted elsewhere and here again": ("east", "west"),
    "detached again": ("east", ""),
    "mounted here, and detached again": ("west", ""),
    "mounted here twice": ("west", "west"),
}


@pytest.mark.fact("F-R-124", "F-R-111")
@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_driver_of_an_unmount_that_wakes_up_late_takes_nothing(journey: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "MARKS", 8)
    bucket = filled()
    location = bucket.location(CLICKS)
    bucket.west.mounts.unmount(CLICKS)
    seen: list[object] = []

    def rival(now: Bucket) -> None:
        _finished(now)
        before = ""
        for name in JOURNEYS[journey]:
            if before:
                _once_more(now, before, name)
            else:
                now.mounted(location, CLICKS, name)
            before = name
        _finished(now)
        seen.append(_state(now, location))

    for left, said in rivals(bucket, "west", _drive, rival):
        if said is not None:
            raise AssertionError from said
        assert _state(left, location) == seen[-1]
        _finished(left)
        assert _state(left, location) == seen[-1]


@pytest.mark.fact("F-R-124", "F-R-112")
@pytest.mark.parametrize("journey", [None, "", "west", "east"])
def test_a_driver_of_a_mount_that_wakes_up_late_takes_nothing(
    journey: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "MARKS", 8)
    bucket = filled()
    location = bucket.location(CLICKS)
    detached(bucket)
    bucket.east.mounts.mount(Mount(location, CLICKS))
    seen: list[object] = []

    def rival(now: Bucket) -> None:
        _finished(now)
        if journey is not None:
            _once_more(now, "east", journey)
        _finished(now)
        seen.append(_state(now, location))

    for left, said in rivals(bucket, "east", _drive, rival):
        if said is not None:
            raise AssertionError from said
        assert _state(left, location) == seen[-1]
        _finished(left)
        assert _state(left, location) == seen[-1]


def _state(bucket: Bucket, location: str) -> object:
    """Return who has the topic, what is readable of it there, where its group is, and what lies in the stores."""
    held = holders(bucket, location)
    owner = owner_of(bucket, location)
    assert held == ([] if owner is None else [owner])
    owners = manifest_owners(bucket, location, 3)
    assert owners == {owner or "nobody"}
    where = TopicLocation.parse(location)
    told = read_topic_manifest(bucket.storage, where.cluster_id, where.revision)
    assert told is not None
    heads = {name: [each.key for each in store.list("heads/")] for name, store in bucket.stores.items()}
    if owner is None:
        return told.owner, told.groups, heads
    cluster = bucket.cluster(owner)
    return told.owner, digests(cluster, CLICKS), cluster.groups.fetch("shop:readers"), heads


# -- clients, before every write


_NUMBERS = itertools.count()


def _append(producers: dict[int, Producer], said: list[tuple[int, bytes]]) -> None:
    """Append to all partitions as producers do that have been at it for long; note what is acknowledged."""
    for partition, producer in producers.items():
        value = f"late{next(_NUMBERS)}".encode()
        producer.send(CLICKS, value, partition=partition)
        error = _said(producer.flush)
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
    _drive(process(bucket, "west", **hook))
    tail(bucket.west)
    bucket.mounted(location)
    found = [(number, value) for number, _, value in rows(bucket.east, CLICKS)]
    assert len(said) > 10
    assert refused > 10
    assert set(said) <= set(found)
    assert len(found) == len(set(found))
    ghosts = {(number, value) for number, value in found if value is not None and value.startswith(b"late")} - set(said)
    assert ghosts == set()


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
                ended.append(_said(end))

        _drive(process(now, "west", before=meet))
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
    for read in (lambda: list(log.read(0, OffsetRange(0, 100))), log.bounds, lambda: log.bounds_of(0)):
        assert isinstance(_said(read), UserError), read


JOBS = ("roll", "upload", "compact", "merge", "retain")


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
    _drive(bucket.west)


def _moved(now: Bucket, before: list[object]) -> None:
    location = now.location(ORDERS)
    _drive_out(now, ORDERS)
    now.mounted(location, ORDERS)
    before.append(digests(now.east, ORDERS))
