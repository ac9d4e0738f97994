"""`state repair`: make a lockfile anew from what is beside it, under an epoch that nobody has had.

Judging changes nothing, and is shown first. What was there is kept beside the new lockfile, which goes in by
compare-and-swap: whoever wrote meanwhile is right.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import LeaseError, LostRaceError, NewerFormatError, UserError
from reconciler.objectstore.nonces import nonce
from reconciler.state.forgetting import ForgottenRun, runs_after
from reconciler.state.journal import close_journal, read_journal
from reconciler.state.lineages import lineage_to_keep
from reconciler.state.lockfile import KEY, LeaseEntry, Lockfile, OpenRun, Owner, StatePointer, check_owner
from reconciler.state.openrun import read_unfinished
from reconciler.state.salvage import RESTORE, Base, LastRun, last_run, newest_base, reached, told_base
from reconciler.state.snapshots import encode_after
from reconciler.state.swaps import keep_snapshot
from reconciler.state.symptoms import find_symptoms
from reconciler.state.terms import Terms

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, Stored
    from reconciler.state.openrun import Unfinished
    from reconciler.state.remains import Remains
    from reconciler.state.runs import RunFile
    from reconciler.state.snapshots import Snapshot

_KEPT: Final = "lockfile.damaged-{}.json"
_STRANGER: Final = (
    f"Where only {KEY} is the other one's, move it away and make it anew from what is beside it: "
    "reconciler state repair"
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
        UserError: It is somebody else's, of a newer version, or a person has to decide: the hint says how.
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
        raise UserError(message, hint=f"Files of two states were mixed: restore all of one of them. {_STRANGER}")
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
            f"{store.url}/{KEY} was written by somebody else meanwhile",
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
        """Refuse a state whose runs were somebody else's."""
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
        lockfile = Lockfile(
            lineage=base.snapshot.lineage,
            workspace=owner.workspace,
            environment=owner.environment,
            serial=base.snapshot.serial if body is None else self._reached.serial + 1,
            state=state,
            lease=LeaseEntry(epoch=self._remains.epoch + 1, status="free", beat=0, lease_s=Terms().lease_s),
            open_run=None if opened is None or is_over else _open(opened.file),
            nonce=nonce(),
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
            hint=f"{RESTORE}. The newest state that can be read is #{base.snapshot.serial}; to go on from it{told}: "
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
