"""Mount: the steps of an inbound migration.

`preparing` creates the topics from their descriptions, closed to clients. `executing` claims each topic by one swap,
and checks that all objects exist. `cut_over` makes this cluster the owner of topics and manifests, and creates heads
that begin at the manifests' ends. No record is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import ManifestHandover
from reconciler.archives.ownership import (
    Ownership,
    OwnershipState,
    check_claim_held,
    check_claimable,
    check_handover_owner,
    claim_topic,
    read_ownership,
    settle_topic,
    unclaim_topic,
)
from reconciler.archives.recoverable import find_topic_at, read_whole_partitions
from reconciler.archives.topic_manifest import CommittedOffset, TopicManifest, change_topic_manifest
from reconciler.embedded.catalog.migration_tables import (
    LOGGER,
    MountedTopic,
    apply_verb,
    complete_state,
    create_mounted_topics,
    drop_lost_topics,
)
from reconciler.embedded.catalog.tables import Catalog, Draft, check_namespace_exists, map_names_by_id
from reconciler.embedded.catalog.tiering_state import build_topic_manifest
from reconciler.embedded.catalog.topic_configs import find_topic_kms_key
from reconciler.embedded.clients.transactions import CommittedBatch, record_stream_batch
from reconciler.embedded.keys import group_key
from reconciler.embedded.mounts.handover import MigrationContext, OvertakenError, check_current, suppress_if_overtaken
from reconciler.embedded.mounts.recovery import create_remote_head
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.groups import copy_offsets
from reconciler.embedded.segments.head import read_head
from reconciler.errors import OwnershipLostError, UserError
from reconciler.lifecycles import MigrationState
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel, run_in_parallel

if TYPE_CHECKING:
    from reconciler.archives.manifest import Manifest
    from reconciler.embedded.catalog.model import MigrantEntry, MigrationEntry


R = TypeVar("R")


@dataclass(frozen=True)
class InboundSteps:
    """Steps of a migration that mounts topics."""

    context: MigrationContext
    number: int
    migration: MigrationEntry

    def run_state(self, state: MigrationState) -> None:
        """Do the work of a state and commit the next state, unless another process did so.

        Raises:
            OwnershipLostError: Another cluster owns a topic.
        """
        lost = None
        with suppress_if_overtaken(self.context.catalog, self.number, self.migration):
            lost = self._run_state(state)
        if lost is not None:
            raise lost  # The migration is complete, but without the lost topics.

    def _run_state(self, state: MigrationState) -> OwnershipLostError | None:
        match state:
            case MigrationState.PREPARING:
                made = dict(self._map_topics(lambda topic: (topic.location, self._describe_topic(topic))))
                self._commit_state(
                    MigrationState.PREPARED, lambda draft: create_mounted_topics(draft, self.number, made)
                )
            case MigrationState.EXECUTING:
                self._map_topics(self._claim)
                self._map_topics(lambda topic: read_whole_partitions(self.context.storage, self._read_source(topic)))
                self._commit_state(MigrationState.EXECUTED)
            case MigrationState.CUT_OVER:
                return self._cut_over()
            case MigrationState.CANCELING:
                self._map_topics(self._release_claim)
                self._commit_state(MigrationState.CANCELLED)
            case _:
                pass
        return None

    def _cut_over(self) -> OwnershipLostError | None:
        lost = [pair for pair in self._map_topics(self._take_over_or_lose) if pair is not None]
        gone = [topic for topic, _ in lost]

        def delete_record(draft: Draft) -> None:
            if lost and self.migration.is_automatic:
                apply_verb(draft, self.number, "delete")

        is_ours = self._commit_state(
            MigrationState.FINISHED, lambda draft: drop_lost_topics(draft, self.migration, gone), delete_record
        )
        if not lost or not is_ours:
            return None
        loss = lost[0][1]
        loss.message = f"{loss.message}; not mounted: {', '.join(topic.name for topic in gone)}"
        return loss

    def _take_over_or_lose(self, topic: MigrantEntry) -> tuple[MigrantEntry, OwnershipLostError] | None:
        try:
            self._take_over(topic)
        except OwnershipLostError as error:
            if self._is_claimed_here(topic):
                raise
            return topic, error
        return None

    def _map_topics(self, do: Callable[[MigrantEntry], R]) -> list[R]:
        return list(map_in_parallel(do, self.migration.topics, name="topics"))

    def _is_claimed_here(self, topic: MigrantEntry) -> bool:
        ownership = read_ownership(self.context.storage, TopicLocation.parse(topic.location))
        ours = (self.context.cluster_id, self.migration.claim)
        return (
            ownership is not None
            and ownership.state is not OwnershipState.DETACHED
            and (ownership.owner, ownership.claim) == ours
        )

    def _commit_state(
        self,
        end: MigrationState,
        decide: Callable[[Draft], None] = lambda _draft: None,
        then: Callable[[Draft], None] = lambda _draft: None,
    ) -> bool:
        means, is_ours = self.context, False

        def advance(draft: Draft) -> None:
            nonlocal is_ours
            current = draft.migrations.get(str(self.number))
            is_ours = current is not None and (current.state, current.claim) == (
                self.migration.state,
                self.migration.claim,
            )
            if is_ours:
                decide(draft)
                complete_state(draft, self.number, self.migration, end, now_ms=means.now_ms())
                then(draft)

        means.catalog.commit(advance, may_go_on=means.may_go_on)
        return is_ours

    def _read_source(self, topic: MigrantEntry) -> TopicManifest:
        return find_topic_at(self.context.storage, TopicLocation.parse(topic.location))

    def _describe_topic(self, topic: MigrantEntry) -> MountedTopic:
        source, means = self._read_source(topic), self.context
        check_claimable(
            source.location, read_ownership(means.storage, source.location), means.cluster_id, self.migration.claim
        )
        return MountedTopic(
            source.location,
            source.partitions,
            source.replication_factor,
            source.configs,
            source.effective,
            source.initial,
            max(source.tiered_epoch, 1),
        )

    def _claim(self, topic: MigrantEntry) -> None:
        means = self.context
        means.may_go_on()
        location = TopicLocation.parse(topic.location)
        wanted = Ownership(
            location, OwnershipState.CLAIMED, means.cluster_id, self.migration.claim, topic.name, at_ms=means.now_ms()
        )
        claim_topic(means.storage, location, wanted)

    def _release_claim(self, topic: MigrantEntry) -> None:
        means, location = self.context, TopicLocation.parse(topic.location)
        means.may_go_on()
        unclaim_topic(means.storage, location, means.cluster_id, self.migration.claim, means.now_ms())

    def _take_over(self, topic: MigrantEntry) -> None:
        means, location = self.context, TopicLocation.parse(topic.location)
        means.may_go_on()
        settle_topic(means.storage, location, means.cluster_id, self.migration.claim, means.now_ms())
        catalog = means.catalog.read()
        name = map_names_by_id(catalog, [topic.topic_id]).get(topic.topic_id)
        if name is None:
            return
        entry = catalog.topics[name]
        tiered_epoch = 1 if entry.tiering is None else entry.tiering.epoch
        source, key = self._read_source(topic), find_topic_kms_key(catalog, name)

        def check() -> None:
            self._check_current()
            check_claim_held(location, read_ownership(means.storage, location), means.cluster_id, self.migration.claim)

        def take(current: Manifest) -> Manifest | None:
            return self._take_manifest(current, tiered_epoch)

        manifests = ManifestHandover(means.storage, location, check, means.may_go_on)(range(source.partitions), take)
        run_in_parallel(
            lambda number: self._make_head((topic.topic_id, number), manifests[number], key), manifests, name="mount"
        )
        self._remove_heads_if_deleted(topic.topic_id, source.partitions)
        staying_out = self._restore_groups(topic.topic_id, source)
        for stream, last in source.streams.items():
            means.may_go_on()
            record_stream_batch(
                means.store, topic.topic_id, stream, CommittedBatch(*last), mark=f"mount-{self.migration.claim}"
            )
        description = replace(build_topic_manifest(catalog, name, means.cluster_id), groups=staying_out)
        means.may_go_on()

        def describe(current: TopicManifest | None) -> TopicManifest | None:
            check()
            return self._next_description(current, description)

        change_topic_manifest(means.storage, location, describe, f"mount-{self.migration.claim}")

    def _next_description(self, current: TopicManifest | None, description: TopicManifest) -> TopicManifest | None:
        if current is not None:
            check_handover_owner(description.location, current.owner, self.context.cluster_id)
        return None if current == description else description

    def _take_manifest(self, manifest: Manifest, tiered_epoch: int) -> Manifest | None:
        cluster_id = self.context.cluster_id
        check_handover_owner("a manifest of the topic", manifest.owner, cluster_id)
        if manifest.owner == cluster_id:
            return None
        return replace(manifest, owner=cluster_id, owner_epoch=manifest.owner_epoch + 1, tiered_epoch=tiered_epoch)

    def _check_current(self) -> Catalog:
        catalog = self.context.catalog.read()
        check_current(catalog, self.number, self.migration)
        return catalog

    def _remove_heads_if_deleted(self, topic_id: str, partitions: int) -> None:
        if topic_id not in {topic.id for topic in self.context.catalog.read().topics.values()}:
            for number in range(partitions):
                remove_partition(self.context.store, topic_id, number)
            raise OvertakenError

    def _make_head(self, of: tuple[str, int], manifest: Manifest, kms_key_id: str | None) -> None:
        if read_head(self.context.store, *of) is None:
            create_remote_head(self.context.store, of, manifest, kms_key_id)

    def _restore_groups(self, topic_id: str, source: TopicManifest) -> Mapping[str, Mapping[int, CommittedOffset]]:
        means = self.context
        catalog = means.catalog.read()
        mark = f"mount-{self.migration.claim}-{topic_id}"

        def restore(group: str) -> None:
            means.may_go_on()
            offsets = {
                (topic_id, number): replace(committed, at_ms=None) for number, committed in source.groups[group].items()
            }
            copy_offsets(means.store, self._check_current, group, offsets, mark=mark)

        names = [name for name in source.groups if _is_valid_group(name, catalog)]
        run_in_parallel(restore, names, name="groups")
        staying_out = {name: offsets for name, offsets in source.groups.items() if name not in names}
        if staying_out:
            warning = (
                "topic %s: its groups %s have no namespace here, or a name that none can have here; their offsets stay "
                "in object storage with it"
            )
            LOGGER.warning(warning, source.location, ", ".join(staying_out))
        return staying_out


def _is_valid_group(group: str, catalog: Catalog) -> bool:
    try:
        group_key(group)
        check_namespace_exists(catalog, group)
    except UserError:
        return False
    return True
