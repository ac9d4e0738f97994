"""Mountable topics of a cluster: begin, drive, cancel and list migrations.

A migration is a record in the catalog. Each state is committed before its work begins, and the work may be repeated, so
whoever calls `finish` next, in whatever process, goes on where somebody died. Many go side by side, and one that cannot
get to its end, or takes too long, is undone. Where a store does not answer, or a lease is lost, it stays where it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import (
    Ownership,
    check_claimable,
    read_ownership,
    sound_ownerships,
)
from reconciler.archives.recoverable import located
from reconciler.archives.storage import check_storage
from reconciler.embedded.acl import Kind, Operation
from reconciler.embedded.catalog.commits import GroupedCatalog
from reconciler.embedded.catalog.migration_tables import (
    INBOUND,
    MigrationRequest,
    ask,
    begin_mount,
    begin_unmount,
    check_coming,
    leaving,
    migration_with,
)
from reconciler.embedded.catalog.model import MigrantEntry, MigrationEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, names_by_id
from reconciler.embedded.maintenance.passes import Outcome, Spread, Upkeep
from reconciler.embedded.mounts.handover import MigrationContext
from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.lifecycles import ADVANCES, BEFORE_EXECUTED, MigrationState
from reconciler.objectstore.register import fresh_mark
from reconciler.resources.base import format_duration

if TYPE_CHECKING:
    from reconciler.embedded.admin import Admin
    from reconciler.embedded.maintenance.chores import Chore, ChoreTask
    from reconciler.objectstore.base import ObjectStore


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
_BY_ITSELF: Final = {**ADVANCES, MigrationState.FINISHED: "delete"}
"""What auto-advance asks for in the states that wait to be told."""


class OverdueError(UserError):
    """A migration takes longer than whoever asked for it would wait."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One topic to be mounted: its location, the full name it gets here, and the Mounting that asks for it."""

    location: str
    name: str
    mounting: str | None = None


