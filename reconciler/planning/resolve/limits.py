"""Limits of platforms: configs, names and access rules that they cannot have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from reconciler.planning.fields import LINK_FEATURES, READ_REPLICA
from reconciler.planning.plan import Finding
from reconciler.planning.resolve.acting_configs import NEEDS_TIERING, RECOVERY, is_harmless
from reconciler.resources.address import Address, cluster_address, full_name_of, split_name
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.runtime.text import did_you_mean, nearest

if TYPE_CHECKING:
    from reconciler.planning.actions import Change
    from reconciler.planning.situation import Review, Situation
    from reconciler.resources.acls import NamespaceAcl, TopicAcl
    from reconciler.resources.inventory import Capabilities
    from reconciler.resources.mirror_link import MirrorLink


# Access rules where any denial wins: what a rule cannot bring about is told before somebody relies on it (F-K-033).


def check_hosts(acls: tuple[TopicAcl, ...]) -> Iterator[tuple[str, str]]:
    """Yield hosts that no connection comes from: brokers compare addresses, and know neither names nor ranges."""
    for rule in acls:
        if rule.host != "*" and not _is_address(rule.host):
            why = "brokers compare addresses: names and ranges are never met"
            yield (
                f"the rule for {rule.principal} is for host {rule.host}, and {why}",
                "Write one IP address, a rule for each where there are several, or * for all.",
            )


def warnings_of_denials(review: Review) -> Iterator[Finding]:
    """Yield rules that a tier above makes say nothing: denied there, or allowed there already."""
    situation = review.situation
    for address in sorted(situation.wanted):
        resource = situation.wanted[address].resource
        if not isinstance(resource, Topic | Namespace) or not resource.spec.acls:
            continue
        if situation.is_decidable(address) and situation.capabilities(resource.cluster).access.denies_are_final:
            above = list(_above(address, resource, situation))
            for rule in resource.spec.acls:
                yield from _judged(address, rule, above, situation) if rule.permission == "allow" else ()


@dataclass(frozen=True, slots=True)
class _Above:
    """A rule of a tier, and the name below that tier of what it is about."""

    tier: Address
    rule: NamespaceAcl
    below: str

    def is_about(self, rule: TopicAcl) -> bool:
        """Tell whether it covers all that a nearer rule is about, and whoever that is for."""
        resources = set(getattr(rule, "resources", ("topics",)))
        is_whole = any(
            name == "*" or (name.endswith("*") and self.below.startswith(name[:-1])) or name == self.below
            for name in self.rule.names
        )
        is_who = self.rule.principal in {rule.principal, "User:*"} and self.rule.host in {rule.host, "*"}
        return is_whole and is_who and resources <= set(self.rule.resources)

    def operations(self, rule: TopicAcl) -> tuple[str, ...]:
        """Return which operations of a nearer rule it is about, too."""
        return rule.operations if "all" in self.rule.operations else _shared(rule, self.rule)


def _above(address: Address, resource: Topic | Namespace, situation: Situation) -> Iterator[_Above]:
    full_name = full_name_of(address)
    home = split_name(full_name)[0] if isinstance(resource, Topic) else full_name.rpartition(":")[0]
    for tier in situation.nearest(resource.cluster, home):
        item = situation.wanted.get(tier) or situation.observed.get(tier)
        if item is not None and isinstance(item.resource, Namespace):
            below = full_name[len(full_name_of(tier)) + 1 :]
            for rule in item.resource.spec.acls:
                yield _Above(tier, rule, below)


def _judged(address: Address, rule: TopicAcl, above: list[_Above], situation: Situation) -> Iterator[Finding]:
    source = situation.wanted[address].source
    said = f"allow {rule.principal} {', '.join(rule.operations)}"
    for upper in above:
        operations = upper.operations(rule) if upper.is_about(rule) else ()
        if upper.rule.permission == "deny" and operations:
            yield Finding(
                address,
                source,
                f"{said}: {upper.tier} denies {', '.join(operations)}, and no rule below lifts a denial",
                f"Remove the denial from {upper.tier}, or give those their own rules that it is about.",
            )
            return
    allowing = next((upper for upper in above if _allows_all(upper, rule)), None)
    if allowing is not None:
        yield Finding(
            address,
            source,
            f"{said}: {allowing.tier} allows that already, so this says nothing; what a tier allows only a denial "
            "takes away below it",
            "Remove the rule; to allow less here add one with permission: deny.",
        )


def _allows_all(upper: _Above, rule: TopicAcl) -> bool:
    is_allowing = upper.rule.permission == "allow" and upper.is_about(rule)
    return is_allowing and set(upper.operations(rule)) == set(rule.operations)


def _shared(one: TopicAcl, other: TopicAcl) -> tuple[str, ...]:
    if "all" in one.operations:
        return other.operations
    return tuple(each for each in one.operations if each in other.operations)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


_SHORTEST: Final = "min.compaction.lag.ms"
_LONGEST: Final = "max.compaction.lag.ms"
_LAGS: Final = frozenset({_SHORTEST, _LONGEST})

FIXED: Final = frozenset({"mode", "prefix", "source"})
"""Fields of a link that never change."""


def check_topic(
    topic: Topic, capabilities: Capabilities, *, is_new: bool, told: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield what of a topic is beyond the platform; `told` are configs about which a tier of it says it."""
    spec = topic.spec
    if spec.configs:
        own = {key: value for key, value in spec.configs.items() if key not in told} if told else spec.configs
        yield from check_configs(own, capabilities)
        if not told or _LAGS & own.keys():
            yield from _check_lags(spec.configs)
    yield from check_partitions(spec.partitions, capabilities)
    # What is there stays as it is while a broker is down.
    if is_new and spec.replication_factor is not None:
        yield from _replicas(spec.replication_factor, capabilities)
    if spec.acls and not capabilities.acls:
        yield beyond(capabilities, "hold ACLs", "acls")
    elif spec.acls and capabilities.access.hosts_are_addresses:
        yield from check_hosts(spec.acls)
    if spec.recover_from is not None and is_new and not capabilities.recovery:
        yield beyond(capabilities, "recover a topic from object storage (recoverFrom)")
    if spec.read_replica_of is not None and not capabilities.read_replicas:
        message = (
            f"a cluster of platform {capabilities.platform} has no read replicas ({READ_REPLICA}): its brokers serve "
            "what they stored themselves, never the remote tier of another cluster"
        )
        yield message, "Declare it on an embedded cluster, or mirror the topic with a MirrorLink."
    if topic.metadata.namespace and not capabilities.namespaces:
        yield beyond(capabilities, "have namespaces")


