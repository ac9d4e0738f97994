"""The order of a plan: what an action needs comes before it, and the same actions always come in the same order."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, assert_never

from reconciler.planning.actions import Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.deciding.mirrors import CATCH_UP
from reconciler.planning.ordering.needs import Needs
from reconciler.planning.ordering.rings import cut_open, told
from reconciler.resources.address import rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from graphlib import TopologicalSorter

    from reconciler.planning.actions import Action
    from reconciler.planning.finding import Finding
    from reconciler.planning.situation import Situation


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
