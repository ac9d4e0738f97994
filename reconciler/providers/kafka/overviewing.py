"""Names and shapes of all that may be described: what a listing needs, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.providers.kafka.translate import is_internal
from reconciler.resources.address import address_of, tiers_of
from reconciler.resources.overviews import Overview, TopicShown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.kafka.ledger import Entries
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.providers.kafka.naming import Naming


def overview_of(cluster: str, naming: Naming, every: Mapping[str, TopicSeen], entries: Entries | None) -> Overview:
    """Return what there is beside what the platform made for itself; `entries` is the ledger, where there is one."""
    topics = {name: seen for name, seen in every.items() if not is_internal(seen)}
    mirrors: Mapping[str, TopicShown] = {}
    if entries is not None:
        from reconciler.providers.kafka.linking.observed import shown_mirrors  # noqa: PLC0415 - only who mirrors pays

        mirrors = shown_mirrors(entries, topics, cluster)
    there = {tier for name in topics for tier in tiers_of(naming.placed(name)[0])}
    shown = [
        mirrors.get(name)
        or TopicShown(address_of("topic", cluster, naming.full_name(name)), len(seen.replicas), len(seen.replicas[0]))
        for name, seen in sorted(topics.items())
        if seen.replicas
    ]
    return Overview(shown, {name: {} for name in sorted(there)})
