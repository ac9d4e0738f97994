"""Read the state and open runs without a lock. Spool journal entries while the state is not writable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

import orjson
from pydantic import TypeAdapter, ValidationError

from reconciler.errors import ReconcilerError, UserError
from reconciler.objectstore.directory import write_atomically
from reconciler.objectstore.open import open_store
from reconciler.operations.steps.observe import ObservedClusters, pause_garbage_collection
from reconciler.planning.plan import PlanFinding
from reconciler.planning.settle import list_settled_addresses, settle_action
from reconciler.resources.address import cluster_address
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import explain_invalid, explain_invalid_json, pluralize, shorten_run_id
from reconciler.state.journal import ActionEnded, AnyEntry, Entry, UnfinishedRun, explain_outdated, read_open_run
from reconciler.state.lease import describe_activity
from reconciler.state.lockfile import LeaseEntry, Lockfile, read_lockfile
from reconciler.state.snapshots import Snapshot, SnapshotRow, read_snapshot

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.operations.steps.workspace import Site
    from reconciler.planning.actions import Action
    from reconciler.resources.inventory import Inventory, Record


def describe_open_run(store: ObjectStore, lockfile: Lockfile, unfinished: UnfinishedRun | None) -> str | None:
    """Describe the running or interrupted run, or return `None`."""
    if lockfile.lease.status == "held":
        return _describe_running(store, lockfile, lockfile.lease)
    return _describe_interrupted(unfinished) if unfinished is not None else None


def describe_unreadable_run(lockfile: Lockfile, why: UserError) -> str:
    """Describe an interrupted run whose files are unreadable."""
    opened = lockfile.open_run.run if lockfile.open_run is not None else ""
    return f"run {shorten_run_id(opened)} was left open, and its changes are unknown: {why}"


def _describe_running(store: ObjectStore, lockfile: Lockfile, lease: LeaseEntry) -> str:
    holder = f"{lease.who} holds the lease since {lease.since}: {describe_activity(store, lockfile)}"
    return f"{holder}; run {shorten_run_id(lease.run)}. What it does next may change what you see"


def _describe_interrupted(unfinished: UnfinishedRun) -> str:
    file = unfinished.file
    end, next_step = _describe_end(unfinished), _describe_next_step(unfinished)
    return f"run {shorten_run_id(file.run)} of {file.who}, begun {file.started}, {end}. {next_step}"


def _describe_end(unfinished: UnfinishedRun) -> str:
    outcome = unfinished.compute_progress()
    doubt = f"{pluralize(len(outcome.in_doubt), 'action', 'actions', grouping='')} in doubt" if outcome.in_doubt else ""
    left = (
        f"{pluralize(len(outcome.remaining), 'action', 'actions', grouping='')} not begun" if outcome.remaining else ""
    )
    remainder = ", ".join(part for part in (doubt, left) if part) or "nothing of it is left"
    match unfinished.parting:
        case "stopped":
            return f"was stopped: {remainder}"
        case "detached":
            return f"left the rest to other processes: {remainder}"
        case None:
            return f"was left open: {remainder}"
        case _:
            assert_never(unfinished.parting)


def _describe_next_step(unfinished: UnfinishedRun) -> str:
    if unfinished.file.options is None:
        return f"`reconciler apply` settles it; then `{unfinished.file.command}` can be given again"
    return "`reconciler apply` settles it and continues from the files, `reconciler apply --resume` finishes its plan"


def warn_of_outdated(site: Site, lockfile: Lockfile | None, rows: Sequence[SnapshotRow] | None = None) -> None:
    """Warn if the lockfile is a restored old copy."""
    outdated = explain_outdated(site.state, lockfile, rows) if lockfile is not None else None
    if outdated is not None:
        site.invocation.warn(
            f"{outdated}. What was applied since is not known here. Repair it with: reconciler state repair"
        )


def find_copied_states(site: Site, lockfile: Lockfile | None, inventory: Inventory) -> Iterator[PlanFinding]:
    """Yield a finding for each cluster that names another state of this lineage: one state is a copy."""
    if lockfile is None:
        return
    me = site.make_owner(lockfile.lineage)
    seen = (inventory.get(cluster_address(name)) for name in site.clusters_to_read)
    owners = (
        cluster_item.cluster.owners.workspaces.get(me.lineage)
        for cluster_item in seen
        if cluster_item is not None and cluster_item.cluster.owners is not None
    )
    places = {owner.state for owner in owners if owner is not None} - {me.state}
    for place in sorted(place for place in places if place.startswith(f"{site.state_settings.scheme}://")):
        with suppress(ReconcilerError):
            other = read_lockfile(open_store(replace(site.state_settings, url=place)))
            if other is not None and other.lockfile.lineage == me.lineage and other.lockfile.state != lockfile.state:
                message = (
                    f"state {place} has the same lineage as this one, and different content: one is a copy of the other"
                )
                hint = "Each would manage what the other owns: apply with one of them alone, and delete the other."
                yield PlanFinding(None, None, message, hint)


def read_state(site: Site) -> Snapshot | None:
    """Read the current state; `None` before the first apply."""
    with pause_garbage_collection():
        return read_snapshot(site.state, owner=site.owner)


def require_state(site: Site) -> None:
    """Reject a missing state, so no command starts an empty one."""
    if read_lockfile(site.state) is None:
        message = f"there is no state at {site.state.url}"
        hint = "Restore the state, or act without one: --no-state. Nothing was written."
        raise UserError(message, hint=hint)


@dataclass(frozen=True, slots=True)
class RecordedState:
    """The state and its open run."""

    snapshot: Snapshot | None = None
    unfinished: UnfinishedRun | None = None
    in_doubt: tuple[Action, ...] = field(default=())
    unreadable: UserError | None = None

    @property
    def has_open_run(self) -> bool:
        """Whether a run is open, readable or not."""
        lockfile = self.snapshot.lockfile if self.snapshot else None
        return lockfile is not None and lockfile.open_run is not None

    @property
    def record(self) -> Record:
        """Last applied resources, including results that only the open run's journal has."""
        if self.unfinished is not None:
            return self.unfinished.compute_progress().record
        return self.snapshot.record if self.snapshot else {}

    def settle(self, seen: ObservedClusters) -> Record:
        """Return `record` with the results of actions in doubt that `seen` shows."""
        if self.unfinished is None:
            return self.record
        ended = []
        for action in self.in_doubt:
            platform = seen.capabilities.get(action.cluster or "")
            if platform is not None and not seen.hidden.keys() & set(list_settled_addresses(action)):
                result = settle_action(action, seen.inventory, platform.configs)
                if result.verdict == "done":
                    ended.append(
                        ActionEnded(id=action.id, incarnation=result.incarnation, physical_name=result.physical_name)
                    )
        return self.unfinished.compute_progress(further=ended).record


