"""Delete, forget or keep resources that the files do not declare, and report hidden resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles import is_in_progress
from reconciler.planning.actions import Action, Block, Delete, Estimate, Forget, Reason
from reconciler.planning.diff.converge import (
    GOING,
    Decision,
    find_part_to_delete,
    plan_deletion,
    warn_of_foreign_rules,
    warn_of_kept_rules,
    warn_of_kept_topics,
    warn_of_own_rules,
)
from reconciler.planning.diff.mirror_changes import (
    find_mirror_to_destroy,
    forget_kept_mirror,
    is_in_transition,
    is_kept_by_link,
    is_still_declared_mirror,
    refuse_until_settled,
    warn_if_mirror_now,
)
from reconciler.planning.diff.moves import find_moved_from, find_unmounted_topic
from reconciler.planning.plan import PlanFinding, UnfinishedTransition
from reconciler.planning.resolve.mirror_sources import is_kept_for_command, link_of
from reconciler.planning.selection import format_required_option
from reconciler.planning.situation import IMPLIED, STOPPED, Situation, as_mirror, is_mirroring, is_recreated
from reconciler.resources.address import (
    Address,
    address_of,
    build_sort_key,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    list_levels,
    split_name,
)
from reconciler.resources.inventory import NATIVE_LINKS
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import MIGRATING, Mounting
from reconciler.resources.namespace import Namespace
from reconciler.runtime.text import list_first

if TYPE_CHECKING:
    from reconciler.planning.allowances import Grant
    from reconciler.resources.inventory import Observed, Recorded


# Hidden resources would look missing and be created again.


_NOT_ALL: Final = "the principal of reconciler is not shown every topic there"


def check_hidden(situation: Situation) -> Iterator[PlanFinding]:
    """Yield desired or recorded resources that are, or may be, hidden."""
    hidden = situation.request.hidden
    if hidden:
        for address in sorted({*situation.wanted, *situation.recorded}, key=build_sort_key):
            why = hidden.get(address) or hidden.get(as_mirror(address))
            if why is not None and situation.can_plan(address):
                wanted = situation.wanted.get(address)
                yield PlanFinding(address, wanted.source if wanted else None, f"it is hidden: {why.message}", why.hint)
    yield from _find_possibly_hidden(situation)


def may_be_hidden(address: Address, situation: Situation) -> bool:
    """Return whether a missing recorded resource may exist but be hidden."""
    cluster = cluster_of(address)
    if cluster not in situation.trusted:
        return False
    if kind_of(address) in {"link", "mirror"} and _is_link_hidden(address, cluster, situation):
        return True
    if not situation.find_capabilities(cluster).may_hide:
        return False
    if kind_of(address) not in {"topic", "mirror"} or address not in situation.recorded:
        return False
    name = address.partition("/")[2]
    if any(Address(f"{kind}/{name}") in situation.observed for kind in ("topic", "mirror")):
        return False
    return address not in situation.unmounted_locations and address not in situation.former_addresses


def _is_link_hidden(address: Address, cluster: str, situation: Situation) -> bool:
    """Return whether a recorded link, or a mirror's, is missing because the cluster cannot show links."""
    last = situation.recorded.get(address)
    if last is None or _explain_hidden_links(cluster, situation) is None or address in situation.observed:
        return False
    link = link_of(last.resource) if isinstance(last.resource, MirrorTopic) else address
    return link in situation.recorded and link not in situation.observed


def _explain_hidden_links(cluster: str, situation: Situation) -> str | None:
    lacks = situation.find_capabilities(cluster).lacks
    return lacks.get(NATIVE_LINKS) or lacks.get("links")


def _find_possibly_hidden(situation: Situation) -> Iterator[PlanFinding]:
    if not any(
        situation.find_capabilities(cluster).may_hide or _explain_hidden_links(cluster, situation)
        for cluster in situation.trusted
    ):
        return
    for address in sorted(situation.recorded, key=build_sort_key):
        if address in situation.request.hidden or not may_be_hidden(address, situation):
            continue
        if situation.can_plan(address):
            wanted, cluster = situation.wanted.get(address), cluster_of(address) or ""
            why = situation.find_capabilities(cluster).lacks.get("may_hide", _NOT_ALL)
            hint = "Allow the principal of reconciler to describe every topic of the cluster."
            if kind_of(address) in {"link", "mirror"} and _is_link_hidden(address, cluster, situation):
                why, hint = _explain_hidden_links(cluster, situation) or why, "Change that, and plan again."
            yield PlanFinding(
                address,
                wanted.source if wanted else None,
                f"it is recorded, and cluster {cluster} does not show it. It may exist: {why}. "
                "It is not created again, not forgotten and not deleted",
                f"{hint} If the {'link' if kind_of(address) == 'link' else 'topic'} is gone: "
                f"reconciler state rm {address}",
            )


