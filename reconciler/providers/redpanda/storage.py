"""Storage of tiered topics, by the Admin API (redpanda.md, 17)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.providers.brokers.offsets import MEASURED_PARTITIONS
from reconciler.resources.cluster_properties import UPLOADS
from reconciler.resources.configs import STORAGE_MODE
from reconciler.resources.measures import (
    Measure,
    Measures,
    Mode,
    PartitionStorage,
    RemoteUsage,
    TieredPartition,
    TieringShown,
    TierUsage,
    TopicStorage,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.offsets import Place
    from reconciler.providers.redpanda.admin_facts import AdminFacts
    from reconciler.resources.address import Address
    from reconciler.resources.mirrors import Position

_WRITE, _READ = "remote.write", "remote.read"
_MODES: Final[Mapping[tuple[bool, bool], Mode]] = {
    (True, True): "full",
    (True, False): "write_only",
    (False, True): "read_only",
}
"""Mode by remote write and remote read."""
_UPLOADING: Final = frozenset({"full", "write_only"})


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Storage of one partition."""

    mode: str
    local: TierUsage
    local_start: int | None
    """`None` if no record is on disk."""
    remote: RemoteUsage | None
    log_bytes: int
    """Size in bytes. Records in both tiers count once."""

    def find_local_start(self, end: int) -> int:
        """Return the first offset on disk, or `end`."""
        return end if self.local_start is None else min(self.local_start, end)

    def estimate_pending_bytes(self, end: int) -> int:
        """Return the approximate bytes that only the disk has."""
        first = self.find_local_start(end)
        uploaded_to = first if self.remote is None else max(first, self.remote.end)
        return self.local.bytes * max(0, end - uploaded_to) // max(1, end - first)


@dataclass(frozen=True, slots=True)
class TieredStorage:
    """Reads the storage of tiered topics, with one request for each partition."""

    facts: AdminFacts
    client: KafkaClient
    now_ms: Callable[[], int]

    def add_to_measures(self, measures: Measures, names: Mapping[Address, str]) -> Measures:
        """Add the tiers of tiered topics. Topics with unreadable status are absent.

        During an outage of the Admin API, measures stay as brokers report them.
        """
        filled = [address for address, measure in measures.items() if measure.positions]
        modes = self._find_modes([names[address] for address in filled]) if self.facts.outage is None else {}
        tiered = [address for address in filled if names[address] in modes]
        statuses = self._read_statuses(
            (names[address], number) for address in tiered for number in measures[address].positions
        )
        combined = dict(measures)
        for address in tiered:
            measure = combined.pop(address)
            of_topic = {number: statuses[names[address], number] for number in measure.positions}
            known = {number: status for number, status in of_topic.items() if isinstance(status, PartitionStatus)}
            if known.keys() == of_topic.keys():
                combined[address] = _combine_measure(measure, known)
        return {address: combined[address] for address in measures if address in combined}

    def add_to_storages(self, storages: Sequence[TopicStorage], names: Mapping[Address, str]) -> Iterator[TopicStorage]:
        """Add the tiers of tiered topics, or why these are unknown."""
        modes, left = self._find_modes(list(names.values())), MEASURED_PARTITIONS
        hidden: dict[Address, str] = {}
        tiered = [storage for storage in storages if names[storage.address] in modes]
        for storage in tiered:
            left -= len(storage.partitions)
            if self.facts.outage is not None or left < 0:
                most = f"more than {MEASURED_PARTITIONS:,} partitions are not measured at once"
                hidden[storage.address] = self.facts.outage or most
        statuses = self._read_statuses(
            (names[storage.address], partition.partition)
            for storage in tiered
            if storage.address not in hidden
            for partition in storage.partitions
        )
        for storage in storages:
            name = names[storage.address]
            if name not in modes:
                yield storage
            elif storage.address in hidden:
                yield replace(storage, tiering=self._describe_tiering(modes[name], hidden[storage.address]))
            else:
                of_topic = [statuses[name, partition.partition] for partition in storage.partitions]
                reported = (status.mode for status in of_topic if isinstance(status, PartitionStatus))
                mode = next((mode for mode in reported if mode in get_args(Mode)), modes[name])
                partitions = zip(storage.partitions, of_topic, strict=True)
                yield replace(
                    storage,
                    tiering=self._describe_tiering(cast("Mode", mode)),
                    partitions=tuple(_combine_storage(brokers, status, mode) for brokers, status in partitions),
                )

    def _find_modes(self, names: Sequence[str]) -> dict[str, Mode]:
        modes: dict[str, Mode] = {}
        for name, configs in self.client.read_configs(names, [_WRITE, _READ, STORAGE_MODE]) if names else ():
            if not isinstance(configs, int):
                values = {key: state.value for key, state in configs.items()}
                is_tiered = values.get(STORAGE_MODE) == "tiered"
                switches = (values.get(_WRITE) == "true" or is_tiered, values.get(_READ) == "true" or is_tiered)
                if any(switches):
                    modes[name] = _MODES[switches]
        return modes

    def _describe_tiering(self, mode: Mode, hidden: str | None = None) -> TieringShown:
        outage = self.facts.outage
        return TieringShown(
            mode,
            "DISABLED" if mode == "disabled" else "ENABLED",
            0,
            None,
            f"remote://{self.facts.object_storage().partition('://')[2]}",
            is_paused=mode in _UPLOADING and self.facts.properties.get(UPLOADS) is False,
            hidden=hidden,
            problem=None if outage is None else RetryableError(outage, hint="See whether its nodes are alive."),
        )

    def _read_statuses(self, places: Iterable[Place]) -> dict[Place, PartitionStatus | ReconcilerError]:
        def read_status(place: Place) -> PartitionStatus | ReconcilerError:
            try:
                return _parse_status(self.facts.admin.read_storage_status(*place), self.now_ms(), place)
            except ReconcilerError as error:
                return error

        every = list(places)
        return dict(zip(every, map_in_parallel(read_status, every, name="storage"), strict=True))


