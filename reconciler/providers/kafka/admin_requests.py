"""Requests that change topics, configs and replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.errors import BrokenInvariantError, ReconcilerError, RetryableError, UserError
from reconciler.planning.actions import Change, ControlAction, Create, Delete, Transition, Update
from reconciler.providers.kafka.client import ABSENT, KafkaClient, create_bindings, delete_bindings, in_rounds
from reconciler.providers.kafka.faults import TRANSIENT, of_code
from reconciler.providers.kafka.translate import BROKER, TOPIC, Naming, TopicSeen, bindings_of_topic, own_values
from reconciler.providers.models import moved
from reconciler.providers.protocol import silent
from reconciler.resources.acls import Binding, bindings_of_namespace, rule_at
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic, TopicSpec
from reconciler.runtime.retry import go_on, pause
from reconciler.runtime.text import counted

if TYPE_CHECKING:
    from reconciler.providers.kafka.offsets import Place
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Resource

# Only who connects pays for the library.
# ruff: noqa: PLC0415


PLATFORM: Final = "a Kafka cluster"
T = TypeVar("T")


@dataclass
class PendingChange:
    """One change of a topic or namespace: what is left of it to do, and its result."""

    id: str
    """Names it in outcomes: the id of its action."""
    address: Address
    name: str
    """The flat name of a topic; what every name of a namespace begins with."""
    is_namespace: bool = False
    is_creation: bool = False
    new: TopicSpec | None = None
    is_gone: bool = False
    incarnation: str | None = None
    """Of what is deleted, as it was looked at; of what is there, once it is done."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    partitions: int | None = None
    replicas: int | None = None
    binds: tuple[Binding, ...] = ()
    unbinds: tuple[Binding, ...] = ()
    changes: Sequence[Change] = ()
    error: ReconcilerError | None = None
    is_bound: bool = False
    """Whether one of its access rules was made."""

    @property
    def is_made(self) -> bool:
        """Whether it is there, or something of it, though its access rules were refused."""
        return self.is_creation and (self.incarnation is not None or self.is_bound)

    @property
    def spec(self) -> TopicSpec:
        """What a new topic is to be."""
        if self.new is None:
            message = f"{self.address} makes no topic"
            raise BrokenInvariantError(message, hint="Please report it.")
        return self.new

    @property
    def is_open(self) -> bool:
        """Whether nothing has refused it."""
        return self.error is None


def asked(action: ControlAction, naming: Naming) -> PendingChange:
    """Return what an action on a namespace or topic asks for.

    Raises:
        UserError: A Kafka cluster cannot do that.
    """
    of = partial(PendingChange, action.id, action.address)
    match action:
        case Create(after=Topic() as topic):
            name = naming.physical(topic.full_name)
            return of(name, is_creation=True, new=topic.spec, binds=tuple(bindings_of_topic(name, topic.spec.acls)))
        case Create(after=Namespace() as namespace):
            prefix = naming.prefix(namespace.metadata.name)
            rules = tuple(bindings_of_namespace(prefix, namespace.spec.acls))
            return of(prefix, is_namespace=True, is_creation=True, binds=rules)
        case Delete(before=Topic() as topic):
            name = naming.physical(topic.full_name)
            rules = tuple(bindings_of_topic(name, topic.spec.acls))
            return of(name, is_gone=True, incarnation=action.incarnation, unbinds=rules)
        case Delete(before=Namespace() as namespace):
            prefix = naming.prefix(namespace.metadata.name)
            rules = tuple(bindings_of_namespace(prefix, namespace.spec.acls))
            return of(prefix, is_namespace=True, is_gone=True, unbinds=rules)
        case Update() | Transition(after=Topic()):
            return _changed(action, action.after, naming)
        case _:
            raise cannot(action)


