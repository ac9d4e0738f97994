"""Migrations driven to their end: many side by side, and each undone where it cannot get there or takes too long.

What a store does not answer, and a lease that is lost, leave a migration where it is: whoever comes next goes on.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.embedded.catalog.grouping import GroupedCatalog
from reconciler.embedded.catalog.lookups import names_by_id
from reconciler.embedded.catalog.migrations import INBOUND
from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.lifecycles.mounting import BEFORE_EXECUTED, MigrationState
from reconciler.resources.quantities import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reconciler.embedded.catalog.migrationentries import MigrationEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.mounting.mounts import Mounts
    from reconciler.embedded.upkeep.chores import Chore
    from reconciler.embedded.upkeep.choretasks import ChoreTask
    from reconciler.embedded.upkeep.passes import Outcome, Spread

R = TypeVar("R")
_S = MigrationState

_AT_ONCE: Final = 32
_UNDONE_BY: Final = {
    _S.PLANNED: "delete",
    _S.PREPARING: "cancel",
    _S.PREPARED: "cancel",
    _S.EXECUTING: "cancel",
    _S.EXECUTED: "cancel",
    _S.CANCELLED: "delete",
}


class OverdueError(UserError):
    """A migration takes longer than whoever asked for it would wait."""


def side_by_side(mounts: Mounts, migrations: Sequence[int], drive: Callable[[Mounts, int], R]) -> dict[int, R]:
    """Return what `drive` says of each migration, by id: many at a time, their commits together in few swaps.

    What is much to upload is uploaded one topic after the other: it takes all threads, or executors, by itself.
    """
    if len(migrations) < 2:  # noqa: PLR2004 - one alone needs neither threads nor others to commit with
        return {number: drive(mounts, number) for number in migrations}
    cluster = copy(mounts.cluster)
    cluster.catalog = GroupedCatalog(cluster.store, cluster.catalog)
    shared = replace(mounts, cluster=cluster, spread=_one_at_a_time(mounts.spread))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="migration") as threads:
        found = threads.map(lambda number: drive(shared, number), migrations)
        return dict(zip(migrations, found, strict=True))


def drive_or_undo(mounts: Mounts, migration: int, timeout_ms: int | None = None) -> None:
    """Bring a migration to its end. What cannot get there, or takes longer than `timeout_ms`, is undone.

    Undone is cancelled, and its record deleted. From `cut_over` on nothing is, and what was executed is never too late.

    Raises:
        UserError: It is undone, or where that is not legal any more left where it is; says why.
        RetryableError: A store does not answer: it stays where it is. As `LeaseError`, by `may_go_on`.
    """
    begun = mounts.cluster.catalog.read().migrations.get(str(migration))
    if begun is None:
        return
    bound = _Bound(mounts, migration, timeout_ms, mounts.cluster.now_ms())
    try:
        replace(mounts, may_go_on=bound).drive(migration)
    except UserError as error:
        if mounts.cluster.remote is None:
            raise  # Nothing can be undone without object storage.
        try:
            is_undone = _undo(mounts, migration, is_overdue=isinstance(error, OverdueError))
        except RetryableError as trouble:
            message = f"{error.message}; migration {migration} is not undone yet: {trouble.message}"
            hint = "Go on with: reconciler run --once --only migrations"
            raise RetryableError(message, hint=hint) from trouble
        if is_undone:
            raise _undone(error, migration, begun) from error
        if not isinstance(error, OverdueError):
            raise
        mounts.drive(migration)  # Too late to stop it.
    _check_done(mounts.cluster.catalog.read(), migration, begun)


@dataclass(frozen=True)
class _Bound:
    """Asks whoever drives whether to go on, and the clock, as long as a migration may be stopped."""

    mounts: Mounts
    migration: int
    timeout_ms: int | None
    began_ms: int

    def __call__(self) -> None:
        self.mounts.may_go_on()
        if (
            self.timeout_ms is None
            or self.timeout_ms < 0
            or self.mounts.cluster.now_ms() - self.began_ms <= self.timeout_ms
        ):
            return
        found = self.mounts.cluster.catalog.known().migrations.get(str(self.migration))
        if found is not None and MigrationState(found.state) in BEFORE_EXECUTED:  # What was executed is finished.
            message = f"migration {self.migration} is still {found.state} after {format_duration(self.timeout_ms)}"
            raise OverdueError(message, hint="Give it more spec.timeout, or find out what is slow, and apply again.")


def _undo(mounts: Mounts, migration: int, *, is_overdue: bool) -> bool:
    """Cancel a migration and delete its record; `False`: it came to a state from which it only goes on.

    Raises:
        RetryableError: It is not undone yet: whoever comes next goes on.
    """
    for _ in _S:
        found = mounts.cluster.catalog.read().migrations.get(str(migration))
        state = _S.GONE if found is None else _S(found.state)
        if state is _S.GONE or (state is _S.EXECUTED and is_overdue):
            return False
        verb = _UNDONE_BY.get(state)
        try:
            if state is _S.CANCELING:
                mounts.drive(migration)
            elif verb is None:
                return False
            elif mounts.ask(migration, verb).state == _S.GONE:
                return True
        except UserError:
            after = mounts.cluster.catalog.read().migrations.get(str(migration))
            if after is not None and after.state == state:
                raise
    message = f"migration {migration} is not cancelled yet: others drive it, too"
    raise RetryableError(message, hint="Look where it is: reconciler mount status")


def _undone(why: UserError, migration: int, begun: MigrationEntry) -> UserError:
    told = copy(why)
    left = "nothing is mounted" if begun.direction == INBOUND else "the topic is here, as it was"
    told.message = f"{why.message}; migration {migration} was cancelled, and {left}"
    return told


def _check_done(catalog: Catalog, migration: int, begun: MigrationEntry) -> None:
    """Refuse what came to another end than it was to: others may have cancelled it, and deleted its record."""
    there = names_by_id(catalog, {topic.topic_id for topic in begun.topics})
    left, is_inbound = catalog.migrations.get(str(migration)), begun.direction == INBOUND
    if left is None and len(there) == (len(begun.topics) if is_inbound else 0):
        return
    what = "mounted" if is_inbound else "unmounted"
    why = "was cancelled" if left is None or left.state == _S.CANCELLED else f"is {left.state} until somebody moves it"
    message = f"{', '.join(topic.name for topic in begun.topics)} is not {what}: migration {migration} {why}"
    raise UserError(message, hint="Plan again, if it is to be done all the same.")


def _one_at_a_time(spread: Spread | None) -> Spread:
    """Return a spread that does the work of one caller after that of another."""
    turn = threading.Lock()

    def in_turn(chores: Sequence[Chore], task: ChoreTask) -> Iterator[Sequence[Outcome]]:
        from reconciler.embedded.upkeep.choretasks import do_here  # noqa: PLC0415 - brings Arrow

        with turn:
            yield from (do_here if spread is None else spread)(chores, task)

    return in_turn


def error_of(drive: Callable[[Mounts, int], object], mounts: Mounts, migration: int) -> ReconcilerError | None:
    """Return what kept a migration from its end."""
    try:
        drive(mounts, migration)
    except ReconcilerError as error:
        return error
    return None
