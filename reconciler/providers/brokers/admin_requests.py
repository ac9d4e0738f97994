"""Requests that change topics, configs and replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.errors import BrokenInvariantError, ReconcilerError, RetryableError, UserError
from reconciler.planning.actions import Change, ControlAction, Create, Delete, Transition, Update
from reconciler.providers.brokers.client import ABSENT, KafkaClient, create_bindings, delete_bindings, repeat_undone
from reconciler.providers.brokers.faults import TRANSIENT, translate_code
from reconciler.providers.brokers.translate import (
    BROKER,
    TOPIC,
    ClusterNaming,
    TopicMetadata,
    expand_topic_rules,
    select_own_configs,
)
from reconciler.providers.models import convert_changes
from reconciler.providers.protocol import ignore_line
from reconciler.resources.acls import AccessBinding, expand_namespace_rules, parse_rule
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic, TopicSpec
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.retry import pause, skip_check
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.providers.brokers.offsets import Place
    from reconciler.providers.brokers.translate import Dialect
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Resource

# ruff: noqa: PLC0415


PLATFORM: Final = "a Kafka cluster"
T = TypeVar("T")


@dataclass
class PendingChange:
    """Change of a topic or namespace, and its result."""

    id: str
    address: Address
    name: str
    """Flat name, or name prefix of a namespace."""
    is_namespace: bool = False
    is_creation: bool = False
    new_spec: TopicSpec | None = None
    is_deletion: bool = False
    incarnation: str | None = None
    """Id of the topic before a deletion, otherwise after the change."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    partitions: int | None = None
    replicas: int | None = None
    new_bindings: tuple[AccessBinding, ...] = ()
    removed_bindings: tuple[AccessBinding, ...] = ()
    changes: Sequence[Change] = ()
    error: ReconcilerError | None = None
    has_new_rules: bool = False

    @property
    def was_created(self) -> bool:
        """Whether the resource was created. Its access rules may have been rejected."""
        return self.is_creation and (self.incarnation is not None or self.has_new_rules)

    @property
    def spec(self) -> TopicSpec:
        """Spec of a new topic."""
        if self.new_spec is None:
            message = f"{self.address} makes no topic"
            raise BrokenInvariantError(message, hint="Please report it.")
        return self.new_spec

    @property
    def has_no_error(self) -> bool:
        """Whether the change has not failed."""
        return self.error is None


def to_pending_change(action: ControlAction, naming: ClusterNaming) -> PendingChange:
    """Return the change of an action. Reject changes that Kafka does not support."""
    of = partial(PendingChange, action.id, action.address)
    match action:
        case Create(after=Topic() as topic):
            name = naming.to_physical(topic.full_name)
            return of(
                name,
                is_creation=True,
                new_spec=topic.spec,
                new_bindings=tuple(expand_topic_rules(name, topic.spec.acls)),
            )
        case Create(after=Namespace() as namespace):
            prefix = naming.to_prefix(namespace.metadata.name)
            rules = tuple(expand_namespace_rules(prefix, namespace.spec.acls))
            return of(prefix, is_namespace=True, is_creation=True, new_bindings=rules)
        case Delete(before=Topic() as topic):
            name = naming.to_physical(topic.full_name)
            rules = tuple(expand_topic_rules(name, topic.spec.acls))
            return of(name, is_deletion=True, incarnation=action.incarnation, removed_bindings=rules)
        case Delete(before=Namespace() as namespace):
            prefix = naming.to_prefix(namespace.metadata.name)
            rules = tuple(expand_namespace_rules(prefix, namespace.spec.acls))
            return of(prefix, is_namespace=True, is_deletion=True, removed_bindings=rules)
        case Update() | Transition(after=Topic()):
            return _to_altering_change(action, action.after, naming)
        case _:
            raise unsupported_error(action)


