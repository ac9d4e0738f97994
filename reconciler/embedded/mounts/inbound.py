"""Mount: the steps of an inbound migration.

`preparing` makes the topics, closed, from what object storage says of them. `executing` claims them, by one swap each,
and looks whether all is there that their manifests name. `cut_over` makes the claim good, takes the manifests over and
makes the heads, which begin where the manifests end: no record is copied, so a mount costs the same whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import Handing
from reconciler.archives.ownership import (
    Ownership,
    Owning,
    check_claimable,
    check_hands,
    check_owned,
    claim_topic,
    read_ownership,
    settle_topic,
    unclaim_topic,
)
from reconciler.archives.recoverable import located, whole_partitions_of
from reconciler.archives.topic_manifest import Committed, TopicManifest, hand_over
from reconciler.embedded.catalog.migration_tables import LOGGER, Made, ask, create_mounted, drop_topics, follow
from reconciler.embedded.catalog.tables import Catalog, Draft, check_namespace_of, names_by_id
from reconciler.embedded.catalog.tiering_state import topic_manifest_of
from reconciler.embedded.catalog.topic_configs import key_of
from reconciler.embedded.clients.transactions import Batch, bring_batch
from reconciler.embedded.keys import group_key
from reconciler.embedded.mounts.handover import MigrationContext, OvertakenError, check_current, until_overtaken
from reconciler.embedded.mounts.recovery import make_head
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.groups import bring_offsets
from reconciler.embedded.segments.head import read_head
from reconciler.errors import OwnershipLostError, UserError
from reconciler.lifecycles import MigrationState
from reconciler.runtime.threads import all_side_by_side, side_by_side

if TYPE_CHECKING:
    from reconciler.archives.manifest import Manifest
    from reconciler.embedded.catalog.model import MigrantEntry, MigrationEntry


R = TypeVar("R")


@dataclass(frozen=True)
class Inbound:
    """One migration into a cluster."""

    means: MigrationContext
    number: int
    migration: MigrationEntry

    def work(self, state: MigrationState) -> None:
        """Do what a state is there for, and say that it is done; nothing, where another process was faster.

        Raises:
            OwnershipLostError: Another cluster has a topic.
            UserError: It cannot be done as things are; says what it needs.
            RetryableError: A store does not answer.
        """
        lost = None
        with until_overtaken(self.means.catalog, self.number, self.migration):
            lost = self._work(state)
        if lost is not None:
            raise lost  # Out here: that the migration is over, by our own commit, makes it no less of an error.

    def _work(self, state: MigrationState) -> OwnershipLostError | None:
        match state:
            case MigrationState.PREPARING:
                made = dict(self._each(lambda topic: (topic.location, self._made(topic))))
                self._follow(MigrationState.PREPARED, lambda draft: create_mounted(draft, self.number, made))
            case MigrationState.EXECUTING:
                self._each(self._claim)
                self._each(lambda topic: whole_partitions_of(self.means.storage, self._located(topic)))
                self._follow(MigrationState.EXECUTED)
            case MigrationState.CUT_OVER:
                return self._cut_over()
            case MigrationState.CANCELING:
                self._each(self._unclaim)
                self._follow(MigrationState.CANCELLED)
            case _:
                pass
        return None

    def _cut_over(self) -> OwnershipLostError | None:
        """Make the topics ours; those that were released meanwhile are dropped here, for nothing else ends it.

        Return what is to be said of these; where another process was faster, they say it. The others are mounted.
        """
        lost = [each for each in self._each(self._lost) if each is not None]
        gone = [topic for topic, _ in lost]

        def told_of(draft: Draft) -> None:
            if lost and self.migration.is_automatic:
                ask(draft, self.number, "delete")  # What is told is over: no record is taken for a mount that was made.

        is_ours = self._follow(MigrationState.FINISHED, lambda draft: drop_topics(draft, self.migration, gone), told_of)
        if not lost or not is_ours:
            return None
        told = lost[0][1]
        told.message = f"{told.message}; not mounted: {', '.join(topic.name for topic in gone)}"
        return told

    def _lost(self, topic: MigrantEntry) -> tuple[MigrantEntry, OwnershipLostError] | None:
        """Take a topic over; return it, and why, where it is not ours any more."""
        try:
            self._take_over(topic)
        except OwnershipLostError as error:
            if self._is_ours(topic):
                raise
            return topic, error
        return None

    def _each(self, do: Callable[[MigrantEntry], R]) -> list[R]:
        """Do something with each topic, side by side."""
        return list(side_by_side(do, self.migration.topics, name="topics"))

    def _is_ours(self, topic: MigrantEntry) -> bool:
        found = read_ownership(self.means.storage, TopicLocation.parse(topic.location))
        ours = (self.means.cluster_id, self.migration.claim)
        return found is not None and found.state is not Owning.DETACHED and (found.owner, found.claim) == ours

    def _follow(
        self,
        end: MigrationState,
        decide: Callable[[Draft], None] = lambda _draft: None,
        then: Callable[[Draft], None] = lambda _draft: None,
    ) -> bool:
        """Say that the work of a state is done, with what goes before and after it; tell whether we were the first."""
        means, is_ours = self.means, False

        def done(draft: Draft) -> None:
            nonlocal is_ours
            found = draft.migrations.get(str(self.number))
            is_ours = found is not None and (found.state, found.claim) == (self.migration.state, self.migration.claim)
            if is_ours:
                decide(draft)
                follow(draft, self.number, self.migration, end, now_ms=means.now_ms())
                then(draft)

        means.catalog.commit(done, may_go_on=means.may_go_on)
        return is_ours

    def _located(self, topic: MigrantEntry) -> TopicManifest:
        return located(self.means.storage, TopicLocation.parse(topic.location))

    def _made(self, topic: MigrantEntry) -> Made:
        found, means = self._located(topic), self.means
        check_claimable(
            found.location, read_ownership(means.storage, found.location), means.cluster_id, self.migration.claim
        )
        return Made(
            found.location,
            found.partitions,
            found.replication_factor,
            found.configs,
            found.effective,
            found.initial,
            max(found.tiered_epoch, 1),
        )

    def _claim(self, topic: MigrantEntry) -> None:
        means = self.means
        means.may_go_on()
        location = TopicLocation.parse(topic.location)
        wanted = Ownership(
            location, Owning.CLAIMED, means.cluster_id, self.migration.claim, topic.name, at_ms=means.now_ms()
        )
        claim_topic(means.storage, location, wanted)

    def _unclaim(self, topic: MigrantEntry) -> None:
        means, location = self.means, TopicLocation.parse(topic.location)
        means.may_go_on()
        unclaim_topic(means.storage, location, means.cluster_id, self.migration.claim, means.now_ms())

    def _take_over(self, topic: MigrantEntry) -> None:
        """Make one topic ours: register, manifests and heads, groups and streams, and what storage says of it."""
        means, location = self.means, TopicLocation.parse(topic.location)
        means.may_go_on()
        settle_topic(means.storage, location, means.cluster_id, self.migration.claim, means.now_ms())
        catalog = means.catalog.read()
        name = names_by_id(catalog, [topic.topic_id]).get(topic.topic_id)
        if name is None:
            return  # Somebody was faster, and the topic has been removed since.
        entry = catalog.topics[name]
        tiered_epoch = 1 if entry.tiering is None else entry.tiering.epoch
        there, key = self._located(topic), key_of(catalog, name)

        def check() -> None:
            self._check_current()
            check_owned(location, read_ownership(means.storage, location), means.cluster_id, self.migration.claim)

        def ours(found: Manifest) -> Manifest | None:
            return self._ours(found, tiered_epoch)

        manifests = Handing(means.storage, location, check, means.may_go_on)(range(there.partitions), ours)
        all_side_by_side(
            lambda number: self._make_head((topic.topic_id, number), manifests[number], key),
            manifests,
            name="mount",
        )
        self._check_here(topic.topic_id, there.partitions)
        staying_out = self._restore_groups(topic.topic_id, there)
        for stream, last in there.streams.items():
            means.may_go_on()
            bring_batch(means.store, topic.topic_id, stream, Batch(*last), mark=f"mount-{self.migration.claim}")
        told = replace(topic_manifest_of(catalog, name, means.cluster_id), groups=staying_out)
        means.may_go_on()

        def handed(found: TopicManifest | None) -> TopicManifest | None:
            check()
            return self._told(found, told)

        hand_over(means.storage, location, handed, f"mount-{self.migration.claim}")

    def _told(self, found: TopicManifest | None, told: TopicManifest) -> TopicManifest | None:
        if found is not None:
            check_hands(told.location, found.owner, self.means.cluster_id)
        return None if found == told else told

    def _ours(self, found: Manifest, tiered_epoch: int) -> Manifest | None:
        """Take over what is nobody's."""
        cluster_id = self.means.cluster_id
        check_hands("a manifest of the topic", found.owner, cluster_id)
        if found.owner == cluster_id:
            return None
        return replace(found, owner=cluster_id, owner_epoch=found.owner_epoch + 1, tiered_epoch=tiered_epoch)

    def _check_current(self) -> Catalog:
        catalog = self.means.catalog.read()
        check_current(catalog, self.number, self.migration)
        return catalog

    def _check_here(self, topic_id: str, partitions: int) -> None:
        """Remove what was made of a topic that is gone by now: whoever removed it may have been here before."""
        if topic_id not in {topic.id for topic in self.means.catalog.read().topics.values()}:
            for number in range(partitions):
                remove_partition(self.means.store, topic_id, number)
            raise OvertakenError

    def _make_head(self, of: tuple[str, int], manifest: Manifest, kms_key_id: str | None) -> None:
        if read_head(self.means.store, *of) is None:
            make_head(self.means.store, of, manifest, kms_key_id)

    def _restore_groups(self, topic_id: str, there: TopicManifest) -> Mapping[str, Mapping[int, Committed]]:
        """Restore the offsets that groups committed. Return the groups that this cluster cannot have, with theirs."""
        means = self.means
        catalog = means.catalog.read()
        mark = f"mount-{self.migration.claim}-{topic_id}"

        def restore(group: str) -> None:
            means.may_go_on()
            offsets = {(topic_id, number): replace(each, at_ms=None) for number, each in there.groups[group].items()}
            bring_offsets(means.store, self._check_current, group, offsets, mark=mark)

        names = [name for name in there.groups if _can_be(name, catalog)]
        all_side_by_side(restore, names, name="groups")
        staying_out = {name: offsets for name, offsets in there.groups.items() if name not in names}
        if staying_out:
            warning = (
                "topic %s: its groups %s have no namespace here, or a name that none can have here; their offsets stay "
                "in object storage with it"
            )
            LOGGER.warning(warning, there.location, ", ".join(staying_out))
        return staying_out


def _can_be(group: str, catalog: Catalog) -> bool:
    """Tell whether a cluster can have a group of that name: those of other platforms may be longer."""
    try:
        group_key(group)
        check_namespace_of(catalog, group)
    except UserError:
        return False
    return True
