"""Older copies put back of a manifest or a cluster, or none: nothing is uploaded, evicted or swept, and it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.archives.archive import release_archive
from reconciler.archives.keys import build_mountable_key, build_topic_manifest_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import OwnershipState
from reconciler.archives.recoverable import find_topic_at
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Kind
from reconciler.embedded.maintenance.passes import scrub_cluster
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.errors import MissingObjectError, UserError
from tests.embedded.maintenance.tiny_segments import DAY, TOPIC, LateStore, append, append_parts, copied, head_of, held
from tests.embedded.mounts.shared_bucket import Bucket
from tests.embedded.tiered.tiered_cluster import BOTH, Tiered, tiered


def evicting(*, retention_ms: str = "-1") -> Tiered:
    """Return a topic of which two segments are uploaded, and are remote alone."""
    it = tiered(retention_ms=retention_ms, retention_local_target_ms="-1", retention_local_strict="true")
    it.fill(5)
    it.upload()
    it.cluster.alter_topic(TOPIC, {"retention.local.target.bytes": "1"})
    it.cluster.upkeep().retain()
    it.cluster.alter_topic(TOPIC, {"retention.local.target.bytes": None})
    assert (head_of(it.cluster).local_start, head_of(it.cluster).uploaded_to) == (8, 8)
    return it


def manifest_gone(it: Tiered) -> None:
    it.storage.delete([it.remote().key])


def later_uploads(it: Tiered) -> Callable[[], None]:
    """Upload more; return what puts the manifest of before back."""
    older = it.storage.get(it.remote().key)
    assert older is not None
    it.fill(4)
    it.upload()

    def restore_truncated() -> None:
        manifest_gone(it)
        it.storage.put(it.remote().key, older.body)

    return restore_truncated


def failure(done: MaintenanceResult) -> str:
    assert done.failed
    return done.errors[0].message


def swept(it: Tiered) -> int:
    late: tuple[Any, Any] = LateStore(it.store, 3 * DAY), LateStore(it.storage, 3 * DAY)
    return it.opened(*late).sweep().objects


def set_head(it: Tiered, **fields: int) -> None:
    changes: dict[str, Any] = dict(fields)
    where = Partition(TOPIC, it.cluster.topic(TOPIC).id, 0)
    assert swap_head(it.store, where, lambda head: replace(head, **changes))


# -- no manifest, or an older one


def test_where_something_was_uploaded_no_manifest_is_made_anew_and_all_is_back_with_it() -> None:
    it = evicting()
    rows, kept, objects = held(it.opened()), it.storage.get(it.remote().key), it.objects()
    assert kept is not None
    manifest_gone(it)
    it.fill(4)
    assert failure(it.upload()) == (
        f"{TOPIC}, partition 0: {it.remote().key} is not there, and everything below offset 8 was uploaded"
    )
    assert swept(it) == 0
    assert it.objects() == objects
    it.storage.put(it.remote().key, kept.body)
    assert it.upload().failed == 0
    assert it.manifest().end == 16
    assert held(it.opened())[: len(rows)] == rows


def test_on_an_older_manifest_nothing_is_uploaded_merged_expired_evicted_or_swept() -> None:
    it = evicting()
    restore_truncated = later_uploads(it)
    objects, newest, before = it.objects(), it.storage.get(it.remote().key), head_of(it.cluster)
    assert newest is not None
    assert (before.uploaded_to, before.end) == (16, 18)
    restore_truncated()
    it.fill(4)
    assert f"{it.remote().key} ends at offset 8: it is an older copy, and everything below offset 16" in failure(
        it.upload()
    )
    assert "older copy" in failure(it.cluster.upkeep().merge())
    limits = {"retention.ms": "1", "retention.local.target.bytes": "1", "segment.bytes": "1MiB"}
    it.cluster.alter_topic(TOPIC, limits)
    it.clock.now_ms += DAY
    it.cluster.upkeep().retain()
    head = head_of(it.cluster)
    assert (head.start, head.local_start) == (0, 8)
    assert swept(it) == 0
    assert it.objects() == objects
    it.cluster.alter_topic(TOPIC, {"retention.ms": "-1", "retention.local.target.bytes": None})
    it.storage.delete([it.remote().key])
    it.storage.put(it.remote().key, newest.body)
    assert [row["offset"] for row in held(it.opened())] == list(range(head.end))


def test_what_an_older_manifest_lacks_and_only_it_could_name_is_told_by_readers_scrub_and_check() -> None:
    it = evicting()
    restore_truncated = later_uploads(it)
    set_head(it, local_start=16, entries=head_of(it.cluster).entries[-1:])  # type: ignore[arg-type]  # by name
    restore_truncated()
    with pytest.raises(MissingObjectError, match="offsets 8 to 15"):
        held(it.opened())
    assert "offsets 8 to 15 cannot be read" in failure(scrub_cluster(it.cluster.upkeep(), ignores_interval=True))
    kinds = [finding.kind for finding in check_cluster(it.store, storage=it.storage).findings]
    assert Kind.MANIFEST_SHORT in kinds


def test_a_manifest_that_lacks_only_what_lies_here_too_is_told_by_scrub() -> None:
    it = evicting()
    restore_truncated = later_uploads(it)
    restore_truncated()
    assert "8 to 15 are in the local tier alone" in failure(scrub_cluster(it.cluster.upkeep(), ignores_interval=True))
    manifest_gone(it)
    assert "offsets 0 to 7 cannot be read" in failure(scrub_cluster(it.cluster.upkeep(), ignores_interval=True))


def test_a_manifest_that_is_lost_for_good_is_given_up_by_switching_off_with_delete() -> None:
    it = evicting()
    manifest_gone(it)
    it.fill(4)
    assert it.upload().failed == 1
    off = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": "delete"}
    it.cluster.alter_topic(TOPIC, off)
    it.cluster.finish_disablings()
    it.cluster.alter_topic(TOPIC, BOTH)
    assert it.upload().failed == 0
    assert [entry.base for entry in it.segments()] == [8, 12]
    assert [row["offset"] for row in held(it.opened())] == list(range(8, 18))


# -- an older cluster


def put_back_cluster(*, newer: int, retention_ms: str = "-1") -> Tiered:
    """Return a cluster put back from before an upload of 8 to 15, with `newer` parts of other records since."""
    it = evicting(retention_ms=retention_ms)
    older = copied(it.store)
    it.fill(4)
    it.upload()
    assert it.manifest().end == 16
    it = Tiered(older, it.storage, it.clock)
    set_head(it, end=8, entries=())  # type: ignore[arg-type]  # by name
    for number in range(newer):
        append(it.cluster, (None, f"other {number}"), (None, "o"))
    return it


@pytest.mark.parametrize("newer", [1, 4, 9])
def test_other_records_than_the_manifest_names_are_never_counted_as_uploaded(newer: int) -> None:
    it = put_back_cluster(newer=newer)
    rows, objects = held(it.opened()), it.objects()
    assert "object storage has other records at offsets 8 to 15 than the cluster" in failure(it.upload())
    it.cluster.alter_topic(TOPIC, {"retention.local.target.bytes": "1"})
    it.cluster.upkeep().retain()
    head = head_of(it.cluster)
    assert (head.uploaded_to, head.local_start) == (8, 8)
    assert held(it.opened()) == rows
    assert it.objects() == objects


def test_records_of_others_do_not_make_ours_expire() -> None:
    it = put_back_cluster(newer=4)
    it.clock.now_ms += DAY
    append_parts(it.cluster, 1, at_ms=it.clock.now_ms)
    it.cluster.alter_topic(TOPIC, {"retention.ms": "1000"})
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).start <= 8


def test_a_manifest_that_goes_on_after_the_log_is_told_by_check() -> None:
    it = put_back_cluster(newer=1)
    found = check_cluster(it.store, storage=it.storage).findings
    (ahead,) = (finding for finding in found if finding.kind is not Kind.UNNAMED)
    assert ahead.kind is Kind.MANIFEST_AHEAD
    assert ahead.what == "it ends at offset 16, and the log at 10"


# -- what is right goes on


def test_an_upload_that_died_before_the_head_knew_is_taken_over_whatever_the_borders_are_by_now() -> None:
    it = tiered(segment_bytes="9000")
    it.switch_on(segment_max_upload_interval_sec="60")
    it.fill(2)
    it.upload()
    for parts in (1, 3):
        it.fill(parts)
        it.clock.now_ms += DAY
        it.upload(rolls=False)
    ends = [entry.last + 1 for entry in it.segments()]
    assert ends == [4, 6, 12]
    it.fill(6)
    it.cluster.upkeep().roll()
    assert head_of(it.cluster).entries[0].last == 7  # across a border of both remote segments
    for known in (1, 3, 4, 5, 6, 11):
        set_head(it, uploaded_to=known)
        assert it.upload(rolls=False).failed == 0
        assert head_of(it.cluster).uploaded_to == it.manifest().end


def test_of_a_compacted_topic_the_local_part_may_be_compacted_by_then() -> None:
    it = tiered(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    for number in range(9):
        append(it.cluster, ("same", str(number)), (f"k{number % 2}", "y"))
    it.upload()
    it.cluster.upkeep().compact()
    set_head(it, uploaded_to=2)
    assert it.upload().failed == 0
    assert head_of(it.cluster).uploaded_to == it.manifest().end


# Topics in object storage of which a register is lost: what the others tell of them still.


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def test_without_its_register_a_mounted_topic_is_its_that_topic_json_says(bucket: Bucket) -> None:
    bucket.filled()
    location = bucket.unmounted()
    bucket.mounted(location)
    place = TopicLocation.parse(location)
    bucket.storage.delete([build_mountable_key(place.topic, place.cluster_id, place.revision)])
    west, east = bucket.west.cluster_id, bucket.east.cluster_id
    with pytest.raises(UserError, match=f"is owned by cluster {east}, not by {west}"):
        release_archive(bucket.storage, place, west, now_ms=bucket.clock())
    assert release_archive(bucket.storage, place, east, now_ms=bucket.clock()).state is OwnershipState.DETACHED
    bucket.mounted(location, cluster="west")


def test_a_detached_topic_without_topic_json_says_which_object_is_missing(bucket: Bucket) -> None:
    bucket.filled()
    place = TopicLocation.parse(bucket.unmounted())
    lost = build_topic_manifest_key(place.cluster_id, place.revision)
    bucket.storage.delete([lost])
    with pytest.raises(UserError, match="there is no topic at") as refused:
        find_topic_at(bucket.storage, place)
    assert refused.value.message.endswith(f": {lost} is not there")
    assert "restore that object" in refused.value.hint
