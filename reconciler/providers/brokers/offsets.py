"""Offsets and sizes of partitions, with one request per leader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.errors import NotFoundError, RetryableError
from reconciler.providers.brokers.faults import translate_code
from reconciler.providers.protocol import ReplicaPlacement, TopicSizes
from reconciler.records.log import Bounds
from reconciler.resources.measures import (
    NO_CUTS,
    Cuts,
    Measure,
    Measures,
    PartitionStorage,
    TieredPartition,
    TierUsage,
    TopicStorage,
)
from reconciler.resources.mirrors import Position

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.translate import TopicMetadata
    from reconciler.resources.address import Address


Place: TypeAlias = tuple[str, int]
"""Broker's name of a topic, and a partition number."""

LATEST: Final = -1
EARLIEST: Final = -2
LOCAL: Final = -4
"""Timestamp that requests the first offset on the broker's disk."""
NEWEST: Final = -3
"""Timestamp that requests the offset of the largest timestamp."""
TIERED: Final = -5
"""Timestamp that requests the last offset in remote storage; -1 means none."""
_SINCE: Final = {NEWEST: 7, LOCAL: 8, TIERED: 9}
"""First version of ListOffsets with each constant. Redpanda supports none (redpanda.md, R3)."""
_CLEANUP: Final = "cleanup.policy"
_DELETE_MS: Final = 30_000
"""Milliseconds that a leader waits for replicas."""


def read_offsets(
    client: KafkaClient,
    places: Iterable[Place],
    spec: int,
    *,
    is_stable: bool = False,
    leaders: Mapping[Place, int] | None = None,
) -> dict[Place, int]:
    """Return an offset of each partition. `spec` is a constant above or a time in ms.

    The offset -1 means that all records are older. The result is empty if brokers do not support the constant.
    `is_stable` reads only up to the last stable offset. Without `leaders`, brokers are asked for them first.
    """
    answers = _query_offsets(client, dict.fromkeys(places, spec), is_stable=is_stable, leaders=leaders)
    return {place: answer.offset for place, answer in answers.items()}


def read_newest_timestamps(client: KafkaClient, places: Iterable[Place]) -> dict[Place, int]:
    """Return latest timestamps in ms. Partitions without records or support by brokers are absent."""
    answers = _query_offsets(client, dict.fromkeys(places, NEWEST))
    return {place: answer.timestamp for place, answer in answers.items() if answer.timestamp >= 0}


def _query_offsets(
    client: KafkaClient,
    specs: Mapping[Place, int],
    *,
    is_stable: bool = False,
    leaders: Mapping[Place, int] | None = None,
) -> dict[Place, Any]:
    from kafka.structs import TopicPartition  # noqa: PLC0415 - only connecting needs it

    known = {spec for spec in {*specs.values()} if _is_supported(client, spec)}
    specs_by_partition = {TopicPartition(*place): spec for place, spec in specs.items() if spec in known}
    if not specs_by_partition:
        return {}
    query = partial(client.admin.list_partition_offsets, specs_by_partition, isolation_level=int(is_stable))
    first = None if leaders is None else partial(_query_leaders, client, specs_by_partition, int(is_stable), leaders)

    def ask() -> Mapping[Any, Any]:
        nonlocal first
        query_now, first = first or query, None  # A leader may have changed, so a second attempt asks for it.
        answers: Mapping[Any, Any] = query_now()
        return answers

    answers = client.call_admin("reading offsets", ask)
    return {(place.topic, place.partition): answer for place, answer in answers.items()}


def _query_leaders(
    client: KafkaClient, specs: Mapping[Any, int], isolation: int, leaders: Mapping[Place, int]
) -> dict[Any, Any]:
    by_leader: dict[int, dict[Any, int]] = {}
    for place, spec in specs.items():
        by_leader.setdefault(leaders[place.topic, place.partition], {})[place] = spec
    admin, answers = client.admin, {}
    for leader, led in sorted(by_leader.items()):
        request = admin._list_partition_offsets_request(led, isolation)  # noqa: SLF001 - the library asks for leaders
        answer = admin._manager.run(admin._manager.send, request, leader)  # noqa: SLF001 - no public method
        answers.update(admin._list_partition_offsets_process_response(answer))  # noqa: SLF001 - as above
    return answers


