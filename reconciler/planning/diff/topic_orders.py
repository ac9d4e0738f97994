"""Decide orders about topics: create one, delete one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from reconciler.planning.actions import Create, Delete, Reason
from reconciler.planning.diff.converge import GOING, going, precondition
from reconciler.planning.situation import WantedResource, mirror_at
from reconciler.resources.address import Address, cluster_of, full_name_of, split_name
from reconciler.resources.base import InNamespace
from reconciler.resources.mount import MIGRATING
from reconciler.resources.topic import Topic, TopicSpec
from reconciler.runtime.text import did_you_mean, nearest, refusal

if TYPE_CHECKING:
    from reconciler.planning.diff.converge import Decision
    from reconciler.planning.orders import CreateTopicOrder, DeleteTopicOrder
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Inventory


def ordered_topic(order: CreateTopicOrder, decision: Decision) -> WantedResource | None:
    """Return the topic that is ordered; `None`: no manifest could declare it, which is an error of the plan."""
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
        message = f"{order.topic}: {refusal(error)}"
        decision.refuse(order.topic, None, message, "Give it what a manifest could declare.")
        return None


def create_topic(order: CreateTopicOrder, situation: Situation, decision: Decision) -> None:
    """Create a topic where no other has its name."""
    wanted = situation.wanted.get(order.topic)
    if wanted is None or any(finding.address == order.topic for finding in decision.errors):
        return
    taken = next((at for at in (order.topic, mirror_at(order.topic)) if at in situation.observed), None)
    if taken is not None:
        hint = f"Look at it: reconciler topic describe {order.topic}"
        decision.refuse(order.topic, None, f"{taken} exists already", hint)
        return
    decision.actions.append(Create(address=order.topic, after=wanted.resource, reasons=(Reason.BY_COMMAND,)))


def delete_topic(order: DeleteTopicOrder, situation: Situation, decision: Decision) -> None:
    """Delete a topic; the record stays, so the next plan shows that it is missing."""
    topic, observed = order.topic, situation.observed
    seen = observed.get(topic)
    if seen is None:
        decision.refuse(topic, None, *_unknown(topic, observed))
    elif seen.state in {GOING, MIGRATING}:
        what = "being deleted" if seen.state == GOING else "being mounted or unmounted"
        decision.refuse(topic, None, f"{topic} is {what}", "See how far it is: reconciler mount status")
    else:
        last = situation.recorded.get(topic)
        are_rules = situation.capabilities(cluster_of(topic) or "").namespaces_are_rules
        decision.actions.append(
            Delete(
                address=topic,
                before=going(None if last is None else last.resource, seen.resource, are_rules=are_rules),
                incarnation=seen.incarnation,
                reasons=(Reason.BY_COMMAND,),
                precondition=precondition(topic, seen),
            )
        )


def _unknown(topic: Address, observed: Inventory) -> tuple[str, str]:
    if mirror_at(topic) in observed:
        hint = f"Stop it first, and its topic stays: reconciler mirror failover {mirror_at(topic)}"
        return f"{topic} is a mirror, and takes no records of its own", hint
    near = nearest(topic, (address for address in observed if address.startswith("topic/")))
    return f"{topic} does not exist", did_you_mean(near, otherwise="List what does with: reconciler topic list")
