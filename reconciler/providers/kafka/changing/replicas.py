"""Replication factors, changed by moving replicas (6.2): a reassignment that resumes, and can be cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.providers.kafka.changing.asked import Asked
    from reconciler.providers.kafka.client import KafkaClient, TopicSeen


def factor_of(seen: TopicSeen) -> int:
    """Return how many replicas each partition has."""
    return len(seen.replicas[0]) if seen.replicas else 1


def reassign(client: KafkaClient, asked: Sequence[Asked]) -> None:
    """Give every partition of topics as many replicas as are asked for."""
    raise NotImplementedError
