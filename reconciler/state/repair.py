"""Repair or unlock a state: build a new lockfile from snapshots and runs.

`plan_repair` only reads. `write_repair` copies the old lockfile, then replaces it unless another process wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.errors import InterruptedRunError, LeaseError, LostRaceError, NewerFormatError, UserError
from reconciler.objectstore.base import ObjectStore, StoredObject, create_nonce
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import is_run_id, shorten_run_id
from reconciler.state.diagnosis import RunTrace, StateFiles, choose_lineage, find_symptoms
from reconciler.state.journal import (
    RunEnd,
    RunFile,
    UnfinishedRun,
    close_journal,
    read_journal,
    read_open_run,
    read_run,
    read_run_end,
    read_run_with_journal,
    take_over_journal,
)
from reconciler.state.lease import Lease, LeaseWatch, store_snapshot
from reconciler.state.lockfile import (
    KEY,
    LeaseEntry,
    LeaseTerms,
    Lockfile,
    OpenRun,
    Owner,
    StatePointer,
    StoredLockfile,
    check_owner,
    read_lockfile,
)
from reconciler.state.snapshots import Snapshot, SnapshotRow, encode_next_snapshot, read_row_snapshot

if TYPE_CHECKING:
    from reconciler.runtime.effects import Effects


RESTORE: Final = "Restore it from a backup or the bucket's versions"


@dataclass(frozen=True, slots=True)
class LastRun:
    """The run that wrote last. `file` is `None` if `run.json` is missing or damaged."""

    run: str
    file: RunFile | None = None
    end: RunEnd | None = None

    @property
    def begun(self) -> int:
        """Serial at the run's start; 0 if unknown."""
        return self.file.base_serial if self.file is not None else 0


@dataclass(frozen=True, slots=True)
class LastSerial:
    """The highest known serial, and the file that names it. The snapshot may be lost."""

    serial: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class RepairBase:
    """A state from which to continue, and the problems of newer states."""

    snapshot: Snapshot
    damaged: tuple[str, ...] = ()
    """Why newer states are unreadable, newest first."""
    is_older: bool = False
    """Whether a newer state is readable, but the user chose this one."""


def find_last_run(store: ObjectStore, remains: StateFiles) -> LastRun | None:
    """Return the run with the highest epoch, or `None`."""
    latest = [
        LastRun(trace.run, read_run(store, trace.run), read_run_end(store, trace.run))
        for trace in remains.runs
        if trace.epoch == remains.run_epoch and (trace.file_bytes is not None or trace.last_page)
    ]
    return max(latest, key=lambda run: (run.file.epoch if run.file else 0, run.run), default=None)


def find_highest_serial(store: ObjectStore, remains: StateFiles, last: LastRun | None) -> LastSerial:
    """Return the highest serial in any file of the state."""
    candidates = [LastSerial(remains.highest_serial), LastSerial(remains.named_serial, f"{KEY} names it")]
    if last is not None:
        candidates.append(LastSerial(last.begun, f"run {shorten_run_id(last.run)} began on it"))
    for trace in remains.runs:
        is_last = last is not None and trace.run == last.run
        if trace.has_result and (is_last or trace.file_bytes is None):
            end = read_run_end(store, trace.run)
            candidates.append(
                LastSerial(end.serial if end is not None else 0, f"run {shorten_run_id(trace.run)} ended with it")
            )
    return max(candidates, key=lambda candidate: candidate.serial)


def find_newest_base(
    store: ObjectStore, remains: StateFiles, last: LastRun | None, far: LastSerial, *, lineage: str
) -> RepairBase:
    """Return the newest readable state; empty if none was written."""
    damaged = list(_find_missing(store, remains, far))
    for serial in dict.fromkeys(row.serial for row in remains.snapshots):
        good: list[Snapshot] = []
        for row in remains.snapshots:
            if row.serial == serial:
                try:
                    good.append(read_row_snapshot(store, row))
                except NewerFormatError:
                    raise
                except UserError as error:
                    damaged.append(error.message)
        if good:
            return RepairBase(_pick_committed(good, last), tuple(damaged))
    if damaged and remains.snapshots:
        hint = f"{RESTORE}. To own nothing and adopt what the files name: reconciler state repair --snapshot 0"
        raise UserError(f"no state can be read: {damaged[0]}", hint=hint)
    return RepairBase(Snapshot(lineage, 0), tuple(damaged))


