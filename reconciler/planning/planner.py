"""Make a plan from three inventories, without side effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from reconciler.planning.allowances import collect_allowances, find_applied_commit
from reconciler.planning.checks.checks import ERRORS, MEASURED, REFUSALS, WARNINGS, check_resources
from reconciler.planning.checks.cluster_checks import check_clusters, find_trusted_clusters, list_declared_clusters
from reconciler.planning.checks.guards import (
    apply_guards,
    apply_order_guards,
    warnings_of_ordered_owners,
    warnings_of_unmountable,
)
from reconciler.planning.checks.mirror_checks import check_links, check_role_swaps, warnings_of_restores
from reconciler.planning.checks.offline import check_expired
from reconciler.planning.checks.risks import Impact
from reconciler.planning.diff.converge import Decision
from reconciler.planning.diff.decide import adopt_again, decide_wanted, find_unmanaged
from reconciler.planning.diff.drift import build_drift_filter, keep_only_drift
from reconciler.planning.diff.mirror_changes import decide_auto_created_mirrors, report_transitions
from reconciler.planning.diff.moves import add_implied_moves
from reconciler.planning.diff.removals import decide_removed
from reconciler.planning.order import sort_actions
from reconciler.planning.plan import Plan, PlanFinding, PlanInput
from reconciler.planning.plan_rows import compute_digest
from reconciler.planning.resolve.effective import resolve_desired
from reconciler.planning.resolve.mirror_sources import find_held_mirrors, map_role_changes, replace_held_roles
from reconciler.planning.resolve.physical_names import rekey_observed
from reconciler.planning.selection import build_selector, is_partial_selection
from reconciler.planning.situation import Review, Situation
from reconciler.resources.address import build_sort_key
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.resources.inventory import Desired, Inventory, Record
    from reconciler.resources.measures import Cuts, Measures


Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Draft:
    """Actions before risks, guards and order are added."""

    desired: Desired
    situation: Situation
    decision: Decision

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions, unsorted; their risks are not assessed yet."""
        return tuple(self.decision.actions)


def decide_actions(desired: Desired, recorded: Record, observed: Inventory, *, request: PlanInput) -> Draft:
    """Return the actions that turn `observed` into `desired`.

    Only recorded resources, and mirrors that links created, may be deleted.
    """
    if request.orders:
        return _decide_orders(desired, recorded, observed, request)
    situation, findings = _build_situation(desired, recorded, observed, request)
    decision = Decision(errors=findings, held=[*find_held_mirrors(situation)])
    decide_wanted(situation, frozenset(item.address for item in findings if item.address), decision)
    decide_removed(situation, decision)
    decide_auto_created_mirrors(situation, decision)
    adopt_again(situation, decision)
    report_transitions(situation, decision)
    if request.options.is_only_drift:
        keep_only_drift(decision, situation)
    return Draft(desired, situation, decision)


def _decide_orders(desired: Desired, recorded: Record, observed: Inventory, request: PlanInput) -> Draft:
    from reconciler.planning.diff.ordered import build_ordered_resources, decide_ordered  # noqa: PLC0415 - few plans need it

    decision = Decision()
    wanted, trusted = build_ordered_resources(request.orders, decision), frozenset(request.capabilities)
    situation = Situation(wanted, recorded, observed, request, list_declared_clusters(desired), trusted)
    decision.errors += [*check_resources(situation), *check_links(situation)]
    decide_ordered(situation, decision)
    return Draft(desired, situation, decision)


def list_topics_to_measure(draft: Draft) -> Cuts:
    """Map each topic to measure to times before which its records would expire."""
    impact = Impact(draft.situation, {}, draft.actions)
    judged = [impact.judge(action) for action in draft.actions]
    deque(_run_checks(MEASURED, _build_review(draft, judged, impact)), maxlen=0)
    return impact.unmeasured


