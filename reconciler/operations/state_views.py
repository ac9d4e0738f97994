"""`state list`, `show`, `history`, `diff` and `rollback-plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal

from reconciler.errors import UserError
from reconciler.manifests.load import LoadedWorkspace
from reconciler.manifests.overlays import Values
from reconciler.manifests.positions import Problem
from reconciler.operations.plan import PlanResult, build_plan_result, plan_unlocked, write_plan
from reconciler.operations.steps.approval import serialize_select
from reconciler.operations.steps.effective import list_own_rules
from reconciler.operations.steps.invocation import Invocation, Select, load_workspace_file
from reconciler.operations.steps.recorded import read_state, warn_of_outdated
from reconciler.operations.steps.workspace import Site, Work, open_state
from reconciler.planning.actions import Change, Value
from reconciler.planning.diff.ordered import suggest_recorded
from reconciler.resources.address import Address, build_sort_key
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import DeclaredResource, Desired, Record, Recorded, Resource
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass
from reconciler.state.journal import read_run
from reconciler.state.lockfile import read_lockfile
from reconciler.state.snapshots import Snapshot, SnapshotRow, list_snapshots, read_snapshot_at, read_snapshot_runs


@dataclass(frozen=True, slots=True)
class StateListing:
    """Owned resources; `lineage` is `null` before the first apply."""

    url: str
    lineage: str | None
    serial: int
    resources: Record


@dataclass(frozen=True, slots=True)
class StateEntry:
    """A resource in its last applied version."""

    address: str
    recorded: Recorded


def state_list(invocation: Invocation, select: Select) -> StateListing:
    """Return owned resources in plan order."""
    site = open_state(invocation, select, is_reader=True)
    snapshot = read_state(site)
    if snapshot is None:
        return StateListing(site.state.url, None, 0, {})
    resources = {address: snapshot.record[address] for address in sorted(snapshot.record, key=build_sort_key)}
    return StateListing(site.state.url, snapshot.lineage, snapshot.serial, resources)


def state_show(invocation: Invocation, select: Select, address: str) -> StateEntry:
    """Return a resource in its last applied version."""
    snapshot = read_state(open_state(invocation, select, is_reader=True))
    record: Record = snapshot.record if snapshot else {}
    recorded = record.get(Address(address))
    if recorded is None:
        raise not_recorded_error(address, record)
    return StateEntry(address, recorded)


def not_recorded_error(address: str, record: Record) -> UserError:
    """Build the error for an unrecorded address, with a similar one."""
    return UserError(f"{address} is not recorded", hint=suggest_recorded(address, record))


_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A snapshot and its run."""

    serial: int
    key: str
    bytes: int
    is_current: bool
    run: str | None
    command: str | None
    who: str | None
    started: str | None
    git_commit: str | None
    approved_by: tuple[str, ...] = ()
    pull_request: str | None = None
    settled_by: str | None = None
    """Later run that recorded this interrupted run's changes."""


@dataclass(frozen=True, slots=True)
class History:
    """Snapshots of the state, newest first."""

    rows: tuple[HistoryRow, ...]
    older: int = 0


def state_history(invocation: Invocation, select: Select, *, limit: int | None = None) -> History:
    """Return the newest `limit` snapshots, or all."""
    site = open_state(invocation, select, is_reader=True)
    current = read_lockfile(site.state, owner=site.owner)
    pointer = current.lockfile.state if current else None
    stored = list_snapshots(site.state)
    warn_of_outdated(site, current.lockfile if current else None, stored)
    if pointer is not None and all(row.key != pointer.key for row in stored):
        site.invocation.warn(
            f"{site.state.url}/{pointer.key} is missing, and the lockfile names it: it is the current state. "
            "Repair it with: reconciler state repair"
        )
    shown = stored[:limit]
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="history") as threads:
        rows = threads.map(lambda row: _read_history_row(site, row, pointer.key if pointer else None), shown)
        return History(tuple(rows), len(stored) - len(shown))


def _read_history_row(site: Site, row: SnapshotRow, current: str | None) -> HistoryRow:
    runs = read_snapshot_runs(site.state, row)
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


_NOT_FIELDS: Final = frozenset({"apiVersion", "kind", "acls"})
_NAMES: Final = frozenset({"metadata.name", "metadata.namespace", "metadata.cluster"})


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A resource that differs between two states."""

    address: Address
    change: Literal["created", "deleted", "changed"]
    fields: tuple[Change, ...]
    """Changed fields, such as `partitions` or `configs.retention.ms`."""
    facts: tuple[Change, ...]
    """Changes of `ownership`, `protect`, `incarnation` or `physicalName`."""
    origins: tuple[Change, ...]
    """Changed origins of values, by field; `null` is the resource itself."""


@dataclass(frozen=True, slots=True)
class StateDiff:
    """Differences of two states in plan order."""

    before: Snapshot
    after: Snapshot
    differences: tuple[StateDifference, ...]


def state_diff(invocation: Invocation, select: Select, serial: int, other: int | None = None) -> StateDiff:
    """Compare state `serial` with `other`, by default the current one."""
    site = open_state(invocation, select, is_reader=True)
    current = read_current(site)
    warn_of_outdated(site, current.lockfile)
    before = read_state_at(site, current, serial)
    after = current if other is None else read_state_at(site, current, other)
    return StateDiff(before, after, compare_records(before.record, after.record))


def read_current(site: Site) -> Snapshot:
    """Return the current state. Raises `UserError` before the first apply."""
    current = read_state(site)
    if current is None:
        raise UserError(f"{site.state.url} holds no state yet", hint="The first apply makes one.")
    return current


def read_state_at(site: Site, current: Snapshot, serial: int) -> Snapshot:
    """Return a serial's state. Serial 0 is empty."""
    return Snapshot(current.lineage, 0) if serial == 0 else read_snapshot_at(site.state, serial, current=current)


