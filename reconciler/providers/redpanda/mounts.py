"""Mounts and unmounts by Redpanda itself: one migration for topics that belong together, driven to its end.

A mount or unmount that has finished vanishes, so an unknown id means success. An answer that was lost is settled by
comparing topics, as ids of other clients look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import (
    IncompleteError,
    NotFoundError,
    ReconcilerError,
    RetryableError,
    UnansweredError,
    UserError,
)
from reconciler.lifecycles import MOUNT, UNMOUNT, MigrationState
from reconciler.planning.actions import ControlAction, Transition
from reconciler.providers.brokers.admin import configure_topic
from reconciler.providers.brokers.client import ABSENT
from reconciler.providers.protocol import NO_REPLICAS, CompletedAction, FailedAction, Outcome
from reconciler.resources.address import Address, address_of, split_name
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
)
from reconciler.runtime.retry import Backoff, Tries, skip_check

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.mounts import KafkaMoves
    from reconciler.providers.brokers.translate import ClusterNaming, TopicMetadata
    from reconciler.providers.protocol import StoredCluster, TopicAddress
    from reconciler.providers.redpanda.client import AdminClient, MountableEntry, MountTask
    from reconciler.resources.mount import Recoveries

_MACHINES: Final = frozenset({MOUNT.name, UNMOUNT.name})
_POLLS: Final = Backoff(0.2, 2.0, spread=0.2)
_MOUNT_LIMIT_S: Final = 600.0
"""A mount of something that does not exist is retried by the cluster for ever."""
_CANCEL_LIMIT_S: Final = 60.0
_ENDED: Final = frozenset({"finished", "cancelled"})


@dataclass(slots=True)
class TopicMove:
    """A mount or unmount of one topic, and what became of it."""

    id: str
    """Of the action."""
    name: str
    """The topic's name on the brokers."""
    source: str
    """For a mount: its name in object storage, or its location."""
    is_mount: bool
    limit_s: float | None
    """`None`: it may take as long as it takes."""
    configs: Mapping[str, str]
    """What a mounted topic's file declares."""
    task: int | None = None
    """Id of its migration; `_FINISHED` once it has ended, `None` before it begins."""
    error: ReconcilerError | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not failed."""
        return self.error is None


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
    timeout_ms = action.parameters.get("timeout_ms")
    is_mount = action.machine == MOUNT.name
    source = str(action.parameters.get("source"))
    limit_s = timeout_ms / 1000 if isinstance(timeout_ms, int) else _MOUNT_LIMIT_S if is_mount else None
    configs: Any = action.parameters.get("configs")
    return TopicMove(
        action.id,
        naming.to_physical(mounting.topic_name),
        source if "/" in source else naming.to_physical(source),
        is_mount,
        limit_s,
        configs if isinstance(configs, Mapping) else {},
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
        self._begin_missing(moves)
        self._wait(moves)
        self._restore_configs([move for move in moves if move.is_mount and move.is_open])
        topics = self.client.read_topics([move.name for move in moves if move.is_mount])
        unmounted = any(not move.is_mount and move.is_open for move in moves)
        locations = self._find_locations() if unmounted else {}
        for move in moves:
            if move.error is not None:
                yield FailedAction(move.id, move.error)
            elif move.is_mount:
                yield CompletedAction(move.id, topics[move.name].id if move.name in topics else None, move.source)
            else:
                yield CompletedAction(move.id, None, locations.get(move.name))

    def _find_locations(self) -> Mapping[str, str]:
        """Return the location of each mountable topic by name; the one with the highest revision is the latest."""
        entries = sorted(self.admin.list_mountable(), key=lambda entry: _read_revision(entry.location))
        return {entry.name: entry.location for entry in entries}

    def _begin_missing(self, moves: Sequence[TopicMove]) -> None:
        """Begin migrations for moves that are neither done nor begun, one for all mounts and one for all unmounts."""
        tasks = self.admin.list_tasks()
        present = self._list_present([move.name for move in moves])
        mountable: frozenset[str] | None = None
        for move in moves:
            task = _find_task(tasks, move)
            if task is not None and task.state == MigrationState.CANCELLED:
                self.may_go_on()
                self.admin.delete_task(task.id)
            elif task is not None and task.state not in _ENDED:
                move.task = task.id
            elif not move.is_mount and move.name not in present:
                mountable = (
                    mountable
                    if mountable is not None
                    else frozenset(entry.name for entry in self.admin.list_mountable())
                )
                if move.name not in mountable:
                    message = f"there is no topic {move.name}, and none of that name can be mounted"
                    hint = "It was deleted or moved after the plan read it: plan again."
                    move.error = UserError(message, hint=hint)
        for is_mount in (True, False):
            self._begin(
                [
                    move
                    for move in moves
                    if move.is_open
                    and move.task is None
                    and move.is_mount is is_mount
                    and (move.name in present) is not is_mount
                ]
            )

    def _begin(self, moves: Sequence[TopicMove]) -> None:
        """Begin one migration; if the cluster refuses it, one for each topic, so that a refusal stands alone."""
        if not moves:
            return
        try:
            self.may_go_on()
            number = self._request(moves)
        except UnansweredError:
            number = self._settle(moves)
        except UserError as error:
            if len(moves) == 1:
                moves[0].error = error
                return
            for move in moves:
                self._begin([move])
            return
        except ReconcilerError as error:
            for move in moves:
                move.error = error
            return
        for move in moves:
            move.task = number

    def _request(self, moves: Sequence[TopicMove]) -> int:
        if moves[0].is_mount:
            return self.admin.mount({move.name: move.source for move in moves})
        return self.admin.unmount([move.name for move in moves])

    def _settle(self, moves: Sequence[TopicMove]) -> int:
        """Return the migration that a request without an answer began; begin it again if there is none."""
        tasks = self.admin.list_tasks()
        numbers = {task.id for move in moves if (task := _find_task(tasks, move)) is not None}
        if numbers:
            return max(numbers)
        present = self._list_present([move.name for move in moves])
        if all((move.name in present) is move.is_mount for move in moves):
            return _FINISHED
        return self._request(moves)

    def _wait(self, moves: Sequence[TopicMove]) -> None:
        """Wait until all migrations have ended, with one list for all in each round."""
        began, tries = self.clock(), Tries(_POLLS)
        while numbers := sorted({move.task for move in moves if move.is_open and move.task not in {None, _FINISHED}}):
            self.may_go_on()
            states = {task.id: task.state for task in self.admin.list_tasks()}
            for number in numbers:
                ours = [move for move in moves if move.task == number and move.is_open]
                state = states.get(number)
                if state is None:  # the list of another broker may lag
                    task = self.admin.read_task(number)
                    state = MigrationState.FINISHED if task is None else task.state
                if state == MigrationState.FINISHED:
                    self._check_ended(ours)
                elif state == MigrationState.CANCELLED:
                    self.admin.delete_task(number)
                    _fail(ours, f"migration {number} was cancelled", "Plan again to do it.")
                elif any(move.limit_s is not None and self.clock() - began > move.limit_s for move in ours):
                    self._give_up(ours, number, state)
            if any(move.is_open and move.task not in {None, _FINISHED} for move in moves):
                tries.wait()

    def _check_ended(self, moves: Sequence[TopicMove]) -> None:
        """Mark moves whose migration is gone as ended, or fail those whose topic shows the contrary."""
        present = self._list_present([move.name for move in moves])
        for move in moves:
            if (move.name in present) is move.is_mount:
                move.task = _FINISHED
            else:
                message = f"the migration of topic {move.name} has ended, and it is {'' if move.is_mount else 'still '}"
                message += "missing" if move.is_mount else "there"
                move.error = UserError(
                    message, hint="It was cancelled, or another process changed the topic: plan again."
                )

    def _give_up(self, moves: Sequence[TopicMove], number: int, state: str) -> None:
        """Cancel a migration that takes too long, wait for that, and delete its record."""
        message = f"migration {number} was still {state} after {moves[0].limit_s:.0f} s"
        hint = "See that the topic is in this cluster's object storage: reconciler mount list. Then apply again."
        try:
            self.admin.request_action(number, "cancel")
            began, tries = self.clock(), Tries(_POLLS)
            while (task := self.admin.read_task(number)) is not None and task.state not in _ENDED:
                if self.clock() - began > _CANCEL_LIMIT_S:
                    hint = f"It is being cancelled: reconciler mount status. {hint}"
                    raise IncompleteError(f"{message}, and is not cancelled yet", hint=hint)
                tries.wait()
            self.admin.delete_task(number)
        except ReconcilerError as error:
            for move in moves:
                move.error = error
            return
        _fail(moves, f"{message} and was cancelled", hint)

    def _restore_configs(self, moves: Sequence[TopicMove]) -> None:
        """Set declared configs that the mount did not bring back: versions restore different ones (F-R-206)."""
        declared = {move.name: move.configs for move in moves if move.configs}
        seen = dict(self.client.read_configs(sorted(declared))) if declared else {}
        for move in moves:
            configs = seen.get(move.name)
            if not isinstance(configs, Mapping):
                continue
            values = {key: state.value for key, state in configs.items()}
            changed = {key: value for key, value in declared[move.name].items() if values.get(key) != value}
            if changed:
                try:
                    self.may_go_on()
                    configure_topic(self.client, move.name, changed)
                except (UserError, RetryableError) as error:
                    move.error = error

    def _list_present(self, names: Sequence[str]) -> Mapping[str, TopicMetadata]:
        topics = self.client.read_topics(names)
        return {name: seen for name, seen in topics.items() if seen.error not in ABSENT}


_FINISHED: Final = -1
"""Id of a migration that ended before its id was known."""


def _fail(moves: Iterable[TopicMove], message: str, hint: str) -> None:
    for move in moves:
        move.error = UserError(message, hint=hint)


def _read_revision(location: str) -> int:
    revision = location.rpartition("/")[2]
    return int(revision) if revision.isdecimal() else -1


def _find_task(tasks: Sequence[MountTask], move: TopicMove) -> MountTask | None:
    """Return the newest migration of a topic in the move's direction."""
    matching = [task for task in tasks if task.is_mount is move.is_mount and move.name in task.topics]
    return max(matching, key=lambda task: task.id, default=None)


