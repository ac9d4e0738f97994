"""Guards that block actions, allowances that lift blocks, and alternatives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never, get_args

from reconciler.lifecycles import UNMOUNT
from reconciler.planning.actions import (
    Action,
    Adopt,
    Block,
    Create,
    Delete,
    Forget,
    Reason,
    Risk,
    RunJob,
    Transition,
    Update,
    list_changed_addresses,
)
from reconciler.planning.allowances import ADOPT, Grant, collect_allowances, find_grant
from reconciler.planning.checks.offline import build_resource_for_rules, find_violations
from reconciler.planning.diff.removals import ContainerGuard
from reconciler.planning.diff.trim_orders import guard_trim
from reconciler.planning.fields import list_fields
from reconciler.planning.orders import TrimTopicOrder
from reconciler.planning.plan import PlanFinding
from reconciler.planning.resolve.acting_configs import SwitchReader
from reconciler.planning.resolve.limits import FIXED
from reconciler.planning.situation import IMPLIED, Review, Situation, find_taken_resources
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches_pattern,
    split_name,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import ENABLED, UPLOADS
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.tiering_policy import TieringPolicy, read_switches
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import format_bytes, list_first, pluralize

if TYPE_CHECKING:
    from reconciler.resources.inventory import Desired
    from reconciler.resources.owners import ResourceOwner
    from reconciler.resources.workspace import Guards


_ALSO_BLOCK_UNMOUNT: Final = frozenset({"protected", "only", "mirrored"})


def advise_unmounts(actions: Sequence[Action], situation: Situation) -> Iterator[Action]:
    """Yield the actions; advise to unmount topics whose delete is blocked."""
    for action in actions:
        if _is_blocked_loss(action) and isinstance(action, Delete) and _can_unmount(action, situation):
            yield add_advice(action, format_mounting(action.address))
        else:
            yield action


def format_mounting(topic: Address) -> str:
    """Return the Mounting that unmounts a topic, as one line of YAML."""
    namespace, name = split_name(full_name_of(topic))
    where = f"{name}, namespace: {json.dumps(namespace)}" if namespace else name
    metadata = f"{{name: {where}, cluster: {cluster_of(topic)}}}"
    return f"{{apiVersion: reconciler/v1, kind: Mounting, metadata: {metadata}, spec: {{state: unmounted}}}}"


def warnings_of_unmountable(actions: Iterable[Action], situation: Situation) -> Iterator[PlanFinding]:
    """Warn that an unmount would keep the records of topics that a command deletes."""
    topics = [action.address for action in actions if isinstance(action, Delete) and _can_unmount(action, situation)]
    if topics:
        others = f" and those of {pluralize(len(topics) - 1, 'more topic')}" if topics[1:] else ""
        message = f"its records{others} can be kept in object storage, if it is unmounted instead"
        yield PlanFinding(topics[0], None, message, f"Declare and apply first: {format_mounting(topics[0])}")


def add_advice(action: Delete, instead: str | None) -> Delete:
    """Return a delete with an alternative manifest, if it is blocked."""
    if action.blocked is None or instead is None:
        return action
    return replace(action, blocked=replace(action.blocked, instead=instead))


def _is_blocked_loss(action: Action) -> bool:
    is_blocked = action.blocked is not None and action.blocked.guard not in _ALSO_BLOCK_UNMOUNT
    return is_blocked and Reason.HOLDS_DATA in action.reasons


def _can_unmount(action: Delete, situation: Situation) -> bool:
    topic, seen = action.before, situation.observed.get(action.address)
    cluster = situation.clusters.get(action.cluster or "")
    if (
        not isinstance(topic, Topic)
        or seen is None
        or seen.topic.legacy is None
        or seen.topic.legacy.is_lost
        or cluster is None
    ):
        return False
    if not situation.find_capabilities(topic.cluster).mountings or cluster.spec.object_storage is None:
        return False
    observed_cluster = situation.observed.get(cluster.address)
    properties = (
        observed_cluster.resource.spec.properties
        if observed_cluster and isinstance(observed_cluster.resource, Cluster)
        else {}
    )
    is_on = properties.get(ENABLED) == "true" and properties.get(UPLOADS) != "false"
    return is_on and read_switches(SwitchReader(situation).now(action.address, seen)).write


_COPIED_MESSAGE: Final = (
    "its records are copied to its new name and compared there before; clients that use the old name will fail"
)

_EMPTY_MESSAGE: Final = "it is empty now, but its access rules and the offsets of its groups are deleted with it"
_REPLICA_MESSAGE: Final = (
    "its consumer groups lose their offsets here, and its access rules are deleted; its source still has every record"
)

Guard: TypeAlias = Callable[["Action", "Situation"], Block | None]

DATA_BEARING: Final = frozenset({"topic", "mirror"})
OWNER: Final = "owner"


@dataclass(frozen=True, slots=True)
class GuardResult:
    """Actions and findings after all guards ran."""

    actions: tuple[Action, ...]
    errors: Sequence[PlanFinding] = ()
    warnings: Sequence[PlanFinding] = ()


def apply_guards(
    actions: Sequence[Action], desired: Desired, situation: Situation, allowed: Sequence[Grant]
) -> GuardResult:
    """Return the actions with blocks or allowances. Guards without allowances run first."""
    is_emptied = not situation.request.options.is_destroy and _is_empty(desired) and bool(situation.recorded)
    guards: tuple[Guard, ...] = (
        _guard_protected,
        _guard_only,
        _guard_link_fields,
        *((_guard_empty_files,) if is_emptied else ()),
        *_LIFTABLE,
    )
    judged = [_add_block_or_grant(action, guards, situation, allowed) for action in actions]
    if not any(isinstance(action, Delete) for action in judged):
        return GuardResult(tuple(judged))
    judged = list(advise_unmounts(_block_excess_deletes(judged, situation, allowed), situation))
    holding = ContainerGuard(judged, situation, allowed)
    return GuardResult(holding.judge_all(), holding.errors, holding.warnings)


def apply_order_guards(
    actions: Iterable[Action], desired: Desired, situation: Situation, allowed: Sequence[Grant]
) -> tuple[Action, ...]:
    """Return a command's actions with blocks. Guards about files do not apply."""

    def protected(action: Action, _situation: Situation) -> Block | None:
        declared = desired[action.address].resource if action.address in desired else None
        protect = declared.spec.protect if isinstance(declared, Topic) else None
        if _deletes_records(action) and protect:
            return Block("protected", "its file protects it: protect: true", None)
        if isinstance(action, RunJob) and action.job == UNMOUNT.name and action.parameters["phase"] != "finish":
            last = situation.recorded.get(action.address)
            if protect if protect is not None else last is not None and last.protect:
                return Block("protected", "it is protected, and unmounting takes it off the cluster", None)
        return None

    def loss_by_move(action: Action, situation: Situation) -> Block | None:
        block = _guard_data_loss(action, situation) if _find_old_address(action) is not None else None
        offsets, stored = (
            sum(offsets_lost.stop - offsets_lost.start for offsets_lost in action.estimate.unreadable),
            action.estimate.bytes,
        )
        if block is None or not (offsets or stored):
            return block
        what = f"{pluralize(offsets, 'offset')} in object storage" if offsets else f"about {format_bytes(stored)}"
        return replace(block, message=f"{what} would be deleted by what it inherits there")

    is_trimming = any(isinstance(order, TrimTopicOrder) for order in situation.request.orders)
    guards: tuple[Guard, ...] = (
        _guard_protected,
        protected,
        _guard_only,
        _guard_deletion_protection,
        *([guard_trim] if is_trimming else []),
        loss_by_move,
    )
    return tuple(_add_block_or_grant(action, guards, situation, allowed) for action in actions)


