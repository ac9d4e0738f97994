"""The sweep of object storage deletes what no manifest names at our own locations, and nothing else."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.archives.keys import build_index_key, build_location_prefix, build_topic_manifest_key
from reconciler.archives.manifest import Garbage, ManifestSwap, manifest_register
from reconciler.embedded.check.sweep import SweepResult
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.tiered.idle_work import HousekeepingTurn, IdleLimits, TierHousekeeping
from reconciler.errors import UserError
from reconciler.lifecycles import HousekeepingState
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.wrappers import MeteredStore, RequestMeter
from reconciler.providers.embedded.maintenance import list_maintenance_jobs
from reconciler.providers.protocol import MaintenancePorts
from tests.embedded.maintenance.tiny_segments import DAY, TOPIC, Clock, LateStore, append, append_parts, held
from tests.embedded.samples import ids
from tests.embedded.stores import WatchedStore
from tests.embedded.tiered.tiered_cluster import Tiered, tiered

ORPHANS = ("0-9-10-0-v1-01234567.parquet", "0-9-10-0-v1-01234567.index", "pages/0123.json")
LATER_MS = DAY + 60_000


def filled() -> Tiered:
    """Return a topic with segments in pages and in the manifest itself."""
    it = tiered(segment_bytes="14")
    it.switch_on(spillover_manifest_size="1024")
    for number in range(30):
        append(it.cluster, (None, str(number)))
    it.upload()
    assert it.manifest().pages
    return it


def sweep(it: Tiered, later_ms: int = LATER_MS) -> SweepResult:
    late: tuple[Any, Any] = LateStore(it.store, later_ms), LateStore(it.storage, later_ms)
    return it.opened(*late).sweep()


def put(it: Tiered, place: str, *names: str) -> list[str]:
    keys = [f"{place}/{name}" for name in names or ORPHANS]
    for key in keys:
        it.storage.put(key, b"x" * 100)
    return keys


def there(it: Tiered) -> set[str]:
    return {listed.key for listed in it.storage.list("")}


@pytest.mark.fact("F-K-043")
def test_only_what_no_manifest_names_goes_once_it_is_a_day_old() -> None:
    it = filled()
    before, known = held(it.opened()), there(it)
    put(it, it.remote().key_prefix)
    others = put(it, it.remote().key_prefix, "notes.txt", "mine/0-1.parquet")
    assert sweep(it, 0) == SweepResult()
    assert sweep(it, DAY - 60_000) == SweepResult()
    assert sweep(it) == SweepResult(objects=3, bytes=300)
    assert there(it) - known >= set(others)
    assert known <= there(it)
    assert held(it.opened()) == before
    assert sweep(it) == SweepResult()


def test_the_age_is_told_by_the_storage_itself() -> None:
    it = filled()
    put(it, it.remote().key_prefix)
    it.clock.now_ms += 100 * DAY
    late: Any = LateStore(it.store, LATER_MS)
    assert it.opened(late).sweep() == SweepResult()


def test_a_manifest_or_page_that_cannot_be_read_stops_it_and_nothing_is_deleted() -> None:
    it = filled()
    it.cluster.create_topic("aaa", configs={"remote.write": "true", "remote.read": "true"})
    with it.cluster.producer() as producer:
        producer.send("aaa", "x", partition=0)
    it.upload()
    orphans = put(it, f"{build_location_prefix(it.cluster.cluster_id, it.cluster.topic('aaa').revision)}00000")
    for key in (it.manifest().pages[0].key, it.remote().key):
        body = it.storage.get(key)
        assert body is not None
        it.storage.put(key, b"{")
        with pytest.raises(UserError):
            sweep(it)
        assert set(orphans) <= there(it)
        it.storage.put(key, body.body)
    page = it.manifest().pages[0].key
    stored = it.storage.get(page)
    assert stored is not None
    it.storage.delete([page])
    with pytest.raises(UserError, match="the records at offsets 0 to"):
        sweep(it)
    it.storage.put(page, stored.body)
    assert sweep(it).objects == 3


def test_other_clusters_locations_are_never_touched() -> None:
    it = filled()
    theirs = EmbeddedCluster.create(MemoryStore(), "somebody-else", now_ms=it.clock, new_id=ids(), storage=it.storage)
    theirs.alter_cluster({"cloud_storage_enabled": "true"})
    orphans = put(it, f"{build_location_prefix('somebody-else', 1)}00000")
    assert sweep(it) == SweepResult()
    assert set(orphans) <= there(it)


def test_a_location_of_ours_that_another_cluster_owns_by_now_is_left_alone() -> None:
    it = filled()
    register = manifest_register(it.storage, it.remote())
    kept = register.read()
    assert kept is not None
    register.swap(kept, {**kept.value, "owner": "somebody"})
    put(it, it.remote().key_prefix)
    put(it, f"{build_location_prefix(it.cluster.cluster_id, it.tiering().location.revision)}00007")
    before = there(it)
    assert sweep(it) == SweepResult()
    assert there(it) == before


def test_what_is_kept_on_purpose_stays_and_only_orphans_beside_it_go() -> None:
    it = filled()
    it.cluster.alter_topic(TOPIC, {"remote.delete": "false"})
    place, known = it.remote().key_prefix, there(it)
    it.cluster.delete_topic(TOPIC)
    put(it, place)
    assert sweep(it).objects == 3
    assert there(it) == known


def test_objects_without_a_manifest_stay_where_anybody_knows_their_topic() -> None:
    it = filled()
    it.storage.delete([it.remote().key])
    before = there(it)
    assert sweep(it) == SweepResult()
    # The topic is gone, and described still: it could be recovered but for the manifest that is lost.
    it.cluster.alter_topic(TOPIC, {"remote.delete": "false"})
    revision = it.tiering().location.revision
    it.cluster.delete_topic(TOPIC)
    assert sweep(it) == SweepResult()
    assert there(it) == before
    it.storage.delete([build_topic_manifest_key(it.cluster.cluster_id, revision)])
    assert sweep(it).objects == len(before) - 2
    assert there(it) == {"storage.json"}


def test_what_a_deletion_never_named_is_swept_once_the_topic_is_gone() -> None:
    it = filled()
    put(it, it.remote().key_prefix)
    it.cluster.delete_topic(TOPIC)
    assert len(there(it)) == 4
    assert sweep(it, 0) == SweepResult()
    assert sweep(it).objects == 3
    assert there(it) == {"storage.json"}


def test_garbage_that_somebody_left_goes_at_once() -> None:
    it = filled()
    before = held(it.opened())
    lost = put(it, it.remote().key_prefix, "7-7-100-0-v1-76543210.parquet")
    (newest,) = it.manifest().entries[-1:]
    left = replace(newest, key=lost[0])

    def with_garbage(manifest: Any) -> Any:
        return replace(manifest, garbage=Garbage(manifest.garbage.pages, (left,)))

    ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())(it.remote(), with_garbage)
    assert sweep(it, 0) == SweepResult()
    assert lost[0] not in there(it)
    assert not it.manifest().garbage
    assert held(it.opened()) == before


def test_what_is_named_while_it_runs_stays() -> None:
    it = tiered(segment_bytes="14")
    append_parts(it.cluster, 3)
    it.upload()
    listings: list[str] = []

    class Busy(MemoryStore):
        """Object storage in which, after each listing, somebody appends and uploads."""

        def list(self, prefix: str) -> Any:
            found = list(super().list(prefix))
            if len(listings) < 3:
                listings.append(prefix)
                append_parts(it.cluster, 2)
                it.upload()
            return iter(found)

    orphans = put(it, it.remote().key_prefix)
    busy: tuple[Any, Any] = (
        LateStore(it.store, LATER_MS),
        LateStore(Busy(it.storage.url.removeprefix("memory://")), LATER_MS),
    )
    assert it.opened(*busy).sweep().objects == len(orphans)
    assert listings
    assert it.objects() == {key for entry in it.segments() for key in (entry.key, build_index_key(entry.key))}
    assert len(held(it.opened())) == 6 + 4 * len(listings)


# When the remote tier is tidied: by the requests of the last seconds, at the latest when an interval has passed.


IDLE, ACTIVE, PAUSE, DRAINING, STOPPED = HousekeepingState
LIMITS = IdleLimits.of({})


@dataclass
class Kept:
    """Housekeeping over a store whose requests are counted."""

    clock: Clock = field(default_factory=Clock)
    meter: RequestMeter = field(init=False)
    storage: MeteredStore = field(init=False)
    keeping: TierHousekeeping = field(init=False)

    def __post_init__(self) -> None:
        self.meter = RequestMeter(self.clock)
        self.storage = MeteredStore(MemoryStore(), self.meter)
        self.keeping = TierHousekeeping(self.meter, self.clock)

    def ask(self, requests: int) -> None:
        for _ in range(requests):
            self.storage.get("topics/none")

    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms


@pytest.mark.fact("F-R-057")
@pytest.mark.parametrize(("requests", "begins"), [(0, True), (10, True), (11, False)])
def test_idle_is_at_most_the_threshold_times_the_window(requests: int, begins: bool) -> None:  # noqa: FBT001 - a table
    kept = Kept()
    kept.ask(requests)
    kept.wait(9_000)
    assert kept.keeping.begin_job("merge", LIMITS) is begins
    assert kept.keeping.state is (ACTIVE if begins else IDLE)


@pytest.mark.fact("F-R-057")
def test_the_window_slides() -> None:
    kept = Kept()
    kept.ask(11)
    kept.wait(10_099)
    assert kept.keeping.begin_job("merge", LIMITS)
    wider = IdleLimits.of({"cloud_storage_idle_timeout_ms": "60000", "cloud_storage_idle_threshold_rps": "0.1"})
    assert wider.requests == pytest.approx(6)
    other = Kept()
    other.ask(7)
    other.wait(50_000)
    assert not other.keeping.begin_job("merge", wider)


@pytest.mark.fact("F-R-058")
def test_it_starts_when_idle_pauses_on_traffic_and_goes_on_when_idle_again() -> None:
    kept = Kept()
    assert kept.keeping.begin_job("merge", LIMITS)
    assert kept.keeping.may_continue()
    kept.ask(11)
    assert not kept.keeping.may_continue()
    assert kept.keeping.state is PAUSE
    kept.wait(11_000)
    assert kept.keeping.may_continue()
    assert kept.keeping.state is ACTIVE


@pytest.mark.fact("F-R-058")
def test_its_own_requests_are_no_traffic() -> None:
    kept = Kept()
    assert kept.keeping.begin_job("merge", LIMITS)
    for _ in range(100):
        kept.storage.inner.get("topics/none")
    assert kept.keeping.may_continue()


@pytest.mark.fact("F-R-059")
def test_where_storage_is_never_idle_every_job_runs_once_an_interval() -> None:
    kept = Kept()
    ran: dict[str, list[int]] = {"merge": [], "scrub": []}
    for second in range(1_000):
        kept.ask(20)
        for job, times in ran.items():
            if kept.keeping.begin_job(job, LIMITS):
                assert kept.keeping.state is DRAINING
                kept.ask(20)
                assert kept.keeping.may_continue()
                times.append(second)
                kept.keeping.end_job(job)
        kept.wait(1_000)
    assert ran == {"merge": [300, 600, 900], "scrub": [300, 600, 900]}


@pytest.mark.fact("F-R-059")
def test_what_was_paused_has_not_run_and_is_drained_once_the_interval_has_passed() -> None:
    kept = Kept()
    kept.wait(299_000)
    assert kept.keeping.begin_job("merge", LIMITS)
    kept.ask(11)
    assert not kept.keeping.may_continue()
    kept.keeping.end_job("merge")
    assert kept.keeping.state is PAUSE
    assert not kept.keeping.begin_job("merge", LIMITS)
    kept.wait(1_000)
    assert kept.keeping.begin_job("merge", LIMITS)
    assert kept.keeping.state is DRAINING
    kept.keeping.end_job("merge")
    assert kept.keeping.state is IDLE
    assert not kept.keeping.begin_job("merge", LIMITS)


def test_a_job_that_went_on_after_a_pause_has_something_left_for_the_interval() -> None:
    kept = Kept()
    kept.wait(200_000)
    assert kept.keeping.begin_job("merge", LIMITS)
    kept.ask(11)
    assert not kept.keeping.may_continue()
    kept.wait(20_000)
    assert kept.keeping.may_continue()
    kept.keeping.end_job("merge")
    kept.wait(80_000)
    kept.ask(11)
    assert kept.keeping.begin_job("merge", LIMITS)
    assert kept.keeping.state is DRAINING


def test_who_waits_for_it_gets_it_at_once() -> None:
    kept = Kept()
    kept.ask(1_000)
    assert kept.keeping.begin_job("merge", LIMITS, drains=True)
    assert kept.keeping.may_continue()


def test_what_is_stopped_never_begins_again() -> None:
    kept = Kept()
    kept.keeping.stop()
    kept.keeping.stop()
    assert not kept.keeping.begin_job("merge", LIMITS, drains=True)
    assert not kept.keeping.may_continue()
    assert kept.keeping.state is STOPPED


def test_every_kind_of_request_is_counted_and_the_store_travels_without_its_meter(tmp_path: Path) -> None:
    meter = RequestMeter(Clock())
    store = MeteredStore(MemoryStore(), meter)
    store.put("a", b"1")
    store.swap("b", b"2", expected=None)
    store.copy_from("c", store, "a")
    assert store.get("c") is not None
    assert store.get_range("a", 0, 1) == b"1"
    assert [listed.key for listed in store.list("")] == ["a", "b", "c"]
    store.delete(["a"])
    store.read_clock_ms()
    assert not store.find_violated_conditions()
    assert meter.count_within(1_000) == 9
    folder = DirectoryStore(tmp_path)
    there = pickle.loads(pickle.dumps(MeteredStore(folder, meter)))  # noqa: S301 - just pickled
    assert isinstance(there, DirectoryStore)


def jobs_at_interval(keeping: TierHousekeeping, cluster: EmbeddedCluster, *, is_asked: bool = False) -> Any:
    """Return the jobs of a pass of `run --interval`, which nobody waits for."""
    means = MaintenancePorts(lambda work, do: iter([do(work)]), lambda _address: True, lambda: False, is_asked)
    return list_maintenance_jobs("west", cluster, means, keeping)


def fragmented() -> Tiered:
    it = tiered()
    it.switch_on(segment_size_target="1000000", segment_size_min="1")
    it.fill(17)
    it.upload()
    return it


@pytest.mark.fact("F-R-058")
def test_a_pass_at_an_interval_merges_only_while_nobody_else_uses_object_storage() -> None:
    it = fragmented()
    keeping = TierHousekeeping(RequestMeter(it.clock), it.clock)
    cluster = it.opened(storage=MeteredStore(it.storage, keeping.meter))
    assert cluster.storage is not None
    for _ in range(20):
        cluster.storage.get("topics/none")
    assert jobs_at_interval(keeping, cluster)["merge"]().done == 0
    assert len(it.segments()) == 8
    it.clock.now_ms += 11_000
    assert jobs_at_interval(keeping, cluster)["merge"]().done == 1
    assert keeping.meter.count_within(10_000) <= 10
    assert keeping.state is IDLE


@pytest.mark.fact("F-R-059")
def test_a_pass_at_an_interval_merges_at_last_and_one_that_is_waited_for_at_once() -> None:
    for is_asked in (False, True):
        it = fragmented()
        keeping = TierHousekeeping(RequestMeter(it.clock), it.clock)
        cluster = it.opened(storage=MeteredStore(it.storage, keeping.meter))
        assert cluster.storage is not None
        it.clock.now_ms += 0 if is_asked else 300_000
        for _ in range(20):
            cluster.storage.get("topics/none")
        assert jobs_at_interval(keeping, cluster, is_asked=is_asked)["merge"]().done == 1


@pytest.mark.fact("F-R-058")
def test_new_traffic_between_two_looks_leaves_the_rest_to_the_next_pass() -> None:
    it = fragmented()
    keeping = TierHousekeeping(RequestMeter(it.clock), it.clock)

    def busy(what: str, key: str) -> None:
        if what == "put" and key.endswith(".parquet"):
            for _ in range(20):
                keeping.meter.count_request()

    watched = WatchedStore(it.storage, before=busy)
    upkeep = replace(it.opened(storage=watched).upkeep(), tidying=HousekeepingTurn(keeping, drains=False))
    assert upkeep.merge().partitions == 1  # What was written is published: pausing wastes nothing.
    assert upkeep.merge().partitions == 0
    assert keeping.state is PAUSE


@pytest.mark.fact("F-R-058")
def test_what_lies_here_alone_is_compacted_whoever_uses_object_storage() -> None:
    it = tiered(partitions=1, storage=None, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    it.fill(9)
    it.upload()
    keeping = TierHousekeeping(RequestMeter(it.clock), it.clock)
    for _ in range(20):
        keeping.meter.count_request()
    upkeep = replace(it.cluster.upkeep(), tidying=HousekeepingTurn(keeping, drains=False))
    assert upkeep.compact().partitions == 1
