"""Deliberately broken variants of the two tiers: each leaves out one rule of the order of writes, or of reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from reconciler.embedded.catalog.topics import recovered
from reconciler.embedded.maintenance import roll, uploads
from reconciler.embedded.maintenance.roll import Merge
from reconciler.embedded.maintenance.uploads import Uploads
from reconciler.embedded.segments.head import Head, swap_head
from reconciler.embedded.segments.pages import entries_within
from reconciler.embedded.tiered import remote_reads, remote_retention, remote_sweep
from reconciler.embedded.tiered.manifest import (
    Manifest,
    ManifestSpill,
    ManifestSwap,
    manifest_register,
    objects_of,
    parse_manifest,
    read_manifest,
)
from reconciler.embedded.tiered.recovery import Recoveries
from reconciler.embedded.tiered.remote_retention import TieredPartition, cut_below
from reconciler.embedded.tiered.turn_off import _Disabling
from reconciler.embedded.tiered.upload import Upload, to_upload
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.embedded.segments.entries import Entry
    from reconciler.embedded.segments.retention import Expired, Segment
    from reconciler.embedded.tiered.object_rewrites import RemoteRewrite
    from reconciler.embedded.tiered.upload import Uploaded

Patched = tuple[Any, str, Any]
"""Where, the name there, and what is put in its place."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A variant: what is put in place of what, and what notices it: deaths in a rule, or a job that is overtaken by."""

    noticed: str | tuple[str, str]
    patches: tuple[Patched, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Run it instead of the real one."""
        with ExitStack() as stack:
            for where, name, by in self.patches:
                stack.enter_context(patch.object(where, name, by))
            yield


_put, _publish = Upload.put, Uploads.publish
_expire, _evictable, _evict = TieredPartition.expire, remote_retention.evictable, remote_retention.evict
_publish_remote, _one_object, _finish = roll.publish_remote, Merge._one_object, Recoveries._finish
_read_head, _uploaded, _cut = remote_reads.read_head, Head.uploaded, _Disabling._cut

_swap = ManifestSwap.__call__

_AHEAD: Final[dict[str, bytes]] = {}
"""Objects that are to be put when they are named."""


def _puts_nothing_yet(self: Upload, *asked: Any) -> Uploaded:
    buffer = MemoryStore()
    found = _put(replace(self, storage=buffer), *asked)
    for key in found.keys:
        stored = buffer.get(key)
        assert stored is not None
        _AHEAD[key] = stored.body
    return found


def _names_first(self: Uploads, found: Sequence[Uploaded], *, put_ms: int) -> Any:
    gain = _publish(self, found, put_ms=put_ms)
    for one in found if gain is not None else ():
        for key in one.keys:
            self.remote.storage.put(key, _AHEAD[key])
    return gain


def _head_first(self: Uploads, found: Sequence[Uploaded], *, put_ms: int) -> Any:
    self._follow(found[-1].partition, None, found[-1].offsets.stop, found[-1].tiering)
    return _publish(self, found, put_ms=put_ms)


def _all_is_uploaded(store: Any, head: Head, *asked: Any, now_ms: int) -> Any:
    return _evictable(store, replace(head, uploaded_to=head.end), *asked, now_ms=now_ms)


def _swaps_as_if_all_were_uploaded(store: Any, partition: Any, change: Callable[[Head], Head | None]) -> bool:
    def changed(head: Head) -> Head | None:
        after = change(replace(head, uploaded_to=head.end))
        return None if after is None else replace(after, uploaded_to=head.uploaded_to)

    return swap_head(store, partition, changed)


def _evicts_before_the_swap(store: Any, partition: Any, segments: Sequence[Segment]) -> Any:
    store.delete(entry.key for segment in segments for entry in segment.entries)
    return _evict(store, partition, segments)


def _expires_before_the_swap(self: TieredPartition, head: Head, manifest: Manifest, start: int) -> Expired | None:
    if self.remote is not None:
        gone = entries_within(self.remote.storage, manifest, OffsetRange(0, start))
        self.remote.storage.delete(objects_of(entry for entry in gone if entry.last < start))
    return _expire(self, head, manifest, start)


def _manifest_first(self: TieredPartition, head: Head, _manifest: Manifest, start: int) -> Expired | None:
    if self.remote is not None:
        storage = self.remote.storage
        spill = ManifestSpill(storage, self.place, self.tiering.spill_bytes)

        def without(found: Manifest) -> Manifest | None:
            cut = cut_below(storage, found, start, spill)
            return None if cut is None else cut.manifest

        self._swap(self.remote)(self.place, without)
    return _expire(self, head, self.manifest(), start)


def _unfenced(self: ManifestSwap, partition: Any, change: Any, *, mark: str | None = None) -> Manifest | None:
    found = manifest_register(self.storage, partition)
    stored = found.read()
    newest = 0 if stored is None else parse_manifest(self.storage, found.key, stored.value).tiered_epoch
    tiering = replace(self.tiering, epoch=max(newest, self.tiering.epoch))
    return _swap(replace(self, tiering=tiering), partition, change, mark=mark)


def _raised_by_whoever_comes(self: Head, to: int, _tiered_epoch: int) -> Head | None:
    return _uploaded(self, to, 1 << 30)


def _opens_too_early(self: Recoveries, found: Any, full_name: str, topic: Any, location: str) -> None:
    self.catalog.commit(lambda draft: recovered(draft, topic.id))
    _finish(self, found, full_name, topic, location)


def _merges_all_but_the_last(self: Merge, run: tuple[Entry, ...], place: Any) -> Entry:
    return replace(_one_object(self, run[:-1], place), last=run[-1].last)


def _deletes_its_run_first(storage: Any, rewrite: RemoteRewrite, **times: Any) -> Any:
    manifest = read_manifest(storage, rewrite.partition)
    assert manifest is not None
    for one in rewrite.replacements:
        storage.delete(objects_of(entries_within(storage, manifest, OffsetRange(one.base, one.last + 1))))
    return _publish_remote(storage, rewrite, **times)


def _begins_at_zero(*asked: Any) -> Head | None:
    head = _read_head(*asked)
    return None if head is None else replace(head, start=0)


def _unstable_too(entries: Any, limits: Any, *, stable: int, takes_open: bool = False) -> Iterator[Segment]:
    del stable
    return to_upload(entries, limits, stable=1 << 40, takes_open=takes_open)


def _leaves_the_head(self: Any, store: Any, number: int) -> Head | None:
    return remote_reads.read_head(store, self.topic_id, number)


VARIANTS: Mapping[str, Broken] = {
    "a manifest names what is put after it": Broken(
        "upload", ((Upload, "put", _puts_nothing_yet), (Uploads, "publish", _names_first))
    ),
    "a head says uploaded before the manifest does": Broken("upload", ((Uploads, "publish", _head_first),)),
    "eviction takes what was never uploaded": Broken(
        "retention before any upload",
        (
            (remote_retention, "evictable", _all_is_uploaded),
            (remote_retention, "swap_head", _swaps_as_if_all_were_uploaded),
        ),
    ),
    "eviction deletes before its swap": Broken("eviction", ((remote_retention, "evict", _evicts_before_the_swap),)),
    "retention deletes before its swap": Broken("retention", ((TieredPartition, "expire", _expires_before_the_swap),)),
    "retention cuts the manifest before the head": Broken("retention", ((TieredPartition, "expire", _manifest_first),)),
    "a manifest is swapped under any tiered epoch": Broken(
        ("upload", "off, retain"), ((ManifestSwap, "__call__", _unfenced),)
    ),
    "a head is raised under any tiered epoch": Broken(
        ("upload", "off, delete"), ((Head, "uploaded", _raised_by_whoever_comes),)
    ),
    "a topic opens before its partitions are made": Broken("recovery", ((Recoveries, "_finish", _opens_too_early),)),
    "a merge loses the last of its run": Broken("merge", ((Merge, "_one_object", _merges_all_but_the_last),)),
    "a merge deletes its run before its swap": Broken("merge", ((roll, "publish_remote", _deletes_its_run_first),)),
    "a reader looks below the start": Broken("retention", ((remote_reads, "read_head", _begins_at_zero),)),
    "an upload takes what is not decided": Broken(
        "upload beside a transaction", ((uploads, "to_upload", _unstable_too),)
    ),
    "a sweep waits for nobody": Broken(("upload", "sweep"), ((remote_sweep, "OLD_MS", -1),)),
    "a disabling that deletes leaves the head": Broken("delete", ((_Disabling, "_cut", _leaves_the_head),)),
}
