"""Offsets and sizes of many partitions, one request a leader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.providers.kafka.faults import of_code
from reconciler.providers.protocol import Standing
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
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.translate import TopicSeen
    from reconciler.resources.address import Address


Place: TypeAlias = tuple[str, int]
"""Flat name of a topic, partition."""

LATEST: Final = -1
EARLIEST: Final = -2
LOCAL: Final = -4
"""First offset on a broker's own disk (3.1)."""
NEWEST: Final = -3
"""The record with the latest timestamp (3.0)."""
TIERED: Final = -5
"""Last offset that was copied to remote storage; -1 where none was."""
_CLEANUP: Final = "cleanup.policy"
_DELETE_MS: Final = 30_000
"""How long a leader may wait for the other replicas."""


def offsets_at(client: KafkaClient, places: Iterable[Place], spec: int, *, is_stable: bool = False) -> dict[Place, int]:
    """Return an offset of each partition, by one of the above or by a time in ms; -1 where none is so young.

    `is_stable`: the end is the last stable offset.
    """
    found = _found_at(client, dict.fromkeys(places, spec), is_stable=is_stable)
    return {place: answer.offset for place, answer in found.items()}


def newest_of(client: KafkaClient, places: Iterable[Place]) -> dict[Place, int]:
    """Return the latest timestamp in each partition, in ms; one without a record is absent."""
    found = _found_at(client, dict.fromkeys(places, NEWEST))
    return {place: answer.timestamp for place, answer in found.items() if answer.timestamp >= 0}


def _found_at(client: KafkaClient, specs: Mapping[Place, int], *, is_stable: bool = False) -> dict[Place, Any]:
    from kafka.structs import TopicPartition  # noqa: PLC0415 - only who connects pays

    asked = {TopicPartition(*place): spec for place, spec in specs.items()}
    if not asked:
        return {}
    isolation = "read_committed" if is_stable else "read_uncommitted"
    found = client.asked("reading offsets", client.admin.list_partition_offsets, asked, isolation_level=isolation)
    return {(place.topic, place.partition): answer for place, answer in found.items()}


def bounds_of(client: KafkaClient, places: Iterable[Place]) -> dict[Place, Bounds]:
    """Return the bounds of partitions: four requests to each leader."""
    wanted = list(places)
    starts = offsets_at(client, wanted, EARLIEST)
    stable = offsets_at(client, wanted, LATEST, is_stable=True)
    ends = offsets_at(client, wanted, LATEST)
    local = offsets_at(client, wanted, LOCAL)
    return {
        place: Bounds(starts[place], max(local[place], starts[place]), stable[place], ends[place]) for place in wanted
    }


def delete_below(client: KafkaClient, topic: TopicSeen, offsets: Mapping[int, int]) -> None:
    """Delete the records of partitions below offsets, one request a leader; what is gone already stays gone.

    Raises:
        NotAuthorizedError: The principal may not DELETE the topic.
        RetryableError: A broker does not answer, or leads a partition no more.
        UserError: The brokers refuse it.
    """
    from kafka.protocol.admin import DeleteRecordsRequest  # noqa: PLC0415 - only who connects pays

    of_leaders: dict[int, list[tuple[int, int]]] = {}
    for number, offset in sorted(offsets.items()):
        of_leaders.setdefault(topic.leaders[number], []).append((number, offset))
    for leader, places in sorted(of_leaders.items()):
        request = DeleteRecordsRequest(topics=[(topic.name, places)], timeout_ms=_DELETE_MS)
        answer = client.send(request, doing=f"deleting records of {topic.name}", node=leader)
        for found in (each for of_topic in answer.topics for each in of_topic.partitions):
            if found.error_code:
                what = f"topic {topic.name}, partition {found.partition_index}: deleting records"
                raise of_code(found.error_code, "", what=what)


def is_only_compacted(client: KafkaClient, topic: str) -> bool:
    """Tell whether a topic is compacted and nothing else: brokers delete no records of such."""
    ((_, configs),) = client.configs([topic], [_CLEANUP])
    policy = None if isinstance(configs, int) else configs[_CLEANUP].value
    return {word.strip() for word in (policy or "").split(",")} == {"compact"}


def sizes_of(client: KafkaClient, names: Iterable[str]) -> dict[Place, int]:
    """Return what each partition takes on disk, its largest replica: one request to each broker."""
    wanted = sorted(names)
    if not wanted:
        return {}
    topics = {seen.name: list(range(len(seen.replicas))) for seen in client.topics(wanted).values() if not seen.error}
    found: dict[Place, int] = {}
    for broker in client.asked("reading sizes", client.admin.describe_log_dirs, topics):
        for place, size in _sizes_in(broker["log_dirs"]):
            found[place] = max(size, found.get(place, 0))
    return found


def replica_bytes(client: KafkaClient, partitions: Mapping[str, list[int]], brokers: list[int]) -> int:
    """Return the bytes that replicas of partitions, by topic, take together on some brokers: one request to each."""
    folders = client.asked("reading sizes", client.admin.describe_log_dirs, partitions, brokers)
    return sum(size for broker in folders for _, size in _sizes_in(broker["log_dirs"]))


def _sizes_in(folders: Iterable[Mapping[str, Any]]) -> Iterable[tuple[Place, int]]:
    for folder in folders:
        for topic in folder["topics"]:
            for partition in topic["partitions"]:
                if not partition.get("is_future_key"):
                    yield (topic["name"], partition["partition_index"]), partition["partition_size"]


# What topics hold, for plans: sizes of log folders, offsets of partitions; reads no records (JOBS).


MEASURED_PARTITIONS: Final = 1_000
"""How many partitions one `measure` looks at; what is beyond stays unmeasured. Topics without offsets hold nothing."""
_NOTHING: Final = Measure(0, 0)


