"""The order of a plan: what each action needs, and cycles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.diff.mirror_changes import CATCH_UP
from reconciler.planning.diff.moves import JOBS, MountOrder, moved_from, unmounted_by
from reconciler.planning.plan import Finding
from reconciler.planning.resolve.mirror_sources import link_of
from reconciler.planning.selection import namespace_of
from reconciler.planning.situation import STOPPED, Situation, mirror_at, source_of
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    rank,
    split_name,
)
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic

if TYPE_CHECKING:
    from reconciler.resources.inventory import Resource


# What each action needs to have happened before it, as ids of the same plan.


_ONE_SIDED: Final = frozenset({"pause", "resume", "failover"})
"""What a mirror's own cluster does alone."""


class Needs:
    """The edges of a plan's graph."""

    def __init__(self, actions: Sequence[Action], situation: Situation) -> None:
        self._situation = situation
        self._mounting = MountOrder(actions, situation)
        self._at: dict[Address, list[Action]] = {}
        self._inside: dict[Address, list[str]] = {}
        self._leaving: dict[Address, list[str]] = {}
        """What takes a topic away from a name."""
        self._followed: dict[Address, list[str]] = {}
        """What takes the record of an address along: it is not forgotten before that."""
        for action in actions:
            if isinstance(action, Adopt) and action.moved_from:
                self._followed.setdefault(action.moved_from, []).append(action.id)
            self._at.setdefault(action.address, []).append(action)
        for action in actions:
            if isinstance(action, Delete | Forget):
                self._put_inside(action)
            elif isinstance(action, RunJob) and action.job in JOBS:
                self._inside.setdefault(action.source, []).append(action.id)
            elif (topic := unmounted_by(action)) is not None:
                self._inside.setdefault(_home_of(topic), []).append(action.id)
            elif (old := moved_from(action)) is not None:
                self._inside.setdefault(_home_of(old), []).append(action.id)
                self._leaving.setdefault(old, []).append(action.id)

    def _put_inside(self, action: Delete | Forget) -> None:
        holders = list(self._holders(action))
        if isinstance(action, Delete) and isinstance(action.before, MirrorTopic):
            # Links go after their mirrors, and what was mirrored after both.
            links = self._at.get(link_of(action.before), ())
            gone = self._inside.setdefault(source_of(action.before), [])
            gone += [link.id for link in links if isinstance(link, Delete)]
            # A cluster deletes no mirror that the filters of its link take: they change first.
            self._inside.setdefault(action.address, []).extend(link.id for link in links if isinstance(link, Update))
        for holder in holders:
            self._inside.setdefault(holder, []).append(action.id)
        near = (holder for holder in holders if cluster_of(holder) == cluster_of(action.address))
        going = (other for holder in near for other in self._at.get(holder, ()) if isinstance(other, Delete))
        if isinstance(action, Delete) and next(going, None) is None:
            # A cluster is forgotten last: were the run to end between, what is still there would be nobody's.
            self._inside.setdefault(cluster_address(cluster_of(action.address) or ""), []).append(action.id)

    def of(self, action: Action) -> tuple[str, ...]:
        """Return the ids an action depends on."""
        return tuple(dict.fromkeys((*self._of(action), *self._mounting.before(action))))

    def _of(self, action: Action) -> Iterator[str]:
        match action:
            case Create() | Adopt():
                yield from self._beneath(action.address, action.after)
                yield from self._cleared(action.address)
                yield from self._freed(action.address)
            case Update():
                yield from self._earlier(action)
                yield from self._freed(action.address)
                if isinstance(action.after, MirrorLink):
                    yield from self._beneath(action.address, action.after)
            case Transition(after=MirrorTopic() as mirror):
                yield from self._earlier(action)
                yield from self._before_verb(action.verb, mirror)
            case Transition():
                yield from self._beneath(action.address, action.after)
                yield from self._earlier(action)
                yield from self._freed(action.address)
            case RunJob():
                yield from self._earlier(action)
                yield from self._changing(action.source)
                if (entry := self._situation.entries.get(action.address)) is not None:
                    yield from self._half(entry) if action.job == CATCH_UP else self._relinked(entry)
                yield from (other.id for other in self._at.get(mirror_at(action.source), ()) if _fills(other))
            case Delete():
                yield from self._inside.get(action.address, ())
            case Forget():
                if kind_of(action.address) == "cluster":
                    yield from self._inside.get(action.address, ())
                yield from self._followed.get(action.address, ())
            case _:
                assert_never(action)

    def _beneath(self, address: Address, resource: Resource) -> Iterator[str]:
        """Yield what makes that which something stands on."""
        cluster = cluster_of(address) or ""
        if address == cluster_address(cluster):
            return
        made = list(self._home(address, resource, cluster))
        if isinstance(resource, MirrorLink):
            made += self._making(cluster_address(resource.spec.source))
        if isinstance(resource, MirrorTopic):
            source = source_of(resource)
            made += [*self._making(link_of(resource)), *self._changing(source), *self._making(mirror_at(source))]
        yield from made

    def _home(self, address: Address, resource: Resource, cluster: str) -> Iterator[str]:
        """Yield what makes the nearest tier; where that is there already, what makes the cluster."""
        if kind_of(address) != "link":
            for tier in self._situation.nearest(cluster, namespace_of(address, resource)):
                if made := list(self._making(tier)):
                    yield from made
                    return
        # What is new takes the cluster's defaults over as they are then: they are set first.
        yield from self._changing(cluster_address(cluster))

    def _cleared(self, address: Address) -> Iterator[str]:
        """Yield what takes away what has the same name on the platform: a topic before a mirror, and the reverse."""
        kind, name = kind_of(address), address.partition("/")[2]
        # A mirror that failed for good is deleted and made afresh under its own address.
        # So is a topic that becomes a read replica, or is none any more.
        named = {"mirror": ("topic", "mirror"), "topic": ("mirror", "topic")}.get(kind, ())
        for other in named:
            found = self._at.get(Address(f"{other}/{name}"), ())
            yield from (action.id for action in found if isinstance(action, Delete))
            yield from self._leaving.get(Address(f"{other}/{name}"), ())

    def _freed(self, address: Address) -> Iterator[str]:
        """Yield what makes an ordinary topic of a mirror before the topic is owned or changed as one."""
        if kind_of(address) != "topic":
            return
        for action in self._at.get(mirror_at(address), ()):
            if isinstance(action, Transition) and action.to_state == STOPPED:
                yield action.id

    def _before_verb(self, verb: str, mirror: MirrorTopic) -> Iterator[str]:
        """Yield what a verb of a mirror needs; a failover never waits for what may have failed with its source."""
        if verb not in _ONE_SIDED:
            yield from self._beneath(mirror.address, mirror)
            yield from self._half(mirror)
        elif verb != "failover":
            yield from self._relinked(mirror)

    def _relinked(self, mirror: MirrorTopic) -> Iterator[str]:
        """Yield the update of a mirror's link: it may resume the link."""
        yield from (other.id for other in self._at.get(link_of(mirror), ()) if isinstance(other, Update))

    def _half(self, mirror: MirrorTopic) -> Iterator[str]:
        """Yield what makes or changes the link of a mirror, and its half on the other cluster."""
        yield from self._changing(link_of(mirror))
        yield from self._changing(address_of("link", mirror.source_cluster, mirror.link))

    def _earlier(self, action: Action) -> Iterator[str]:
        """Yield what comes before an action at its own address."""
        for other in self._at[action.address]:
            if other is action:
                return
            yield other.id

    def _making(self, address: Address) -> Iterator[str]:
        for action in self._at.get(address, ()):
            if isinstance(action, Create | Transition):
                yield action.id

    def _changing(self, address: Address) -> Iterator[str]:
        for action in self._at.get(address, ()):
            if isinstance(action, Create | Transition | Update):
                yield action.id

    def _holders(self, action: Delete | Forget) -> Iterator[Address]:
        """Yield what can only go after something in it has gone."""
        address = action.address
        cluster = cluster_of(address) or ""
        last = self._situation.recorded.get(address)
        resource = action.before if isinstance(action, Delete) else last.resource if last else None
        if kind_of(address) == "cluster" or resource is None:
            return
        if kind_of(address) != "link":
            namespace = namespace_of(address, resource)
            if namespace:
                yield address_of("namespace", cluster, namespace)
        if isinstance(resource, MirrorTopic):
            yield link_of(resource)
            yield source_of(resource)
            yield mirror_at(source_of(resource))