def find_chosen_base(
    store: ObjectStore, remains: StateFiles, chosen: str, far: LastSerial, *, lineage: str
) -> RepairBase:
    """Return the state that the user chose, by serial or key."""
    if chosen == "0":
        return _check_newer(store, remains, Snapshot(lineage, 0), far)
    rows = [row for row in remains.snapshots if chosen in (str(row.serial), row.key)]
    if not rows:
        message = f"{store.url} has no state {chosen}"
        raise UserError(message, hint=f"Existing states: {_list_serials(remains.snapshots)}.")
    if len(rows) > 1:
        raise _ambiguous_error(rows[0].serial, (row.key for row in rows))
    return _check_newer(store, remains, read_row_snapshot(store, rows[0]), far)


def _check_newer(store: ObjectStore, remains: StateFiles, snapshot: Snapshot, far: LastSerial) -> RepairBase:
    newer = [row for row in remains.snapshots if row.serial > snapshot.serial]
    damaged: list[str] = []
    for row in newer:
        try:
            read_row_snapshot(store, row)
        except NewerFormatError:
            raise
        except UserError as error:
            damaged.append(error.message)
        else:
            return RepairBase(snapshot, is_older=True)
    return RepairBase(snapshot, _find_missing(store, remains, far) + tuple(damaged))


def _find_missing(store: ObjectStore, remains: StateFiles, far: LastSerial) -> tuple[str, ...]:
    return (
        ()
        if far.serial <= remains.highest_serial
        else (f"{store.url} has no state #{far.serial} any more, and {far.why}",)
    )


def _pick_committed(good: Sequence[Snapshot], last: LastRun | None) -> Snapshot:
    own = [snapshot for snapshot in good if last is not None and snapshot.run == last.run]
    begun = last.file.base_sha256 if last is not None and last.file is not None else None
    left = own or [snapshot for snapshot in good if snapshot.sha256 == begun] or list(good)
    if len(left) > 1:
        raise _ambiguous_error(
            left[0].serial,
            (
                f"{candidate.key} (run {shorten_run_id(candidate.run)}, {len(candidate.record)} resources)"
                for candidate in left
            ),
        )
    return left[0]


def _ambiguous_error(serial: int, named: Iterable[str]) -> UserError:
    return UserError(
        f"state #{serial} was written twice, and it is unknown which was committed: {', '.join(sorted(named))}",
        hint="Name the one to continue from: reconciler state repair --snapshot KEY",
    )


def _list_serials(rows: Sequence[SnapshotRow]) -> str:
    serials = list(dict.fromkeys(row.serial for row in rows))
    return ", ".join(f"#{serial}" for serial in serials[:5]) + (" …" if serials[5:] else "") or "none"


@dataclass(frozen=True, slots=True)
class ForgottenRun:
    """A run whose work exists on the clusters but not in the state."""

    run: str
    actions: tuple[str, ...]
    """Ids of planned actions; of finished ones if only `result.json` exists."""
    command: str = ""
    who: str | None = None
    started: str | None = None

    def __str__(self) -> str:
        return f"run {shorten_run_id(self.run)} ({self.command})" if self.command else f"run {shorten_run_id(self.run)}"

    @classmethod
    def from_file(cls, file: RunFile) -> ForgottenRun:
        """Return a run with its planned actions."""
        actions = tuple(str(action["id"]) for action in file.actions)
        return cls(file.run, actions, file.command, file.who, file.started or None)


def list_forgotten_runs(store: ObjectStore, remains: StateFiles, serial: int) -> tuple[ForgottenRun, ...]:
    """Return the runs since `serial`, whose work that state lacks, earliest first."""
    forgotten: list[ForgottenRun] = []
    for trace in remains.runs:
        file = read_run(store, trace.run)
        if file is not None and file.base_serial < serial:
            break
        forgotten += [ForgottenRun.from_file(file)] if file is not None else []
    return (*reversed(forgotten), *_find_runs_with_result_only(store, remains.runs, serial))


