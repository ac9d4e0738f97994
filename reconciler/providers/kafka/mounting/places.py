"""Where topics of a Kafka cluster lie in object storage: ids of brokers in the words of locations. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Final
from uuid import NAMESPACE_OID, UUID, uuid5

_BYTES: Final = 16
_REVISION_BYTES: Final = 6
"""48 bits of a topic's id: two of ten thousand topics have the same by chance once in five million clusters."""


def cluster_uuid(cluster_id: str) -> str:
    """Return the UUID that a cluster's id stands for: 16 bytes, URL-safe base64 without padding.

    Ids of another form (of clusters that somebody hosts) get one made of their name, always the same.
    """
    try:
        found = base64.b64decode(cluster_id + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    return str(UUID(bytes=found) if len(found) == _BYTES else uuid5(NAMESPACE_OID, cluster_id))


def revision_of(topic_id: str) -> int:
    """Return what stands for the initial revision of a topic: Kafka counts none, its id is as lasting."""
    return int.from_bytes(UUID(topic_id).bytes[:_REVISION_BYTES], "big")


def location_of(full_name: str, cluster_id: str, topic_id: str) -> str:
    """Return the location of a topic that was made on its cluster, for life."""
    return f"{full_name}/{cluster_uuid(cluster_id)}/{revision_of(topic_id)}"