def _home_of(topic: Address) -> Address:
    return address_of("namespace", cluster_of(topic) or "", split_name(full_name_of(topic))[0])


def _fills(action: Action) -> bool:
    """Tell whether an action makes a mirror what its own mirrors are to copy."""
    return isinstance(action, Create | Transition | Update | RunJob)


# Actions that wait for each other in a ring: nothing orders them, so the plan says which they are.


def cut_open(depends: dict[str, tuple[str, ...]]) -> tuple[TopologicalSorter[str], list[tuple[str, ...]]]:
    """Return what depends on what, ready to be walked, and the rings: in each every id waits for the one before it.

    In `depends` each ring is cut open in one place.
    """
    rings: list[tuple[str, ...]] = []
    while True:
        sorter = TopologicalSorter(depends)
        try:
            sorter.prepare()
        except CycleError as error:
            before, name, *_ = ring = tuple(error.args[1])
            rings.append(ring)
            depends[name] = tuple(each for each in depends[name] if each != before)
        else:
            return sorter, rings


def told(ring: Sequence[str]) -> Finding:
    """Return a ring as an error of the plan."""
    return Finding(
        None,
        None,
        f"these wait for each other, so none can come first: {' → '.join(ring)}",
        "Apply them in two steps: take one of them out of the files for now.",
    )