def assess_draft(draft: Draft, measures: Measures) -> Plan:
    """Return the plan, with risks, guards and order. A plan with `errors` must not be applied."""
    situation, decision, request = draft.situation, draft.decision, draft.situation.request
    if request.orders:
        return _assess_orders(draft, measures)
    impact = Impact(situation, measures, draft.actions)
    allowed = collect_allowances(request.guards, request.selection)
    guarded = apply_guards([impact.judge(action) for action in draft.actions], draft.desired, situation, allowed)
    actions, rings = sort_actions(guarded.actions, situation)
    review = _build_review(draft, actions, impact)
    strangers = find_unmanaged(situation)
    owners = (
        (address, situation.find_foreign_owner(address, situation.observed[address].resource)) for address in strangers
    )
    return Plan(
        workspace=request.workspace,
        environment=request.source.environment,
        base=request.base,
        tool=request.source.tool,
        git_commit=request.source.git_commit,
        actions=actions,
        drift=tuple(sorted(decision.drift, key=lambda finding: (build_sort_key(finding.address), finding.path))),
        held=tuple(sorted(decision.held, key=lambda held: build_sort_key(held.address))),
        waiting=tuple(sorted(decision.waiting, key=lambda finding: build_sort_key(finding.address))),
        unmanaged=strangers,
        owners={address: owner for address, owner in owners if owner is not None},
        errors=_sort_findings([*decision.errors, *guarded.errors, *rings, *_run_checks(ERRORS, review)]),
        warnings=_sort_findings(
            [
                *decision.warnings,
                *guarded.warnings,
                *(held.warning for held in decision.held),
                *_run_checks(WARNINGS, review),
            ]
        ),
        back_to=request.back_to,
        digest=compute_digest(actions),
        applied=find_applied_commit(request, actions),
    )


def _assess_orders(draft: Draft, measures: Measures) -> Plan:
    from reconciler.planning.diff.mount_orders import join_migrations  # noqa: PLC0415 - few plans need it

    situation, decision, request = draft.situation, draft.decision, draft.situation.request
    impact = Impact(situation, measures, draft.actions)
    allowed = collect_allowances(request.guards, request.selection)
    actions = join_migrations(apply_order_guards(map(impact.judge, draft.actions), draft.desired, situation, allowed))
    review = _build_review(draft, actions, impact)
    return Plan(
        workspace=request.workspace,
        environment=request.source.environment,
        base=request.base,
        tool=request.source.tool,
        git_commit=request.source.git_commit,
        actions=actions,
        errors=_sort_findings([*decision.errors, *check_role_swaps(review)]),
        warnings=_sort_findings(
            [
                *decision.warnings,
                *warnings_of_unmountable(actions, situation),
                *warnings_of_restores(review),
                *warnings_of_ordered_owners(actions, situation),
            ]
        ),
        digest=compute_digest(actions),
    )


def _build_situation(
    desired: Desired, recorded: Record, observed: Inventory, request: PlanInput
) -> tuple[Situation, list[PlanFinding]]:
    findings = [*check_expired(request.guards, request.today), *check_clusters(desired, recorded, request)]
    trusted = find_trusted_clusters(desired, request, tuple(findings))
    clusters = list_declared_clusters(desired)
    observed = rekey_observed(observed, desired, sorted(desired) + sorted(recorded), clusters)
    wanted, unclear = ({}, []) if request.options.is_destroy else resolve_desired(desired, request, observed)
    wanted = add_implied_moves(replace_held_roles(wanted, recorded, observed), recorded, observed)
    situation = Situation(
        wanted=wanted,
        recorded=recorded,
        observed=observed,
        request=request,
        clusters=clusters,
        trusted=trusted,
        find_ignore_rule=build_drift_filter(request.guards, request.today),
    )
    if is_partial_selection(request.selection):
        roles = map_role_changes(situation) if request.selection.targets or request.selection.excludes else {}
        chosen_by = build_selector(request, desired, wanted, recorded, observed, roles)
        situation = replace(situation, is_chosen=chosen_by, changed_by_roles=roles)
    chosen = [finding for finding in unclear if finding.address and situation.can_plan(finding.address)]
    chosen = list(_drop_policy_repeats(chosen))
    return situation, [*findings, *chosen, *_run_checks(REFUSALS, situation)]


def _build_review(draft: Draft, actions: Sequence[Action], impact: Impact) -> Review:
    return Review(draft.situation, draft.desired, actions, impact.measure, impact.topics_below)


def _run_checks(checks: Iterable[Callable[[Seen], Iterable[PlanFinding]]], seen: Seen) -> Iterator[PlanFinding]:
    return chain.from_iterable(check(seen) for check in checks)


def _drop_policy_repeats(findings: Iterable[PlanFinding]) -> Iterator[PlanFinding]:
    messages: set[str] = set()
    for finding in sorted(findings, key=lambda item: (item.address or "", item.message)):
        is_policys = any(place.startswith("policy/") for place, _ in finding.marks)
        if not is_policys or finding.message not in messages:
            messages.add(finding.message)
            yield finding


def _sort_findings(findings: Iterable[PlanFinding]) -> tuple[PlanFinding, ...]:
    return tuple(
        sorted(findings, key=lambda item: (build_sort_key(item.address) if item.address else (-1, ""), item.message))
    )