def _to_altering_change(action: Update | Transition, after: Resource, naming: ClusterNaming) -> PendingChange:
    if isinstance(after, Namespace):
        name, is_namespace = naming.to_prefix(after.metadata.name), True
    elif isinstance(after, Topic) and (action.changes or isinstance(action, Update)):
        name, is_namespace = naming.to_physical(after.full_name), False
    else:
        raise unsupported_error(action)
    wanted = convert_changes(action.address, action.changes, platform=PLATFORM)
    if wanted.keys or (is_namespace and wanted.configs):
        raise unsupported_error(action)
    rules = [change for change in action.changes if change.path in wanted.rules]
    before = {
        binding for rule in rules for binding in _make_bindings(name, rule.path, rule.before, is_namespace=is_namespace)
    }
    now = {
        binding for rule in rules for binding in _make_bindings(name, rule.path, rule.after, is_namespace=is_namespace)
    }
    if rules and before == now:
        raise unsupported_error(action)
    return PendingChange(
        action.id,
        action.address,
        name,
        is_namespace,
        configs=wanted.configs,
        partitions=wanted.partitions,
        replicas=wanted.replication_factor,
        new_bindings=tuple(sorted(now - before)),
        removed_bindings=tuple(sorted(before - now)),
        changes=action.changes,
    )


def _make_bindings(name: str, path: str, operations: object, *, is_namespace: bool) -> Iterator[AccessBinding]:
    if not isinstance(operations, tuple):
        return
    rule = parse_rule(path, operations)
    yield from expand_namespace_rules(name, [rule]) if is_namespace else expand_topic_rules(name, [rule])


def unsupported_error(action: ControlAction) -> UserError:
    """Return the error for a change that Kafka cannot make in place."""
    message = f"{action.address}: {PLATFORM} cannot {action.verb} it"
    return UserError(message, hint="Set it back in the files, and plan again.")


def drop_failed(changes: Iterable[PendingChange]) -> list[PendingChange]:
    """Return the changes that have not failed."""
    return [change for change in changes if change.has_no_error]


_SET, _DELETE = 0, 1


def send_alterations(
    client: KafkaClient,
    wanted: Sequence[tuple[int, str, Mapping[str, str | None]]],
    *,
    doing: str,
    is_trial: bool = False,
) -> Sequence[Any]:
    """Alter configs of (type, name, configs) resources, and return the results.

    `None` resets; a trial changes nothing.
    """
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    to_wire = client.dialect.to_wire
    resources = [
        (kind, name, [(to_wire(key), _DELETE if value is None else _SET, value) for key, value in sorted(new.items())])
        for kind, name, new in wanted
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=is_trial)
    answers: Sequence[Any] = client.send(request, doing=doing).responses
    return answers


def alter_configs(
    client: KafkaClient, wanted: Sequence[tuple[int, str, Mapping[str, str | None]]], *, doing: str, what: str
) -> None:
    """Alter configs of (type, name, configs) resources; `None` resets. Errors name `what` for an empty name."""
    for answer in send_alterations(client, wanted, doing=doing):
        if answer.error_code:
            raise translate_code(answer.error_code, answer.error_message or "", what=answer.resource_name or what)


TIMEOUT_MS: Final = 60_000
EXISTS: Final = 36


def build_creation_request(
    dialect: Dialect, topics: Iterable[tuple[str, int | None, int | None, Mapping[str, str]]], *, is_trial: bool = False
) -> Any:
    """Return the request that creates (name, partitions, replicas, configs) topics.

    `None` means the brokers' default.
    """
    from kafka.protocol.admin import CreateTopicsRequest

    kind = CreateTopicsRequest.CreatableTopic
    made = [
        kind(
            name=name,
            num_partitions=partitions or -1,
            replication_factor=replicas or -1,
            assignments=[],
            configs=[
                kind.CreatableTopicConfig(name=dialect.to_wire(key), value=value)
                for key, value in sorted(configs.items())
            ],
        )
        for name, partitions, replicas, configs in topics
    ]
    return CreateTopicsRequest(topics=made, timeout_ms=TIMEOUT_MS, validate_only=is_trial, min_version=7)