def decide_removed(situation: Situation, decision: Decision) -> None:
    """Add the removals of undesired recorded addresses, content before containers."""
    leaving = (
        situation.recorded.keys()
        - situation.wanted.keys()
        - decision.settled
        - set(situation.topics_moved_away.values())
    )
    undeclared: Counter[str] = Counter()
    begin = len(decision.actions)
    for address in sorted(leaving, key=build_sort_key, reverse=True):
        cluster = cluster_of(address)
        if not situation.is_chosen(address) or address in situation.request.hidden or may_be_hidden(address, situation):
            continue
        if cluster not in situation.clusters:
            decision.actions.append(Forget(address=address, reasons=(Reason.CLUSTER_REMOVED,)))
            undeclared[cluster or ""] += kind_of(address) in _LEFT_KINDS
        elif cluster in situation.trusted and not (
            address in situation.observed and is_kept_for_command(address, situation)
        ):
            _remove(address, situation.recorded[address], situation, decision)
    deleted = (action.before for action in decision.actions[begin:] if isinstance(action, Delete))
    warn_of_kept_topics((part for part in deleted if isinstance(part, Namespace)), situation, decision)
    if situation.request.options.is_destroy:
        for cluster, count in sorted(undeclared.items()):
            _warn_of_undeclared_cluster(cluster, count, decision)


_LEFT_KINDS: Final = frozenset({"namespace", "topic", "mirror", "link"})


def _warn_of_undeclared_cluster(cluster: str, count: int, decision: Decision) -> None:
    if count:
        decision.warn(
            cluster_address(cluster),
            None,
            f"the files no longer declare it: {count} resources on it are forgotten, and stay there with their records",
            "To delete them too, put the Cluster document back and destroy again.",
        )


def _remove(address: Address, last: Recorded, situation: Situation, decision: Decision) -> None:
    before = situation.observed.get(address)
    if kind_of(address) == "topic" and before is None:
        if warn_if_mirror_now(address, situation, decision):
            return
        before = find_mirror_to_destroy(address, last, situation)
    reason = Reason.DESTROYED if situation.request.options.is_destroy else Reason.NO_LONGER_DECLARED
    estimate = Estimate(location=situation.unmounted_locations.get(address))
    if before is not None and isinstance(before.resource, Mounting) and is_in_progress(before.state):
        _warn_of_migration(address, before, before.resource, decision)
    elif _is_only_forgotten(address, last, before, situation):
        decision.actions.append(Forget(address=address, reasons=(reason,), estimate=estimate))
        warn_of_kept_rules(address, last, situation, decision)
    elif before is None:
        decision.actions.append(Forget(address=address, reasons=(Reason.ALREADY_GONE,), estimate=estimate))
        warn_of_own_rules(address, last, situation, decision)
    elif is_recreated(last, before):
        # Another process recreated the resource.
        decision.actions.append(Forget(address=address, reasons=(Reason.RECREATED,), estimate=estimate))
    elif kind_of(address) == "mirror" and is_kept_by_link(before, situation):
        forget_kept_mirror(address, before, situation, decision)
    elif is_in_transition(before):
        refuse_until_settled(address, before, situation, decision)
    elif before.state == GOING:
        decision.waiting.append(UnfinishedTransition(address, GOING))
    elif before.state == MIGRATING:
        decision.waiting.append(UnfinishedTransition(address, MIGRATING))
        message = f"it is being mounted or unmounted ({MIGRATING}), and cannot be deleted until that is done"
        hint = "Plan again when it is done. How far it is, and what finishes it: reconciler mount status"
        decision.refuse(address, None, message, hint)
    else:
        are_rules = situation.find_capabilities(cluster_of(address) or "").namespaces_are_rules
        gone = find_part_to_delete(last.resource, before.resource, are_rules=are_rules)
        decision.actions.append(plan_deletion(address, before, reason, gone=gone))
        warn_of_foreign_rules(address, before, gone, decision)


def _warn_of_migration(address: Address, before: Observed, mounting: Mounting, decision: Decision) -> None:
    decision.waiting.append(UnfinishedTransition(address, before.state or ""))
    what = "mounted" if mounting.spec.state == "mounted" else "unmounted"
    message = f"its topic is being {what} ({before.state}), and that stops while no file declares it"
    hint = "Put the Mounting back, or cancel it with `reconciler mount cancel`; see: reconciler mount status"
    decision.warn(address, None, message, hint)


