"""Turn a command's orders into actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from pydantic import ValidationError

from reconciler.planning.actions import Adopt, Forget, Reason
from reconciler.planning.diff.link_orders import build_ordered_links, decide_link
from reconciler.planning.diff.mirror_orders import decide_mirror_order, refuse_competing_reversals
from reconciler.planning.diff.mount_orders import migrate_topic
from reconciler.planning.diff.namespace_orders import alter_namespace, create_namespace, delete_namespace, move_topics
from reconciler.planning.diff.topic_orders import alter_topic, build_ordered_topic, create_topic, delete_topic
from reconciler.planning.diff.trim_orders import trim_topic
from reconciler.planning.orders import (
    AlterLinkOrder,
    AlterNamespaceOrder,
    AlterTopicOrder,
    CreateLinkOrder,
    CreateMirrorOrder,
    CreateNamespaceOrder,
    CreateTopicOrder,
    DeleteLinkOrder,
    DeleteMirrorOrder,
    DeleteNamespaceOrder,
    DeleteTopicOrder,
    ForgetOrder,
    MountOrder,
    MoveTopicsOrder,
    PauseLinkOrder,
    ReaddressOrder,
    RoleOrder,
    TrimTopicOrder,
)
from reconciler.resources.address import (
    Address,
    build_sort_key,
    cluster_of,
    full_name_of,
    kind_of,
    list_containers,
    matches_pattern,
    split_name,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Resource, read_resource
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.runtime.text import find_similar, format_suggestion

if TYPE_CHECKING:
    from reconciler.planning.diff.converge import Decision
    from reconciler.planning.orders import Order
    from reconciler.planning.situation import Situation, WantedResource
    from reconciler.resources.inventory import Record


def decide_ordered(situation: Situation, decision: Decision) -> None:
    """Add the actions or errors of every order."""
    forgotten: dict[Address, None] = {}
    for order in situation.request.orders:
        match order:
            case ForgetOrder() | ReaddressOrder():
                _change_record(order, situation.recorded, forgotten, decision)
            case CreateNamespaceOrder():
                create_namespace(order, situation, decision)
            case AlterNamespaceOrder():
                alter_namespace(order, situation, decision)
            case DeleteNamespaceOrder():
                delete_namespace(order, situation, decision)
            case MoveTopicsOrder():
                move_topics(order, situation, decision)
            case CreateTopicOrder() | AlterTopicOrder() | DeleteTopicOrder() | TrimTopicOrder() | MountOrder():
                _decide_topic(order, situation, decision)
            case CreateLinkOrder() | AlterLinkOrder() | PauseLinkOrder() | DeleteLinkOrder():
                decide_link(order, situation, decision)
            case RoleOrder() | CreateMirrorOrder() | DeleteMirrorOrder():
                decide_mirror_order(order, situation, decision)
            case _:
                assert_never(order)
    refuse_competing_reversals(decision)
    decision.actions += [
        Forget(address=address, reasons=(Reason.RECORD_ONLY,))
        # Reversed: content before its namespace.
        for address in sorted(forgotten, key=build_sort_key, reverse=True)
    ]


def _decide_topic(
    order: CreateTopicOrder | AlterTopicOrder | DeleteTopicOrder | TrimTopicOrder | MountOrder,
    situation: Situation,
    decision: Decision,
) -> None:
    match order:
        case CreateTopicOrder():
            create_topic(order, situation, decision)
        case AlterTopicOrder():
            alter_topic(order, situation, decision)
        case DeleteTopicOrder():
            delete_topic(order, situation, decision)
        case TrimTopicOrder():
            trim_topic(order, situation, decision)
        case MountOrder():
            migrate_topic(order, situation, decision)
        case _:
            assert_never(order)


def build_ordered_resources(orders: Sequence[Order], decision: Decision) -> dict[Address, WantedResource]:
    """Return the resources that orders create, for checks."""
    topics = {
        order.topic: build_ordered_topic(order, decision) for order in orders if isinstance(order, CreateTopicOrder)
    }
    return {
        **{address: wanted for address, wanted in topics.items() if wanted is not None},
        **build_ordered_links([order for order in orders if isinstance(order, CreateLinkOrder)]),
    }


_MOVABLE: Final = ("topic", "namespace", "mounting")


def suggest_recorded(address: str, record: Iterable[str]) -> str:
    """Return a hint with the most similar recorded address."""
    return format_suggestion(find_similar(address, record), otherwise="List what is with: reconciler state list")


def _change_record(
    order: ForgetOrder | ReaddressOrder, record: Record, forgotten: dict[Address, None], decision: Decision
) -> None:
    if isinstance(order, ForgetOrder):
        _collect_forgotten_addresses(order, record, forgotten, decision)
    else:
        _plan_readdressing(order, record, decision)


def _collect_forgotten_addresses(
    order: ForgetOrder, record: Record, forgotten: dict[Address, None], decision: Decision
) -> None:
    named = {address for address in record if matches_pattern(order.pattern, address)}
    if not named:
        message = f"{order.pattern} is not recorded"
        decision.refuse(Address(order.pattern), None, message, suggest_recorded(order.pattern, record))
        return
    below = (address for address in record if order.is_recursive and not named.isdisjoint(list_containers(address)))
    forgotten |= dict.fromkeys((*named, *below))


def _plan_readdressing(order: ReaddressOrder, record: Record, decision: Decision) -> None:
    old, new = order.before, order.after
    if old not in record:
        decision.refuse(old, None, f"{old} is not recorded", suggest_recorded(old, record))
        return
    moves = dict(_plan_address_changes(record, old, new))
    taken = next((address for address in moves.values() if address in record), None)
    if taken is not None:
        hint = f"Forget it first: reconciler state rm {taken}"
        decision.refuse(taken, None, f"{taken} is recorded already", hint)
        return
    for source, address in moves.items():
        try:
            decision.actions.append(_adopt_readdressed(source, moves, record))
        except ValidationError as error:
            why = error.errors(include_url=False, include_context=False)[0]["msg"].removeprefix("Value error, ")
            message = f"{address} is not an address: {why}"
            decision.refuse(address, None, message, "Name one that a manifest could declare.")
            return


def explain_forbidden_move(old: Address, new: Address) -> tuple[str, str] | None:
    """Return message and hint if an address can never become another, or `None`."""
    if kind_of(old) not in _MOVABLE:
        hint = "Forget it with `state rm`, declare it under its new name, and the next apply adopts it."
        return f"a {kind_of(old)} keeps its address", hint
    if kind_of(old) != kind_of(new):
        return f"{old} is a {kind_of(old)}, and {new} a {kind_of(new)}", "Name an address of the same kind."
    if cluster_of(old) != cluster_of(new):
        message = f"{old} lives on cluster {cluster_of(old)}, and {new} on {cluster_of(new)}"
        return message, "A recorded resource cannot change its cluster: name an address on the same cluster."
    if old == new or old in list_containers(new):
        return f"{new} is {old} itself, or in it", "Name another address."
    return None


def _plan_address_changes(record: Record, old: Address, new: Address) -> Iterator[tuple[Address, Address]]:
    yield old, new
    length = len(full_name_of(old))
    for address in sorted(record, key=build_sort_key):
        if old in list_containers(address):
            name = f"{full_name_of(new)}{full_name_of(address)[length:]}"
            yield address, Address(f"{kind_of(address)}/{cluster_of(old)}/{name}")


def _adopt_readdressed(old: Address, moves: Mapping[Address, Address], record: Record) -> Adopt:
    last = record[old]
    origins = {path: moves.get(Address(origin), origin) for path, origin in last.origins.items()}
    return Adopt(
        address=moves[old],
        observed=last.resource,
        after=_change_address(last.resource, moves[old]),
        incarnation=last.incarnation,
        physical_name=last.physical_name,
        moved_from=old,
        reasons=(Reason.READDRESSED,),
        origins=origins,
    )


def _change_address(resource: Resource, address: Address) -> Resource:
    full_name = full_name_of(address)
    namespace, name = split_name(full_name)
    plain = resource.to_json()
    match resource:
        case Topic() | Mounting():
            plain["metadata"] |= {"name": name, "namespace": namespace}
        case Namespace():
            plain["metadata"] |= {"name": full_name}
        case MirrorTopic():
            plain["name"] = full_name
        case Cluster() | MirrorLink() | TieringPolicy():
            return resource  # `explain_forbidden_move` rejects these kinds.
        case _:
            assert_never(resource)
    return read_resource(plain)
