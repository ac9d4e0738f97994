"""Unmount: the steps of an outbound migration.

`preparing` uploads records while clients continue. `executing` closes (seals) every head, aborts transactions, uploads
the remaining records. Both check that all referenced objects exist, and upload lost ones again. `cut_over` writes the
topic's description, releases the manifests, marks the topic as detached, and then removes it here. If the cluster is
lost before the removal, the topic can be mounted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.archives.entries import Entry
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import (
    NOBODY,
    Manifest,
    ManifestHandover,
    ManifestSwap,
    read_manifest,
    remote_partition,
)
from reconciler.archives.ownership import Ownership, OwnershipState, check_handover_owner, detach_topic, read_ownership
from reconciler.archives.pages import iter_entries_within
from reconciler.archives.recoverable import Loss, find_losses_at, format_losses
from reconciler.archives.topic_manifest import CommittedOffset, TopicManifest, change_topic_manifest
from reconciler.embedded.catalog.migration_tables import complete_state
from reconciler.embedded.catalog.tables import (
    SEAL,
    build_seal_writer,
    find_current_name,
    find_topic_by_id,
    map_names_by_id,
)
from reconciler.embedded.catalog.tiering_state import build_topic_manifest
from reconciler.embedded.clients.transactions import (
    abort_transaction,
    finish_offset_commits,
    finish_transaction,
    read_stream_batches,
)
from reconciler.embedded.keys import head_key
from reconciler.embedded.maintenance.survey import MaintenanceResult, SurveyedPartition
from reconciler.embedded.mounts.handover import MigrationContext, check_current, suppress_if_overtaken
from reconciler.embedded.segments.admission import read_append_rules
from reconciler.embedded.segments.groups import list_groups, read_group
from reconciler.embedded.segments.head import NOBODY as REMOVED
from reconciler.embedded.segments.head import Head, Partition, head_register, parse_head, read_heads
from reconciler.embedded.segments.retention import read_cleanup_policy
from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.embedded.tiered.topic_deletion import iter_topic_heads
from reconciler.embedded.tiered.upload import find_compacted_end
from reconciler.errors import OwnershipLostError, RetryableError, UserError
from reconciler.lifecycles import MigrationState
from reconciler.records.log import OffsetRange
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel, run_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import MigrantEntry, MigrationEntry
    from reconciler.embedded.maintenance.chores import Chore
    from reconciler.embedded.maintenance.passes import Spread, Upkeep
    from reconciler.embedded.maintenance.uploads import UploadJob
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import RegisterSnapshot


@dataclass(frozen=True)
class TopicFlush:
    """Uploads all records of one topic that object storage lacks, including the open segment.

    Outdated compacted segments are uploaded again, or removed records would reappear.
    """

    upkeep: Upkeep
    remote: RemoteTier
    full_name: str
    topic_id: str
    spread: Spread | None = None

    def upload_missing(self, rounds: int | None = None) -> int:
        """Upload the stable records of every partition; return the stored bytes.

        It stops after `rounds`; `None` continues until object storage has all stable records.
        """
        from reconciler.embedded.maintenance.uploads import UploadJob  # noqa: PLC0415 - brings Arrow

        uploads = UploadJob(self.upkeep.store, self.remote, self.upkeep.now_ms, takes_open=True)
        stored = 0
        for done in itertools.count():
            if done == rounds:
                break
            self.upkeep.may_go_on()
            job_result, partitions = MaintenanceResult(), list(self._iter_partitions())
            if chores := _flatten(
                map_in_parallel(lambda one: uploads.find_due_chores(*one)[0], partitions, name="flush")
            ):
                self.upkeep.upload_all(uploads, chores, job_result, self.spread)
            elif chores := _flatten(
                map_in_parallel(lambda one: _find_outdated(uploads, *one), partitions, name="flush")
            ):
                self.upkeep.reupload_all(chores, job_result, self.spread)
            else:
                break
            for error in job_result.errors:
                raise error
            if not job_result.partitions:
                message = f"topic {self.full_name}: none of {len(chores)} uploads was recorded"
                raise RetryableError(
                    message, hint="Another process uploads it, or uploads were switched off: try again."
                )
            stored += job_result.bytes
        return stored

    def finish_manifests(self) -> Mapping[int, Manifest]:
        """Set every manifest's end to the sealed log's end; return the manifests."""
        partitions = list(self._iter_partitions())

        manifests = map_in_parallel(lambda one: self._finish_manifest(*one), partitions, name="flush")
        return {one.partition.number: manifest for (one, _), manifest in zip(partitions, manifests, strict=True)}

    def upload_lost_objects(self) -> int:
        """Upload lost objects again from the local tier; return the stored bytes."""
        from reconciler.embedded.tiered.scrub import PartitionScrub  # noqa: PLC0415 - brings Arrow

        partitions = {one.partition.number: (one, head) for one, head in self._iter_partitions()}
        lost = self._find_losses(partitions)
        if not lost:
            return 0
        self.upkeep.may_go_on()
        rules = read_append_rules(
            self.upkeep.catalog.get_cached(), next(iter(partitions.values()))[0].partition.full_name
        )

        def put_again(number: int) -> int:
            one, head = partitions[number]
            if one.policy.tiering is None:
                raise _untiered_error(self.full_name)
            upkeep = self.upkeep
            scrub = PartitionScrub(upkeep.store, self.remote, one.policy.tiering, rules, number, upkeep.now_ms)
            return sum(finding.bytes for finding in scrub.scrub_partition(head))

        stored = sum(map_in_parallel(put_again, sorted({loss.partition for loss in lost}), name="flush"))
        if lost := self._find_losses(partitions):
            raise _loss_error(self.full_name, lost)
        return stored

    def _find_losses(self, partitions: Mapping[int, tuple[SurveyedPartition, Head]]) -> list[Loss]:
        tiering = next((one.policy.tiering for one, _ in partitions.values()), None)
        if tiering is None:
            return []
        lost = find_losses_at(self.remote.storage, tiering.location, list(partitions))
        return [loss for loss in lost if loss.last >= partitions[loss.partition][1].start]

    def _finish_manifest(self, one: SurveyedPartition, head: Head) -> Manifest:
        tiering = one.policy.tiering
        if tiering is None:
            raise _untiered_error(self.full_name)
        place = remote_partition(tiering.location, one.partition.number)
        swap = ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering)

        def end(manifest: Manifest) -> Manifest | None:
            rest = OffsetRange(max(manifest.end, head.local_start), head.end)
            missing = next(iter_entries_within(self.upkeep.store, head, rest), None)
            if missing is not None:
                raise _incomplete_error(one.partition, missing)
            after = replace(
                manifest,
                start=max(manifest.start, head.start),
                end=max(manifest.end, head.end),
                epochs=head.epochs,
                compacted_to=find_compacted_end(self.upkeep.store, self.remote.storage, head, manifest),
            )
            return None if after == manifest else after

        manifest = swap(place, end) or read_manifest(self.remote.storage, place)
        if manifest is None or manifest.end != head.end:
            # The swap fails under a newer tiered epoch.
            problem = (
                "is not there" if manifest is None else f"ends at {manifest.end}, under a tiered epoch we do not know"
            )
            message = f"{one.partition}: the log ends at offset {head.end}, and {place.key} {problem}"
            raise RetryableError(
                message, hint="Restore it from a copy or version of the bucket, or cancel the unmount."
            )
        return manifest

    def _iter_partitions(self) -> Iterator[tuple[SurveyedPartition, Head]]:
        catalog = self.upkeep.catalog.read()
        if find_topic_by_id(catalog, self.topic_id, self.full_name) is None:
            raise RetryableError(f"topic {self.full_name} no longer exists", hint="Another process unmounted it.")
        name = find_current_name(catalog, self.topic_id, self.full_name)
        policy = read_cleanup_policy(catalog, name, self.upkeep.cluster_id)
        if policy.tiering is None or not policy.tiering.uploads:
            raise _untiered_error(name)
        for number, head in sorted(read_heads(self.upkeep.store, self.topic_id).items()):
            partition = Partition(name, self.topic_id, number)
            yield SurveyedPartition(partition, policy, head_key(self.topic_id, number), "", is_changed=True), head


def count_bytes_to_upload(store: ObjectStore, topic_id: str) -> int:
    """Return the maximum number of bytes that object storage lacks."""
    return sum(map(_count_head_pending, read_heads(store, topic_id).values()))


def _find_outdated(uploads: UploadJob, surveyed: SurveyedPartition, head: Head) -> list[Chore] | None:
    return uploads.find_outdated_chores(surveyed, head)[0] if uploads.uploads_compacted_again(surveyed.policy) else None


def _flatten(chore_lists: Iterable[list[Chore] | None]) -> list[Chore]:
    return [chore for chores in chore_lists for chore in chores or ()]


def _count_head_pending(head: Head) -> int:
    pages = sum(page.bytes for page in head.pages if page.last >= head.uploaded_to)
    return pages + sum(entry.bytes for entry in head.entries if entry.last >= head.uploaded_to)


def _untiered_error(full_name: str) -> UserError:
    message = f"topic {full_name} cannot be flushed: uploads are switched off"
    return UserError(
        message, hint="Switch cloud_storage_enabled, cloud_storage_enable_segment_uploads and remote.write on."
    )


def _loss_error(full_name: str, lost: Sequence[Loss]) -> UserError:
    message = (
        f"topic {full_name} cannot be unmounted: the cluster does not have what object storage has lost: "
        f"{format_losses(lost)}"
    )
    hint = (
        "Restore it from a version or copy of the bucket, then unmount the topic again. What is left can be read: "
        f"reconciler topic consume topic/CLUSTER/{full_name} --skip-missing"
    )
    return UserError(message, hint=hint)


def _incomplete_error(partition: Partition, entry: Entry) -> RetryableError:
    message = f"{partition}: offsets {entry.base} to {entry.last} are not in object storage yet"
    return RetryableError(message, hint="Continue with: reconciler run --once --only migrations")


OpenTransactions: TypeAlias = set[tuple[str, int]]
OffsetsByGroup: TypeAlias = Mapping[str, Mapping[int, CommittedOffset]]

_ROUNDS: Final = 3


@dataclass(frozen=True)
class OutboundSteps:
    """Steps of a migration that unmounts topics."""

    context: MigrationContext
    number: int
    migration: MigrationEntry

    def run_state(self, state: MigrationState) -> None:
        """Do the work of a state and commit the next state, unless another process did so."""
        with suppress_if_overtaken(self.context.catalog, self.number, self.migration):
            self._run_state(state)

    def _run_state(self, state: MigrationState) -> None:
        match state:
            case MigrationState.PREPARING:
                for topic in self._list_attached_topics():
                    self._upload_topic(topic, _ROUNDS)
                    self._upload_lost_objects(topic)  # Losses are reported while clients can still write.
                self._commit_state(MigrationState.PREPARED)
            case MigrationState.EXECUTING:
                self._for_each_topic(lambda topic: self._end_transactions(self._seal_heads(topic)))
                self._finish_offsets()
                self._for_each_topic(self._upload_topic)
                self._for_each_topic(lambda topic: self._make_flush(topic).finish_manifests())
                self._for_each_topic(self._upload_lost_objects)  # The next state removes the local copies.
                self._commit_state(MigrationState.EXECUTED)
            case MigrationState.CUT_OVER:
                self._for_each_topic(self._detach_if_owned)
                self._commit_state(MigrationState.FINISHED)
            case MigrationState.CANCELING:
                self._commit_state(MigrationState.CANCELLED)  # Heads stay sealed until the next append to each.
            case _:
                pass

    def _for_each_topic(self, do: Callable[[MigrantEntry], object]) -> None:
        run_in_parallel(do, self._list_attached_topics(), name="topics")

    def _upload_topic(self, topic: MigrantEntry, rounds: int | None = None) -> None:
        self.context.flushed(self._make_flush(topic).upload_missing(rounds))

    def _upload_lost_objects(self, topic: MigrantEntry) -> None:
        self.context.flushed(self._make_flush(topic).upload_lost_objects())

    def _make_flush(self, topic: MigrantEntry) -> TopicFlush:
        means = self.context
        return TopicFlush(means.upkeep, means.remote, topic.name, topic.topic_id, means.spread)

    def _list_attached_topics(self) -> list[MigrantEntry]:
        catalog = self.context.catalog.read()
        ids = map_names_by_id(catalog, {topic.topic_id for topic in self.migration.topics})
        return [topic for topic in self.migration.topics if topic.topic_id in ids]

    def _commit_state(self, end: MigrationState) -> None:
        means = self.context
        means.catalog.commit(
            lambda draft: complete_state(draft, self.number, self.migration, end, now_ms=means.now_ms()),
            may_go_on=means.may_go_on,
        )

    def _seal_heads(self, topic: MigrantEntry) -> OpenTransactions:
        store, writer = self.context.store, build_seal_writer(self.number)

        def seal(number: int) -> OpenTransactions:
            self.context.may_go_on()

            def seal_head(held: RegisterSnapshot | None) -> dict[str, Any] | None:
                if held is None or held.value.get("writer") in {REMOVED, writer}:
                    return None
                return {**held.value, "writer": writer}

            register = head_register(store, topic.topic_id, number)
            held = register.update(seal_head, mark=f"seal-{self.migration.claim}-{number}", raises_epoch=True)
            opened = {} if held is None else parse_head(store, register.key, held.value).transactions
            return {(name, one["epoch"]) for name, one in opened.items()}

        numbers = sorted(number for _, number in iter_topic_heads(store, [topic.topic_id]))
        return {opened for of_one in map_in_parallel(seal, numbers, name="seal") for opened in of_one}

    def _end_transactions(self, opened: OpenTransactions) -> None:
        means = self.context
        self._check_current()  # After a cancellation, open transactions may be new and must stay.
        for transactional_id, epoch in sorted(opened):
            means.may_go_on()
            abort_transaction(means.store, transactional_id, epoch)
            finish_transaction(means.store, means.catalog, transactional_id, now_ms=means.now_ms())

    def _finish_offsets(self) -> None:
        means, ids = self.context, {topic.topic_id for topic in self._list_attached_topics()}
        finish_offset_commits(means.store, means.catalog, ids, means.now_ms(), may_go_on=means.may_go_on)

    def _detach_if_owned(self, topic: MigrantEntry) -> None:
        try:
            self._detach(topic)
        except OwnershipLostError:
            if not self._is_mounted_elsewhere(TopicLocation.parse(topic.location)):
                raise

    def _detach(self, topic: MigrantEntry) -> None:
        means, location = self.context, TopicLocation.parse(topic.location)
        catalog = means.catalog.read()
        name = map_names_by_id(catalog, [topic.topic_id]).get(topic.topic_id)
        if name is None:
            return
        description = replace(
            build_topic_manifest(catalog, name, means.cluster_id),
            owner=NOBODY,
            name=location.topic,
            groups=self._read_groups(topic),
            ends=self._read_ends(topic),
            streams=read_stream_batches(means.store, topic.topic_id),
        )
        means.may_go_on()
        change_topic_manifest(
            means.storage,
            location,
            lambda current: self._next_description(current, description),
            f"unmount-{self.migration.claim}",
        )
        handing = ManifestHandover(means.storage, location, self._check_current, means.may_go_on)
        manifests = handing(range(description.partitions), self._release_manifest).values()
        means.may_go_on()
        detach_topic(
            means.storage,
            location,
            Ownership(
                location,
                OwnershipState.DETACHED,
                means.cluster_id,
                self.migration.claim,
                name,
                description.partitions,
                sum(manifest.records for manifest in manifests),
                sum(manifest.stored_bytes for manifest in manifests),
                means.now_ms(),
            ),
        )

    def _next_description(self, current: TopicManifest | None, description: TopicManifest) -> TopicManifest | None:
        self._check_current()
        if current is not None:
            check_handover_owner(description.location, current.owner, self.context.cluster_id)
        return (
            description
            if current is None
            else replace(description, groups=_merge_groups(current.groups, description.groups))
        )

    def _release_manifest(self, manifest: Manifest) -> Manifest | None:
        check_handover_owner("a manifest of the topic", manifest.owner, self.context.cluster_id)
        if manifest.owner == NOBODY:
            return None
        return replace(manifest, owner=NOBODY, owner_epoch=manifest.owner_epoch + 1)

    def _check_current(self) -> None:
        check_current(self.context.catalog.read(), self.number, self.migration)

    def _is_mounted_elsewhere(self, location: TopicLocation) -> bool:
        ownership = read_ownership(self.context.storage, location)
        if ownership is None or ownership.claim == self.migration.claim:
            return False
        return ownership.state is OwnershipState.DETACHED or ownership.owner != self.context.cluster_id

    def _read_ends(self, topic: MigrantEntry) -> Mapping[int, int]:
        heads = read_heads(self.context.store, topic.topic_id)
        return {number: head.end for number, head in heads.items() if head.end and head.writer.startswith(SEAL)}

    def _read_groups(self, topic: MigrantEntry) -> OffsetsByGroup:
        store = self.context.store
        names = list_groups(store)
        offsets_by_group: dict[str, Mapping[int, CommittedOffset]] = {}
        for name, group in zip(
            names, map_in_parallel(lambda item: read_group(store, item), names, name="groups"), strict=True
        ):
            offsets = {} if group is None else group.offsets
            own = {number: item for (topic_id, number), item in offsets.items() if topic_id == topic.topic_id}
            if own:
                offsets_by_group[name] = own
        return offsets_by_group


def _merge_groups(travelling: OffsetsByGroup, own: OffsetsByGroup) -> OffsetsByGroup:
    return {group: {**travelling.get(group, {}), **own.get(group, {})} for group in sorted({*travelling, *own})}
