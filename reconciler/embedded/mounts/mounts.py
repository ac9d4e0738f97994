"""Mount and unmount topics: begin, drive, cancel and list migrations.

Each state of a migration is committed before its repeatable work, so any process can continue with `finish`. A
migration that fails or takes too long is undone, unless a store does not answer or a lease is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import Ownership, check_claimable, list_valid_ownerships, read_ownership
from reconciler.archives.recoverable import find_topic_at
from reconciler.archives.storage import check_storage
from reconciler.embedded.acl import Kind, Operation
from reconciler.embedded.catalog.commits import GroupedCatalog
from reconciler.embedded.catalog.migration_tables import (
    INBOUND,
    MigrationRequest,
    apply_verb,
    begin_mount,
    begin_unmount,
    build_unmount_entry,
    check_mount_name,
    find_migration,
)
from reconciler.embedded.catalog.model import MigrantEntry, MigrationEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, map_names_by_id
from reconciler.embedded.maintenance.passes import Outcome, Spread, Upkeep
from reconciler.embedded.mounts.handover import MigrationContext
from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.lifecycles import BEFORE_EXECUTED, NEXT_VERBS, MigrationState
from reconciler.objectstore.register import create_mark
from reconciler.resources.base import format_duration
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.embedded.admin import Admin
    from reconciler.embedded.maintenance.chores import Chore, ChoreTask
    from reconciler.objectstore.base import ObjectStore


R = TypeVar("R")
_S = MigrationState

_THREADS: Final = 32
_UNDO_VERBS: Final = {
    _S.PLANNED: "delete",
    _S.PREPARING: "cancel",
    _S.PREPARED: "cancel",
    _S.EXECUTING: "cancel",
    _S.EXECUTED: "cancel",
    _S.CANCELLED: "delete",
}
_AUTO_VERBS: Final = {**NEXT_VERBS, MigrationState.FINISHED: "delete"}


class OverdueError(UserError):
    """A migration took longer than its timeout."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A topic to mount. `mounting` names the Mounting resource."""

    location: str
    name: str
    mounting: str | None = None