def _is_supported(client: KafkaClient, spec: int) -> bool:
    from kafka.protocol.consumer import ListOffsetsRequest  # noqa: PLC0415 - only connecting needs it

    return spec not in _SINCE or client.supports_version(ListOffsetsRequest, _SINCE[spec])


def read_bounds(
    client: KafkaClient, places: Iterable[Place], leaders: Mapping[Place, int] | None = None
) -> dict[Place, Bounds]:
    """Return start, end and stable offset of partitions, with at most four requests per leader.

    Without `leaders`, brokers are asked for them each time.
    """
    wanted = list(places)
    stable = read_offsets(client, wanted, LATEST, is_stable=True, leaders=leaders)
    ends = read_offsets(client, wanted, LATEST, leaders=leaders)
    filled = [place for place in wanted if ends[place]]
    starts = read_offsets(client, filled, EARLIEST, leaders=leaders)
    local = read_offsets(client, filled, LOCAL, leaders=leaders)
    knows_local = bool(wanted) and _is_supported(client, LOCAL)
    bounds = {}
    for place in wanted:
        # Records may be deleted between the requests, and the start must not be behind the end.
        start = min(starts.get(place, 0), stable[place])
        local_start = max(local.get(place, start), start) if knows_local else None
        bounds[place] = Bounds(start, local_start, stable[place], ends[place])
    return bounds


def delete_records_below(client: KafkaClient, topic: TopicMetadata, offsets: Mapping[int, int]) -> None:
    """Delete records below `offsets`, by partition. Idempotent."""
    from kafka.protocol.admin import DeleteRecordsRequest  # noqa: PLC0415 - only connecting needs it

    by_leader: dict[int, list[tuple[int, int]]] = {}
    for number, offset in sorted(offsets.items()):
        by_leader.setdefault(topic.leaders[number], []).append((number, offset))
    for leader, places in sorted(by_leader.items()):
        request = DeleteRecordsRequest(topics=[(topic.name, places)], timeout_ms=_DELETE_MS)
        answer = client.send(request, doing=f"deleting records of {topic.name}", node=leader)
        for partition in (answered for of_topic in answer.topics for answered in of_topic.partitions):
            if partition.error_code:
                what = f"topic {topic.name}, partition {partition.partition_index}: deleting records"
                raise translate_code(partition.error_code, "", what=what)


def trim_topic(client: KafkaClient, name: str, offsets: Mapping[int, int]) -> None:
    """Delete records below `offsets`, by partition. Raise if the topic or a partition's leader is missing."""
    topic = client.read_topic(name)
    if topic is None:
        message = f"topic {name} of cluster {client.name} does not exist: it was deleted after the plan"
        raise NotFoundError(message, hint="List the topics with: reconciler topic list")
    led = {number for number, leader in enumerate(topic.leaders) if leader >= 0}
    if not led.issuperset(offsets):
        number = min(offsets.keys() - led)
        what = f"topic {name} of cluster {client.name}: partition {number} has no leader; nothing was deleted"
        raise RetryableError(what, hint="Start its brokers, and run the command again.")
    delete_records_below(client, topic, offsets)


def is_only_compacted(client: KafkaClient, topic: str) -> bool:
    """Return whether `cleanup.policy` is only `compact`, so no old records are deleted."""
    ((_, configs),) = client.read_configs([topic], [_CLEANUP])
    policy = None if isinstance(configs, int) else configs[_CLEANUP].value
    return {word.strip() for word in (policy or "").split(",")} == {"compact"}


