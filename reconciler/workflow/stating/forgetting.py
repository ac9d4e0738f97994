"""`state rm`: stop owning, touch nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UsageError
from reconciler.planning.actions import Forget, Reason
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
    rank,
    split_name,
    tiers_of,
)
from reconciler.workflow.stating.looking import not_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.resources.inventory import Record, Recorded
    from reconciler.workflow.stating.surgery import Surgery


def state_rm(
    surgery: Surgery,
    patterns: Sequence[str],
    *,
    recursive: bool,
    confirm: Callable[[tuple[tuple[Address, Recorded], ...]], bool],
) -> tuple[Address, ...]:
    """Forget what `patterns` name; with `recursive` also what lies in those namespaces and on those clusters.

    `confirm` is asked with all that would be forgotten. Nothing on any cluster is touched.

    Raises:
        UserError: One names nothing that is recorded, or it was not confirmed.
        UsageError: A pattern may name more than one, and `recursive` is not set.
    """
    for pattern in patterns:
        if "*" in pattern and not recursive:
            message = f"{pattern} may name more than one resource"
            raise UsageError(message, hint="Give --recursive; what goes is shown before.")
    forgotten: list[tuple[Address, ...]] = []

    def decide(record: Record) -> list[Forget]:
        forgotten.append(_named(record, patterns, recursive=recursive))
        return [Forget(address=address, reasons=(Reason.RECORD_ONLY,)) for address in forgotten[-1]]

    surgery.carry_out(decide, lambda record: confirm(tuple((address, record[address]) for address in forgotten[-1])))
    return forgotten[-1]


def _named(record: Record, patterns: Sequence[str], *, recursive: bool) -> tuple[Address, ...]:
    """Return what is forgotten, leaves before what they lean on."""
    found: set[Address] = set()
    for pattern in patterns:
        named = {address for address in record if matches(pattern, address)}
        if not named:
            raise not_recorded(pattern, record)
        below = {address for address in record if recursive and not named.isdisjoint(holders_of(address))}
        found |= named | below
    return tuple(sorted(found, key=rank, reverse=True))


def holders_of(address: Address) -> tuple[Address, ...]:
    """Return what an address lies in: its cluster and its namespaces."""
    cluster, kind = cluster_of(address), kind_of(address)
    if cluster is None or kind == "cluster":
        return ()
    name = full_name_of(address)
    tiers = tiers_of(name)[:-1] if kind == "namespace" else tiers_of(split_name(name)[0])
    spaces = () if kind == "link" else tuple(address_of("namespace", cluster, tier) for tier in tiers)
    return (cluster_address(cluster), *spaces)
