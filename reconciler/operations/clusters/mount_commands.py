"""`topic mount` and `unmount`: migrations that a command asks for.

They leave the record as it is. Where files declare a topic, that it was mounted or unmounted is drift, as if that had
been done in any other way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from reconciler.errors import BlockedError, OwnershipLostError, ReconcilerError, UsageError, UserError
from reconciler.lifecycles import MirrorStatus, is_under_way
from reconciler.operations.clusters.mounts import Underway, ask_each, cluster_ids, name_clusters, storage_of
from reconciler.operations.steps.observe import refuse_another_cluster
from reconciler.operations.steps.runner import Emergency, require_confirmation, verdict_on_each
from reconciler.operations.steps.workspace import Site, clusters_meant
from reconciler.planning.actions import Action, Reason, Risk, RunJob
from reconciler.planning.diff.mount_changes import expiring_text
from reconciler.planning.resolve.limits import beyond
from reconciler.providers.protocol import Scope
from reconciler.resources.address import (
    Address,
    address_of,
    check_full_name,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
)
from reconciler.resources.mount import Direction, Mountable, Phase, Recoverable
from reconciler.resources.topic import Topic
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.resources.inventory import Record, Resource
    from reconciler.state.snapshots import Snapshot


MountVerb: TypeAlias = Literal["mount", "unmount"]

_ANY: Final = "*"
_HELD: Final = {
    "claimed": "it is being mounted on cluster {} as {}",
    "mounted": "it is mounted on cluster {} as {}",
}
"""Why a topic in object storage cannot be mounted, by the state of its register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRequest:
    """What is asked: of which topics, under which other name, and how far."""

    verb: MountVerb
    texts: Sequence[str]
    """Addresses and patterns of topics, as they were typed."""
    to: str | None = None
    phase: Phase = "whole"

    @property
    def direction(self) -> Direction:
        """Which way they go."""
        return "inbound" if self.verb == "mount" else "outbound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """A topic that is to be mounted or unmounted."""

    address: Address
    """What it is called here, now or then."""
    location: str
    partitions: int | None = None
    records: int | None = None
    bytes: int | None = None
    groups: tuple[str, ...] | None = ()
    """Those that are reading it; `None`: too many to ask."""
    held: Mountable | None = None
    """Why it cannot be mounted: a cluster has it, or is taking it. `None`: it is free."""
    notes: tuple[str, ...] = ()
    members: tuple[Address, ...] = ()
    """Topics of the migration that is to be finished: all of them are finished together."""

    @property
    def cluster(self) -> str:
        """The cluster on which it is, or is to be."""
        return cluster_of(self.address) or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountAnswer:
    """What came of one topic; without an error it is done."""

    address: Address
    moving: Moving | None = None
    error: ReconcilerError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MountAnswers:
    """What came of asking for a mount or unmount, by topic."""

    verb: MountVerb
    phase: Phase
    each: tuple[MountAnswer, ...]
    migrations: tuple[tuple[str, int], ...] = ()
    """Those that are prepared: cluster and id."""
    is_rehearsal: bool = False
    """Nothing was done: it says what would be."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where not all of it was done."""
        errors = [answer.error for answer in self.each]
        return verdict_on_each(self.verb, errors, "topics", is_rehearsal=self.is_rehearsal)