def _add_block_or_grant(
    action: Action, guards: Sequence[Guard], situation: Situation, allowed: Sequence[Grant]
) -> Action:
    grant: str | None = None
    other = _find_other_owner(action, situation)
    if other is not None:
        action = replace(action, owner=other)
    for refuses in guards:
        block = refuses(action, situation)
        if block is None:
            continue
        origin = find_lifting_allowance(action, block, allowed)
        if origin is None:
            return replace(action, blocked=block)
        grant = grant or origin
    return replace(action, granted_by=grant) if grant else action


def find_lifting_allowance(action: Action, block: Block, allowed: Sequence[Grant]) -> str | None:
    """Return the origin of the allowance that lifts a block, or `None`."""
    if block.guard == OWNER:
        return next((allowance.origin for allowance in allowed if allowance.allows_takeover(action.address)), None)
    return find_grant(replace(action, owner=None), allowed) if block.allow else None


def _guard_protected(action: Action, situation: Situation) -> Block | None:
    last = situation.recorded.get(action.address)
    if _deletes_records(action) and last is not None and last.protect:
        return Block("protected", "it is protected: apply once with protect: false", None)
    return None


def _deletes_records(action: Action) -> bool:
    return isinstance(action, Delete) or (isinstance(action, Update) and action.is_trim)


