"""Guards: which actions are blocked, how that is lifted, and what to do instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    addresses_of,
)
from reconciler.planning.allowances import ADOPT, Allowed, allowances, granted_by
from reconciler.planning.checks.offline import judged_by_rules, violations
from reconciler.planning.diff.removals import Holding
from reconciler.planning.fields import fields_of
from reconciler.planning.plan import Finding
from reconciler.planning.resolve.acting_configs import Switched
from reconciler.planning.resolve.limits import FIXED
from reconciler.planning.situation import IMPLIED, Review, Situation, taken_over
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
    split_name,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import ENABLED, UPLOADS
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.tiering_policy import TieringPolicy, switches_in
from reconciler.resources.topic import Topic
from reconciler.runtime.text import bytes_text, counted, first_few

if TYPE_CHECKING:
    from reconciler.resources.inventory import Desired
    from reconciler.resources.owners import ResourceOwner
    from reconciler.resources.workspace import Guards


# What loses nothing in place of a delete that is blocked: to unmount the topic, which keeps its records.


_IN_THE_WAY: Final = frozenset({"protected", "only", "mirrored"})
"""Guards that would not let a topic be unmounted either."""


def with_advice(actions: Sequence[Action], situation: Situation) -> Iterator[Action]:
    """Yield the actions; blocked deletes of what can be unmounted say how, and so do those of what holds it."""
    for action in actions:
        if _is_blocked_loss(action) and isinstance(action, Delete) and _can_unmount(action, situation):
            yield advised(action, mounting_yaml(action.address))
        else:
            yield action


def mounting_yaml(topic: Address) -> str:
    """Return the Mounting that detaches a topic, as one line."""
    namespace, name = split_name(full_name_of(topic))
    where = f"{name}, namespace: {json.dumps(namespace)}" if namespace else name
    metadata = f"{{name: {where}, cluster: {cluster_of(topic)}}}"
    return f"{{apiVersion: reconciler/v1, kind: Mounting, metadata: {metadata}, spec: {{state: unmounted}}}}"


def warnings_of_unmountable(actions: Iterable[Action], situation: Situation) -> Iterator[Finding]:
    """Yield how to keep the records of topics that orders delete."""
    topics = [each.address for each in actions if isinstance(each, Delete) and _can_unmount(each, situation)]
    if topics:
        others = f" and those of {counted(len(topics) - 1, 'more topic')}" if topics[1:] else ""
        message = f"its records{others} can be kept in object storage, if it is unmounted instead"
        yield Finding(topics[0], None, message, f"Declare and apply first: {mounting_yaml(topics[0])}")


def advised(action: Delete, instead: str | None) -> Delete:
    """Return a blocked delete that says what to declare in place of it."""
    if action.blocked is None or instead is None:
        return action
    return replace(action, blocked=replace(action.blocked, instead=instead))


def _is_blocked_loss(action: Action) -> bool:
    is_blocked = action.blocked is not None and action.blocked.guard not in _IN_THE_WAY
    return is_blocked and Reason.HOLDS_DATA in action.reasons


def _can_unmount(action: Delete, situation: Situation) -> bool:
    """Tell whether a topic is tiered, on a cluster that can mount, and may be uploaded whole as things are."""
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
    if not situation.capabilities(topic.cluster).mountings or cluster.spec.object_storage is None:
        return False
    here = situation.observed.get(cluster.address)
    properties = here.resource.spec.properties if here and isinstance(here.resource, Cluster) else {}
    is_on = properties.get(ENABLED) == "true" and properties.get(UPLOADS) != "false"
    return is_on and switches_in(Switched(situation).now(action.address, seen)).write


_LIVE_MIRROR: Final = (
    "it is a live mirror: to keep its topic declare it again, promoted or failed-over; else it is deleted with what it "
    "holds"
)
_COPIED: Final = (
    "its records are copied to its new name and compared there before; clients that use the old name will fail"
)

_EMPTY: Final = "it has no records as of now; its access rules go, and the offsets of its groups"
_REPLICA: Final = "its consumer groups lose their offsets here, and its access rules go; its source keeps every record"

Guard: TypeAlias = Callable[["Action", "Situation"], Block | None]

DATA_BEARING: Final = frozenset({"topic", "mirror"})
OWNER: Final = "owner"
"""The guard of what another workspace owns."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """Actions after all guards, and what these have to say."""

    actions: tuple[Action, ...]
    errors: Sequence[Finding] = ()
    warnings: Sequence[Finding] = ()


def guard(actions: Sequence[Action], desired: Desired, situation: Situation, allowed: Sequence[Allowed]) -> Guarded:
    """Return the actions with what blocks them, or with what lifted a block; and what is refused or left altogether.

    What nothing lifts comes first, so that nobody is told to allow what stays refused.
    """
    is_emptied = not situation.request.options.is_destroy and _is_empty(desired) and bool(situation.recorded)
    guards: tuple[Guard, ...] = (_protected, _only, _of_fixed_link, *((_empty,) if is_emptied else ()), *_LIFTABLE)
    judged = [_judge(action, guards, situation, allowed) for action in actions]
    if not any(isinstance(action, Delete) for action in judged):
        return Guarded(tuple(judged))
    judged = list(with_advice(_max_deletes(judged, situation, allowed), situation))
    holding = Holding(judged, situation)
    return Guarded(holding.judged(), holding.errors, holding.warnings)


def guard_ordered(
    actions: Iterable[Action], desired: Desired, situation: Situation, allowed: Sequence[Allowed]
) -> tuple[Action, ...]:
    """Return the actions of orders with what blocks them.

    Guards that are meant for files are skipped: an order names its target, and is confirmed. A topic is
    protected by its record or its file: without a state only the file is known.
    """

    def protected(action: Action, _situation: Situation) -> Block | None:
        declared = desired[action.address].resource if action.address in desired else None
        protect = declared.spec.protect if isinstance(declared, Topic) else None
        if isinstance(action, Delete) and protect:
            return Block("protected", "its file protects it: protect: true", None)
        if isinstance(action, RunJob) and action.job == UNMOUNT.name and action.parameters["phase"] != "finish":
            last = situation.recorded.get(action.address)
            if protect if protect is not None else last is not None and last.protect:
                return Block("protected", "it is protected, and unmounting takes it off the cluster", None)
        return None

    def loss_by_move(action: Action, situation: Situation) -> Block | None:
        block = _data_loss(action, situation) if _moved_from(action) is not None else None
        offsets, stored = sum(each.stop - each.start for each in action.estimate.unreadable), action.estimate.bytes
        if block is None or not (offsets or stored):
            return block
        what = f"{counted(offsets, 'offset')} in object storage" if offsets else f"about {bytes_text(stored)}"
        return replace(block, message=f"{what} would be deleted by what it inherits there")

    guards: tuple[Guard, ...] = (_protected, protected, _only, _deletion_protection, loss_by_move)
    return tuple(_judge(action, guards, situation, allowed) for action in actions)


def _judge(action: Action, guards: Sequence[Guard], situation: Situation, allowed: Sequence[Allowed]) -> Action:
    grant: str | None = None
    other = _other_owner(action, situation)
    if other is not None:
        action = replace(action, owner=other)
    for refuses in guards:
        block = refuses(action, situation)
        if block is None:
            continue
        origin = lifted_by(action, block, allowed)
        if origin is None:
            return replace(action, blocked=block)
        grant = grant or origin
    return replace(action, granted_by=grant) if grant else action


def lifted_by(action: Action, block: Block, allowed: Sequence[Allowed]) -> str | None:
    """Return what lifts a block of an action, if anything does."""
    if block.guard == OWNER:
        return next((allowance.origin for allowance in allowed if allowance.takes(action.address)), None)
    return granted_by(replace(action, owner=None), allowed) if block.allow else None


def _protected(action: Action, situation: Situation) -> Block | None:
    last = situation.recorded.get(action.address)
    if isinstance(action, Delete) and last is not None and last.protect:
        return Block("protected", "it is protected: apply once with protect: false", None)
    return None


def _only(action: Action, situation: Situation) -> Block | None:
    patterns = situation.request.guards.only
    is_of_record = isinstance(action, Adopt | Forget) and kind_of(action.address) == "cluster"
    if not patterns or is_of_record:
        return None
    old = _moved_from(action)
    for what, address in (("it", action.address), (f"{old}, which it is moved from,", old)):
        if address is not None and not any(matches(pattern, address) for pattern in patterns):
            return Block("only", f"{what} is outside what this workspace is for ({', '.join(patterns)})", None)
    return None


def _of_fixed_link(action: Action, situation: Situation) -> Block | None:
    """Offer no deletion where a link cannot change so that its mirrors would be others: set back, they are kept."""
    mirror = action.before if isinstance(action, Delete) else None
    if not isinstance(mirror, MirrorTopic):
        return None
    address = address_of("link", mirror.cluster, mirror.link)
    wanted, seen = situation.wanted.get(address), situation.observed.get(address)
    if wanted is None or seen is None:
        return None
    before, after = fields_of(seen.resource), fields_of(wanted.resource)
    fixed = [path for path in sorted(FIXED) if before.get(path) != after.get(path)]
    if not fixed:
        return None
    message = f"{', '.join(fixed)} of {address} never changes: once that is set back, the mirror is kept"
    return Block("link", message, None)


def _empty(action: Action, _situation: Situation) -> Block | None:
    message = "the files declare nothing any more; put the clusters back and `reconciler destroy` removes everything"
    return Block("empty", message, f"{action.verb}:{action.address}")


def _other_owner(action: Action, situation: Situation) -> ResourceOwner | None:
    """Return the other workspace that owns what an action changes; who lets go of it asks nobody."""
    if not situation.others or IMPLIED in action.origins:
        return None
    match action:
        case Create() | Update() | Adopt():
            return situation.other_owner(action.address, action.after)
        case Delete():
            return situation.other_owner(action.address, action.before)
        case Transition():
            old = _moved_from(action)
            moved = None if old is None else situation.other_owner(Address(old))
            return moved or situation.other_owner(action.address, action.after)
        case Forget() | RunJob():
            return None
        case _:
            assert_never(action)


def _moved_from(action: Action) -> str | None:
    """Return the address that a topic leaves."""
    old = action.parameters.get("from") if isinstance(action, Transition) and action.machine == "topic" else None
    return old if isinstance(old, str) else None


def _owned(action: Action, _situation: Situation) -> Block | None:
    if action.owner is None:
        return None
    return Block(OWNER, f"it is owned by {action.owner}", f"{ADOPT}:{action.address}")


def _data_bearing(action: Action, situation: Situation) -> Block | None:
    if (
        not isinstance(action, Delete)
        or kind_of(action.address) not in DATA_BEARING
        or situation.request.options.is_destroy
    ):
        return None
    message = "it may hold records that nothing brings back" if Reason.HOLDS_DATA in action.reasons else _EMPTY
    if kind_of(action.address) == "mirror" and Reason.NO_LONGER_DECLARED in action.reasons:
        message = _LIVE_MIRROR
    if isinstance(action.before, Topic) and action.before.spec.read_replica_of is not None:
        message = _REPLICA
    if Reason.MOVED in action.reasons:
        message = _COPIED
    return Block("data_bearing", message, f"delete:{action.address}")


def _recreated(action: Action, _situation: Situation) -> Block | None:
    if not isinstance(action, Transition) or Reason.RECREATED not in action.reasons:
        return None
    message = "it was mounted again, or deleted and created again, outside reconciler: its id is not the one applied"
    return Block("recreated", message, f"{action.verb}:{action.address}")


def _hiding(action: Action, situation: Situation) -> Block | None:
    """Whether a namespace is empty cannot be told where not every topic is shown."""
    cluster = cluster_of(action.address) or ""
    is_namespace = isinstance(action, Delete) and kind_of(action.address) == "namespace"
    if not is_namespace or cluster not in situation.trusted or not situation.capabilities(cluster).may_hide:
        return None
    message = f"it may hold topics that cluster {cluster} does not show"
    return Block("hidden", message, f"delete:{action.address}")


def _deletion_protection(action: Action, situation: Situation) -> Block | None:
    cluster = situation.clusters.get(cluster_of(action.address) or "")
    is_data = isinstance(action, Delete) and kind_of(action.address) in DATA_BEARING
    if not is_data or cluster is None or not cluster.spec.deletion_protection:
        return None
    message = f"cluster {cluster.metadata.name} has deletionProtection"
    return Block("deletion_protection", message, f"delete:{action.address}")


def _data_loss(action: Action, _situation: Situation) -> Block | None:
    match action:
        case Update() | Transition() if action.risk is Risk.DATA_LOSS:
            allow = f"{action.verb}:{action.address}"
            return Block("data_loss", "records would be lost, or we cannot tell", allow)
        case Create() | Update() | Delete() | Adopt() | Forget() | Transition() | RunJob():
            return None


def _rules(action: Action, situation: Situation) -> Block | None:
    if situation.request.options.is_destroy or not isinstance(action, Create | Update | Adopt | Transition):
        return None
    wanted = None if situation.request.options.is_only_drift else situation.wanted.get(action.address)
    # What is owned or moved as it is may be changed to what is wanted by the action after it.
    resource = action.after if wanted is None else judged_by_rules(wanted)
    broken = violations(action.address, resource, situation.request.guards)
    return Block("rule", "; ".join(broken), f"{action.verb}:{action.address}") if broken else None


_LIFTABLE: Final[tuple[Guard, ...]] = (
    _owned,
    _recreated,
    _data_bearing,
    _hiding,
    _deletion_protection,
    _data_loss,
    _rules,
)


def _max_deletes(actions: list[Action], situation: Situation, allowed: Sequence[Allowed]) -> list[Action]:
    """Block deletes that nobody allowed by name, where there are more of them than may go unnoticed."""
    over = _over_limit(actions, situation, allowed)
    if not over:
        return actions
    message = f"{len(over)} deletes are more than the {_limit(situation)} of guards.maxDeletes"
    return [
        replace(action, blocked=Block("max_deletes", message, f"delete:{action.address}"))
        if action.id in over and action.blocked is None
        else action
        for action in actions
    ]


def _over_limit(actions: Iterable[Action], situation: Situation, allowed: Sequence[Allowed]) -> frozenset[str]:
    """Return the deletes that nobody allowed by name, where they are too many.

    A pattern allows the delete of what holds data, but it is no name: it may match more than its author thought of.
    """
    if situation.request.options.is_destroy:
        return frozenset()
    names = [allowance for allowance in allowed if "*" not in allowance.pattern]
    unnamed = [action.id for action in actions if isinstance(action, Delete) and granted_by(action, names) is None]
    return frozenset(unnamed) if len(unnamed) > _limit(situation) else frozenset()


def warnings_of_deletes(review: Review) -> Iterator[Finding]:
    """Yield what lifts the limit of deletes: patterns do not."""
    situation = review.situation
    over = _over_limit(review.actions, situation, allowances(situation.request.guards, situation.request.selection))
    if over:
        message = f"{len(over)} deletes are more than the {_limit(situation)} of guards.maxDeletes"
        hint = "Name each of them with --allow, without a pattern; or raise guards.maxDeletes in reconciler.yaml."
        yield Finding(None, None, message, hint)


def _limit(situation: Situation) -> int:
    limit = situation.request.guards.max_deletes
    if isinstance(limit, str):
        return len(situation.recorded) * int(limit.removesuffix("%")) // 100
    return limit


def _is_empty(desired: Desired) -> bool:
    return all(isinstance(declared.resource, TieringPolicy) for declared in desired.values())


# How many people must have agreed to a plan. Who did is known only when it is applied.


def approvers_asked(actions: Sequence[Action], guards: Guards) -> tuple[int, tuple[str, ...]]:
    """Return how many people must have approved a plan, and because of which actions; a graver risk asks for as many.

    What is blocked is not done, and asks for nobody.
    """
    asked = {action.id: _asked(action.risk, guards) for action in actions if action.blocked is None}
    most = max(asked.values(), default=0)
    return most, tuple(name for name, count in asked.items() if most and count == most)


def _asked(risk: Risk, guards: Guards) -> int:
    order = list(Risk)
    found = (count for name, count in guards.approvals.items() if order.index(Risk(name)) <= order.index(risk))
    return max(found, default=0)


def with_base(guards: Guards, base: Guards | None) -> Guards:
    """Return the guards that hold for a pull request: it asks for no fewer approvers than its base does."""
    if base is None:
        return guards
    risks: dict[_Asking, int] = {name: max(_asked(Risk(name), base), _asked(Risk(name), guards)) for name in _ASKING}
    return guards.model_copy(update={"approvals": {name: count for name, count in risks.items() if count}})


def lowered(guards: Guards, base: Guards) -> Iterator[Finding]:
    """Yield what a pull request takes from the guards of its base, for those who approve it."""
    for name in _ASKING:
        before, now = _asked(Risk(name), base), _asked(Risk(name), guards)
        if now < before:
            yield Finding(
                None,
                None,
                f"this change lowers guards.approvals of {name} from {before} to {now or 'none'}",
                "What the base asks for counts until this is merged.",
                is_of_approval=True,
            )
    added = [f"{each.action} until {each.until}" for each in guards.allow if each not in base.allow]
    if added:
        yield Finding(
            None,
            None,
            f"this change adds guards.allow: {first_few(added)}",
            "Approve it only if each of them may be done.",
            is_of_approval=True,
        )


_Asking: TypeAlias = Literal["disruptive", "irreversible", "data-loss"]
_ASKING: Final[tuple[_Asking, ...]] = get_args(_Asking)
"""The risks for which a workspace may ask for approvers."""


def warnings_of_approvals(review: Review) -> Iterator[Finding]:
    """Yield how many approvers an apply will ask for."""
    most, names = approvers_asked(review.actions, review.situation.request.guards)
    if most:
        yield Finding(
            None,
            None,
            f"apply asks for {counted(most, 'approver')} (guards.approvals), because of {first_few(names, 3)}",
            "Name each when it is applied, with --approved-by NAME, or apply what was approved in a pull request: "
            "--approved-in",
            is_of_approval=True,
        )


# A plan that goes back to a state: what to know of it beside its actions.


def warnings_of_return(review: Review) -> Iterator[Finding]:
    """Yield what a plan back to a state cannot do; nothing for a plan that leads to the files."""
    back_to = review.situation.request.back_to
    if back_to is None:
        return
    empty = [action.address for action in review.actions if isinstance(action, Create) and _held_records(action)]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        yield Finding(
            None,
            None,
            f"{empty[0]}{more} had records in state #{back_to}, and is created again, empty",
            "Where its log is still in object storage, declare it with recoverFrom or a Mounting in place of this.",
        )


def _held_records(action: Create) -> bool:
    return kind_of(action.address) in DATA_BEARING and not action.parameters


# What another workspace owns, and this one remembers as its own.

_TYPED: Final = 20
"""So many addresses are put into one command."""


def warnings_of_owners(review: Review) -> Iterator[Finding]:
    """Yield, for each workspace that took over what is recorded here, what that is; and where nobody can tell."""
    situation, request = review.situation, review.situation.request
    for cluster in sorted(situation.trusted):
        seen = situation.observed.get(cluster_address(cluster))
        if seen is not None and seen.cluster.owners is not None and seen.cluster.owners.unknown is not None:
            message = f"which workspace owns what on it is not known: {seen.cluster.owners.unknown}"
            hint = "Allow the principal to read it, or make sure that no other workspace manages the same."
            yield Finding(seen.resource.address, None, message, hint)
    told = {action.address for action in review.actions if action.owner is not None or isinstance(action, Forget)}
    told |= {Address(old) for action in review.actions if (old := _moved_from(action)) is not None}
    taken: dict[ResourceOwner, list[Address]] = {}
    found = taken_over(situation.recorded, situation.observed, request.me) if situation.others else ()
    for address, owner in found:
        if address not in told and situation.is_decidable(address):
            taken.setdefault(owner, []).append(address)
    for owner, addresses in sorted(taken.items(), key=lambda each: each[1]):
        yield Finding(
            None,
            None,
            f"{first_few(addresses, 3)}: recorded here, and now owned by {owner}",
            f"Take it back with: reconciler apply {taking(addresses)}. "
            f"To leave it to that workspace, take it out of the files and run: {_leaving(addresses)}",
        )
    removed: dict[ResourceOwner, list[Address]] = {}
    for action in review.actions:
        if isinstance(action, Delete) and action.owner and action.blocked and action.blocked.guard == OWNER:
            removed.setdefault(action.owner, []).append(action.address)
    for owner, addresses in sorted((owner, sorted(each)) for owner, each in removed.items()):
        yield Finding(
            None,
            None,
            f"{first_few(addresses, 3)}: recorded here, to be deleted, and now owned by {owner}",
            f"To leave it to that workspace, run: {_leaving(addresses)}",
        )


def warnings_of_ordered_owners(actions: Iterable[Action], situation: Situation) -> Iterator[Finding]:
    """Yield what orders change of other workspaces: that blocks no order."""
    addresses = dict.fromkeys(address for action in actions for address in addresses_of(action))
    for address in addresses if situation.others else ():
        if (owner := situation.other_owner(address)) is not None:
            hint = "Tell its owners: their next plan shows what differs from their files."
            yield Finding(address, None, f"it is owned by {owner}", hint)


def taking(addresses: Sequence[Address]) -> str:
    """Return the options that take resources over from another workspace: the first of them, where they are many."""
    return " ".join(f"--allow {ADOPT}:{address}" for address in addresses[:_TYPED])


def _leaving(addresses: Sequence[Address]) -> str:
    return f"reconciler state rm {' '.join(addresses[:_TYPED])}"