@dataclass(frozen=True)
class Mounts:
    """Migrations and mountable topics of one cluster. Thread-safe."""

    cluster: Admin
    may_go_on: Callable[[], None] = lambda: None
    """Called before every write, from any thread; may raise."""
    spread: Spread | None = field(default=None, repr=False)
    flushed: Callable[[int], object] = lambda _stored: None
    """Called with the bytes of each upload."""

    def unmount(self, *full_names: str, mounting: str | None = None, is_automatic: bool = True) -> int:
        """Record an unmount of topics; return the migration's id. `finish` drives it."""
        request = self.make_request(is_automatic=is_automatic)
        begun = 0

        def decide(draft: Draft) -> None:
            nonlocal begun
            for name in full_names:
                self._check_allowed(draft, Operation.DELETE, name)
            begun = begin_unmount(
                draft, dict.fromkeys(full_names, mounting), request, cluster_id=self.cluster.cluster_id
            )

        self.cluster.catalog.commit(decide)
        return begun

    def mount(self, *mounts: Mount, is_automatic: bool = True) -> int:
        """Record a mount of topics; return the migration's id. `finish` drives it.

        Raises:
            OwnershipLostError: A topic is not detached.
        """
        check_storage(self._require_storage(), self.cluster.catalog.read().cluster.storage_id)
        migrants, request = (
            [self.build_mount_entry(mount) for mount in mounts],
            self.make_request(is_automatic=is_automatic),
        )
        begun = 0

        def decide(draft: Draft) -> None:
            nonlocal begun
            for migrant in migrants:
                self._check_allowed(draft, Operation.CREATE, migrant.name)
            begun = begin_mount(draft, migrants, request, cluster_id=self.cluster.cluster_id)

        self.cluster.catalog.commit(decide)
        return begun

    def make_request(self, *, is_automatic: bool = True) -> MigrationRequest:
        """Return the options of a new migration."""
        return MigrationRequest(create_mark(), self.cluster.now_ms(), is_automatic)

    def build_mount_entry(self, mount: Mount) -> MigrantEntry:
        """Return a migration's entry for a detached topic, with a new topic id."""
        storage = self._require_storage()
        location = find_topic_at(storage, TopicLocation.parse(mount.location)).location
        check_claimable(location, read_ownership(storage, location), None)
        return MigrantEntry(mount.name, self.cluster.fresh_id(), str(location), mount.mounting)

    def find_obstacles(self, direction: str, full_names: Iterable[str]) -> dict[str, ReconcilerError]:
        """Return errors that prevent mounting or unmounting, by topic name."""
        catalog = self.cluster.catalog.read()
        errors: dict[str, ReconcilerError] = {}
        for name in full_names:
            try:
                if direction == INBOUND:
                    self._check_allowed(catalog, Operation.CREATE, name)
                    check_mount_name(catalog, name)
                else:
                    self._check_allowed(catalog, Operation.DELETE, name)
                    build_unmount_entry(catalog, name, None, self.cluster.cluster_id)
            except ReconcilerError as error:
                errors[name] = error
        return errors

    def prepare(self, migration: int) -> None:
        """Drive a new migration until it is prepared; undo it on failure."""
        begun = self.ask(migration, "prepare")
        try:
            self.drive(migration)
        except UserError as error:
            if _undo_if_possible(self, migration, is_overdue=False):
                raise _undone_error(error, migration, begun) from error
            raise

    def drive_to_end(self, migration: int) -> None:
        """Drive a migration to its end."""
        while (current := self.drive(migration)) is not None:
            verb = _AUTO_VERBS.get(MigrationState(current.state))
            if verb is None:
                message = f"migration {migration} is {current.state}"
                raise UserError(message, hint=f"Drop its record: reconciler mount delete {migration}")
            if self.ask(migration, verb).state == _S.GONE:
                return

    def list_unfinished(self) -> dict[int, MigrationEntry]:
        """Return recorded migrations by id."""
        return list_migrations(self.cluster.catalog.read())

    def ask(self, migration: int, verb: str) -> MigrationEntry:
        """Apply `prepare`, `execute`, `finish`, `cancel` or `delete`; return the changed migration."""
        answers: list[MigrationEntry] = []

        def decide(draft: Draft) -> None:
            current = find_migration(draft, migration)
            for topic in current.topics:
                self._check_allowed(
                    draft, Operation.CREATE if current.direction == INBOUND else Operation.DELETE, topic.name
                )
            answers[:] = [apply_verb(draft, migration, verb)]

        self.cluster.catalog.commit(decide, may_go_on=self.may_go_on)
        return answers[0]

    def cancel(self, migration: int) -> None:
        """Cancel and undo a migration."""
        self.ask(migration, "cancel")
        self.drive(migration)

    def drive(self, migration: int) -> MigrationEntry | None:
        """Drive a migration until it waits for a request; `None` if complete."""
        from reconciler.embedded.mounts.inbound import InboundSteps  # noqa: PLC0415 - brings Arrow
        from reconciler.embedded.mounts.outbound import OutboundSteps  # noqa: PLC0415 - as above

        is_checked = False
        while True:
            current = self.cluster.catalog.read().migrations.get(str(migration))
            if current is None:
                return None
            state = MigrationState(current.state)
            if state is MigrationState.CANCELLED:
                return current
            verb = _AUTO_VERBS.get(state)
            if verb is not None:
                if not current.is_automatic:
                    return current
                self._request_if_unchanged(migration, current, verb)
                continue
            kind, means = InboundSteps if current.direction == INBOUND else OutboundSteps, self._make_context()
            is_catalog_alone = kind is OutboundSteps and state is MigrationState.CANCELING
            if not (is_checked or is_catalog_alone):
                check_storage(means.storage, self.cluster.catalog.get_cached().cluster.storage_id)
                is_checked = True
            kind(means, migration, current).run_state(state)

    def finish(
        self, is_wanted: Callable[[str], bool] = lambda _full_name: True
    ) -> Mapping[int, ReconcilerError | None]:
        """Drive migrations of wanted topics in parallel; return each one's error or `None`, by id."""
        wanted = [
            number
            for number, migration in self.list_unfinished().items()
            if MigrationState(migration.state) is not MigrationState.CANCELLED
            and any(is_wanted(topic.name) for topic in migration.topics)
        ]
        return drive_in_parallel(
            self, wanted, partial(drive_catching_error, lambda mounts, number: mounts.drive(number))
        )

    def list_detached(self) -> list[Ownership]:
        """Return the ownership of every topic ever detached, by location."""
        storage = self._require_storage()
        check_storage(storage, self.cluster.catalog.get_cached().cluster.storage_id)
        return list_valid_ownerships(storage)

    def _request_if_unchanged(self, migration: int, expected: MigrationEntry, verb: str) -> None:
        def decide(draft: Draft) -> None:
            if draft.migrations.get(str(migration)) == expected:
                apply_verb(draft, migration, verb)

        self.cluster.catalog.commit(decide, may_go_on=self.may_go_on)

    def _make_context(self) -> MigrationContext:
        cluster, remote = self.cluster, self.cluster.remote
        if remote is None:
            raise _no_storage_error()
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

    def _require_storage(self) -> ObjectStore:
        remote = self.cluster.remote
        if remote is None:
            raise _no_storage_error()
        return remote.storage

    def _check_allowed(self, catalog: Catalog | Draft, operation: Operation, full_name: str) -> None:
        self.cluster.permissions.check_allowed(catalog, operation, Kind.TOPIC, full_name)


def list_migrations(catalog: Catalog) -> dict[int, MigrationEntry]:
    """Return a catalog's migrations by id, oldest first."""
    return {number: catalog.migrations[str(number)] for number in sorted(map(int, catalog.migrations))}


