"""Sort the actions of a plan by dependencies, and detect cycles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.diff.mirror_changes import CATCH_UP
from reconciler.planning.diff.moves import JOBS, MountDependencies, find_moved_from, find_unmounted_topic
from reconciler.planning.plan import PlanFinding
from reconciler.planning.resolve.mirror_sources import link_of
from reconciler.planning.selection import build_other_half_address, find_parent_namespace, is_second_half
from reconciler.planning.situation import STOPPED, Situation, as_mirror, get_source_topic
from reconciler.resources.address import (
    Address,
    address_of,
    build_sort_key,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    split_name,
)
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic

if TYPE_CHECKING:
    from reconciler.resources.inventory import Resource


_ONE_SIDED: Final = frozenset({"pause", "resume", "failover"})


class ActionDependencies:
    """Dependencies between one plan's actions, by action id."""

    def __init__(self, actions: Sequence[Action], situation: Situation) -> None:
        self._situation = situation
        self._mounting = MountDependencies(actions, situation)
        self._actions_at: dict[Address, list[Action]] = {}
        self._removals_inside: dict[Address, list[str]] = {}
        self._name_releases: dict[Address, list[str]] = {}
        self._record_moves: dict[Address, list[str]] = {}
        for action in actions:
            if isinstance(action, Adopt) and action.moved_from:
                self._record_moves.setdefault(action.moved_from, []).append(action.id)
            self._actions_at.setdefault(action.address, []).append(action)
        for action in actions:
            if isinstance(action, Delete | Forget):
                self._add_removal(action)
            elif isinstance(action, RunJob) and action.job in JOBS:
                self._removals_inside.setdefault(action.source, []).append(action.id)
            elif (topic := find_unmounted_topic(action)) is not None:
                self._removals_inside.setdefault(_build_namespace_address(topic), []).append(action.id)
            elif (old := find_moved_from(action)) is not None:
                self._removals_inside.setdefault(_build_namespace_address(old), []).append(action.id)
                self._name_releases.setdefault(old, []).append(action.id)

    def _add_removal(self, action: Delete | Forget) -> None:
        holders = list(self._list_containers(action))
        if isinstance(action, Delete) and isinstance(action.before, MirrorTopic):
            # Mirrors are deleted before their link, and both before the sources.
            links = self._actions_at.get(link_of(action.before), ())
            gone = self._removals_inside.setdefault(get_source_topic(action.before), [])
            gone += [link.id for link in links if isinstance(link, Delete)]
            # Until its link is updated, a cluster rejects the deletion of a mirror that the filters match.
            self._removals_inside.setdefault(action.address, []).extend(
                link.id for link in links if isinstance(link, Update)
            )
        for holder in holders:
            self._removals_inside.setdefault(holder, []).append(action.id)
        near = (holder for holder in holders if cluster_of(holder) == cluster_of(action.address))
        part_to_delete = (
            other for holder in near for other in self._actions_at.get(holder, ()) if isinstance(other, Delete)
        )
        if isinstance(action, Delete) and next(part_to_delete, None) is None:
            # The cluster's removal waits, so an interrupted run leaves no resource without an owner.
            self._removals_inside.setdefault(cluster_address(cluster_of(action.address) or ""), []).append(action.id)

    def list_required_ids(self, action: Action) -> tuple[str, ...]:
        """Return the ids of actions that must run before an action."""
        return tuple(dict.fromkeys((*self._find_dependencies(action), *self._mounting.before(action))))

    def _find_dependencies(self, action: Action) -> Iterator[str]:
        match action:
            case Create() | Adopt():
                yield from self._find_required_creators(action.address, action.after)
                yield from self._find_name_removals(action.address)
                yield from self._find_mirror_stops(action.address)
            case Update():
                yield from self._find_earlier_actions(action)
                yield from self._find_mirror_stops(action.address)
                if isinstance(action.after, MirrorLink):
                    yield from self._find_required_creators(action.address, action.after)
            case Transition(after=MirrorTopic() as mirror):
                yield from self._find_earlier_actions(action)
                yield from self._find_verb_dependencies(action.verb, mirror)
            case Transition():
                yield from self._find_required_creators(action.address, action.after)
                yield from self._find_earlier_actions(action)
                yield from self._find_mirror_stops(action.address)
            case RunJob():
                yield from self._find_earlier_actions(action)
                yield from self._find_changers(action.source)
                if (entry := self._situation.desired_mirrors.get(action.address)) is not None:
                    yield from (
                        self._find_link_changes(entry) if action.job == CATCH_UP else self._find_link_updates(entry)
                    )
                yield from (
                    other.id
                    for other in self._actions_at.get(as_mirror(action.source), ())
                    if _may_change_records(other)
                )
            case Delete():
                yield from self._removals_inside.get(action.address, ())
            case Forget():
                if kind_of(action.address) == "cluster":
                    yield from self._removals_inside.get(action.address, ())
                yield from self._record_moves.get(action.address, ())
            case _:
                assert_never(action)

    def _find_required_creators(self, address: Address, resource: Resource) -> Iterator[str]:
        cluster = cluster_of(address) or ""
        if address == cluster_address(cluster):
            return
        creators = list(self._find_parent_creators(address, resource, cluster))
        if isinstance(resource, MirrorLink):
            creators += self._find_creators(cluster_address(resource.spec.source))
            wanted = self._situation.wanted.get(address)
            if wanted is not None and is_second_half(wanted, self._situation):
                creators += self._find_creators(build_other_half_address(resource))
        if isinstance(resource, MirrorTopic):
            source = get_source_topic(resource)
            creators += [
                *self._find_creators(link_of(resource)),
                *self._find_creators(address_of("link", resource.source_cluster, resource.link)),
                *self._find_changers(source),
                *self._find_creators(as_mirror(source)),
            ]
        yield from creators

    def _find_parent_creators(self, address: Address, resource: Resource, cluster: str) -> Iterator[str]:
        if kind_of(address) != "link":
            for tier in self._situation.list_nearest_namespaces(cluster, find_parent_namespace(address, resource)):
                if creators := list(self._find_creators(tier)):
                    yield from creators
                    return
        # New topics copy the cluster's updated defaults.
        yield from self._find_changers(cluster_address(cluster))

    def _find_name_removals(self, address: Address) -> Iterator[str]:
        kind, name = kind_of(address), address.partition("/")[2]
        # FAILED mirrors and read replicas are deleted and recreated at the same address.
        named = {"mirror": ("topic", "mirror"), "topic": ("mirror", "topic")}.get(kind, ())
        for other in named:
            replaced = self._actions_at.get(Address(f"{other}/{name}"), ())
            yield from (action.id for action in replaced if isinstance(action, Delete))
            yield from self._name_releases.get(Address(f"{other}/{name}"), ())

    def _find_mirror_stops(self, address: Address) -> Iterator[str]:
        if kind_of(address) != "topic":
            return
        for action in self._actions_at.get(as_mirror(address), ()):
            if isinstance(action, Transition) and action.to_state == STOPPED:
                yield action.id

    def _find_verb_dependencies(self, verb: str, mirror: MirrorTopic) -> Iterator[str]:
        if verb not in _ONE_SIDED:
            yield from self._find_required_creators(mirror.address, mirror)
            yield from self._find_link_changes(mirror)
        elif verb != "failover":  # A failover must not wait for actions that need the source.
            yield from self._find_link_updates(mirror)

    def _find_link_updates(self, mirror: MirrorTopic) -> Iterator[str]:
        yield from (other.id for other in self._actions_at.get(link_of(mirror), ()) if isinstance(other, Update))

    def _find_link_changes(self, mirror: MirrorTopic) -> Iterator[str]:
        yield from self._find_changers(link_of(mirror))
        yield from self._find_changers(address_of("link", mirror.source_cluster, mirror.link))

    def _find_earlier_actions(self, action: Action) -> Iterator[str]:
        for other in self._actions_at[action.address]:
            if other is action:
                return
            yield other.id

    def _find_creators(self, address: Address) -> Iterator[str]:
        for action in self._actions_at.get(address, ()):
            if isinstance(action, Create | Transition):
                yield action.id

    def _find_changers(self, address: Address) -> Iterator[str]:
        for action in self._actions_at.get(address, ()):
            if isinstance(action, Create | Transition | Update):
                yield action.id

    def _list_containers(self, action: Delete | Forget) -> Iterator[Address]:
        address = action.address
        cluster = cluster_of(address) or ""
        last = self._situation.recorded.get(address)
        resource = action.before if isinstance(action, Delete) else last.resource if last else None
        if kind_of(address) == "cluster" or resource is None:
            return
        if kind_of(address) != "link":
            namespace = find_parent_namespace(address, resource)
            if namespace:
                yield address_of("namespace", cluster, namespace)
        if isinstance(resource, MirrorTopic):
            yield link_of(resource)
            yield get_source_topic(resource)
            yield as_mirror(get_source_topic(resource))


