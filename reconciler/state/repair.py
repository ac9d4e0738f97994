"""Repair a state, and unlock it: a new lockfile from snapshots and runs.

Judging changes nothing, and is shown first. What was there is kept beside the new lockfile, which goes in by
compare-and-swap: whoever wrote meanwhile is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.errors import InterruptedRunError, LeaseError, LostRaceError, NewerFormatError, UserError
from reconciler.objectstore.base import ObjectStore, Stored, nonce
from reconciler.state.diagnosis import Remains, RunTrace, find_symptoms, lineage_to_keep
from reconciler.state.journal import (
    RunEnd,
    RunFile,
    Unfinished,
    close_journal,
    read_end,
    read_journal,
    read_open_run,
    read_run,
    read_unfinished,
    take_over,
)
from reconciler.state.lease import Lease, Watch, keep_snapshot
from reconciler.state.lockfile import (
    KEY,
    LeaseEntry,
    Lockfile,
    OpenRun,
    Owner,
    Read,
    StatePointer,
    Terms,
    check_owner,
    read_lockfile,
)
from reconciler.state.snapshots import Snapshot, SnapshotRow, encode_after, read_row

if TYPE_CHECKING:
    from reconciler.runtime.effects import Effects


# From which state a repair goes on, and which run wrote last: chosen where that is certain, asked where it is not.


RESTORE: Final = "Restore it from a backup or the bucket's versions"


@dataclass(frozen=True, slots=True)
class LastRun:
    """The run that wrote last; `file` is `None` where its `run.json` is gone or damaged."""

    run: str
    file: RunFile | None = None
    end: RunEnd | None = None
    """What it said of its end, if it did."""

    @property
    def begun(self) -> int:
        """The serial of the state it began on; 0 where that cannot be told."""
        return self.file.base_serial if self.file is not None else 0


@dataclass(frozen=True, slots=True)
class LastSerial:
    """How far the state surely was, and what says so: a snapshot may be missing that something else names."""

    serial: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Base:
    """A state to go on from, and what is wrong with newer ones."""

    snapshot: Snapshot
    damaged: tuple[str, ...] = ()
    """Why each newer one cannot be read; the newest first."""
    is_older: bool = False
    """A newer one can be read: a person goes back on purpose."""


def last_run(store: ObjectStore, remains: Remains) -> LastRun | None:
    """Return the run that wrote last; `None` where there was none. A run that took over counts from its own file."""
    latest = [
        LastRun(trace.run, read_run(store, trace.run), read_end(store, trace.run))
        for trace in remains.runs
        if trace.epoch == remains.run_epoch and (trace.file_bytes is not None or trace.last_page)
    ]
    return max(latest, key=lambda each: (each.file.epoch if each.file else 0, each.run), default=None)


def reached(store: ObjectStore, remains: Remains, last: LastRun | None) -> LastSerial:
    """Return how far the state surely was, by everything that names a state."""
    found = [LastSerial(remains.top), LastSerial(remains.named, f"{KEY} names it")]
    if last is not None:
        found.append(LastSerial(last.begun, f"run {last.run} began on it"))
    for trace in remains.runs:
        is_last = last is not None and trace.run == last.run
        if trace.has_result and (is_last or trace.file_bytes is None):
            end = read_end(store, trace.run)
            found.append(LastSerial(end.serial if end is not None else 0, f"run {trace.run} ended with it"))
    return max(found, key=lambda each: each.serial)


def newest_base(store: ObjectStore, remains: Remains, last: LastRun | None, far: LastSerial, *, lineage: str) -> Base:
    """Return the newest state that can be read; the empty one where there never was another.

    Raises:
        UserError: None can be read, one is of a newer version, or two claim to be it.
    """
    damaged = list(_missing(store, remains, far))
    for serial in dict.fromkeys(row.serial for row in remains.snapshots):
        good: list[Snapshot] = []
        for row in remains.snapshots:
            if row.serial == serial:
                try:
                    good.append(read_row(store, row))
                except NewerFormatError:
                    raise
                except UserError as error:
                    damaged.append(error.message)
        if good:
            return Base(_committed(good, last), tuple(damaged))
    if damaged and remains.snapshots:
        hint = f"{RESTORE}. To own nothing and adopt what the files name: reconciler state repair --snapshot 0"
        raise UserError(f"no state can be read: {damaged[0]}", hint=hint)
    return Base(Snapshot(lineage, 0), tuple(damaged))


def told_base(store: ObjectStore, remains: Remains, told: str, far: LastSerial, *, lineage: str) -> Base:
    """Return the state that a person named, by serial or by key.

    Raises:
        UserError: There is none, two are meant, or it cannot be read.
    """
    if told == "0":
        return _told(store, remains, Snapshot(lineage, 0), far)
    rows = [row for row in remains.snapshots if told in (str(row.serial), row.key)]
    if not rows:
        message = f"{store.url} has no state {told}"
        raise UserError(message, hint=f"There are: {_serials(remains.snapshots)}.")
    if len(rows) > 1:
        raise _two(rows[0].serial, (row.key for row in rows))
    return _told(store, remains, read_row(store, rows[0]), far)


def _told(store: ObjectStore, remains: Remains, snapshot: Snapshot, far: LastSerial) -> Base:
    """Return a state that was named, with what became of newer ones."""
    newer = [row for row in remains.snapshots if row.serial > snapshot.serial]
    damaged: list[str] = []
    for row in newer:
        try:
            read_row(store, row)
        except NewerFormatError:
            raise
        except UserError as error:
            damaged.append(error.message)
        else:
            return Base(snapshot, is_older=True)
    return Base(snapshot, _missing(store, remains, far) + tuple(damaged))


def _missing(store: ObjectStore, remains: Remains, far: LastSerial) -> tuple[str, ...]:
    """Say that the newest state is not there, where something names it."""
    return () if far.serial <= remains.top else (f"{store.url} has no state #{far.serial} any more, and {far.why}",)


def _committed(good: Sequence[Snapshot], last: LastRun | None) -> Snapshot:
    """Return, of snapshots with one serial and none after them, the one that was committed.

    A serial stands twice where a run wrote a snapshot and died before it could commit it; whoever came next wrote
    another. So it is the one of the run that wrote last, or the one that this run began on.
    """
    own = [snapshot for snapshot in good if last is not None and snapshot.run == last.run]
    begun = last.file.base_sha256 if last is not None and last.file is not None else None
    left = own or [snapshot for snapshot in good if snapshot.sha256 == begun] or list(good)
    if len(left) > 1:
        raise _two(left[0].serial, (f"{each.key} (run {each.run}, {len(each.record)} resources)" for each in left))
    return left[0]


def _two(serial: int, named: Iterable[str]) -> UserError:
    return UserError(
        f"state #{serial} was written twice, and nothing says which was committed: {', '.join(sorted(named))}",
        hint="Name the one to continue from: reconciler state repair --snapshot KEY",
    )


def _serials(rows: Sequence[SnapshotRow]) -> str:
    serials = list(dict.fromkeys(row.serial for row in rows))
    return ", ".join(f"#{serial}" for serial in serials[:5]) + (" …" if serials[5:] else "") or "none"


# What a repair forgets: the runs whose work stays on the clusters, and in no record.


@dataclass(frozen=True, slots=True)
class ForgottenRun:
    """A run whose work stays on the clusters, and in no record."""

    run: str
    actions: tuple[str, ...]
    """What it set out to do, by id; what it did, where only that is left."""
    command: str = ""
    """Empty where only its result is left."""
    who: str | None = None
    started: str | None = None

    def __str__(self) -> str:
        """Name it."""
        return f"run {self.run} ({self.command})" if self.command else f"run {self.run}"

    @classmethod
    def of(cls, file: RunFile) -> ForgottenRun:
        """Say what a run set out to do."""
        actions = tuple(str(action["id"]) for action in file.actions)
        return cls(file.run, actions, file.command, file.who, file.started or None)


def runs_after(store: ObjectStore, remains: Remains, serial: int) -> tuple[ForgottenRun, ...]:
    """Return the runs that began on a state or later, the first one first: what they did is forgotten with it."""
    found: list[ForgottenRun] = []
    for trace in remains.runs:
        file = read_run(store, trace.run)
        if file is not None and file.base_serial < serial:
            break
        found += [ForgottenRun.of(file)] if file is not None else []
    return (*reversed(found), *_told_by_results(store, remains.runs, serial))


def _told_by_results(store: ObjectStore, runs: Iterable[RunTrace], serial: int) -> Iterable[ForgottenRun]:
    """Yield the runs of which nothing but a result is left, and that ended with a later state."""
    for trace in runs:
        end = read_end(store, trace.run) if trace.has_result and trace.file_bytes is None else None
        if end is not None and end.serial > serial:
            yield ForgottenRun(trace.run, end.done)


# `state unlock`: free a lease whose holder is dead. The same takeover as any other, never a delete.


@dataclass(frozen=True, slots=True)
class Doubt:
    """What the open run left: the next apply settles it. `unreadable`: why that cannot be told."""

    run: str
    in_doubt: tuple[str, ...] = ()
    """Ids of actions that were begun, and not known to have ended."""
    left: tuple[str, ...] = ()
    """Ids of actions that were never begun."""
    unreadable: UserError | None = None


@dataclass(frozen=True, slots=True)
class Unlocked:
    """A lease that was taken from a run, and what that run left in doubt."""

    was_free: bool
    run: str | None = None
    """The run that held the lease."""
    who: str | None = None
    epoch: int = 0
    open_run: OpenRun | None = None
    """The run that had begun and not closed; the next apply settles it."""
    doubt: Doubt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlocking:
    """Whose state, which run is known to be dead (`None`: judge by watching one whole lease), and who says so."""

    owner: Owner | None = None
    run: str | None = None
    by_run: str = "unlock"
    """The run as which the lease is taken, for a moment."""
    who: str = "state unlock"
    is_stopped: Callable[[], bool] = lambda: False


async def unlock(store: ObjectStore, effects: Effects, wanted: Unlocking) -> Unlocked:
    """Free the lease: at once where the dead run was named, else after seeing no sign of life for a whole lease.

    Raises:
        LeaseError: It moved, or another run holds it: nothing was changed.
    """
    watch = Watch()
    first: Lockfile | None = None
    while True:
        asked = effects.now()
        found = await effects.call(lambda: read_lockfile(store, owner=wanted.owner))
        if found is None:
            return Unlocked(was_free=True)
        lockfile = found.lockfile
        if lockfile.lease.status == "free":
            doubt = await effects.call(partial(_doubt, store, lockfile))
            return Unlocked(was_free=True, epoch=lockfile.lease.epoch, open_run=lockfile.open_run, doubt=doubt)
        if wanted.run is None and first is not None and lockfile.nonce != first.nonce:
            raise _alive(lockfile)
        first = lockfile
        idle = watch.idle_s(lockfile, asked=asked, answered=effects.now())
        if _is_dead(lockfile, wanted.run, idle):
            lease = await _take(store, effects, found, wanted)
            if lease is not None:
                return await _free(lease, effects, lockfile)
        if wanted.is_stopped():
            raise InterruptedRunError("stopped while watching the lease", hint="Nothing was changed.")
        await effects.sleep(min(Terms(lockfile.lease.lease_s).poll_s, 0.5))


def _is_dead(lockfile: Lockfile, run: str | None, idle_s: float) -> bool:
    if run is None:
        return idle_s >= lockfile.lease.lease_s
    if run != lockfile.lease.run:
        message = f"the lease is not held by run {run} but by {lockfile.lease.who}, run {lockfile.lease.run}"
        raise LeaseError(message, hint=f"If that one is dead: reconciler state unlock {lockfile.lease.run}")
    return True


async def _take(store: ObjectStore, effects: Effects, found: Read, wanted: Unlocking) -> Lease | None:
    """Take the lease under the next epoch: the old holder's next write is refused. `None`: it was faster."""
    held = found.lockfile.lease.model_copy(
        update={
            "epoch": found.lockfile.lease.epoch + 1,
            "beat": 0,
            "run": wanted.by_run,
            "holder": nonce(),
            "who": wanted.who,
            "ci_url": None,
            "since": effects.utc().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    )
    ours = found.lockfile.model_copy(update={"lease": held, "nonce": nonce()})
    sent = effects.now()
    try:
        version = await effects.call(lambda: store.swap(KEY, ours.to_bytes(), expected=found.version))
    except LostRaceError as error:
        if wanted.run is not None:
            return None  # a beat of the run that was named, unless the next look says otherwise
        current = await effects.call(lambda: read_lockfile(store))
        raise _alive(found.lockfile if current is None else current.lockfile) from error
    return Lease(store, effects, Read(ours, version), sent=sent)


async def _free(lease: Lease, effects: Effects, before: Lockfile) -> Unlocked:
    """Write into the open run's journal that it was taken over, so that its next intent is refused, and let go."""
    async with lease:
        if before.open_run is not None:
            with suppress(UserError):  # of a journal that cannot be read, `doubt` says so
                await take_over(lease, effects, before.open_run.run)
        doubt = await effects.call(lambda: _doubt(lease.store, before))
    return Unlocked(
        was_free=False,
        run=before.lease.run,
        who=before.lease.who,
        epoch=lease.lockfile.lease.epoch,
        open_run=before.open_run,
        doubt=doubt,
    )


def _doubt(store: ObjectStore, lockfile: Lockfile) -> Doubt | None:
    if lockfile.open_run is None:
        return None
    run = lockfile.open_run.run
    try:
        opened = read_open_run(store, lockfile)
    except UserError as error:
        return Doubt(run, unreadable=error)
    if opened is None:
        return None
    stands = opened.folded()
    return Doubt(run, tuple(each.id for each in stands.in_doubt), tuple(each.id for each in stands.left))


def _alive(lockfile: Lockfile) -> LeaseError:
    lease = lockfile.lease
    return LeaseError(
        f"the lease moved while it was watched: {lease.who}, run {lease.run}, is alive",
        hint=f"Wait for it. If you are sure it is dead: reconciler state unlock {lease.run}",
    )


_KEPT: Final = "lockfile.damaged-{}.json"
_STRANGER: Final = (
    f"Where only {KEY} is the other one's, move it away and rebuild it from what is beside it: reconciler state repair"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What only a person can decide."""

    snapshot: str | None = None
    """The state to go on from, by serial or key, where the newest one is lost."""
    without_run: str | None = None
    """The run to give up, because what it did cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What is wrong, and what would mend it."""

    problems: tuple[str, ...]
    base: Snapshot
    """The state it goes on from."""
    lockfile: Lockfile
    body: bytes | None
    """The snapshot that has to be written for it: of an older state, or of what a journal says."""
    rebuilt_from: str | None
    """The run whose journal says what a lost snapshot said."""
    forgotten: tuple[ForgottenRun, ...]
    """Runs whose work stays on the clusters, and in no record."""
    given_up: str | None
    """The run that is not gone on with, and is closed."""
    stored: Stored | None
    """The lockfile that is there."""
    lineage_was: str | None = None
    """What it says the state's identity is, where every snapshot says another one."""


def judge(store: ObjectStore, remains: Remains, owner: Owner, choice: Choice, *, lineage: str) -> Repair | None:
    """Return what would mend a state; `None` where nothing is wrong with it.

    `lineage` is the state's identity where nothing is left that says it.

    Raises:
        UserError: It is another's, of a newer version, or a person has to decide: the hint says how.
        LeaseError: Somebody holds the lease of a lockfile that is no old copy.
    """
    symptoms = find_symptoms(store, remains, owner)
    if not symptoms.problems:
        return None
    symptoms.check_unheld()
    there = symptoms.lockfile
    known = lineage_to_keep(store, remains, there) if there is not None else lineage
    judging = _Judging(store, remains, choice, known, symptoms.lockfile if symptoms.is_current else None)
    judging.check_owner(owner)
    base = judging.base()
    if there is not None and base.snapshot.lineage != known:
        message = f"{store.url}/{base.snapshot.key} belongs to lineage {base.snapshot.lineage}, the lockfile to {known}"
        raise UserError(message, hint=f"Files of two states were mixed: restore all files of one of them. {_STRANGER}")
    found = judging.repair(symptoms.problems, owner, base)
    return replace(found, lineage_was=there.lineage) if there is not None and there.lineage != known else found


def mend(store: ObjectStore, repair: Repair) -> str | None:
    """Write what was judged; return where the lockfile that was there is kept.

    Raises:
        LeaseError: Somebody wrote it meanwhile; it was left as they wrote it.
    """
    if repair.given_up is not None:
        with suppress(UserError):  # a journal that cannot be read cannot be gone on with either
            close_journal(store, repair.given_up, epoch=repair.lockfile.lease.epoch)
    if repair.body is not None and repair.lockfile.state is not None:
        keep_snapshot(store, repair.lockfile.state.key, repair.body)
    kept = _KEPT.format(nonce()) if repair.stored is not None else None
    if repair.stored is not None and kept is not None:
        store.swap(kept, repair.stored.body, expected=None)
    try:
        store.swap(KEY, repair.lockfile.to_bytes(), expected=repair.stored.version if repair.stored else None)
    except LostRaceError as error:
        raise LeaseError(
            f"{store.url}/{KEY} was written by another process in the meantime",
            hint="It was left as they wrote it. Look again: reconciler state repair",
        ) from error
    return kept


class _Judging:
    """One look at what is left, with what a person decided."""

    def __init__(
        self, store: ObjectStore, remains: Remains, choice: Choice, lineage: str, current: Lockfile | None
    ) -> None:
        """`current`: the lockfile, where what it says of lease and open run is so."""
        self._store = store
        self._remains = remains
        self._choice = choice
        self._lineage = lineage
        self._current = current
        self._last = last_run(store, remains)
        self._reached = reached(store, remains, self._last)

    def check_owner(self, owner: Owner) -> None:
        """Refuse a state whose runs were another's."""
        file = self._last.file if self._last is not None else None
        if file is not None:
            check_owner(Owner(file.workspace, file.environment), owner, self._store.url)

    def base(self) -> Base:
        """Return the state to go on from."""
        if self._choice.snapshot is not None:
            told = self._choice.snapshot
            return told_base(self._store, self._remains, told, self._reached, lineage=self._lineage)
        return newest_base(self._store, self._remains, self._last, self._reached, lineage=self._lineage)

    def repair(self, problems: tuple[str, ...], owner: Owner, base: Base) -> Repair:
        """Return what would mend it."""
        given_up, opened = self._given_up(base), None
        if given_up is None and self._last is not None:
            try:
                opened = self._taken_up(self._last, base)
            except NewerFormatError:
                raise
            except UserError as error:
                if self._choice.snapshot is None:
                    raise self._ask(self._last, base, error) from error
                given_up = self._last  # who names the state to go on from has said what to do without
        is_over = opened is None or opened.written.is_closed
        rebuilt = opened if is_over and opened is not None and _says_more(opened, base) else None
        state, body = self._state(base.snapshot, rebuilt)
        file = self._last.file if self._last is not None else None
        lockfile = Lockfile(
            lineage=base.snapshot.lineage,
            workspace=owner.workspace,
            environment=owner.environment,
            serial=base.snapshot.serial if body is None else self._reached.serial + 1,
            state=state,
            lease=LeaseEntry(epoch=self._remains.epoch + 1, status="free", beat=0, lease_s=Terms().lease_s),
            open_run=None if opened is None or is_over else _open(opened.file),
            nonce=nonce(),
            commit=file.git_commit if file is not None and file.command == "apply" else None,
        )
        return Repair(
            problems=problems,
            base=base.snapshot,
            lockfile=lockfile,
            body=body,
            rebuilt_from=rebuilt.file.run if rebuilt is not None else None,
            forgotten=self._forgotten(base.snapshot, given_up, opened),
            given_up=given_up.run if given_up is not None else None,
            stored=self._remains.stored,
        )

    def _given_up(self, base: Base) -> LastRun | None:
        """Return the run that wrote last, if a person gave it up: by name, or by going back further than it began.

        Raises:
            UserError: It cannot be gone on with, and nobody has decided yet.
        """
        last, is_told, named = self._last, self._choice.snapshot is not None, self._choice.without_run
        if named is not None and (last is None or last.run != named):
            message = f"run {named} is not the one that wrote last" + (f", that is {last.run}" if last else "")
            raise UserError(message, hint="Only that one can be given up: those before it are closed.")
        begun = last.begun if last is not None else 0
        if (last is None or named is not None) and base.damaged and not is_told:
            raise self._ask_for_snapshot(base)
        if begun > base.snapshot.serial and not is_told:
            raise self._ask_for_snapshot(base)
        return last if named is not None or begun > base.snapshot.serial else None

    def _taken_up(self, last: LastRun, base: Base) -> Unfinished | None:
        """Return the run that wrote last, unless all of it is in the base.

        Raises:
            UserError: It cannot be read.
        """
        if last.file is None:
            message = (
                f"what run {last.run} set out to do cannot be told, and it wrote last: its run.json is gone or cut"
            )
            raise UserError(message, hint=RESTORE)
        is_closed = read_journal(self._store, last.run).is_closed
        is_ended = last.end is not None and last.end.is_whole
        if is_ended and not is_closed:
            message = f"the journal of run {last.run} is cut short: the run ended, and its journal does not say so"
            raise UserError(message, hint=RESTORE)
        # What a closed run did may all be in the base, and its own base be gone by now.
        if is_closed and not base.damaged and (base.is_older or is_ended or not _is_of(last.file, base)):
            return None
        found = read_unfinished(self._store, last.file)
        if is_closed and base.damaged and self._choice.snapshot is None and not self._made_newest(last, found, base):
            raise self._ask_for_snapshot(base)
        return found

    def _made_newest(self, last: LastRun, closed: Unfinished, base: Base) -> bool:
        """Tell whether the newest state, which is lost, is surely of the run that wrote last, and of none after it.

        The files of a later run may be lost, too: then this one's journal says what the state was before.
        """
        if last.end is not None:
            return last.end.serial == self._reached.serial
        if self._current is not None and closed.file.epoch == self._current.lease.epoch:
            return True
        is_next = self._reached.serial == base.snapshot.serial + 1 and _is_of(closed.file, base)
        return is_next and closed.folded().record != base.snapshot.record

    def _ask(self, last: LastRun, base: Base, error: UserError) -> UserError:
        """Say that the run that wrote last cannot be read, and how to go on."""
        if base.damaged:
            return self._ask_for_snapshot(base)
        return UserError(
            error.message,
            hint=f"{RESTORE}. To go on without it, and adopt what it made where the files name it: "
            f"reconciler state repair --without-run {last.run}",
        )

    def _state(self, base: Snapshot, rebuilt: Unfinished | None) -> tuple[StatePointer | None, bytes | None]:
        """Return the state to point at, and its body where it is a new one: serials only grow."""
        top = self._reached.serial
        if rebuilt is not None:
            return encode_after(replace(base, serial=top), rebuilt.file.run, rebuilt.folded().record)
        if base.serial != top:
            return encode_after(replace(base, serial=top), base.run, base.record)
        return StatePointer(key=base.key, sha256=base.sha256, bytes=base.bytes) if base.serial else None, None

    def _forgotten(
        self, base: Snapshot, given_up: LastRun | None, opened: Unfinished | None
    ) -> tuple[ForgottenRun, ...]:
        """Return the runs whose work will stand in no record."""
        own = (ForgottenRun.of(given_up.file),) if given_up is not None and given_up.file is not None else ()
        if self._choice.snapshot is None:
            return own
        kept = opened.file.run if opened is not None else None
        later = runs_after(self._store, self._remains, base.serial)
        return tuple(run for run in later if run.run != kept) or own

    def _ask_for_snapshot(self, base: Base) -> UserError:
        why = base.damaged[0] if base.damaged else f"{self._store.url} has no state #{self._reached.serial} any more"
        runs = runs_after(self._store, self._remains, base.snapshot.serial)
        told = f", and forgets what {', '.join(map(str, runs))} did" if runs else ""
        return UserError(
            f"{why}, and no journal says what it said",
            hint=f"{RESTORE}. The newest state that can be read is #{base.snapshot.serial}; to continue from it{told}: "
            f"reconciler state repair --snapshot {base.snapshot.serial}",
        )


def _is_of(file: RunFile, base: Base) -> bool:
    """Tell whether a run began on a state or committed it, so that the next one may be its own, too."""
    return base.snapshot.run == file.run or base.snapshot.serial == file.base_serial


def _says_more(closed: Unfinished, base: Base) -> bool:
    """Tell whether the journal of a closed run says something that the base does not, and should."""
    is_its_own = bool(base.damaged) or _is_of(closed.file, base)
    return is_its_own and closed.folded().record != base.snapshot.record


def _open(file: RunFile) -> OpenRun:
    return OpenRun(run=file.run, plan_digest=file.plan_digest)
