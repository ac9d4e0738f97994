"""Unmount, mount and move Kafka topics with jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from reconciler.archives.archive import ArchivedTopic
from reconciler.errors import LeaseError, NotFoundError, ReconcilerError, RetryableError, StalePlanError, UserError
from reconciler.planning.actions import ControlAction, Delete, Reason, Update
from reconciler.planning.fields import CONFIGS, canonicalize_field, is_equal_value
from reconciler.providers.brokers import admin
from reconciler.providers.brokers.groups import check_groups_visible
from reconciler.providers.brokers.ledger import MAP, PROGRESS, REKEYED, Changes, Ledger
from reconciler.providers.brokers.mount_ledger import (
    COPIED_TOPIC,
    FILLED,
    FILLING,
    KINDS,
    WRITER,
    build_location,
    compute_configs_after_filling,
    format_move,
    list_moves,
    mounted_key,
    mounting_key,
    parse_locations,
    seal_key,
    to_cluster_uuid,
)
from reconciler.providers.brokers.offsets import read_bounds
from reconciler.providers.brokers.records.copy_progress import parse_offset_map
from reconciler.providers.brokers.seal import Seals
from reconciler.providers.brokers.translate import OWN, ClusterNaming, TopicMetadata, select_own_configs
from reconciler.providers.protocol import CompletedAction, FailedAction, Groups, Outcome
from reconciler.providers.protocol_moves import ArchivableTopic, CopyMove, MountJob, add_still_sealed_hint
from reconciler.records.log import TopicLog, find_changed_partitions
from reconciler.resources.address import Address, full_name_of
from reconciler.resources.base import UNLIMITED
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, TRANSIENT_CONFIGS, ConfigKey
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.archives.topic_manifest import TopicManifest
    from reconciler.objectstore.base import ObjectStore
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.records.copy_sink import CopySink
    from reconciler.providers.brokers.records.rekey_copy import KafkaRekeySink
    from reconciler.records.offset_map import OffsetMap
    from reconciler.resources.inventory import Capabilities

# ruff: noqa: PLC0415


# Old records that fill a topic must not expire, be compacted or get new timestamps (facts 7).


_STORAGE_PREFIXES: Final = ("remote.", "local.retention.", "retention.local.", "initial.retention.")
_SET_BY_BROKERS: Final = TRANSIENT_CONFIGS | {"unclean.leader.election.enable"}
_ALWAYS_KEPT: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "message.timestamp.type",
    "max.message.bytes",
)


def select_filling_configs(known: Mapping[str, ConfigKey]) -> dict[str, str]:
    """Return the configs for filling that these brokers support."""
    return {key: value for key, value in FILLING.items() if key in known}


def compute_final_configs(
    manifest: TopicManifest, known: Mapping[str, ConfigKey], defaults: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the configs to set after filling; `None` resets a config."""
    changes: dict[str, str | None] = dict.fromkeys(select_filling_configs(known))
    for key in sorted({*manifest.configs, *manifest.effective, *_ALWAYS_KEPT}):
        value = manifest.configs.get(key, manifest.effective.get(key, _find_embedded_default(key)))
        is_own = key in manifest.configs
        if key not in known or _is_storage_config(key) or value is None or not (is_own or key in KAFKA_CONFIGS):
            continue
        meant = canonicalize_field(CONFIGS + key, value, KAFKA_CONFIGS)
        if is_own or meant != defaults.get(key, KAFKA_CONFIGS[key].default):
            changes[key] = value
    return changes


def _is_longer_limit(value: str, than: str | None) -> bool:
    own, other = (inf if int(limit) == UNLIMITED else int(limit) for limit in (value, than or UNLIMITED))
    return own > other


