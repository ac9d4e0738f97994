"""What whoever plans may not see: an error, for it would look missing and be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.planning.finding import Finding
from reconciler.planning.situation import mirror_at
from reconciler.resources.address import Address, cluster_of, kind_of, rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.situation import Situation

_NOT_ALL: Final = "whoever acts there is not shown every topic"


def check_hidden(situation: Situation) -> Iterator[Finding]:
    """Yield every wanted or recorded address that is there and hidden, or that may be."""
    hidden = situation.given.hidden
    if hidden:
        for address in sorted({*situation.wanted, *situation.recorded}, key=rank):
            why = hidden.get(address) or hidden.get(mirror_at(address))
            if why is not None and situation.is_decidable(address):
                wanted = situation.wanted.get(address)
                yield Finding(address, wanted.source if wanted else None, f"it is hidden: {why.message}", why.hint)
    yield from _unproven(situation)


def may_be_hidden(address: Address, situation: Situation) -> bool:
    """Tell whether something of ours is not observed, on a cluster where that does not prove that it is gone.

    What was unmounted, or is there under the name it has now, is accounted for.
    """
    cluster = cluster_of(address)
    if cluster not in situation.trusted or not situation.capabilities(cluster).may_hide:
        return False
    if kind_of(address) not in {"topic", "mirror"} or address not in situation.recorded:
        return False
    name = address.partition("/")[2]
    if any(Address(f"{kind}/{name}") in situation.observed for kind in ("topic", "mirror")):
        return False
    return address not in situation.asleep and address not in situation.left_names


def _unproven(situation: Situation) -> Iterator[Finding]:
    if not any(situation.capabilities(cluster).may_hide for cluster in situation.trusted):
        return
    for address in sorted(situation.recorded, key=rank):
        if address in situation.given.hidden or not may_be_hidden(address, situation):
            continue
        if situation.is_decidable(address):
            wanted, cluster = situation.wanted.get(address), cluster_of(address) or ""
            why = situation.capabilities(cluster).lacks.get("may_hide", _NOT_ALL)
            yield Finding(
                address,
                wanted.source if wanted else None,
                f"it is recorded, and cluster {cluster} does not show it; that proves nothing: {why}. "
                "It is neither made again nor forgotten, and nothing is deleted there",
                f"Let whoever acts describe every topic of the cluster. If it is gone: reconciler state rm {address}",
            )
