"""Retention, eviction, deletion and sweep of two tiers over every kind of store, the local and the remote one."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.archives.manifest import iter_object_keys, read_manifest
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore import register, swap
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.settings import Patience
from reconciler.providers.secrets import read_patience
from tests.embedded.maintenance.tiny_segments import DAY, TOPIC, LateStore, append, head_of, held, with_topic
from tests.embedded.samples import ids
from tests.embedded.tiered.tiered_cluster import BOTH, Tiered, tiered
from tests.servers.proxy import Broken, FailedChore, Fault, Lost, Mute, Proxy, Slow
from tests.servers.stores import fresh_store

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from tests.servers.weed import S3Server

pytestmark = pytest.mark.thorough


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path, store: ObjectStore) -> ObjectStore:
    """Object storage of the same kind as the store."""
    scheme = store.url.partition("://")[0]
    request.param = {"memory": "memory", "file": "directory"}.get(scheme, scheme)
    return fresh_store(request, tmp_path / "remote")


@pytest.fixture
def it(store: ObjectStore, storage: ObjectStore) -> Tiered:
    found = Tiered(store, storage)
    found.switch_on(spillover_manifest_size="1024")
    found.cluster.alter_cluster({"retention_local_target_capacity_percent": "100"})
    with_topic(
        found.cluster, partitions=2, segment_bytes="14", remote_write="true", remote_read="true",
        retention_ms="2d", retention_local_target_ms="1d",
    )  # fmt: skip
    for number in range(24):
        at_ms = found.clock.now_ms + 1_000 * number
        append(found.cluster, (f"k{number}", str(number)), partition=number % 2, at_ms=at_ms)
    found.upload()
    return found


def values(it: Tiered, partition: int = 0) -> list[bytes]:
    return [row["value"] for row in held(it.opened(), partition)]


def test_a_topic_lives_on_two_tiers_and_goes_from_both(it: Tiered) -> None:
    before = [values(it, partition) for partition in range(2)]
    it.cluster.alter_topic(TOPIC, {"retention.local.strict": "true"})
    it.clock.now_ms += DAY + 10_500
    it.cluster.upkeep().retain()
    assert [head_of(it.cluster, partition).local_start for partition in range(2)] == [6, 5]
    assert [values(it, partition) for partition in range(2)] == before
    it.clock.now_ms += DAY
    it.cluster.upkeep().retain()
    assert [head_of(it.cluster, partition).start for partition in range(2)] == [6, 5]
    assert [values(it, partition) for partition in range(2)] == [before[0][6:], before[1][5:]]
    assert check_cluster(it.store, deep=True, storage=it.storage).findings == []
    it.storage.put(f"{it.remote().key_prefix}/0-0-1-0-v1-01234567.parquet", b"x")
    late: tuple[Any, Any] = LateStore(it.store, DAY + 60_000), LateStore(it.storage, DAY + 60_000)
    assert it.opened(*late).sweep().objects == 1
    assert [values(it, partition) for partition in range(2)] == [before[0][6:], before[1][5:]]
    it.cluster.delete_topic(TOPIC)
    assert [listed.key for listed in it.storage.list("")] == ["storage.json"]
    assert [listed.key for listed in it.store.list("topics/")] == []


# Object storage on a bad day: whatever its answers are, nothing is lost, nothing half-published, and it is finished.
#
# The storage is a real S3 server behind a proxy that refuses, delays and loses; what holds is looked up past the proxy.


PATIENCE = Patience(initial_backoff_ms=1, upload_ms=700, register_ms=700)
BUSY = FailedChore(503, "SlowDown")


@dataclass
class Net:
    """A tiered topic whose object storage is reached well, and how others reach it."""

    it: Tiered
    proxy: Proxy
    client: ObjectStore
    before: list[bytes]
    """The values of all records."""

    def opened(self) -> EmbeddedCluster:
        return self.it.opened(None, self.client)

    def values(self) -> list[bytes]:
        return [row["value"] for row in held(self.it.opened())]

    def is_whole(self) -> None:
        """See that all that is named is there, and that what is readable is a stretch of what was written."""
        head = head_of(self.it.opened())
        assert self.values() == self.before[head.start :]
        if read_manifest(self.it.storage, self.it.remote()) is None:
            assert (head.uploaded_to, head.local_start) == (0, 0)
            return
        assert set(iter_object_keys(self.it.segments())) <= self.it.objects()
        assert head.uploaded_to <= self.it.manifest().end

    def is_clean(self) -> None:
        assert self.it.objects() == set(iter_object_keys(self.it.segments()))
        assert check_cluster(self.it.store, deep=True, storage=self.it.storage).findings == []


@dataclass(frozen=True, slots=True)
class Job:
    """Something that is done with a topic of twelve closed segments, and how to see that it is done."""

    prepare: Callable[[Net], object]
    do: Callable[[EmbeddedCluster], object]
    is_done: Callable[[Net], bool]


def _upload(cluster: EmbeddedCluster) -> None:
    assert cluster.upkeep().upload().errors == []


def _retain(cluster: EmbeddedCluster) -> None:
    assert cluster.upkeep().retain().errors == []


def _merge(cluster: EmbeddedCluster) -> None:
    assert cluster.upkeep().merge().errors == []


def _expiring(net: Net) -> None:
    net.it.upload()
    net.it.clock.now_ms += DAY + 6_500
    net.it.cluster.alter_topic(TOPIC, {"retention.ms": "1d", "retention.local.target.ms": "1d"})


def _leaving(net: Net) -> None:
    net.it.upload()
    net.it.cluster.alter_topic(TOPIC, {"retention.local.strict": "true", "retention.local.target.bytes": "1"})


JOBS: Mapping[str, Job] = {
    "upload": Job(lambda _: None, _upload, lambda net: net.it.manifest().end == 12),
    "retention": Job(_expiring, _retain, lambda net: head_of(net.it.opened()).start == 7),
    "eviction": Job(_leaving, _retain, lambda net: head_of(net.it.opened()).local_start == 12),
    "merge": Job(lambda net: net.it.upload(), _merge, lambda net: len(net.it.segments()) < 12),
}

FAULTS: Mapping[str, tuple[Mapping[str, Fault], int]] = {
    "throttling": (dict.fromkeys(("PUT", "GET", "POST", "DELETE"), BUSY), 3),
    "errors": (dict.fromkeys(("PUT", "GET", "POST", "DELETE"), FailedChore(500, "InternalError")), 1),
    "time-outs": ({"PUT": Mute()}, 1),
    "slow answers": (dict.fromkeys(("PUT", "GET"), Slow(0.05)), 20),
    "lost answers": (dict.fromkeys(("PUT", "GET", "POST"), Lost()), 1),
    "broken answers": ({"GET": Broken()}, 2),
}
"""By method what happens, and to how many requests."""
RARELY = {"errors", "time-outs", "slow answers"}
OFTEN = [pytest.param(each, marks=pytest.mark.soak if each in RARELY else ()) for each in FAULTS]

MET = [
    pytest.param(job, fault, marks=pytest.mark.soak if fault in RARELY or at % 3 else (), id=f"{job}-{fault}")
    for at, (fault, job) in enumerate(product(FAULTS, JOBS))
]
"""Every job meets every fault; every day each of them meets one that is common, the rest in soak."""


@pytest.fixture
def net(s3_server: S3Server, tmp_path: Path) -> Iterator[Net]:
    url = s3_server.url(tmp_path.name)
    it = tiered(
        storage=open_store(s3_server.settings(url=url)),
        segment_bytes="14", retention_ms="-1", retention_local_target_ms="-1",
    )  # fmt: skip
    it.cluster.alter_cluster({"cloud_storage_segment_size_target": "20000", "cloud_storage_segment_size_min": "1"})
    for number in range(13):
        append(it.cluster, (f"k{number}", f"v{number}"), at_ms=it.clock.now_ms + 1_000 * number)
    it.cluster.upkeep().roll()
    with Proxy(s3_server.endpoint) as proxy:
        settings = replace(s3_server.settings(url=url, endpoint=proxy.endpoint), patience=PATIENCE)
        yield Net(it, proxy, open_store(settings), [b"v%d" % number for number in range(13)])


@pytest.mark.fact("F-R-054")
@pytest.mark.parametrize(("name", "fault"), MET)
def test_a_job_gets_through_to_its_end(net: Net, name: str, fault: str) -> None:
    job, (found, times) = JOBS[name], FAULTS[fault]
    job.prepare(net)
    for method, each in found.items():
        net.proxy.on(method, each, key="topics", times=times)
    job.do(net.opened())
    assert job.is_done(net)
    net.is_whole()
    net.is_clean()


@pytest.mark.parametrize("fault", OFTEN)
def test_what_is_remote_is_read_through_it(net: Net, fault: str) -> None:
    _leaving(net)
    _retain(net.it.cluster)
    assert head_of(net.it.cluster).local_start == 12
    found, times = FAULTS[fault]
    for method, each in found.items():
        net.proxy.on(method, each, key="topics", times=times)
    assert [row["value"] for row in held(net.opened())] == net.before


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=pytest.mark.soak if each != "lost answers" else ()) for each in FAULTS]
)
def test_a_topic_is_recovered_through_it(net: Net, fault: str) -> None:
    net.it.upload()
    location = str(net.it.tiering().location)
    found, times = FAULTS[fault]
    for method, each in found.items():
        net.proxy.on(method, each, key="topics", times=times)
    store = MemoryStore()
    cluster = EmbeddedCluster.create(store, now_ms=net.it.clock, new_id=ids(), storage=net.client)
    cluster.alter_cluster({"cloud_storage_enabled": "true"})
    cluster.recover_topic(TOPIC, location, configs=BOTH)
    assert [row["value"] for row in held(cluster)] == net.before[:12]
    assert check_cluster(store, deep=True, storage=net.it.storage).findings == []
    net.is_whole()


@pytest.mark.parametrize("at", [1, *(pytest.param(at, marks=pytest.mark.soak) for at in (0, 2, 5, 12, 23, 24, 25, 26))])
@pytest.mark.parametrize("name", JOBS)
def test_a_storage_that_stays_busy_from_any_write_on_leaves_a_job_for_the_next_run(
    net: Net, name: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "TRIES", 2)
    monkeypatch.setattr(register, "PATIENCE_S", 0.0)
    job = JOBS[name]
    job.prepare(net)
    net.proxy.let_pass("PUT", at, key="topics")
    for method in ("PUT", "POST", "DELETE"):
        net.proxy.on(method, BUSY, key="topics", times=10_000)
    with suppress(AssertionError):  # It says so; or it was done before.
        job.do(net.opened())
    net.is_whole()
    net.proxy.heal()
    job.do(net.opened())
    assert job.is_done(net)
    net.is_whole()


@pytest.mark.fact("F-R-054")
def test_a_busy_storage_is_asked_again_after_pauses_from_100_ms_on(net: Net, s3_server: S3Server) -> None:
    times: list[float] = []
    busy = FailedChore(503, "SlowDown", then=lambda: times.append(time.monotonic()))
    net.proxy.on("PUT", busy, key="0-0-", times=4)
    settings = s3_server.settings(url=net.it.storage.url, endpoint=net.proxy.endpoint)
    _upload(net.it.opened(None, open_store(replace(settings, patience=read_patience({})))))
    times.append(time.monotonic())
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(pause >= 0.05 * 2**attempt for attempt, pause in enumerate(pauses))
    assert net.it.manifest().end == 12


# Uploading a topic and reading it back take no more memory the more there is of it.


ROOT = Path(__file__).resolve().parents[3]
MIB = 192
"""Enough for as many segments as are uploaded side by side."""


@pytest.mark.soak
def test_memory_stays_flat_from_one_to_four_times_as_much(tmp_path: Path) -> None:
    peaks = {times: peaks_of(tmp_path / str(times), times * MIB) for times in (1, 4)}
    for little, much in zip(peaks[1], peaks[4], strict=True):
        assert much < 1.25 * little + 64, peaks


def peaks_of(folder: Path, mib: int) -> list[int]:
    """Fill a topic, upload it and read it back, each in its own process; return what the last two took, in MiB."""
    run(folder, "fill", str(mib))
    return [run(folder, step) for step in ("upload", "read")]


def run(folder: Path, *step: str) -> int:
    command = [sys.executable, "-m", "tests.embedded.tiered.memory_probe", str(folder), *step]
    return int(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)