@dataclass
class _Mounting:
    """One request, and what is found of it."""

    emergency: Emergency
    site: Site
    asked: MountRequest
    record: Record
    ready: dict[Address, Moving] = field(default_factory=dict)
    refused: dict[Address, ReconcilerError] = field(default_factory=dict)

    def look(self) -> None:
        """See which topics are meant, and which of them may go.

        Raises:
            UserError: A cluster is not there or cannot do that, or a pattern matches nothing.
            RetryableError: A cluster cannot be reached.
        """
        matched: set[str] = set()
        for cluster in self._clusters():
            self._check_cluster(cluster)
            matched |= self._choose(cluster, self._candidates(cluster))
        for text in self.asked.texts:
            if _ANY in text and text not in matched:
                hint = f"See what there is: reconciler {'mount list' if self.asked.verb == 'mount' else 'topic list'}"
                raise UserError(f"no topic matches {text}: nothing was done", hint=hint)
        self._refuse_parts()
        self._call_otherwise()
        self._check_each()

    def _choose(self, cluster: str, candidates: Sequence[Moving]) -> set[str]:
        """Make ready what addresses and patterns name on a cluster; return the patterns that name something."""
        matched: set[str] = set()
        chosen: dict[Address, dict[str, Moving]] = {}
        for text in self.asked.texts:
            there: Sequence[Moving] = [each for each in candidates if matches(text, each.address) or _is_at(text, each)]
            if _ANY in text:
                matched |= {text} if any(each.held is None for each in there) else set()
                there = self._of_pattern(there)
            elif cluster_of(Address(text)) == cluster:
                there = self._named(text, there)
            for each in there:
                chosen.setdefault(each.address, {})[each.location] = each
        for address, places in chosen.items():
            if len(places) > 1:
                self.refused[address] = self._not_one(address, list(places.values()))
            if address not in self.refused:
                (self.ready[address],) = places.values()
        return matched

    def decide(self, snapshot: Snapshot | None) -> list[Action]:
        """Return the migrations: of all topics of a cluster together where it can, else one after the other."""
        actions: list[Action] = []
        for cluster in sorted({each.cluster for each in self.ready.values()}):
            mine = {address: each for address, each in self.ready.items() if each.cluster == cluster}
            try:
                refuse_another_cluster(self.site, cluster, snapshot)
            except ReconcilerError as error:
                for address in mine:
                    self.refused[address] = error
                    del self.ready[address]
                continue
            is_by_jobs = self.site.providers[cluster].migrations.by_jobs is not None
            together = [[each] for each in mine.values()] if is_by_jobs else [list(mine.values())]
            actions += [self._job(each) for each in together]
        return actions

    def answers(self, undone: Mapping[str, ReconcilerError]) -> MountAnswers:
        """Return what came of each."""
        wrong: dict[Address, ReconcilerError] = dict(self.refused)
        by_first = {name.split(":", 1)[1]: error for name, error in undone.items()}
        for address, each in self.ready.items():
            first = address
            if self.site.providers[each.cluster].migrations.by_jobs is None:
                first = next(other for other, one in self.ready.items() if one.cluster == each.cluster)
            if first in by_first:
                wrong[address] = self._lost(each, by_first[first])
        prepared = tuple(self._prepared(wrong))
        return MountAnswers(verb=self.asked.verb, phase=self.asked.phase, each=self._each(wrong), migrations=prepared)

    def _lost(self, moving: Moving, error: ReconcilerError) -> ReconcilerError:
        """Return why a topic was not moved; where another cluster has it, which one, and how to give the mount up."""
        if not isinstance(error, OwnershipLostError):
            return error
        begun = self._taking(moving.location, [moving.cluster])
        hint = error.hint
        if begun is not None and "cancel" in begun.legal:
            hint = f"Give this mount up: reconciler mount cancel {begun.migration.id} --cluster {begun.cluster}"
        return OwnershipLostError(name_clusters(self.site, error.message), hint=hint)

    def rehearsed(self) -> MountAnswers:
        """Return what would come of each."""
        return MountAnswers(
            verb=self.asked.verb, phase=self.asked.phase, each=self._each(self.refused), is_rehearsal=True
        )

    def _each(self, wrong: Mapping[Address, ReconcilerError]) -> tuple[MountAnswer, ...]:
        names = sorted({*self.ready, *self.refused})
        return tuple(
            MountAnswer(address=address, moving=self.ready.get(address), error=wrong.get(address)) for address in names
        )

    def _prepared(self, wrong: Mapping[Address, ReconcilerError]) -> Iterator[tuple[str, int]]:
        if self.asked.phase != "prepare":
            return
        for cluster in sorted({each.cluster for address, each in self.ready.items() if address not in wrong}):
            for migration in self.site.providers[cluster].migrations.under_way(is_measured=False):
                names = {address_of("topic", cluster, topic.full_name) for topic in migration.topics}
                if migration.direction == self.asked.direction and names & self.ready.keys():
                    yield cluster, migration.id

    def _job(self, topics: Sequence[Moving]) -> RunJob:
        first = topics[0].address
        return RunJob(
            address=first,
            job=self.asked.verb,
            source=first,
            sink=first,
            parameters={
                "topics": {full_name_of(each.address): each.location for each in topics},
                "phase": self.asked.phase,
            },
            risk=Risk.DISRUPTIVE if self.asked.verb == "unmount" else Risk.NONE,
            reasons=(Reason.BY_COMMAND,),
        )

    def _clusters(self) -> tuple[str, ...]:
        """Return the clusters that are meant; of those that only a pattern names, the ones with object storage."""
        named = {cluster_of(Address(text)) for text in self.asked.texts}
        return tuple(
            name
            for name in clusters_meant(self.site, self.asked.texts)
            if name in named or self.site.clusters[name].spec.object_storage is not None
        )

    def _check_cluster(self, cluster: str) -> None:
        """Refuse what a cluster cannot do, before anything is done."""
        self.emergency.check(self.site, cluster)
        provider = self.site.providers[cluster]
        if provider.identify() is None:
            raise UserError(f"cluster {cluster} is not there yet", hint="Create it with: reconciler apply")
        if not provider.capabilities.mountings:
            message, hint = beyond(provider.capabilities, "mount or unmount topics")
            raise UserError(f"{cluster_address(cluster)}: {message}", hint=hint)
        storage_of(self.site, cluster)

    def _candidates(self, cluster: str) -> list[Moving]:
        if self.asked.phase == "finish":
            return list(self._under_way(cluster))
        if self.asked.verb == "mount":
            return [
                Moving(
                    address=address_of("topic", cluster, each.full_name),
                    location=each.location,
                    partitions=each.partitions,
                    records=each.records,
                    bytes=each.bytes,
                    held=None if each.state == "detached" else each,
                )
                for each in self.site.providers[cluster].mountable()
            ]
        return list(self._attached(cluster))

    def _under_way(self, cluster: str) -> Iterator[Moving]:
        for migration in self.site.providers[cluster].migrations.under_way(is_measured=False):
            if migration.direction != self.asked.direction or not is_under_way(migration.state):
                continue
            members = tuple(address_of("topic", cluster, topic.full_name) for topic in migration.topics)
            for address, topic in zip(members, migration.topics, strict=True):
                if topic.mounting is None:
                    place, partitions = topic.location, topic.partitions
                    yield Moving(address=address, location=place, partitions=partitions, members=members)

    def _attached(self, cluster: str) -> Iterator[Moving]:
        provider = self.site.providers[cluster]
        patterns = [text for text in self.asked.texts if _ANY in text or cluster_of(Address(text)) == cluster]
        observed = provider.observe(Scope(tuple(patterns)))
        by_jobs = provider.migrations.by_jobs
        found = {
            address: (seen, seen.resource.spec.partitions)
            for address, seen in sorted(observed.items())
            if isinstance(seen.resource, Topic) and kind_of(address) == "topic" and not seen.is_internal
        }
        sizes = provider.measure(list(found))
        reading = provider.groups.reading()
        for address, (seen, partitions) in found.items():
            if seen.hidden is not None:
                self.refused[address] = seen.hidden
                continue
            name, size = full_name_of(address), sizes.get(address)
            place = by_jobs.place(name) if by_jobs is not None else ""
            yield Moving(
                address=address,
                location=seen.legacy.location if seen.legacy is not None else place,
                partitions=partitions,
                records=None if size is None else size.records,
                bytes=None if size is None else size.bytes,
                groups=None if reading is None else tuple(reading.get(name, ())),
            )

    def _of_pattern(self, there: Sequence[Moving]) -> list[Moving]:
        """Return what a pattern names and is free; of several of one name none is meant, and that is told."""
        named: dict[Address, list[Moving]] = {}
        for each in there:
            if each.held is None:
                named.setdefault(each.address, []).append(each)
        for address, several in named.items():
            if len(several) > 1:
                self.refused[address] = self._not_one(address, several)
        return [several[0] for several in named.values() if len(several) == 1]

    def _named(self, text: str, there: Sequence[Moving]) -> Sequence[Moving]:
        """Return the one topic that an address names; why there is none is told with the others."""
        free = [each for each in there if each.held is None]
        if len(free) == 1:
            return free
        address = Address(text)
        self.refused[address] = self._not_one(address, free or there)
        return ()

    def _not_one(self, address: Address, found: Sequence[Moving]) -> ReconcilerError:
        """Return why an address names no topic, or more than one (F-R-115)."""
        cluster, name = cluster_of(address) or "", full_name_of(address)
        if self.asked.phase == "finish":
            message = f"{address}: no {self.asked.verb} of it that a command began is under way"
            return UserError(message, hint="See what is under way: reconciler mount status")
        if self.asked.verb == "unmount":
            mirror = address_of("mirror", cluster, name)
            if self.site.providers[cluster].observe(Scope((mirror,))):
                hint = "Promote or delete the mirror first; its source can be unmounted where it is."
                return UserError(f"{mirror} is a mirror: what it holds belongs to its source", hint=hint)
            return UserError(f"{address} does not exist (Topic does not exists)", hint="See: reconciler topic list")
        if not found:
            message = f"{address}: nothing of that name or place can be mounted"
            return UserError(message, hint="See what can: reconciler mount list")
        if len(found) == 1 and found[0].held is not None:
            return self._held(address, found[0].held)
        places = ", ".join(each.location for each in found)
        one = address_of("topic", cluster, found[0].location)
        hint = f"Name only the place of the one that is meant: {one}. Mount another one with --to, under another name."
        return UserError(f"{address}: several topics of that name can be mounted: {places}", hint=hint)

    def _held(self, address: Address, there: Mountable) -> UserError:
        """Return that a cluster has a topic, or is taking it, and what ends that."""
        here = cluster_of(address) or ""
        identity = self.site.providers[here].identify()
        is_here = identity is not None and identity.cluster_id == there.owner
        names = [here] if is_here else sorted(self.site.clusters)  # Others may be away, and waited for.
        taking = self._taking(there.location, names) if there.state == "claimed" else None
        owner = cluster_ids(self.site, names).get(there.owner or "") if taking is None else taking.cluster
        if taking is not None:
            one = f"{taking.migration.id} --cluster {taking.cluster}"
            is_by_hand = all(topic.mounting is None for topic in taking.migration.topics)
            topics = [address_of("topic", taking.cluster, topic.full_name) for topic in taking.migration.topics]
            finish = f"topic mount --finish {' '.join(topics)}"
            hint = f"Go on with it: reconciler {finish if is_by_hand else f'mount status {one}'}"
            if "cancel" in taking.legal:
                hint += f". Or give it up: reconciler mount cancel {one}"
        elif owner is None or there.state == "claimed":
            hint = "Unmount it there: a topic is mounted once."
        elif is_here:
            hint = "It is on that cluster already: a topic is mounted once."
        else:
            hint = f"Unmount it there: reconciler topic unmount {address_of('topic', owner, there.name)}"
        return UserError(f"{address}: {_HELD[there.state].format(owner or there.owner, there.name)}", hint=hint)

    def _taking(self, location: str, clusters: Iterable[str]) -> Underway | None:
        """Return the migration of one of these clusters that mounts a topic; `None`: none that answers has it."""
        names = [name for name in clusters if self.site.clusters[name].spec.object_storage is not None]
        found, _ = ask_each(names, lambda name: self.site.providers[name].migrations.under_way(is_measured=False))
        for name in sorted(found):
            for each in found[name]:
                is_mount = each.direction == "inbound" and is_under_way(each.state)
                if is_mount and location in {topic.location for topic in each.topics}:
                    return Underway(name, each)
        return None

    def _refuse_parts(self) -> None:
        """Refuse to finish a migration of which only some topics were named: no other topic is moved unseen."""
        named = set(self.ready)
        for address, each in tuple(self.ready.items()):
            if missing := [member for member in each.members if member not in named]:
                message = f"{address}: its {self.asked.verb} is one migration with {', '.join(missing)}"
                self.refused[address] = UserError(
                    f"{message}, and finishing it moves them together",
                    hint=f"Name all of them: reconciler topic {self.asked.verb} --finish {' '.join(each.members)}",
                )
                del self.ready[address]

    def _call_otherwise(self) -> None:
        """Give the one topic that is mounted the name that it is to have."""
        if self.asked.to is None or len(self.ready) != 1:
            return
        (each,) = self.ready.values()
        name = address_of("topic", each.cluster, self.asked.to)
        self.ready = {name: replace(each, address=name)}

    def _check_each(self) -> None:
        mirrors = self._mirrored() if self.asked.verb == "unmount" and self.asked.phase != "finish" else {}
        for cluster in sorted({each.cluster for each in self.ready.values()}):
            mine = {full_name_of(each.address): each for each in self.ready.values() if each.cluster == cluster}
            unfit: Mapping[str, ReconcilerError] = {}
            if self.asked.phase != "finish":
                topics = {name: each.location for name, each in mine.items()}
                unfit = self.site.providers[cluster].migrations.unfit(self.asked.direction, topics)
            for name, each in mine.items():
                error = unfit.get(name) or self._guarded(each, mirrors.get(each.address, ()))
                if error is not None:
                    self.refused[each.address] = error
                    del self.ready[each.address]
                else:
                    self.ready[each.address] = replace(each, notes=tuple(self._notes(each)))

    def _guarded(self, moving: Moving, mirrors: Sequence[Address]) -> ReconcilerError | None:
        if self.asked.verb == "mount" or self.asked.phase == "finish":
            return None
        last, declared = self.record.get(moving.address), self._declared(moving.address)
        says = declared.spec.protect if isinstance(declared, Topic) else None
        if says if says is not None else last is not None and last.protect:
            message = f"{moving.address} is protected, and unmounting takes it off the cluster"
            return BlockedError(message, hint="Apply once with protect: false; nothing was unmounted.")
        if mirrors:
            message = f"{moving.address}: {mirrors[0]} mirrors it, and would have no source"
            return UserError(message, hint=f"Promote or fail over {mirrors[0]} first.")
        return None

    def _mirrored(self) -> Mapping[Address, Sequence[Address]]:
        """Return the live mirrors of topics, as far as clusters answer: an emergency does without the others."""

        def look(name: str) -> list[tuple[Address, Address]]:
            try:
                provider = self.site.providers[name]
                seen = provider.links.mirrors() if provider.identify() is not None else ()
            except ReconcilerError:
                return []
            return [
                (address_of("topic", each.source_cluster, each.source), address_of("mirror", name, each.name))
                for each in seen
                if each.status is not MirrorStatus.STOPPED
            ]

        found: dict[Address, list[Address]] = {}
        for each in side_by_side(look, sorted(self.site.clusters), name="mirrors"):
            for topic, mirror in each:
                found.setdefault(topic, []).append(mirror)
        return found

    def _declared(self, address: Address) -> Resource | None:
        declared = self.site.desired.get(address)
        return None if declared is None else declared.resource

    def _notes(self, moving: Moving) -> Iterator[str]:
        if self.asked.verb == "mount" and self.asked.phase != "finish":
            found = self.site.providers[moving.cluster].recoverable({moving.address: moving.location})[moving.address]
            if isinstance(found, Recoverable):
                configs = {key: (value, "") for key, value in found.configs.items()}
                message = expiring_text(configs, found, self.site.invocation.now_ms())
                if message is not None:
                    yield (
                        f"{message}. If it is to stay, apply a longer retention.ms of the topic before that; a "
                        "Mounting and a Topic in the files do both in one apply"
                    )
        mounting = Address("mounting/" + moving.address.partition("/")[2])
        for address in (moving.address, mounting):
            if self._declared(address) is None and address not in self.record:
                continue
            if self.asked.verb == "unmount":
                yield f"{address} is of this workspace: the next plan says so, and makes nothing anew"
            elif address == mounting:
                yield f"{address} is of this workspace: apply sets back what its files say otherwise"


