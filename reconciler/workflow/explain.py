"""`explain`: where each value of one address comes from, how it acts, and why something is planned for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.manifests.origins import explain_origin
from reconciler.planning.actions import Create, Transition, Update
from reconciler.resources.aclpaths import rule_path
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.resources.clusterproperties import CONFIG_DEFAULTS
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.deciding.decide import decide_unlocked
from reconciler.workflow.looking.actingacls import AclRow, acting_acls
from reconciler.workflow.looking.actingconfigs import configs_on
from reconciler.workflow.looking.actingtiering import acting_tiering
from reconciler.workflow.looking.afterwards import afterwards
from reconciler.workflow.looking.asleep import sleeping_topics
from reconciler.workflow.show import Shown, declared, sides_of, unknown_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.planning.actions import Action
    from reconciler.planning.finding import Finding
    from reconciler.planning.plan import DriftFinding, Waiting
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Work
    from reconciler.workflow.deciding.decide import Decided
    from reconciler.workflow.looking.actingconfigs import ConfigRow
    from reconciler.workflow.looking.actingtiering import TieringRow


@dataclass(frozen=True, slots=True)
class Explained:
    """Everything known of one address."""

    shown: Shown
    origins: Mapping[str, str]
    """Field path → `file:line`, an address, or what else set it."""
    effective: Mapping[str, str]
    """Configs as they act on the cluster now, inherited ones included."""
    effective_origins: Mapping[str, str]
    """Where each of them is from: an address and, where the files have it, `file:line`; or `default`."""
    tiering: tuple[TieringRow, ...]
    """Of a topic: whether it uploads and fetches, how much it keeps where, and by which rule, now."""
    tiering_planned: tuple[TieringRow, ...]
    """What of that will be another once the plan is applied."""
    acls: tuple[AclRow, ...]
    """Access rules as they act on the cluster now, those of its tiers included."""
    actions: tuple[Action, ...]
    drift: tuple[DriftFinding, ...]
    waiting: tuple[Waiting, ...]
    errors: tuple[Finding, ...]


def explain(invocation: Invocation, select: Select, address: str) -> Explained:
    """Explain one address as a plan sees it now.

    Raises:
        UserError: Nobody knows it.
    """
    work = open_work(invocation, select, is_reader=True)
    decided = decide_unlocked(work)
    asked = Address(address)
    desired = declared(work.loaded.desired)
    shown = sides_of(asked, desired, decided.recorded, decided.seen, sleeping_topics(desired, decided.recorded))
    plan = decided.plan
    if not shown.is_known and not any(action.address == asked for action in plan.actions):
        raise unknown_address(address)
    acting = _effective(work, decided, asked)
    tiering, planned = _tiering(decided, asked)
    return Explained(
        shown=shown,
        origins=_origins(work, shown),
        effective={row.key: row.value for row in acting},
        effective_origins=dict(_places(work, acting)),
        tiering=tiering,
        tiering_planned=planned,
        acls=acting_acls(asked, decided.seen.inventory),
        actions=tuple(action for action in plan.actions if action.address == asked),
        drift=tuple(finding for finding in plan.drift if finding.address == asked),
        waiting=tuple(row for row in plan.waiting if row.address == asked),
        errors=tuple(finding for finding in plan.errors if finding.address == asked),
    )


def _tiering(decided: Decided, address: Address) -> tuple[tuple[TieringRow, ...], tuple[TieringRow, ...]]:
    """Return what tiering makes of a topic now, and what of it the plan changes."""
    inventory, actions = decided.seen.inventory, decided.plan.actions
    known = {place: recorded.origins for place, recorded in decided.recorded.items() if recorded.origins}
    now = acting_tiering(address, inventory, known)
    named = {action.address: action.origins for action in actions if isinstance(action, Create | Update | Transition)}
    then = acting_tiering(address, afterwards(inventory, actions), {**known, **named})
    return now, tuple(row for row in then if row not in now)


def _origins(work: Work, shown: Shown) -> Mapping[str, str]:
    recorded = dict(shown.recorded.origins) if shown.recorded else {}
    written = explain_origin(work.loaded, shown.address) if shown.desired is not None else {}
    return dict(sorted({**recorded, **written, **dict(_rule_origins(shown, written))}.items()))


def _rule_origins(shown: Shown, written: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield, for each access rule by its path, where the files have it: the last place, where several are one."""
    if isinstance(shown.desired, Topic | Namespace):
        for index, rule in enumerate(shown.desired.spec.acls):
            place = written.get(f"spec.acls[{index}].principal")
            if place is not None:
                yield rule_path(rule), place


def _effective(work: Work, decided: Decided, address: Address) -> Sequence[ConfigRow]:
    if address not in decided.seen.inventory or kind_of(address) not in {"topic", "mirror", "namespace"}:
        return ()
    provider = work.providers[cluster_of(address) or ""]
    return configs_on(provider, address, decided.seen.inventory)


def _places(work: Work, rows: Sequence[ConfigRow]) -> Iterator[tuple[str, str]]:
    """Yield where each acting config is from, and where in the files that says so."""
    written = {origin: explain_origin(work.loaded, Address(origin)) for origin in {row.origin for row in rows}}
    for row in rows:
        names = (f"spec.properties.{name}" for name, config in CONFIG_DEFAULTS.items() if config == row.key)
        paths = (f"spec.configs.{row.key}", *names)
        place = next((found for path in paths if (found := written[row.origin].get(path))), None)
        yield row.key, row.origin if place is None else f"{row.origin} ({place})"