def drive_in_parallel(mounts: Mounts, migrations: Sequence[int], drive: Callable[[Mounts, int], R]) -> dict[int, R]:
    """Drive migrations in parallel; return the results of `drive` by id.

    Commits share swaps. Topics are uploaded one at a time.
    """
    if len(migrations) < 2:  # noqa: PLR2004 - a single one needs no threads
        return {number: drive(mounts, number) for number in migrations}
    cluster = copy(mounts.cluster)
    cluster.catalog = GroupedCatalog(cluster.store, cluster.catalog)
    shared = replace(mounts, cluster=cluster, spread=_serialize_spread(mounts.spread))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="migration") as threads:
        results = threads.map(lambda number: drive(shared, number), migrations)
        return dict(zip(migrations, results, strict=True))


def drive_or_undo(mounts: Mounts, migration: int, timeout_ms: int | None = None) -> None:
    """Complete a migration; undo it if it fails, or takes longer than `timeout_ms`.

    An executed migration is completed despite the timeout. From `cut_over` on, it cannot be undone.
    """
    begun = mounts.cluster.catalog.read().migrations.get(str(migration))
    if begun is None:
        return
    bound = _TimeoutCheck(mounts, migration, timeout_ms, mounts.cluster.now_ms())
    try:
        replace(mounts, may_go_on=bound).drive(migration)
    except UserError as error:
        if mounts.cluster.remote is None:
            raise  # The migration cannot be undone without object storage.
        try:
            is_undone = _undo_if_possible(mounts, migration, is_overdue=isinstance(error, OverdueError))
        except RetryableError as trouble:
            message = f"{error.message}; migration {migration} is not undone yet: {trouble.message}"
            hint = "Continue with: reconciler run --once --only migrations"
            raise RetryableError(message, hint=hint) from trouble
        if is_undone:
            raise _undone_error(error, migration, begun) from error
        if not isinstance(error, OverdueError):
            raise
        mounts.drive(migration)
    _check_completed(mounts.cluster.catalog.read(), migration, begun)


@dataclass(frozen=True)
class _TimeoutCheck:
    """A `may_go_on` that raises `OverdueError` while undoing is possible."""

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
        current = self.mounts.cluster.catalog.get_cached().migrations.get(str(self.migration))
        if current is not None and MigrationState(current.state) in BEFORE_EXECUTED:
            message = f"migration {self.migration} is still {current.state} after {format_duration(self.timeout_ms)}"
            raise OverdueError(message, hint="Give it more spec.timeout, or find out what is slow, and apply again.")


def _undo_if_possible(mounts: Mounts, migration: int, *, is_overdue: bool) -> bool:
    for _ in _S:
        current = mounts.cluster.catalog.read().migrations.get(str(migration))
        state = _S.GONE if current is None else _S(current.state)
        if state is _S.GONE or (state is _S.EXECUTED and is_overdue):
            return False
        verb = _UNDO_VERBS.get(state)
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
    message = f"migration {migration} is not cancelled yet: other processes drive it, too"
    raise RetryableError(message, hint="See its progress: reconciler mount status")


def _undone_error(why: UserError, migration: int, begun: MigrationEntry) -> UserError:
    error = copy(why)
    left = "nothing is mounted" if begun.direction == INBOUND else "the topic is here, as it was"
    error.message = f"{why.message}; migration {migration} was cancelled, and {left}"
    return error


def _check_completed(catalog: Catalog, migration: int, begun: MigrationEntry) -> None:
    existing = map_names_by_id(catalog, {topic.topic_id for topic in begun.topics})
    left, is_inbound = catalog.migrations.get(str(migration)), begun.direction == INBOUND
    if left is None and len(existing) == (len(begun.topics) if is_inbound else 0):
        return
    what = "mounted" if is_inbound else "unmounted"
    why = (
        "was cancelled"
        if left is None or left.state == _S.CANCELLED
        else f"is {left.state} until the next step is requested"
    )
    message = f"{', '.join(topic.name for topic in begun.topics)} is not {what}: migration {migration} {why}"
    raise UserError(message, hint="Plan again, if it is still wanted.")


def _serialize_spread(spread: Spread | None) -> Spread:
    turn = threading.Lock()

    def in_turn(chores: Sequence[Chore], task: ChoreTask) -> Iterator[Sequence[Outcome]]:
        from reconciler.embedded.maintenance.chores import run_chores_here  # noqa: PLC0415 - brings Arrow

        with turn:
            yield from (run_chores_here if spread is None else spread)(chores, task)

    return in_turn


def drive_catching_error(
    drive: Callable[[Mounts, int], object], mounts: Mounts, migration: int
) -> ReconcilerError | None:
    """Call `drive`; return its error, or `None`."""
    try:
        drive(mounts, migration)
    except ReconcilerError as error:
        return error
    return None


def _no_storage_error() -> UserError:
    message = "the cluster has no object storage: nothing can be mounted or unmounted"
    return UserError(message, hint="Declare objectStorage on the Cluster, and apply that first.")
