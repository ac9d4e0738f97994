"""What another role of a mirror costs: what is lost by it, and what is copied first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Reason, RunJob, Transition
from reconciler.planning.deciding.mirrors import CATCH_UP, patience_of
from reconciler.planning.estimates import Estimate, RoleCost
from reconciler.planning.judging.detaching import BYTES_A_SECOND
from reconciler.planning.situation import mirror_at, source_of, topic_of
from reconciler.resources.address import cluster_of, full_name_of
from reconciler.resources.mirrortopic import MirrorTopic
from reconciler.resources.standing import cut_off, cuts, lacking, last_fetched, length_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from reconciler.planning.actions import Action
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.measures import Measure
    from reconciler.resources.standing import Positions, Stretch

_FAILOVER: Final = "failover"
_RESTORE: Final = "truncate-and-restore"
_REVERSALS: Final = frozenset({"reverse-and-start", "reverse-and-pause"})
_NOT_MEASURED: Final = "it was not measured: a plan looks at 1,000 partitions of a cluster at most"


def cost_of_failover(mirror: Positions, source: Positions, source_id: str | None, name: str) -> RoleCost:
    """Return what a mirror lacks that fails over; `name`: of its source, and where that is."""
    lost = lacking(mirror, source, source_id)
    if lost is None:
        return away(mirror, f"{name} was deleted and made anew")
    return RoleCost(lost=lost)


def cost_of_catching_up(
    mirror: Positions, source: Positions, source_id: str | None, name: str, timeout_ms: int | None = None
) -> RoleCost:
    """Return what a mirror lacks that is promoted or reversed, and that is copied first."""
    behind = lacking(mirror, source, source_id)
    if behind is None:
        return replace(away(mirror, f"{name} was deleted and made anew"), timeout_ms=timeout_ms)
    return RoleCost(behind=behind, timeout_ms=timeout_ms)


def cost_of_restore(
    topic: Positions, at: Mapping[int, int], committed: Mapping[str, Mapping[int, int]] | None
) -> RoleCost:
    """Return what is cut off a topic at these offsets, and which groups have read beyond them."""
    lost = cut_off(topic, at)
    begins = {each.partition: each.start for each in lost}
    if committed is None:
        return RoleCost(lost=lost, groups_set_back=None if lost else ())
    beyond = {
        group
        for group, offsets in committed.items()
        if any(offset > begins.get(partition, offset) for partition, offset in offsets.items())
    }
    return RoleCost(lost=lost, groups_set_back=tuple(sorted(beyond)))


def away(mirror: Positions, why: str) -> RoleCost:
    """Return all that is known of a failover whose source cannot be asked."""
    return RoleCost(unknown=why, fetched=last_fetched(mirror))


def topics_cut(actions: Iterable[Action]) -> frozenset[Address]:
    """Return the topics that are cut, so that it matters who reads them."""
    return frozenset(
        topic_of(action.after)
        for action in actions
        if isinstance(action, Transition) and isinstance(action.after, MirrorTopic) and action.verb == _RESTORE
    )


def with_cost(action: Transition, situation: Situation, measure: Callable[[Address], Measure | None]) -> Transition:
    """Return what is asked of a mirror with what it costs; any other transition as it is."""
    if not isinstance(action.after, MirrorTopic) or action.verb not in {_FAILOVER, _RESTORE, *_REVERSALS}:
        return action
    mirror = action.after
    here, there = measure(topic_of(mirror)), measure(source_of(mirror))
    if action.verb == _FAILOVER:
        cost, moved = _failover(mirror, here, there, situation), there
    elif here is None or there is None:
        cost, moved = RoleCost(unknown=_NOT_MEASURED), None
    elif action.verb == _RESTORE:
        ids = (_incarnation(topic_of(mirror), situation), _incarnation(source_of(mirror), situation))
        at = cuts(here.positions, ids[0], there.positions, ids[1])
        cost, moved = cost_of_restore(here.positions, at, here.committed), here
    else:
        of = (_incarnation(source_of(mirror), situation), _name_of(source_of(mirror)))
        cost, moved = cost_of_catching_up(here.positions, there.positions, *of), there
    reasons = action.reasons if cost.unknown is None else (*action.reasons, Reason.UNMEASURED)
    return replace(action, reasons=reasons, estimate=estimate_of(cost, moved))


def is_wait(action: RunJob) -> bool:
    """Tell whether a job is the wait before a promotion."""
    return action.job == CATCH_UP


def with_lag(action: RunJob, situation: Situation, measure: Callable[[Address], Measure | None]) -> RunJob:
    """Return the wait before a promotion with what it has to copy."""
    here, there = measure(action.sink), measure(action.source)
    mirror = situation.entries.get(action.address)
    timeout_ms = None if mirror is None else patience_of(mirror, situation)
    if here is None or there is None:
        cost = RoleCost(unknown=_NOT_MEASURED, timeout_ms=timeout_ms)
    else:
        of = (_incarnation(action.source, situation), _name_of(action.source))
        cost = cost_of_catching_up(here.positions, there.positions, *of, timeout_ms)
    return replace(action, estimate=estimate_of(cost, there))


def _failover(mirror: MirrorTopic, here: Measure | None, there: Measure | None, situation: Situation) -> RoleCost:
    source, positions = source_of(mirror), {} if here is None else here.positions
    if mirror.source_cluster not in situation.trusted:
        is_lost = mirror.source_cluster in situation.given.lost
        return away(positions, f"{mirror.source_cluster} {'does not answer' if is_lost else 'was not read'}")
    name = _name_of(source)
    if source not in situation.observed and mirror_at(source) not in situation.observed:
        return away(positions, f"there is no {name} any more")
    if here is None or there is None:
        return away(positions, _NOT_MEASURED)
    return cost_of_failover(positions, there.positions, _incarnation(source, situation), name)


def _name_of(source: Address) -> str:
    return f"{full_name_of(source)} on {cluster_of(source)}"


def _incarnation(topic: Address, situation: Situation) -> str | None:
    seen = situation.observed.get(topic) or situation.observed.get(mirror_at(topic))
    return None if seen is None else seen.incarnation


def estimate_of(cost: RoleCost, measure: Measure | None) -> Estimate:
    """Return what a cost is in offsets, bytes and time; `measure`: of the topic that has what is lost or copied."""
    offsets = length_of((*cost.lost, *cost.behind))
    size = 0 if measure is None else _share(measure, (*cost.lost, *cost.behind))
    seconds = max(1, size // BYTES_A_SECOND) if cost.behind else 1
    return Estimate(bytes=size, records=offsets, seconds=seconds, role=cost)


def _share(measure: Measure, of: Iterable[Stretch]) -> int:
    """Return about how many bytes stretches of a topic are: as many as others of it that are as long."""
    spans = sum(max(0, at.end - at.start) for at in measure.positions.values())
    return measure.bytes * min(length_of(of), spans) // spans if spans else 0