def _find_runs_with_result_only(store: ObjectStore, runs: Iterable[RunTrace], serial: int) -> Iterable[ForgottenRun]:
    for trace in runs:
        end = read_run_end(store, trace.run) if trace.has_result and trace.file_bytes is None else None
        if end is not None and end.serial > serial:
            yield ForgottenRun(trace.run, end.done)


@dataclass(frozen=True, slots=True)
class UnsettledWork:
    """Work of the open run, which the next apply settles. `unreadable` is the error if the work is unknown."""

    run: str
    in_doubt: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    unreadable: UserError | None = None


@dataclass(frozen=True, slots=True)
class UnlockResult:
    """The freed lease, and the unfinished work of its run."""

    was_free: bool
    run: str | None = None
    who: str | None = None
    epoch: int = 0
    open_run: OpenRun | None = None
    doubt: UnsettledWork | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockRequest:
    """Request to free the lease of `run`, which is dead. If `run` is `None`, wait for a full lease without a change."""

    owner: Owner | None = None
    run: str | None = None
    by_run: str = "unlock"
    who: str = "state unlock"
    is_stopped: Callable[[], bool] = lambda: False


async def unlock(store: ObjectStore, effects: Effects, wanted: UnlockRequest) -> UnlockResult:
    """Free the lease: at once if a dead run is named, otherwise after a full lease without a change.

    Raises:
        LeaseError: The holder is alive, or is another run.
    """
    watch = LeaseWatch()
    first: Lockfile | None = None
    while True:
        sent = effects.read_clock()
        current = await effects.run_blocking(lambda: read_lockfile(store, owner=wanted.owner))
        if current is None:
            return UnlockResult(was_free=True)
        lockfile = current.lockfile
        if lockfile.lease.status == "free":
            doubt = await effects.run_blocking(partial(_find_unsettled_work, store, lockfile))
            return UnlockResult(was_free=True, epoch=lockfile.lease.epoch, open_run=lockfile.open_run, doubt=doubt)
        if wanted.run is None and first is not None and lockfile.nonce != first.nonce:
            raise _alive_error(lockfile)
        first = lockfile
        idle = watch.measure_idle_s(lockfile, sent=sent, answered=effects.read_clock())
        if _is_dead(lockfile, wanted.run, idle):
            lease = await _take_lease(store, effects, current, wanted)
            if lease is not None:
                return await _free_lease(lease, effects, lockfile)
        if wanted.is_stopped():
            raise InterruptedRunError("stopped while watching the lease", hint="Nothing was changed.")
        await effects.sleep(min(LeaseTerms(lockfile.lease.lease_s).poll_s, 0.5))


def _is_dead(lockfile: Lockfile, run: str | None, idle_s: float) -> bool:
    if run is None:
        return idle_s >= lockfile.lease.lease_s
    if not is_run_id(run, lockfile.lease.run):
        holder = shorten_run_id(lockfile.lease.run)
        message = f"the lease is not held by run {shorten_run_id(run)} but by {lockfile.lease.who}, run {holder}"
        raise LeaseError(message, hint=f"If that one is dead: reconciler state unlock {holder}")
    return True


