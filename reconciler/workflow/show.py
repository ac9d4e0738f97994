"""`show`: desired, recorded and observed side by side; or a saved plan, without touching a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.planning.document.documents import PlanDocument
from reconciler.planning.document.reading import read_document
from reconciler.resources.address import Address, cluster_of, rank
from reconciler.resources.inventory import Declared
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.workflow.beginning.opening import Work, open_work
from reconciler.workflow.deciding.saved import read_plan_file
from reconciler.workflow.looking.asleep import sleeping_topics
from reconciler.workflow.looking.observing import observe
from reconciler.workflow.looking.remembering import remember

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from reconciler.errors import NotAuthorizedError
    from reconciler.resources.inventory import Desired, Observed, Record, Recorded
    from reconciler.resources.kinds import Resource
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.looking.asleep import Asleep
    from reconciler.workflow.looking.observing import Seen


@dataclass(frozen=True, slots=True)
class Shown:
    """One address in all three inventories."""

    address: Address
    desired: Resource | None
    recorded: Recorded | None
    observed: Observed | None
    source: str | None
    hidden: NotAuthorizedError | None = None
    """Why whoever asks may not see what is on the cluster; then `observed` is `None`, and yet it is there."""

    asleep: Asleep | None = None
    """Of a topic that is not there: that a mounting has unmounted it."""

    @property
    def is_known(self) -> bool:
        """Tell whether anybody knows it."""
        return (self.desired, self.recorded, self.observed) != (None, None, None)


def show(invocation: Invocation, select: Select, address: str | None) -> tuple[Shown, ...]:
    """Return every address that anybody knows, or the one asked for.

    Raises:
        UserError: Nobody knows that address.
    """
    work = open_work(invocation, select, is_reader=True)
    rows = _rows(work, Address(address) if address else None)
    if address is not None and not rows[0].is_known:
        raise unknown_address(address)
    return rows


def show_plan(path: Path) -> PlanDocument:
    """Return a saved plan."""
    return read_plan(path, str(path))


def read_plan(path: Path, shown: str) -> PlanDocument:
    """Return a saved plan; what is wrong with it is said with the name it was given by.

    Raises:
        UserError: It cannot be read, is no plan, of another version, or was changed.
    """
    try:
        return read_document(read_plan_file(path))
    except UserError as error:
        if shown not in error.message:
            error.message = f"{shown}: {error.message}"
        raise


def unknown_address(address: str) -> UserError:
    """Say that nobody knows an address."""
    return UserError(
        f"{address} is neither declared, nor recorded, nor on a cluster",
        hint="List what there is with: reconciler show",
    )


def declared(desired: Desired) -> Desired:
    """Return everything that is declared, the mirrors that links stand for included."""
    derived: dict[Address, Declared] = {}
    for item in desired.values():
        if isinstance(item.resource, MirrorLink):
            derived.update({mirror.address: Declared(mirror, item.source) for mirror in item.resource.mirrors()})
    return {**desired, **derived}


def sides_of(
    address: Address, desired: Desired, recorded: Record, seen: Seen, sleeping: Mapping[Address, Asleep]
) -> Shown:
    """Return one address in all three inventories."""
    item = desired.get(address)
    is_there = address in seen.inventory or address in seen.hidden
    return Shown(
        address,
        item.resource if item else None,
        recorded.get(address),
        seen.inventory.get(address),
        item.source if item else None,
        seen.hidden.get(address),
        None if is_there else sleeping.get(address),
    )


def _rows(work: Work, only: Address | None) -> tuple[Shown, ...]:
    remembered = remember(work)
    names = work.to_read if only is None else tuple(name for name in work.to_read if name == cluster_of(only))
    seen = observe(work.providers, names, remembered.record)
    recorded = remembered.settled(seen)
    desired = declared(work.loaded.desired)
    addresses = sorted({*desired, *recorded, *seen.inventory}, key=rank) if only is None else [only]
    sleeping = sleeping_topics(desired, recorded)
    return tuple(sides_of(address, desired, recorded, seen, sleeping) for address in addresses)
