"""What is recorded: the state and open runs, read without a lock; and what a run could not write to its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

import orjson
from pydantic import TypeAdapter, ValidationError

from reconciler.errors import ReconcilerError, UserError
from reconciler.objectstore.directory import write_whole
from reconciler.objectstore.open import open_store
from reconciler.operations.steps.observe import ObservedClusters, burst
from reconciler.planning.plan import Finding
from reconciler.planning.settle import scope_of, settle
from reconciler.resources.address import cluster_address
from reconciler.runtime.text import counted, no_json, refusal
from reconciler.state.journal import ActionEnded, AnyEntry, Entry, UnfinishedRun, find_outdated, read_open_run
from reconciler.state.lease import doing_of
from reconciler.state.lockfile import LeaseEntry, Lockfile, read_lockfile
from reconciler.state.snapshots import Snapshot, SnapshotRow, read_snapshot

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.operations.steps.workspace import Site
    from reconciler.planning.actions import Action
    from reconciler.resources.inventory import Inventory, Record


def open_run_notice(store: ObjectStore, lockfile: Lockfile, unfinished: UnfinishedRun | None) -> str | None:
    """Return a line about a run that is under way or was left open; `None` where none is."""
    if lockfile.lease.status == "held":
        return _under_way(store, lockfile, lockfile.lease)
    return _left_open(unfinished) if unfinished is not None else None


def unreadable_notice(lockfile: Lockfile, why: UserError) -> str:
    """Return a line about an open run whose files cannot be read."""
    opened = lockfile.open_run.run if lockfile.open_run is not None else ""
    return f"run {opened} was left open, and what it did cannot be told: {why}"


def _under_way(store: ObjectStore, lockfile: Lockfile, lease: LeaseEntry) -> str:
    told = f"{lease.who} holds the lease since {lease.since}: {doing_of(store, lockfile)}; run {lease.run}"
    return f"{told}. What it does next may change what you see"


def _left_open(found: UnfinishedRun) -> str:
    file = found.file
    return f"run {file.run} of {file.who}, begun {file.started}, {_parted(found)}. {_what_next(found)}"


def _parted(found: UnfinishedRun) -> str:
    """Say how it came to be open; doubt only where there is some."""
    stands = found.folded()
    doubt = f"{counted(len(stands.in_doubt), 'action', 'actions', grouping='')} in doubt" if stands.in_doubt else ""
    left = f"{counted(len(stands.left), 'action', 'actions', grouping='')} not begun" if stands.left else ""
    told = ", ".join(each for each in (doubt, left) if each) or "nothing of it is left"
    match found.parting:
        case "stopped":
            return f"was stopped: {told}"
        case "detached":
            return f"left what follows to others: {told}"
        case None:
            return f"was left open: {told}"
        case _:
            assert_never(found.parting)


def _what_next(found: UnfinishedRun) -> str:
    """Say what goes on from there: only a plan of files can be finished."""
    if found.file.options is None:
        return f"`reconciler apply` settles it; then `{found.file.command}` can be given again"
    return "`reconciler apply` settles it and goes on from the files, `reconciler apply --resume` finishes its plan"


# A state that was put back from a backup, told to whoever only looks: they take no lease, which would refuse it.


def warn_of_outdated(site: Site, lockfile: Lockfile | None, rows: Sequence[SnapshotRow] | None = None) -> None:
    """Warn where the lockfile is surely an old copy. One LIST, unless `rows` is what it returned."""
    outdated = find_outdated(site.state, lockfile, rows) if lockfile is not None else None
    if outdated is not None:
        site.invocation.warn(
            f"{outdated}. What was applied since is not known here. Repair it with: reconciler state repair"
        )


def copies_of(site: Site, lockfile: Lockfile | None, inventory: Inventory) -> Iterator[Finding]:
    """Yield the states that clusters name for the lineage of this one and that differ from it: one of two is a copy."""
    if lockfile is None:
        return
    me = site.me(lockfile.lineage)
    seen = (inventory.get(cluster_address(name)) for name in site.to_read)
    owners = (
        each.cluster.owners.who.get(me.lineage) for each in seen if each is not None and each.cluster.owners is not None
    )
    places = {owner.state for owner in owners if owner is not None} - {me.state}
    for place in sorted(each for each in places if each.startswith(f"{site.state_settings.scheme}://")):
        with suppress(ReconcilerError):  # A state that was moved is not at its old place any more.
            there = read_lockfile(open_store(replace(site.state_settings, url=place)))
            if there is not None and there.lockfile.lineage == me.lineage and there.lockfile.state != lockfile.state:
                message = (
                    f"state {place} has the same lineage as this one, and another content: one is a copy of the other"
                )
                hint = "Each takes what the other owns for its own: apply with one of them alone, and delete the other."
                yield Finding(None, None, message, hint)


# Reading the state without a lock.


def read_state(site: Site) -> Snapshot | None:
    """Return what we last applied and own; `None` where nothing ever was. Writes nothing.

    Raises:
        UserError: The state is another workspace's, lost or damaged.
    """
    with burst():
        return read_snapshot(site.state, owner=site.owner)


def check_state(site: Site) -> None:
    """Refuse to make a state where one was lost: nothing would be known of what is asked about.

    Raises:
        UserError: There is none.
    """
    if read_lockfile(site.state) is None:
        message = f"there is no state at {site.state.url}"
        hint = "Bring it back; or do it now, without remembering it: --no-state. Nothing was written."
        raise UserError(message, hint=hint)


# What is recorded, read without a lock: the state, and what a run that has not closed has done since.
#
# Whoever only looks sees what the next apply will have settled before it plans: what the journal says is done, and what
# was in doubt and is found on the clusters. Nothing is written.


@dataclass(frozen=True, slots=True)
class Remembered:
    """The state as it is, and the run that has begun and not closed."""

    snapshot: Snapshot | None = None
    unfinished: UnfinishedRun | None = None
    in_doubt: tuple[Action, ...] = field(default=())
    """What that run had begun and not ended."""
    unreadable: UserError | None = None
    """Why nobody can tell what an open run did: something of its files is missing or damaged."""

    @property
    def has_open_run(self) -> bool:
        """Tell whether a run has begun and not closed, be its files readable or not."""
        lockfile = self.snapshot.lockfile if self.snapshot else None
        return lockfile is not None and lockfile.open_run is not None

    @property
    def record(self) -> Record:
        """What we last applied and own, as far as it is written."""
        if self.unfinished is not None:
            return self.unfinished.folded().record
        return self.snapshot.record if self.snapshot else {}

    def settled(self, seen: ObservedClusters) -> Record:
        """Return the record after what was in doubt and is found done where clusters were read."""
        if self.unfinished is None:
            return self.record
        ended = []
        for action in self.in_doubt:
            platform = seen.capabilities.get(action.cluster or "")
            if platform is not None and not seen.hidden.keys() & set(scope_of(action)):
                found = settle(action, seen.inventory, platform.configs)
                if found.verdict == "done":
                    ended.append(
                        ActionEnded(id=action.id, incarnation=found.incarnation, physical_name=found.physical_name)
                    )
        return self.unfinished.folded(further=ended).record


def remember(site: Site) -> Remembered:
    """Return what is recorded, and warn of a run that is open: two reads, and those of its files. Writes nothing.

    Raises:
        UserError: The state is another workspace's, lost or damaged.
    """
    with burst():
        snapshot = read_snapshot(site.state, owner=site.owner)
        lockfile = snapshot.lockfile if snapshot is not None else None
        if lockfile is None:
            return Remembered(snapshot)
        try:
            unfinished = read_open_run(site.state, lockfile)
        except UserError as error:
            site.invocation.warn(unreadable_notice(lockfile, error))
            return Remembered(snapshot, unreadable=error)
        notice = open_run_notice(site.state, lockfile, unfinished)
    if notice is not None:
        site.invocation.warn(notice)
    return Remembered(snapshot, unfinished, unfinished.folded().in_doubt if unfinished else ())


# What a run knows and cannot write to its state: `.reconciler/spool/<run>.json` of a workspace.


SPOOL: Final = "reconciler.spool/1"


class LocalSpool:
    """A folder of this machine."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        """Create no folder before an entry is kept. `warn` takes one line for each file that cannot be used."""
        self._folder = folder / ".reconciler" / "spool"
        self._warn = warn

    def keep(self, run: str, entries: Sequence[Entry]) -> str:
        """Write entries of a run, and return the path of the file.

        Raises:
            UserError: The file cannot be written.
        """
        path = self._path(run)
        content = [entry.model_dump(mode="json") for entry in entries]
        body = {"format": SPOOL, "run": run, "sha256": _digest(content), "entries": content}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, orjson.dumps(body, option=orjson.OPT_INDENT_2), mode=0o600)
        except OSError as error:
            raise UserError(
                f"{path}: {_reason(error)}", hint="Nothing is lost: the next run looks at the clusters."
            ) from error
        return str(path)

    def kept(self, run: str) -> Sequence[Entry]:
        """Return the entries of a run. A file that cannot be used is set aside and counts as empty."""
        path = self._path(run)
        try:
            return _entries(path.read_bytes(), run)
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._set_aside(path, _reason(error))
        except ValueError as error:
            self._set_aside(path, str(error))
        return ()

    def runs(self) -> Sequence[str]:
        """Return the runs that have a file."""
        return sorted(path.stem for path in self._folder.glob("[!.]*.json"))

    def forget(self, run: str) -> None:
        """Delete the file of a run and the folders made for it; warn if it cannot be deleted."""
        path = self._path(run)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{path} is of no use any more and cannot be removed: {_reason(error)}")
            return
        with suppress(OSError):  # The folders hold other files.
            self._folder.rmdir()
            self._folder.parent.rmdir()

    def _set_aside(self, path: Path, why: str) -> None:
        damaged = path.with_suffix(".damaged")
        try:
            path.replace(damaged)
        except OSError as error:
            where = f"it stays where it is ({_reason(error)})"
        else:
            where = f"set aside as {damaged.name}"
        self._warn(f"{path} cannot be used: {why}; {where}, and what its run did is found by looking")

    def _path(self, run: str) -> Path:
        return self._folder / f"{run}.json"


def _entries(body: bytes, run: str) -> Sequence[Entry]:
    """Parse a file; a `ValueError` says what is wrong with it, for people."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(no_json(error, body)) from error
    if not isinstance(content, dict) or (content.get("format"), content.get("run")) != (SPOOL, run):
        message = "it is of another run or format"
        raise ValueError(message)
    if content.get("sha256") != _digest(content.get("entries")):
        message = "it was changed after it was written"
        raise ValueError(message)
    try:
        return TypeAdapter(tuple[AnyEntry, ...]).validate_json(orjson.dumps(content["entries"]))
    except ValidationError as error:
        raise ValueError(refusal(error)) from error


def _digest(entries: object) -> str:
    return sha256(orjson.dumps(entries)).hexdigest()


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