def _build_namespace_address(topic: Address) -> Address:
    return address_of("namespace", cluster_of(topic) or "", split_name(full_name_of(topic))[0])


def _may_change_records(action: Action) -> bool:
    return isinstance(action, Create | Transition | Update | RunJob)


def break_cycles(depends: dict[str, tuple[str, ...]]) -> tuple[TopologicalSorter[str], list[tuple[str, ...]]]:
    """Return a prepared sorter and the cycles. Remove an edge of each cycle from `depends`."""
    rings: list[tuple[str, ...]] = []
    while True:
        sorter = TopologicalSorter(depends)
        try:
            sorter.prepare()
        except CycleError as error:
            before, name, *_ = ring = tuple(error.args[1])
            rings.append(ring)
            depends[name] = tuple(needed for needed in depends[name] if needed != before)
        else:
            return sorter, rings


def build_cycle_error(ring: Sequence[str]) -> PlanFinding:
    """Build the error for actions that depend on each other."""
    return PlanFinding(
        None,
        None,
        f"these depend on each other in a circle: {' → '.join(ring)}",
        "Apply them in two steps: take one of them out of the files for now.",
    )


def sort_actions(actions: Sequence[Action], situation: Situation) -> tuple[tuple[Action, ...], list[PlanFinding]]:
    """Return the sorted actions, and an error for each cycle of dependencies.

    Creations come first, from clusters to mirrors. Removals follow in reverse. An action's wave is one more than the
    highest wave that it depends on.
    """
    lined_up = _sort_by_kind(actions)
    dependencies = ActionDependencies(lined_up, situation)
    depends = {action.id: dependencies.list_required_ids(action) for action in lined_up}
    sorter, rings = break_cycles(depends)
    waves: dict[str, int] = {}
    by_id = {action.id: action for action in lined_up}
    ordered: list[Action] = []
    for name in _iterate_ready(sorter, {action.id: place for place, action in enumerate(lined_up)}):
        before = depends[name]
        wave = waves[name] = 1 + max((waves[needed] for needed in before), default=0)
        action = by_id[name]
        is_first = not before and wave == action.wave
        ordered.append(action if is_first else replace(action, depends_on=tuple(sorted(before)), wave=wave))
    return tuple(ordered), [build_cycle_error(ring) for ring in rings]


def _iterate_ready(sorter: TopologicalSorter[str], places: Mapping[str, int]) -> Iterable[str]:
    ready: list[tuple[int, str]] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heappush(ready, (places[name], name))
        _, name = heappop(ready)
        yield name
        sorter.done(name)


def _sort_by_kind(actions: Sequence[Action]) -> list[Action]:
    making = [action for action in actions if not isinstance(action, Delete | Forget)]
    removing = [action for action in actions if isinstance(action, Delete | Forget)]
    making.sort(key=lambda action: (build_sort_key(action.address), _rank_step(action)))
    removing.sort(key=lambda action: (build_sort_key(action.address), _rank_step(action)), reverse=True)
    return [*making, *removing]


def _rank_step(action: Action) -> int:
    match action:
        case Create():
            return 0
        case Adopt():
            return 1
        case RunJob() if action.job == CATCH_UP:
            return 2  # The catch-up job precedes the promotion.
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
