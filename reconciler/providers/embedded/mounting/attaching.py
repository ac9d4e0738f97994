"""Mounts and unmounts of a batch: looked up before its commit, begun in it, and driven to their end after it.

Each is a migration of its own, which names the mounting that asked for it. So whoever repeats an action finds what it
began, or what came of it, and goes on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.holding import check_unheld
from reconciler.embedded.catalog.migrationentries import MigrantEntry
from reconciler.embedded.catalog.migrations import INBOUND, ask, begin_mount, begin_unmount
from reconciler.embedded.catalog.tiering import TopicLocation, location_of
from reconciler.embedded.mounting.mounts import Mount, drive_or_undo, error_of, side_by_side
from reconciler.embedded.mounting.ownership import Ownership, Owning, ownerships, read_ownership
from reconciler.embedded.threads import side_by_side as each_of
from reconciler.errors import ReconcilerError, UserError
from reconciler.lifecycles.mounting import MOUNT, UNMOUNT, MigrationState
from reconciler.planning.actions import Transition
from reconciler.providers.base import Done, Failed
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Draft
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Outcome

    Found: TypeAlias = MigrantEntry | Ownership | ReconcilerError | None

_LOGGER: Final = logging.getLogger("reconciler.providers")
_MACHINES: Final = frozenset({MOUNT.name, UNMOUNT.name})


def attachments_in(actions: Iterable[ControlAction]) -> list[Attachment]:
    """Return what a batch mounts and unmounts."""
    return [
        Attachment.of(action, action.after)
        for action in actions
        if isinstance(action, Transition) and action.machine in _MACHINES and isinstance(action.after, Mounting)
    ]


@dataclass(frozen=True, slots=True)
class Attachment:
    """One action: which topic, where it lies as far as that is said, and how long it may take."""

    id: str
    mounting: Mounting
    is_mount: bool
    source: str
    """A location; of an unmount it may be only a name."""
    timeout_ms: int | None

    @classmethod
    def of(cls, action: Transition, mounting: Mounting) -> Attachment:
        """Read an action."""
        timeout_ms = action.parameters.get("timeout_ms")
        return cls(
            action.id,
            mounting,
            action.machine == MOUNT.name,
            str(action.parameters.get("source")),
            timeout_ms if isinstance(timeout_ms, int) else None,
        )

    @property
    def name(self) -> str:
        """Full name of the topic here."""
        return self.mounting.topic_name

    @property
    def location(self) -> TopicLocation | None:
        """Where it lies; `None`: that is not said, and is wherever the topic of that name does."""
        return TopicLocation.parse(self.source) if self.is_mount or "/" in self.source else None

    def lies_at(self, location: TopicLocation) -> bool:
        """Tell whether a location is the one that is meant; its name may be written without the namespace."""
        ours = self.location
        return ours is None or (ours.cluster_id, ours.revision) == (location.cluster_id, location.revision)

    def check_lies_at(self, location: TopicLocation) -> None:
        """Refuse a topic that has the name and is another one.

        Raises:
            UserError: It is.
        """
        if not self.lies_at(location):
            message = f"topic {self.name} is not the one of {self.source}: it lies at {location}"
            raise UserError(message, hint="Another topic has that name since it was looked at: plan again.")


@dataclass(slots=True)
class _Ours:
    """The migrations of one draft that mountings asked for, by what they asked for; the newest of each."""

    draft: Draft
    numbers: dict[tuple[bool, str | None, str], list[int]] = field(init=False)

    def __post_init__(self) -> None:
        """Look through them once, however many a batch asks about."""
        self.numbers = {}
        for number in sorted(map(int, self.draft.migrations), reverse=True):
            migration = self.draft.migrations[str(number)]
            for topic in migration.topics:
                key = migration.direction == INBOUND, topic.mounting, topic.name
                self.numbers.setdefault(key, []).append(number)

    def of(self, asked: Attachment) -> tuple[int, MigrantEntry] | None:
        """Return the migration that an action began before, and its topic there."""
        for number in self.numbers.get((asked.is_mount, asked.mounting.full_name, asked.name), ()):
            migration = self.draft.migrations.get(str(number))
            for topic in () if migration is None else migration.topics:
                if topic.name == asked.name and asked.lies_at(TopicLocation.parse(topic.location)):
                    return number, topic
        return None


@dataclass(slots=True)
class Attaching:
    """What a batch mounts and unmounts."""

    cluster: EmbeddedCluster
    asked: Mapping[str, Attachment]
    """By action."""
    found: Mapping[str, Found]
    """By action: what a mount begins with, who owns what is to be unmounted and is not here, or why nobody can say."""
    begun: dict[str, int] = field(default_factory=dict)
    """The migrations there are to drive, by action."""
    _ours: _Ours | None = None

    @classmethod
    def of(cls, cluster: EmbeddedCluster, asked: Sequence[Attachment]) -> Attaching:
        """Look up what a batch needs of object storage: two GETs for each mount, and nothing of most unmounts."""
        topics = cluster.catalog.read().topics

        def look(one: Attachment) -> Found:
            try:
                if one.is_mount:
                    return cluster.mounts.migrant(Mount(one.source, one.name, one.mounting.full_name))
                return None if one.name in topics else _owner(cluster, one)
            except ReconcilerError as error:
                return error

        found = dict(zip((one.id for one in asked), each_of(look, asked, name="mountable"), strict=True))
        return cls(cluster, {one.id: one for one in asked}, found)

    def begin(self, draft: Draft, action: str) -> str | None:
        """Begin a mount or unmount, or find it begun or done; return the incarnation of what it leaves.

        Raises:
            UserError: It cannot be; nothing of it is in the draft.
            RetryableError: What it needs of object storage could not be looked up.
        """
        self.begun.pop(action, None)
        if self._ours is None or self._ours.draft is not draft:
            self._ours = _Ours(draft)
        asked = self.asked[action]
        ours = self._ours.of(asked)
        if ours is not None:
            number, topic = ours
            if draft.migrations[str(number)].state != MigrationState.CANCELLED:
                self.begun[action] = number
                return topic.topic_id if asked.is_mount else None
            ask(draft, number, "delete")  # It is over, and what is wanted is wanted again.
        existing = draft.topics.get(asked.name)
        if existing is not None:
            location = location_of(asked.name, existing, self.cluster.cluster_id)
            if asked.is_mount and not asked.lies_at(location):
                _LOGGER.warning("%s cannot be mounted as %s: it exists, at %s", asked.source, asked.name, location)
            asked.check_lies_at(location)
        if asked.is_mount:
            return self._mount(draft, asked, existing)
        self._unmount(draft, asked, existing)
        return None

    def ended(self, outcomes: Iterable[Outcome], may_go_on: Callable[[], None]) -> Iterator[Outcome]:
        """Yield outcomes, those of migrations once they have come to their end: all of them side by side."""
        ours = []
        for outcome in outcomes:
            if outcome.id in self.begun and isinstance(outcome, Done):
                ours.append(outcome)
            else:
                yield outcome
        timeouts = {self.begun[outcome.id]: self.asked[outcome.id].timeout_ms for outcome in ours}
        errors = side_by_side(
            replace(self.cluster.mounts, may_go_on=may_go_on),
            list(timeouts),
            lambda mounts, number: error_of(partial(drive_or_undo, timeout_ms=timeouts[number]), mounts, number),
        )
        for outcome in ours:
            error = errors[self.begun[outcome.id]]
            yield outcome if error is None else Failed(outcome.id, error)

    def _mount(self, draft: Draft, asked: Attachment, existing: TopicEntry | None) -> str:
        if existing is not None:
            check_unheld(asked.name, existing, "to mount it")
            return existing.id  # It was done before.
        found = self.found[asked.id]
        if isinstance(found, MigrantEntry):
            self.begun[asked.id] = begin_mount(draft, [found], self.cluster.mounts.asked())
            return found.topic_id
        raise _unknown(asked, found)

    def _unmount(self, draft: Draft, asked: Attachment, existing: TopicEntry | None) -> None:
        found, cluster_id = self.found[asked.id], self.cluster.cluster_id
        if existing is not None:
            names = {asked.name: asked.mounting.full_name}
            self.begun[asked.id] = begin_unmount(draft, names, self.cluster.mounts.asked(), cluster_id=cluster_id)
        elif not isinstance(found, Ownership) or (found.state, found.owner) == (Owning.MOUNTED, cluster_id):
            raise _unknown(asked, found)  # Else it was done before, be it mounted elsewhere since or not.


def _owner(cluster: EmbeddedCluster, asked: Attachment) -> Ownership | None:
    """Return who owns a topic that is not here; `None`: it was never detached."""
    remote, location = cluster.remote, asked.location
    if remote is None:
        return None
    if location is not None:
        return read_ownership(remote.storage, location)
    registers = [each for _, each in ownerships(remote.storage) if isinstance(each, Ownership)]
    ours = [each for each in registers if (each.name, each.owner) == (asked.name, cluster.cluster_id)]
    return max(ours, key=lambda each: each.at_ms, default=None)


def _unknown(asked: Attachment, found: Found) -> ReconcilerError:
    if isinstance(found, ReconcilerError):
        return found
    message = f"there is no topic {asked.name}, and nothing says that it was unmounted: {asked.source}"
    return UserError(message, hint="Somebody deleted or moved it since it was looked at: plan again.")
