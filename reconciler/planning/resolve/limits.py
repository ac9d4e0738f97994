"""Settings that platforms do not support. Checks yield (message, hint)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from reconciler.planning.fields import CONFIGS, LINK_FEATURES, READ_REPLICA
from reconciler.planning.plan import PlanFinding
from reconciler.planning.resolve.acting_configs import NEEDS_TIERING, RECOVERY, is_harmless
from reconciler.resources.address import Address, cluster_address, full_name_of, split_name
from reconciler.resources.configs import STORAGE_MODE
from reconciler.resources.inventory import read_own_configs
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import LIKENESS, find_similar, format_suggestion, pluralize

if TYPE_CHECKING:
    from reconciler.planning.actions import Change
    from reconciler.planning.situation import Review, Situation
    from reconciler.resources.acls import NamespaceAcl, TopicAcl
    from reconciler.resources.inventory import Capabilities, Observed
    from reconciler.resources.kafka_configs import ConfigKey
    from reconciler.resources.mirror_link import MirrorLink


def check_hosts(acls: tuple[TopicAcl, ...]) -> Iterator[tuple[str, str]]:
    """Yield hosts that match no connection. Brokers compare addresses, not names or ranges (F-K-033)."""
    for rule in acls:
        if rule.host != "*" and not _is_address(rule.host):
            why = "brokers compare addresses: names and ranges are never met"
            yield (
                f"the rule for {rule.principal} is for host {rule.host}, and {why}",
                "Write one IP address, a rule for each where there are several, or * for all.",
            )


def warnings_of_denials(review: Review) -> Iterator[PlanFinding]:
    """Warn about rules without effect, because a parent namespace denies or allows the access."""
    situation = review.situation
    for address in situation.planned:
        resource = situation.wanted[address].resource
        if not isinstance(resource, Topic | Namespace) or not resource.spec.acls:
            continue
        if situation.find_capabilities(resource.cluster).access.denies_are_final:
            above = list(_collect_rules_above(address, resource, situation))
            for rule in resource.spec.acls:
                yield from (
                    _explain_ineffective_rule(address, rule, above, situation) if rule.permission == "allow" else ()
                )


@dataclass(frozen=True, slots=True)
class _RuleAbove:
    """`below` is the name relative to the parent namespace."""

    tier: Address
    rule: NamespaceAcl
    below: str

    def is_about(self, rule: TopicAcl) -> bool:
        resources = set(getattr(rule, "resources", ("topics",)))
        is_whole = any(
            name == "*" or (name.endswith("*") and self.below.startswith(name[:-1])) or name == self.below
            for name in self.rule.names
        )
        is_who = self.rule.principal in {rule.principal, "User:*"} and self.rule.host in {rule.host, "*"}
        return is_whole and is_who and resources <= set(self.rule.resources)

    def operations(self, rule: TopicAcl) -> tuple[str, ...]:
        return rule.operations if "all" in self.rule.operations else _find_shared_operations(rule, self.rule)


def _collect_rules_above(address: Address, resource: Topic | Namespace, situation: Situation) -> Iterator[_RuleAbove]:
    full_name = full_name_of(address)
    home = split_name(full_name)[0] if isinstance(resource, Topic) else full_name.rpartition(":")[0]
    for tier in situation.list_nearest_namespaces(resource.cluster, home):
        item = situation.wanted.get(tier) or situation.observed.get(tier)
        if item is not None and isinstance(item.resource, Namespace):
            below = full_name[len(full_name_of(tier)) + 1 :]
            for rule in item.resource.spec.acls:
                yield _RuleAbove(tier, rule, below)


def _explain_ineffective_rule(
    address: Address, rule: TopicAcl, above: list[_RuleAbove], situation: Situation
) -> Iterator[PlanFinding]:
    source = situation.wanted[address].source
    allowance = f"allow {rule.principal} {', '.join(rule.operations)}"
    for upper in above:
        operations = upper.operations(rule) if upper.is_about(rule) else ()
        if upper.rule.permission == "deny" and operations:
            yield PlanFinding(
                address,
                source,
                f"{allowance}: {upper.tier} denies {', '.join(operations)}, and no rule below lifts a denial",
                f"Remove the denial from {upper.tier}, or give those their own rules that it is about.",
            )
            return
    allowing = next((upper for upper in above if _is_allowing_all(upper, rule)), None)
    if allowing is not None:
        yield PlanFinding(
            address,
            source,
            f"{allowance}: {allowing.tier} allows that already, so this rule has no effect; below it only a denial "
            "removes a right",
            "Remove the rule; to allow less here add one with permission: deny.",
        )


def _is_allowing_all(upper: _RuleAbove, rule: TopicAcl) -> bool:
    is_allowing = upper.rule.permission == "allow" and upper.is_about(rule)
    return is_allowing and set(upper.operations(rule)) == set(rule.operations)


def _find_shared_operations(one: TopicAcl, other: TopicAcl) -> tuple[str, ...]:
    if "all" in one.operations:
        return other.operations
    return tuple(operation for operation in one.operations if operation in other.operations)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


_MIN_LAG: Final = "min.compaction.lag.ms"
_MAX_LAG: Final = "max.compaction.lag.ms"
_LAG_CONFIGS: Final = frozenset({_MIN_LAG, _MAX_LAG})

FIXED: Final = frozenset({"mode", "prefix", "source"})


def _check_recovered(topic: Topic, seen: Observed) -> Iterator[tuple[str, str]]:
    count = (isinstance(seen.resource, Topic) and seen.resource.spec.partitions) or 0
    if topic.spec.configs.get(RECOVERY) == "true" and 0 < count < (topic.spec.partitions or 0):
        message = f"it has {pluralize(count, 'partition')} and {topic.spec.partitions} are declared: a recovered topic"
        hint = f"Declare partitions: {count}; to add some, remove {RECOVERY} from the file."
        yield f"{message} is not grown, because keys would change partitions", hint


def check_topic(
    topic: Topic, capabilities: Capabilities, seen: Observed | None, *, reported: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield unsupported settings of a topic, except `reported` configs. `seen`: `None` if new."""
    spec = topic.spec
    if spec.configs:
        own = {key: value for key, value in spec.configs.items() if key not in reported} if reported else spec.configs
        live = {} if seen is None else {**seen.topic.initial, **read_own_configs(seen.resource)}
        changed = {key: value for key, value in own.items() if live.get(key) != value}
        if seen is not None and is_unreported(RECOVERY, capabilities):
            changed.pop(RECOVERY, None)  # It was for the creation, whatever the cluster lacks since.
            yield from _check_recovered(topic, seen)
        yield from check_configs(changed, capabilities)
        if not reported or _LAG_CONFIGS & own.keys():
            yield from _check_lags(spec.configs)
        yield from _check_storage_mode(own, capabilities, read_storage_mode(spec.configs, capabilities, seen))
    yield from check_partitions(spec.partitions, capabilities)
    # An existing topic keeps its replication factor while a broker is down.
    if seen is None and spec.replication_factor is not None:
        yield from check_replicas(spec.replication_factor, capabilities)
    if spec.acls and not capabilities.acls:
        yield describe_unsupported(capabilities, "hold ACLs", "acls")
    elif spec.acls and capabilities.access.hosts_are_addresses:
        yield from check_hosts(spec.acls)
    if seen is None and not capabilities.recovery:
        if spec.recover_from is not None:
            yield describe_unsupported(capabilities, "recover a topic from object storage (recoverFrom)", "recovery")
        elif spec.configs.get(RECOVERY) == "true" and capabilities.tiering and RECOVERY in capabilities.configs:
            yield describe_unsupported(capabilities, f"recover a topic from object storage ({RECOVERY})", "recovery")
    if spec.read_replica_of is not None and not capabilities.read_replicas:
        message = (
            f"a cluster of platform {capabilities.platform} has no read replicas ({READ_REPLICA}): its brokers serve "
            "what they stored themselves, never the remote tier of another cluster"
        )
        yield message, "Declare it on an embedded cluster, or mirror the topic with a MirrorLink."
    if topic.metadata.namespace and not capabilities.namespaces:
        yield describe_unsupported(capabilities, "have namespaces")