def _changed(action: Update | Transition, after: Resource, naming: Naming) -> PendingChange:
    if isinstance(after, Namespace):
        name, is_namespace = naming.prefix(after.metadata.name), True
    elif isinstance(after, Topic) and (action.changes or isinstance(action, Update)):
        name, is_namespace = naming.physical(after.full_name), False
    else:
        raise cannot(action)
    wanted = moved(action.address, action.changes, platform=PLATFORM)
    if wanted.keys or (is_namespace and wanted.configs):
        raise cannot(action)
    rules = [change for change in action.changes if change.path in wanted.rules]
    before = {each for rule in rules for each in _bound(name, rule.path, rule.before, is_namespace=is_namespace)}
    now = {each for rule in rules for each in _bound(name, rule.path, rule.after, is_namespace=is_namespace)}
    if rules and before == now:
        raise cannot(action)  # No binding says the difference: nothing would be sent.
    return PendingChange(
        action.id,
        action.address,
        name,
        is_namespace,
        configs=wanted.configs,
        partitions=wanted.partitions,
        replicas=wanted.replication_factor,
        binds=tuple(sorted(now - before)),
        unbinds=tuple(sorted(before - now)),
        changes=action.changes,
    )


def _bound(name: str, path: str, operations: object, *, is_namespace: bool) -> Iterator[Binding]:
    if not isinstance(operations, tuple):
        return
    rule = rule_at(path, operations)
    yield from bindings_of_namespace(name, [rule]) if is_namespace else bindings_of_topic(name, [rule])


def cannot(action: ControlAction) -> UserError:
    """Return the refusal of what no Kafka cluster does in place."""
    message = f"{action.address}: {PLATFORM} cannot {action.verb} it"
    return UserError(message, hint="Set it back in the files, and plan again.")


def open_ones(all_asked: Iterable[PendingChange]) -> list[PendingChange]:
    """Return those that nothing has refused yet."""
    return [each for each in all_asked if each.is_open]


# Configs of topics and brokers, set and reset: one request for many, a key that is `None` is reset.


_SET, _DELETE = 0, 1


def altered(
    client: KafkaClient,
    wanted: Sequence[tuple[int, str, Mapping[str, str | None]]],
    *,
    doing: str,
    is_trial: bool = False,
) -> Sequence[Any]:
    """Return the answer about each resource, by type, name and configs; as a trial nothing is done."""
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    resources = [
        (kind, name, [(key, _DELETE if value is None else _SET, value) for key, value in sorted(configs.items())])
        for kind, name, configs in wanted
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=is_trial)
    answers: Sequence[Any] = client.send(request, doing=doing).responses
    return answers


def alter(
    client: KafkaClient, wanted: Sequence[tuple[int, str, Mapping[str, str | None]]], *, doing: str, what: str
) -> None:
    """Set and reset all, where what is refused of one thing is refused as a whole; `what` names what has no name.

    Raises:
        ReconcilerError: The brokers refuse one.
    """
    for answer in altered(client, wanted, doing=doing):
        if answer.error_code:
            raise of_code(answer.error_code, answer.error_message or "", what=answer.resource_name or what)


# Requests that change something, each about many things; what they answer goes to each action it is about.


RECORDS_AT_ONCE: Final = 9_000
"""The controller takes 10,000 records in one operation, one for each topic, partition and config (6.2)."""
TIMEOUT_MS: Final = 60_000
EXISTS: Final = 36


def creation(topics: Iterable[tuple[str, int | None, int | None, Mapping[str, str]]], *, is_trial: bool = False) -> Any:
    """Return the request that makes topics: name, partitions, replicas and configs; `None`: as many as brokers give.

    As a trial nothing is made.
    """
    from kafka.protocol.admin import CreateTopicsRequest

    kind = CreateTopicsRequest.CreatableTopic
    made = [
        kind(
            name=name,
            num_partitions=partitions or -1,
            replication_factor=replicas or -1,
            assignments=[],
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in sorted(configs.items())],
        )
        for name, partitions, replicas, configs in topics
    ]
    return CreateTopicsRequest(topics=made, timeout_ms=TIMEOUT_MS, validate_only=is_trial, min_version=7)