def build_deletion_request(ids: Iterable[str]) -> Any:
    """Return the request that deletes topics by id."""
    from uuid import UUID

    from kafka.protocol.admin import DeleteTopicsRequest

    topics = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=UUID(topic_id)) for topic_id in ids]
    return DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, min_version=6)


def create_topics(
    client: KafkaClient, changes: Sequence[PendingChange], may_go_on: Callable[[], None] = skip_check
) -> list[PendingChange]:
    """Create topics; return the changes whose topics already exist."""
    existing: list[PendingChange] = []

    def ask(some: Sequence[PendingChange]) -> list[tuple[PendingChange, Any]]:
        request = build_creation_request(
            client.dialect,
            [
                (change.name, change.spec.partitions, change.spec.replication_factor, change.spec.configs)
                for change in some
            ],
        )
        answers = {change.name: change for change in client.send(request, doing="creating topics").topics}
        return [(change, answers[change.name]) for change in some]

    for some in _batch_by_record_limit(client, changes, _count_creation_records):
        for change, answer in repeat_undone(some, ask, _read_code, may_go_on):
            if answer.error_code == EXISTS:
                existing.append(change)
            elif answer.error_code:
                change.error = _to_error(change, answer)
            else:
                change.incarnation = str(answer.topic_id)
    return existing


def add_partitions(
    client: KafkaClient,
    changes: Sequence[PendingChange],
    may_go_on: Callable[[], None] = skip_check,
    *,
    is_trial: bool = False,
) -> None:
    """Add partitions. A trial only reports rejections."""
    from kafka.protocol.admin import CreatePartitionsRequest

    kind = CreatePartitionsRequest.CreatePartitionsTopic

    def ask(some: Sequence[PendingChange]) -> list[tuple[PendingChange, Any]]:
        topics = [kind(name=change.name, count=change.partitions, assignments=None) for change in some]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=is_trial)
        answers = {change.name: change for change in client.send(request, doing="adding partitions").results}
        return [(change, answers[change.name]) for change in some]

    for some in _batch_by_record_limit(client, changes, lambda change: change.partitions or 0):
        _record_refusals(repeat_undone(some, ask, _read_code, may_go_on))


def alter_topic_configs(
    client: KafkaClient,
    changes: Sequence[PendingChange],
    may_go_on: Callable[[], None] = skip_check,
    *,
    is_trial: bool = False,
) -> None:
    """Set and reset all configs of a topic in one request."""

    def ask(some: Sequence[PendingChange]) -> list[tuple[PendingChange, Any]]:
        wanted = [(TOPIC, change.name, change.configs) for change in some]
        results = send_alterations(client, wanted, doing="changing configs of topics", is_trial=is_trial)
        answers = {result.resource_name: result for result in results}
        return [(change, answers[change.name]) for change in some]

    for some in _batch_by_record_limit(client, changes, lambda change: len(change.configs)):
        _record_refusals(repeat_undone(some, ask, _read_code, may_go_on))


def alter_broker_configs(client: KafkaClient, wanted: Mapping[str, str | None]) -> None:
    """Set cluster-wide dynamic broker configs; `None` resets."""
    alter_configs(client, [(BROKER, "", wanted)], doing="changing properties", what=f"cluster {client.name}")


def is_reset_refused(client: KafkaClient, key: str) -> bool:
    """Return whether the brokers would reject a reset of a broker config."""
    answers = send_alterations(client, [(BROKER, "", {key: None})], doing="trying to reset a property", is_trial=True)
    return any(answer.error_code for answer in answers)


def delete_topics(
    client: KafkaClient,
    changes: Sequence[PendingChange],
    ids: Mapping[str, str],
    may_go_on: Callable[[], None] = skip_check,
) -> None:
    """Delete topics by id, so new topics of the same name stay."""

    def ask(some: Sequence[PendingChange]) -> list[tuple[PendingChange, Any]]:
        request = build_deletion_request(ids[change.name] for change in some)
        answers = {str(change.topic_id): change for change in client.send(request, doing="deleting topics").responses}
        return [(change, answers[ids[change.name]]) for change in some]

    for some in _batch_by_record_limit(client, changes, lambda _each: 1):
        for change, answer in repeat_undone(some, ask, _read_code, may_go_on):
            if answer.error_code and answer.error_code not in ABSENT:
                change.error = _to_error(change, answer)


