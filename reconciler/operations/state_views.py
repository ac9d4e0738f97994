"""`state list`, `show`, `history`, `diff` and `rollback-plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from reconciler.errors import UserError
from reconciler.manifests.load import Loaded
from reconciler.manifests.overlays import Values
from reconciler.manifests.positions import Problem
from reconciler.operations.plan import Planned, decide_unlocked, show_decided, write_plan
from reconciler.operations.steps.approval import to_options
from reconciler.operations.steps.effective import rules_of
from reconciler.operations.steps.invocation import Invocation, Select, load_workspace_file
from reconciler.operations.steps.recorded import read_state, warn_of_outdated
from reconciler.operations.steps.workspace import Site, Work, open_state
from reconciler.planning.actions import Change, Value
from reconciler.planning.diff.ordered import hint_for_unknown
from reconciler.resources.address import Address, rank
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Declared, Desired, Record, Recorded, Resource
from reconciler.resources.topic import Topic
from reconciler.state.journal import read_run
from reconciler.state.lockfile import read_lockfile
from reconciler.state.snapshots import Snapshot, SnapshotRow, history, read_serial, runs_of


@dataclass(frozen=True, slots=True)
class StateListing:
    """What a workspace owns. `lineage` is `None` where nothing was ever applied."""

    url: str
    lineage: str | None
    serial: int
    resources: Record


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One resource as it was last applied."""

    address: str
    recorded: Recorded


def state_list(invocation: Invocation, select: Select) -> StateListing:
    """Return what this workspace owns, in the order of plans."""
    site = open_state(invocation, select, is_reader=True)
    snapshot = read_state(site)
    if snapshot is None:
        return StateListing(site.state.url, None, 0, {})
    resources = {address: snapshot.record[address] for address in sorted(snapshot.record, key=rank)}
    return StateListing(site.state.url, snapshot.lineage, snapshot.serial, resources)


def state_show(invocation: Invocation, select: Select, address: str) -> StateEntry:
    """Return one resource as it was last applied.

    Raises:
        UserError: It is not ours.
    """
    snapshot = read_state(open_state(invocation, select, is_reader=True))
    record: Record = snapshot.record if snapshot else {}
    recorded = record.get(Address(address))
    if recorded is None:
        raise not_recorded(address, record)
    return StateEntry(address, recorded)


def not_recorded(address: str, record: Record) -> UserError:
    """Say that an address is not ours, and which one of ours is like it."""
    return UserError(f"{address} is not recorded", hint=hint_for_unknown(address, record))


# `state history`: the snapshots that are kept, and the runs that made them.


