"""What mounting has to wait for, and what waits for it: names are freed first, readers go first, changes come after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles.mounting import MOUNT, UNMOUNT
from reconciler.planning.actions import Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.deciding.moved import moved_from
from reconciler.planning.situation import mounted_by, source_of
from reconciler.resources.address import Address, kind_of
from reconciler.resources.mirrorlink import MirrorTopic
from reconciler.resources.mountable import MountSource
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.planning.actions import Action
    from reconciler.planning.situation import Situation
    from reconciler.resources.kinds import Resource

_NAMED: Final = frozenset({"topic", "mirror"})
"""Kinds that share their names on a cluster."""


class MountOrder:
    """The edges of a plan's graph at which one end is a mount or an unmount.

    Where a plan frees a name and gives it to another topic, what changes a topic of that name is about the new one.
    """

    def __init__(self, actions: Sequence[Action], situation: Situation) -> None:
        self._situation = situation
        self._mounts: dict[Address, list[str]] = {}
        self._unmounts: dict[Address, list[str]] = {}
        self._of_mounting: dict[Address, list[str]] = {}
        for action in actions:
            if isinstance(action, Transition) and isinstance(action.after, Mounting):
                is_unmount = unmounted_by(action) is not None
                found = self._unmounts if is_unmount else self._mounts
                found.setdefault(mounted_by(action.after), []).append(action.id)
                if is_unmount:
                    self._of_mounting.setdefault(action.address, []).append(action.id)
        self._new = {action.address for action in actions if isinstance(action, Create)}
        self._at: dict[Address, list[Action]] = {}
        self._readers: dict[Address, list[Action]] = {}
        for action in actions if self._mounts or self._unmounts else ():
            if kind_of(action.address) in _NAMED:
                self._at.setdefault(_topic_at(action.address), []).append(action)
            if (left := moved_from(action)) is not None:
                self._at.setdefault(left, []).append(action)
            if (source := self._source(action)) is not None:
                self._readers.setdefault(source, []).append(action)

    def before(self, action: Action) -> Iterator[str]:
        """Yield the ids of what comes before an action."""
        if not (self._mounts or self._unmounts):
            return
        if isinstance(action, Transition) and isinstance(action.after, Mounting):
            yield from self._before_mounting(action, mounted_by(action.after))
            return
        topic = _topic_at(action.address)
        if _makes(action):
            yield from self._unmounts.get(topic, ())
        elif kind_of(action.address) == "topic" and isinstance(action, Update | Adopt | Transition):
            yield from self._mounts.get(topic, ())
        source = self._source(action)
        is_going = isinstance(action, Delete | Forget)
        if source is not None and not is_going and not self._reads_old(action, source):
            yield from self._mounts.get(source, ())

    def _before_mounting(self, action: Transition, topic: Address) -> Iterator[str]:
        others = self._at.get(topic, ())
        if action.machine == MOUNT.name:
            source = self._situation.given.mounts.get(action.address)
            if isinstance(source, MountSource) and source.unmounts is not None:
                yield from self._of_mounting.get(source.unmounts, ())
            yield from self._unmounts.get(topic, ())
            yield from (other.id for other in others if isinstance(other, Delete) or moved_from(other) == topic)
            return
        if topic not in self._mounts:
            yield from (other.id for other in others if _changes(other))
        yield from (other.id for other in self._readers.get(topic, ()) if self._reads_old(other, topic))

    def _reads_old(self, action: Action, source: Address) -> bool:
        """Tell whether a mirror reads what has a name now, and not what will have it after the plan."""
        return source in self._unmounts and action.address not in self._new

    def _source(self, action: Action) -> Address | None:
        """Return the topic that the mirror of an action reads."""
        if kind_of(action.address) != "mirror":
            return None
        if isinstance(action, RunJob):
            return action.source
        resource = self._resource(action)
        return source_of(resource) if isinstance(resource, MirrorTopic) else None

    def _resource(self, action: Create | Update | Delete | Adopt | Forget | Transition) -> Resource | None:
        match action:
            case Create() | Update() | Transition() | Adopt():
                return action.after
            case Delete():
                return action.before
            case Forget():
                last = self._situation.recorded.get(action.address)
                return last.resource if last is not None else None
            case _:
                assert_never(action)


def _topic_at(address: Address) -> Address:
    """Return an address as one of a topic: mirrors, mountings and topics share their names."""
    return Address("topic/" + address.partition("/")[2])


def _makes(action: Action) -> bool:
    """Tell whether there is a topic under an address only after an action."""
    return kind_of(action.address) in _NAMED and (isinstance(action, Create) or moved_from(action) is not None)


def _changes(action: Action) -> bool:
    """Tell whether an action is about a topic that is there, and stays there."""
    if kind_of(action.address) != "topic" or _makes(action):
        return False
    return isinstance(action, Update | Adopt | Transition)


def unmounted_by(action: Action) -> Address | None:
    """Return the topic that an action takes off its cluster by unmounting it."""
    if isinstance(action, Transition) and action.machine == UNMOUNT.name and isinstance(action.after, Mounting):
        return mounted_by(action.after)
    return None
