"""Decide orders about namespaces: create one, move topics into one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.planning.actions import Create, Reason, Risk, Transition
from reconciler.planning.diff.converge import deletion, going, problems, state_precondition
from reconciler.planning.resolve.acting_configs import changes_by_move
from reconciler.planning.situation import MOVED_BY_COMMAND, source_of
from reconciler.resources.address import (
    Address,
    address_of,
    check_full_name,
    full_name_of,
    holders_of,
    join_name,
    kind_of,
    rank,
    split_name,
    tiers_of,
)
from reconciler.resources.base import OfNamespace
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.namespace import Namespace, NamespaceSpec
from reconciler.resources.topic import Topic
from reconciler.runtime.text import first_few

if TYPE_CHECKING:
    from reconciler.planning.diff.converge import Decision
    from reconciler.planning.orders import CreateNamespaceOrder, DeleteNamespaceOrder, MoveTopicsOrder
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed, Record


def create_namespace(order: CreateNamespaceOrder, situation: Situation, decision: Decision) -> None:
    """Create a namespace and each level above it that does not exist; no record says that they are ours."""
    for level in tiers_of(order.name):
        address = address_of("namespace", order.cluster, level)
        if address in situation.observed:
            continue
        spec = NamespaceSpec(configs=dict(order.configs)) if level == order.name else NamespaceSpec()
        after = Namespace(metadata=OfNamespace(name=level, cluster=order.cluster), spec=spec)
        decision.actions.append(Create(address=address, after=after, reasons=(Reason.BY_COMMAND,)))


def delete_namespace(order: DeleteNamespaceOrder, situation: Situation, decision: Decision) -> None:
    """Delete a namespace with all that is in it; what is in a namespace goes before the namespace."""
    itself = address_of("namespace", order.cluster, order.name)
    are_rules = situation.capabilities(order.cluster).namespaces_are_rules
    for address in sorted(situation.observed, key=rank, reverse=True):
        if kind_of(address) == "cluster" or not (address == itself or itself in holders_of(address)):
            continue
        seen, last = situation.observed[address], situation.recorded.get(address)
        gone = going(None if last is None else last.resource, seen.resource, are_rules=are_rules)
        decision.actions.append(deletion(address, seen, Reason.DESTROYED, gone=gone))


def move_topics(order: MoveTopicsOrder, situation: Situation, decision: Decision) -> None:
    """Move topics to another namespace; each that cannot move is an error."""
    homes: list[str] = []
    for old in _chosen(order, situation, decision):
        name = _name_after(old, order)
        why = _refusal(old, name, situation)
        if why is not None:
            decision.refuse(old, None, *why)
            continue
        move = _move(old, name, situation)
        decision.actions.append(move)
        homes.append(split_name(name)[0])
        for message, hint in problems(move.address, situation.observed[old], move.changes, situation):
            decision.refuse(old, None, f"{old}: {message}; nothing was moved", hint)
    missing = sorted({home for home in homes if home and _namespace(order, home) not in situation.observed})
    if missing:
        message = f"namespaces that do not exist on cluster {order.cluster}: {first_few(missing, 5, grouping='')}"
        hint = f"Create them first; none is made implicitly: reconciler namespace create {order.cluster} {missing[0]}"
        decision.refuse(_namespace(order, missing[0]), None, message, hint)


def _namespace(order: MoveTopicsOrder, name: str) -> Address:
    return address_of("namespace", order.cluster, name)


def _chosen(order: MoveTopicsOrder, situation: Situation, decision: Decision) -> Sequence[Address]:
    """Return the topics to move, sorted."""
    named = [address_of("topic", order.cluster, name_in(order.source, topic)) for topic in dict.fromkeys(order.topics)]
    if named:
        for address in named:
            if address not in situation.observed:
                hint = "List what does with: reconciler topic list"
                decision.refuse(address, None, f"{address} does not exist", hint)
        return sorted(address for address in named if address in situation.observed)
    prefix = f"{order.source}:" if order.source else ""
    topics = (
        address
        for address in situation.observed
        if kind_of(address) in {"topic", "mirror"} and full_name_of(address).startswith(prefix)
    )
    # Of the default namespace only its own topics move: every other namespace is below it.
    return sorted(address for address in topics if order.source or ":" not in full_name_of(address))


def name_in(namespace: str, topic: str) -> str:
    """Return the full name of a topic that may be written with or without its namespace."""
    return topic if namespace and topic.startswith(f"{namespace}:") else join_name(namespace, topic)


def _name_after(old: Address, order: MoveTopicsOrder) -> str:
    name = full_name_of(old)
    return join_name(order.target, name[len(order.source) + 1 :] if order.source else name)


def _refusal(old: Address, name: str, situation: Situation) -> tuple[str, str] | None:
    """Return why a topic cannot move, with a hint; `None`: it can."""
    cluster, observed = old.split("/")[1], situation.observed
    try:
        check_full_name(name)
    except ValueError as error:
        return f"{name!r} is {error}", "Example: shop:eu:orders."
    if not isinstance(observed[old].resource, Topic):
        return f"{old} is named by its link", "Promote it first, then move the topic."
    taken = next((kind for kind in ("topic", "mirror") if address_of(kind, cluster, name) in observed), None)
    if taken is not None:
        return f"{address_of('topic', cluster, name)} exists", "Name the topics to be moved: --topic"
    if situation.given.has_state and old not in situation.recorded:
        hint = "Declare it, or move it without remembering that: --no-state"
        return f"{old} is not owned by this workspace", hint
    mirror = _mirror_of(old, situation.recorded)
    if mirror is not None:
        message = f"{mirror} mirrors {old}, and a mirror never changes its source"
        return message, "Promote or remove the mirror first."
    return None


def _mirror_of(topic: Address, record: Record) -> Address | None:
    mirrors: Iterator[tuple[Address, MirrorTopic]] = (
        (address, last.resource) for address, last in record.items() if isinstance(last.resource, MirrorTopic)
    )
    return next((address for address, mirror in mirrors if source_of(mirror) == topic), None)


def _move(old: Address, name: str, situation: Situation) -> Transition:
    before = situation.observed[old]
    address = address_of("topic", old.split("/")[1], name)
    last = situation.recorded.get(old)
    topic = last.resource if last is not None and isinstance(last.resource, Topic) else _topic(before)
    namespace, own = split_name(name)
    metadata = topic.metadata.model_copy(update={"name": own, "namespace": namespace})
    return Transition(
        address=address,
        machine="topic",
        verb="move",
        from_state=full_name_of(old),
        to_state=name,
        after=topic.model_copy(update={"metadata": metadata}),
        parameters={"from": old},
        changes=tuple(changes_by_move(address, before, situation)),
        risk=Risk.DISRUPTIVE,
        reasons=(Reason.MOVED,),
        origins=_origins_after(last.origins if last is not None else {}, old, address),
        precondition=state_precondition(old, before),
    )


def _topic(seen: Observed) -> Topic:
    if not isinstance(seen.resource, Topic):
        message = f"{seen.resource.address} is no topic"
        raise TypeError(message)
    return seen.resource


def _origins_after(origins: Mapping[str, str], old: Address, new: Address) -> dict[str, str]:
    """Return the origins of a moved topic: the address in the files is kept until they say another."""
    declared = origins.get(MOVED_BY_COMMAND, old)
    rest = {path: origin for path, origin in origins.items() if path != MOVED_BY_COMMAND}
    return rest if declared == new else {**rest, MOVED_BY_COMMAND: declared}
