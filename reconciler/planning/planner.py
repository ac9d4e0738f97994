"""The whole of planning: three inventories in, one plan out. No clock, network, printing or randomness.

A plan is made in three steps: `decide` what is to be done, let the caller measure what `to_measure` names, and `judge`
what was decided by these measures.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.planning.deciding.decide import decide_wanted
from reconciler.planning.deciding.decision import Decision
from reconciler.planning.deciding.drift import check_unmatched_rules, ignoring
from reconciler.planning.deciding.onlydrift import only_drift
from reconciler.planning.deciding.overrides import overrides, warnings_of
from reconciler.planning.deciding.removed import decide_removed
from reconciler.planning.deciding.underway import say_under_way
from reconciler.planning.deciding.unmanaged import unmanaged
from reconciler.planning.document.digest import digest
from reconciler.planning.finding import Finding
from reconciler.planning.judging.allowances import allowances, check_unmatched
from reconciler.planning.judging.checks import check
from reconciler.planning.judging.clusters import check_clusters, declared_clusters, trusted_clusters
from reconciler.planning.judging.copyingoff import warnings_of_copying_off
from reconciler.planning.judging.denials import warnings_of_denials
from reconciler.planning.judging.detaching import warnings_of_sealed
from reconciler.planning.judging.durability import warnings_of_insync
from reconciler.planning.judging.expiry import check_expired
from reconciler.planning.judging.guards import guard
from reconciler.planning.judging.hidden import check_hidden
from reconciler.planning.judging.impact import Impact
from reconciler.planning.judging.linkfilters import warnings_of_links
from reconciler.planning.judging.quotas import judge_quotas
from reconciler.planning.judging.returning import warnings_of_return
from reconciler.planning.judging.rules import check_rules
from reconciler.planning.judging.tieredtopics import warnings_of_tiered_topics
from reconciler.planning.judging.tiering import warnings_of_tiering
from reconciler.planning.ordering.order import in_order
from reconciler.planning.plan import Given, Plan
from reconciler.planning.selection import check_targets, chooser, is_partial
from reconciler.planning.situation import Situation
from reconciler.planning.wanted.commanded import as_commanded, warnings_of_commanded
from reconciler.planning.wanted.effective import effective
from reconciler.planning.wanted.givenup import warnings_of_lost
from reconciler.planning.wanted.names import addressed
from reconciler.resources.address import rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.planning.actions import Action
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired, Inventory, Record
    from reconciler.resources.measures import Measures


@dataclass(frozen=True, slots=True)
class Draft:
    """What was decided, before it is known what it costs and whether it may be done."""

    desired: Desired
    situation: Situation
    decision: Decision

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions, without their risks and in no order."""
        return tuple(self.decision.actions)


def decide(desired: Desired, recorded: Record, observed: Inventory, *, given: Given) -> Draft:
    """Return the actions that turn `observed` into `desired`.

    Only addresses in `recorded` may be deleted: what we did not create or adopt, we leave alone.
    """
    situation, findings = _look(desired, recorded, observed, given)
    decision = Decision(errors=findings)
    decide_wanted(situation, frozenset(item.address for item in findings if item.address), decision)
    decide_removed(situation, decision)
    say_under_way(situation, decision)
    if given.is_only_drift:
        only_drift(decision, situation)
    return Draft(desired, situation, decision)


def to_measure(draft: Draft) -> tuple[Address, ...]:
    """Return the topics whose size the risk or the estimate of an action rests on; those with a risk first."""
    impact = Impact(draft.situation, {})
    judged = [impact.judge(action) for action in draft.actions]
    deque(impact.warnings(judged), maxlen=0)
    judge_quotas(draft.situation, judged, impact.measure)
    return impact.unmeasured


def judge(draft: Draft, measures: Measures) -> Plan:
    """Return the plan: every action with its risk, what blocks it and its place; and what is wrong or worth knowing.

    Where a finding is among `errors`, nothing of the plan may be applied.
    """
    situation, decision, given = draft.situation, draft.decision, draft.situation.given
    impact = Impact(situation, measures)
    allowed = allowances(given.guards, given.selection)
    judged, refused = guard([impact.judge(action) for action in draft.actions], draft.desired, situation, allowed)
    actions, rings = in_order(judged, situation)
    quotas = judge_quotas(situation, actions, impact.measure)

    hiding = () if given.is_destroy else overrides(situation)
    unmatched = check_unmatched(actions, allowed, is_partial=given.is_only_drift or is_partial(given.selection))
    return Plan(
        workspace=given.workspace,
        environment=given.environment,
        base=given.base,
        tool=given.tool,
        git_commit=given.git_commit,
        actions=actions,
        drift=tuple(sorted(decision.drift, key=lambda found: (rank(found.address), found.path))),
        waiting=tuple(sorted(decision.waiting, key=lambda found: rank(found.address))),
        unmanaged=unmanaged(situation),
        overrides=hiding,
        errors=_in_order([*decision.errors, *refused, *rings, *quotas.errors]),
        warnings=_in_order(
            [
                *decision.warnings,
                *check_rules(situation, actions),
                *unmatched,
                *check_unmatched_rules(situation),
                *warnings_of(hiding, situation),
                *quotas.warnings,
                *warnings_of_return(given, actions),
                *impact.warnings(actions),
                *warnings_of_tiering(situation),
                *warnings_of_tiered_topics(situation),
                *warnings_of_copying_off(situation, draft.desired),
                *warnings_of_lost(situation),
                *warnings_of_commanded(situation),
                *warnings_of_links(situation),
                *warnings_of_denials(situation),
                *warnings_of_insync(situation),
                *warnings_of_sealed(situation.observed),
            ]
        ),
        back_to=given.back_to,
        digest=digest(actions),
    )


def _look(desired: Desired, recorded: Record, observed: Inventory, given: Given) -> tuple[Situation, list[Finding]]:
    """Gather what there is to look at, and what of it is wrong already."""
    findings = [*check_expired(given.guards, given.today), *check_clusters(desired, recorded, given)]
    trusted = trusted_clusters(desired, given, tuple(findings))
    clusters = declared_clusters(desired)
    observed = addressed(observed, desired, sorted(desired) + sorted(recorded), clusters)
    wanted, unclear = ({}, []) if given.is_destroy else effective(desired, given, observed)
    wanted = as_commanded(wanted, recorded, observed)
    situation = Situation(
        wanted=wanted,
        recorded=recorded,
        observed=observed,
        given=given,
        clusters=clusters,
        trusted=trusted,
        is_chosen=chooser(given, wanted, recorded, observed),
        ignored=ignoring(given.guards, given.today),
    )
    chosen = [finding for finding in unclear if finding.address and situation.is_decidable(finding.address)]
    chosen = list(_once(chosen))
    missed = check_targets(given.selection, wanted, recorded, observed)
    return situation, [*findings, *chosen, *missed, *check_hidden(situation), *check(situation)]


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what is wrong with a policy once, where thousands of topics may have it."""
    told: set[str] = set()
    for finding in sorted(findings, key=lambda found: (found.address or "", found.message)):
        is_policys = any(place.startswith("policy/") for place, _ in finding.marks)
        if not is_policys or finding.message not in told:
            told.add(finding.message)
            yield finding


def _in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda item: (rank(item.address) if item.address else (-1, ""), item.message)))
