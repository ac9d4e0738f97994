"""A run that has begun and not closed: what it set out to do, and how far its journal says it came."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from reconciler.errors import UserError
from reconciler.planning.document.stored import read_action
from reconciler.state.entries import ActionEnded, Detached, TakenOver
from reconciler.state.folding import Folded, fold_run
from reconciler.state.journal import Written, read_journal
from reconciler.state.runs import RunFile, read_end, require_run
from reconciler.state.snapshots import read_base

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.objectstore.base import ObjectStore
    from reconciler.planning.actions import Action
    from reconciler.resources.inventory import Record
    from reconciler.state.entries import Entry
    from reconciler.state.lockfile import Lockfile
    from reconciler.state.runs import RunEnd

Parting: TypeAlias = Literal["stopped", "detached"]
"""`stopped`: somebody asked for its end. `detached`: it was told to leave the rest to another."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An open run, with everything that is needed to settle it."""

    file: RunFile
    base: Record
    """What was recorded when it began."""
    actions: tuple[Action, ...]
    written: Written
    end: RunEnd | None = None
    """What it said of its end, if it came to that."""

    @property
    def parting(self) -> Parting | None:
        """How it left what is left; `None` where it was cut off: it crashed, or its journal could not be written."""
        last = next((entry for entry in reversed(self.written.entries) if not isinstance(entry, TakenOver)), None)
        if not isinstance(last, Detached):
            return None
        return "detached" if self.end is not None and self.end.status == "detached" else "stopped"

    def folded(self, *, further: Sequence[Entry] = ()) -> Folded:
        """Return where it stands; `further` entries count as if they were written."""
        return fold_run(self.base, self.actions, self.written, further)

    def after(self, written: Written) -> Unfinished:
        """Return it with more of its journal."""
        return replace(self, written=written)


def read_open_run(store: ObjectStore, lockfile: Lockfile) -> Unfinished | None:
    """Return the run that a lockfile says is open; reads its file, its base and its journal.

    Raises:
        UserError: Something of it is missing or damaged, or belongs to another state.
    """
    opened = lockfile.open_run
    if opened is None:
        return None
    file = require_run(store, opened.run)
    if file.plan_digest != opened.plan_digest or file.base_serial > lockfile.serial:
        raise UserError(
            f"{store.url}: the files of run {file.run} do not belong to this state: it began on #{file.base_serial}, "
            f"and the state is #{lockfile.serial}",
            hint="Files of two states were mixed. `reconciler state repair` says what fits.",
        )
    return read_unfinished(store, file)


def read_unfinished(store: ObjectStore, file: RunFile) -> Unfinished:
    """Return a run with its base and its journal, closed or not.

    Raises:
        UserError: One of them is missing or damaged.
    """
    base = read_base(store, file.base_serial, file.base_sha256)
    written = read_journal(store, file.run)
    end = read_end(store, file.run)
    _check_not_cut(written, end)
    return Unfinished(file, base, tuple(read_action(each) for each in file.actions), written, end)


def _check_not_cut(written: Written, end: RunEnd | None) -> None:
    """Refuse a journal that says less than its run said of its end: going on from it would undo what is recorded."""
    if end is None:
        return
    known = {entry.id for entry in written.entries if isinstance(entry, ActionEnded)}
    lost = [action for action in end.done if action not in known]
    if lost:
        raise UserError(
            f"the journal of run {written.run} is cut short: it does not know of {lost[0]}, which was done"
            + (f", and of {len(lost) - 1} more" if lost[1:] else ""),
            hint="Restore what is missing from a backup or the bucket's versions; `reconciler state repair` goes on "
            "without.",
        )
