"""Replication factors, changed by moving replicas (6.2), throttled.

A reassignment goes on in the brokers whoever asked for it: this waits until it is done, and one that was left alone is
found by the next look, which counts the replicas there are to be. Asking for the old number again takes back what was
not done yet. What was moved at most at a time is lifted once nothing moves any more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.providers.kafka.changing.altering import alter
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.metadata import BROKER, TOPIC, own_values
from reconciler.providers.kafka.reaching.patience import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from reconciler.providers.kafka.changing.asked import Asked
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.providers.kafka.offsets import Place

# Only who connects pays for the library.
# ruff: noqa: PLC0415

TIMEOUT_MS: Final = 60_000
RATE: Final = 50 * 1024 * 1024
"""Bytes a second that a broker sends, and takes, of replicas that move, where nobody has said it."""
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_NOTHING_MOVES: Final = 85
"""What brokers answer where there is nothing to take back."""
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Moving:
    """Of a partition whose replicas move: the brokers that come, and those that go."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


def factor_of(seen: TopicSeen) -> int:
    """Return how many replicas each partition has; of several numbers the smallest, for fewer is what hurts."""
    return min(map(len, seen.replicas), default=1)


def under_way(topics: Mapping[str, TopicSeen], moving: Mapping[Place, Moving]) -> dict[str, TopicSeen]:
    """Return topics with the replicas their partitions are going to have: what was begun is not planned again."""
    found = dict(topics)
    for (name, number), each in moving.items():
        if name in found:
            replicas = list(found[name].replicas)
            replicas[number] = tuple(broker for broker in replicas[number] if broker not in each.removing)
            found[name] = replace(found[name], replicas=tuple(replicas))
    return found


def reassign(client: KafkaClient, asked: Sequence[Asked], may_go_on: Callable[[], None]) -> None:
    """Give every partition of topics as many replicas as are asked for, and return once they are there.

    Raises:
        LeaseError: By `may_go_on`; the brokers go on by themselves, and the next look counts what there is to be.
    """
    every, cluster = client.topics(), client.cluster()
    seen = {each.name: every[each.name] for each in asked}
    moving = reassigning(client)
    wanted: dict[Place, list[int] | None] = {}
    loads = Counter(broker for topic in every.values() for replicas in topic.replicas for broker in replicas)
    for each in asked:
        factor = each.replicas or 1
        if factor > len(cluster.brokers):
            message = (
                f"{each.action.address}: {factor} replicas need as many brokers, and {len(cluster.brokers)} are alive"
            )
            each.error = UserError(message, hint="Set a smaller replicationFactor, or add brokers.")
            continue
        for number, replicas in enumerate(seen[each.name].replicas):
            place = each.name, number
            wanted[place] = target(replicas, factor, moving.get(place), loads, cluster.racks)
    throttle(client, {place: replicas or [] for place, replicas in wanted.items()}, seen)
    _start(client, asked, wanted)
    _wait(client, {each.name for each in asked if each.is_open}, may_go_on)
    unthrottle(client, sorted({name for name, _ in wanted}))


def reassigning(client: KafkaClient) -> dict[Place, Moving]:
    """Return the partitions whose replicas move now, and which come and go; nothing where that may not be seen."""
    from kafka.protocol.admin import ListPartitionReassignmentsRequest

    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    answer = client.send(request, doing="looking for reassignments")
    if answer.error_code:
        return {}
    return {
        (topic.name, each.partition_index): Moving(tuple(each.adding_replicas), tuple(each.removing_replicas))
        for topic in answer.topics
        for each in topic.partitions
    }