def in_order(actions: Sequence[Action], situation: Situation) -> tuple[tuple[Action, ...], list[Finding]]:
    """Return the actions with what they depend on, their waves, in a total, repeatable order; and what has none.

    Among those that are ready, making comes before removing; making goes from clusters to mirrors, removing back.
    """
    lined_up = _line_up(actions)
    needs = Needs(lined_up, situation)
    depends = {action.id: needs.of(action) for action in lined_up}
    sorter, rings = cut_open(depends)
    waves: dict[str, int] = {}
    by_id = {action.id: action for action in lined_up}
    ordered: list[Action] = []
    for name in _walk(sorter, {action.id: place for place, action in enumerate(lined_up)}):
        before = depends[name]
        wave = waves[name] = 1 + max((waves[needed] for needed in before), default=0)
        action = by_id[name]
        is_first = not before and wave == action.wave
        ordered.append(action if is_first else replace(action, depends_on=tuple(sorted(before)), wave=wave))
    return tuple(ordered), [told(ring) for ring in rings]


def _walk(sorter: TopologicalSorter[str], places: Mapping[str, int]) -> Iterable[str]:
    """Yield every id after what it depends on, the first place first among those that are ready."""
    ready: list[tuple[int, str]] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heappush(ready, (places[name], name))
        _, name = heappop(ready)
        yield name
        sorter.done(name)


def _line_up(actions: Sequence[Action]) -> list[Action]:
    making = [action for action in actions if not isinstance(action, Delete | Forget)]
    removing = [action for action in actions if isinstance(action, Delete | Forget)]
    making.sort(key=lambda action: (rank(action.address), _step(action)))
    removing.sort(key=lambda action: (rank(action.address), _step(action)), reverse=True)
    return [*making, *removing]


def _step(action: Action) -> int:
    """Return the place among the actions of one address."""
    match action:
        case Create():
            return 0
        case Adopt():
            return 1
        case RunJob() if action.job == CATCH_UP:
            return 2  # what is promoted is caught up with first
        case Transition():
            return 3
        case Update():
            return 4
        case RunJob():
            return 5
        case Delete():
            return 6
        case Forget():
            return 7
        case _:
            assert_never(action)
