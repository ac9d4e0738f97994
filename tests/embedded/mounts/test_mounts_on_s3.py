"""Processes that mount and unmount topics of a real S3 server, killed or cut off in each state: one owner, no loss."""

from __future__ import annotations

import multiprocessing
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.mounts.mounts import Mount
from reconciler.errors import OwnershipLostError, RetryableError
from reconciler.objectstore import register, swap
from reconciler.objectstore.open import open_store
from reconciler.objectstore.settings import Patience, StoreSettings
from tests.embedded.tiered.tiered_cluster import BOTH
from tests.servers.proxy import FailedChore, Fault, Mute, Proxy

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tests.servers.weed import S3Server

pytestmark = pytest.mark.thorough

CLICKS: Final = "shop:clicks"
PARTITIONS: Final = 2
RECORDS: Final = 4
DEADLINE_S: Final = 120.0
BUSY: Final = FailedChore(503, "SlowDown")
SHORT: Final = Patience(initial_backoff_ms=1, upload_ms=300, register_ms=300)

HOLDS: Final = {
    "unmount, preparing": ("PUT", ".parquet"),
    "unmount, executing, sealed": ("PUT", "/manifest.json"),
    "unmount, cut_over, before the topic is told": ("PUT", "/topic.json"),
    "unmount, cut_over, before it is detached": ("PUT", "mountable/"),
    "mount, preparing": ("GET", "mountable/"),
    "mount, executing": ("PUT", "mountable/"),
    "mount, cut_over, before the manifests are taken over": ("PUT", "/manifest.json"),
    "mount, cut_over, before the topic is told": ("PUT", "/topic.json"),
}
"""A state, and the request of it that gets no answer."""
_EVERY_DAY: Final = ("unmount, executing, sealed", "mount, cut_over, before the manifests are taken over")
STATES: Final = [each if each in _EVERY_DAY else pytest.param(each, marks=pytest.mark.soak) for each in HOLDS]


@dataclass(frozen=True)
class Place:
    """Where one cluster lies, and its object storage. Picklable."""

    root: StoreSettings
    storage: StoreSettings

    def opened(self) -> EmbeddedCluster:
        return EmbeddedCluster.create(
            open_store(self.root), now_ms=_now_ms, new_id=lambda: str(uuid.uuid4()), storage=open_store(self.storage)
        )

    def through(self, proxy: Proxy, patience: Patience | None = None) -> Place:
        """Return it with an object storage that is reached through a proxy."""
        storage = replace(self.storage, endpoint=proxy.endpoint, patience=patience or self.storage.patience)
        return replace(self, storage=storage)


@dataclass
class Travel:
    """A topic of the cluster `west`, and clusters it may go to; all share one object storage."""

    server: S3Server
    west: Place
    location: str

    @classmethod
    def begun(cls, server: S3Server) -> Travel:
        """Make the first cluster, with a topic that has records."""
        url = server.url("mounting")
        west = Place(server.settings(url=f"{url}/west"), server.settings(url=f"{url}/bucket"))
        cluster = _furnished(west)
        cluster.create_topic(CLICKS, partitions=PARTITIONS, configs=BOTH)
        with cluster.producer() as producer:
            for number in range(PARTITIONS * RECORDS):
                producer.send(CLICKS, b"v%d" % number, partition=number % PARTITIONS)
        revision = cluster.catalog.read().topics[CLICKS].revision
        return cls(server, west, f"{CLICKS}/{cluster.cluster_id}/{revision}")

    def another(self, name: str) -> Place:
        place = replace(self.west, root=replace(self.west.root, url=self.west.root.url.replace("/west", f"/{name}")))
        _furnished(place)
        return place

    def unmounted(self) -> None:
        mounts = self.west.opened().mounts
        assert mounts.drive(mounts.unmount(CLICKS)) is None


def _furnished(place: Place) -> EmbeddedCluster:
    cluster = place.opened()
    cluster.alter_cluster({"cloud_storage_enabled": "true"})
    cluster.create_namespace("shop")
    return cluster


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _values(cluster: EmbeddedCluster) -> list[bytes | None]:
    return sorted(each.value or b"" for each in cluster.consume(CLICKS))


WHOLE: Final = sorted(b"v%d" % number for number in range(PARTITIONS * RECORDS))


@pytest.fixture
def travel(s3_server: S3Server) -> Travel:
    return Travel.begun(s3_server)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with Proxy(s3_server.endpoint) as proxy:
        yield proxy


