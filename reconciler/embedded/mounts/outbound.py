"""Unmount: flush, then the steps of an outbound migration.

`preparing` uploads while clients go on. `executing` seals every head, so that no append and no read passes, aborts what
is open, and uploads the rest. Both look whether object storage has all that the manifests name, as a mount does: what
is lost there is put again. `cut_over` writes down what the topic was, takes the manifests out of everybody's hands,
marks the topic detached, and only then is it removed here: a cluster that is lost in between leaves a mountable topic.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.archives.entries import Entry
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import NOBODY, Handing, Manifest, ManifestSwap, read_manifest, remote_partition
from reconciler.archives.ownership import Ownership, Owning, check_hands, detach_topic, read_ownership
from reconciler.archives.pages import entries_within
from reconciler.archives.recoverable import Loss, listed_losses, losses_of
from reconciler.archives.topic_manifest import Committed, TopicManifest, hand_over
from reconciler.embedded.catalog.migration_tables import follow
from reconciler.embedded.catalog.tables import SEAL, name_with_id, names_by_id, sealed_by, topic_with_id
from reconciler.embedded.catalog.tiering_state import topic_manifest_of
from reconciler.embedded.clients.transactions import abort, finish, finish_offsets, stream_batches
from reconciler.embedded.keys import head_key
from reconciler.embedded.maintenance.survey import MaintenanceResult, SurveyedPartition
from reconciler.embedded.mounts.handover import MigrationContext, check_current, until_overtaken
from reconciler.embedded.segments.admission import rules_of
from reconciler.embedded.segments.groups import list_groups, read_group
from reconciler.embedded.segments.head import NOBODY as REMOVED
from reconciler.embedded.segments.head import Head, Partition, head_register, parse_head, read_heads
from reconciler.embedded.segments.retention import cleanup_policy
from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.embedded.tiered.topic_deletion import heads_of
from reconciler.embedded.tiered.upload import compacted_there
from reconciler.errors import OwnershipLostError, RetryableError, UserError
from reconciler.lifecycles import MigrationState
from reconciler.records.log import OffsetRange
from reconciler.runtime.threads import all_side_by_side, side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import MigrantEntry, MigrationEntry
    from reconciler.embedded.maintenance.chores import Chore
    from reconciler.embedded.maintenance.passes import Spread, Upkeep
    from reconciler.embedded.maintenance.uploads import Uploads
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import ReadRegister


# Flushing: everything of a topic that object storage lacks is uploaded, the open segment too, whatever the interval.
#
# What was compacted here since is uploaded once more: what is gone here would come back with the topic otherwise. Until
# the cut clients go on writing, so what a flush leaves is what came meanwhile; after the cut nothing is left, and
# `finished` lets each manifest end where its log ends.


@dataclass(frozen=True)
class Flush:
    """What one topic has that object storage lacks, and how it gets there."""

    upkeep: Upkeep
    """Whose `may_go_on` is asked between rounds; may raise, and the next process goes on."""
    remote: RemoteTier
    full_name: str
    topic_id: str
    spread: Spread | None = None
    """Where there is much to do; `None`: here."""

    def upload(self, rounds: int | None = None) -> int:
        """Upload what is stable of every partition; return how many stored bytes that was.

        While clients write there is always more: after so many `rounds` the rest is left, `None`: once nothing is.

        Raises:
            UserError: A partition cannot be uploaded: its manifest is damaged, belongs to another cluster, or a part
                is missing.
            RetryableError: A store does not answer.
        """
        from reconciler.embedded.maintenance.uploads import Uploads  # noqa: PLC0415 - brings Arrow

        uploads = Uploads(self.upkeep.store, self.remote, self.upkeep.now_ms, takes_open=True)
        stored = 0
        for done in itertools.count():
            if done == rounds:
                break
            self.upkeep.may_go_on()
            tended, lying = MaintenanceResult(), list(self._lying())
            if chores := _all_of(side_by_side(lambda one: uploads.due(*one)[0], lying, name="flush")):
                self.upkeep.upload_all(uploads, chores, tended, self.spread)
            elif chores := _all_of(side_by_side(lambda one: _outdated(uploads, *one), lying, name="flush")):
                self.upkeep.reupload_all(chores, tended, self.spread)
            else:
                break
            for error in tended.errors:
                raise error
            if not tended.partitions:
                message = f"topic {self.full_name}: nothing of {len(chores)} uploads was named"
                raise RetryableError(
                    message, hint="Another process uploads it, or uploads were switched off: try again."
                )
            stored += tended.bytes
        return stored

    def finished(self) -> Mapping[int, Manifest]:
        """Let the manifest of every partition end where its log does, and return them: there is nothing after it.

        Only of a topic whose heads are sealed, and of which all is uploaded.

        Raises:
            UserError: A manifest lacks what its head has.
        """
        lying = list(self._lying())

        found = side_by_side(lambda one: self._finish(*one), lying, name="flush")
        return {one.partition.number: manifest for (one, _), manifest in zip(lying, found, strict=True)}

    def make_whole(self) -> int:
        """Put again what object storage has lost and the local tier has; return how many stored bytes that was.

        Raises:
            UserError: Something is lost in both tiers, a manifest or a page is damaged; nothing is deleted.
            RetryableError: A store does not answer.
        """
        from reconciler.embedded.tiered.scrub import Scrub  # noqa: PLC0415 - brings Arrow

        lying = {one.partition.number: (one, head) for one, head in self._lying()}
        lost = self._lost(lying)
        if not lost:
            return 0
        self.upkeep.may_go_on()
        rules = rules_of(self.upkeep.catalog.known(), next(iter(lying.values()))[0].partition.full_name)

        def put_again(number: int) -> int:
            one, head = lying[number]
            if one.policy.tiering is None:
                raise _not_tiered(self.full_name)
            upkeep = self.upkeep
            scrub = Scrub(upkeep.store, self.remote, one.policy.tiering, rules, number, upkeep.now_ms)
            return sum(finding.bytes for finding in scrub.done(head))

        stored = sum(side_by_side(put_again, sorted({each.partition for each in lost}), name="flush"))
        if lost := self._lost(lying):
            raise _lost_in_both(self.full_name, lost)
        return stored

    def _lost(self, lying: Mapping[int, tuple[SurveyedPartition, Head]]) -> list[Loss]:
        """Return what readers have and object storage lacks, compared as a mount does."""
        tiering = next((one.policy.tiering for one, _ in lying.values()), None)
        if tiering is None:
            return []
        lost = losses_of(self.remote.storage, tiering.location, list(lying))
        return [each for each in lost if each.last >= lying[each.partition][1].start]

    def _finish(self, one: SurveyedPartition, head: Head) -> Manifest:
        tiering = one.policy.tiering
        if tiering is None:
            raise _not_tiered(self.full_name)
        place = remote_partition(tiering.location, one.partition.number)
        swap = ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering)

        def ended(manifest: Manifest) -> Manifest | None:
            rest = OffsetRange(max(manifest.end, head.local_start), head.end)
            missing = next(entries_within(self.upkeep.store, head, rest), None)
            if missing is not None:
                raise _incomplete(one.partition, missing)
            after = replace(
                manifest,
                start=max(manifest.start, head.start),
                end=max(manifest.end, head.end),
                epochs=head.epochs,
                compacted_to=compacted_there(self.upkeep.store, self.remote.storage, head, manifest),
            )
            return None if after == manifest else after

        manifest = swap(place, ended) or read_manifest(self.remote.storage, place)
        if manifest is None or manifest.end != head.end:
            # Under a newer tiered epoch than the catalog's a swap does nothing: nobody is to take that for the end.
            found = (
                "is not there" if manifest is None else f"ends at {manifest.end}, under a tiered epoch we do not know"
            )
            message = f"{one.partition}: the log ends at offset {head.end}, and {place.key} {found}"
            raise RetryableError(
                message, hint="Restore it from a copy or version of the bucket, or cancel the unmount."
            )
        return manifest

    def _lying(self) -> Iterator[tuple[SurveyedPartition, Head]]:
        """Yield the partitions ever written, with their heads as they are now."""
        catalog = self.upkeep.catalog.read()
        if topic_with_id(catalog, self.topic_id, self.full_name) is None:
            raise RetryableError(f"topic {self.full_name} has gone meanwhile", hint="Another process unmounted it.")
        name = name_with_id(catalog, self.topic_id, self.full_name)
        policy = cleanup_policy(catalog, name, self.upkeep.cluster_id)
        if policy.tiering is None or not policy.tiering.uploads:
            raise _not_tiered(name)
        for number, head in sorted(read_heads(self.upkeep.store, self.topic_id).items()):
            partition = Partition(name, self.topic_id, number)
            yield SurveyedPartition(partition, policy, head_key(self.topic_id, number), "", is_changed=True), head


def pending_bytes(store: ObjectStore, topic_id: str) -> int:
    """Return how many stored bytes of a topic object storage lacks; pages are not read, so it may be a little more."""
    return sum(map(_pending, read_heads(store, topic_id).values()))


def _outdated(uploads: Uploads, lying: SurveyedPartition, head: Head) -> list[Chore] | None:
    return uploads.outdated(lying, head)[0] if uploads.reuploads(lying.policy) else None


def _all_of(found: Iterable[list[Chore] | None]) -> list[Chore]:
    return [chore for chores in found for chore in chores or ()]


def _pending(head: Head) -> int:
    pages = sum(page.bytes for page in head.pages if page.last >= head.uploaded_to)
    return pages + sum(entry.bytes for entry in head.entries if entry.last >= head.uploaded_to)


def _not_tiered(full_name: str) -> UserError:
    message = f"topic {full_name} cannot be flushed: uploads are switched off"
    return UserError(
        message, hint="Switch cloud_storage_enabled, cloud_storage_enable_segment_uploads and remote.write on."
    )


def _lost_in_both(full_name: str, lost: Sequence[Loss]) -> UserError:
    message = (
        f"topic {full_name} cannot be unmounted: the cluster does not have what object storage has lost: "
        f"{listed_losses(lost)}"
    )
    hint = (
        "Restore it from a version or copy of the bucket, then unmount the topic again. What is left can be read: "
        f"reconciler topic consume topic/CLUSTER/{full_name} --skip-missing"
    )
    return UserError(message, hint=hint)


def _incomplete(partition: Partition, entry: Entry) -> RetryableError:
    message = f"{partition}: offsets {entry.base} to {entry.last} are not in object storage yet"
    return RetryableError(message, hint="Go on with: reconciler run --once --only migrations")


Opened: TypeAlias = set[tuple[str, int]]
"""Transactional ids, each with the epoch of its producer."""
Groups: TypeAlias = Mapping[str, Mapping[int, Committed]]

_ROUNDS: Final = 3
"""Of uploads before the cut: what clients write faster than that is uploaded after it."""


@dataclass(frozen=True)
class Outbound:
    """One migration out of a cluster."""

    means: MigrationContext
    number: int
    migration: MigrationEntry

    def work(self, state: MigrationState) -> None:
        """Do what a state is there for, and say that it is done; nothing, where another process was faster.

        Raises:
            UserError: It cannot be done as things are; says what it needs.
            RetryableError: A store does not answer.
        """
        with until_overtaken(self.means.catalog, self.number, self.migration):
            self._work(state)

    def _work(self, state: MigrationState) -> None:
        match state:
            case MigrationState.PREPARING:
                for topic in self._here():  # One by one: there may be much of each, and nobody waits for it.
                    self._flush(topic, _ROUNDS)
                    self._make_whole(topic)  # What is lost is told before clients are kept out.
                self._follow(MigrationState.PREPARED)
            case MigrationState.EXECUTING:
                self._each(lambda topic: self._settle_transactions(self._seal(topic)))
                self._finish_offsets()
                self._each(self._flush)
                self._each(lambda topic: self._flushing(topic).finished())
                self._each(self._make_whole)  # From the next state on nothing is left here to put again.
                self._follow(MigrationState.EXECUTED)
            case MigrationState.CUT_OVER:
                self._each(self._detach_or_see)
                self._follow(MigrationState.FINISHED)
            case MigrationState.CANCELING:
                self._follow(MigrationState.CANCELLED)  # A process that appends next takes the seals off.
            case _:
                pass

    def _each(self, do: Callable[[MigrantEntry], object]) -> None:
        """Do something with each topic, side by side: no process writes meanwhile."""
        all_side_by_side(do, self._here(), name="topics")

    def _flush(self, topic: MigrantEntry, rounds: int | None = None) -> None:
        self.means.flushed(self._flushing(topic).upload(rounds))

    def _make_whole(self, topic: MigrantEntry) -> None:
        self.means.flushed(self._flushing(topic).make_whole())

    def _flushing(self, topic: MigrantEntry) -> Flush:
        means = self.means
        return Flush(means.upkeep, means.remote, topic.name, topic.topic_id, means.spread)

    def _here(self) -> list[MigrantEntry]:
        """Return the topics that are there, by the catalog as it is now; what is gone was detached before."""
        catalog = self.means.catalog.read()
        ids = names_by_id(catalog, {topic.topic_id for topic in self.migration.topics})
        return [topic for topic in self.migration.topics if topic.topic_id in ids]

    def _follow(self, end: MigrationState) -> None:
        means = self.means
        means.catalog.commit(
            lambda draft: follow(draft, self.number, self.migration, end, now_ms=means.now_ms()),
            may_go_on=means.may_go_on,
        )

    def _seal(self, topic: MigrantEntry) -> Opened:
        """Let nobody append to any partition: the catalog says so by now, so a head made later is refused by it.

        Return the transactions that are open under the seals, with their epochs.
        """
        store, writer = self.means.store, sealed_by(self.number)

        def seal(number: int) -> Opened:
            self.means.may_go_on()

            def sealed(held: ReadRegister | None) -> dict[str, Any] | None:
                if held is None or held.value.get("writer") in {REMOVED, writer}:
                    return None
                return {**held.value, "writer": writer}

            register = head_register(store, topic.topic_id, number)
            held = register.update(sealed, mark=f"seal-{self.migration.claim}-{number}", raises_epoch=True)
            opened = {} if held is None else parse_head(store, register.key, held.value).transactions
            return {(name, one["epoch"]) for name, one in opened.items()}

        numbers = sorted(number for _, number in heads_of(store, [topic.topic_id]))
        return {opened for of_one in side_by_side(seal, numbers, name="seal") for opened in of_one}

    def _settle_transactions(self, opened: Opened) -> None:
        """Abort what is open on the topic, and carry out what is decided: nothing stays undecided (F-R-108)."""
        means = self.means
        self._check_current()  # What is open after a cancel, or was when it came, is none of ours.
        for transactional_id, epoch in sorted(opened):
            means.may_go_on()
            abort(means.store, transactional_id, epoch)
            finish(means.store, means.catalog, transactional_id, now_ms=means.now_ms())

    def _finish_offsets(self) -> None:
        """Let groups have what transactions have committed for them, be it with records of other topics alone."""
        means, ids = self.means, {topic.topic_id for topic in self._here()}
        finish_offsets(means.store, means.catalog, ids, means.now_ms(), may_go_on=means.may_go_on)

    def _detach_or_see(self, topic: MigrantEntry) -> None:
        """Let go of a topic, where nobody has taken it away since all of it was uploaded: that comes to the same."""
        try:
            self._detach(topic)
        except OwnershipLostError:
            if not self._is_taken(TopicLocation.parse(topic.location)):
                raise

    def _detach(self, topic: MigrantEntry) -> None:
        """Write down what the topic was, and let go of it: its manifests, then the topic itself."""
        means, location = self.means, TopicLocation.parse(topic.location)
        catalog = means.catalog.read()
        name = names_by_id(catalog, [topic.topic_id]).get(topic.topic_id)
        if name is None:
            return  # Somebody was faster.
        told = replace(
            topic_manifest_of(catalog, name, means.cluster_id),
            owner=NOBODY,
            name=location.topic,
            groups=self._groups(topic),
            ends=self._ends(topic),
            streams=stream_batches(means.store, topic.topic_id),
        )
        means.may_go_on()
        hand_over(means.storage, location, lambda found: self._told(found, told), f"unmount-{self.migration.claim}")
        handing = Handing(means.storage, location, self._check_current, means.may_go_on)
        manifests = handing(range(told.partitions), self._let_go).values()
        means.may_go_on()
        detach_topic(
            means.storage,
            location,
            Ownership(
                location,
                Owning.DETACHED,
                means.cluster_id,
                self.migration.claim,
                name,
                told.partitions,
                sum(manifest.records for manifest in manifests),
                sum(manifest.stored_bytes for manifest in manifests),
                means.now_ms(),
            ),
        )

    def _told(self, found: TopicManifest | None, told: TopicManifest) -> TopicManifest | None:
        self._check_current()
        if found is not None:
            check_hands(told.location, found.owner, self.means.cluster_id)
        return told if found is None else replace(told, groups=_both(found.groups, told.groups))

    def _let_go(self, found: Manifest) -> Manifest | None:
        """Take a manifest out of everybody's hands."""
        check_hands("a manifest of the topic", found.owner, self.means.cluster_id)
        if found.owner == NOBODY:
            return None
        return replace(found, owner=NOBODY, owner_epoch=found.owner_epoch + 1)

    def _check_current(self) -> None:
        check_current(self.means.catalog.read(), self.number, self.migration)

    def _is_taken(self, location: TopicLocation) -> bool:
        """Tell whether somebody has released the topic, or has it by now: then it only remains to be removed here."""
        found = read_ownership(self.means.storage, location)
        if found is None or found.claim == self.migration.claim:
            return False
        return found.state is Owning.DETACHED or found.owner != self.means.cluster_id

    def _ends(self, topic: MigrantEntry) -> Mapping[int, int]:
        """Return where each partition ended; a head without a seal came too late: what made it was refused."""
        heads = read_heads(self.means.store, topic.topic_id)
        return {number: head.end for number, head in heads.items() if head.end and head.writer.startswith(SEAL)}

    def _groups(self, topic: MigrantEntry) -> Groups:
        """Return what groups committed of a topic, theirs or synced: it travels with it."""
        store = self.means.store
        names = list_groups(store)
        found: dict[str, Mapping[int, Committed]] = {}
        for name, group in zip(
            names, side_by_side(lambda each: read_group(store, each), names, name="groups"), strict=True
        ):
            offsets = {} if group is None else group.offsets
            own = {number: each for (topic_id, number), each in offsets.items() if topic_id == topic.topic_id}
            if own:
                found[name] = own
        return found


def _both(travelling: Groups, own: Groups) -> Groups:
    """Return the offsets of groups, their own before those that only travel with the topic."""
    return {group: {**travelling.get(group, {}), **own.get(group, {})} for group in sorted({*travelling, *own})}
