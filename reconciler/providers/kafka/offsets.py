"""Offsets of many partitions, asked for in one request a leader: where logs begin, turn local and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.records.log import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.providers.kafka.client import KafkaClient

Place: TypeAlias = tuple[str, int]
"""Flat name of a topic, partition."""

LATEST: Final = -1
EARLIEST: Final = -2
LOCAL: Final = -4
"""First offset on a broker's own disk (3.1)."""
TIERED: Final = -5
"""Last offset that was copied to remote storage; -1 where none was."""


def offsets_at(client: KafkaClient, places: Iterable[Place], spec: int, *, is_stable: bool = False) -> dict[Place, int]:
    """Return an offset of each partition, by one of the above or by a time in ms; -1 where none is so young.

    `is_stable`: the end is the last stable offset.
    """
    from kafka.structs import TopicPartition  # noqa: PLC0415 - only who connects pays

    asked = {TopicPartition(*place): spec for place in places}
    if not asked:
        return {}
    isolation = "read_committed" if is_stable else "read_uncommitted"
    found = client.asked("reading offsets", client.admin.list_partition_offsets, asked, isolation_level=isolation)
    return {(place.topic, place.partition): answer.offset for place, answer in found.items()}


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


def _sizes_in(folders: Iterable[Mapping[str, Any]]) -> Iterable[tuple[Place, int]]:
    for folder in folders:
        for topic in folder["topics"]:
            for partition in topic["partitions"]:
                if not partition.get("is_future_key"):
                    yield (topic["name"], partition["partition_index"]), partition["partition_size"]
