"""Which sink a topic has: that of its link where it is a mirror, else that of whoever copies into it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.providers.kafka.copying.sink import CopySink, Target
from reconciler.providers.kafka.linking.links import KafkaLinks
from reconciler.providers.kafka.linking.site import make_ledger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.kafka.linking.site import Site

COPY: Final = "copy"
"""Who copies into a topic that is no mirror: restores and moves, one of them at a time."""
_BATCH_BYTES: Final = 1_000_000
_BATCH_OVERHEAD: Final = 1_024
_LZ4: Final = "lz4"
_AS_SENT: Final = {"producer": _LZ4, "uncompressed": "none"}


def sink_of(site: Site, settings: Mapping[str, Any], full_name: str) -> CopySink:
    """Return where records of a topic are copied to; `settings` are those of confluent-kafka, secrets hidden.

    Raises:
        UserError: There is no such topic.
    """
    topic, seen = site.topic(full_name)
    if seen is None:
        message = f"cluster {site.cluster} has no topic {topic}"
        raise UserError(message, hint="See which there are: reconciler topic list")
    kept = site.states().live({topic: seen.id}).mirrors.get(topic)
    more = _writing(site, topic)
    partitions = len(seen.replicas)
    if kept is None or not kept.follows:
        make_ledger(site.client)
        return CopySink(Target(settings, site.cluster, topic, seen.id, partitions, COPY, writing=more))
    owner, begins = kept.entry.link_id, kept.entry.begins or {}
    target = Target(settings, site.cluster, topic, seen.id, partitions, owner, kept.link, begins, writing=more)
    return CopySink(target, partial(_complete, site, full_name))


def _complete(site: Site, full_name: str) -> None:
    """Note the first copy once: what is noted again would be looked at by every copier."""
    links = KafkaLinks(site)
    if not links.mirror(full_name).first_copy_done:
        links.complete(full_name)


def _writing(site: Site, topic: str) -> dict[str, Any]:
    """Return how batches are sent: as the topic keeps them, so that its brokers need not pack them anew."""
    ((_, configs),) = site.client.configs([topic])
    values = {} if isinstance(configs, int) else {key: each.value for key, each in configs.items()}
    kept_as = values.get("compression.type") or "producer"
    most = int(values.get("max.message.bytes") or _BATCH_BYTES)
    return {
        "compression.type": _AS_SENT.get(kept_as, kept_as),
        "batch.size": max(1, min(_BATCH_BYTES, most - _BATCH_OVERHEAD)),
    }
