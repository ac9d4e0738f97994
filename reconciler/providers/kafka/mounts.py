"""Unmount, mount and move Kafka topics through jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from reconciler.archives.archive import ArchivedTopic
from reconciler.errors import LeaseError, NotFoundError, ReconcilerError, RetryableError, StalePlanError, UserError
from reconciler.planning.actions import ControlAction, Delete, Reason, Update
from reconciler.planning.fields import CONFIGS, canonical_field, equal
from reconciler.providers.kafka import admin
from reconciler.providers.kafka.groups import check_all_listed
from reconciler.providers.kafka.ledger import MAP, PROGRESS, REKEYED, Changes, Ledger
from reconciler.providers.kafka.mount_ledger import (
    FILLED,
    FILLING,
    KINDS,
    LEFT,
    WRITER,
    cluster_uuid,
    location_of,
    mounted_key,
    mounting_key,
    moves_in,
    places_in,
    seal_key,
    unfilled,
    value_of,
)
from reconciler.providers.kafka.offsets import bounds_of
from reconciler.providers.kafka.records.copy_progress import map_of
from reconciler.providers.kafka.seal import Seals
from reconciler.providers.kafka.translate import OWN, ClusterNaming, TopicSeen, own_values
from reconciler.providers.protocol import Done, Failed, Groups, Outcome
from reconciler.providers.protocol_moves import CopyMove, LiveTopic, MountJob, tell_still_sealed
from reconciler.records.log import TopicLog, came_since
from reconciler.resources.address import Address, full_name_of
from reconciler.resources.base import UNLIMITED
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, PASSING, ConfigKey
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.archives.topic_manifest import TopicManifest
    from reconciler.objectstore.base import ObjectStore
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.records.copy_sink import CopySink
    from reconciler.providers.kafka.records.rekey_copy import KafkaRekeySink
    from reconciler.records.offset_map import OffsetMap
    from reconciler.resources.inventory import Capabilities

# ruff: noqa: PLC0415


# Configs of a topic on its way between brokers and object storage. Pure.
#
# While a topic is filled nothing of it may expire, be compacted, or get another time: what a restore has written is
# compared first, and only then has the topic the configs it had (facts, 7: old records were gone within a second).


_ELSEWHERE: Final = ("remote.", "local.retention.", "retention.local.", "initial.retention.")
_OF_BROKERS: Final = PASSING | {"unclean.leader.election.enable"}
_KEPT: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type", "max.message.bytes")
"""What a topic must not lose by coming to a cluster with other defaults."""


def filling(known: Mapping[str, ConfigKey]) -> dict[str, str]:
    """Return what a topic is made with, as far as this version of the brokers knows it."""
    return {key: value for key, value in FILLING.items() if key in known}


def finished(
    found: TopicManifest, known: Mapping[str, ConfigKey], defaults: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the changes after which a topic has the configs it had; `None`: what its cluster says is the same."""
    changes: dict[str, str | None] = dict.fromkeys(filling(known))
    for key in sorted({*found.configs, *found.effective, *_KEPT}):
        value = found.configs.get(key, found.effective.get(key, _default(key)))
        is_own = key in found.configs
        if key not in known or _is_elsewhere(key) or value is None or not (is_own or key in KAFKA_CONFIGS):
            continue
        meant = canonical_field(CONFIGS + key, value, KAFKA_CONFIGS)
        if is_own or meant != defaults.get(key, KAFKA_CONFIGS[key].default):
            changes[key] = value
    return changes


def _keeps_longer(value: str, than: str | None) -> bool:
    here, there = (inf if int(each) == UNLIMITED else int(each) for each in (value, than or UNLIMITED))
    return here > there