def apply_access_rules(client: KafkaClient, changes: Sequence[PendingChange]) -> None:
    """Create and delete the access rules of the changes."""
    _send_bindings(client, changes, create_bindings, lambda change: change.new_bindings)
    _send_bindings(client, changes, delete_bindings, lambda change: change.removed_bindings)


def _send_bindings(
    client: KafkaClient,
    changes: Sequence[PendingChange],
    do: Callable[[KafkaClient, Sequence[AccessBinding]], list[tuple[int, str]]],
    wanted: Callable[[PendingChange], Sequence[AccessBinding]],
) -> None:
    for some in _batch_by_record_limit(
        client,
        [change for change in changes if change.has_no_error and wanted(change)],
        lambda change: len(wanted(change)),
    ):
        answers = iter(do(client, [bound for change in some for bound in wanted(change)]))
        for change in some:
            for _ in wanted(change):
                code, message = next(answers)
                change.has_new_rules |= not code
                if code and change.error is None:
                    change.error = translate_code(code, message, what=str(change.address))


def _count_creation_records(change: PendingChange) -> int:
    return 1 + (change.spec.partitions or 1) + len(change.spec.configs)


def _batch_by_record_limit(
    client: KafkaClient, items: Iterable[T], count_records: Callable[[T], int]
) -> Iterator[list[T]]:
    portion: list[T] = []
    taken, limit = 0, client.dialect.records_at_once
    for item in items:
        count = count_records(item)
        if portion and limit is not None and taken + count > limit:
            yield portion
            portion, taken = [], 0
        portion.append(item)
        taken += count
    if portion:
        yield portion


def _record_refusals(answered: Iterable[tuple[PendingChange, Any]]) -> None:
    for change, answer in answered:
        if answer.error_code:
            change.error = _to_error(change, answer)


def _read_code(answer: Any) -> int:
    return int(answer.error_code)


def _to_error(change: PendingChange, answer: Any) -> Any:
    return translate_code(answer.error_code, answer.error_message or "", what=str(change.address))


# The number of replicas changes by throttled reassignments (facts 6.2). Brokers continue them if this process dies.


THROTTLE_RATE: Final = 50 * 1024 * 1024 + 1
"""Default throttle in bytes per second. The odd number distinguishes it from an operator's throttle."""
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLE_MARK: Final = "0:2147483647"
"""Entry in the list of throttled replicas: those after it were added here. No broker has this id."""
_NOTHING_MOVES: Final = 85
"""Error code NO_REASSIGNMENT_IN_PROGRESS."""
_POLL_S: Final = 0.5
_BETWEEN_LINES_S: Final = 10.0
_STALLED_S: Final = 120.0
"""Seconds without progress after which a reassignment is no longer awaited."""
_AT_ONCE: Final = 200
"""Maximum partitions of a topic that move at once, because a config of limited length lists their replicas."""
_LONGEST: Final = 32_767
"""Maximum length of a config value; brokers close the connection for longer ones."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Brokers that a reassignment adds to or removes from a partition's replicas."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


NOT_MOVING: Final = Reassignment((), ())


def count_replicas(seen: TopicMetadata) -> int:
    """Return the smallest number of replicas among a topic's partitions."""
    return min(map(len, seen.replicas), default=1)


def apply_reassignments(
    topics: Mapping[str, TopicMetadata], moving: Mapping[Place, Reassignment]
) -> dict[str, TopicMetadata]:
    """Return topics with the replicas that they have after the reassignments."""
    planned = dict(topics)
    for (name, number), reassignment in moving.items():
        if name in planned and number < len(planned[name].replicas):
            replicas = list(planned[name].replicas)
            replicas[number] = tuple(broker for broker in replicas[number] if broker not in reassignment.removing)
            planned[name] = replace(planned[name], replicas=tuple(replicas), is_moving=True)
    return planned