def deletion(ids: Iterable[str]) -> Any:
    """Return the request that deletes topics by their ids: one made anew under the same name is another one."""
    from uuid import UUID

    from kafka.protocol.admin import DeleteTopicsRequest

    topics = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=UUID(each)) for each in ids]
    return DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, min_version=6)


def create(
    client: KafkaClient, asked: Sequence[PendingChange], may_go_on: Callable[[], None] = go_on
) -> list[PendingChange]:
    """Make new topics; return those that are there already, for their looks tell whose they are."""
    there: list[PendingChange] = []

    def ask(some: Sequence[PendingChange]) -> list[tuple[PendingChange, Any]]:
        request = creation(
            (each.name, each.spec.partitions, each.spec.replication_factor, each.spec.configs) for each in some
        )
        answers = {each.name: each for each in client.send(request, doing="creating topics").topics}
        return [(each, answers[each.name]) for each in some]

    for some in _by_records(asked, _records_of_new):
        for each, answer in in_rounds(some, ask, _code, may_go_on):
            if answer.error_code == EXISTS:
                there.append(each)
            elif answer.error_code:
                each.error = _refusal(each, answer)
            else:
                each.incarnation = str(answer.topic_id)
    return there


def grow(
    client: KafkaClient,
    asked: Sequence[PendingChange],
    may_go_on: Callable[[], None] = go_on,
    *,
    is_trial: bool = False,
) -> None:
    """Give topics more partitions; as a trial nothing is done, and what would be refused is."""
    from kafka.protocol.admin import CreatePartitionsRequest

    kind = CreatePartitionsRequest.CreatePartitionsTopic

    def ask(some: Sequence[PendingChange]) -> list[tuple[PendingChange, Any]]:
        topics = [kind(name=each.name, count=each.partitions, assignments=None) for each in some]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=is_trial)
        answers = {each.name: each for each in client.send(request, doing="adding partitions").results}
        return [(each, answers[each.name]) for each in some]

    for some in _by_records(asked, lambda each: each.partitions or 0):
        _refuse(in_rounds(some, ask, _code, may_go_on))


def configure(
    client: KafkaClient,
    asked: Sequence[PendingChange],
    may_go_on: Callable[[], None] = go_on,
    *,
    is_trial: bool = False,
) -> None:
    """Set and reset configs of topics, all of one topic at once; as a trial nothing is done."""

    def ask(some: Sequence[PendingChange]) -> list[tuple[PendingChange, Any]]:
        wanted = [(TOPIC, each.name, each.configs) for each in some]
        found = altered(client, wanted, doing="changing configs of topics", is_trial=is_trial)
        answers = {each.resource_name: each for each in found}
        return [(each, answers[each.name]) for each in some]

    for some in _by_records(asked, lambda each: len(each.configs)):
        _refuse(in_rounds(some, ask, _code, may_go_on))


def configure_brokers(client: KafkaClient, wanted: Mapping[str, str | None]) -> None:
    """Set and reset properties of all brokers.

    Raises:
        ReconcilerError: The brokers refuse one; nothing was changed.
    """
    alter(client, [(BROKER, "", wanted)], doing="changing properties", what=f"cluster {client.name}")


def is_reset_refused(client: KafkaClient, key: str) -> bool:
    """Return True if the brokers refuse to take back one property of all of them; nothing is changed."""
    answers = altered(client, [(BROKER, "", {key: None})], doing="trying to reset a property", is_trial=True)
    return any(answer.error_code for answer in answers)