async def _take_lease(
    store: ObjectStore, effects: Effects, held_file: StoredLockfile, wanted: UnlockRequest
) -> Lease | None:
    held = held_file.lockfile.lease.model_copy(
        update={
            "epoch": held_file.lockfile.lease.epoch + 1,
            "beat": 0,
            "run": wanted.by_run,
            "holder": create_nonce(),
            "who": wanted.who,
            "ci_url": None,
            "since": effects.read_utc_time().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    )
    ours = held_file.lockfile.model_copy(update={"lease": held, "nonce": create_nonce()})
    sent = effects.read_clock()
    try:
        version = await effects.run_blocking(lambda: store.swap(KEY, ours.to_bytes(), expected=held_file.version))
    except LostRaceError as error:
        if wanted.run is not None:
            return None  # The named run renewed its lease, so the caller tries again.
        current = await effects.run_blocking(lambda: read_lockfile(store))
        raise _alive_error(held_file.lockfile if current is None else current.lockfile) from error
    return Lease(store, effects, StoredLockfile(ours, version), sent=sent)


async def _free_lease(lease: Lease, effects: Effects, before: Lockfile) -> UnlockResult:
    async with lease:
        if before.open_run is not None:
            with suppress(UserError):  # `UnlockResult.doubt` reports an unreadable journal.
                await take_over_journal(lease, effects, before.open_run.run)
        doubt = await effects.run_blocking(lambda: _find_unsettled_work(lease.store, before))
    return UnlockResult(
        was_free=False,
        run=before.lease.run,
        who=before.lease.who,
        epoch=lease.lockfile.lease.epoch,
        open_run=before.open_run,
        doubt=doubt,
    )


def _find_unsettled_work(store: ObjectStore, lockfile: Lockfile) -> UnsettledWork | None:
    if lockfile.open_run is None:
        return None
    run = lockfile.open_run.run
    try:
        opened = read_open_run(store, lockfile)
    except UserError as error:
        return UnsettledWork(run, unreadable=error)
    if opened is None:
        return None
    progress = opened.compute_progress()
    return UnsettledWork(
        run, tuple(action.id for action in progress.in_doubt), tuple(action.id for action in progress.remaining)
    )


def _alive_error(lockfile: Lockfile) -> LeaseError:
    lease = lockfile.lease
    return LeaseError(
        f"the lease moved while it was watched: {lease.who}, run {shorten_run_id(lease.run)}, is alive",
        hint=f"Wait for it. If you are sure it is dead: reconciler state unlock {shorten_run_id(lease.run)}",
    )


_COPY_KEY: Final = "lockfile.damaged-{}.json"
_MOVE_AWAY_HINT: Final = (
    f"If only {KEY} belongs to the other state, move it away and rebuild it from the files next to it: "
    "reconciler state repair"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairChoice:
    """The user's choices for a repair."""

    snapshot: str | None = None
    """Serial or key of the state to continue from, if the newest is lost."""
    without_run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Problems of a state, and the new lockfile."""

    problems: tuple[str, ...]
    base: Snapshot
    lockfile: Lockfile
    body: bytes | None
    """New snapshot: an older state with a new serial, or a state rebuilt from a journal."""
    rebuilt_from: str | None
    forgotten: tuple[ForgottenRun, ...]
    abandoned_run: str | None
    """Run whose remaining work is abandoned."""
    stored: StoredObject | None
    former_lineage: str | None = None
    """Lineage of the old lockfile if all snapshots have another one."""


def plan_repair(
    store: ObjectStore, remains: StateFiles, owner: Owner, choice: RepairChoice, *, lineage: str
) -> Repair | None:
    """Return a state's repair; `None` if healthy. `lineage` is used if no file has one.

    Raises:
        UserError: The state has another owner or a newer version, or the user must choose.
        LeaseError: A process holds the lease of the newest lockfile.
    """
    symptoms = find_symptoms(store, remains, owner)
    if not symptoms.problems:
        return None
    symptoms.check_lease_free()
    lockfile = symptoms.lockfile
    known = choose_lineage(store, remains, lockfile) if lockfile is not None else lineage
    planner = _RepairPlanner(store, remains, choice, known, symptoms.lockfile if symptoms.is_current else None)
    planner.check_owner(owner)
    base = planner.find_base()
    if lockfile is not None and base.snapshot.lineage != known:
        message = f"{store.url}/{base.snapshot.key} belongs to lineage {base.snapshot.lineage}, the lockfile to {known}"
        raise UserError(
            message, hint=f"Files of two states were mixed: restore all files of one of them. {_MOVE_AWAY_HINT}"
        )
    repair = planner.plan_repair(symptoms.problems, owner, base)
    return (
        replace(repair, former_lineage=lockfile.lineage)
        if lockfile is not None and lockfile.lineage != known
        else repair
    )


def write_repair(store: ObjectStore, repair: Repair) -> str | None:
    """Write the repair; return the key of the old lockfile's copy, `None` if there was none.

    Raises:
        LeaseError: Another process wrote the lockfile.
    """
    if repair.abandoned_run is not None:
        with suppress(UserError):  # A run with an unreadable journal cannot be resumed, even if it stays open.
            close_journal(store, repair.abandoned_run, epoch=repair.lockfile.lease.epoch)
    if repair.body is not None and repair.lockfile.state is not None:
        store_snapshot(store, repair.lockfile.state.key, repair.body)
    copy_key = _COPY_KEY.format(create_nonce()) if repair.stored is not None else None
    if repair.stored is not None and copy_key is not None:
        store.swap(copy_key, repair.stored.body, expected=None)
    try:
        store.swap(KEY, repair.lockfile.to_bytes(), expected=repair.stored.version if repair.stored else None)
    except LostRaceError as error:
        raise LeaseError(
            f"{store.url}/{KEY} was written by another process in the meantime",
            hint="It was left as they wrote it. Look again: reconciler state repair",
        ) from error
    return copy_key


class _RepairPlanner:
    def __init__(
        self, store: ObjectStore, remains: StateFiles, choice: RepairChoice, lineage: str, current: Lockfile | None
    ) -> None:
        self._store = store
        self._remains = remains
        self._choice = choice
        self._lineage = lineage
        self._current = current
        self._last = find_last_run(store, remains)
        self._last_serial = find_highest_serial(store, remains, self._last)

    def check_owner(self, owner: Owner) -> None:
        file = self._last.file if self._last is not None else None
        if file is not None:
            check_owner(Owner(file.workspace, file.environment), owner, self._store.url)

    def find_base(self) -> RepairBase:
        if self._choice.snapshot is not None:
            chosen = self._choice.snapshot
            return find_chosen_base(self._store, self._remains, chosen, self._last_serial, lineage=self._lineage)
        return find_newest_base(self._store, self._remains, self._last, self._last_serial, lineage=self._lineage)

    def plan_repair(self, problems: tuple[str, ...], owner: Owner, base: RepairBase) -> Repair:
        given_up, opened = self._find_abandoned_run(base), None
        if given_up is None and self._last is not None:
            try:
                opened = self._find_run_to_resume(self._last, base)
            except NewerFormatError:
                raise
            except UserError as error:
                if self._choice.snapshot is None:
                    raise self._decision_error(self._last, base, error) from error
                given_up = self._last  # Choosing a snapshot abandons a run that cannot be resumed.
        is_over = opened is None or opened.written.is_closed
        rebuilt = opened if is_over and opened is not None and _adds_to_base(opened, base) else None
        state, body = self._next_state(base.snapshot, rebuilt)
        file = self._last.file if self._last is not None else None
        lockfile = Lockfile(
            lineage=base.snapshot.lineage,
            workspace=owner.workspace,
            environment=owner.environment,
            serial=base.snapshot.serial if body is None else self._last_serial.serial + 1,
            state=state,
            lease=LeaseEntry(epoch=self._remains.epoch + 1, status="free", beat=0, lease_s=LeaseTerms().lease_s),
            open_run=None if opened is None or is_over else _to_open_run(opened.file),
            nonce=create_nonce(),
            commit=file.git_commit if file is not None and file.command == "apply" else None,
        )
        return Repair(
            problems=problems,
            base=base.snapshot,
            lockfile=lockfile,
            body=body,
            rebuilt_from=rebuilt.file.run if rebuilt is not None else None,
            forgotten=self._find_forgotten(base.snapshot, given_up, opened),
            abandoned_run=given_up.run if given_up is not None else None,
            stored=self._remains.stored,
        )

    def _find_abandoned_run(self, base: RepairBase) -> LastRun | None:
        last, is_told, named = self._last, self._choice.snapshot is not None, self._choice.without_run
        if named is not None and (last is None or not is_run_id(named, last.run)):
            message = f"run {shorten_run_id(named)} is not the one that wrote last" + (
                f", that is {shorten_run_id(last.run)}" if last else ""
            )
            raise UserError(message, hint="Only that one can be abandoned: those before it are closed.")
        begun = last.begun if last is not None else 0
        if (last is None or named is not None) and base.damaged and not is_told:
            raise self._missing_snapshot_error(base)
        if begun > base.snapshot.serial and not is_told:
            raise self._missing_snapshot_error(base)
        return last if named is not None or begun > base.snapshot.serial else None

    def _find_run_to_resume(self, last: LastRun, base: RepairBase) -> UnfinishedRun | None:
        if last.file is None:
            message = (
                f"what run {last.run} set out to do is unknown, and it wrote last: its run.json is missing or truncated"
            )
            raise UserError(message, hint=RESTORE)
        is_closed = read_journal(self._store, last.run).is_closed
        is_ended = last.end is not None and last.end.is_whole
        if is_ended and not is_closed:
            message = f"the journal of run {last.run} is truncated: the run ended, and its journal does not record it"
            raise UserError(message, hint=RESTORE)
        # `base` may contain all work of a closed run, and the snapshot on which that run began may be missing.
        if is_closed and not base.damaged and (base.is_older or is_ended or not _is_based_on(last.file, base)):
            return None
        unfinished = read_run_with_journal(self._store, last.file)
        if (
            is_closed
            and base.damaged
            and self._choice.snapshot is None
            and not self._wrote_newest(last, unfinished, base)
        ):
            raise self._missing_snapshot_error(base)
        return unfinished

    def _wrote_newest(self, last: LastRun, closed: UnfinishedRun, base: RepairBase) -> bool:
        if last.end is not None:
            return last.end.serial == self._last_serial.serial
        if self._current is not None and closed.file.epoch == self._current.lease.epoch:
            return True
        is_next = self._last_serial.serial == base.snapshot.serial + 1 and _is_based_on(closed.file, base)
        return is_next and closed.compute_progress().record != base.snapshot.record

    def _decision_error(self, last: LastRun, base: RepairBase, error: UserError) -> UserError:
        if base.damaged:
            return self._missing_snapshot_error(base)
        return UserError(
            error.message,
            hint=f"{RESTORE}. To continue without it, and adopt what it created if the files declare it: "
            f"reconciler state repair --without-run {shorten_run_id(last.run)}",
        )

    def _next_state(self, base: Snapshot, rebuilt: UnfinishedRun | None) -> tuple[StatePointer | None, bytes | None]:
        """Give an older state a new serial, because serials only increase."""
        top = self._last_serial.serial
        if rebuilt is not None:
            return encode_next_snapshot(replace(base, serial=top), rebuilt.file.run, rebuilt.compute_progress().record)
        if base.serial != top:
            return encode_next_snapshot(replace(base, serial=top), base.run, base.record)
        return StatePointer(key=base.key, sha256=base.sha256, bytes=base.bytes) if base.serial else None, None

    def _find_forgotten(
        self, base: Snapshot, given_up: LastRun | None, opened: UnfinishedRun | None
    ) -> tuple[ForgottenRun, ...]:
        own = (ForgottenRun.from_file(given_up.file),) if given_up is not None and given_up.file is not None else ()
        if self._choice.snapshot is None:
            return own
        resumed_run = opened.file.run if opened is not None else None
        later = list_forgotten_runs(self._store, self._remains, base.serial)
        return tuple(run for run in later if run.run != resumed_run) or own

    def _missing_snapshot_error(self, base: RepairBase) -> UserError:
        why = (
            base.damaged[0] if base.damaged else f"{self._store.url} has no state #{self._last_serial.serial} any more"
        )
        runs = list_forgotten_runs(self._store, self._remains, base.snapshot.serial)
        lost = f" (it forgets what {', '.join(map(str, runs))} did)" if runs else ""
        return UserError(
            f"{why}, and no journal has its content",
            hint=f"{RESTORE}. The newest state that can be read is #{base.snapshot.serial}; to continue from it{lost}: "
            f"reconciler state repair --snapshot {base.snapshot.serial}",
        )


def _is_based_on(file: RunFile, base: RepairBase) -> bool:
    return base.snapshot.run == file.run or base.snapshot.serial == file.base_serial


def _adds_to_base(closed: UnfinishedRun, base: RepairBase) -> bool:
    is_its_own = bool(base.damaged) or _is_based_on(closed.file, base)
    return is_its_own and closed.compute_progress().record != base.snapshot.record


def _to_open_run(file: RunFile) -> OpenRun:
    return OpenRun(run=file.run, plan_digest=file.plan_digest)
