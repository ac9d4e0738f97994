"""Mounts and unmounts by Redpanda's migrations: one for topics that belong together.

Redpanda removes a finished migration, so an unknown id means success; a cancelled one stays until it is deleted. If a
response is lost, topics are compared: its migration cannot be told apart from those of other clients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

from reconciler.errors import (
    IncompleteError,
    NotAuthorizedError,
    NotFoundError,
    ReconcilerError,
    RetryableError,
    UnansweredError,
    UserError,
)
from reconciler.lifecycles import MOUNT, UNMOUNT, MigrationState, is_in_progress
from reconciler.planning.actions import ControlAction, Transition
from reconciler.providers.brokers.admin import configure_topic, is_equal_config
from reconciler.providers.brokers.client import ABSENT
from reconciler.providers.protocol import NO_REPLICAS, CompletedAction, FailedAction, Outcome
from reconciler.providers.redpanda.client import POLLS
from reconciler.resources.address import Address, address_of, full_name_of, split_name
from reconciler.resources.base import InNamespace
from reconciler.resources.inventory import Observed
from reconciler.resources.mount import (
    MIGRATING,
    Direction,
    HandMigration,
    Migrant,
    Migration,
    MountableTopic,
    Mounting,
    MountingSpec,
    RecoverableTopic,
)
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.retry import Tries, skip_check

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.mounts import KafkaMoves
    from reconciler.providers.brokers.translate import ClusterNaming, TopicMetadata
    from reconciler.providers.protocol import StoredCluster, TopicAddress
    from reconciler.providers.redpanda.client import AdminClient, MountableEntry, MountTask
    from reconciler.resources.mount import Recoveries

ID_PREFIX: Final = "redpanda."
"""The id of a cluster is this and its UUID."""
_MACHINES: Final = frozenset({MOUNT.name, UNMOUNT.name})
_MOUNT_LIMIT_S: Final = 600.0
"""The cluster retries a mount of a missing topic for ever."""
_CANCEL_LIMIT_S: Final = 60.0
_METADATA_LIMIT_S: Final = 10.0
"""Longest time that brokers may show outdated metadata after a migration."""
_ATTEMPTS: Final = 3
"""Limit of requests whose answers are lost."""


@dataclass(slots=True)
class TopicMove:
    """The mount or unmount that one action requests, and its result."""

    id: str
    """Id of its action."""
    name: str
    """Name on the brokers."""
    source: str
    """Location of a topic to mount."""
    is_mount: bool
    timeout_s: float | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    """Declared configs of a mounted topic."""
    task: int | None = None
    """Id of its migration; `None` before it begins."""
    location: str | None = None
    """Location of an unmounted topic, which Redpanda chooses; `None` if unknown."""
    has_ended: bool = False
    error: ReconcilerError | None = None

    @property
    def limit_s(self) -> float | None:
        """Longest time of its migration; `None` without a limit."""
        return _MOUNT_LIMIT_S if self.timeout_s is None and self.is_mount else self.timeout_s

    @property
    def is_open(self) -> bool:
        """Whether it has neither ended nor failed."""
        return self.error is None and not self.has_ended


def split_moves(actions: Sequence[ControlAction], naming: ClusterNaming) -> tuple[list[TopicMove], list[ControlAction]]:
    """Return the mounts and unmounts of a batch, and its other actions."""
    moves = [
        _to_move(action, action.after, naming)
        for action in actions
        if isinstance(action, Transition) and action.machine in _MACHINES and isinstance(action.after, Mounting)
    ]
    ours = {move.id for move in moves}
    return moves, [action for action in actions if action.id not in ours]


def _to_move(action: Transition, mounting: Mounting, naming: ClusterNaming) -> TopicMove:
    timeout_ms, configs = action.parameters.get("timeout_ms"), action.parameters.get("configs")
    return TopicMove(
        action.id,
        naming.to_physical(mounting.topic_name),
        str(action.parameters.get("source")),
        action.machine == MOUNT.name,
        timeout_ms / 1000 if isinstance(timeout_ms, int) else None,
        {key: str(value) for key, value in configs.items()} if isinstance(configs, Mapping) else {},
    )


@dataclass(frozen=True, slots=True)
class TopicMover:
    """Carries out mounts and unmounts on one cluster."""

    admin: AdminClient
    client: KafkaClient
    may_go_on: Callable[[], None]
    clock: Callable[[], float] = monotonic

    def run(self, moves: Sequence[TopicMove]) -> Iterator[Outcome]:
        """Yield an outcome for each move once all have ended."""
        unmounts = [move for move in moves if not move.is_mount]
        earlier = {entry.location for entry in self.admin.list_mountable()} if unmounts else set()
        self._begin(moves)
        self._wait(moves)
        self._restore_configs([move for move in moves if move.is_mount and move.error is None])
        topics = self.client.read_topics([move.name for move in moves if move.is_mount])
        self._find_locations([move for move in unmounts if move.has_ended], earlier)
        for move in moves:
            if move.error is not None:
                yield FailedAction(move.id, move.error)
            elif move.is_mount:
                yield CompletedAction(move.id, topics[move.name].id if move.name in topics else None, move.source)
            else:
                yield CompletedAction(move.id, None, move.location)

    def _find_locations(self, unmounts: Sequence[TopicMove], earlier: Collection[str]) -> None:
        """Set locations that no migration reported: of topics that became mountable by these unmounts, if unambiguous.

        A topic that was mounted under another name is listed under its original name.
        """
        unknown = [move for move in unmounts if move.location is None]
        if not unknown:
            return
        reported = {move.location for move in unmounts}
        entries = [entry for entry in self.admin.list_mountable() if entry.location not in reported]
        added = [entry for entry in entries if entry.location not in earlier]
        for move in unknown:
            is_alone = move.task is not None and len(unknown) == 1
            candidates = entries if move.task is None else added  # without a task it was unmounted earlier
            named = [entry.location for entry in candidates if entry.name == move.name or is_alone]
            move.location = named[0] if len(named) == 1 else None

    def _begin(self, moves: Sequence[TopicMove]) -> None:
        """After a lost response, check what it started."""
        tries = Tries(POLLS, attempts=_ATTEMPTS)
        while missing := self._find_missing(moves):
            mounts, unmounts = ([move for move in missing if move.is_mount is is_mount] for is_mount in (True, False))
            lost = self._begin_together(mounts) or self._begin_together(unmounts)
            if lost is not None and tries.has_ended:
                for move in missing:
                    move.error = lost if move.task is None and move.is_open else move.error
                return
            if lost is not None:
                tries.wait()

    def _find_missing(self, moves: Sequence[TopicMove]) -> list[TopicMove]:
        """Return the open moves without a migration; mark those that are complete or impossible."""
        waiting = [move for move in moves if move.is_open and move.task is None]
        if not waiting:
            return []
        tasks, present = self.admin.list_tasks(), self._list_present([move.name for move in waiting])
        mountable = self.admin.list_mountable()
        missing = []
        for move in waiting:
            task = _find_task(tasks, move)
            if task is not None and task.state == MigrationState.CANCELLED:
                self.may_go_on()
                self.admin.delete_task(task.id)
            elif task is not None:
                move.task = task.id
                continue
            if (move.name in present) is not move.is_mount:
                if move.is_mount or move.name in present:
                    missing.append(move)
            elif move.is_mount and any(entry.location == move.source for entry in mountable):
                hint = "Choose another name with `as`, or unmount that topic."
                move.error = UserError(f"topic {move.name} exists, and is not the one at {move.source}", hint=hint)
            elif not move.is_mount and all(entry.name != move.name for entry in mountable):
                message = f"there is no topic {move.name}, and none of that name can be mounted"
                move.error = UserError(message, hint="It was deleted or moved after the plan read it: plan again.")
            else:
                move.has_ended = True
        return missing

    def _begin_together(self, moves: Sequence[TopicMove]) -> UnansweredError | None:
        """Start one migration; return the error if its response was lost.

        If the cluster refuses it, each topic gets its own, so that a refused topic does not block others.
        """
        if not moves:
            return None
        self.may_go_on()
        try:
            if moves[0].is_mount:
                number = self.admin.mount({move.name: move.source for move in moves})
            else:
                number = self.admin.unmount([move.name for move in moves])
        except UnansweredError as error:
            return error
        except ReconcilerError as error:
            if len(moves) > 1 and isinstance(error, UserError) and not isinstance(error, NotAuthorizedError):
                return next(filter(None, [self._begin_together([move]) for move in moves]), None)
            for move in moves:
                move.error = error
            return None
        for move in moves:
            move.task = number
        return None

    def _wait(self, moves: Sequence[TopicMove]) -> None:
        """Each round sends one list for all migrations."""
        began, tries = self.clock(), Tries(POLLS)
        while running := _group_by_task(moves):
            self.may_go_on()
            tasks = {task.id: task for task in self.admin.list_tasks()}
            for number, ours in running.items():
                task = tasks.get(number) or self.admin.read_task(number)  # The list of another broker may lag.
                state = MigrationState.FINISHED if task is None else task.state
                if task is not None and not task.is_mount:
                    _note_locations(ours, task)
                if state == MigrationState.FINISHED:
                    self._check_ended(ours)
                elif state == MigrationState.CANCELLED:
                    self.may_go_on()
                    self.admin.delete_task(number)
                    _fail(ours, f"migration {number} was cancelled", "Plan again to do it.")
                elif any(move.limit_s is not None and self.clock() - began > move.limit_s for move in ours):
                    try:
                        self._give_up(ours, number, state, self.clock() - began)
                    except UserError as error:  # its state has changed
                        for move in ours:
                            move.error = error
            if _group_by_task(moves):
                tries.wait()

    def _check_ended(self, moves: Sequence[TopicMove]) -> None:
        """Mark moves without a migration as ended; fail those whose topic contradicts that after 10 s."""
        tries = Tries(POLLS, within_s=_METADATA_LIMIT_S)
        while unfulfilled := self._list_unfulfilled(moves):
            if tries.has_ended:
                break
            tries.wait()
        for move in moves:
            move.has_ended = move not in unfulfilled
            if not move.has_ended:
                now = "it is missing" if move.is_mount else "it still exists"
                hint = "It was cancelled, or another process changed the topic: plan again."
                move.error = UserError(f"the migration of topic {move.name} has ended, and {now}", hint=hint)

    def _list_unfulfilled(self, moves: Sequence[TopicMove]) -> Sequence[TopicMove]:
        """Return moves whose topic is missing after a mount, or exists after an unmount."""
        present = self._list_present([move.name for move in moves])
        return [move for move in moves if (move.name in present) is not move.is_mount]

    def _give_up(self, moves: Sequence[TopicMove], number: int, state: str, after_s: float) -> None:
        """Cancel a slow migration, wait for that, and delete its record."""
        message = f"migration {number} was still {state} after {after_s:.0f} s"
        hint = "See that the topic is in this cluster's object storage: reconciler mount list. Then apply again."
        if state == MigrationState.PLANNED:  # It cannot be cancelled, and has done nothing.
            self.may_go_on()
            self.admin.delete_task(number)
            _fail(moves, f"{message} and was deleted", hint)
            return
        if not _cancel(self.admin, number, state, self.may_go_on):
            hint = f"It is being cancelled: reconciler mount status. {hint}"
            _fail(moves, f"{message}, and is not cancelled yet", hint, IncompleteError)
            return
        self.may_go_on()
        self.admin.delete_task(number)
        _fail(moves, f"{message} and was cancelled", hint)

    def _restore_configs(self, moves: Sequence[TopicMove]) -> None:
        """Set declared configs that the mount did not bring back: versions restore different ones (F-R-206)."""
        declared = {move.name: move.configs for move in moves if move.configs}
        shown = dict(self.client.read_configs(sorted(declared))) if declared else {}
        for move in moves:
            configs = shown.get(move.name)
            if not isinstance(configs, Mapping):
                continue
            values = {key: state.value for key, state in configs.items()}
            changed = {
                key: value for key, value in move.configs.items() if not is_equal_config(key, values.get(key), value)
            }
            if changed:
                self.may_go_on()
                try:
                    configure_topic(self.client, move.name, changed)
                except (UserError, RetryableError) as error:
                    move.error = error

    def _list_present(self, names: Sequence[str]) -> Mapping[str, TopicMetadata]:
        topics = self.client.read_topics(names)
        return {name: seen for name, seen in topics.items() if seen.error not in ABSENT}


def _cancel(admin: AdminClient, number: int, state: str, may_go_on: Callable[[], None]) -> bool:
    """Cancel a migration; return whether it ended within a minute."""
    if state != MigrationState.CANCELING:
        may_go_on()
        admin.request_action(number, "cancel")
    tries = Tries(POLLS, within_s=_CANCEL_LIMIT_S)
    while (task := admin.read_task(number)) is not None and is_in_progress(task.state):
        if tries.has_ended:
            return False
        tries.wait()
    return True


def _note_locations(moves: Iterable[TopicMove], task: MountTask) -> None:
    for move in moves:
        location = task.topics.get(move.name, "")
        move.location = location if "/" in location else move.location


def _group_by_task(moves: Sequence[TopicMove]) -> dict[int, list[TopicMove]]:
    running: dict[int, list[TopicMove]] = {}
    for move in moves:
        if move.is_open and move.task is not None:
            running.setdefault(move.task, []).append(move)
    return running


def _fail(moves: Iterable[TopicMove], message: str, hint: str, kind: type[ReconcilerError] = UserError) -> None:
    for move in moves:
        move.error = kind(message, hint=hint)


def _read_revision(location: str) -> int:
    revision = location.rpartition("/")[2]
    return int(revision) if revision.isdecimal() else -1


def _find_task(tasks: Sequence[MountTask], move: TopicMove) -> MountTask | None:
    """Return the newest migration of a topic in the move's direction.

    The source of a mount must equal that of the move, or be a name without a location.
    """
    matching = [
        task
        for task in tasks
        if task.is_mount is move.is_mount
        and move.name in task.topics
        and (not move.is_mount or task.topics[move.name] == move.source or "/" not in task.topics[move.name])
    ]
    return max(matching, key=lambda task: task.id, default=None)


@dataclass(frozen=True, slots=True)
class RedpandaMigrations:
    """Mounts and unmounts that one cluster carries out itself."""

    admin: AdminClient
    client: KafkaClient
    naming: ClusterNaming
    job_steps: KafkaMoves

    def list_unfinished(self, *, is_measured: bool = True) -> Sequence[Migration]:  # noqa: ARG002 - sizes are not told
        """Return the migrations that have a record, by id."""
        tasks = [task for task in self.admin.list_tasks() if task.state != MigrationState.FINISHED]
        return [self._to_migration(task) for task in sorted(tasks, key=lambda task: task.id)]

    def request_verb(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = skip_check) -> Migration:
        """Request a verb. A cancellation is complete on return; `delete` removes the record."""
        task = self.admin.read_task(migration)
        if task is None:
            message = f"cluster {self.client.name} has no migration {migration}: it has ended, or never was"
            raise NotFoundError(message, hint="See those in progress: reconciler mount status")
        if verb == "cancel":
            if not _cancel(self.admin, migration, task.state, may_go_on):
                message = f"migration {migration} is not cancelled yet"
                raise IncompleteError(message, hint="See its progress: reconciler mount status")
        else:
            may_go_on()
            if verb == "delete":
                self.admin.delete_task(migration)
                return replace(self._to_migration(task), state=MigrationState.GONE)
            self.admin.request_action(migration, verb)
        return self._to_migration(self.admin.read_task(migration) or replace(task, state=MigrationState.GONE))

    def find_obstacles(self, direction: Direction, topics: Mapping[str, str]) -> Mapping[str, ReconcilerError]:
        """Return mounts over existing topics, and topics in other migrations."""
        names = {self.naming.to_physical(full_name): full_name for full_name in topics}
        busy = {name for task in self.admin.list_tasks() if is_in_progress(task.state) for name in task.topics}
        present = self.client.read_topics(names) if direction == "inbound" else {}
        obstacles: dict[str, ReconcilerError] = {}
        for name, full_name in names.items():
            if name in busy:
                hint = "See its progress: reconciler mount status"
                obstacles[full_name] = UserError("it is being mounted or unmounted already", hint=hint)
            elif name in present and present[name].error not in ABSENT:
                obstacles[full_name] = UserError("a topic of that name exists", hint="Choose another name with --to.")
        return obstacles

    def run_migration(self, request: HandMigration, may_go_on: Callable[[], None]) -> None:
        """Carry out one migration; reject a prepared one."""
        if request.phase != "whole":
            message = f"cluster {self.client.name}: a Redpanda cluster mounts and unmounts in one go"
            raise UserError(message, hint="Leave out --prepare and --finish.")
        is_mount = request.direction == "inbound"
        moves = [
            TopicMove(full_name, self.naming.to_physical(full_name), location, is_mount)
            for full_name, location in request.topics.items()
        ]
        failed = [
            outcome
            for outcome in TopicMover(self.admin, self.client, may_go_on).run(moves)
            if isinstance(outcome, FailedAction)
        ]
        if failed:
            raise failed[0].error

    def list_detached_topics(self) -> Iterator[tuple[str, MountableTopic | UserError]]:
        """Yield the mountable topics."""
        for topic in _list_mountable_topics(self.admin, self.naming):
            yield topic.location, topic

    def read_releasable_topic(self, location: str, owner: str) -> MountableTopic:
        """Always raise `UserError`: Redpanda has no call that takes a topic from a lost cluster."""
        raise self._release_error(location, owner)

    def release_topic(self, location: str, owner: str) -> MountableTopic:
        """Always raise `UserError`, as `read_releasable_topic`."""
        raise self._release_error(location, owner)

    def _release_error(self, location: str, owner: str) -> UserError:
        message = f"{location} belongs to cluster {owner}, and Redpanda releases no topic of another cluster"
        return UserError(
            message, hint="Restore that cluster and unmount the topic there, or recover it with remote.recovery."
        )

    def _to_migration(self, task: MountTask) -> Migration:
        if task.state not in set(MigrationState):
            message = f"cluster {self.client.name}: migration {task.id} is in the unknown state {task.state!r}"
            raise UserError(message, hint=f"See it with: rpk cluster storage status-mount {task.id}")
        topics = tuple(
            Migrant(self.naming.to_full_name(name), source, None) for name, source in sorted(task.topics.items())
        )
        direction: Direction = "inbound" if task.is_mount else "outbound"
        return Migration(
            id=task.id,
            direction=direction,
            state=task.state,
            topics=topics,
            created_ms=task.created_ms or 0,
            by_cluster=True,
        )


@dataclass(frozen=True, slots=True)
class RedpandaArchives:
    """Mountable topics of one cluster; their sizes and offsets are unknown."""

    admin: AdminClient
    naming: ClusterNaming

    def find_recovery_sources(
        self,
        topics: Mapping[TopicAddress, str | None],
        replicas: Mapping[TopicAddress, str] = NO_REPLICAS,  # noqa: ARG002 - none are declared by a location
    ) -> Recoveries:
        """Return unknown contents by names: reconciler cannot read the objects of Redpanda."""
        names = {topic: full_name_of(topic) for topic, location in topics.items() if location is None}
        return {topic: RecoverableTopic(name, name, 0, is_content_unknown=True) for topic, name in names.items()}

    def read_stored_cluster(self, cluster_id: str | None = None) -> StoredCluster | None:  # noqa: ARG002 - as above
        """Return `None`, as objects cannot be read."""
        return None

    def list_mountable_topics(self) -> Sequence[MountableTopic]:
        """Return the mountable topics, the newest first."""
        return _list_mountable_topics(self.admin, self.naming)


def _list_mountable_topics(admin: AdminClient, naming: ClusterNaming) -> Sequence[MountableTopic]:
    """Return this cluster as the owner of topics that it created; Redpanda reports no other owner."""
    entries = sorted(admin.list_mountable(), key=lambda entry: _read_revision(entry.location), reverse=True)
    own = admin.read_uuid() if entries else ""
    return [_to_mountable_topic(entry, naming, own) for entry in entries]


def _to_mountable_topic(entry: MountableEntry, naming: ClusterNaming, own: str) -> MountableTopic:
    name = naming.to_full_name(entry.name)
    owner = f"{ID_PREFIX}{own}" if entry.location.split("/")[1:2] == [own] else None
    return MountableTopic(entry.location, name, "detached", owner, name, None, None, None)


def add_mountings(
    inventory: Mapping[Address, Observed],
    tasks: Sequence[MountTask],
    naming: ClusterNaming,
    cluster: str,
    is_wanted: Callable[[str], bool] | None,
) -> dict[Address, Observed]:
    """Add the mounts and unmounts in progress, and mark their topics as migrating."""
    overlaid = dict(inventory)
    for task in tasks:
        if not is_in_progress(task.state):
            continue
        for name, source in task.topics.items():
            full_name = naming.to_full_name(name)
            namespace, own_name = split_name(full_name)
            topic = address_of("topic", cluster, full_name)
            if topic in overlaid:
                overlaid[topic] = replace(overlaid[topic], state=MIGRATING)
            mounting = Mounting(
                metadata=InNamespace(name=own_name, namespace=namespace, cluster=cluster),
                spec=MountingSpec.model_construct(
                    state="mounted" if task.is_mount else "unmounted", source=source if "/" in source else None
                ),
            )
            if is_wanted is None or is_wanted(mounting.address):
                overlaid[mounting.address] = Observed(mounting, state=task.state)
    return overlaid
