"""Unmount and mount Kafka topics through jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.mounts.archive import ArchivedTopic
from reconciler.errors import LeaseError, ReconcilerError, UserError
from reconciler.planning.actions import ControlAction, Delete, Reason
from reconciler.providers.kafka import admin
from reconciler.providers.kafka.ledger import MAP, PROGRESS, Changes, Ledger
from reconciler.providers.kafka.metadata import OWN, own_values
from reconciler.providers.kafka.mounts.mount_ledger import (
    KINDS,
    WRITER,
    cluster_uuid,
    location_of,
    mounted_key,
    mounting_key,
    moves_in,
    places_in,
    seal_key,
    value_of,
)
from reconciler.providers.kafka.mounts.topic_moves import KafkaCopyMoves, archived, filling, finished
from reconciler.providers.kafka.records.copy_progress import map_of
from reconciler.providers.kafka.seal import Seals
from reconciler.providers.protocol import Done, Failed, GroupsOfCluster, LiveTopic, MountJob, Outcome
from reconciler.resources.address import Address, full_name_of
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.embedded.tiered.topic_manifest import TopicManifest
    from reconciler.objectstore.base import ObjectStore
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.records.copy_sink import CopySink
    from reconciler.providers.kafka.translate import Naming
    from reconciler.records.log import TopicLog
    from reconciler.records.offset_map import OffsetMap
    from reconciler.resources.inventory import Capabilities


_DEFAULT: Final = 5
"""Source of a config that nobody sets (6.1)."""


@dataclass(frozen=True)
class KafkaStorageMoves:
    """One cluster: its brokers, its ledger, and its object storage."""

    address: Address
    client: KafkaClient
    naming: Naming
    ledger: Ledger
    groups: GroupsOfCluster
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
        seen = admin.seen(self.client, self.naming.physical(full_name))
        if seen is None:
            raise UserError(f"topic {full_name} does not exist", hint="Plan again.")
        known = places_in(self.ledger.read(*KINDS)).get(seen.id)
        return known or location_of(full_name, self.client.cluster().id, seen.id)

    def topic(self, full_name: str) -> LiveTopic | None:
        """Return a topic with its configs and the offsets of its groups."""
        name = self.naming.physical(full_name)
        seen = admin.seen(self.client, name)
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
        there, has = admin.seen(self.client, name), dict(self.client.configs([name])).get(name, 0)
        own = {} if isinstance(has, int) else {key: each.value for key, each in has.items() if each.source == OWN}
        is_ours = there is not None and len(there.replicas) == found.partitions and own == configs
        if there is None or not is_ours or any(each.end for each in self.log(full_name).bounds().values()):
            message = f"topic {name} exists already, and is not the one that is to be mounted"
            raise UserError(message, hint="Choose another name with `as`, or delete the topic that is there first.")
        return there.id

    def finish(self, full_name: str, found: TopicManifest) -> None:
        """Give a topic the configs it had, in one request."""
        changes = finished(found, self.capabilities().configs, self.capabilities().defaults)
        admin.configure(self.client, self.naming.physical(full_name), changes)

    def filler(self, move: MountJob, begins: Mapping[int, int]) -> CopySink:
        """Return a sink whose progress and offset maps are written with the records."""
        from reconciler.providers.kafka.records.copy_sink import CopySink, Target  # noqa: PLC0415 - brings numpy

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
        """Seal the topic of an unmount."""
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