def delete(
    client: KafkaClient, asked: Sequence[PendingChange], ids: Mapping[str, str], may_go_on: Callable[[], None] = go_on
) -> None:
    """Delete topics by their ids: one that was made anew under the same name is another one."""

    def ask(some: Sequence[PendingChange]) -> list[tuple[PendingChange, Any]]:
        request = deletion(ids[each.name] for each in some)
        answers = {str(each.topic_id): each for each in client.send(request, doing="deleting topics").responses}
        return [(each, answers[ids[each.name]]) for each in some]

    for some in _by_records(asked, lambda _each: 1):
        for each, answer in in_rounds(some, ask, _code, may_go_on):
            if answer.error_code and answer.error_code not in ABSENT:
                each.error = _refusal(each, answer)


def bind(client: KafkaClient, asked: Sequence[PendingChange]) -> None:
    """Make and take away access rules."""
    _each_binding(client, asked, create_bindings, lambda each: each.binds)
    _each_binding(client, asked, delete_bindings, lambda each: each.unbinds)


def _each_binding(
    client: KafkaClient,
    asked: Sequence[PendingChange],
    do: Callable[[KafkaClient, Sequence[Binding]], list[tuple[int, str]]],
    wanted: Callable[[PendingChange], Sequence[Binding]],
) -> None:
    for some in _by_records([each for each in asked if each.is_open and wanted(each)], lambda each: len(wanted(each))):
        answers = iter(do(client, [bound for each in some for bound in wanted(each)]))
        for each in some:
            for _ in wanted(each):
                code, message = next(answers)
                each.is_bound |= not code
                if code and each.error is None:
                    each.error = of_code(code, message, what=str(each.address))


def _records_of_new(each: PendingChange) -> int:
    return 1 + (each.spec.partitions or 1) + len(each.spec.configs)