def _guard_only(action: Action, situation: Situation) -> Block | None:
    patterns = situation.request.guards.only
    is_of_record = isinstance(action, Adopt | Forget) and kind_of(action.address) == "cluster"
    if not patterns or is_of_record:
        return None
    old = _find_old_address(action)
    for what, address in (("it", action.address), (f"{old}, which it is moved from,", old)):
        if address is not None and not any(matches_pattern(pattern, address) for pattern in patterns):
            return Block(
                "only", f"{what} is outside the addresses that this workspace may manage ({', '.join(patterns)})", None
            )
    return None


def _guard_link_fields(action: Action, situation: Situation) -> Block | None:
    mirror = action.before if isinstance(action, Delete) else None
    if not isinstance(mirror, MirrorTopic):
        return None
    address = address_of("link", mirror.cluster, mirror.link)
    wanted, seen = situation.wanted.get(address), situation.observed.get(address)
    if wanted is None or seen is None:
        return None
    before, after = list_fields(seen.resource), list_fields(wanted.resource)
    fixed = [path for path in sorted(FIXED) if before.get(path) != after.get(path)]
    if not fixed:
        return None
    message = f"{', '.join(fixed)} of {address} never changes: once that is set back, the mirror is kept"
    return Block("link", message, None)


def _guard_empty_files(action: Action, _situation: Situation) -> Block | None:
    message = "the files declare nothing any more; put the clusters back and `reconciler destroy` removes everything"
    return Block("empty", message, f"{action.verb}:{action.address}")


def _find_other_owner(action: Action, situation: Situation) -> ResourceOwner | None:
    if not situation.foreign_owners or IMPLIED in action.origins:
        return None
    match action:
        case Create() | Update() | Adopt():
            return situation.find_foreign_owner(action.address, action.after)
        case Delete():
            return situation.find_foreign_owner(action.address, action.before)
        case Transition():
            old = _find_old_address(action)
            moved = None if old is None else situation.find_foreign_owner(Address(old))
            return moved or situation.find_foreign_owner(action.address, action.after)
        case Forget() | RunJob():
            return None
        case _:
            assert_never(action)


def _find_old_address(action: Action) -> str | None:
    old = action.parameters.get("from") if isinstance(action, Transition) and action.machine == "topic" else None
    return old if isinstance(old, str) else None


def _guard_owner(action: Action, _situation: Situation) -> Block | None:
    if action.owner is None:
        return None
    return Block(OWNER, f"it is owned by {action.owner}", f"{ADOPT}:{action.address}")