def measured(client: KafkaClient, names: Mapping[Address, str], cuts: Cuts = NO_CUTS) -> Measures:
    """Return what topics hold, in their order as long as partitions are left to look at; sizes by age are estimates.

    Of a topic that has a partition without a leader nobody tells it: it is absent.
    Eight requests to each leader, and one for each cut of the topic with most of them, however many topics.
    """
    seen = client.topics(sorted(set(names.values())))
    there = {
        address: topic
        for address, name in names.items()
        if (topic := seen.get(name)) is not None and not topic.error and topic.is_led
    }
    bounds = bounds_of(client, [place for topic in there.values() for place in _places(topic)])
    # What was never written to has no offsets: most of what people delete, or keep for less time, by the hundred.
    found: dict[Address, Measure] = {
        address: _NOTHING for address, topic in there.items() if not any(bounds[each].end for each in _places(topic))
    }
    topics = _bounded({address: topic for address, topic in there.items() if address not in found})
    places = [place for topic in topics.values() for place in _places(topic)]
    if not places:
        return found
    sizes = sizes_of(client, {name for name, _ in places})
    filled = [place for place in places if bounds[place].end > bounds[place].start]
    at = _offsets_at_cuts(client, filled, {names[address]: cuts[address] for address in topics if address in cuts})
    newest = newest_of(client, filled)
    tiered = offsets_at(client, [place for place in places if bounds[place].local_start > bounds[place].start], TIERED)
    for address, topic in topics.items():
        here = _places(topic)
        found[address] = Measure(
            sum(_held(bounds[place], sizes.get(place, 0)) for place in here),
            sum(_records(bounds[place]) for place in here),
            older={
                ms: sum(
                    _older(at[place, ms], bounds[place], sizes.get(place, 0)) for place in here if (place, ms) in at
                )
                for ms in cuts.get(address, ())
            },
            tiered=tuple(
                _tiered(place, bounds[place], sizes.get(place, 0), tiered[place]) for place in here if place in tiered
            ),
            positions={
                place[1]: Position(bounds[place].start, bounds[place].end) for place in here if bounds[place].end
            },
            newest_ms=max((newest[place] for place in here if place in newest), default=None),
        )
    return found


def standing_of(client: KafkaClient, seen: TopicSeen, address: Address) -> Standing:
    """Return what a topic holds. Offsets may be more than records: markers of transactions and compaction."""
    bounds, sizes = bounds_of(client, _places(seen)), sizes_of(client, [seen.name])
    storage = _storage(address, _places(seen), bounds, sizes)
    return Standing({number: each for (_, number), each in bounds.items()}, None, storage.log_bytes, storage)


def storages_of(client: KafkaClient, topics: Mapping[Address, TopicSeen]) -> Iterator[TopicStorage]:
    """Yield what topics take on the brokers' disks, in their order: six requests, however many they are."""
    bounds = bounds_of(client, [place for seen in topics.values() for place in _places(seen)])
    sizes = sizes_of(client, {seen.name for seen in topics.values()})
    for address, seen in topics.items():
        yield _storage(address, _places(seen), bounds, sizes)


def _storage(
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
            log_bytes=_held(bounds[place], sizes.get(place, 0)),
            log_records=_records(bounds[place]),
            pending_bytes=None,
        )
        for place in places
    )
    return TopicStorage(address, None, partitions)


def _held(bounds: Bounds, size: int) -> int:
    return size + _remote(bounds, size)


def _records(bounds: Bounds) -> int:
    return max(0, bounds.stable - bounds.start)


def _places(topic: TopicSeen) -> list[Place]:
    return [(topic.name, number) for number in range(len(topic.replicas))]


def _bounded(topics: Mapping[Address, TopicSeen]) -> dict[Address, TopicSeen]:
    """Return topics as long as partitions are left to look at."""
    left, found = MEASURED_PARTITIONS, {}
    for address, topic in topics.items():
        if len(topic.replicas) <= left:
            left -= len(topic.replicas)
            found[address] = topic
    return found


def _offsets_at_cuts(
    client: KafkaClient, places: Iterable[Place], cuts: Mapping[str, Sequence[int]]
) -> dict[tuple[Place, int], int]:
    """Return the first offset that is not older than each cut of its topic; -1: all of the partition is older."""
    left = [(place, list(cuts.get(place[0], ()))) for place in places]
    found: dict[tuple[Place, int], int] = {}
    while specs := {place: times.pop() for place, times in left if times}:
        found |= {(place, specs[place]): answer.offset for place, answer in _found_at(client, specs).items()}
    return found


def _older(reached: int, bounds: Bounds, size: int) -> int:
    """Return about how much of a partition lies below an offset: its bytes are spread evenly over its offsets."""
    offsets = (bounds.end if reached < 0 else reached) - bounds.start
    # What is too small to count, or has no size because whoever asks may not see it, is still something.
    return max(1, _share(bounds, size, offsets)) if offsets > 0 else 0


def _tiered(place: Place, bounds: Bounds, size: int, uploaded: int) -> TieredPartition:
    return TieredPartition(place[1], bounds.start, bounds.local_start, uploaded + 1, _remote(bounds, size))


def _remote(bounds: Bounds, size: int) -> int:
    """Return about how much lies in remote storage alone: as many bytes a record as on the disk."""
    local = bounds.end - bounds.local_start
    return size * (bounds.local_start - bounds.start) // local if local > 0 else 0


def _share(bounds: Bounds, size: int, offsets: int) -> int:
    length = bounds.end - bounds.local_start
    return size * max(0, offsets) // length if length > 0 else 0
