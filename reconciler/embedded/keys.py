"""Names: where everything of a cluster lies below its root, and marks. No other module builds a key of its own."""

from __future__ import annotations

from typing import Final

from reconciler.objectstore.nonces import nonce
from reconciler.resources.address import split_name

CLUSTER: Final = "cluster.json"
CATALOG: Final = "catalog/head.json"
HEADS: Final = "heads/"

_SHORT: Final = 8
_LONG: Final = 16


def catalog_key(serial: int) -> str:
    """Return a fresh name for a snapshot, or for a commit too large for the head."""
    return f"catalog/{serial:012}-{nonce()[:_SHORT]}.json.gz"


def heads_prefix(topic_id: str) -> str:
    """Return what the keys of a topic's heads begin with."""
    return f"{HEADS}{topic_id}/"


def head_key(topic_id: str, partition: int) -> str:
    """Return the key of a partition's register."""
    return f"{heads_prefix(topic_id)}{partition:05}.json"


def partition_of_head(key: str) -> tuple[str, int]:
    """Return topic id and partition of a head's key."""
    _, topic_id, name = key.split("/")
    return topic_id, int(name.removesuffix(".json"))


def page_key(topic_id: str, partition: int) -> str:
    """Return a fresh name for a head's older entries."""
    return f"pages/{topic_id}/{partition:05}/{nonce()}.json"


def part_key(full_name: str, partition: int) -> str:
    """Return a fresh name for what one append writes: tiers are folders (KIP-37)."""
    namespace, name = split_name(full_name)
    folders = "".join(f"{tier}/" for tier in namespace.split(":")) if namespace else ""
    return f"topics/{folders}{name}_{partition}/{nonce()[:_LONG]}.parquet"


def fresh_mark() -> str:
    """Return a mark by which a register's writer knows its swap again; short, since 256 of them are kept."""
    return nonce()[:_LONG]