def check_beside_replica(topic: Topic, origins: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the fields that a read replica declares and cannot have, each with what is wrong and what to do."""
    by_policy = any(origin.startswith("policy/") for origin in origins.values())
    for field in topic.spec.beside_replica():
        name = "tieringPolicy" if field == "configs" and by_policy else field
        message = f"spec.{name} cannot be set beside {READ_REPLICA}: a read replica has what its source has"
        yield name, (message, "Remove it, or set it at the source: a read replica stores nothing itself.")


def check_namespace(
    namespace: Namespace, capabilities: Capabilities, passed_on: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what of a namespace is beyond the platform; `passed_on` are configs that only its topics have."""
    spec = namespace.spec
    if not capabilities.namespaces:
        yield beyond(capabilities, "have namespaces")
    yield from check_configs(passed_on or spec.configs, capabilities)
    yield from _check_lags(passed_on or spec.configs)
    if spec.configs.get(RECOVERY) == "true":
        yield f"{RECOVERY} is about one topic: every topic made here would ask for it", "Set it on the Topic."
    if spec.acls and not capabilities.acls:
        yield beyond(capabilities, "hold ACLs", "acls")
    elif spec.acls and capabilities.access.hosts_are_addresses:
        yield from check_hosts(spec.acls)
    if spec.quotas is not None and not capabilities.quotas:
        yield beyond(capabilities, "hold a namespace to quotas")
    if spec.encryption is not None and not capabilities.encryption:
        yield beyond(capabilities, "write a namespace under a key of its own (encryption)")


def check_configs(configs: Mapping[str, str], capabilities: Capabilities) -> Iterator[tuple[str, str]]:
    """Yield the configs a platform does not know, or could only ignore."""
    known = capabilities.configs
    for key in sorted(configs):
        needs_tiering = not capabilities.tiering and key in NEEDS_TIERING
        if needs_tiering:
            default = known[key].default if key in known else None
            if not is_harmless(key, configs[key], default):
                yield beyond(capabilities, f"keep a topic in tiered storage ({key})", "tiering")
        elif key not in known:
            hint = did_you_mean(nearest(key, known), otherwise="Remove it.")
            yield f"configs.{key} is not a config of platform {capabilities.platform}", hint


def _check_lags(configs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield that records would have to stay uncompacted longer than they may: brokers refuse that."""
    shortest, longest = configs.get(_SHORTEST), configs.get(_LONGEST)
    if shortest is not None and longest is not None and int(shortest) > int(longest):
        yield f"{_SHORTEST} {shortest} is above {_LONGEST} {longest}", "Lower the one, or raise the other."


def check_partitions(partitions: int | None, capabilities: Capabilities) -> Iterator[tuple[str, str]]:
    """Yield that a topic of a platform cannot have so many partitions."""
    if partitions is not None and partitions > capabilities.max_partitions:
        most = f"{capabilities.max_partitions:,}"
        yield f"{partitions:,} partitions are more than the {most} a topic can have there", "Lower spec.partitions."


def beyond_platform(
    link: MirrorLink, capabilities: Capabilities, *, is_derived: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield what is asked of a link that its platform cannot do; that a derived half cannot protect is a warning."""
    spec = link.spec
    if spec.mode != "destination" and f"{spec.mode}-mode" not in capabilities.mirrors.features:
        yield beyond(capabilities, f"have a link of mode {spec.mode}")
    if not is_derived:
        yield from beyond_protection(link, capabilities)
    defaults = type(spec)(source=spec.source)
    for field in sorted(type(spec).model_fields):
        alias = type(spec).model_fields[field].alias or field
        feature = LINK_FEATURES.get(alias)
        if (
            feature
            and feature not in capabilities.mirrors.features
            and getattr(spec, field) != getattr(defaults, field)
        ):
            yield beyond(capabilities, f"have {alias} on a link")


def beyond_protection(link: MirrorLink, capabilities: Capabilities) -> Iterator[tuple[str, str]]:
    """Yield why a platform cannot keep other writers out of mirrors of a link that asks for it."""
    if link.spec.protect != "acl" or capabilities.mirrors.read_only:
        return
    if not capabilities.acls:
        yield beyond(capabilities, "keep writers out of mirrors (protect: acl)", "acls")
    elif capabilities.access.principal is None:
        message = "as whom its brokers know the link cannot be told: protect: acl might keep it out of its mirrors"
        yield message, f"Say it in spec.{capabilities.platform}.security.principal of {cluster_address(link.cluster)}."


def check_changes(changes: tuple[Change, ...], capabilities: Capabilities) -> Iterator[tuple[str, str]]:
    """Yield the changes that cannot be made in place."""
    for change in changes:
        before, after = change.before, change.after
        if change.path == "partitions" and isinstance(before, int) and isinstance(after, int):
            if after < before:
                yield (
                    f"it has {before} partitions and {after} are declared: partitions only grow in place",
                    _fewer(before, after, capabilities),
                )
            elif not capabilities.partition_growth:
                yield beyond(capabilities, "add partitions to a topic")
        elif change.path == "replicationFactor" and not capabilities.replication_change:
            yield beyond(capabilities, f"change the replication factor of a topic ({before} → {after})")
        elif change.path == "replicationFactor" and isinstance(after, int):
            yield from _replicas(after, capabilities)
        elif change.path == f"configs.{RECOVERY}" and after == "true":
            yield (
                f"it is there, and {RECOVERY} works only when a topic is made: nothing would be recovered",
                "Remove it; to recover, declare a topic of another name, with recoverFrom.",
            )
        elif change.path == READ_REPLICA:
            yield (
                f"{READ_REPLICA} never changes in place ({before} → {after})",
                "Change its name and this field in two steps: rename it first.",
            )
        elif change.path in FIXED and not _is_second_half(change, capabilities):
            yield (
                f"{change.path} of a link never changes ({before!r} → {after!r})",
                "Declare a new link under another name, or set it back.",
            )


def _is_second_half(change: Change, capabilities: Capabilities) -> bool:
    """Tell whether a link that went one way gets its other half, where that is all there is to it."""
    is_both = (change.path, change.before, change.after) == ("mode", "destination", "bidirectional")
    return is_both and "mode-change" in capabilities.mirrors.features


def _replicas(wanted: int, capabilities: Capabilities) -> Iterator[tuple[str, str]]:
    if wanted > capabilities.max_replication_factor:
        why = capabilities.lacks.get("max_replication_factor")
        most = f"{capabilities.max_replication_factor}{f': {why}' if why else ''}"
        yield f"replication factor {wanted} is more than {most}", "Lower spec.replicationFactor."


def _fewer(before: int, after: int, capabilities: Capabilities) -> str:
    """Say how to get fewer partitions: a topic of another name, and where the platform has it, by one move."""
    if capabilities.copy_move:
        return (
            f"Declare {before}, or declare the topic under another name with {after} partitions and movedFrom: its "
            "records are copied there by key, its groups switched, and this one deleted."
        )
    return f"Declare {before}, or make a new topic with {after} partitions, copy into it and switch over."


def beyond(capabilities: Capabilities, what: str, field: str = "") -> tuple[str, str]:
    """Say that a platform does not do something that is declared, and why, where `lacks` knows it by its field."""
    why = capabilities.lacks.get(field)
    return (
        f"a cluster of platform {capabilities.platform} cannot {what}{f': {why}' if why else ' in this version'}",
        "Remove it from the manifest: what cannot be done is never left out silently.",
    )
