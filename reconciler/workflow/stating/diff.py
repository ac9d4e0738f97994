"""`state diff`: what two states say differently, address by address and field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from reconciler.errors import UserError
from reconciler.planning.actions import Change
from reconciler.resources.address import rank
from reconciler.state.snapshots import Snapshot, read_serial
from reconciler.workflow.beginning.opening import open_state
from reconciler.workflow.looking.actingacls import rules_of
from reconciler.workflow.looking.outdated import warn_of_outdated
from reconciler.workflow.looking.reading import read_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.actions import Value
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record, Recorded
    from reconciler.resources.kinds import Resource
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Site

_NOT_FIELDS: Final = frozenset({"apiVersion", "kind", "acls"})
_NAMES: Final = frozenset({"metadata.name", "metadata.namespace", "metadata.cluster"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One address on which two records differ."""

    address: Address
    change: Literal["created", "deleted", "changed"]
    fields: tuple[Change, ...]
    """What was applied: `partitions`, `configs.retention.ms`."""
    facts: tuple[Change, ...]
    """What we know of it: `ownership`, `protect`, `incarnation`, `physicalName`."""
    origins: tuple[Change, ...]
    """Where values come from, by field; `None`: the resource itself."""


@dataclass(frozen=True, slots=True)
class StateDiff:
    """Two states side by side."""

    before: Snapshot
    after: Snapshot
    differences: tuple[Difference, ...]


def state_diff(invocation: Invocation, select: Select, serial: int, other: int | None = None) -> StateDiff:
    """Return how the state `other` (`None`: the current one) differs from the state `serial`.

    Raises:
        UserError: One of them is not kept, or damaged.
    """
    site = open_state(invocation, select, is_reader=True)
    current = read_current(site)
    warn_of_outdated(site, current.lockfile)
    before = state_at(site, current, serial)
    after = current if other is None else state_at(site, current, other)
    return StateDiff(before, after, compare_records(before.record, after.record))


def read_current(site: Site) -> Snapshot:
    """Return the state as it is. Raises UserError: nothing was ever applied."""
    current = read_state(site)
    if current is None:
        raise UserError(f"{site.state.url} holds no state yet", hint="The first apply makes one.")
    return current


def state_at(site: Site, current: Snapshot, serial: int) -> Snapshot:
    """Return the state as it was committed under a serial; 0 is the empty one, before anything was applied."""
    return Snapshot(current.lineage, 0) if serial == 0 else read_serial(site.state, serial, current=current)


def compare_records(before: Record, after: Record) -> tuple[Difference, ...]:
    """Return every address on which two records differ, in the order of plans; the run alone is no difference."""
    found = (
        _compared(address, before.get(address), after.get(address))
        for address in sorted(before.keys() | after.keys(), key=rank)
    )
    return tuple(difference for difference in found if difference is not None)


def _compared(address: Address, before: Recorded | None, after: Recorded | None) -> Difference | None:
    # Equality first: most of two states is the same.
    is_same = before is not None and after is not None and before.resource == after.resource
    fields = () if is_same else _moved(_fields_of(before), _fields_of(after))
    facts = _moved(_facts_of(before), _facts_of(after))
    origins = _moved(_origins_of(before), _origins_of(after))
    if before is None or after is None:
        return Difference(address, "created" if before is None else "deleted", fields, facts, origins)
    return Difference(address, "changed", fields, facts, origins) if fields or facts or origins else None


def _moved(before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[Change, ...]:
    if before == after:
        return ()
    return tuple(
        Change(path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def _fields_of(recorded: Recorded | None) -> dict[str, Value]:
    if recorded is None:
        return {}
    found = {path: value for path, value in _flat("", recorded.resource.to_json()) if path not in _NAMES}
    return {path.removeprefix("spec."): value for path, value in found.items()} | _rules_of(recorded.resource)


def _rules_of(resource: Resource) -> dict[str, Value]:
    return {path: tuple(operations) for path, operations in rules_of(resource).items()}


def _facts_of(recorded: Recorded | None) -> dict[str, Value]:
    if recorded is None:
        return {}
    return {
        "ownership": recorded.ownership,
        "protect": recorded.protect,
        "incarnation": recorded.incarnation,
        "physicalName": recorded.physical_name,
    }


def _origins_of(recorded: Recorded | None) -> Mapping[str, Value]:
    return dict(recorded.origins) if recorded else {}


def _flat(prefix: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for key, inside in value.items():
        if key in _NOT_FIELDS:
            continue
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(inside, Mapping):
            yield from _flat(path, inside)
        else:
            yield path, tuple(inside) if isinstance(inside, list) else inside