def read_partition_sizes(client: KafkaClient, names: Iterable[str]) -> dict[Place, int]:
    """Return the size in bytes of each partition's largest replica."""
    wanted = sorted(names)
    if not wanted:
        return {}
    topics = {
        seen.name: list(range(len(seen.replicas))) for seen in client.read_topics(wanted).values() if not seen.error
    }
    sizes: dict[Place, int] = {}
    for broker in client.call_admin("reading sizes", client.admin.describe_log_dirs, topics):
        for place, size in _parse_sizes(broker["log_dirs"]):
            sizes[place] = max(size, sizes.get(place, 0))
    return sizes


def read_replica_bytes(client: KafkaClient, partitions: Mapping[str, list[int]], brokers: list[int]) -> int:
    """Return the total size in bytes of replicas on some brokers."""
    folders = client.call_admin("reading sizes", client.admin.describe_log_dirs, partitions, brokers)
    return sum(size for broker in folders for _, size in _parse_sizes(broker["log_dirs"]))


def _parse_sizes(folders: Iterable[Mapping[str, Any]]) -> Iterable[tuple[Place, int]]:
    for folder in folders:
        for topic in folder["topics"]:
            for partition in topic["partitions"]:
                if not partition.get("is_future_key"):
                    yield (topic["name"], partition["partition_index"]), partition["partition_size"]


MEASURED_PARTITIONS: Final = 1_000
"""Maximum partitions that one `measure_topics` reads. Topics without records do not count."""
_NOTHING: Final = Measure(0, 0)


def measure_topics(client: KafkaClient, names: Mapping[Address, str], cuts: Cuts = NO_CUTS) -> Measures:
    """Measure topics up to the limit of partitions. Sizes by age are estimates.

    Topics with a leaderless partition are absent.
    """
    seen = client.read_topics(sorted(set(names.values())))
    led_topics = {
        address: topic
        for address, name in names.items()
        if (topic := seen.get(name)) is not None and not topic.error and topic.is_led
    }
    leaders = {place: topic.leaders[place[1]] for topic in led_topics.values() for place in _list_places(topic)}
    bounds = read_bounds(client, leaders, leaders)
    measures: dict[Address, Measure] = {
        address: _NOTHING
        for address, topic in led_topics.items()
        if not any(bounds[partition_place].end for partition_place in _list_places(topic))
    }
    topics = _limit_topics({address: topic for address, topic in led_topics.items() if address not in measures})
    places = [place for topic in topics.values() for place in _list_places(topic)]
    if not places:
        return measures
    sizes = read_partition_sizes(client, {name for name, _ in places})
    filled = [place for place in places if bounds[place].end > bounds[place].start]
    at = _read_cut_offsets(client, filled, {names[address]: cuts[address] for address in topics if address in cuts})
    newest = read_newest_timestamps(client, filled)
    tiered = read_offsets(
        client, [place for place in places if _get_local_start(bounds[place]) > bounds[place].start], TIERED
    )
    for address, topic in topics.items():
        topic_places = _list_places(topic)
        measures[address] = Measure(
            sum(_estimate_log_bytes(bounds[place], sizes.get(place, 0)) for place in topic_places),
            sum(_count_records(bounds[place]) for place in topic_places),
            older={
                ms: sum(
                    _estimate_older_bytes(at[place, ms], bounds[place], sizes.get(place, 0))
                    for place in topic_places
                    if (place, ms) in at
                )
                for ms in cuts.get(address, ())
            },
            tiered=tuple(
                _build_tiered_partition(place, bounds[place], sizes.get(place, 0), tiered[place])
                for place in topic_places
                if place in tiered
            ),
            positions={
                place[1]: Position(bounds[place].start, bounds[place].end)
                for place in topic_places
                if bounds[place].end
            },
            newest_ms=max((newest[place] for place in topic_places if place in newest), default=None),
        )
    return measures