def compare_records(before: Record, after: Record) -> tuple[StateDifference, ...]:
    """Return the differing resources in plan order. Run ids are ignored."""
    differences = (
        _compare_resource(address, before.get(address), after.get(address))
        for address in sorted(before.keys() | after.keys(), key=build_sort_key)
    )
    return tuple(difference for difference in differences if difference is not None)


def _compare_resource(address: Address, before: Recorded | None, after: Recorded | None) -> StateDifference | None:
    is_same = before is not None and after is not None and before.resource == after.resource
    fields = () if is_same else _find_changes(_list_fields(before), _list_fields(after))
    facts = _find_changes(_list_facts(before), _list_facts(after))
    origins = _find_changes(_list_origins(before), _list_origins(after))
    if before is None or after is None:
        return StateDifference(address, "created" if before is None else "deleted", fields, facts, origins)
    return StateDifference(address, "changed", fields, facts, origins) if fields or facts or origins else None


def _find_changes(before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[Change, ...]:
    if before == after:
        return ()
    return tuple(
        Change(path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def _list_fields(recorded: Recorded | None) -> dict[str, Value]:
    if recorded is None:
        return {}
    fields = {path: value for path, value in _flatten("", recorded.resource.to_json()) if path not in _NAMES}
    return {path.removeprefix("spec."): value for path, value in fields.items()} | _list_rules(recorded.resource)


def _list_rules(resource: Resource) -> dict[str, Value]:
    return {path: tuple(operations) for path, operations in list_own_rules(resource).items()}


def _list_facts(recorded: Recorded | None) -> dict[str, Value]:
    if recorded is None:
        return {}
    return {
        "ownership": recorded.ownership,
        "protect": recorded.protect,
        "incarnation": recorded.incarnation,
        "physicalName": recorded.physical_name,
    }


def _list_origins(recorded: Recorded | None) -> Mapping[str, Value]:
    return dict(recorded.origins) if recorded else {}


def _flatten(prefix: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for key, inside in value.items():
        if key in _NOT_FIELDS:
            continue
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(inside, Mapping):
            yield from _flatten(path, inside)
        else:
            yield path, tuple(inside) if isinstance(inside, list) else inside


def plan_rollback(invocation: Invocation, select: Select, serial: int, *, out: Path | None = None) -> PlanResult:
    """Plan a return to state `serial`. `out` saves the plan for `apply FILE`."""
    started_ms = invocation.now_ms()
    work = open_rollback(invocation, select, serial, is_reader=True)
    planned = build_plan_result(work, plan_unlocked(work), started_ms)
    if out is not None:
        options = serialize_select(select, cwd=invocation.cwd, folder=work.folder)
        write_plan(invocation.cwd / out, planned.plan, options)
    return planned


def open_rollback(invocation: Invocation, select: Select, serial: int, *, is_reader: bool = False) -> Work:
    """Open a workspace that desires the resources of an earlier state.

    Only `reconciler.yaml` is read. Connections use the current state.
    """
    site = open_state(invocation, select, is_reader=is_reader)
    if serial == 0:
        raise UserError(
            "state #0 is the empty one, before anything was applied",
            hint="To remove everything: reconciler destroy. Other states: reconciler state history",
        )
    current = read_current(site)
    then, now = read_state_at(site, current, serial), current.record
    desired = restore_desired(then.record, now, serial)
    resources = (item.resource for item in desired.values())
    return Work(
        invocation=invocation,
        edge=site.edge,
        owner=site.owner,
        state_settings=site.state_settings,
        clusters={item.metadata.name: item for item in resources if isinstance(item, Cluster)},
        spark=site.spark,
        select=select,
        loaded=LoadedWorkspace(
            workspace=load_workspace_file(invocation, select),
            desired=desired,
            folder=site.edge.folder,
            environment=select.environment,
            warnings=tuple(_warn_of_partitions(then.record, now, serial)),
            places={},
            values=Values({}),
        ),
        back_to=serial,
    )


def restore_desired(then: Record, now: Record, serial: int) -> Desired:
    """Return the resources of `then` as desired ones, with the same effective values."""
    return {
        address: DeclaredResource(_restore_resource(recorded, now.get(address)), f"state #{serial}", recorded.origins)
        for address, recorded in then.items()
    }


def _restore_resource(then: Recorded, now: Recorded | None) -> Resource:
    resource = then.resource
    if isinstance(resource, Cluster) and now is not None and isinstance(now.resource, Cluster):
        spec = now.resource.spec.model_copy(update={"properties": resource.spec.properties})
        return now.resource.model_copy(update={"spec": spec})
    if isinstance(resource, Topic) and now is not None:
        changed: dict[str, object] = {"partitions": _restore_partitions(then, now)}
        if then.protect != now.protect:
            changed["protect"] = then.protect
        return resource.model_copy(update={"spec": resource.spec.model_copy(update=changed)})
    return resource


def _restore_partitions(then: Recorded, now: Recorded) -> int | None:
    before = then.resource.spec.partitions if isinstance(then.resource, Topic) else None
    after = now.resource.spec.partitions if isinstance(now.resource, Topic) else None
    return before if before is None or after is None else max(before, after)


def _warn_of_partitions(then: Record, now: Record, serial: int) -> Iterator[Problem]:
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
