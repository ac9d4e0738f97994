"""Turn a command's orders about namespaces into actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Block, Create, Reason, Risk, Transition
from reconciler.planning.diff.converge import (
    compute_state_precondition,
    find_part_to_delete,
    find_tiering_problems,
    plan_deletion,
    warn_of_foreign_rules,
)
from reconciler.planning.diff.topic_orders import (
    find_followers,
    plan_changes,
    update_ordered_resource,
    warn_of_followers,
)
from reconciler.planning.fields import CONFIGS
from reconciler.planning.resolve.acting_configs import find_changes_by_move
from reconciler.planning.resolve.limits import check_namespace
from reconciler.planning.situation import MOVED_BY_COMMAND
from reconciler.resources.acls import build_rule_path, to_rule_fields
from reconciler.resources.address import (
    Address,
    address_of,
    build_sort_key,
    check_full_name,
    cluster_of,
    full_name_of,
    join_name,
    kind_of,
    list_containers,
    list_levels,
    split_name,
)
from reconciler.resources.base import OfNamespace
from reconciler.resources.namespace import Namespace, NamespaceSpec
from reconciler.resources.topic import Topic
from reconciler.runtime.text import list_first

if TYPE_CHECKING:
    from reconciler.planning.actions import Value
    from reconciler.planning.diff.converge import Decision
    from reconciler.planning.orders import (
        AlterNamespaceOrder,
        CreateNamespaceOrder,
        DeleteNamespaceOrder,
        MoveTopicsOrder,
    )
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Capabilities, Observed


def create_namespace(order: CreateNamespaceOrder, situation: Situation, decision: Decision) -> None:
    """Add the creation of a namespace and its missing parents, without ownership."""
    capabilities = situation.find_capabilities(order.cluster)
    if capabilities.namespaces_are_rules:
        message = f"{_format_prefix(order.cluster, capabilities)}: there is nothing to create"
        decision.refuse(_namespace_address(order.cluster, order.name), None, message, _HINT_DECLARE)
        return
    for level in list_levels(order.name):
        address = address_of("namespace", order.cluster, level)
        if address in situation.observed:
            continue
        spec = NamespaceSpec(configs=dict(order.configs)) if level == order.name else NamespaceSpec()
        after = Namespace(metadata=OfNamespace(name=level, cluster=order.cluster), spec=spec)
        decision.actions.append(Create(address=address, after=after, reasons=(Reason.BY_COMMAND,)))


_HINT_DECLARE: Final = (
    "Declare the Namespace in a manifest, then apply: its configs are written to each topic in it, and its acls become "
    "rules on the prefix."
)


def _format_prefix(cluster: str, capabilities: Capabilities) -> str:
    return f"on cluster {cluster} of platform {capabilities.platform} a namespace is a prefix of names"


def alter_namespace(order: AlterNamespaceOrder, situation: Situation, decision: Decision) -> None:
    """Add the changes of configs and access rules of a namespace."""
    address = _namespace_address(order.cluster, order.name)
    before, capabilities = situation.observed.get(address), situation.find_capabilities(order.cluster)
    if before is None or not isinstance(before.resource, Namespace):
        decision.refuse(address, None, *_report_unknown_namespace(order.name, order.cluster))
        return
    if order.configs and capabilities.namespaces_are_rules:
        message = f"{_format_prefix(order.cluster, capabilities)}, which keeps no configs"
        decision.refuse(address, None, message, _HINT_DECLARE)
        return
    spec = before.resource.spec
    merged: dict[str, str | None] = {**spec.configs, **order.configs}
    configs = {key: value for key, value in sorted(merged.items()) if value is not None}
    ordered = Namespace(
        metadata=before.resource.metadata,
        spec=NamespaceSpec(configs={key: configs[key] for key in order.configs if key in configs}, acls=order.acls),
    )
    values: dict[str, Value] = {CONFIGS + key: value for key, value in order.configs.items()}
    values |= dict.fromkeys(map(build_rule_path, order.removed_acls))
    values |= to_rule_fields(order.acls)
    changes = plan_changes(before, values)
    replaced = {build_rule_path(rule) for rule in (*order.acls, *order.removed_acls)}
    acls = (*(rule for rule in spec.acls if build_rule_path(rule) not in replaced), *order.acls)
    after = before.resource.model_copy(update={"spec": spec.model_copy(update={"configs": configs, "acls": acls})})
    limits = (*check_namespace(ordered, capabilities, {}), *find_tiering_problems(address, before, changes, situation))
    refusals = [(f"{address}: {message}", hint) for message, hint in limits]
    update_ordered_resource(address, changes, after, refusals, situation, decision)


def _report_unknown_namespace(name: str, cluster: str) -> tuple[str, str]:
    message = f"namespace {name!r} does not exist on cluster {cluster}" if name else "the default namespace '' stays"
    return message, f"List the existing ones with: reconciler namespace list {cluster}"


def delete_namespace(order: DeleteNamespaceOrder, situation: Situation, decision: Decision) -> None:
    """Add the deletion of a namespace after its content."""
    itself = _namespace_address(order.cluster, order.name)
    inside = {at for at in situation.observed if itself in list_containers(at)}
    hidden = [
        error for at, error in sorted(situation.request.hidden.items()) if at == itself or itself in list_containers(at)
    ]
    if hidden or itself not in situation.observed:
        why = (hidden[0].message, hidden[0].hint) if hidden else _report_unknown_namespace(order.name, order.cluster)
        decision.refuse(itself, None, *why)
        return
    nested = [] if order.is_recursive else [full_name_of(at) for at in sorted(inside) if kind_of(at) == "namespace"]
    are_rules = situation.find_capabilities(order.cluster).namespaces_are_rules
    for address in [itself] if nested else sorted({itself, *inside}, key=build_sort_key, reverse=True):
        seen, last = situation.observed[address], situation.recorded.get(address)
        gone = find_part_to_delete(None if last is None else last.resource, seen.resource, are_rules=are_rules)
        action = plan_deletion(address, seen, Reason.BY_COMMAND, gone=gone)
        if nested:
            message = f"namespace {order.name} holds namespaces: {list_first(nested, 5, grouping='')}"
            action = replace(action, blocked=Block("nested", message, None))
        decision.actions.append(action)
        warn_of_foreign_rules(address, seen, gone, decision)
        warn_of_followers(address, situation, decision)


def move_topics(order: MoveTopicsOrder, situation: Situation, decision: Decision) -> None:
    """Move topics to another namespace, or add an error for each topic that cannot move."""
    capabilities = situation.find_capabilities(order.cluster)
    itself = _namespace_address(order.cluster, order.source)
    if not capabilities.topic_move:
        message = f"{_format_prefix(order.cluster, capabilities)}, and topics cannot be renamed"
        decision.refuse(itself, None, message, _suggest_move(order))
        return
    namespaces = (name for name in (order.source, order.target) if name)
    unknown = next(
        (name for name in namespaces if _namespace_address(order.cluster, name) not in situation.observed), None
    )
    if unknown is not None:
        decision.refuse(itself, None, *_report_unknown_namespace(unknown, order.cluster))
        return
    is_below = bool(order.source) and order.target.startswith(f"{order.source}:")
    if order.target == order.source or (is_below and not order.topics):
        where = f"is in namespace {order.source}, which cannot move into itself" if is_below else "is where they are"
        hint = "Name a namespace outside it, or single topics: --topic NAME" if is_below else "Name another namespace."
        decision.refuse(itself, None, f"namespace {order.target!r} {where}", hint)
        return
    homes: list[str] = []
    for old in _list_topics_to_move(order, situation, decision):
        name = _make_name_after(old, order)
        why = _refuse_move(old, name, situation)
        if why is not None:
            decision.refuse(old, None, *why)
            continue
        move = _build_topic_move(old, name, situation)
        decision.actions.append(move)
        homes.append(split_name(name)[0])
        for message, hint in find_tiering_problems(move.address, situation.observed[old], move.changes, situation):
            decision.refuse(old, None, f"{old}: {message}", hint)
    missing = sorted(
        {home for home in homes if home and _namespace_address(order.cluster, home) not in situation.observed}
    )
    if missing:
        message = f"namespaces that do not exist on cluster {order.cluster}: {list_first(missing, 5, grouping='')}"
        hint = f"Create them first; none is made implicitly: reconciler namespace create {order.cluster} {missing[0]}"
        decision.refuse(_namespace_address(order.cluster, missing[0]), None, message, hint)


def _namespace_address(cluster: str, name: str) -> Address:
    return address_of("namespace", cluster, name)


def _suggest_move(order: MoveTopicsOrder) -> str:
    name = order.topics[0] if order.topics else "TOPIC"
    moved = f"movedFrom: {json.dumps(_make_name_in(order.source, name))}"
    written = (
        f"write namespace: {json.dumps(order.target)} and {moved}"
        if order.target
        else f"leave out namespace and write {moved}"
    )
    return (
        f"Move it by the files: in the manifest of {name} {written}, then plan. Its records are copied and compared, "
        "its groups are switched, and the old topic is deleted last."
    )


def _list_topics_to_move(order: MoveTopicsOrder, situation: Situation, decision: Decision) -> Sequence[Address]:
    named = [
        address_of("topic", order.cluster, _make_name_in(order.source, topic)) for topic in dict.fromkeys(order.topics)
    ]
    if named:
        for address in named:
            if address not in situation.observed:
                hint = "List the existing ones with: reconciler topic list"
                decision.refuse(address, None, f"{address} does not exist", hint)
        return sorted(address for address in named if address in situation.observed)
    prefix = f"{order.source}:" if order.source else ""
    topics = (
        address
        for address in situation.observed
        if kind_of(address) in {"topic", "mirror"}
        and cluster_of(address) == order.cluster
        and full_name_of(address).startswith(prefix)
    )
    # The root contains every namespace, so only topics directly in it move.
    return sorted(address for address in topics if order.source or ":" not in full_name_of(address))


def _make_name_in(namespace: str, topic: str) -> str:
    return topic if namespace and topic.startswith(f"{namespace}:") else join_name(namespace, topic)


def _make_name_after(old: Address, order: MoveTopicsOrder) -> str:
    name = full_name_of(old)
    return join_name(order.target, name[len(order.source) + 1 :] if order.source else name)


def _refuse_move(old: Address, name: str, situation: Situation) -> tuple[str, str] | None:
    cluster, observed = old.split("/")[1], situation.observed
    try:
        check_full_name(name)
    except ValueError as error:
        return f"{name!r} is {error}", "Example: shop:eu:orders."
    if not isinstance(observed[old].resource, Topic):
        ending = "Promote it" if situation.name_ending(old) == "promote" else "Fail it over"
        return f"{old} gets its name from its link", f"{ending} first, then move the topic."
    taken = next((kind for kind in ("topic", "mirror") if address_of(kind, cluster, name) in observed), None)
    if taken is not None:
        return f"{address_of('topic', cluster, name)} exists", "Name the topics to be moved: --topic"
    mirrors = find_followers(old, situation)
    if mirrors:
        message = f"{mirrors[0]} mirrors {old}, and a mirror never changes its source"
        return message, f"{situation.name_ending(mirrors[0]).capitalize()} or remove the mirror first."
    return situation.explain_foreign_owner(old)


def _build_topic_move(old: Address, name: str, situation: Situation) -> Transition:
    before = situation.observed[old]
    address = address_of("topic", old.split("/")[1], name)
    last = situation.recorded.get(old)
    topic = last.resource if last is not None and isinstance(last.resource, Topic) else _require_topic(before)
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
        changes=tuple(find_changes_by_move(address, before, situation)),
        risk=Risk.DISRUPTIVE,
        reasons=(Reason.MOVED, Reason.BY_COMMAND) if last is None else (Reason.MOVED,),
        origins=_adjust_origins(last.origins if last is not None else {}, old, address),
        precondition=compute_state_precondition(old, before),
    )


def _require_topic(seen: Observed) -> Topic:
    if not isinstance(seen.resource, Topic):
        message = f"{seen.resource.address} is no topic"
        raise TypeError(message)
    return seen.resource


def _adjust_origins(origins: Mapping[str, str], old: Address, new: Address) -> dict[str, str]:
    declared = origins.get(MOVED_BY_COMMAND, old)
    rest = {path: origin for path, origin in origins.items() if path != MOVED_BY_COMMAND}
    return rest if declared == new else {**rest, MOVED_BY_COMMAND: declared}