def target(
    replicas: Sequence[int], factor: int, moving: Moving | None, loads: Counter[int], racks: Mapping[int, str | None]
) -> list[int] | None:
    """Return the brokers a partition is to have, those it has first; `None`: what is under way is taken back."""
    adding = () if moving is None else moving.adding
    if moving is not None and len(replicas) - len(adding) == factor:
        return None
    kept = [broker for broker in replicas if moving is None or broker not in moving.removing][:factor]
    while len(kept) < factor:
        used = {racks.get(broker) for broker in kept}
        free = [broker for broker in racks if broker not in kept]
        # The emptiest of another rack; of equals always the same.
        best = min(
            free, key=lambda broker: (racks[broker] in used and racks[broker] is not None, loads[broker], broker)
        )
        kept.append(best)
        loads[best] += 1
    return kept


def swept(client: KafkaClient) -> int:
    """Lift the limits that moves left which nobody waited for to the end; return of how many topics."""
    there = client.broker_configs()
    if not any((found := there.get(key)) is not None and found.value == str(RATE) for key in _RATES):
        return 0  # The limits of topics are somebody else's, if there are any.
    moving = {name for name, _ in reassigning(client)}
    names = sorted(name for name, seen in client.topics().items() if not seen.error and name not in moving)
    limits = client.configs(names, (LEADERS, FOLLOWERS))
    left = [name for name, configs in limits if not isinstance(configs, int) and own_values(configs)]
    unthrottle(client, left)
    return len(left)


def _start(client: KafkaClient, asked: Sequence[Asked], wanted: Mapping[Place, list[int] | None]) -> None:
    from kafka.protocol.admin import AlterPartitionReassignmentsRequest as Request

    topics: dict[str, list[Any]] = {}
    for (name, number), replicas in wanted.items():
        part = Request.ReassignableTopic.ReassignablePartition(partition_index=number, replicas=replicas)
        topics.setdefault(name, []).append(part)
    named = [Request.ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()]
    answer = client.send(Request(timeout_ms=TIMEOUT_MS, topics=named), doing="moving replicas")
    refused = {
        topic.name: (part.error_code, part.error_message or "")
        for topic in answer.responses
        for part in topic.partitions
        if part.error_code and part.error_code != _NOTHING_MOVES
    }
    for each in asked:
        code, message = refused.get(each.name, (answer.error_code, answer.error_message or ""))
        if code and each.error is None:
            each.error = of_code(code, message, what=str(each.action.address))


def _wait(client: KafkaClient, names: set[str], may_go_on: Callable[[], None]) -> None:
    while any(name in names for name, _ in reassigning(client)):
        may_go_on()
        pause(_LOOK_S)


def throttle(client: KafkaClient, wanted: Mapping[Place, Sequence[int]], seen: Mapping[str, TopicSeen]) -> None:
    """Let the replicas that come, and those they are copied from, take no more than the rate that is set, or ours."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for (name, number), replicas in wanted.items():
        has = seen[name].replicas[number]
        coming = [broker for broker in replicas if broker not in has]
        if coming:
            leaders.setdefault(name, []).extend(f"{number}:{broker}" for broker in has)
            followers.setdefault(name, []).extend(f"{number}:{broker}" for broker in coming)
    if not followers:
        return
    there = client.broker_configs()
    missing = {key: str(RATE) for key in _RATES if key not in there}
    if missing:
        _limit(client, [(BROKER, "", missing)])
    _limit(
        client,
        [(TOPIC, name, {LEADERS: ",".join(leaders[name]), FOLLOWERS: ",".join(followers[name])}) for name in followers],
    )


def unthrottle(client: KafkaClient, names: Iterable[str]) -> None:
    """Lift what was set for topics, and our rate once nothing moves any more; another rate is somebody's wish."""
    _limit(client, [(TOPIC, name, {LEADERS: None, FOLLOWERS: None}) for name in names])
    there = client.broker_configs()
    ours = {key: None for key in _RATES if (found := there.get(key)) is not None and found.value == str(RATE)}
    if ours and not reassigning(client):
        _limit(client, [(BROKER, "", ours)])


def _limit(client: KafkaClient, wanted: Sequence[tuple[int, str, Mapping[str, str | None]]]) -> None:
    alter(client, wanted, doing="limiting moves", what="the brokers")