def _guard_data_bearing(action: Action, situation: Situation) -> Block | None:
    if (
        not isinstance(action, Delete)
        or kind_of(action.address) not in DATA_BEARING
        or situation.request.options.is_destroy
    ):
        return None
    message = "it may hold records that nothing brings back" if Reason.HOLDS_DATA in action.reasons else _EMPTY_MESSAGE
    if kind_of(action.address) == "mirror" and Reason.NO_LONGER_DECLARED in action.reasons:
        roles = "promoted or failed-over" if situation.name_ending(action.address) == "promote" else "failed-over"
        message = (
            f"it is a live mirror: to keep its topic declare it again, {roles}; else it is deleted with what it holds"
        )
    if isinstance(action.before, Topic) and action.before.spec.read_replica_of is not None:
        message = _REPLICA_MESSAGE
    if Reason.MOVED in action.reasons:
        message = _COPIED_MESSAGE
    return Block("data_bearing", message, f"delete:{action.address}")


def _guard_recreated(action: Action, _situation: Situation) -> Block | None:
    if not isinstance(action, Transition) or Reason.RECREATED not in action.reasons:
        return None
    message = "it was mounted again, or deleted and created again, outside reconciler: its id is not the one applied"
    return Block("recreated", message, f"{action.verb}:{action.address}")


def _guard_hidden(action: Action, situation: Situation) -> Block | None:
    cluster = cluster_of(action.address) or ""
    is_namespace = isinstance(action, Delete) and kind_of(action.address) == "namespace"
    if not is_namespace or cluster not in situation.trusted or not situation.find_capabilities(cluster).may_hide:
        return None
    message = f"it may hold topics that cluster {cluster} does not show"
    return Block("hidden", message, f"delete:{action.address}")


def _guard_deletion_protection(action: Action, situation: Situation) -> Block | None:
    cluster = situation.clusters.get(cluster_of(action.address) or "")
    is_data = isinstance(action, Delete) and kind_of(action.address) in DATA_BEARING
    if not is_data or cluster is None or not cluster.spec.deletion_protection:
        return None
    message = f"cluster {cluster.metadata.name} has deletionProtection"
    return Block("deletion_protection", message, f"delete:{action.address}")


def _guard_data_loss(action: Action, _situation: Situation) -> Block | None:
    match action:
        case Update() | Transition() if action.risk is Risk.DATA_LOSS:
            allow = f"{action.verb}:{action.address}"
            return Block("data_loss", "records would be lost, or we cannot tell", allow)
        case Create() | Update() | Delete() | Adopt() | Forget() | Transition() | RunJob():
            return None


def _guard_rules(action: Action, situation: Situation) -> Block | None:
    if situation.request.options.is_destroy or not isinstance(action, Create | Update | Adopt | Transition):
        return None
    wanted = None if situation.request.options.is_only_drift else situation.wanted.get(action.address)
    resource = action.after if wanted is None else build_resource_for_rules(wanted)
    broken = find_violations(action.address, resource, situation.request.guards)
    return Block("rule", "; ".join(broken), f"{action.verb}:{action.address}") if broken else None


_LIFTABLE: Final[tuple[Guard, ...]] = (
    _guard_owner,
    _guard_recreated,
    _guard_data_bearing,
    _guard_hidden,
    _guard_deletion_protection,
    _guard_data_loss,
    _guard_rules,
)


def _block_excess_deletes(actions: list[Action], situation: Situation, allowed: Sequence[Grant]) -> list[Action]:
    excess = _find_excess_deletes(actions, situation, allowed)
    if not excess:
        return actions
    message = f"{len(excess)} deletes are more than the {_count_allowed_deletes(situation)} of guards.maxDeletes"
    return [
        replace(action, blocked=Block("max_deletes", message, f"delete:{action.address}"))
        if action.id in excess and action.blocked is None
        else action
        for action in actions
    ]