def _is_at(text: str, moving: Moving) -> bool:
    """Tell whether an address or pattern names the place of a topic in object storage."""
    return matches(text, address_of("topic", moving.cluster, moving.location))


def migrate_topics(
    emergency: Emergency,
    asked: MountRequest,
    *,
    confirm: Callable[[MountAnswers], bool] | None = None,
    is_rehearsal: bool = False,
) -> MountAnswers:
    """Mount or unmount topics now, and return what came of each; one that cannot go stops no other.

    `confirm` is asked once, and given what would come of each. A rehearsal returns just that, and changes nothing.

    Raises:
        UsageError: What was typed is no topic, or another name is given for several.
        UserError: A cluster cannot do it, a pattern matches nothing, or it was not confirmed.
        LeaseError: Someone else is applying.
    """
    _check_typed(asked)
    site = emergency.open()
    mounting = _Mounting(emergency, site, asked, emergency.recorded(site) or {})
    mounting.look()
    if asked.to is not None and len(mounting.ready) + len(mounting.refused) > 1:
        raise _several_named()
    foreseen = mounting.rehearsed()
    if is_rehearsal:
        return foreseen
    if mounting.ready and confirm is not None:
        require_confirmation(confirm(foreseen))
    clusters = {each.cluster for each in mounting.ready.values()}
    undone = emergency.carry_out_each(site, clusters, mounting.decide) if mounting.ready else {}
    return mounting.answers(undone)


def _check_typed(asked: MountRequest) -> None:
    if not asked.texts:
        raise UsageError("no topics were named", hint="For example topic/west/shop:eu:orders, or 'topic/west/shop:*'.")
    for text in asked.texts:
        address = Address(text)
        if kind_of(address) != "topic" or (_ANY not in text and not (text.count("/") > 1 and full_name_of(address))):
            raise UsageError(f"{text!r} is not the address of a topic", hint="Write it as topic/west/shop:eu:orders.")
    if asked.to is None:
        return
    if len(asked.texts) > 1 or _ANY in asked.texts[0]:
        raise _several_named()
    try:
        check_full_name(asked.to)
    except ValueError as error:
        raise UsageError(f"--to {asked.to!r} is {error}", hint="Example: shop:eu:orders.") from error


def _several_named() -> UsageError:
    return UsageError("--to is of one topic", hint="Mount them one after the other, or each under its own name.")