_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One snapshot of the state, and what the `run.json` of the run whose work it records says, if it still exists.

    Where a later run recorded what a killed run had done, `run` is the one that did it.
    """

    serial: int
    key: str
    bytes: int
    is_current: bool
    run: str | None
    command: str | None
    who: str | None
    started: str | None
    """When the run began."""
    git_commit: str | None
    approved_by: tuple[str, ...] = ()
    """Who is said to have approved it."""
    pull_request: str | None = None
    """Address of the pull request in which they approved."""
    settled_by: str | None = None
    """The later run that recorded what `run`, which was cut off, had done."""


@dataclass(frozen=True, slots=True)
class History:
    """The newest snapshots of the state, newest first."""

    rows: tuple[HistoryRow, ...]
    older: int = 0
    """How many older ones are kept and not shown: `--limit`."""


def state_history(invocation: Invocation, select: Select, *, limit: int | None = None) -> History:
    """Return the newest `limit` snapshots (`None`: all): one LIST, then two reads for each of them."""
    site = open_state(invocation, select, is_reader=True)
    current = read_lockfile(site.state, owner=site.owner)
    pointer = current.lockfile.state if current else None
    kept = history(site.state)
    warn_of_outdated(site, current.lockfile if current else None, kept)
    if pointer is not None and all(row.key != pointer.key for row in kept):
        site.invocation.warn(
            f"{site.state.url}/{pointer.key} is missing, and the lockfile names it: it is the current state. "
            "Repair it with: reconciler state repair"
        )
    shown = kept[:limit]
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="history") as threads:
        rows = threads.map(lambda row: _row(site, row, pointer.key if pointer else None), shown)
        return History(tuple(rows), len(kept) - len(shown))


def _row(site: Site, row: SnapshotRow, current: str | None) -> HistoryRow:
    runs = runs_of(site.state, row)
    run = None if runs is None else runs.settles or runs.run
    known = read_run(site.state, run) if run else None
    return HistoryRow(
        row.serial,
        row.key,
        row.bytes,
        is_current=row.key == current,
        run=run,
        command=known.command if known else None,
        who=known.who if known else None,
        started=known.started if known else None,
        git_commit=known.git_commit if known else None,
        approved_by=known.approved_by if known else (),
        pull_request=known.pull_request if known else None,
        settled_by=runs.run if runs is not None and runs.settles else None,
    )


# `state diff`: what two states say differently, address by address and field by field.


_NOT_FIELDS: Final = frozenset({"apiVersion", "kind", "acls"})
_NAMES: Final = frozenset({"metadata.name", "metadata.namespace", "metadata.cluster"})


@dataclass(frozen=True, slots=True)
class StateDifference:
    """One address on which two records differ."""

    address: Address
    change: Literal["created", "deleted", "changed"]
    fields: tuple[Change, ...]
    """What was applied, by field: `partitions`, `configs.retention.ms`."""
    facts: tuple[Change, ...]
    """What is known of it: `ownership`, `protect`, `incarnation`, `physicalName`."""
    origins: tuple[Change, ...]
    """Where values come from, by field; null: the resource itself."""


@dataclass(frozen=True, slots=True)
class StateDiff:
    """What two states say differently, in the order of plans."""

    before: Snapshot
    after: Snapshot
    differences: tuple[StateDifference, ...]


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


def compare_records(before: Record, after: Record) -> tuple[StateDifference, ...]:
    """Return every address on which two records differ, in the order of plans; the run alone is no difference."""
    found = (
        _compared(address, before.get(address), after.get(address))
        for address in sorted(before.keys() | after.keys(), key=rank)
    )
    return tuple(difference for difference in found if difference is not None)


def _compared(address: Address, before: Recorded | None, after: Recorded | None) -> StateDifference | None:
    # Equality first: most of two states is the same.
    is_same = before is not None and after is not None and before.resource == after.resource
    fields = () if is_same else _moved(_fields_of(before), _fields_of(after))
    facts = _moved(_facts_of(before), _facts_of(after))
    origins = _moved(_origins_of(before), _origins_of(after))
    if before is None or after is None:
        return StateDifference(address, "created" if before is None else "deleted", fields, facts, origins)
    return StateDifference(address, "changed", fields, facts, origins) if fields or facts or origins else None


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


# `state rollback-plan`: a plan back to what was applied as an earlier state, with the guards of every plan.


def rollback_plan(invocation: Invocation, select: Select, serial: int, *, out: Path | None = None) -> Planned:
    """Plan back to what was applied as state `serial`; with `out` also write the plan there, for `apply FILE`.

    Raises:
        UserError: That state is not kept, damaged, or the empty one.
    """
    started_ms = invocation.now_ms()
    work = open_rollback(invocation, select, serial, is_reader=True)
    planned = show_decided(work, decide_unlocked(work), started_ms)
    if out is not None:
        options = to_options(select, cwd=invocation.cwd, folder=work.folder)
        write_plan(invocation.cwd / out, planned.plan, options)
    return planned


def open_rollback(invocation: Invocation, select: Select, serial: int, *, is_reader: bool = False) -> Work:
    """Open a workspace in which a state says what is wanted; of the files only `reconciler.yaml` is read.

    How clusters are reached is not undone: that is as recorded now.
    """
    site = open_state(invocation, select, is_reader=is_reader)
    if serial == 0:
        raise UserError(
            "state #0 is the empty one, before anything was applied",
            hint="To remove everything: reconciler destroy. Other states: reconciler state history",
        )
    current = read_current(site)
    then, now = state_at(site, current, serial), current.record
    desired = wanted_again(then.record, now, serial)
    resources = (item.resource for item in desired.values())
    return Work(
        invocation=invocation,
        edge=site.edge,
        owner=site.owner,
        state_settings=site.state_settings,
        clusters={item.metadata.name: item for item in resources if isinstance(item, Cluster)},
        spark=site.spark,
        select=select,
        loaded=Loaded(
            workspace=load_workspace_file(invocation, select),
            desired=desired,
            folder=site.edge.folder,
            environment=select.environment,
            warnings=tuple(_kept_partitions(then.record, now, serial)),
            places={},
            values=Values({}),
        ),
        back_to=serial,
    )


def wanted_again(then: Record, now: Record, serial: int) -> Desired:
    """Return what was recorded then as what is wanted: effective as it stands, nothing of it is worked out anew."""
    return {
        address: Declared(_again(recorded, now.get(address)), f"state #{serial}", recorded.origins)
        for address, recorded in then.items()
    }


def _again(then: Recorded, now: Recorded | None) -> Resource:
    resource = then.resource
    if isinstance(resource, Cluster) and now is not None and isinstance(now.resource, Cluster):
        spec = now.resource.spec.model_copy(update={"properties": resource.spec.properties})
        return now.resource.model_copy(update={"spec": spec})
    if isinstance(resource, Topic) and now is not None:
        changed: dict[str, object] = {"partitions": _partitions(then, now)}
        if then.protect != now.protect:
            changed["protect"] = then.protect
        return resource.model_copy(update={"spec": resource.spec.model_copy(update=changed)})
    return resource


def _partitions(then: Recorded, now: Recorded) -> int | None:
    """Return the partitions of a topic that goes back: what it has by now is never taken away."""
    before = then.resource.spec.partitions if isinstance(then.resource, Topic) else None
    after = now.resource.spec.partitions if isinstance(now.resource, Topic) else None
    return before if before is None or after is None else max(before, after)


def _kept_partitions(then: Record, now: Record, serial: int) -> Iterator[Problem]:
    for address in sorted(then.keys() & now.keys()):
        before, after = then[address].resource, now[address].resource
        if not (isinstance(before, Topic) and isinstance(after, Topic)):
            continue
        if (after.spec.partitions or 0) > (before.spec.partitions or 0):
            yield Problem(
                file=f"state #{serial}",
                line=None,
                column=None,
                field="",
                message=f"{address} had {before.spec.partitions} partitions and keeps its {after.spec.partitions}",
                hint="Partitions are never removed: their records would be lost.",
            )
