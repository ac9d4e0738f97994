"""Topics as `topic storage` tells them: of each sort one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reconciler.errors import UserError
from reconciler.operations.clusters.topics import Storages
from reconciler.resources.address import Address
from reconciler.resources.measures import PartitionStorage, RemoteHeld, TieringShown, TierUsage, TopicStorage

_MIB: Final = 1024 * 1024
_UPLOADED_MS: Final = 1_767_225_600_000
_LOCATION: Final = "shop:eu:orders/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"


def tiering(mode: str = "full", state: str = "ENABLED", **changes: object) -> TieringShown:
    fields: dict[str, object] = {"epoch": 1, "location": _LOCATION, "url": "remote://archive/streams"}
    return TieringShown(**{"mode": mode, "state": state, "is_paused": False, "hidden": None, **fields, **changes})  # type: ignore[arg-type]  # fields by name


def orders() -> TopicStorage:
    """Return a topic whose first partition moves, whose second waits, and whose third was never written."""
    moving = PartitionStorage(
        0,
        1_000,
        81_000,
        124_500,
        TierUsage(3 * _MIB, 4),
        RemoteHeld(1_000, 120_000, TierUsage(40 * _MIB, 41), TierUsage(5 * _MIB, 2), _UPLOADED_MS, is_ahead=False),
        41 * _MIB,
        123_500,
        _MIB // 2,
    )
    waiting = PartitionStorage(
        1,
        0,
        0,
        900,
        TierUsage(_MIB, 2),
        RemoteHeld(0, 500, TierUsage(_MIB // 2, 1), TierUsage(), None, is_ahead=True),
        _MIB,
        900,
        _MIB // 4,
    )
    unwritten = PartitionStorage(2, 0, 0, 0, TierUsage(), None, 0, 0, 0)
    return TopicStorage(Address("topic/west/shop:eu:orders"), tiering(), (moving, waiting, unwritten))


def local() -> TopicStorage:
    """Return a topic that was never tiered."""
    return TopicStorage(
        Address("topic/west/plain"), None, (PartitionStorage(0, 0, 0, 12, TierUsage(2_048, 1), None, 2_048, 12, None),)
    )


def hidden() -> TopicStorage:
    """Return a tiered topic whose remote rows are not shown."""
    partition = PartitionStorage(0, 0, 500, 800, TierUsage(_MIB, 3), None, _MIB, 300, None)
    told = tiering("read_only", "DISABLED", epoch=2, hidden="kafka_enable_describe_log_dirs_remote_storage is false")
    return TopicStorage(Address("topic/west/old"), told, (partition,))


def paused() -> TopicStorage:
    """Return a tiered topic whose uploads pause."""
    partition = PartitionStorage(0, 0, 0, 800, TierUsage(_MIB, 3), None, _MIB, 800, _MIB)
    return TopicStorage(Address("topic/west/paused"), tiering(is_paused=True), (partition,))


def broken() -> TopicStorage:
    """Return a tiered topic of which one partition's manifest is gone."""
    key = "topics/67f5505a-32f3-4677-bcad-3c75a1a702a6/10/00000/manifest.json"
    gone = UserError(f"s3://archive/streams has no object {key}, which names what was uploaded", hint="Restore it.")
    whole, *others = orders().partitions
    broken = replace(whole, remote=None, problem=gone)
    return TopicStorage(Address("topic/west/broken"), tiering(), (broken, *others))


def many() -> Storages:
    """Return one of each."""
    return Storages((broken(), hidden(), paused(), local(), orders()), unmeasured=3)
