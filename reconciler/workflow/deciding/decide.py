"""From a loaded workspace to a plan: read the state, observe, decide, measure what that asks for, judge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.planning import planner
from reconciler.planning.judging.roles import topics_cut
from reconciler.planning.plan import Base, Given, Plan
from reconciler.planning.wanted.givenup import given_up
from reconciler.workflow.beginning.selecting import selection
from reconciler.workflow.deciding.findings import located
from reconciler.workflow.looking.bursts import burst
from reconciler.workflow.looking.followed import followed_groups
from reconciler.workflow.looking.lost import as_lost
from reconciler.workflow.looking.mountables import mountables
from reconciler.workflow.looking.observing import Seen, measure, observe
from reconciler.workflow.looking.outdated import warn_of_outdated
from reconciler.workflow.looking.recoverables import recoverables
from reconciler.workflow.looking.remembering import Remembered, remember

if TYPE_CHECKING:
    from reconciler.resources.inventory import Inventory, Record
    from reconciler.resources.measures import Measures
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.beginning.opening import Work


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of planning a command sets beside SELECT."""

    is_destroy: bool = False
    include_adopted: bool = False
    is_only_drift: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan and the three inventories it was made from."""

    plan: Plan
    snapshot: Snapshot | None
    recorded: Record
    """What we last applied and own."""
    seen: Seen
    remembered: Remembered


def decide(work: Work, snapshot: Snapshot | None, wanted: Wanted | None = None) -> Decided:
    """Observe the clusters and plan on `snapshot`, the state under our lease.

    Sizes are asked for only where the plan depends on them.

    Raises:
        RetryableError: A cluster cannot be read.
    """
    with burst():
        return _decide(work, Remembered(snapshot), wanted or Wanted())


def decide_unlocked(work: Work, wanted: Wanted | None = None) -> Decided:
    """Read the state without a lock, and decide as the next apply will: after it has settled what is open.

    Where something differs, the state is looked at once more: it may be an old one that was put back.

    Raises:
        RetryableError: A cluster cannot be read.
        UserError: The state is another workspace's, lost or damaged.
    """
    remembered = remember(work)
    with burst():
        decided = _decide(work, remembered, wanted or Wanted())
        if decided.plan.actions or decided.plan.drift:
            warn_of_outdated(work, decided.snapshot.lockfile if decided.snapshot else None)
    return decided


def _decide(work: Work, remembered: Remembered, wanted: Wanted) -> Decided:
    snapshot = remembered.snapshot

    def may_lack(inventory: Inventory) -> frozenset[str]:
        return frozenset() if wanted.is_destroy else given_up(work.loaded.desired, remembered.record, inventory)

    seen = observe(work.providers, work.to_read, remembered.record, may_lack=may_lack)
    record = remembered.settled(seen)
    given, inventory = _given(work, snapshot, seen, wanted), seen.inventory
    if not wanted.is_destroy:
        looked = mountables(work.providers, work.loaded.desired, record, seen)
        given = replace(given, mounts=looked.mounts, detached=looked.detached)
        inventory = as_lost(inventory, looked.lost) if looked.lost else inventory
    draft = planner.decide(work.loaded.desired, record, inventory, given=given)
    asked = planner.to_measure(draft)
    measures: Measures = {}
    if asked:
        cut, lost = topics_cut(draft.actions), may_lack(seen.inventory)
        measures = measure(work.providers, asked, with_groups=True, committed=cut, may_lack=lost)
    found = planner.judge(draft, measures)
    placed = replace(found, errors=located(found.errors, work.loaded), warnings=located(found.warnings, work.loaded))
    return Decided(placed, snapshot, record, seen, remembered)


def _given(work: Work, snapshot: Snapshot | None, seen: Seen, wanted: Wanted) -> Given:
    workspace, invocation = work.loaded.workspace, work.invocation
    return Given(
        workspace=workspace.metadata.name,
        capabilities=seen.capabilities,
        identities=seen.identities,
        hidden=seen.hidden,
        lost={name: error.message for name, error in seen.lost.items()},
        groups={} if wanted.is_destroy else followed_groups(work.providers, work.loaded.desired, seen),
        recoveries={} if wanted.is_destroy else recoverables(work.providers, work.loaded.desired, seen),
        today=invocation.today(),
        now_ms=invocation.now_ms(),
        guards=workspace.spec.guards,
        selection=selection(invocation, work.select, work.folder),
        base=Base(snapshot.lineage, snapshot.serial, snapshot.sha256) if snapshot else None,
        environment=work.select.environment,
        git_commit=invocation.git_commit(work.folder),
        tool=invocation.tool,
        is_destroy=wanted.is_destroy,
        include_adopted=wanted.include_adopted,
        back_to=work.back_to,
        is_only_drift=wanted.is_only_drift,
    )
