"""Unmounting: what each state of an outbound migration does. All of it may be done again, by anybody, at any point.

`preparing` uploads while clients go on. `executing` seals every head, so that no append and no read passes, aborts what
is open, and uploads the rest. `cut_over` writes down what the topic was, takes the manifests out of everybody's hands,
marks the topic detached, and only then is it removed here: a cluster that is lost in between leaves a mountable topic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.catalog.holding import sealed_by
from reconciler.embedded.catalog.lookups import names_by_id
from reconciler.embedded.catalog.migrations import follow
from reconciler.embedded.catalog.tiering import TopicLocation
from reconciler.embedded.consuming.groups import list_groups, read_group
from reconciler.embedded.mounting.claims import detach_topic
from reconciler.embedded.mounting.flushing import Flush
from reconciler.embedded.mounting.handing import Handing
from reconciler.embedded.mounting.overtaking import check_current, until_overtaken
from reconciler.embedded.mounting.ownership import Ownership, Owning, check_hands, read_ownership
from reconciler.embedded.partition.head import NOBODY as REMOVED
from reconciler.embedded.partition.head import head_register, parse_head, read_heads
from reconciler.embedded.remote.manifests.manifest import NOBODY
from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest, hand_over
from reconciler.embedded.threads import all_side_by_side, side_by_side
from reconciler.embedded.transactions.finishing import abort, finish
from reconciler.embedded.upkeep.deletion import heads_of
from reconciler.errors import OwnershipLostError
from reconciler.lifecycles.mounting import MigrationState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from reconciler.embedded.catalog.migrationentries import MigrantEntry, MigrationEntry
    from reconciler.embedded.consuming.offsets import Committed
    from reconciler.embedded.mounting.means import Means
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.objectstore.register import Held

    Opened: TypeAlias = set[tuple[str, int]]
    """Transactional ids, each with the epoch of its producer."""
    Groups: TypeAlias = Mapping[str, Mapping[int, Committed]]

_ROUNDS: Final = 3
"""Of uploads before the cut: what clients write faster than that is uploaded after it."""


@dataclass(frozen=True)
class Outbound:
    """One migration out of a cluster."""

    means: Means
    number: int
    migration: MigrationEntry

    def work(self, state: MigrationState) -> None:
        """Do what a state is there for, and say that it is done; nothing, where somebody else was faster.

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
                self._follow(MigrationState.PREPARED)
            case MigrationState.EXECUTING:
                self._each(lambda topic: self._settle_transactions(self._seal(topic)))
                self._each(self._flush)
                self._each(lambda topic: self._flushing(topic).finished())
                self._follow(MigrationState.EXECUTED)
            case MigrationState.CUT_OVER:
                self._each(self._detach_or_see)
                self._follow(MigrationState.FINISHED)
            case MigrationState.CANCELING:
                self._follow(MigrationState.CANCELLED)  # Whoever appends next takes the seals off.
            case _:
                pass

    def _each(self, do: Callable[[MigrantEntry], object]) -> None:
        """Do something with each topic, side by side: nobody writes meanwhile."""
        all_side_by_side(do, self._here(), name="topics")

    def _flush(self, topic: MigrantEntry, rounds: int | None = None) -> None:
        self.means.flushed(self._flushing(topic).upload(rounds))

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

            def sealed(held: Held | None) -> dict[str, Any] | None:
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
            TopicManifest.of(catalog, name, means.cluster_id),
            owner=NOBODY,
            name=location.topic,
            groups=self._groups(topic),
            ends={number: head.end for number, head in read_heads(means.store, topic.topic_id).items() if head.end},
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
