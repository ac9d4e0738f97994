"""`state list` and `state show`: what this workspace owns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.resources.address import Address, rank
from reconciler.workflow.beginning.opening import open_state
from reconciler.workflow.looking.reading import read_state

if TYPE_CHECKING:
    from reconciler.resources.inventory import Record, Recorded
    from reconciler.workflow.beginning.invocation import Invocation, Select


@dataclass(frozen=True, slots=True)
class StateListing:
    """Everything we own. `lineage` is `None` where nothing was ever applied."""

    url: str
    lineage: str | None
    serial: int
    rows: tuple[tuple[Address, Recorded], ...]


def state_list(invocation: Invocation, select: Select) -> StateListing:
    """Return what this workspace owns, in the order of plans."""
    site = open_state(invocation, select, is_reader=True)
    snapshot = read_state(site)
    if snapshot is None:
        return StateListing(site.state.url, None, 0, ())
    rows = tuple((address, snapshot.record[address]) for address in sorted(snapshot.record, key=rank))
    return StateListing(site.state.url, snapshot.lineage, snapshot.serial, rows)


def state_show(invocation: Invocation, select: Select, address: str) -> Recorded:
    """Return one resource as it was last applied.

    Raises:
        UserError: It is not ours.
    """
    snapshot = read_state(open_state(invocation, select, is_reader=True))
    record: Record = snapshot.record if snapshot else {}
    recorded = record.get(Address(address))
    if recorded is None:
        raise not_recorded(address, record)
    return recorded


def not_recorded(address: str, record: Record) -> UserError:
    """Say that an address is not ours, and which one of ours is like it."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed only to say something is wrong

    near = get_close_matches(address, sorted(record), 1)
    hint = f"Did you mean {near[0]}?" if near else "List what is with: reconciler state list"
    return UserError(f"{address} is not recorded", hint=hint)