@dataclass(frozen=True, slots=True)
class RedpandaMigrations:
    """Mounts and unmounts of one cluster, which it carries out itself; moves of topics are copied by jobs."""

    admin: AdminClient
    client: KafkaClient
    naming: ClusterNaming
    job_steps: KafkaMoves

    def list_unfinished(self, *, is_measured: bool = True) -> Sequence[Migration]:  # noqa: ARG002 - sizes are not told
        """Return the unfinished migrations by id."""
        tasks = [task for task in self.admin.list_tasks() if task.state not in _ENDED]
        return [self._to_migration(task) for task in sorted(tasks, key=lambda task: task.id)]

    def request_verb(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = skip_check) -> Migration:
        """Request a verb; `delete` removes the record of a migration that has ended."""
        task = self.admin.read_task(migration)
        if task is None:
            message = f"cluster {self.client.name} has no migration {migration}: it has ended, or never was"
            raise NotFoundError(message, hint="See those in progress: reconciler mount status")
        may_go_on()
        if verb == "delete":
            self.admin.delete_task(migration)
            return replace(self._to_migration(task), state=MigrationState.GONE)
        self.admin.request_action(migration, verb)
        return self._to_migration(self.admin.read_task(migration) or replace(task, state=MigrationState.GONE))

    def find_obstacles(self, direction: Direction, topics: Mapping[str, str]) -> Mapping[str, ReconcilerError]:
        """Return mounts over existing topics, and topics that are in another migration."""
        names = {self.naming.to_physical(full_name): full_name for full_name in topics}
        busy = {name for task in self.admin.list_tasks() if task.state not in _ENDED for name in task.topics}
        present = self.client.read_topics(names) if direction == "inbound" else {}
        obstacles: dict[str, ReconcilerError] = {}
        for name, full_name in names.items():
            if name in busy:
                hint = "See its progress: reconciler mount status"
                obstacles[full_name] = UserError("it is being mounted or unmounted already", hint=hint)
            elif name in present and present[name].error not in ABSENT:
                obstacles[full_name] = UserError("a topic of that name exists", hint="Choose another name with --as.")
        return obstacles

    def run_migration(self, request: HandMigration, may_go_on: Callable[[], None]) -> None:
        """Mount or unmount topics by one migration, and wait for its end; Redpanda prepares none for later."""
        if request.phase != "whole":
            message = f"cluster {self.client.name}: a Redpanda cluster mounts and unmounts in one go"
            raise UserError(message, hint="Leave out --prepare and --finish.")
        is_mount = request.direction == "inbound"
        moves = [
            TopicMove(full_name, self.naming.to_physical(full_name), location, is_mount, None, {})
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
        """Yield the mountable topics; what they hold is not told."""
        for entry in self.admin.list_mountable():
            yield entry.location, to_mountable_topic(entry, self.naming)

    def read_releasable_topic(self, location: str, owner: str) -> MountableTopic:
        """Reject: Redpanda has no call that takes a topic from a cluster that is lost."""
        raise self._release_error(location, owner)

    def release_topic(self, location: str, owner: str) -> MountableTopic:
        """Reject, as `read_releasable_topic`."""
        raise self._release_error(location, owner)

    def _release_error(self, location: str, owner: str) -> UserError:
        message = f"{location} belongs to cluster {owner}, and Redpanda releases no topic of another cluster"
        return UserError(message, hint="Restore that cluster, or recover the topic with recoverFrom.")

    def _to_migration(self, task: MountTask) -> Migration:
        topics = tuple(
            Migrant(self.naming.to_full_name(name), source, None) for name, source in sorted(task.topics.items())
        )
        direction: Direction = "inbound" if task.is_mount else "outbound"
        return Migration(
            id=task.id, direction=direction, state=task.state, topics=topics, created_ms=task.created_ms or 0
        )


@dataclass(frozen=True, slots=True)
class RedpandaArchives:
    """Mountable topics of one cluster; what they hold only Redpanda reads."""

    admin: AdminClient
    naming: ClusterNaming

    def find_recovery_sources(
        self,
        topics: Mapping[TopicAddress, str | None],  # noqa: ARG002 - see below
        replicas: Mapping[TopicAddress, str] = NO_REPLICAS,  # noqa: ARG002
    ) -> Recoveries:
        """Return nothing: objects of Redpanda are binary, and their content is unknown."""
        return {}

    def read_stored_cluster(self, cluster_id: str | None = None) -> StoredCluster | None:  # noqa: ARG002 - as above
        """Return `None`, as above."""
        return None

    def list_mountable_topics(self) -> Sequence[MountableTopic]:
        """Return the topics that no cluster owns."""
        return [to_mountable_topic(entry, self.naming) for entry in self.admin.list_mountable()]


def to_mountable_topic(entry: MountableEntry, naming: ClusterNaming) -> MountableTopic:
    """Return a mountable topic; its owner is unknown, and its sizes."""
    full_name = naming.to_full_name(entry.name)
    return MountableTopic(entry.location, full_name, "detached", None, full_name, None, None, None)


def add_mountings(
    inventory: Mapping[Address, Observed],
    tasks: Sequence[MountTask],
    naming: ClusterNaming,
    cluster: str,
    is_wanted: Callable[[str], bool] | None,
) -> dict[Address, Observed]:
    """Return an inventory with the mounts and unmounts in progress; their topics are migrating."""
    overlaid = dict(inventory)
    for task in tasks:
        if task.state in _ENDED:
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