@dataclass(frozen=True)
class Mounts:
    """The migrations of one cluster, and what lies mountable in its object storage. Safe to share between threads."""

    cluster: Admin
    may_go_on: Callable[[], None] = lambda: None
    """Asked before every write, from any thread; may raise, and the next process goes on."""
    spread: Spread | None = field(default=None, repr=False)
    """Where much is uploaded; `None`: in threads of this process."""
    flushed: Callable[[int], object] = lambda _stored: None
    """Told, from any thread, of the stored bytes that unmounting uploads."""

    def unmount(self, *full_names: str, mounting: str | None = None, is_automatic: bool = True) -> int:
        """Plan to detach topics, and return the migration's id; `finish` does it.

        Raises:
            UserError: One does not exist, is not tiered, is a mirror, or is migrating already.
        """
        asked = self.asked(is_automatic=is_automatic)
        begun = 0

        def decide(draft: Draft) -> None:
            nonlocal begun
            for name in full_names:
                self._check(draft, Operation.DELETE, name)
            begun = begin_unmount(draft, dict.fromkeys(full_names, mounting), asked, cluster_id=self.cluster.cluster_id)

        self.cluster.catalog.commit(decide)
        return begun

    def mount(self, *mounts: Mount, is_automatic: bool = True) -> int:
        """Plan to attach topics, and return the migration's id; `finish` does it.

        Raises:
            InvalidNamespaceError: A namespace does not exist.
            OwnershipLostError: A topic is not detached.
            UserError: There is no such location, or a name is taken.
        """
        check_storage(self._storage(), self.cluster.catalog.read().cluster.storage_id)
        migrants, asked = [self.migrant(mount) for mount in mounts], self.asked(is_automatic=is_automatic)
        begun = 0

        def decide(draft: Draft) -> None:
            nonlocal begun
            for migrant in migrants:
                self._check(draft, Operation.CREATE, migrant.name)
            begun = begin_mount(draft, migrants, asked, cluster_id=self.cluster.cluster_id)

        self.cluster.catalog.commit(decide)
        return begun

    def asked(self, *, is_automatic: bool = True) -> MigrationRequest:
        """Return the frame of a new migration."""
        return MigrationRequest(fresh_mark(), self.cluster.now_ms(), is_automatic)

    def migrant(self, mount: Mount) -> MigrantEntry:
        """Return a topic to be mounted under a new id, having looked that it is there and nobody's.

        Raises:
            OwnershipLostError: It is not detached; names who has it.
            UserError: There is no such location.
        """
        storage = self._storage()
        found = located(storage, TopicLocation.parse(mount.location)).location
        check_claimable(found, read_ownership(storage, found), None)
        return MigrantEntry(mount.name, self.cluster.fresh_id(), str(found), mount.mounting)

    def unfit(self, direction: str, full_names: Iterable[str]) -> dict[str, ReconcilerError]:
        """Return why topics cannot be mounted or unmounted by those names, as the catalog is now."""
        catalog = self.cluster.catalog.read()
        found: dict[str, ReconcilerError] = {}
        for name in full_names:
            try:
                if direction == INBOUND:
                    self._check(catalog, Operation.CREATE, name)
                    check_coming(catalog, name)
                else:
                    self._check(catalog, Operation.DELETE, name)
                    leaving(catalog, name, None, self.cluster.cluster_id)
            except ReconcilerError as error:
                found[name] = error
        return found

    def prepare(self, migration: int) -> None:
        """Bring a migration that was just begun to where it is prepared; one that cannot get there is undone.

        Raises:
            UserError: It is undone; says why.
            RetryableError: A store does not answer: it stays where it is.
        """
        begun = self.ask(migration, "prepare")
        try:
            self.drive(migration)
        except UserError as error:
            if _undo(self, migration, is_overdue=False):
                raise _undone(error, migration, begun) from error
            raise

    def conclude(self, migration: int) -> None:
        """Bring a migration to its end, from wherever it is, asking for each step; its record goes with it.

        Raises:
            UserError: It was cancelled, or cannot go on: it stays where it is.
            RetryableError: A store does not answer: it stays where it is.
        """
        while (found := self.drive(migration)) is not None:
            verb = _BY_ITSELF.get(MigrationState(found.state))
            if verb is None:
                message = f"migration {migration} is {found.state}"
                raise UserError(message, hint=f"Drop its record: reconciler mount delete {migration}")
            if self.ask(migration, verb).state == _S.GONE:
                return

    def under_way(self) -> dict[int, MigrationEntry]:
        """Return the migrations there is a record of, by id."""
        return migrations_in(self.cluster.catalog.read())

    def ask(self, migration: int, verb: str) -> MigrationEntry:
        """Ask for `prepare`, `execute`, `finish`, `cancel` or `delete`, and return what the migration is then.

        Raises:
            UserError: There is none, or that is not legal in its state: it says what is.
        """
        asked: list[MigrationEntry] = []

        def decide(draft: Draft) -> None:
            found = migration_with(draft, migration)
            for topic in found.topics:
                self._check(draft, Operation.CREATE if found.direction == INBOUND else Operation.DELETE, topic.name)
            asked[:] = [ask(draft, migration, verb)]  # It decides anew where another commit was faster.

        self.cluster.catalog.commit(decide, may_go_on=self.may_go_on)
        return asked[0]

    def cancel(self, migration: int) -> None:
        """Cancel a migration and undo what it did: an unmounted topic is open again, a mounted one gone.

        Raises:
            UserError: There is none, or it is too late, or too early.
        """
        self.ask(migration, "cancel")
        self.drive(migration)

    def drive(self, migration: int) -> MigrationEntry | None:
        """Bring one migration as far as it goes by itself; `None`: it is done, and its record gone.

        Raises:
            UserError: It cannot go on as things are; says what it needs.
            RetryableError: A store does not answer.
        """
        from reconciler.embedded.mounts.inbound import Inbound  # noqa: PLC0415 - brings Arrow
        from reconciler.embedded.mounts.outbound import Outbound  # noqa: PLC0415 - as above

        is_checked = False
        while True:
            found = self.cluster.catalog.read().migrations.get(str(migration))
            if found is None:
                return None
            state = MigrationState(found.state)
            if state is MigrationState.CANCELLED:
                return found
            verb = _BY_ITSELF.get(state)
            if verb is not None:
                if not found.is_automatic:
                    return found
                self._advance(migration, found, verb)
                continue
            kind, means = Inbound if found.direction == INBOUND else Outbound, self._means()
            is_catalog_alone = kind is Outbound and state is MigrationState.CANCELING
            if not (is_checked or is_catalog_alone):
                check_storage(means.storage, self.cluster.catalog.known().cluster.storage_id)
                is_checked = True
            kind(means, migration, found).work(state)

    def finish(
        self, is_wanted: Callable[[str], bool] = lambda _full_name: True
    ) -> Mapping[int, ReconcilerError | None]:
        """Drive every migration of topics that are wanted, by full name; return what kept each from its end, by id.

        They go side by side: one that fails keeps no other from its end.
        """
        wanted = [
            number
            for number, migration in self.under_way().items()
            if MigrationState(migration.state) is not MigrationState.CANCELLED
            and any(is_wanted(topic.name) for topic in migration.topics)
        ]
        return side_by_side(self, wanted, partial(error_of, lambda mounts, number: mounts.drive(number)))

    def mountable(self) -> list[Ownership]:
        """Return every topic that was ever detached in this object storage, whoever has it now, sorted by location.

        Raises:
            UserError: A register is damaged.
        """
        storage = self._storage()
        check_storage(storage, self.cluster.catalog.known().cluster.storage_id)
        return sound_ownerships(storage)

    def _advance(self, migration: int, found: MigrationEntry, verb: str) -> None:
        """Ask for what auto-advance asks for; where somebody was faster, nothing."""

        def decide(draft: Draft) -> None:
            if draft.migrations.get(str(migration)) == found:
                ask(draft, migration, verb)

        self.cluster.catalog.commit(decide, may_go_on=self.may_go_on)

    def _means(self) -> MigrationContext:
        cluster, remote = self.cluster, self.cluster.remote
        if remote is None:
            raise _no_storage()
        upkeep = Upkeep(
            cluster.store,
            cluster.catalog,
            cluster.cluster_id,
            cluster.now_ms,
            storage=cluster.storage,
            may_go_on=self.may_go_on,
        )
        return MigrationContext(
            cluster.store,
            cluster.catalog,
            cluster.cluster_id,
            remote,
            upkeep,
            cluster.now_ms,
            self.may_go_on,
            self.spread,
            self.flushed,
        )

    def _storage(self) -> ObjectStore:
        remote = self.cluster.remote
        if remote is None:
            raise _no_storage()
        return remote.storage

    def _check(self, catalog: Catalog | Draft, operation: Operation, full_name: str) -> None:
        self.cluster.permissions.check(catalog, operation, Kind.TOPIC, full_name)


def migrations_in(catalog: Catalog) -> dict[int, MigrationEntry]:
    """Return the migrations of a catalog by id, oldest first."""
    return {number: catalog.migrations[str(number)] for number in sorted(map(int, catalog.migrations))}


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
    why = (
        "was cancelled"
        if left is None or left.state == _S.CANCELLED
        else f"is {left.state} until the next step is asked for"
    )
    message = f"{', '.join(topic.name for topic in begun.topics)} is not {what}: migration {migration} {why}"
    raise UserError(message, hint="Plan again, if it is to be done all the same.")


def _one_at_a_time(spread: Spread | None) -> Spread:
    """Return a spread that does the work of one caller after that of another."""
    turn = threading.Lock()

    def in_turn(chores: Sequence[Chore], task: ChoreTask) -> Iterator[Sequence[Outcome]]:
        from reconciler.embedded.maintenance.chores import do_here  # noqa: PLC0415 - brings Arrow

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


def _no_storage() -> UserError:
    message = "the cluster has no object storage: nothing can be mounted or unmounted"
    return UserError(message, hint="Declare objectStorage on the Cluster, and apply that first.")
