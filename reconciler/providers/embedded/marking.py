"""All topics of a cluster and what their heads are listed as: what changed is found without looking at each."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.holding import is_closed
from reconciler.embedded.catalog.links import source_topic
from reconciler.embedded.keys import HEADS, partition_of_head
from reconciler.providers.base import Marked

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

_MARK_BYTES: Final = 8


def marks_in(cluster: EmbeddedCluster) -> dict[str, Marked]:
    """Return them by full name: one listing, then the catalog. What a migration has closed is not among them."""
    heads: dict[str, dict[int, str]] = {}
    for listed in cluster.store.list(HEADS):
        topic_id, number = partition_of_head(listed.key)
        mark = blake2b(listed.hint.encode(), digest_size=_MARK_BYTES).hexdigest()
        heads.setdefault(topic_id, {})[number] = mark
    catalog = cluster.catalog.read()
    return {
        name: Marked(source_topic(catalog, name), heads.get(topic.id, {}))
        for name, topic in catalog.topics.items()
        if not is_closed(topic)
    }
