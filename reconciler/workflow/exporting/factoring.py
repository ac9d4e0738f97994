"""What a cluster has, as a person would declare it: namespaces, what topics share, policies. Pure.

The platform is to find nothing changed: every topic keeps its flat name, its effective configs and its rules. What
cannot be said is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from reconciler.errors import UserError
from reconciler.resources.acls import NamespaceAcl, TopicAcl
from reconciler.resources.address import Address, split_name, tiers_of
from reconciler.resources.kafkaconfigs import PASSING
from reconciler.resources.metadata import OfNamespace
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.workflow.exporting.archives import LeftOut
from reconciler.workflow.exporting.granting import granted, merged_rules
from reconciler.workflow.exporting.policies import Policies
from reconciler.workflow.exporting.prefixes import AT_LEAST, Spaces, spaces_in
from reconciler.workflow.exporting.sharing import Shared, share

if TYPE_CHECKING:
    from reconciler.resources.bindings import Binding
    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.kinds import Resource
    from reconciler.resources.tieringpolicy import TieringPolicy

_LEFT_ALONE = "It stays as it is: no plan touches what the files do not say."


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one cluster has, in whichever way that was learnt."""

    cluster: str
    resources: Sequence[Resource]
    """Topics with the configs they set themselves; what else there is comes along as it is."""
    capabilities: Capabilities
    separator: str | None
    """What stands for `:` in flat names; `None`: the platform has namespaces of its own, and they are among these."""
    bindings: Sequence[Binding] = ()
    """Access rules that no topic carries."""
    taken: Iterable[str] = ()
    """Further flat names: of mirrors, which are no resources of their own."""


@dataclass(frozen=True, slots=True)
class Factored:
    """The same, factored; and what has no words here."""

    resources: Mapping[Address, Resource]
    """Sorted by address."""
    unsaid: tuple[LeftOut, ...] = ()


@dataclass(slots=True)
class _Making:
    """A cluster in the making."""

    found: Found
    policies: Policies
    spaces: Spaces
    shared: Shared
    made: dict[Address, Resource] = field(default_factory=dict)
    unsaid: list[LeftOut] = field(default_factory=list)


def factored(
    found: Found, *, policies: Mapping[str, TieringPolicy] | None = None, at_least: int = AT_LEAST
) -> Factored:
    """Factor what one cluster has; the same resources in another order give the same.

    `policies` are declared already, by name. A prefix of `at_least` topics becomes a namespace; 0: none does by
    its topics alone.
    """
    topics = sorted((each for each in found.resources if isinstance(each, Topic)), key=lambda each: each.full_name)
    spaces = _spaces(found, topics, at_least)
    placed = {spaces.full_name(spaces.flat(topic.full_name)): topic for topic in topics}
    configs = {name: _lasting(topic.spec.configs) for name, topic in placed.items()}
    shared = share(configs) if _may_share(found) else Shared({}, configs)
    given = [each.spec.configs for each in found.resources if isinstance(each, Namespace)]
    layers = [*given, *shared.namespaces.values(), *shared.topics.values()]
    making = _Making(found, Policies(layers, found.capabilities, policies or {}), spaces, shared)
    for name, topic in placed.items():
        _add_topic(making, name, topic)
    _add_namespaces(making)
    for each in found.resources:
        if not isinstance(each, Topic | Namespace):
            making.made[each.address] = each
    making.made.update({policy.address: policy for policy in making.policies.declared.values()})
    return Factored(dict(sorted(making.made.items())), tuple(sorted(making.unsaid, key=lambda each: each.place)))


def _lasting(configs: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in configs.items() if key not in PASSING}


def _spaces(found: Found, topics: Sequence[Topic], at_least: int) -> Spaces:
    known = {topic.metadata.namespace for topic in topics}
    known |= {each.metadata.name for each in found.resources if isinstance(each, Namespace)}
    if found.separator is None:
        return Spaces(":", {f"{tier}:": tier for namespace in sorted(known) for tier in tiers_of(namespace)})
    names = [topic.full_name.replace(":", found.separator) for topic in topics]
    return spaces_in(
        [*names, *found.taken],
        found.separator,
        reserved=[each.name for each in found.bindings if each.is_prefix],
        known=known,
        at_least=at_least,
    )


def _may_share(found: Found) -> bool:
    """Tell whether configs may move up: the platform sees no difference, and no namespace says any yet."""
    says = any(each.spec.configs or each.spec.tiering_policy for each in found.resources if isinstance(each, Namespace))
    return not found.capabilities.inherits_configs and not says


def _add_topic(making: _Making, full_name: str, topic: Topic) -> None:
    configs, policy = making.policies.split(making.shared.topics[full_name])
    if topic.spec.tiering_policy is not None:  # It says its tiering by one already.
        configs, policy = dict(making.shared.topics[full_name]), topic.spec.tiering_policy
    namespace, name = split_name(full_name)
    rules = tuple(rule for rule in topic.spec.acls if _is_sayable(making, topic.address, rule))
    spec = topic.spec.model_copy(update={"configs": configs, "tiering_policy": policy, "acls": rules})
    metadata = topic.metadata.model_copy(update={"name": name, "namespace": namespace})
    moved = topic.model_copy(update={"metadata": metadata, "spec": spec})
    making.made[moved.address] = moved


def _is_sayable(making: _Making, address: Address, rule: TopicAcl) -> bool:
    """Tell whether a rule can be read back from a manifest; one that cannot is told."""
    try:
        TopicAcl.model_validate(rule.model_dump(include=set(TopicAcl.model_fields)))
    except ValidationError as error:
        message = f"a rule of {rule.principal!r} has no words here: {error.errors()[0]['msg']}"
        making.unsaid.append(LeftOut(address, UserError(message, hint=_LEFT_ALONE)))
        return False
    return True


def _add_namespaces(making: _Making) -> None:
    """Declare the namespaces that hold topics, rules or configs; tiers above them are implied."""
    found = making.found
    given = {each.metadata.name: each for each in found.resources if isinstance(each, Namespace)}
    rules = granted(found.bindings, making.spaces, found.capabilities.acl_operations)
    making.unsaid += [LeftOut(str(binding), why) for binding, why in rules.unsaid]
    holding = {split_name(name)[0] for name in making.shared.topics} - {""}
    for name in sorted({*given, *rules.rules, *making.shared.namespaces, *holding}):
        namespace = given.get(name) or Namespace(metadata=OfNamespace(name=name, cluster=found.cluster))
        spec = namespace.spec
        layer = {**spec.configs, **making.shared.namespaces.get(name, {})}
        configs, policy = (layer, spec.tiering_policy) if spec.tiering_policy else making.policies.split(layer)
        acls = _rules(making, namespace, rules.rules.get(name, ()))
        changed = spec.model_copy(update={"configs": configs, "tiering_policy": policy, "acls": acls})
        making.made[namespace.address] = namespace.model_copy(update={"spec": changed})


def _rules(making: _Making, namespace: Namespace, more: Sequence[NamespaceAcl]) -> tuple[NamespaceAcl, ...]:
    own = tuple(rule for rule in namespace.spec.acls if _is_sayable(making, namespace.address, rule))
    # Where the platform keeps rules as they are written, they are written as it keeps them.
    return merged_rules([*own, *more]) if making.found.separator is not None else own