def read_topic_sizes(client: KafkaClient, seen: TopicMetadata, address: Address) -> TopicSizes:
    """Return a topic's bounds, sizes and replica placement."""
    bounds, sizes = read_bounds(client, _list_places(seen)), read_partition_sizes(client, [seen.name])
    storage = _build_storage(address, _list_places(seen), bounds, sizes)
    # A topic being deleted has no leaders, so the lengths differ.
    brokers = zip(seen.leaders, seen.replicas, seen.in_sync, strict=False)
    return TopicSizes(
        {number: bound for (_, number), bound in bounds.items()},
        None,
        storage.log_bytes,
        storage,
        {number: ReplicaPlacement(*placed) for number, placed in enumerate(brokers)},
    )


def read_disk_storages(client: KafkaClient, topics: Mapping[Address, TopicMetadata]) -> Iterator[TopicStorage]:
    """Yield sizes of topics on disk, with six requests in total."""
    bounds = read_bounds(client, [place for seen in topics.values() for place in _list_places(seen)])
    sizes = read_partition_sizes(client, {seen.name for seen in topics.values()})
    for address, seen in topics.items():
        yield _build_storage(address, _list_places(seen), bounds, sizes)


def _build_storage(
    address: Address, places: Sequence[Place], bounds: Mapping[Place, Bounds], sizes: Mapping[Place, int]
) -> TopicStorage:
    partitions = tuple(
        PartitionStorage(
            partition=place[1],
            start=bounds[place].start,
            local_start=bounds[place].local_start,
            end=bounds[place].end,
            local=TierUsage(sizes.get(place, 0), 0),
            remote=None,
            log_bytes=_estimate_log_bytes(bounds[place], sizes.get(place, 0)),
            log_records=_count_records(bounds[place]),
            pending_bytes=None,
        )
        for place in places
    )
    return TopicStorage(address, None, partitions)


def _estimate_log_bytes(bounds: Bounds, size: int) -> int:
    return size + _estimate_remote_bytes(bounds, size)


def _count_records(bounds: Bounds) -> int:
    return max(0, bounds.stable - bounds.start)


def _list_places(topic: TopicMetadata) -> list[Place]:
    return [(topic.name, number) for number in range(len(topic.replicas))]


def _limit_topics(topics: Mapping[Address, TopicMetadata]) -> dict[Address, TopicMetadata]:
    left, chosen = MEASURED_PARTITIONS, {}
    for address, topic in topics.items():
        if len(topic.replicas) <= left:
            left -= len(topic.replicas)
            chosen[address] = topic
    return chosen


def _read_cut_offsets(
    client: KafkaClient, places: Iterable[Place], cuts: Mapping[str, Sequence[int]]
) -> dict[tuple[Place, int], int]:
    left = [(place, list(cuts.get(place[0], ()))) for place in places]
    offsets: dict[tuple[Place, int], int] = {}
    while specs := {place: times.pop() for place, times in left if times}:
        offsets |= {(place, specs[place]): answer.offset for place, answer in _query_offsets(client, specs).items()}
    return offsets


def _estimate_older_bytes(reached: int, bounds: Bounds, size: int) -> int:
    offsets = (bounds.end if reached < 0 else reached) - bounds.start
    # If the size is unknown, one byte shows that there are older records.
    return max(1, _estimate_bytes(bounds, size, offsets)) if offsets > 0 else 0


def _build_tiered_partition(place: Place, bounds: Bounds, size: int, uploaded: int) -> TieredPartition:
    return TieredPartition(
        place[1], bounds.start, _get_local_start(bounds), uploaded + 1, _estimate_remote_bytes(bounds, size)
    )


def _get_local_start(bounds: Bounds) -> int:
    return bounds.limit_to_local().start


def _estimate_remote_bytes(bounds: Bounds, size: int) -> int:
    first = _get_local_start(bounds)
    local = bounds.end - first
    return size * (first - bounds.start) // local if local > 0 else 0


def _estimate_bytes(bounds: Bounds, size: int, offsets: int) -> int:
    length = bounds.end - _get_local_start(bounds)
    return size * max(0, offsets) // length if length > 0 else 0