def _parse_status(status: Mapping[str, Any], now_ms: int, place: Place) -> PartitionStatus:
    def read_bytes(tier: str) -> int:
        size = status.get(f"{tier}_log_size_bytes")
        if not isinstance(size, int):
            message = f"the Admin API does not report {tier}_log_size_bytes of {place[0]}, partition {place[1]}"
            raise UserError(message, hint="Check that adminUrls are those of Redpanda 25.3 or later.")
        return size

    def read_usage(tier: str) -> TierUsage:
        return TierUsage(read_bytes(tier), int(status.get(f"{tier}_log_segment_count") or 0))

    start, last = (status.get(f"cloud_log_{offset}_offset") for offset in ("start", "last"))
    since_ms, remote = status.get("ms_since_last_segment_upload"), None
    if start is not None and last is not None:
        remote = RemoteUsage(
            start,
            last + 1,
            read_usage("cloud"),
            None,
            None if since_ms is None else now_ms - since_ms,
            is_ahead=bool(status.get("metadata_update_pending")),
        )
    mode, local_start = str(status.get("cloud_storage_mode")), status.get("local_log_start_offset")
    return PartitionStatus(mode, read_usage("local"), local_start, remote, read_bytes("total"))


def _combine_measure(measure: Measure, statuses: Mapping[int, PartitionStatus]) -> Measure:
    size, positions = sum(status.log_bytes for status in statuses.values()), measure.positions
    return replace(
        measure,
        bytes=size,
        # Brokers report the size on disk, as if it were that of all offsets.
        older={ms: max(older and 1, older * size // max(1, measure.bytes)) for ms, older in measure.older.items()},
        local_only_bytes=sum(
            status.estimate_pending_bytes(positions[number].end) for number, status in statuses.items()
        ),
        tiered=tuple(_build_tiered(number, positions[number], status) for number, status in statuses.items()),
    )


def _build_tiered(number: int, position: Position, status: PartitionStatus) -> TieredPartition:
    local_start = max(position.start, status.find_local_start(position.end))
    uploaded_to = 0 if status.remote is None else status.remote.end
    return TieredPartition(
        number, position.start, local_start, uploaded_to, max(0, status.log_bytes - status.local.bytes)
    )


def _combine_storage(
    brokers: PartitionStorage, status: PartitionStatus | ReconcilerError, mode: str
) -> PartitionStorage:
    if isinstance(status, ReconcilerError):
        return replace(brokers, problem=status)
    return replace(
        brokers,
        local_start=status.find_local_start(brokers.end),
        local=status.local,
        remote=status.remote,
        log_bytes=status.log_bytes,
        pending_bytes=status.estimate_pending_bytes(brokers.end) if mode in _UPLOADING else None,
    )
