"""Turn a command's orders about topics into actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from reconciler.lifecycles import TieringState
from reconciler.planning.actions import Change, Create, Reason, Update
from reconciler.planning.diff.converge import GOING, compute_precondition, find_part_to_delete, plan_deletion
from reconciler.planning.fields import CONFIGS, list_fields
from reconciler.planning.resolve.acting_configs import ActingConfigs
from reconciler.planning.resolve.limits import check_changes, check_partitions
from reconciler.planning.situation import ALTERED, COPYING, STOPPED, WantedResource, as_mirror, get_source_topic
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, split_name
from reconciler.resources.base import InNamespace
from reconciler.resources.inventory import read_own_configs
from reconciler.resources.mirror_link import SYNCED_BY_DEFAULT, MirrorLink, MirrorTopic
from reconciler.resources.mount import MIGRATING
from reconciler.resources.tiering_policy import RETAIN, apply_layer, read_disable_policy, read_switches
from reconciler.resources.topic import Topic, TopicSpec
from reconciler.runtime.text import explain_invalid, find_similar, format_suggestion, list_first

if TYPE_CHECKING:
    from reconciler.planning.actions import Value
    from reconciler.planning.diff.converge import Decision
    from reconciler.planning.orders import AlterTopicOrder, CreateTopicOrder, DeleteTopicOrder
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed, Recorded, Resource


ENABLED: Final = TieringState.ENABLED


def build_ordered_topic(order: CreateTopicOrder, decision: Decision) -> WantedResource | None:
    """Return the ordered topic, or add an error and return `None` if invalid."""
    namespace, name = split_name(full_name_of(order.topic))
    try:
        return WantedResource(
            Topic(
                metadata=InNamespace(name=name, namespace=namespace, cluster=cluster_of(order.topic) or ""),
                spec=TopicSpec(
                    partitions=order.partitions,
                    replication_factor=order.replication_factor,
                    configs=dict(sorted(order.configs.items())),
                ),
            ),
            None,
        )
    except ValidationError as error:
        message = f"{order.topic}: {explain_invalid(error)}"
        decision.refuse(order.topic, None, message, "Give it what a manifest could declare.")
        return None


def create_topic(order: CreateTopicOrder, situation: Situation, decision: Decision) -> None:
    """Add the creation of a topic if its name is free."""
    wanted = situation.wanted.get(order.topic)
    if wanted is None or any(finding.address == order.topic for finding in decision.errors):
        return
    names = (order.topic, as_mirror(order.topic))
    taken = next((at for at in names if at in situation.observed or at in situation.request.hidden), None)
    if taken is not None:
        hint = f"Look at it: reconciler topic describe {order.topic}"
        decision.refuse(order.topic, None, f"{taken} exists already", hint)
        return
    decision.actions.append(Create(address=order.topic, after=wanted.resource, reasons=(Reason.BY_COMMAND,)))
    warn_of_stored(order.topic, situation, decision)


def warn_of_stored(topic: Address, situation: Situation, decision: Decision) -> None:
    """Warn that a topic in object storage has the same name."""
    location = situation.request.stored.detached.get(topic)
    if location is not None:
        message = f"a topic of that name is unmounted, with its records: it is in object storage at {location}"
        hint = f"To have that topic instead: reconciler topic mount {topic}. Once this one exists, mount it with --to."
        decision.warn(topic, None, message, hint)


def alter_topic(order: AlterTopicOrder, situation: Situation, decision: Decision) -> None:
    """Add changes of configs or partitions of a topic or mirror."""
    observed = situation.observed
    address = next((at for at in (order.topic, as_mirror(order.topic)) if at in observed), None)
    if address is None:
        decision.refuse(order.topic, None, *explain_unknown_topic(order.topic, situation))
        return
    before = observed[address]
    refusal = _refuse_synced(before, order, situation) or _refuse_disabling(address, order.configs, situation)
    values: dict[str, Value] = {CONFIGS + key: value for key, value in order.configs.items()}
    if order.partitions is not None:
        values["partitions"] = order.partitions
    changes = plan_changes(before, values)
    limits = check_partitions(order.partitions, situation.find_capabilities(cluster_of(address) or ""))
    refusals = [*([] if refusal is None else [refusal]), *((f"{address}: {what}", hint) for what, hint in limits)]
    after = _set_values(before.resource, order.configs, order.partitions)
    is_altered = update_ordered_resource(address, changes, after, refusals, situation, decision)
    if is_altered and any(change.path == "partitions" for change in changes):
        message = "records of a key go to other partitions from now on: their order across the change is lost"
        decision.warn(address, None, message, "Let consumers that rely on the order read all existing records first.")


def plan_changes(before: Observed, values: Mapping[str, Value]) -> tuple[Change, ...]:
    """Return the changes that set fields of a resource, or reset them for `None`."""
    own = list_fields(before.resource)
    moved = ((path, own.get(path), value) for path, value in sorted(values.items()))
    return tuple(Change(path, old, new) for path, old, new in moved if old != new)


def update_ordered_resource(
    address: Address,
    changes: tuple[Change, ...],
    after: Resource,
    refusals: Iterable[tuple[str, str]],
    situation: Situation,
    decision: Decision,
) -> bool:
    """Update a resource unless it is forbidden. Return whether it is updated.

    `after` is the result for an unrecorded resource.
    """
    before, last = situation.observed[address], situation.recorded.get(address)
    limits = check_changes(changes, situation.find_capabilities(cluster_of(address) or ""))
    why = [*refusals, *((f"{address}: {message}", hint) for message, hint in limits)]
    if not why and (strange := situation.explain_foreign_owner(address)) is not None:
        why = [strange]
    for message, hint in why:
        decision.refuse(address, None, message, hint)
    if why or not changes:
        return False
    decision.actions.append(
        Update(
            address=address,
            before=before.resource,
            after=after if last is None else last.resource,
            changes=changes,
            reasons=(Reason.CHANGED, Reason.BY_COMMAND) if last is None else (Reason.CHANGED,),
            origins={} if last is None else _mark_altered(last, changes),
            precondition=compute_precondition(address, before, [change.path for change in changes]),
        )
    )
    return True


def _set_values(resource: Resource, configs: Mapping[str, str | None], partitions: int | None) -> Resource:
    merged: dict[str, str | None] = {**read_own_configs(resource), **configs}
    own = {key: value for key, value in sorted(merged.items()) if value is not None}
    if not isinstance(resource, Topic):
        return resource.model_copy(update={"configs": own})
    changed = {"configs": own, "partitions": partitions or resource.spec.partitions}
    return resource.model_copy(update={"spec": resource.spec.model_copy(update=changed)})


def _mark_altered(last: Recorded, changes: Iterable[Change]) -> dict[str, str]:
    origins, applied = dict(last.origins), list_fields(last.resource)
    for change in changes:
        if change.after is None and origins.get(change.path) == ALTERED:
            del origins[change.path]
        elif change.after is not None and change.path not in applied:
            origins.setdefault(change.path, ALTERED)
    return origins


def _refuse_synced(before: Observed, order: AlterTopicOrder, situation: Situation) -> tuple[str, str] | None:
    mirror = before.resource
    if not isinstance(mirror, MirrorTopic):
        return None
    if order.partitions is not None:
        hint = "Add them to its source; a stopped one is declared as a topic first."
        return f"mirror {mirror.name} has the partitions of its source", hint
    if before.state == STOPPED:
        return None
    link = situation.observed.get(address_of("link", mirror.cluster, mirror.link))
    sync = link.resource.spec.topic_config_sync if link and isinstance(link.resource, MirrorLink) else None
    following = sorted(set(order.configs) & set(SYNCED_BY_DEFAULT if sync is None else sync.include))
    if not following:
        return None
    return f"mirror {mirror.name} follows its source in {', '.join(following)}", "Change it on the source."


def _refuse_disabling(
    address: Address, configs: Mapping[str, str | None], situation: Situation
) -> tuple[str, str] | None:
    """Reject an order that disables tiering, because this may delete remote data (KIP-950)."""
    before = situation.observed[address]
    now = compute_topic_configs(address, before, situation)
    then = compute_topic_configs(
        address, replace(before, resource=_set_values(before.resource, configs, None)), situation
    )
    # A mirror's `state` is its role, not its tiering state.
    is_mirror = isinstance(before.resource, MirrorTopic)
    is_on = before.topic.legacy is not None and not read_switches(now).is_off if is_mirror else before.state == ENABLED
    if not is_on or not read_switches(then).is_off or read_disable_policy(then) == RETAIN:
        return None
    message = f"{address}: this turns its tiered storage off, and deletes what is in object storage"
    hint = "Declare it, and plan: the plan says which offsets become unreadable, and is blocked until allowed."
    return message, hint


def compute_topic_configs(address: Address, seen: Observed, situation: Situation) -> Mapping[str, tuple[str, str]]:
    """Return the values and origins of a topic's configs, inherited ones included."""
    acting = ActingConfigs(situation).above(
        cluster_of(address) or "", split_name(full_name_of(address))[0], seen.topic.initial
    )
    apply_layer(acting, read_own_configs(seen.resource), address)
    return acting