def select_archived_configs(
    own: Mapping[str, str], effective: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return a topic's own and effective configs, without those of tiered storage or set by brokers."""

    def select(configs: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in sorted(configs.items()) if not _is_storage_config(key)}

    return select(own), select({**effective, **own})


def _is_storage_config(key: str) -> bool:
    return key.startswith(_STORAGE_PREFIXES) or key in _SET_BY_BROKERS


def _find_embedded_default(key: str) -> str | None:
    return EMBEDDED_CONFIGS[key].default if key in EMBEDDED_CONFIGS else None


_DEFAULT: Final = 5


@dataclass(frozen=True)
class KafkaMoves:
    """`MovesByJobs` of one Kafka cluster."""

    address: Address
    client: KafkaClient
    naming: ClusterNaming
    ledger: Ledger
    groups: Groups
    capabilities: Callable[[], Capabilities]
    object_storage: ObjectStore | None
    log: Callable[[str], TopicLog]
    now_ms: Callable[[], int]

    @property
    def cluster_id(self) -> str:
        """Id of the cluster in object storage."""
        return to_cluster_uuid(self.client.describe_cluster().id)

    @property
    def storage(self) -> ObjectStore:
        """Object storage of the cluster."""
        if self.object_storage is None:
            message = f"{self.address} has no object storage"
            raise UserError(message, hint="Declare its objectStorage: topics are archived there.")
        return self.object_storage

    def load_job(self, mounting: str) -> MountJob | None:
        """Return a mount or unmount from the ledger."""
        return next((move for move in list_moves(self.ledger.read(*KINDS)) if move.mounting == mounting), None)

    def store_job(self, move: MountJob) -> None:
        """Write a mount's or unmount's progress to the ledger."""
        self._write_entries({mounting_key(move.mounting): format_move(move)}, *KINDS)

    def remove_job(self, move: MountJob) -> None:
        """Remove a mount or unmount, and record or remove the topic's location."""
        name = self.naming.to_physical(move.topic)
        filled = (
            [key for key in self.ledger.read(PROGRESS, MAP) if key[1] == name] if move.direction == "inbound" else []
        )
        changes: dict[tuple[str | int, ...], Mapping[str, object] | None] = dict.fromkeys(filled)
        changes[mounting_key(move.mounting)] = None
        if move.topic_id is not None:
            is_here = move.direction == "inbound"
            changes[mounted_key(move.topic_id)] = {"location": move.location} if is_here else None
            changes[seal_key(move.topic_id)] = None
        self._write_entries(changes, *KINDS)

    def find_location(self, full_name: str) -> str:
        """Return a mounted topic's recorded location, or derive it from the topic id."""
        seen = self.client.read_topic(self.naming.to_physical(full_name))
        if seen is None:
            raise NotFoundError(f"topic {full_name} does not exist", hint="Plan again.")
        known = parse_locations(self.ledger.read(*KINDS)).get(seen.id)
        return known or build_location(full_name, self.client.describe_cluster().id, seen.id)

    def read_topic(self, full_name: str) -> ArchivableTopic | None:
        """Return a topic with its configs and group offsets."""
        name = self.naming.to_physical(full_name)
        seen = self.client.read_topic(name)
        if seen is None:
            return None
        configs = dict(self.client.read_configs([name]))[name]
        if isinstance(configs, int):
            message = f"{self.address}: the principal of reconciler may not read the configs of topic {name}"
            raise UserError(message, hint="Allow DESCRIBE_CONFIGS on it: they are archived with it.")
        values = {
            key: config.value
            for key, config in configs.items()
            if config.value is not None and config.source != _DEFAULT
        }
        own, seal = select_own_configs(configs), self.seals.find_seal(seen.id)
        if seal is not None:
            own = seal.restore_configs(own)
            values = {**{key: value for key, value in values.items() if key not in seal.own}, **seal.effective}
        own, effective = select_archived_configs(own, values)
        return ArchivableTopic(
            seen.id,
            ArchivedTopic(
                full_name,
                len(seen.replicas),
                len(seen.replicas[0]),
                own,
                effective,
                self._read_group_offsets(full_name),
            ),
        )

    def create_topic(self, full_name: str, manifest: TopicManifest) -> str:
        """Create a topic for filling, or find an empty one with the same configs."""
        name, configs = self.naming.to_physical(full_name), select_filling_configs(self.capabilities().configs)
        factor = min(manifest.replication_factor, self.capabilities().replication_factors[-1])
        made = admin.create_topic(self.client, name, (manifest.partitions, factor), configs)
        if made is not None:
            return made
        topic = self.find_made_topic(full_name)
        if topic is None or len(topic.replicas) != manifest.partitions:
            message = f"topic {name} exists already, and is not the one that is to be mounted"
            raise UserError(message, hint="Choose another name with `as`, or delete the existing topic first.")
        return topic.id

    def find_made_topic(self, full_name: str) -> TopicMetadata | None:
        """Return a topic if it is empty and has the configs for filling, otherwise `None`."""
        name, configs = self.naming.to_physical(full_name), select_filling_configs(self.capabilities().configs)
        topic = self.client.read_topic(name)
        if topic is None:
            return None
        has = dict(self.client.read_configs([name])).get(name, 0)
        own = {} if isinstance(has, int) else {key: config.value for key, config in has.items() if config.source == OWN}
        if own != configs or any(bounds.end for bounds in self.log(full_name).read_bounds().values()):
            return None
        return topic

    def restore_topic_configs(self, full_name: str, manifest: TopicManifest, retention: Mapping[str, str]) -> None:
        """Restore a topic's configs."""
        defaults = self.capabilities().defaults
        changes = compute_final_configs(manifest, self.capabilities().configs, defaults)
        for key, value in retention.items():
            if _is_longer_limit(value, changes.get(key) or defaults.get(key, KAFKA_CONFIGS[key].default)):
                changes[key] = value
        admin.configure_topic(self.client, self.naming.to_physical(full_name), changes)

    def open_fill_sink(self, move: MountJob, begins: Mapping[int, int]) -> CopySink:
        """Return a sink that writes progress and offset maps with the records."""
        from reconciler.providers.brokers.records.copy_sink import CopySink, CopyTarget

        name = self.naming.to_physical(move.topic)
        target = CopyTarget(
            self.ledger.settings, self.client.name, name, move.topic_id, len(begins), move.claim, begins=begins
        )
        return CopySink(target)

    def read_offset_maps(self, move: MountJob) -> dict[int, OffsetMap]:
        """Return the offset maps from the ledger by partition."""
        name, entries = self.naming.to_physical(move.topic), self.ledger.read(PROGRESS, MAP)
        return {
            int(key[2]): parse_offset_map(entries, name, int(key[2])) for key in entries if key[:2] == (PROGRESS, name)
        }

    @property
    def seals(self) -> Seals:
        """Seals of the cluster."""
        return Seals(self.client, self.ledger)

    def refuse_all_producers(self, full_name: str, topic_id: str, may_go_on: Callable[[], None]) -> Mapping[int, int]:
        """Seal a topic, and return its end offsets."""
        check_groups_visible(self.client)
        return self.seals.seal_topic(self.naming.to_physical(full_name), topic_id, may_go_on)

    def is_refusing_producers(self, full_name: str, topic_id: str) -> bool:
        """Return whether all leaders reject records."""
        return self.seals.is_refusing_records(self.naming.to_physical(full_name), topic_id)

    def accept_producers(self, topic_id: str) -> None:
        """Remove the topic's seal."""
        self.seals.remove_seal(topic_id)

    def delete_topic(self, full_name: str, topic_id: str) -> None:
        """Delete a topic by its id."""
        admin.delete_topic(self.client, self.naming.to_physical(full_name), topic_id)

    def find_copy_move(self, old: str, old_id: str | None, new: str, *, is_keyed: bool) -> CopyMove:
        """Return a move by copying between existing topics."""
        ids = [self._read_topic_id(name) for name in (old, new)]
        if old_id is not None and ids[0] != old_id:
            message = f"topic {old} was deleted and created again after it was read (its topic id changed)"
            raise StalePlanError(message, hint="Nothing was deleted. Plan again.")
        return CopyMove(old, ids[0], new, ids[1], is_keyed)

    def suspend_retention(self, move: CopyMove) -> None:
        """Record the new topic's configs, then set those for filling."""
        check_groups_visible(self.client)
        name, wanted = self.naming.to_physical(move.new), select_filling_configs(self.capabilities().configs)
        own, key = self._read_own_configs(name), (FILLED, move.new_id)
        entry = self.ledger.read(FILLED).get(key)
        configs = own if entry is None else compute_configs_after_filling(entry["configs"], own)
        if entry is None or entry["configs"] != configs:
            self._write_entries({key: {**(entry or {}), "configs": configs}}, FILLED)
        admin.configure_topic(self.client, name, dict(wanted))

    def defer_changes(self, action: Update) -> Update:
        """Defer changes of configs that filling overrides, and return the update without them."""
        name = self.naming.to_physical(full_name_of(action.address))
        seen = self.client.read_topic(name)
        entry = None if seen is None else self.ledger.read(FILLED).get((FILLED, seen.id))
        if seen is None or entry is None:
            return action
        own = self._read_own_configs(name)
        later_configs = compute_configs_after_filling(entry["configs"], own)
        late = {
            change.path.removeprefix(CONFIGS): change
            for change in action.changes
            if (key := change.path.removeprefix(CONFIGS)) in FILLING and later_configs.get(key) != own.get(key)
            # A change from another value was planned against the configs for filling.
            if is_equal_value(change.path, change.before, later_configs.get(key), KAFKA_CONFIGS)
        }
        if late:
            after = {**later_configs, **{key: change.after for key, change in late.items()}}
            configs = {key: value for key, value in after.items() if value is not None}
            self._write_entries({(FILLED, seen.id): {**entry, "configs": configs}}, FILLED)
        return replace(action, changes=tuple(change for change in action.changes if change not in late.values()))

    def open_move_sink(self, move: CopyMove) -> CopySink | KafkaRekeySink:
        """Return a sink that writes progress and offset maps with the records."""
        from reconciler.providers.brokers.records.copy_sink import CopySink, CopyTarget
        from reconciler.providers.brokers.records.rekey_copy import KafkaRekeySink

        target = CopyTarget(
            self.ledger.settings,
            self.client.name,
            self.naming.to_physical(move.new),
            move.new_id,
            len(self._read_replicas(move.new)),
            f"move.{move.old_id}",
        )
        return KafkaRekeySink(target, move.old_id) if move.is_keyed else CopySink(target)

    def read_recorded_ends(self, move: CopyMove) -> Mapping[int, int] | None:
        """Return the old topic's recorded end offsets."""
        ends = self._read_copied_ends(move)
        return None if ends is None or find_changed_partitions(self.log(move.old), ends) else ends

    def switch_groups(self, move: CopyMove, ends: Mapping[int, int]) -> int:
        """Commit groups' offsets in the new topic."""
        key = (FILLED, move.new_id)
        entry = self.ledger.read(FILLED).get(key)
        switched = set() if entry is None else set(entry.get("switched", ()))
        try:
            return self._commit_switched_offsets(move, ends, switched)
        finally:
            if entry is not None and switched:
                self._write_entries({key: {**entry, "switched": sorted(switched)}}, FILLED)

    def _commit_switched_offsets(self, move: CopyMove, ends: Mapping[int, int], switched: set[str]) -> int:
        is_over = self._read_copied_ends(move) is not None  # Recorded ends show that `finish_move` has run before.
        translate = self._build_key_translator(move) if move.is_keyed else self._build_map_translator(move, ends)
        count = 0
        for group in self.groups.list_names():
            committed = self.groups.read_committed_offsets(group, [move.old, move.new])
            old = {partition: offset for (name, partition), offset in committed.items() if name == move.old}
            offsets = {(move.new, partition): offset for partition, offset in translate(old).items()} if old else {}
            if is_over or group in switched:
                offsets = {at: offset for at, offset in offsets.items() if committed.get(at, -1) < offset}
            if offsets:
                self.groups.commit(group, offsets)
                switched.add(group)
                count += 1
        return count

    def finish_move(self, move: CopyMove, ends: Mapping[int, int]) -> None:
        """Restore the new topic's configs, and record the old topic's ends."""
        name, entry = self.naming.to_physical(move.new), self.ledger.read(FILLED).get((FILLED, move.new_id))
        if entry is not None:
            own, before, filled = (
                self._read_own_configs(name),
                entry["configs"],
                select_filling_configs(self.capabilities().configs),
            )
            # Values that brokers do not show yet are reset, too. Users set all others.
            ours = {key for key, value in filled.items() if own.get(key) in {None, value, before.get(key)}}
            admin.configure_topic(self.client, name, {key: before.get(key) for key in sorted(ours)})
        kept_ends = {str(number): [end, end] for number, end in sorted(ends.items())}
        left = {"ends": kept_ends, "new": name, "new_id": move.new_id}
        changes: Changes = {(FILLED, move.new_id): None, (COPIED_TOPIC, move.old_id): left}
        self._write_entries(changes, FILLED, COPIED_TOPIC)

    def seal_copied_topic(self, full_name: str, topic_id: str | None, may_go_on: Callable[[], None]) -> None:
        """Seal a copied topic before its deletion. If any record was not copied, unseal it and raise."""
        name = self.naming.to_physical(full_name)
        entry = self.ledger.read(COPIED_TOPIC).get((COPIED_TOPIC, topic_id)) if topic_id is not None else None
        if topic_id is None or entry is None:
            return
        new = self.client.read_topic(entry["new"])
        if new is None or entry.get("new_id") not in {None, new.id}:
            message = f"topic {entry['new']}, to which all of topic {name} was copied, was deleted since"
            raise RetryableError(message, hint="Nothing was deleted. Apply again: it is copied again.")
        try:
            self.seals.seal_topic(name, topic_id, may_go_on)
            ends = {int(number): end for number, (_, end) in entry["ends"].items()}
            came = find_changed_partitions(self.log(full_name), ends)
            if came or not self.seals.is_refusing_records(name, topic_id):
                message = f"topic {name}: a producer wrote to it after all of it had been copied to {entry['new']}"
                hint = "Let its producers write to the new topic, then apply again: what is new is copied first."
                raise RetryableError(message, hint=hint)
        except LeaseError:
            raise
        except ReconcilerError as error:
            try:
                self.seals.remove_seal(topic_id)
            except ReconcilerError as also:
                add_still_sealed_hint(error, also)
            raise

    def unseal_copied_topic(self, topic_id: str) -> None:
        """Unseal a copied topic that stays."""
        self.seals.remove_seal(topic_id)

    def remove_copied_topic_entries(self, topic_ids: Iterable[str]) -> None:
        """Remove the entries of deleted topics."""
        entries = self.ledger.read(COPIED_TOPIC, PROGRESS, MAP, REKEYED)
        gone = {(COPIED_TOPIC, topic_id) for topic_id in topic_ids if (COPIED_TOPIC, topic_id) in entries}
        seals = [seal_key(str(key[1])) for key in sorted(gone)]
        filled = {entries[key]["new"] for key in gone}
        rest = [key for key in entries if key[0] != COPIED_TOPIC and key[1] in filled]
        if gone:
            self._write_entries(dict.fromkeys([*sorted(gone), *seals, *rest]), COPIED_TOPIC, PROGRESS, MAP, REKEYED)

    def _read_copied_ends(self, move: CopyMove) -> dict[int, int] | None:
        entry = self.ledger.read(COPIED_TOPIC).get((COPIED_TOPIC, move.old_id))
        if entry is None or entry.get("new_id") != move.new_id:
            return None
        return {int(number): end for number, (_, end) in entry["ends"].items()}

    def _build_map_translator(
        self, move: CopyMove, ends: Mapping[int, int]
    ) -> Callable[[Mapping[int, int]], dict[int, int]]:
        name, entries = self.naming.to_physical(move.new), self.ledger.read(PROGRESS, MAP)
        maps = {number: parse_offset_map(entries, name, number) for number in ends}

        def translate(committed: Mapping[int, int]) -> dict[int, int]:
            targets = {
                number: maps[number].find_target(min(offset, ends[number]))
                for number, offset in sorted(committed.items())
                if number in maps
            }
            return {number: 0 if target is None else target for number, target in targets.items()}

        return translate

    def _build_key_translator(self, move: CopyMove) -> Callable[[Mapping[int, int]], dict[int, int]]:
        from reconciler.providers.brokers.records.rekey_copy import RekeyedEntries

        name = self.naming.to_physical(move.new)
        rows = RekeyedEntries.parse(self.ledger.read(REKEYED), name, (move.old_id, move.new_id))
        now = read_bounds(self.client, [(name, number) for number in range(len(self._read_replicas(move.new)))])
        ends = {number: bounds.stable for (_, number), bounds in now.items()}
        return lambda committed: rows.translate_offsets(committed, ends)

    def _read_own_configs(self, name: str) -> dict[str, str]:
        configs = dict(self.client.read_configs([name])).get(name, 0)
        if isinstance(configs, int):
            message = f"the configs of topic {name} cannot be read"
            raise StalePlanError(message, hint="Allow DESCRIBE_CONFIGS on it, and plan again.")
        return select_own_configs(configs)

    def _read_topic_id(self, full_name: str) -> str:
        seen = self.client.read_topic(self.naming.to_physical(full_name))
        if seen is None:
            raise StalePlanError(f"topic {full_name} was deleted after it was read", hint="Plan again.")
        return seen.id

    def _read_replicas(self, full_name: str) -> tuple[tuple[int, ...], ...]:
        seen = self.client.read_topic(self.naming.to_physical(full_name))
        return () if seen is None else seen.replicas

    def _read_group_offsets(self, full_name: str) -> dict[str, dict[int, int]]:
        groups = self.groups.list_for_topic(full_name)
        if groups is not None:
            committed = (
                (
                    group.name,
                    {
                        place.partition: place.next_readable_offset
                        for place in group.offsets
                        if place.next_readable_offset is not None
                    },
                )
                for group in groups
                if not group.is_share
            )
            return {name: offsets for name, offsets in committed if offsets}
        offsets = {name: self.groups.read_committed_offsets(name, [full_name]) for name in self.groups.list_names()}
        return {
            name: {partition: offset for (_, partition), offset in sorted(mine.items())}
            for name, mine in offsets.items()
            if mine
        }

    def _write_entries(self, changes: Changes, *kinds: str) -> None:
        self.ledger.change(WRITER, lambda _entries: changes, *kinds)


ApplyActions = Callable[[Sequence[ControlAction]], Iterator[Outcome]]


def deletes_copied_topic(action: ControlAction) -> bool:
    """Return whether an action deletes a topic copied to another name."""
    return isinstance(action, Delete) and isinstance(action.before, Topic) and Reason.MOVED in action.reasons


def apply_protecting_copies(
    actions: Sequence[ControlAction],
    open_moves: Callable[[], KafkaMoves],
    do: ApplyActions,
    may_go_on: Callable[[], None],
) -> Iterator[Outcome]:
    """Apply actions, and yield one outcome each. A copied topic that got records afterwards is not deleted."""
    if not any(map(deletes_copied_topic, actions)):
        yield from do(actions)
        return
    moves = open_moves()
    rest: list[ControlAction] = []
    for action in actions:
        try:
            if deletes_copied_topic(action):
                moves.seal_copied_topic(full_name_of(action.address), _planned_topic_id(action), may_go_on)
            rest.append(action)
        except LeaseError:
            raise
        except ReconcilerError as error:
            yield FailedAction(action.id, error)
    left = {action.id: _planned_topic_id(action) for action in rest if deletes_copied_topic(action)}
    for outcome in do(rest) if rest else ():
        if (topic_id := left.get(outcome.id)) is not None:
            if isinstance(outcome, CompletedAction):
                moves.remove_copied_topic_entries([topic_id])
            elif isinstance(outcome.error, UserError):
                # Brokers rejected the deletion. After other errors, it may be in progress.
                moves.unseal_copied_topic(topic_id)
        yield outcome


def _planned_topic_id(action: ControlAction) -> str | None:
    return action.incarnation if isinstance(action, Delete) else None