def read_recorded_state(site: Site) -> RecordedState:
    """Read the state, and warn of an open run."""
    with pause_garbage_collection():
        snapshot = read_snapshot(site.state, owner=site.owner)
        lockfile = snapshot.lockfile if snapshot is not None else None
        if lockfile is None:
            return RecordedState(snapshot)
        try:
            unfinished = read_open_run(site.state, lockfile)
        except UserError as error:
            site.invocation.warn(describe_unreadable_run(lockfile, error))
            return RecordedState(snapshot, unreadable=error)
        notice = describe_open_run(site.state, lockfile, unfinished)
    if notice is not None:
        site.invocation.warn(notice)
    return RecordedState(snapshot, unfinished, unfinished.compute_progress().in_doubt if unfinished else ())


SPOOL: Final = "reconciler.spool/1"


class LocalSpool:
    """Stores unwritten journal entries in `.reconciler/spool/<run>.json`."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder = folder / ".reconciler" / "spool"
        self._warn = warn

    def store_entries(self, run: str, entries: Sequence[Entry]) -> str:
        """Write a run's entries; return the path."""
        path = self._make_path(run)
        content = [entry.model_dump(mode="json") for entry in entries]
        body = {"format": SPOOL, "run": run, "sha256": _compute_digest(content), "entries": content}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, orjson.dumps(body, option=orjson.OPT_INDENT_2), mode=0o600)
        except OSError as error:
            raise UserError(
                f"{path}: {_format_reason(error)}", hint="Nothing is lost: the next run looks at the clusters."
            ) from error
        return str(path)

    def read_entries(self, run: str) -> Sequence[Entry]:
        """Return a run's entries. An invalid file is renamed, and counts as empty."""
        path = self._make_path(run)
        try:
            return _parse_entries(path.read_bytes(), run)
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._rename_unusable(path, _format_reason(error))
        except ValueError as error:
            self._rename_unusable(path, str(error))
        return ()

    def list_runs(self) -> Sequence[str]:
        """Return the runs with a file."""
        return sorted(path.stem for path in self._folder.glob("[!.]*.json"))

    def delete_entries(self, run: str) -> None:
        """Delete a run's file and empty folders. Failures only cause a warning."""
        path = self._make_path(run)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{path} is no longer needed and cannot be removed: {_format_reason(error)}")
            return
        with suppress(OSError):
            self._folder.rmdir()
            self._folder.parent.rmdir()

    def _rename_unusable(self, path: Path, why: str) -> None:
        damaged = path.with_suffix(".damaged")
        try:
            path.replace(damaged)
        except OSError as error:
            where = f"it stays where it is ({_format_reason(error)})"
        else:
            where = f"set aside as {damaged.name}"
        self._warn(f"{path} cannot be used: {why}; {where}, and what its run did is found by looking")

    def _make_path(self, run: str) -> Path:
        return self._folder / f"{run}.json"


def _parse_entries(body: bytes, run: str) -> Sequence[Entry]:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(explain_invalid_json(error, body)) from error
    if not isinstance(content, dict) or (content.get("format"), content.get("run")) != (SPOOL, run):
        message = "it belongs to another run, or has an unknown format"
        raise ValueError(message)
    if content.get("sha256") != _compute_digest(content.get("entries")):
        message = "it was changed after it was written"
        raise ValueError(message)
    try:
        return TypeAdapter(tuple[AnyEntry, ...]).validate_json(orjson.dumps(content["entries"]))
    except ValidationError as error:
        raise ValueError(explain_invalid(error)) from error


def _compute_digest(entries: object) -> str:
    return sha256(orjson.dumps(entries)).hexdigest()


def _format_reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