def check_beside_replica(topic: Topic, origins: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield fields forbidden for a read replica, with message and hint."""
    by_policy = any(origin.startswith("policy/") for origin in origins.values())
    for field in topic.spec.find_replica_conflicts():
        name = "tieringPolicy" if field == "configs" and by_policy else field
        message = f"spec.{name} cannot be set together with {READ_REPLICA}: a read replica has what its source has"
        yield name, (message, "Remove it, or set it at the source: a read replica stores nothing itself.")


def check_namespace(
    namespace: Namespace, capabilities: Capabilities, propagated_configs: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield unsupported settings of a namespace. `propagated_configs` are written to its topics."""
    spec = namespace.spec
    if not capabilities.namespaces:
        yield describe_unsupported(capabilities, "have namespaces")
    yield from check_configs(propagated_configs or spec.configs, capabilities)
    yield from _check_lags(propagated_configs or spec.configs)
    if spec.configs.get(RECOVERY) == "true":
        yield f"{RECOVERY} is about one topic: every topic created here would use it", "Set it on the Topic."
    if spec.acls and not capabilities.acls:
        yield describe_unsupported(capabilities, "hold ACLs", "acls")
    elif spec.acls and capabilities.access.hosts_are_addresses:
        yield from check_hosts(spec.acls)
    if spec.quotas is not None and not capabilities.quotas:
        yield describe_unsupported(capabilities, "hold a namespace to quotas")
    if spec.encryption is not None and not capabilities.encryption:
        yield describe_unsupported(capabilities, "encrypt a namespace with its own key (encryption)")


def check_configs(configs: Mapping[str, str], capabilities: Capabilities) -> Iterator[tuple[str, str]]:
    """Yield configs that a platform does not know or ignores."""
    known = capabilities.configs
    for key in sorted(configs):
        needs_tiering = not capabilities.tiering and key in NEEDS_TIERING
        if needs_tiering:
            default = known[key].default if key in known else None
            if not is_harmless(key, configs[key], default):
                yield describe_unsupported(capabilities, f"keep a topic in tiered storage ({key})", "tiering")
        elif key not in known:
            why = capabilities.lacks.get(CONFIGS + key)
            near = [name for name in known if key.endswith(f".{name}")] or find_named(key, known)
            hint = "Remove it, or upgrade the cluster." if why else format_suggestion(near, otherwise="Remove it.")
            message = f"configs.{key} is not a config of platform {capabilities.platform}"
            yield f"{message}: {why}" if why else message, hint


def find_named(name: str, known: Mapping[str, ConfigKey], likeness: float = LIKENESS) -> list[str]:
    """Return the config or property with this alias, otherwise the one with the most similar name."""
    return [key for key in known if name in known[key].aliases][:1] or find_similar(name, known, likeness=likeness)


def read_storage_mode(declared: Mapping[str, str], capabilities: Capabilities, seen: Observed | None) -> str:
    """Return a topic's storage mode: declared, otherwise its own or the cluster's default."""
    live = capabilities.defaults if seen is None else seen.topic.initial
    own = {} if seen is None else read_own_configs(seen.resource)
    configs = {**live, **own, **declared}
    mode = configs.get(STORAGE_MODE, "unset")
    return "tiered_v2" if mode == "tiered" and configs.get(f"{STORAGE_MODE}.impl") == "tiered_v2" else mode


def can_set(key: str, mode: str, capabilities: Capabilities) -> bool:
    """Return whether a topic in a storage mode accepts a config."""
    known = capabilities.configs.get(key)
    return known is None or known.storage_modes is None or mode in known.storage_modes


def can_reset(key: str, mode: str, capabilities: Capabilities) -> bool:
    """Return whether a topic in a storage mode can reset a config."""
    known = capabilities.configs.get(key)
    return known is None or (not known.is_permanent and can_set(key, mode, capabilities))


def _check_storage_mode(configs: Mapping[str, str], capabilities: Capabilities, mode: str) -> Iterator[tuple[str, str]]:
    for key in sorted(configs):
        if not can_set(key, mode, capabilities):
            yield f"configs.{key} cannot be set while {STORAGE_MODE} is {mode}", f"Remove it, or change {STORAGE_MODE}."


def _check_lags(configs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    shortest, longest = configs.get(_MIN_LAG), configs.get(_MAX_LAG)
    if shortest is not None and longest is not None and int(shortest) > int(longest):
        yield f"{_MIN_LAG} {shortest} is above {_MAX_LAG} {longest}", "Lower this one, or raise the other."


def check_partitions(partitions: int | None, capabilities: Capabilities) -> Iterator[tuple[str, str]]:
    """Yield a partition count above the platform's limit."""
    if partitions is not None and partitions > capabilities.max_partitions:
        most = f"{capabilities.max_partitions:,}"
        yield f"{partitions:,} partitions are more than the {most} a topic can have there", "Lower spec.partitions."


def find_unsupported_features(
    link: MirrorLink, capabilities: Capabilities, *, is_derived: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield unsupported features of a link. If `is_derived`, protection is not checked."""
    spec = link.spec
    if spec.mode != "destination" and f"{spec.mode}-mode" not in capabilities.mirrors.features:
        yield describe_unsupported(capabilities, f"have a link of mode {spec.mode}", f"{spec.mode}-mode")
    if not is_derived:
        yield from explain_unprotectable(link, capabilities)
    defaults = type(spec)(source=spec.source)
    for field in sorted(type(spec).model_fields):
        alias = type(spec).model_fields[field].alias or field
        feature = LINK_FEATURES.get(alias)
        if (
            feature
            and feature not in capabilities.mirrors.features
            and getattr(spec, field) != getattr(defaults, field)
        ):
            yield describe_unsupported(capabilities, f"have {alias} on a link", feature)
    groups = spec.consumer_offset_sync
    if groups is not None and groups.prefix_groups and "prefix" not in capabilities.mirrors.features:
        yield describe_unsupported(capabilities, "prefix the groups of a link (prefixGroups)", "prefix")
    if spec.start_offset not in {"earliest", "latest"} and "start-time" not in capabilities.mirrors.features:
        message = f"a link of platform {capabilities.platform} begins at the earliest or the latest record"
        yield f"{message}, not at {spec.start_offset}", "Declare startOffset: earliest, or latest."


def explain_unprotectable(link: MirrorLink, capabilities: Capabilities) -> Iterator[tuple[str, str]]:
    """Yield why a platform cannot protect a link's mirrors."""
    if link.spec.protect != "acl" or capabilities.mirrors.read_only:
        return
    if not capabilities.acls:
        yield describe_unsupported(capabilities, "keep writers out of mirrors (protect: acl)", "acls")
    elif capabilities.access.principal is None:
        message = "the principal of the link is unknown to reconciler, so protect: acl might deny its own writes"
        yield message, f"Set it in spec.{capabilities.platform}.security.principal of {cluster_address(link.cluster)}."


def check_changes(changes: tuple[Change, ...], capabilities: Capabilities) -> Iterator[tuple[str, str]]:
    """Yield the changes that a platform cannot make in place."""
    for change in changes:
        before, after = change.before, change.after
        if change.path == "partitions" and isinstance(before, int) and isinstance(after, int):
            if after < before:
                yield (
                    f"it has {before} partitions and {after} are declared: partitions only grow in place",
                    _suggest_fewer(before, after, capabilities),
                )
            elif not capabilities.partition_growth:
                yield describe_unsupported(capabilities, "add partitions to a topic")
        elif change.path == "replicationFactor" and not capabilities.replication_change:
            yield describe_unsupported(capabilities, f"change the replication factor of a topic ({before} → {after})")
        elif change.path == "replicationFactor" and isinstance(after, int):
            yield from check_replicas(after, capabilities)
        elif change.path == f"configs.{RECOVERY}" and after == "true":
            yield (
                f"it exists already, and {RECOVERY} works only when a topic is created: nothing would be recovered",
                "Remove it; a topic is recovered only while no other has its name."
                if capabilities.object_storage
                else "Remove it; to recover, declare a topic of another name, with recoverFrom.",
            )
        elif change.path == CONFIGS + STORAGE_MODE and after == "unset":
            yield (
                f"{STORAGE_MODE} cannot be removed once it is set ({before} → {after})",
                f"Declare {STORAGE_MODE}: {before}, or another mode.",
            )
        elif change.path.startswith(CONFIGS) and is_unreported(change.path.removeprefix(CONFIGS), capabilities):
            current = "created without it" if before is None else f"created with {before}"
            message = f"{change.path} never changes, and the topic was {current}"
            yield message, "Set it back, or declare a topic of another name."
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


def is_unreported(key: str, capabilities: Capabilities) -> bool:
    """Return whether brokers never report a config, accepted only at a topic's creation."""
    return key in capabilities.configs and capabilities.configs[key].is_unreported


def _is_second_half(change: Change, capabilities: Capabilities) -> bool:
    is_both = (change.path, change.before, change.after) == ("mode", "destination", "bidirectional")
    return is_both and "mode-change" in capabilities.mirrors.features


def check_replicas(
    wanted: int, capabilities: Capabilities, field: str = "spec.replicationFactor"
) -> Iterator[tuple[str, str]]:
    """Yield a replication factor that a platform does not permit. `field` is where it is declared."""
    factors = capabilities.replication_factors
    if wanted > factors[-1]:
        why = capabilities.lacks.get("replication_factors")
        most = f"{factors[-1]}{f': {why}' if why else ''}"
        yield f"replication factor {wanted} is more than {most}", f"Lower {field}."
    elif wanted not in factors:
        possible = ", ".join(map(str, factors))
        message = f"replication factor {wanted} is not one that platform {capabilities.platform} permits: {possible}"
        yield message, f"Set {field} to {min(factors, key=lambda factor: (factor < wanted, factor))}."


def _suggest_fewer(before: int, after: int, capabilities: Capabilities) -> str:
    if capabilities.copy_move:
        return (
            f"Declare {before}, or declare the topic under another name with {after} partitions and movedFrom: its "
            "records are copied there by key, its groups switched, and this one deleted."
        )
    return f"Declare {before}, or make a new topic with {after} partitions, copy into it and switch over."


def describe_unsupported(capabilities: Capabilities, what: str, field: str = "") -> tuple[str, str]:
    """Return message and hint for an unsupported feature. `lacks` has the reason for `field`."""
    why = capabilities.lacks.get(field)
    way = "Remove the cause, or leave it out" if why else "Remove it from the manifest"
    return (
        f"a cluster of platform {capabilities.platform} cannot {what}{f': {why}' if why else ' in this version'}",
        f"{way}: an unsupported field is never ignored.",
    )