def _mount(place: Place, location: str, barrier: Any, said: Connection) -> None:
    """Mount as soon as all are ready; say how it ended. Runs in a process of its own."""
    mounts = place.opened().mounts
    barrier.wait(DEADLINE_S)
    number = 0
    try:
        number = mounts.mount(Mount(location, CLICKS))
        mounts.drive(number)
        said.send("mounted")
    except OwnershipLostError as error:
        if number:
            mounts.cancel(number)
        said.send(error.message)


def _drive(place: Place, number: int) -> None:
    place.opened().mounts.drive(number)


def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.embedded.mounts.test_mounts_on_s3", "botocore.session", "pyarrow.parquet"])
    return context


@pytest.mark.fact("F-R-111", "F-R-112")
@pytest.mark.parametrize("racers", [4, pytest.param(10, marks=pytest.mark.soak)])
def test_of_processes_that_mount_one_topic_one_wins_and_tells_the_others_who_it_is(travel: Travel, racers: int) -> None:
    travel.unmounted()
    places = [travel.another(f"east-{number}") for number in range(racers)]
    context = _context()
    barrier, ears, processes = context.Barrier(racers), [], []
    for place in places:
        ear, mouth = context.Pipe(duplex=False)
        process = context.Process(target=_mount, args=(place, travel.location, barrier, mouth))
        process.start()
        mouth.close()
        ears.append(ear)
        processes.append(process)
    said = [ear.recv() if ear.poll(DEADLINE_S) else "nothing" for ear in ears]
    for process in processes:
        process.join(DEADLINE_S)
    assert said.count("mounted") == 1
    owner = places[said.index("mounted")].opened()
    assert all(owner.cluster_id in message for message in said if message != "mounted")
    assert _values(owner) == WHOLE
    assert [CLICKS in place.opened().topics() for place in places].count(True) == 1


@pytest.mark.fact("F-R-124")
@pytest.mark.parametrize("state", STATES)
def test_a_process_killed_in_any_state_is_finished_by_the_next(travel: Travel, proxy: Proxy, state: str) -> None:
    place, number = _begun(travel, state)
    reached = _held(proxy, state, Mute)
    process = _context().Process(target=_drive, args=(place.through(proxy), number))
    process.start()
    assert reached.wait(DEADLINE_S)
    process.kill()
    process.join()
    proxy.heal()
    _is_finished(travel, place, number)


@pytest.mark.parametrize("state", STATES)
def test_while_the_bucket_does_not_answer_a_state_stays_and_is_gone_through_afterwards(
    travel: Travel, proxy: Proxy, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "TRIES", 2)
    monkeypatch.setattr(register, "PATIENCE_S", 0.0)
    place, number = _begun(travel, state)
    reached = _held(proxy, state, lambda *, then: replace(BUSY, then=then))
    with pytest.raises(RetryableError):
        place.through(proxy, SHORT).opened().mounts.drive(number)
    assert reached.is_set()
    proxy.heal()
    _is_finished(travel, place, number)


@pytest.mark.soak
@pytest.mark.parametrize("state", HOLDS)
def test_a_minute_without_the_bucket_loses_nothing_in_any_state(travel: Travel, proxy: Proxy, state: str) -> None:
    place, number = _begun(travel, state)
    reached = _held(proxy, state, lambda *, then: replace(BUSY, then=then))
    until = time.monotonic() + 60
    mounts = place.through(proxy).opened().mounts
    while time.monotonic() < until:
        with pytest.raises(RetryableError):
            mounts.drive(number)
    assert reached.is_set()
    proxy.heal()
    _is_finished(travel, place, number)


def _begun(travel: Travel, state: str) -> tuple[Place, int]:
    """Begin the migration that a state is of; return where, and its id."""
    if state.startswith("unmount"):
        return travel.west, travel.west.opened().mounts.unmount(CLICKS)
    travel.unmounted()
    east = travel.another("east")
    return east, east.opened().mounts.mount(Mount(travel.location, CLICKS))


def _held(proxy: Proxy, state: str, fault: Any) -> threading.Event:
    """Do this to every such request of the state; return what is set when the first has come."""
    reached = threading.Event()
    method, key = HOLDS[state]
    held: Fault = fault(then=reached.set)
    proxy.on(method, held, key=key, times=1_000_000)
    return reached


def _is_finished(travel: Travel, place: Place, number: int) -> None:
    """See that another process brings it to its end, and that nothing is lost."""
    cluster = place.opened()
    assert cluster.mounts.finish() == {number: None}
    if place == travel.west:
        assert CLICKS not in cluster.topics()
        cluster = travel.another("east").opened()
        cluster.mounts.drive(cluster.mounts.mount(Mount(travel.location, CLICKS)))
    assert _values(cluster) == WHOLE