def _find_excess_deletes(actions: Iterable[Action], situation: Situation, allowed: Sequence[Grant]) -> frozenset[str]:
    if situation.request.options.is_destroy:
        return frozenset()
    names = [allowance for allowance in allowed if "*" not in allowance.pattern]
    unnamed = [action.id for action in actions if isinstance(action, Delete) and find_grant(action, names) is None]
    return frozenset(unnamed) if len(unnamed) > _count_allowed_deletes(situation) else frozenset()


def warnings_of_deletes(review: Review) -> Iterator[PlanFinding]:
    """Warn about more deletes than the limit; an allowance with a pattern does not raise it."""
    situation = review.situation
    excess = _find_excess_deletes(
        review.actions, situation, collect_allowances(situation.request.guards, situation.request.selection)
    )
    if excess:
        message = f"{len(excess)} deletes are more than the {_count_allowed_deletes(situation)} of guards.maxDeletes"
        hint = "Name each of them with --allow, without a pattern; or raise guards.maxDeletes in reconciler.yaml."
        yield PlanFinding(None, None, message, hint)


def _count_allowed_deletes(situation: Situation) -> int:
    limit = situation.request.guards.max_deletes
    if isinstance(limit, str):
        return len(situation.recorded) * int(limit.removesuffix("%")) // 100
    return limit


def _is_empty(desired: Desired) -> bool:
    return all(isinstance(declared.resource, TieringPolicy) for declared in desired.values())


def count_required_approvals(actions: Sequence[Action], guards: Guards) -> tuple[int, tuple[str, ...]]:
    """Return the number of required approvals, and the unblocked actions that require them."""
    counts = {action.id: _count_approvals(action.risk, guards) for action in actions if action.blocked is None}
    most = max(counts.values(), default=0)
    return most, tuple(name for name, count in counts.items() if most and count == most)


def _count_approvals(risk: Risk, guards: Guards) -> int:
    order = list(Risk)
    counts = (count for name, count in guards.approvals.items() if order.index(Risk(name)) <= order.index(risk))
    return max(counts, default=0)


def merge_base_guards(guards: Guards, base: Guards | None) -> Guards:
    """Return the guards of a pull request with at least the approvals of its base."""
    if base is None:
        return guards
    risks: dict[_ApprovableRisk, int] = {
        name: max(_count_approvals(Risk(name), base), _count_approvals(Risk(name), guards))
        for name in _APPROVABLE_RISKS
    }
    return guards.model_copy(update={"approvals": {name: count for name, count in risks.items() if count}})


def find_lowered_guards(guards: Guards, base: Guards) -> Iterator[PlanFinding]:
    """Yield how a pull request weakens the guards of its base."""
    for name in _APPROVABLE_RISKS:
        before, now = _count_approvals(Risk(name), base), _count_approvals(Risk(name), guards)
        if now < before:
            yield PlanFinding(
                None,
                None,
                f"this change lowers guards.approvals of {name} from {before} to {now or 'none'}",
                "The base branch's approvals apply until this is merged.",
                concerns_approval=True,
            )
    added = [f"{allowance.action} until {allowance.until}" for allowance in guards.allow if allowance not in base.allow]
    if added:
        yield PlanFinding(
            None,
            None,
            f"this change adds guards.allow: {list_first(added)}",
            "Approve it only if each of them may be done.",
            concerns_approval=True,
        )


_ApprovableRisk: TypeAlias = Literal["disruptive", "irreversible", "data-loss"]
_APPROVABLE_RISKS: Final[tuple[_ApprovableRisk, ...]] = get_args(_ApprovableRisk)


def warnings_of_approvals(review: Review) -> Iterator[PlanFinding]:
    """Warn about the approvals that apply will require."""
    most, names = count_required_approvals(review.actions, review.situation.request.guards)
    if most:
        yield PlanFinding(
            None,
            None,
            f"apply asks for {pluralize(most, 'approver')} (guards.approvals), because of {list_first(names, 3)}",
            "Name each when it is applied, with --approved-by NAME, or apply what was approved in a pull request: "
            "--approved-in",
            concerns_approval=True,
        )