def _is_only_forgotten(address: Address, last: Recorded, before: Observed | None, situation: Situation) -> bool:
    kind = kind_of(address)
    if kind in {"cluster", "mounting", "policy"}:
        return True  # These kinds are never deleted.
    if (
        situation.request.options.is_destroy
        and last.ownership == "adopted"
        and not situation.request.options.include_adopted
    ):
        return True
    if kind == "mirror":
        return before is not None and before.state == STOPPED
    if kind == "topic" and (address in situation.mountings_by_topic or is_still_declared_mirror(address, situation)):
        return True
    # The implied namespace existed before this workspace.
    return IMPLIED in last.origins and last.ownership == "adopted"


class ContainerGuard:
    """Decides which namespaces, links and clusters must stay after the deletes of their content."""

    def __init__(self, actions: Sequence[Action], situation: Situation, allowed: Sequence[Grant]) -> None:
        self._actions = actions
        self._situation = situation
        self._allowed = allowed
        self._deletes = {action.address: action for action in actions if isinstance(action, Delete)}
        self._forgotten = {action.address for action in actions if isinstance(action, Forget)}
        applied = [action for action in actions if action.blocked is None]
        self._moved = {find_moved_from(action) for action in applied}
        self._detached = {find_unmounted_topic(action) for action in applied}
        self._moved_namespaces = {
            item.moved_from for item in situation.wanted.values() if isinstance(item.resource, Namespace)
        }
        self.errors: list[PlanFinding] = []
        self.warnings: list[PlanFinding] = []

    def judge_all(self) -> tuple[Action, ...]:
        """Block the deletes of containers that must stay, or turn implied ones into forgets."""
        if not self._deletes:
            return tuple(self._actions)
        inside = self._find_remaining_content()
        judged = tuple(self._judge(action, inside.get(action.address, ())) for action in self._actions)
        refused = {finding.address for finding in (*self.errors, *self.warnings)}
        return tuple(action for action in judged if not (isinstance(action, Delete) and action.address in refused))

    def _judge(self, action: Action, inside: Sequence[Address]) -> Action:
        if not isinstance(action, Delete) or not inside:
            return action
        kind = kind_of(action.address)
        staying = [address for address in inside if address not in self._deletes]
        # No allowance deletes the source of remaining mirrors.
        is_for_good = kind in {"topic", "mirror"} and bool(staying)
        if action.blocked and not (is_for_good and action.blocked.allow):
            return action
        if kind == "namespace" and (left := self._find_unselected_content(action.address, staying)):
            message = f"it stays: it holds {list_first(left, grouping='')}, which this plan leaves out"
            self.warnings.append(
                PlanFinding(action.address, action.source, message, "It is deleted together with the last of them.")
            )
            return action
        if kind == "namespace" and staying and self._can_forget(action.address):
            ours = [owned for owned in staying if owned in self._situation.recorded and owned not in self._forgotten]
            if ours and self._situation.request.options.is_destroy:
                message = f"it stays: it holds {list_first(ours, grouping='')}, which this destroy leaves out"
                self.warnings.append(
                    PlanFinding(action.address, action.source, message, "Destroy them, too, or first.")
                )
                return action
            return Forget(address=action.address, reasons=action.reasons)
        if kind in {"topic", "mirror"}:
            ending = self._situation.name_ending(inside[0])
            message = f"{list_first(inside, grouping='')} mirrors it: {ending} or remove the mirror first"
            return replace(action, blocked=Block("mirrored", message, None))
        if kind == "link" and not self._situation.request.options.is_destroy:
            return self._force_link(action, inside) or self._refuse_link(action, inside)
        if staying:
            message = f"it holds {list_first(staying, grouping='')}, which stays"
            return replace(action, blocked=Block("not_empty", message, None))
        message = f"it holds {list_first(inside, grouping='')}, whose delete is blocked"
        return replace(action, blocked=Block("not_empty", message, None, self._find_advice(inside)))

    def _find_unselected_content(self, namespace: Address, staying: Sequence[Address]) -> list[Address]:
        is_implied = (
            IMPLIED in self._situation.recorded[namespace].origins and not self._situation.request.options.is_destroy
        )
        if not is_implied and namespace not in self._moved_namespaces:
            return []
        return [
            place for place in staying if place in self._situation.recorded and not self._situation.is_chosen(place)
        ]

    def _find_advice(self, inside: Sequence[Address]) -> str | None:
        blocks = (self._deletes[address].blocked for address in inside)
        return next((block.instead for block in blocks if block is not None and block.instead), None)

    def _can_force(self, action: Delete) -> bool:
        return "force-delete" in self._situation.find_capabilities(action.cluster or "").mirrors.features

    def _force_link(self, action: Delete, mirrors: Sequence[Address]) -> Delete | None:
        """Return the delete of a link that only its own mirrors use, if an allowance names the link's address."""
        named = (grant for grant in self._allowed if (grant.verb, grant.pattern) == ("delete", action.address))
        grant = next(named, None)
        if grant is None or not self._can_force(action) or not self._situation.recorded.keys().isdisjoint(mirrors):
            return None
        return replace(action, granted_by=grant.origin, reasons=(*action.reasons, Reason.FORCED))

    def _refuse_link(self, action: Delete, mirrors: Sequence[Address]) -> Delete:
        allow = " ".join(f"--allow delete:{mirror}" for mirror in mirrors)
        left = [mirror for mirror in mirrors if not self._situation.is_chosen(mirror)]
        way = f"{format_required_option(left, self._situation.request.selection)}, and add " if left else ""
        named = f"{list_first(mirrors, grouping='')} {'is' if len(mirrors) == 1 else 'are'}"
        message = f"it is no longer declared, but {named} not stopped"
        ending = self._situation.name_ending(mirrors[0])
        hint = f"Declare the link again and {ending} its mirrors; or delete them too: {way}{allow}"
        strange = [mirror for mirror in mirrors if mirror not in self._situation.recorded]
        if strange:
            hint = (
                f"Declare the link again. {list_first(strange, grouping='')} has no entry of its own: "
                f"`reconciler mirror failover {strange[0]}` stops it"
            )
            if strange == [*mirrors] and self._can_force(action):
                hint += f". To delete the link all the same, and keep the topics: --allow delete:{action.address}"
        self.errors.append(PlanFinding(action.address, action.source, message, hint))
        return action

    def _can_forget(self, address: Address) -> bool:
        return IMPLIED in self._situation.recorded[address].origins or self._situation.request.options.is_destroy

    def _find_remaining_content(self) -> dict[Address, list[Address]]:
        content: dict[Address, list[Address]] = {}
        # A namespace also stays for resources that the plan creates.
        for address in sorted({*self._situation.observed, *self._situation.wanted}):
            if self._is_removed(address):
                continue
            seen = self._situation.observed.get(address)
            is_stopped = seen is not None and not is_mirroring(seen) and kind_of(address) == "mirror"
            for holder in self._list_containers(address):
                if not self._is_kept_by(holder, address) or (is_stopped and kind_of(holder) == "link"):
                    continue
                if holder in self._deletes:
                    content.setdefault(holder, []).append(address)
        for source, mirrors in self._situation.mirrors_by_source.items():
            staying = [mirror for mirror in mirrors if not self._is_removed(mirror)]
            # A mirror may be the source of other mirrors.
            for deleted in (source, as_mirror(source)):
                if deleted in self._deletes and staying:
                    content[deleted] = staying
        return content

    def _is_kept_by(self, holder: Address, address: Address) -> bool:
        capabilities = self._situation.request.capabilities.get(cluster_of(holder) or "")
        if kind_of(holder) != "namespace" or capabilities is None or not capabilities.namespaces_are_rules:
            return True
        if self._situation.request.options.is_destroy:
            return False
        is_ours = address in self._situation.recorded and address not in self._forgotten
        return is_ours or address in self._situation.wanted

    def _is_removed(self, address: Address) -> bool:
        delete = self._deletes.get(address)
        if delete is None and kind_of(address) == "mirror":
            twin = self._deletes.get(Address("topic/" + address.partition("/")[2]))
            delete = twin if twin is not None and isinstance(twin.before, MirrorTopic) else None
        is_taken = address in self._moved or address in self._detached or self._is_unmounted(address)
        return is_taken or (delete is not None and delete.blocked is None)

    def _is_unmounted(self, address: Address) -> bool:
        wanted = self._situation.wanted.get(address)
        resource = wanted.resource if wanted is not None else None
        return isinstance(resource, Mounting) and resource.spec.state == "unmounted"

    def _list_containers(self, address: Address) -> Iterator[Address]:
        kind, cluster = kind_of(address), cluster_of(address)
        if cluster is None or kind in {"cluster", "link"}:
            return
        full_name = full_name_of(address)
        tiers = list_levels(full_name)[:-1] if kind == "namespace" else list_levels(split_name(full_name)[0])
        yield from (address_of("namespace", cluster, tier) for tier in tiers)
        item = self._situation.observed.get(address) or self._situation.wanted[address]
        resource = item.resource
        if isinstance(resource, MirrorTopic):
            yield address_of("link", cluster, resource.link)
            yield from self._find_other_half(resource)

    def _find_other_half(self, mirror: MirrorTopic) -> Iterator[Address]:
        half = address_of("link", mirror.source_cluster, mirror.link)
        seen = self._situation.observed.get(half)
        link = seen.resource if seen is not None else None
        if isinstance(link, MirrorLink) and link.spec.mode != "destination" and link.spec.source == mirror.cluster:
            yield half