def archived(own: Mapping[str, str], said: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return a topic's own configs, and all that are set for it, without what is about where its records lie."""

    def kept(configs: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in sorted(configs.items()) if not _is_elsewhere(key)}

    return kept(own), kept({**said, **own})


def _is_elsewhere(key: str) -> bool:
    """Tell whether a config is about where records lie, or was put there by the brokers."""
    return key.startswith(_ELSEWHERE) or key in _OF_BROKERS


def _default(key: str) -> str | None:
    """Return what an embedded cluster has where nothing is set: it keeps what is set alone."""
    return EMBEDDED_CONFIGS[key].default if key in EMBEDDED_CONFIGS else None


@dataclass(frozen=True)
class KafkaCopyMoves:
    """One cluster: its brokers, its ledger, and its groups."""

    client: KafkaClient
    naming: ClusterNaming
    ledger: Ledger
    groups: Groups
    capabilities: Callable[[], Capabilities]
    log: Callable[[str], TopicLog]
    """Opens the records of a topic, by its full name."""

    @property
    def seals(self) -> Seals:
        """The seals of its topics."""
        return Seals(self.client, self.ledger)

    def move(self, old: str, old_id: str | None, new: str, *, is_keyed: bool) -> CopyMove:
        """Return a move of topics that are there."""
        ids = [self._id(name) for name in (old, new)]
        if old_id is not None and ids[0] != old_id:
            message = f"topic {old} was deleted and created again after it was read (its topic id changed)"
            raise StalePlanError(message, hint="Nothing was deleted. Plan again.")
        return CopyMove(old, ids[0], new, ids[1], is_keyed)

    def begin(self, move: CopyMove) -> None:
        """Set what holds while it is filled, once what it said itself is in the ledger.

        Raises:
            NotAuthorizedError: There may be groups that are not shown: they would lose their place.
        """
        check_all_listed(self.client)
        name, wanted = self.naming.physical(move.new), filling(self.capabilities().configs)
        own, key = self._own(name), (FILLED, move.new_id)
        kept = self.ledger.read(FILLED).get(key)
        said = own if kept is None else unfilled(kept["configs"], own)
        if kept is None or kept["configs"] != said:
            self._write({key: {**(kept or {}), "configs": said}}, FILLED)
        admin.configure(self.client, name, dict(wanted))

    def set_later(self, action: Update) -> Update:
        """Keep for the end of a move what an action changes of what it is filled with; return what is left to do."""
        name = self.naming.physical(full_name_of(action.address))
        seen = self.client.topic(name)
        kept = None if seen is None else self.ledger.read(FILLED).get((FILLED, seen.id))
        if seen is None or kept is None:
            return action
        own = self._own(name)
        said = unfilled(kept["configs"], own)
        late = {
            change.path.removeprefix(CONFIGS): change
            for change in action.changes
            if (key := change.path.removeprefix(CONFIGS)) in FILLING and said.get(key) != own.get(key)
            # Else it was decided on what holds while it is filled: nobody waits for the end of the move any more.
            if equal(change.path, change.before, said.get(key), KAFKA_CONFIGS)
        }
        if late:
            after = {**said, **{key: change.after for key, change in late.items()}}
            configs = {key: value for key, value in after.items() if value is not None}
            self._write({(FILLED, seen.id): {**kept, "configs": configs}}, FILLED)
        return replace(action, changes=tuple(each for each in action.changes if each not in late.values()))

    def sink(self, move: CopyMove) -> CopySink | KafkaRekeySink:
        """Return a sink whose progress, and where records went, are written with the records."""
        from reconciler.providers.kafka.records.copy_sink import CopySink, Target
        from reconciler.providers.kafka.records.rekey_copy import KafkaRekeySink

        target = Target(
            self.ledger.settings,
            self.client.name,
            self.naming.physical(move.new),
            move.new_id,
            len(self._seen(move.new)),
            f"move.{move.old_id}",
        )
        return KafkaRekeySink(target, move.old_id) if move.is_keyed else CopySink(target)

    def shut_out(self, move: CopyMove, may_go_on: Callable[[], None]) -> Mapping[int, int]:
        """Seal the old topic."""
        return self.seals.put(self.naming.physical(move.old), move.old_id, may_go_on)

    def let_in(self, move: CopyMove) -> None:
        """Take the seal off again."""
        self.seals.take_off(move.old_id)

    def left(self, move: CopyMove) -> Mapping[int, int] | None:
        """Return where the old topic ended, by what `end` wrote into the ledger, if nothing came behind that."""
        ends = self._left(move)
        return None if ends is None or came_since(self.log(move.old), ends) else ends

    def switch_groups(self, move: CopyMove, ends: Mapping[int, int]) -> int:
        """Commit places in the new topic: by the exact map, or by key so that nothing is skipped.

        Where that was done before, and the move did not end, what groups have read of it since then stays read.
        """
        key = (FILLED, move.new_id)
        kept = self.ledger.read(FILLED).get(key)
        switched = set() if kept is None else set(kept.get("switched", ()))
        try:
            return self._switch(move, ends, switched)
        finally:
            if kept is not None and switched:
                self._write({key: {**kept, "switched": sorted(switched)}}, FILLED)

    def _switch(self, move: CopyMove, ends: Mapping[int, int], switched: set[str]) -> int:
        is_over = self._left(move) is not None  # It did end, and the old topic is there still.
        place = self._places_by_key(move) if move.is_keyed else self._places_by_map(move, ends)
        count = 0
        for group in self.groups.names():
            committed = self.groups.committed(group, [move.old, move.new])
            old = {partition: offset for (name, partition), offset in committed.items() if name == move.old}
            found = {(move.new, partition): offset for partition, offset in place(old).items()} if old else {}
            if is_over or group in switched:
                found = {at: offset for at, offset in found.items() if committed.get(at, -1) < offset}
            if found:
                self.groups.commit(group, found)
                switched.add(group)
                count += 1
        return count

    def end(self, move: CopyMove, ends: Mapping[int, int]) -> None:
        """Give back the configs, then keep where the old topic ended and forget how the new one was filled."""
        name, kept = self.naming.physical(move.new), self.ledger.read(FILLED).get((FILLED, move.new_id))
        if kept is not None:
            own, before, filled = self._own(name), kept["configs"], filling(self.capabilities().configs)
            # A broker may lag behind; any other value than these is one that somebody has set meanwhile.
            ours = {key for key, value in filled.items() if own.get(key) in {None, value, before.get(key)}}
            admin.configure(self.client, name, {key: before.get(key) for key in sorted(ours)})
        kept_ends = {str(number): [end, end] for number, end in sorted(ends.items())}
        left = {"ends": kept_ends, "new": name, "new_id": move.new_id}
        changes: Changes = {(FILLED, move.new_id): None, (LEFT, move.old_id): left}
        self._write(changes, FILLED, LEFT)

    def shut_out_left(self, full_name: str, topic_id: str | None, may_go_on: Callable[[], None]) -> None:
        """Seal a topic that was left, and refuse to delete it where it has records that were not copied.

        Raises:
            RetryableError: It has; producers are let in again.
        """
        name = self.naming.physical(full_name)
        said = self.ledger.read(LEFT).get((LEFT, topic_id)) if topic_id is not None else None
        if topic_id is None or said is None:
            return
        new = self.client.topic(said["new"])
        if new is None or said.get("new_id") not in {None, new.id}:
            message = f"topic {said['new']}, to which all of topic {name} was copied, was deleted since"
            raise RetryableError(message, hint="Nothing was deleted. Apply again: it is copied again.")
        try:
            self.seals.put(name, topic_id, may_go_on)
            ends = {int(number): end for number, (_, end) in said["ends"].items()}
            came = came_since(self.log(full_name), ends)
            if came or not self.seals.is_on(name, topic_id):
                message = f"topic {name}: a producer wrote to it after all of it had been copied to {said['new']}"
                hint = "Let its producers write to the new topic, then apply again: what is new is copied first."
                raise RetryableError(message, hint=hint)
        except LeaseError:
            raise
        except ReconcilerError as error:
            try:
                self.seals.take_off(topic_id)
            except ReconcilerError as also:
                tell_still_sealed(error, also)
            raise

    def let_in_left(self, topic_id: str) -> None:
        """Let producers in again to a topic that was left and is not deleted."""
        self.seals.take_off(topic_id)

    def forget_left(self, topic_ids: Iterable[str]) -> None:
        """Forget what was kept of topics that are deleted, and of how the ones they moved to were filled."""
        entries = self.ledger.read(LEFT, PROGRESS, MAP, REKEYED)
        gone = {(LEFT, topic_id) for topic_id in topic_ids if (LEFT, topic_id) in entries}
        seals = [seal_key(str(key[1])) for key in sorted(gone)]
        filled = {entries[key]["new"] for key in gone}
        rest = [key for key in entries if key[0] != LEFT and key[1] in filled]
        if gone:
            self._write(dict.fromkeys([*sorted(gone), *seals, *rest]), LEFT, PROGRESS, MAP, REKEYED)

    def _left(self, move: CopyMove) -> dict[int, int] | None:
        said = self.ledger.read(LEFT).get((LEFT, move.old_id))
        if said is None or said.get("new_id") != move.new_id:
            return None
        return {int(number): end for number, (_, end) in said["ends"].items()}

    def _places_by_map(self, move: CopyMove, ends: Mapping[int, int]) -> Callable[[Mapping[int, int]], dict[int, int]]:
        name, entries = self.naming.physical(move.new), self.ledger.read(PROGRESS, MAP)
        maps = {number: map_of(entries, name, number) for number in ends}

        def place(committed: Mapping[int, int]) -> dict[int, int]:
            found = {
                number: maps[number].target_of(min(offset, ends[number]))
                for number, offset in sorted(committed.items())
                if number in maps
            }
            return {number: 0 if target is None else target for number, target in found.items()}

        return place

    def _places_by_key(self, move: CopyMove) -> Callable[[Mapping[int, int]], dict[int, int]]:
        from reconciler.providers.kafka.records.rekey_copy import RekeyedEntries

        name = self.naming.physical(move.new)
        rows = RekeyedEntries.of(self.ledger.read(REKEYED), name, (move.old_id, move.new_id))
        now = bounds_of(self.client, [(name, number) for number in range(len(self._seen(move.new)))])
        ends = {number: found.stable for (_, number), found in now.items()}
        return lambda committed: rows.place(committed, ends)

    def _own(self, name: str) -> dict[str, str]:
        configs = dict(self.client.configs([name])).get(name, 0)
        if isinstance(configs, int):
            message = f"the configs of topic {name} cannot be read"
            raise StalePlanError(message, hint="Allow DESCRIBE_CONFIGS on it, and plan again.")
        return own_values(configs)

    def _id(self, full_name: str) -> str:
        seen = self.client.topic(self.naming.physical(full_name))
        if seen is None:
            raise StalePlanError(f"topic {full_name} was deleted after it was read", hint="Plan again.")
        return seen.id

    def _seen(self, full_name: str) -> tuple[tuple[int, ...], ...]:
        seen = self.client.topic(self.naming.physical(full_name))
        return () if seen is None else seen.replicas

    def _write(self, changes: Changes, *kinds: str) -> None:
        self.ledger.change(WRITER, lambda _entries: changes, *kinds)


_DEFAULT: Final = 5
"""Source of a config that nobody sets (6.1)."""


@dataclass(frozen=True)
class KafkaStorageMoves:
    """One cluster: its brokers, its ledger, and its object storage."""

    address: Address
    client: KafkaClient
    naming: ClusterNaming
    ledger: Ledger
    groups: Groups
    capabilities: Callable[[], Capabilities]
    given: ObjectStore | None
    log: Callable[[str], TopicLog]
    """Opens the records of a topic, by its full name."""
    clock: Callable[[], int]

    @property
    def cluster_id(self) -> str:
        """The id of the cluster as object storage has it."""
        return cluster_uuid(self.client.cluster().id)

    @property
    def storage(self) -> ObjectStore:
        """The object storage of the cluster."""
        if self.given is None:
            message = f"{self.address} has no object storage"
            raise UserError(message, hint="Declare its objectStorage: topics are archived there.")
        return self.given

    def now_ms(self) -> int:
        """Return what time it is."""
        return self.clock()

    def kept(self, mounting: str) -> MountJob | None:
        """Return the move that a mounting has begun: the ledger is read to its end."""
        return next((move for move in moves_in(self.ledger.read(*KINDS)) if move.mounting == mounting), None)

    def keep(self, move: MountJob) -> None:
        """Write how far a move is into the ledger."""
        self._write({mounting_key(move.mounting): value_of(move)})

    def end(self, move: MountJob) -> None:
        """Take a move out of the ledger and, in the same transaction, keep or forget where its topic lies."""
        name = self.naming.physical(move.topic)
        filled = (
            [key for key in self.ledger.read(PROGRESS, MAP) if key[1] == name] if move.direction == "inbound" else []
        )
        changes: dict[tuple[str | int, ...], Mapping[str, object] | None] = dict.fromkeys(filled)
        changes[mounting_key(move.mounting)] = None
        if move.topic_id is not None:
            is_here = move.direction == "inbound"
            changes[mounted_key(move.topic_id)] = {"location": move.location} if is_here else None
            changes[seal_key(move.topic_id)] = None
        self._write(changes)

    def place(self, full_name: str) -> str:
        """Return the location of a topic: its id gives one, unless it was mounted from another."""
        seen = self.client.topic(self.naming.physical(full_name))
        if seen is None:
            raise NotFoundError(f"topic {full_name} does not exist", hint="Plan again.")
        known = places_in(self.ledger.read(*KINDS)).get(seen.id)
        return known or location_of(full_name, self.client.cluster().id, seen.id)

    def topic(self, full_name: str) -> LiveTopic | None:
        """Return a topic with its configs and the offsets of its groups."""
        name = self.naming.physical(full_name)
        seen = self.client.topic(name)
        if seen is None:
            return None
        configs = dict(self.client.configs([name]))[name]
        if isinstance(configs, int):
            message = f"{self.address}: the principal of reconciler may not read the configs of topic {name}"
            raise UserError(message, hint="Allow DESCRIBE_CONFIGS on it: they are archived with it.")
        said = {key: each.value for key, each in configs.items() if each.value is not None and each.source != _DEFAULT}
        own, kept = own_values(configs), self.seals.of(seen.id)
        if kept is not None:
            own = kept.opened(own)
            said = {**{key: value for key, value in said.items() if key not in kept.own}, **kept.said}
        own, effective = archived(own, said)
        return LiveTopic(
            seen.id,
            ArchivedTopic(
                full_name, len(seen.replicas), len(seen.replicas[0]), own, effective, self._offsets(full_name)
            ),
        )

    def make(self, full_name: str, found: TopicManifest) -> str:
        """Make a topic from which nothing expires; one of that name that is empty and has such configs is ours."""
        name, configs = self.naming.physical(full_name), filling(self.capabilities().configs)
        factor = min(found.replication_factor, self.capabilities().max_replication_factor)
        made = admin.create(self.client, name, (found.partitions, factor), configs)
        if made is not None:
            return made
        there = self.made(full_name)
        if there is None or len(there.replicas) != found.partitions:
            message = f"topic {name} exists already, and is not the one that is to be mounted"
            raise UserError(message, hint="Choose another name with `as`, or delete the topic that is there first.")
        return there.id

    def made(self, full_name: str) -> TopicSeen | None:
        """Return a topic that is as `make` leaves it: empty, and with the configs of one that is to be filled."""
        name, configs = self.naming.physical(full_name), filling(self.capabilities().configs)
        there, has = self.client.topic(name), dict(self.client.configs([name])).get(name, 0)
        own = {} if isinstance(has, int) else {key: each.value for key, each in has.items() if each.source == OWN}
        if own != configs or any(each.end for each in self.log(full_name).bounds().values()):
            return None
        return there

    def finish(self, full_name: str, found: TopicManifest, retention: Mapping[str, str]) -> None:
        """Give a topic the configs it had, in one request, or the retention its manifest says where that is longer."""
        defaults = self.capabilities().defaults
        changes = finished(found, self.capabilities().configs, defaults)
        for key, value in retention.items():
            if _keeps_longer(value, changes.get(key) or defaults.get(key, KAFKA_CONFIGS[key].default)):
                changes[key] = value
        admin.configure(self.client, self.naming.physical(full_name), changes)

    def filler(self, move: MountJob, begins: Mapping[int, int]) -> CopySink:
        """Return a sink whose progress and offset maps are written with the records."""
        from reconciler.providers.kafka.records.copy_sink import CopySink, Target

        name = self.naming.physical(move.topic)
        target = Target(
            self.ledger.settings, self.client.name, name, move.topic_id, len(begins), move.claim, begins=begins
        )
        return CopySink(target)

    def maps(self, move: MountJob) -> dict[int, OffsetMap]:
        """Return the maps the ledger has."""
        name, entries = self.naming.physical(move.topic), self.ledger.read(PROGRESS, MAP)
        return {int(key[2]): map_of(entries, name, int(key[2])) for key in entries if key[:2] == (PROGRESS, name)}

    @property
    def seals(self) -> Seals:
        """The seals of its topics."""
        return Seals(self.client, self.ledger)

    def shut_out(self, move: MountJob, may_go_on: Callable[[], None]) -> Mapping[int, int]:
        """Seal the topic of an unmount.

        Raises:
            NotAuthorizedError: There may be groups that are not shown: their offsets would not be archived.
        """
        check_all_listed(self.client)
        return self.seals.put(self.naming.physical(move.topic), str(move.topic_id), may_go_on)

    def is_shut_out(self, move: MountJob) -> bool:
        """Ask the leader of each partition."""
        return self.seals.is_on(self.naming.physical(move.topic), str(move.topic_id))

    def let_in(self, move: MountJob) -> None:
        """Take the seal off."""
        if move.topic_id is not None:
            self.seals.take_off(move.topic_id)

    def remove(self, full_name: str, topic_id: str) -> None:
        """Delete a topic by its id."""
        admin.delete(self.client, self.naming.physical(full_name), topic_id)

    def _offsets(self, full_name: str) -> dict[str, dict[int, int]]:
        """Return where groups go on reading; of too many to ask at once, each is asked."""
        found = self.groups.of_topic(full_name)
        if found is not None:
            committed = (
                (group.name, {each.partition: each.reads_on for each in group.offsets if each.reads_on is not None})
                for group in found
                if not group.is_share
            )
            return {name: offsets for name, offsets in committed if offsets}
        offsets = {name: self.groups.committed(name, [full_name]) for name in self.groups.names()}
        return {
            name: {partition: offset for (_, partition), offset in sorted(mine.items())}
            for name, mine in offsets.items()
            if mine
        }

    def _write(self, changes: Changes) -> None:
        self.ledger.change(WRITER, lambda _entries: changes, *KINDS)


# Topics that are deleted because all of them is elsewhere: sealed, and only where nothing was written since.


Do = Callable[[Sequence[ControlAction]], Iterator[Outcome]]


def is_left(action: ControlAction) -> bool:
    """Tell whether an action deletes a topic whose records were copied under another name."""
    return isinstance(action, Delete) and isinstance(action.before, Topic) and Reason.MOVED in action.reasons


def carried_out(
    actions: Sequence[ControlAction], open_moves: Callable[[], KafkaCopyMoves], do: Do, may_go_on: Callable[[], None]
) -> Iterator[Outcome]:
    """Do a batch and yield one outcome each; what somebody has written to since it was copied is not deleted."""
    if not any(map(is_left, actions)):
        yield from do(actions)
        return
    moves = open_moves()
    rest: list[ControlAction] = []
    for action in actions:
        try:
            if is_left(action):
                moves.shut_out_left(full_name_of(action.address), _topic_id(action), may_go_on)
            rest.append(action)
        except LeaseError:
            raise
        except ReconcilerError as error:
            yield Failed(action.id, error)
    left = {action.id: _topic_id(action) for action in rest if is_left(action)}
    for outcome in do(rest) if rest else ():
        if (topic_id := left.get(outcome.id)) is not None:
            if isinstance(outcome, Done):
                moves.forget_left([topic_id])
            elif isinstance(outcome.error, UserError):
                # Refused. Of any other failure nobody knows whether it is being deleted.
                moves.let_in_left(topic_id)
        yield outcome


def _topic_id(action: ControlAction) -> str | None:
    return action.incarnation if isinstance(action, Delete) else None