def _by_records(asked: Iterable[T], records: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield what is asked in portions that one request may have; one too large alone is refused by the broker."""
    some: list[T] = []
    taken = 0
    for each in asked:
        count = records(each)
        if some and taken + count > RECORDS_AT_ONCE:
            yield some
            some, taken = [], 0
        some.append(each)
        taken += count
    if some:
        yield some


def _refuse(answered: Iterable[tuple[PendingChange, Any]]) -> None:
    for each, answer in answered:
        if answer.error_code:
            each.error = _refusal(each, answer)


def _code(answer: Any) -> int:
    return int(answer.error_code)


def _refusal(each: PendingChange, answer: Any) -> Any:
    return of_code(answer.error_code, answer.error_message or "", what=str(each.address))


# Replication factors, changed by moving replicas (6.2), throttled.
#
# A reassignment continues in the brokers after its process has ended. The next look counts the replicas that there will
# be. The number before cancels what was not done yet. The limits set here are removed once nothing moves any more.


RATE: Final = 50 * 1024 * 1024 + 1
"""Bytes a second that a broker sends, and takes, of replicas that move, where no rate is set. No round number, as an
operator would set: what has another value is left alone."""
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
MARK: Final = "0:2147483647"
"""An entry of a list of limited replicas that names no broker. Entries before it are an operator's, those after it were
added here."""
_NOTHING_MOVES: Final = 85
"""What brokers answer where there is nothing to take back."""
_LOOK_S: Final = 0.5
_BETWEEN_LINES_S: Final = 10.0
"""Between two lines that say what is waited for, and between two looks at how much was copied."""
_STALLED_S: Final = 120.0
"""After so long without a byte copied, or a partition done, a reassignment is not waited for any more."""
_AT_ONCE: Final = 200
"""Partitions of one topic that move at once, so that a config can list their replicas."""
_LONGEST: Final = 32_767
"""Of a config's value: brokers close the connection over one that is longer."""


@dataclass(frozen=True, slots=True)
class Moving:
    """Of a partition whose replicas move: the brokers that come, and those that go."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


STILL: Final = Moving((), ())
"""Of a partition whose replicas stay where they are."""


def factor_of(seen: TopicSeen) -> int:
    """Return how many replicas each partition has; of several numbers the smallest, for fewer is what hurts."""
    return min(map(len, seen.replicas), default=1)


def under_way(topics: Mapping[str, TopicSeen], moving: Mapping[Place, Moving]) -> dict[str, TopicSeen]:
    """Return topics with the replicas their partitions are going to have: what was begun is not planned again."""
    found = dict(topics)
    for (name, number), each in moving.items():
        # Of a topic that may not be described, or has just grown, a broker does not show the partition.
        if name in found and number < len(found[name].replicas):
            replicas = list(found[name].replicas)
            replicas[number] = tuple(broker for broker in replicas[number] if broker not in each.removing)
            found[name] = replace(found[name], replicas=tuple(replicas), is_moving=True)
    return found


def reassign(
    client: KafkaClient,
    asked: Sequence[PendingChange],
    may_go_on: Callable[[], None],
    warn: Callable[[str], None] = silent,
) -> None:
    """Give every partition of topics as many replicas as are asked for, and return once they are there.

    `warn` takes what is waited for, now and then. An action whose replicas do not move any more fails.

    Raises:
        LeaseError: Raised by `may_go_on`; the brokers continue, and the next plan counts the new replicas.
    """
    every, cluster = client.topics(), client.cluster()
    seen = {name: topic for name, topic in every.items() if not topic.error}
    moving = reassigning(client)
    wanted: dict[Place, list[int] | None] = {}
    loads = Counter(broker for topic in every.values() for replicas in topic.replicas for broker in replicas)
    for each in asked:
        if each.name not in seen:
            each.error = UserError(f"{each.address}: there is no topic {each.name}", hint="Plan again.")
            continue
        factor = each.replicas or 1
        if factor > len(cluster.brokers):
            message = f"{each.address}: {factor} replicas need as many brokers, and {len(cluster.brokers)} are alive"
            each.error = UserError(message, hint="Set a smaller replicationFactor, or add brokers.")
            continue
        for number, replicas in enumerate(seen[each.name].replicas):
            place = each.name, number
            held = Replicas(replicas, seen[each.name].in_sync[number], moving.get(place, STILL))
            if not held.will_be(factor, cluster.racks):
                wanted[place] = target(held, factor, loads, cluster.racks)
    for turn in sorted({number // _AT_ONCE for _, number in wanted} or {0}):
        names = {each.name for each in asked if each.is_open}
        some = {place: of for place, of in wanted.items() if place[0] in names and place[1] // _AT_ONCE == turn}
        may_go_on()
        throttle(client, {place: replicas or [] for place, replicas in some.items()}, seen)
        _start(client, asked, some)
        left = _wait(client, {each.name for each in asked if each.is_open}, may_go_on, warn)
        for each in asked:
            if stuck := {place: of for place, of in left.items() if place[0] == each.name}:
                message = f"{each.address}: nothing moved for {_STALLED_S:.0f} s: "
                each.error = RetryableError(message + _told(stuck, client.cluster().brokers), hint=_WAY_BACK)
    unthrottle(client, sorted({each.name for each in asked if each.is_open}))


def reassigning(client: KafkaClient) -> dict[Place, Moving]:
    """Return the partitions whose replicas move now, and which come and go; nothing where that may not be seen.

    Raises:
        RetryableError: The controller cannot say it at the moment.
    """
    from kafka.protocol.admin import ListPartitionReassignmentsRequest

    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    answer = client.send(request, doing="looking for reassignments")
    if answer.error_code in TRANSIENT:
        raise of_code(answer.error_code, answer.error_message or "", what=f"cluster {client.name}: reassignments")
    if answer.error_code:
        return {}
    return {
        (topic.name, each.partition_index): Moving(tuple(each.adding_replicas), tuple(each.removing_replicas))
        for topic in answer.topics
        for each in topic.partitions
    }


@dataclass(frozen=True, slots=True)
class Replicas:
    """The brokers that have a partition, its preferred leader first, and those of them that are in sync."""

    brokers: tuple[int, ...]
    in_sync: tuple[int, ...]
    moving: Moving = STILL

    def will_be(self, factor: int, alive: Collection[int]) -> bool:
        """Tell whether the partition has so many replicas, or gets them by a reassignment that can end."""
        adding, staying = self.moving.adding, set(self.brokers).difference(self.moving.removing)
        can_end = set(alive).issuperset(adding) and not staying.isdisjoint((*self.in_sync, *adding))
        return len(staying) == factor and (self.moving == STILL or can_end)


def target(held: Replicas, factor: int, loads: Counter[int], racks: Mapping[int, str | None]) -> list[int] | None:
    """Return the brokers a partition is to have, its preferred leader first; `None`: its reassignment is cancelled.

    Of what it has, replicas in sync stay first, then those that spread over racks, then preferred leaders. `racks` are
    the brokers that are alive.
    """
    before = set(held.brokers).difference(held.moving.adding)
    if held.moving != STILL and len(before) == factor and not before.isdisjoint(held.in_sync):
        return None
    kept: list[int] = []

    def is_near(broker: int) -> bool:
        return racks.get(broker) is not None and racks.get(broker) in {racks.get(other) for other in kept}

    left = [broker for broker in held.brokers if broker in racks or broker in before]
    while left and len(kept) < factor:
        # The order of brokers decides what is left, so that the preferred leader comes first.
        leaving = held.moving.removing
        best = min(left, key=lambda b: (b not in held.in_sync, b not in racks, b in leaving, is_near(b)))
        kept.append(best)
        left.remove(best)
    kept.sort(key=held.brokers.index)
    while len(kept) < factor:
        # The emptiest of another rack; of equals always the same.
        free = [broker for broker in racks if broker not in kept]
        best = min(free, key=lambda broker: (is_near(broker), loads[broker], broker))
        kept.append(best)
        loads[best] += 1
    return kept


def swept(client: KafkaClient) -> int:
    """Lift the limits that moves left which nobody waited for to the end; return of how many topics."""
    there = client.broker_configs()
    if not any(key in there for key in _RATES):
        return 0  # The limits of topics are another's, if there are any.
    moving = {name for name, _ in reassigning(client)}
    return unthrottle(client, sorted({name for name, seen in client.topics().items() if not seen.error} - moving))


def _start(client: KafkaClient, asked: Sequence[PendingChange], wanted: Mapping[Place, list[int] | None]) -> None:
    from kafka.protocol.admin import AlterPartitionReassignmentsRequest as Request

    refused: dict[str, tuple[int, str]] = {}
    for some in _by_records(wanted.items(), lambda _each: 1):
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
    for each in asked:
        code, message = refused.get(each.name, (0, ""))
        if code and each.error is None:
            each.error = of_code(code, message, what=str(each.address))


_WAY_BACK: Final = (
    "It ends by itself once those brokers are back; the next plan says where it stands. To cancel it, set the "
    "replicationFactor that the topic had, and apply."
)


def _wait(
    client: KafkaClient, names: set[str], may_go_on: Callable[[], None], warn: Callable[[str], None]
) -> dict[Place, Moving]:
    """Wait until no replica of topics moves; return those that do not move any more, and have not arrived."""
    began = changed = told = monotonic()
    before: object = None
    copied: int | None = 0
    while moving := {place: each for place, each in reassigning(client).items() if place[0] in names}:
        may_go_on()
        now = monotonic()
        if now - told > _BETWEEN_LINES_S:
            alive = client.cluster().brokers
            warn(f"waiting for replicas for {now - began:.0f} s: {_told(moving, alive)}")
            copied, told = _copied(client, moving, alive), now
        if copied is None or (moving, copied) != before:
            before, changed = (moving, copied), now
        if now - changed > _STALLED_S:
            return moving
        pause(_LOOK_S)
    return {}


def _told(moving: Mapping[Place, Moving], alive: Collection[int]) -> str:
    """Return which replicas are waited for, and which of their brokers do not answer."""
    places = [f"{name}-{number}" for name, number in sorted(moving)]
    coming = sorted({broker for each in moving.values() for broker in each.adding})
    to = f" to brokers {', '.join(map(str, coming))}" if coming else ""
    dead = [str(broker) for broker in coming if broker not in alive]
    gone = f"; of these {', '.join(dead)} are not alive" if dead else ""
    return f"replicas of {counted(len(places), 'partition')} move{to}, such as {places[0]}{gone}"


def _copied(client: KafkaClient, moving: Mapping[Place, Moving], alive: Collection[int]) -> int | None:
    """Return how many bytes the replicas that come have so far; `None`: it is not known."""
    from reconciler.providers.kafka.offsets import replica_bytes

    topics: dict[str, list[int]] = {}
    for name, number in moving:
        topics.setdefault(name, []).append(number)
    coming = sorted({broker for each in moving.values() for broker in each.adding if broker in alive})
    try:
        return replica_bytes(client, topics, coming) if coming else 0
    except ReconcilerError:
        return None


def throttle(client: KafkaClient, wanted: Mapping[Place, Sequence[int]], seen: Mapping[str, TopicSeen]) -> None:
    """Let the replicas that come, and those they are copied from, take no more than the rate that is set, or ours."""
    limits: dict[str, dict[str, list[str]]] = {}
    for (name, number), replicas in wanted.items():
        has = seen[name].replicas[number]
        if coming := [broker for broker in replicas if broker not in has]:
            ours = limits.setdefault(name, {LEADERS: [], FOLLOWERS: []})
            ours[LEADERS].extend(f"{number}:{broker}" for broker in has)
            ours[FOLLOWERS].extend(f"{number}:{broker}" for broker in coming)
    if not limits:
        return
    there = client.broker_configs()
    if missing := {key: str(RATE) for key in _RATES if key not in there}:
        _limit(client, [(BROKER, "", missing)])
    _limit(
        client,
        [
            (TOPIC, name, {key: value for key, ours in limits[name].items() if (value := _added(own.get(key), ours))})
            for name, own in _own_limits(client, sorted(limits))
        ],
    )


def _own_limits(client: KafkaClient, names: Sequence[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for name, configs in client.configs(names, (LEADERS, FOLLOWERS)):
        if not isinstance(configs, int):
            yield name, own_values(configs)


def _added(theirs: str | None, ours: Sequence[str]) -> str | None:
    """Return a list of limited replicas with ours behind the mark; `None`: it limits all already, or has no room."""
    entries = theirs.split(",") if theirs else []
    value = ",".join([*entries, *([] if MARK in entries else [MARK]), *ours])
    return None if theirs == "*" or len(value) > _LONGEST else value


def unthrottle(client: KafkaClient, names: Sequence[str]) -> int:
    """Remove the limits added here to topics, and our rate once nothing moves; return how many topics had some."""
    limits: list[tuple[int, str, Mapping[str, str | None]]] = []
    for name, own in _own_limits(client, names):
        ours = {key: value.split(",") for key, value in own.items() if MARK in value.split(",")}
        if ours:
            theirs = {key: ",".join(entries[: entries.index(MARK)]) or None for key, entries in ours.items()}
            limits.append((TOPIC, name, theirs))
    _limit(client, limits)
    there = client.broker_configs()
    rates = {key: None for key in _RATES if (found := there.get(key)) is not None and found.value == str(RATE)}
    if rates and not reassigning(client):
        _limit(client, [(BROKER, "", rates)])
    return len(limits)


def _limit(client: KafkaClient, wanted: Sequence[tuple[int, str, Mapping[str, str | None]]]) -> None:
    for some in _by_records([each for each in wanted if each[2]], lambda each: len(each[2])):
        alter(client, some, doing="limiting moves", what="the brokers")
