"""What a tiering policy says of local disks, and brokers do not do once copying is off (KIP-950)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.planning.fields import CONFIGS
from reconciler.planning.finding import Finding
from reconciler.resources.kip405 import AS_TOTAL, COPY_DISABLE, TOTALS
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.review import Review
    from reconciler.resources.address import Address

_FIELD: Final = ("spec", "localRetention")


def warnings_of_copying_off(review: Review) -> Iterator[Finding]:
    """Yield once for each policy that keeps topics tiered, copies no more, and says how long records are local."""
    situation = review.situation
    topics: dict[str, list[Address]] = {}
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        origin = wanted.origins.get(CONFIGS + COPY_DISABLE)
        if origin is None or not isinstance(wanted.resource, Topic) or not situation.is_decidable(address):
            continue
        configs = wanted.resource.spec.configs
        if configs.get(COPY_DISABLE) == "true" and any(configs.get(key) == AS_TOTAL for key in TOTALS):
            topics.setdefault(origin, []).append(address)
    for address, declared in sorted(review.desired.items()):
        policy = declared.resource
        if address in topics and isinstance(policy, TieringPolicy) and policy.spec.local_retention is not None:
            first, more = topics[address][0], len(topics[address]) - 1
            named = first + (f" and {more:,} more" if more else "")
            yield Finding(
                address,
                declared.source,
                "localRetention does nothing while remoteWrite is false: brokers want -2 there once copying is off, "
                f"so local disks hold the total of {named}",
                "Remove it, and see that disks have room for that; or switch remoteWrite on.",
                ((address, _FIELD),),
            )
