"""Namespaces that are the access rules on a prefix: what of them is ours, and what stays where they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.actions import Delete, Forget
from reconciler.resources.aclpaths import rule_fields, rule_path
from reconciler.resources.address import Address, cluster_of, kind_of, tiers_of
from reconciler.resources.mirrortopic import MirrorTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.situation import Situation, Wanted
    from reconciler.resources.inventory import Observed, Recorded
    from reconciler.resources.kinds import Resource

_UNTOUCHED = "Nothing of them is touched; what only its access rules allowed ends."


def is_only_a_prefix(wanted: Wanted, before: Observed, situation: Situation) -> bool:
    """Tell whether a namespace shows by topics of its prefix alone: none of its rules is there, so all become ours."""
    resource, seen = wanted.resource, before.resource
    if not isinstance(resource, Namespace) or not isinstance(seen, Namespace) or not _is_rules(resource, situation):
        return False
    return rule_fields(resource.spec.acls).keys().isdisjoint(rule_fields(seen.spec.acls))


def going(last: Recorded, before: Observed, situation: Situation) -> Resource:
    """Return what is deleted of what is observed: of such a namespace the rules that we recorded, no others."""
    resource, ours = before.resource, last.resource
    if not isinstance(resource, Namespace) or not isinstance(ours, Namespace) or not _is_rules(resource, situation):
        return resource
    there = rule_fields(resource.spec.acls)
    rules = (
        (rule, tuple(each for each in rule.operations if each in there.get(rule_path(rule), ())))
        for rule in ours.spec.acls
    )
    kept = tuple(rule.model_copy(update={"operations": operations}) for rule, operations in rules if operations)
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"acls": kept})})


def say_what_stays(namespace: Namespace, situation: Situation, decision: Decision) -> None:
    """Say which topics with the prefix of a namespace that is deleted stay there."""
    if not _is_rules(namespace, situation):
        return
    gone = {action.address for action in decision.actions if isinstance(action, Delete)}
    kept = situation.recorded.keys() - {action.address for action in decision.actions if isinstance(action, Forget)}
    names = {address.partition("/")[2]: address in kept for address in _below(namespace, situation, gone)}
    strange = sum(not is_ours for is_ours in names.values())
    for count, rest in ((strange, "not managed: "), (len(names) - strange, "managed here: ")):
        if count:
            what = "1 topic with its prefix is" if count == 1 else f"{count:,} topics with its prefix are"
            stays = "it stays" if count == 1 else "they stay"
            decision.warn(namespace.address, None, f"{what} {rest}{stays}", _UNTOUCHED)


def say_rules_stay(address: Address, last: Recorded, situation: Situation, decision: Decision) -> None:
    """Say how many rules a namespace that is only forgotten leaves behind."""
    namespace = last.resource
    if not isinstance(namespace, Namespace) or not namespace.spec.acls or not _is_rules(namespace, situation):
        return
    count = len(rule_fields(namespace.spec.acls))
    what = "1 access rule on its prefix stays" if count == 1 else f"{count} access rules on its prefix stay"
    hint = "To take them away too: reconciler destroy --include-adopted"
    decision.warn(address, None, f"it was adopted, and is forgotten: {what}", hint)


def _is_rules(namespace: Namespace, situation: Situation) -> bool:
    return situation.capabilities(namespace.cluster).namespaces_are_rules


def _below(namespace: Namespace, situation: Situation, gone: set[Address]) -> Iterator[Address]:
    for address, seen in situation.observed.items():
        if address in gone or seen.is_internal or cluster_of(address) != namespace.cluster:
            continue
        if kind_of(address) in {"topic", "mirror"} and isinstance(seen.resource, Topic | MirrorTopic):
            name = address.split("/", 2)[2]
            if namespace.metadata.name in tiers_of(name.rpartition(":")[0]):
                yield address