def reassign_replicas(
    client: KafkaClient,
    changes: Sequence[PendingChange],
    may_go_on: Callable[[], None],
    warn: Callable[[str], None] = ignore_line,
) -> None:
    """Change the number of replicas, and wait until they have moved.

    A stalled change fails. If `may_go_on` raises, brokers continue the reassignment.
    """
    every, cluster = client.read_topics(), client.describe_cluster()
    seen = {name: topic for name, topic in every.items() if not topic.error}
    moving = read_reassignments(client)
    wanted: dict[Place, list[int] | None] = {}
    loads = Counter(broker for topic in every.values() for replicas in topic.replicas for broker in replicas)
    for change in changes:
        if change.name not in seen:
            change.error = UserError(f"{change.address}: there is no topic {change.name}", hint="Plan again.")
            continue
        factor = change.replicas or 1
        if factor > len(cluster.brokers):
            message = f"{change.address}: {factor} replicas need as many brokers, and {len(cluster.brokers)} are alive"
            change.error = UserError(message, hint="Set a smaller replicationFactor, or add brokers.")
            continue
        for number, replicas in enumerate(seen[change.name].replicas):
            place = change.name, number
            held = Replicas(replicas, seen[change.name].in_sync[number], moving.get(place, NOT_MOVING))
            if not held.will_have_replicas(factor, cluster.racks):
                wanted[place] = choose_brokers(held, factor, loads, cluster.racks)
    for turn in sorted({number // _AT_ONCE for _, number in wanted} or {0}):
        names = {change.name for change in changes if change.has_no_error}
        some = {place: of for place, of in wanted.items() if place[0] in names and place[1] // _AT_ONCE == turn}
        may_go_on()
        throttle_moves(client, {place: replicas or [] for place, replicas in some.items()}, seen)
        _start_moves(client, changes, some)
        left = _await_moves(client, {change.name for change in changes if change.has_no_error}, may_go_on, warn)
        for change in changes:
            if stuck := {place: of for place, of in left.items() if place[0] == change.name}:
                message = f"{change.address}: nothing moved for {_STALLED_S:.0f} s: "
                change.error = RetryableError(
                    message + _describe_moves(stuck, client.describe_cluster().brokers), hint=_WAY_BACK
                )
    remove_throttles(client, sorted({change.name for change in changes if change.has_no_error}))


def read_reassignments(client: KafkaClient) -> dict[Place, Reassignment]:
    """Return ongoing reassignments by partition; empty if they may not be listed."""
    from kafka.protocol.admin import ListPartitionReassignmentsRequest

    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    answer = client.send(request, doing="looking for reassignments")
    if answer.error_code in TRANSIENT:
        raise translate_code(
            answer.error_code, answer.error_message or "", what=f"cluster {client.name}: reassignments"
        )
    if answer.error_code:
        return {}
    return {
        (topic.name, partition.partition_index): Reassignment(
            tuple(partition.adding_replicas), tuple(partition.removing_replicas)
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


@dataclass(frozen=True, slots=True)
class Replicas:
    """Brokers of a partition, the preferred leader first, and its in-sync replicas."""

    brokers: tuple[int, ...]
    in_sync: tuple[int, ...]
    moving: Reassignment = NOT_MOVING

    def will_have_replicas(self, factor: int, alive: Collection[int]) -> bool:
        """Return whether the partition has `factor` replicas, or its reassignment can lead to them."""
        adding, staying = self.moving.adding, set(self.brokers).difference(self.moving.removing)
        can_end = set(alive).issuperset(adding) and not staying.isdisjoint((*self.in_sync, *adding))
        return len(staying) == factor and (self.moving == NOT_MOVING or can_end)


def choose_brokers(
    held: Replicas, factor: int, loads: Counter[int], racks: Mapping[int, str | None]
) -> list[int] | None:
    """Return the new replicas of a partition, preferred leader first; `None` cancels its reassignment.

    Prefers in-sync replicas, then a spread over racks, then few replicas by `loads`. `racks` has the live brokers.
    """
    before = set(held.brokers).difference(held.moving.adding)
    if held.moving != NOT_MOVING and len(before) == factor and not before.isdisjoint(held.in_sync):
        return None
    chosen: list[int] = []

    def is_near(broker: int) -> bool:
        return racks.get(broker) is not None and racks.get(broker) in {racks.get(other) for other in chosen}

    left = [broker for broker in held.brokers if broker in racks or broker in before]
    while left and len(chosen) < factor:
        # Of equal brokers, the one first in the list of replicas stays.
        leaving = held.moving.removing
        best = min(left, key=lambda b: (b not in held.in_sync, b not in racks, b in leaving, is_near(b)))
        chosen.append(best)
        left.remove(best)
    chosen.sort(key=held.brokers.index)
    while len(chosen) < factor:
        free = [broker for broker in racks if broker not in chosen]
        best = min(free, key=lambda broker: (is_near(broker), loads[broker], broker))
        chosen.append(best)
        loads[best] += 1
    return chosen


def sweep_throttles(client: KafkaClient) -> int:
    """Remove throttles that a killed process left on topics; return the number of topics."""
    configs = client.read_dynamic_configs()
    if not any(key in configs for key in _RATES):
        return 0  # Without a cluster-wide rate, the throttles are not reconciler's.
    moving = {name for name, _ in read_reassignments(client)}
    return remove_throttles(
        client, sorted({name for name, seen in client.read_topics().items() if not seen.error} - moving)
    )


def _start_moves(
    client: KafkaClient, changes: Sequence[PendingChange], wanted: Mapping[Place, list[int] | None]
) -> None:
    from kafka.protocol.admin import AlterPartitionReassignmentsRequest as Request

    refused: dict[str, tuple[int, str]] = {}
    for some in _batch_by_record_limit(client, wanted.items(), lambda _each: 1):
        topics: dict[str, list[Any]] = {}
        for (name, number), replicas in some:
            part = Request.ReassignableTopic.ReassignablePartition(partition_index=number, replicas=replicas)
            topics.setdefault(name, []).append(part)
        named = [Request.ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()]
        answer = client.send(Request(timeout_ms=TIMEOUT_MS, topics=named), doing="moving replicas")
        if answer.error_code:
            refused |= dict.fromkeys(topics, (answer.error_code, answer.error_message or ""))
        refused |= {
            topic.name: (part.error_code, part.error_message or "")
            for topic in answer.responses
            for part in topic.partitions
            if part.error_code and part.error_code != _NOTHING_MOVES
        }
    for change in changes:
        code, message = refused.get(change.name, (0, ""))
        if code and change.error is None:
            change.error = translate_code(code, message, what=str(change.address))


_WAY_BACK: Final = (
    "It ends by itself once those brokers are back; the next plan shows its progress. To cancel it, set the "
    "replicationFactor that the topic had, and apply."
)


def _await_moves(
    client: KafkaClient, names: set[str], may_go_on: Callable[[], None], warn: Callable[[str], None]
) -> dict[Place, Reassignment]:
    began = changed = warned_at = monotonic()
    before: object = None
    copied: int | None = 0
    while moving := {
        place: reassignment for place, reassignment in read_reassignments(client).items() if place[0] in names
    }:
        may_go_on()
        now = monotonic()
        if now - warned_at > _BETWEEN_LINES_S:
            alive = client.describe_cluster().brokers
            warn(f"waiting for replicas for {now - began:.0f} s: {_describe_moves(moving, alive)}")
            copied, warned_at = _count_copied_bytes(client, moving, alive), now
        if copied is None or (moving, copied) != before:
            before, changed = (moving, copied), now
        if now - changed > _STALLED_S:
            return moving
        pause(_POLL_S)
    return {}


def _describe_moves(moving: Mapping[Place, Reassignment], alive: Collection[int]) -> str:
    places = [f"{name}-{number}" for name, number in sorted(moving)]
    coming = sorted({broker for reassignment in moving.values() for broker in reassignment.adding})
    to = f" to brokers {', '.join(map(str, coming))}" if coming else ""
    dead = [str(broker) for broker in coming if broker not in alive]
    gone = f"; of these {', '.join(dead)} are not alive" if dead else ""
    return f"replicas of {pluralize(len(places), 'partition')} move{to}, such as {places[0]}{gone}"


def _count_copied_bytes(
    client: KafkaClient, moving: Mapping[Place, Reassignment], alive: Collection[int]
) -> int | None:
    from reconciler.providers.brokers.offsets import read_replica_bytes

    topics: dict[str, list[int]] = {}
    for name, number in moving:
        topics.setdefault(name, []).append(number)
    coming = sorted({broker for reassignment in moving.values() for broker in reassignment.adding if broker in alive})
    try:
        return read_replica_bytes(client, topics, coming) if coming else 0
    except ReconcilerError:
        return None


def throttle_moves(
    client: KafkaClient, wanted: Mapping[Place, Sequence[int]], seen: Mapping[str, TopicMetadata]
) -> None:
    """Throttle moving replicas and their sources to the configured rate, by default `THROTTLE_RATE`."""
    limits: dict[str, dict[str, list[str]]] = {}
    for (name, number), replicas in wanted.items():
        has = seen[name].replicas[number]
        if coming := [broker for broker in replicas if broker not in has]:
            ours = limits.setdefault(name, {LEADERS: [], FOLLOWERS: []})
            ours[LEADERS].extend(f"{number}:{broker}" for broker in has)
            ours[FOLLOWERS].extend(f"{number}:{broker}" for broker in coming)
    if not limits:
        return
    configs = client.read_dynamic_configs()
    if missing := {key: str(THROTTLE_RATE) for key in _RATES if key not in configs}:
        _alter_throttles(client, [(BROKER, "", missing)])
    _alter_throttles(
        client,
        [
            (
                TOPIC,
                name,
                {key: value for key, ours in limits[name].items() if (value := _add_throttled(own.get(key), ours))},
            )
            for name, own in _read_replication_throttles(client, sorted(limits))
        ],
    )


def _read_replication_throttles(client: KafkaClient, names: Sequence[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for name, configs in client.read_configs(names, (LEADERS, FOLLOWERS)):
        if not isinstance(configs, int):
            yield name, select_own_configs(configs)


def _add_throttled(theirs: str | None, ours: Sequence[str]) -> str | None:
    """Append replicas to the throttled ones `theirs`; return `None` if all are throttled or the list is too long."""
    entries = theirs.split(",") if theirs else []
    value = ",".join([*entries, *([] if THROTTLE_MARK in entries else [THROTTLE_MARK]), *ours])
    return None if theirs == "*" or len(value) > _LONGEST else value


def remove_throttles(client: KafkaClient, names: Sequence[str]) -> int:
    """Remove the throttles set here from topics; return the number of topics.

    Removes the rate too if no reassignment is left.
    """
    limits: list[tuple[int, str, Mapping[str, str | None]]] = []
    for name, own in _read_replication_throttles(client, names):
        ours = {key: value.split(",") for key, value in own.items() if THROTTLE_MARK in value.split(",")}
        if ours:
            theirs = {key: ",".join(entries[: entries.index(THROTTLE_MARK)]) or None for key, entries in ours.items()}
            limits.append((TOPIC, name, theirs))
    _alter_throttles(client, limits)
    configs = client.read_dynamic_configs()
    rates = {
        key: None for key in _RATES if (config := configs.get(key)) is not None and config.value == str(THROTTLE_RATE)
    }
    if rates and not read_reassignments(client):
        _alter_throttles(client, [(BROKER, "", rates)])
    return len(limits)


def _alter_throttles(client: KafkaClient, wanted: Sequence[tuple[int, str, Mapping[str, str | None]]]) -> None:
    for some in _batch_by_record_limit(client, [item for item in wanted if item[2]], lambda item: len(item[2])):
        alter_configs(client, some, doing="limiting moves", what="the brokers")
