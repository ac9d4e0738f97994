"""Metrics of a Kafka cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, NotFoundError
from reconciler.lifecycles import MirrorStatus
from reconciler.providers.brokers.offsets import (
    EARLIEST,
    LATEST,
    Place,
    read_newest_timestamps,
    read_offsets,
    read_partition_sizes,
)
from reconciler.providers.brokers.translate import ClusterNaming, TopicMetadata, is_internal
from reconciler.resources.address import Address, address_of
from reconciler.resources.kafka_configs import LEDGER
from reconciler.resources.measures import (
    GROUPS_MEASURED,
    LAGS_MEASURED,
    GroupLag,
    PartitionVitals,
    TopicVitals,
    Vitals,
    choose_measured_names,
)
from reconciler.resources.mirrors import NEVER_FETCHED, ObservedMirror, Positions
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.groups import KafkaGroups
    from reconciler.providers.brokers.links.links import KafkaLinks


_READ_ATTEMPTS: Final = 2
"""Maximum attempts; one fails if a topic is deleted meanwhile."""
_ONGOING: Final = "Ongoing"


@dataclass(frozen=True, slots=True)
class _Offsets:
    starts: Mapping[Place, int]
    stable: Mapping[Place, int]
    ends: Mapping[Place, int]
    newest: Mapping[Place, int]
    sizes: Mapping[Place, int] | None
    """`None` if log directories may not be described."""


def measure_cluster(
    client: KafkaClient, naming: ClusterNaming, groups: KafkaGroups, links: Callable[[], KafkaLinks | None]
) -> Vitals:
    """Measure a cluster, with about a dozen requests per broker.

    `links` returns the cluster's links; `None` if they may not be read.
    """
    topics, chosen, offsets = _read_topics(client, naming)
    kafka_links = links() if LEDGER in topics else None
    mirrors = {} if kafka_links is None else _measure_mirrors(kafka_links, naming, chosen)
    shown = {name: seen for name, seen in topics.items() if not is_internal(seen)}
    names = groups.list_names()
    lags, hidden = _measure_group_lags(groups, names[:GROUPS_MEASURED], offsets)
    return Vitals(
        topics=len(shown),
        partitions=sum(len(seen.replicas) for seen in shown.values()),
        measured=[
            _build_topic_vitals(client.name, naming, seen, offsets, mirrors.get(name)) for name, seen in chosen.items()
        ],
        unmeasured=len(shown) - len(chosen),
        groups=len(names),
        lags=lags[:LAGS_MEASURED],
        unmeasured_groups=len(names[GROUPS_MEASURED:]) + hidden,
        open_transactions=_count_open_transactions(client),
    )


def _read_topics(
    client: KafkaClient, naming: ClusterNaming
) -> tuple[dict[str, TopicMetadata], dict[str, TopicMetadata], _Offsets]:
    for attempt in range(1, _READ_ATTEMPTS + 1):
        topics = {name: seen for name, seen in client.read_topics().items() if not seen.error}
        chosen = _select_measured_topics(topics, naming)
        places = [(name, number) for name, seen in chosen.items() for number in range(len(seen.replicas))]
        try:
            return topics, chosen, _read_offsets(client, chosen, places)
        except NotFoundError:
            if attempt == _READ_ATTEMPTS:
                raise
    raise AssertionError


def _select_measured_topics(topics: Mapping[str, TopicMetadata], naming: ClusterNaming) -> dict[str, TopicMetadata]:
    names = {naming.to_full_name(name): name for name, seen in topics.items() if seen.is_led and not is_internal(seen)}
    sizes = {full_name: len(topics[name].replicas) for full_name, name in names.items()}
    measured = choose_measured_names(sizes)
    return {names[full_name]: topics[names[full_name]] for full_name in measured}


def _read_offsets(client: KafkaClient, chosen: Mapping[str, TopicMetadata], places: Sequence[Place]) -> _Offsets:
    starts = read_offsets(client, places, EARLIEST)
    stable = read_offsets(client, places, LATEST, is_stable=True)
    ends = read_offsets(client, places, LATEST)
    newest = read_newest_timestamps(client, [place for place in places if ends[place] > starts[place]])
    sizes: Mapping[Place, int] | None = None
    with suppress(NotAuthorizedError):
        sizes = read_partition_sizes(client, chosen)
    return _Offsets(starts, stable, ends, newest, sizes)


@dataclass(frozen=True, slots=True)
class _MirrorPositions:
    seen: ObservedMirror
    positions: Positions
    newest_ms: Mapping[int, int]


def _measure_mirrors(
    links: KafkaLinks, naming: ClusterNaming, chosen: Mapping[str, TopicMetadata]
) -> dict[str, _MirrorPositions]:
    every = [mirror for mirror in links.list_mirrors() if mirror.status is not MirrorStatus.STOPPED]
    measured_mirrors = {mirror.name: mirror for mirror in every if naming.to_physical(mirror.name) in chosen}
    if not measured_mirrors:
        return {}
    positions, newest = links.read_positions_of_topics(measured_mirrors), links.read_newest_timestamps(measured_mirrors)
    return {
        naming.to_physical(name): _MirrorPositions(mirror, positions[name], newest.get(name, {}))
        for name, mirror in measured_mirrors.items()
        if name in positions
    }


def _build_topic_vitals(
    cluster: str, naming: ClusterNaming, seen: TopicMetadata, offsets: _Offsets, mirrored: _MirrorPositions | None
) -> TopicVitals:
    places = [(seen.name, number) for number in range(len(seen.replicas))]
    sizes = offsets.sizes
    source: Address | None = None
    if mirrored is not None and mirrored.seen.source_cluster:
        source = address_of("topic", mirrored.seen.source_cluster, mirrored.seen.source)
    return TopicVitals(
        address_of("topic" if mirrored is None else "mirror", cluster, naming.to_full_name(seen.name)),
        len(places),
        sum(offsets.starts[place] for place in places),
        sum(offsets.ends[place] for place in places),
        sum(max(0, offsets.stable[place] - offsets.starts[place]) for place in places),
        None if sizes is None else sum(sizes.get(place, 0) for place in places),
        source,
        partition_vitals={
            place[1]: stands for place in places if (stands := _measure_partition(place, offsets, mirrored)) is not None
        },
    )


def _measure_partition(place: Place, offsets: _Offsets, mirrored: _MirrorPositions | None) -> PartitionVitals | None:
    end, number = offsets.ends[place], place[1]
    if mirrored is None:
        return PartitionVitals(end, offsets.newest.get(place)) if end else None
    position = mirrored.positions.get(number)
    if position is None or position.fetched == NEVER_FETCHED:
        return PartitionVitals(end, copied=0 if position is None else position.end)
    return PartitionVitals(end, mirrored.newest_ms.get(number), position.end)


def _measure_group_lags(groups: KafkaGroups, names: Sequence[str], offsets: _Offsets) -> tuple[list[GroupLag], int]:
    bounds = {place: (start, offsets.stable[place]) for place, start in offsets.starts.items()}
    return groups.measure_lags(names, bounds)


def _count_open_transactions(client: KafkaClient) -> int | None:
    try:
        transactions = client.call_admin(
            "listing transactions", client.admin.list_transactions, state_filters=[_ONGOING]
        )
    except NotAuthorizedError:
        return None
    return sum(len(listed) for listed in transactions.values())