def warnings_of_return(review: Review) -> Iterator[PlanFinding]:
    """Warn about what a rollback to an earlier state cannot restore."""
    back_to = review.situation.request.back_to
    if back_to is None:
        return
    empty = [action.address for action in review.actions if isinstance(action, Create) and _is_recreated_empty(action)]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        yield PlanFinding(
            None,
            None,
            f"{empty[0]}{more} had records in state #{back_to}, and is created again, empty",
            "If its log is still in object storage, declare it with recoverFrom, or a Mounting instead.",
        )


def _is_recreated_empty(action: Create) -> bool:
    return kind_of(action.address) in DATA_BEARING and not action.parameters


_MAX_ADDRESSES: Final = 20


def warnings_of_owners(review: Review) -> Iterator[PlanFinding]:
    """Warn about resources that other workspaces took over, and clusters with unknown owners."""
    situation, request = review.situation, review.situation.request
    for cluster in sorted(situation.trusted):
        seen = situation.observed.get(cluster_address(cluster))
        if seen is not None and seen.cluster.owners is not None and seen.cluster.owners.unsupported_reason is not None:
            message = f"the owners of its resources cannot be read: {seen.cluster.owners.unsupported_reason}"
            hint = "Allow the principal to read it, or make sure that no other workspace manages the same."
            yield PlanFinding(seen.resource.address, None, message, hint)
    reported = {action.address for action in review.actions if action.owner is not None or isinstance(action, Forget)}
    reported |= {Address(old) for action in review.actions if (old := _find_old_address(action)) is not None}
    taken: dict[ResourceOwner, list[Address]] = {}
    owned = find_taken_resources(situation.recorded, situation.observed, request.me) if situation.foreign_owners else ()
    for address, owner in owned:
        if address not in reported and situation.can_plan(address):
            taken.setdefault(owner, []).append(address)
    for owner, addresses in sorted(taken.items(), key=lambda item: item[1]):
        yield PlanFinding(
            None,
            None,
            f"{list_first(addresses, 3)}: recorded here, and now owned by {owner}",
            f"Take ownership back with: reconciler apply {format_takeover_options(addresses)}. "
            f"To leave it to that workspace, take it out of the files and run: {_forget_command(addresses)}",
        )
    removed: dict[ResourceOwner, list[Address]] = {}
    for action in review.actions:
        if isinstance(action, Delete) and action.owner and action.blocked and action.blocked.guard == OWNER:
            removed.setdefault(action.owner, []).append(action.address)
    for owner, addresses in sorted((owner, sorted(item)) for owner, item in removed.items()):
        yield PlanFinding(
            None,
            None,
            f"{list_first(addresses, 3)}: recorded here, to be deleted, and now owned by {owner}",
            f"To leave it to that workspace, run: {_forget_command(addresses)}",
        )


def warnings_of_ordered_owners(actions: Iterable[Action], situation: Situation) -> Iterator[PlanFinding]:
    """Warn about resources of other workspaces that a command changes."""
    addresses = dict.fromkeys(address for action in actions for address in list_changed_addresses(action))
    for address in addresses if situation.foreign_owners else ():
        if (owner := situation.find_foreign_owner(address)) is not None:
            hint = "Inform that workspace's owners: their next plan shows the change as drift."
            yield PlanFinding(address, None, f"it is owned by {owner}", hint)


def format_takeover_options(addresses: Sequence[Address]) -> str:
    """Return the options that take resources from another workspace."""
    return " ".join(f"--allow {ADOPT}:{address}" for address in addresses[:_MAX_ADDRESSES])


def _forget_command(addresses: Sequence[Address]) -> str:
    return f"reconciler state rm {' '.join(addresses[:_MAX_ADDRESSES])}"