def delete_topic(order: DeleteTopicOrder, situation: Situation, decision: Decision) -> None:
    """Add the deletion of a topic whose record stays."""
    topic, observed = order.topic, situation.observed
    seen = observed.get(topic)
    if seen is None:
        decision.refuse(topic, None, *explain_unknown_topic(topic, situation))
    elif seen.is_internal:
        message = f"{topic} is internal: its cluster, or the links and mounts on it, need it"
        decision.refuse(topic, None, message, "Leave it. What it keeps goes with the links and mounts that it is for.")
    elif seen.state in {GOING, MIGRATING}:
        what = "being deleted" if seen.state == GOING else "being mounted or unmounted"
        decision.refuse(topic, None, f"{topic} is {what}", "See how far it is: reconciler mount status")
    else:
        last = situation.recorded.get(topic)
        are_rules = situation.find_capabilities(cluster_of(topic) or "").namespaces_are_rules
        gone = find_part_to_delete(None if last is None else last.resource, seen.resource, are_rules=are_rules)
        decision.actions.append(plan_deletion(topic, seen, Reason.BY_COMMAND, gone=gone))
        warn_of_followers(topic, situation, decision)


def warn_of_followers(topic: Address, situation: Situation, decision: Decision) -> None:
    """Warn about the mirrors of a deleted topic."""
    mirrors = find_followers(topic, situation)
    if mirrors:
        message = f"{list_first(mirrors, 3, grouping='')} follows it, and stops when its source is gone"
        hint = f"To write to the mirror from then on: reconciler mirror failover {mirrors[0]}"
        decision.warn(topic, None, message, hint)


def find_followers(topic: Address, situation: Situation) -> list[Address]:
    """Return a topic's mirrors, including recorded, unreadable ones."""
    recorded = (
        address
        for address, last in situation.recorded.items()
        if address not in situation.observed
        and isinstance(last.resource, MirrorTopic)
        and last.resource.state in COPYING
        and get_source_topic(last.resource) == topic
    )
    return sorted({*situation.mirrors_by_source.get(topic, ()), *recorded})


def explain_unknown_topic(topic: Address, situation: Situation) -> tuple[str, str]:
    """Return message and hint for a topic that does not exist, is hidden or is a mirror."""
    observed, hidden = situation.observed, situation.request.hidden.get(topic)
    if hidden is not None:
        return hidden.message, hidden.hint
    if as_mirror(topic) in observed:
        hint = f"Stop it first, and its topic stays: reconciler mirror failover {as_mirror(topic)}"
        return f"{topic} is a mirror, and takes no records of its own", hint
    near = find_similar(topic, (address for address in observed if address.startswith("topic/")))
    return f"{topic} does not exist", format_suggestion(
        near, otherwise="List the existing ones with: reconciler topic list"
    )
