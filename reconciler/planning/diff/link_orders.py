"""Turn a command's orders about links into actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from reconciler.errors import UserError
from reconciler.planning.actions import Block, Create, Reason, Risk
from reconciler.planning.diff.converge import AddressView, find_platform_differences, plan_deletion, plan_update
from reconciler.planning.diff.mirror_orders import plan_role_actions
from reconciler.planning.fields import list_fields
from reconciler.planning.orders import AlterLinkOrder, CreateLinkOrder, DeleteLinkOrder, RoleOrder
from reconciler.planning.resolve.limits import check_changes, find_unsupported_features
from reconciler.planning.resolve.mirror_sources import link_of
from reconciler.planning.selection import (
    build_half_parameters,
    build_other_half,
    build_other_half_address,
    has_two_halves,
)
from reconciler.planning.situation import WantedResource, is_mirroring
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.resources.inventory import Observed, Recorded
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec
from reconciler.resources.mirrors import FAILOVER
from reconciler.runtime.text import explain_invalid, find_similar, format_suggestion, pluralize

if TYPE_CHECKING:
    from reconciler.planning.diff.converge import Decision
    from reconciler.planning.orders import LinkOrder
    from reconciler.planning.situation import Situation


_PAIRING_FIELDS: Final = ("source", "mode")
_HINT_LOCATION: Final = "Correct its location. A cluster that was never created is created by: reconciler apply"


def build_ordered_links(orders: Iterable[CreateLinkOrder]) -> dict[Address, WantedResource]:
    """Return the links that orders create, on both clusters if the mode requires it."""
    wanted = {order.resource.address: WantedResource(order.resource, None) for order in orders}
    for order in orders:
        if has_two_halves(order.resource):
            wanted.setdefault(build_other_half_address(order.resource), build_other_half(order.resource, ""))
    return wanted


def decide_link(order: LinkOrder, situation: Situation, decision: Decision) -> None:
    """Add the actions of an order about a link, or an error."""
    if isinstance(order, CreateLinkOrder):
        _create_link(order, situation, decision)
        return
    link, seen = order.link, situation.observed.get(order.link)
    if cluster_of(link) not in situation.trusted:
        decision.refuse(link, None, f"{link}: cluster {cluster_of(link)} does not exist", _HINT_LOCATION)
    elif seen is None or not isinstance(resource := seen.resource, MirrorLink):
        near = find_similar(link, (address for address in situation.observed if kind_of(address) == "link"))
        hint = format_suggestion(near, otherwise="See the links with: reconciler link list")
        decision.refuse(link, None, f"{link}: there is no such link", hint)
    elif isinstance(order, AlterLinkOrder):
        _alter_link(order, seen, resource, situation, decision)
    elif isinstance(order, DeleteLinkOrder):
        _delete_link(order, seen, resource, situation, decision)
    elif resource.spec.paused != order.is_paused:
        _update_link(seen, resource, resource.spec.model_copy(update={"paused": order.is_paused}), situation, decision)
    elif order.is_named:
        message = f"{link} is {'paused already' if order.is_paused else 'not paused'}"
        other = "resume" if order.is_paused else "pause"
        decision.refuse(link, None, message, f"Possible now: reconciler link {other} {link}")


def _create_link(order: CreateLinkOrder, situation: Situation, decision: Decision) -> None:
    link = order.resource
    halves = (link.address, build_other_half_address(link)) if has_two_halves(link) else (link.address,)
    if problems := [finding for finding in decision.errors if finding.address in halves]:
        if all(finding.address != link.address for finding in problems):
            decision.errors += [replace(finding, address=link.address) for finding in problems]
        return
    if absent := next((name for name in (link.cluster, link.spec.source) if name not in situation.trusted), None):
        decision.refuse(link.address, None, f"{link.address}: cluster {absent} does not exist", _HINT_LOCATION)
        return
    new = [at for at in halves if at not in situation.observed]
    for at in halves:
        is_left = bool(new) and _equals_ordered_link(
            situation.wanted[at], situation.observed.get(at), whole=at == link.address
        )
        if at not in new and not is_left:
            decision.refuse(link.address, None, f"{at} exists already", f"Look at it: reconciler link describe {at}")
            return
    planned = {action.address for action in decision.actions}
    decision.actions += [_build_link_creation(situation.wanted[at], situation) for at in new if at not in planned]


def _build_link_creation(wanted: WantedResource, situation: Situation) -> Create:
    half = build_half_parameters(wanted, situation)
    return Create(address=wanted.resource.address, after=wanted.resource, reasons=(Reason.BY_COMMAND,), parameters=half)


def _equals_ordered_link(wanted: WantedResource, seen: Observed | None, *, whole: bool) -> bool:
    if seen is None:
        return False
    want, live = list_fields(wanted.resource), list_fields(seen.resource)
    return all(want.get(path) == live.get(path) for path in ({*want, *live} if whole else _PAIRING_FIELDS))


def _alter_link(
    order: AlterLinkOrder, seen: Observed, link: MirrorLink, situation: Situation, decision: Decision
) -> None:
    fields = {**link.spec.to_json(), **order.fields}
    try:
        spec = MirrorLinkSpec.model_validate({key: value for key, value in fields.items() if value is not None})
    except ValidationError as error:
        decision.refuse(
            order.link, None, f"{order.link}: {explain_invalid(error)}", "See the fields with: reconciler schema"
        )
        return
    _update_link(seen, link, spec, situation, decision)


def _update_link(
    seen: Observed, link: MirrorLink, spec: MirrorLinkSpec, situation: Situation, decision: Decision
) -> None:
    address, limits = link.address, situation.find_capabilities(link.cluster)
    after = link.model_copy(update={"spec": spec})
    sides = AddressView(address, WantedResource(after, None), Recorded(link, incarnation=seen.incarnation), seen)
    differing = find_platform_differences(sides, seen, situation)
    problems = [*check_changes(differing.changes, limits)]
    problems += [
        problem
        for problem in find_unsupported_features(after, limits)
        if problem not in {*find_unsupported_features(link, limits)}
    ]
    if not problems and has_two_halves(after) and not has_two_halves(link):
        declare = f"Declare it with mode: {spec.mode}, and apply."
        problems = [(f"with mode {spec.mode} it needs a half on cluster {spec.source}, which no command adds", declare)]
    for message, hint in problems:
        decision.refuse(address, None, f"{address}: {message}", hint)
    if problems or not differing.changes:
        return
    risk = Risk.DISRUPTIVE if spec.paused and not link.spec.paused else Risk.NONE
    decision.actions.append(replace(plan_update(sides, seen, differing), reasons=(Reason.BY_COMMAND,), risk=risk))
    last = situation.recorded.get(address)
    if last is not None and list_fields(last.resource) != list_fields(after):
        hint = f"To write it into the files: reconciler drift --accept {address}"
        decision.warn(address, None, "the next apply reverts it unless the files declare it", hint)


def _delete_link(
    order: DeleteLinkOrder, seen: Observed, link: MirrorLink, situation: Situation, decision: Decision
) -> None:
    mirrors = {
        at: situation.observed[at] for at, mirror in situation.observed_mirrors.items() if link_of(mirror) == order.link
    }
    live = sorted(at for at, mirror in mirrors.items() if is_mirroring(mirror))
    delete = replace(plan_deletion(order.link, seen, Reason.BY_COMMAND), risk=Risk.DISRUPTIVE)
    if live and not order.is_forced:
        states = Counter(mirror.state for mirror in mirrors.values())
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items(), key=str))
        message = f"it has mirrors that are not stopped: {counts}"
        decision.actions.append(replace(delete, blocked=Block("mirroring", message, None)))
        return
    try:
        stops = [stop for at in live for stop in plan_role_actions(RoleOrder(mirror=at, verb=FAILOVER), situation)]
    except UserError as error:
        decision.refuse(order.link, None, error.message, error.hint)
        return
    decision.actions += [*stops, replace(delete, depends_on=tuple(stop.id for stop in stops))]
    if order.link in situation.recorded:
        hint = f"To delete it in the files: reconciler drift --accept {order.link}"
        decision.warn(order.link, None, "the next apply creates it again if the files declare it", hint)
    if mirrors:
        what = pluralize(len(mirrors), "stopped mirror forgets its source", "stopped mirrors forget their sources")
        may_restore = "reversed" in situation.find_capabilities(link.cluster).mirrors.roles
        again = "To mirror one again, delete its topic first."
        hint = "Restore first those that are to follow their sources again." if may_restore else again
        decision.warn(order.link, None, f"{what}; the topics stay", hint)
    ordered = {other.link for other in situation.request.orders if isinstance(other, DeleteLinkOrder)}
    if has_two_halves(link) and build_other_half_address(link) not in ordered:
        stays = f"its half on cluster {link.spec.source} stays"
        decision.warn(
            order.link, None, stays, f"To delete it too: reconciler link delete {build_other_half_address(link)}"
        )
