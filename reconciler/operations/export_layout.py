"""Arrange resources in namespaces, shared configs, policies and files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, assert_never

from pydantic import ValidationError

from reconciler.errors import UserError
from reconciler.manifests.edit import format_document
from reconciler.manifests.references import is_rejected_key
from reconciler.objectstore.directory import write_atomically
from reconciler.operations.drift_patch import build_metadata, build_spec, format_manifest
from reconciler.operations.init import SCHEMA, add_schema_lines
from reconciler.planning.resolve.acting_configs import NEEDS_TIERING, compile_policy
from reconciler.planning.resolve.limits import check_hosts
from reconciler.resources.acls import AccessBinding, NamespaceAcl, TopicAcl, can_be_declared, find_refused_rules
from reconciler.resources.address import (
    MAX_NAMESPACE,
    MAX_TIER,
    Address,
    build_sort_key,
    check_namespace,
    check_topic_name,
    join_name,
    kind_of,
    list_levels,
    split_name,
)
from reconciler.resources.base import NameOnly, OfNamespace, format_duration, format_size
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import CATALOGS, canonicalize_value, explain_refused_value
from reconciler.resources.kafka_configs import TRANSIENT_CONFIGS
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy, TieringPolicySpec
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.resources.inventory import Capabilities, Inventory, Resource


@dataclass(frozen=True, slots=True)
class OmittedResource:
    """A resource that is not exported, with the reason."""

    place: str
    """Address, or key in object storage."""
    error: UserError


_DURATIONS: Final = frozenset({"time"})
_SIZES: Final = frozenset({"bytes", "segmentBytes"})
_DEFAULTS: Final[Mapping[str, Any]] = {"deletionProtection": True, "properties": {}}


def format_resource(resource: Resource, inventory: Inventory) -> str:
    """Return a resource's manifest. `inventory` has the mirrors of links."""
    match resource:
        case Topic() | Namespace() | MirrorLink():
            metadata: dict[str, Any] = build_metadata(resource.address, resource)
            spec: Mapping[str, Any] = dict(build_spec(resource, inventory))
        case TieringPolicy():
            metadata, spec = {"name": resource.metadata.name}, _build_policy_fields(resource)
        case Cluster():
            metadata, spec = {"name": resource.metadata.name}, _build_cluster_fields(resource)
        case Mounting() | MirrorTopic():
            message = f"{resource.address} is declared by another workspace"
            raise ValueError(message)
        case _:
            assert_never(resource)
    labels = dict(resource.metadata.labels)
    return format_document(
        {
            "apiVersion": "reconciler/v1",
            "kind": resource.kind,
            "metadata": {**metadata, **({"labels": labels} if labels else {})},
            "spec": spec,
        }
    )


def _build_policy_fields(policy: TieringPolicy) -> dict[str, Any]:
    fields = policy.spec.to_json()
    if fields.get("onDisable") == "retain":
        del fields["onDisable"]
    return {key: _format_quantity(key, value) for key, value in fields.items()}


def _format_quantity(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {inner: _format_quantity(inner, item) for inner, item in value.items()}
    if key in _DURATIONS:
        return format_duration(value)
    return format_size(value) if key in _SIZES else value


def _build_cluster_fields(cluster: Cluster) -> dict[str, Any]:
    fields = cluster.spec.to_json()
    for key in _DEFAULTS.keys() & fields.keys():
        if fields[key] == _DEFAULTS[key]:
            del fields[key]
    named = cluster.spec.connection.model_dump(mode="json", exclude_defaults=True).keys()
    connection = fields[cluster.spec.provider]
    return {**fields, cluster.spec.provider: {key: value for key, value in connection.items() if key in named}}


Configs: TypeAlias = dict[str, str]
Facts: TypeAlias = dict[str, object]
"""Values by config. The tiering configs form one value, because they depend on each other."""

_TIERING: Final = ""
_MIN_SHARING: Final = 2


@dataclass(frozen=True, slots=True)
class SharedConfigs:
    """Configs of namespaces and topics, by full name. The nearest level takes precedence."""

    namespaces: Mapping[str, Configs]
    topics: Mapping[str, Configs]


def share_configs(topics: Mapping[str, Mapping[str, str]]) -> SharedConfigs:
    """Move configs that all topics of a namespace share to the lowest such namespace."""
    facts = {name: _to_facts(configs) for name, configs in topics.items()}
    tallies = _tally_namespaces(facts)
    fullest = _find_largest_children(tallies)
    held: dict[str, Facts] = {"": {}}
    own: dict[str, Configs] = {}
    for namespace in sorted(tallies, key=lambda name: (name.count(":"), name)):
        tally, above = tallies[namespace], held[namespace.rpartition(":")[0]]
        is_passed_through = fullest.get(namespace) == tally.topics
        shared = {} if is_passed_through else tally.find_common(above)
        held[namespace] = {**above, **shared}
        own[namespace] = _to_configs(shared)
    rest: dict[str, Configs] = {}
    for name, own_facts in facts.items():
        above = held[split_name(name)[0]]
        rest[name] = _to_configs({key: value for key, value in own_facts.items() if above.get(key) != value})
    return SharedConfigs({name: configs for name, configs in own.items() if configs}, rest)


class _ConfigTally:
    def __init__(self) -> None:
        self.topics = 0
        self._values: defaultdict[str, Counter[object]] = defaultdict(Counter)

    def add_topic(self, facts: Facts) -> None:
        self.topics += 1
        for key, value in facts.items():
            self._values[key][value] += 1

    def find_common(self, above: Facts) -> Facts:
        if self.topics < _MIN_SHARING:
            return {}
        common: Facts = {}
        for key, values in self._values.items():
            [(value, most)] = values.most_common(1)
            is_set_by_all = sum(values.values()) == self.topics
            enough = self.topics if key == _TIERING else self.topics // 2 + 1
            if is_set_by_all and most >= enough and above.get(key) != value:
                common[key] = value
        return common


def _tally_namespaces(facts: Mapping[str, Facts]) -> dict[str, _ConfigTally]:
    tallies: defaultdict[str, _ConfigTally] = defaultdict(_ConfigTally)
    for name, own_facts in facts.items():
        for tier in list_levels(split_name(name)[0]):
            tallies[tier].add_topic(own_facts)
    return tallies


def _find_largest_children(tallies: Mapping[str, _ConfigTally]) -> dict[str, int]:
    largest: dict[str, int] = {}
    for name, tally in tallies.items():
        above = name.rpartition(":")[0]
        largest[above] = max(largest.get(above, 0), tally.topics)
    return largest


def _to_facts(configs: Mapping[str, str]) -> Facts:
    facts: Facts = {key: value for key, value in configs.items() if key not in NEEDS_TIERING}
    tiering = tuple(sorted((key, value) for key, value in configs.items() if key in NEEDS_TIERING))
    return {**facts, _TIERING: tiering} if tiering else facts


def _to_configs(facts: Facts) -> Configs:
    configs: Configs = {}
    for value in (value for value in facts.values() if isinstance(value, tuple)):
        configs.update(value)
    configs.update({key: value for key, value in facts.items() if isinstance(value, str)})
    return dict(sorted(configs.items()))


TieringConfigs: TypeAlias = tuple[tuple[str, str], ...]

_TOTAL: Final = "-2"
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "remote.write": ("remoteWrite",),
    "remote.read": ("remoteRead",),
    "remote.delete": ("remoteDelete",),
    "remote.log.disable.policy": ("onDisable",),
    "local.retention.ms": ("localRetention", "time"),
    "local.retention.bytes": ("localRetention", "bytes"),
    "retention.local.target.ms": ("localRetention", "time"),
    "retention.local.target.bytes": ("localRetention", "bytes"),
    "retention.local.strict": ("localRetention", "strict"),
    "initial.retention.local.target.ms": ("initialLocalRetention", "time"),
    "initial.retention.local.target.bytes": ("initialLocalRetention", "bytes"),
}


class PolicyExtractor:
    """Tiering policies of a cluster: one per set of tiering configs."""

    def __init__(
        self, layers: Iterable[Mapping[str, str]], capabilities: Capabilities, taken: Mapping[str, TieringPolicy]
    ) -> None:
        counted = Counter(words for layer in layers if (words := _pick_tiering_configs(layer)))
        self._names: dict[TieringConfigs, str] = {}
        self.declared: dict[str, TieringPolicy] = {}
        for words, _count in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
            spec = _to_spec(dict(words))
            if spec is None or compile_policy(spec, capabilities) != dict(words):
                continue
            known = next((name for name in sorted(taken) if taken[name].spec == spec), None)
            name = known or _choose_policy_name(_make_policy_name(spec), {*taken, *self.declared})
            self._names[words] = name
            if known is None:
                self.declared[name] = TieringPolicy(metadata=NameOnly(name=name), spec=spec)

    def split_configs(self, layer: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
        """Return configs without tiering, and the name of their tiering policy; `None` without one."""
        name = self._names.get(_pick_tiering_configs(layer))
        if name is None:
            return dict(layer), None
        return {key: value for key, value in layer.items() if key not in NEEDS_TIERING}, name


def _choose_policy_name(stem: str, taken: Collection[str]) -> str:
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return name


def _pick_tiering_configs(layer: Mapping[str, str]) -> TieringConfigs:
    return tuple(sorted((key, value) for key, value in layer.items() if key in NEEDS_TIERING))


def _to_spec(words: Mapping[str, str]) -> TieringPolicySpec | None:
    fields: dict[str, Any] = dict(_list_policy_switches(words))
    for key, value in words.items():
        path = _FIELDS.get(key)
        if path is None or value == _TOTAL:
            continue
        within = fields
        for part in path[:-1]:
            within = within.setdefault(part, {})
        within[path[-1]] = value == "true" if value in {"true", "false"} else _parse_number(value)
    try:
        return TieringPolicySpec.model_validate(fields)
    except ValidationError:
        return None


def _list_policy_switches(words: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    stored = words.get("remote.storage.enable")
    if stored is not None:
        yield "remoteWrite", stored == "true" and words.get("remote.log.copy.disable") != "true"
        yield "remoteRead", stored == "true"
    if words.get("remote.log.delete.on.disable") == "true":
        yield "onDisable", "delete"


def _parse_number(value: str) -> int | str:
    return int(value) if value.removeprefix("-").isdecimal() else value


def _make_policy_name(spec: TieringPolicySpec) -> str:
    stem = {(True, True): "tiered", (False, True): "read-only", (False, False): "untiered"}.get(
        (bool(spec.remote_write), bool(spec.remote_read)), "write-only"
    )
    if spec.remote_write is None and spec.remote_read is None:
        stem = "tiering"
    local = spec.local_retention
    parts = [stem]
    if local is not None and (local.time is not None or local.bytes is not None):
        parts.append("local")
        parts += [format_duration(local.time)] if local.time is not None else []
        parts += [format_size(local.bytes)] if local.bytes is not None else []
    return "-".join(parts).replace(" ", "-").lower()


MIN_TOPICS: Final = 3
"""Two topics may share a prefix by chance."""


@dataclass(frozen=True, slots=True)
class FlatNamespaces:
    """Namespaces that prefixes of flat names form."""

    separator: str
    prefixes: Mapping[str, str]

    def split_name(self, name: str) -> tuple[str, str]:
        """Split a flat name into the longest namespace and the rest."""
        at = name.rfind(self.separator) if self.prefixes else -1
        while at >= 0:
            namespace = self.prefixes.get(name[: at + 1])
            if namespace is not None:
                return namespace, name[at + 1 :]
            at = name.rfind(self.separator, 0, at)
        return "", name

    def make_full_name(self, name: str) -> str:
        """Return the full name of a flat name."""
        return join_name(*self.split_name(name))

    def make_flat_name(self, full_name: str) -> str:
        """Return the flat name."""
        return full_name.replace(":", self.separator)


def find_flat_namespaces(
    names: Iterable[str],
    separator: str,
    *,
    reserved: Iterable[str] = (),
    known: Iterable[str] = (),
    at_least: int = MIN_TOPICS,
) -> FlatNamespaces:
    """Return the namespaces of flat names.

    Valid prefixes in `reserved` and `known` always become namespaces; others need `at_least` topics (0 means never).
    """
    counts, spoiled = _count_prefixes(names, separator)
    namespaces = {tier for namespace in known for tier in list_levels(namespace)}
    for prefix in sorted(reserved):
        ends = [end for end, _ in _list_legal_prefixes(prefix[: prefix.rfind(separator) + 1], separator)]
        if ends and len(ends[-1]) == prefix.rfind(separator) + 1 and spoiled.isdisjoint(ends):
            namespaces.update(_to_namespace(end, separator) for end in ends)
    for prefix in sorted(counts, key=lambda prefix_text: (prefix_text.count(separator), prefix_text)):
        above = _to_namespace(prefix, separator).rpartition(":")[0]
        if at_least and counts[prefix] >= at_least and prefix not in spoiled and (not above or above in namespaces):
            namespaces.add(_to_namespace(prefix, separator))
    return FlatNamespaces(separator, {tier.replace(":", separator) + separator: tier for tier in sorted(namespaces)})


def _count_prefixes(names: Iterable[str], separator: str) -> tuple[Counter[str], set[str]]:
    counts: Counter[str] = Counter()
    spoiled: set[str] = set()
    for name in set(names):
        for prefix, rest in _list_legal_prefixes(name, separator):
            counts[prefix] += 1
            if not _is_topic_name(rest):
                spoiled.add(prefix)
    return counts, spoiled


def _list_legal_prefixes(name: str, separator: str) -> Iterator[tuple[str, str]]:
    start = 0
    while (end := name.find(separator, start)) >= 0 and end <= MAX_NAMESPACE:
        if not _is_namespace_level(name[start:end], separator):
            return
        yield name[: end + 1], name[end + 1 :]
        start = end + 1


def _is_namespace_level(text: str, separator: str) -> bool:
    if not text or len(text) > MAX_TIER or (separator == "_" and "." in text):
        return False
    try:
        check_namespace(text)
    except ValueError:
        return False
    return True


def _is_topic_name(text: str) -> bool:
    try:
        check_topic_name(text)
    except ValueError:
        return False
    return True


def _to_namespace(prefix: str, separator: str) -> str:
    return prefix[:-1].replace(separator, ":")


_RESOURCES: Final = frozenset({"topics", "groups", "transactional-ids"})
STAYS: Final = "It stays as it is: plans do not change what the files do not declare."

NameSet: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class NamespaceRules:
    """Access rules by namespace, and inexpressible bindings."""

    rules: Mapping[str, tuple[NamespaceAcl, ...]]
    unsaid: tuple[tuple[AccessBinding, UserError], ...]


class _AccessRule(NamedTuple):
    permission: str
    principal: str
    host: str
    resources: NameSet
    names: NameSet
    operations: NameSet


def assign_rules(
    bindings: Iterable[AccessBinding], spaces: FlatNamespaces, capabilities: Capabilities
) -> NamespaceRules:
    """Assign bindings to the longest matching namespaces. Rules merge only if all combinations exist."""
    rules_by_namespace: defaultdict[str, list[_AccessRule]] = defaultdict(list)
    unsaid: list[tuple[AccessBinding, UserError]] = []
    for binding in sorted(bindings):
        namespace, name = spaces.split_name(binding.name)
        name += "*" if binding.is_prefix else ""
        rule = _AccessRule(
            binding.permission,
            binding.principal,
            binding.host,
            frozenset([binding.resource]),
            frozenset([name]),
            frozenset([binding.operation]),
        )
        why = _explain_refusal(binding, spaces, rule, capabilities)
        if why is None:
            rules_by_namespace[namespace].append(rule)
        else:
            unsaid.append((binding, UserError(why, hint=STAYS)))
    return NamespaceRules(
        {namespace: _merge_rules(rules) for namespace, rules in sorted(rules_by_namespace.items())}, tuple(unsaid)
    )


def merge_acls(rules: Iterable[NamespaceAcl]) -> tuple[NamespaceAcl, ...]:
    """Merge and sort access rules."""
    return _merge_rules(
        _AccessRule(
            rule.permission, rule.principal, rule.host, frozenset([kind]), frozenset([name]), frozenset([operation])
        )
        for rule in rules
        for kind in rule.resources
        for name in rule.names
        for operation in rule.operations
    )


def _explain_refusal(
    binding: AccessBinding, spaces: FlatNamespaces, rule: _AccessRule, capabilities: Capabilities
) -> str | None:
    if binding.resource not in _RESOURCES:
        return f"rules on {binding.resource} cannot be declared: rules belong to topics and namespaces"
    namespace, _ = spaces.split_name(binding.name)
    [name] = rule.names
    if not namespace or not name:
        return _explain_no_namespace(binding, spaces.separator)
    if ("*" in name[:-1]) or (name.endswith("*") and not binding.is_prefix):
        return f"{name!r} is neither a name nor a prefix"
    if binding.resource == "topics" and not binding.is_prefix and can_be_declared(binding):
        return "it is for a topic that does not exist"
    try:
        written = _to_acl(rule)
    except ValidationError as error:
        return f"it cannot be expressed in a manifest: {_format_reason(error)}"
    operations = capabilities.access.operations
    refused = find_refused_rules([written], operations) if operations else ()
    return next((what for _, _, what, _ in refused), _explain_host(written, capabilities))


def _explain_no_namespace(binding: AccessBinding, separator: str) -> str:
    if binding.name == "*" and not binding.is_prefix:
        return (
            f"a rule for all {binding.resource} of a cluster cannot be declared: rules belong to topics and namespaces"
        )
    if binding.is_prefix and separator not in binding.name:
        return f"the prefix does not end with the separator {separator!r}, so it is not a namespace"
    if binding.resource != "topics" and not binding.is_prefix:
        return f"rules for {binding.resource} belong to a namespace, and this name is in none"
    return "it is for no existing topic or namespace"


def _format_reason(error: ValidationError) -> str:
    return error.errors()[0]["msg"].removeprefix("Value error, ")


def _explain_host(rule: TopicAcl, capabilities: Capabilities) -> str | None:
    refusals = check_hosts((rule,)) if capabilities.access.hosts_are_addresses else iter(())
    return next((why for why, _ in refusals), None)


def _merge_rules(rules: Iterable[_AccessRule]) -> tuple[NamespaceAcl, ...]:
    joined = _merge_by(rules, lambda rule: rule.operations, lambda rule, them: rule._replace(operations=them))
    joined = _merge_by(joined, lambda rule: rule.resources, lambda rule, them: rule._replace(resources=them))
    joined = _merge_by(joined, lambda rule: rule.names, lambda rule, them: rule._replace(names=them))
    return tuple(sorted(map(_to_acl, joined), key=_sort_key))


def _merge_by(
    rules: Iterable[_AccessRule],
    values_of: Callable[[_AccessRule], NameSet],
    replace_values: Callable[[_AccessRule, NameSet], _AccessRule],
) -> list[_AccessRule]:
    alike: defaultdict[_AccessRule, NameSet] = defaultdict(frozenset)
    for rule in rules:
        alike[replace_values(rule, frozenset())] |= values_of(rule)
    return [replace_values(rule, values) for rule, values in alike.items()]


def _to_acl(rule: _AccessRule) -> NamespaceAcl:
    lists = {"resources": rule.resources, "names": rule.names, "operations": rule.operations}
    return NamespaceAcl.model_validate({**rule._asdict(), **{field: sorted(lists[field]) for field in lists}})


def _sort_key(rule: NamespaceAcl) -> tuple[object, ...]:
    return rule.principal, rule.permission, rule.host, rule.names, rule.resources, rule.operations


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContents:
    """Exported or imported resources of one cluster."""

    cluster: str
    resources: Sequence[Resource]
    capabilities: Capabilities
    separator: str | None
    """Separator instead of `:` in flat names; `None` if the platform has namespaces."""
    bindings: Sequence[AccessBinding] = ()
    taken: Iterable[str] = ()
    may_share: bool = True


@dataclass(frozen=True, slots=True)
class FactoredLayout:
    """Arranged resources, and settings that no manifest can express."""

    resources: Mapping[Address, Resource]
    unsaid: tuple[OmittedResource, ...] = ()


@dataclass(slots=True)
class _LayoutDraft:
    contents: ClusterContents
    policies: PolicyExtractor
    spaces: FlatNamespaces
    shared: SharedConfigs
    made: dict[Address, Resource] = field(default_factory=dict)
    unsaid: list[OmittedResource] = field(default_factory=list)


def factor_layout(
    contents: ClusterContents, *, policies: Mapping[str, TieringPolicy] | None = None, at_least: int = MIN_TOPICS
) -> FactoredLayout:
    """Arrange a cluster's resources in namespaces, shared configs and policies.

    `policies` exist. `at_least` topics make a prefix a namespace; with 0, only access rules do.
    """
    topics = sorted(
        (resource for resource in contents.resources if isinstance(resource, Topic)),
        key=lambda resource: resource.full_name,
    )
    spaces = _find_topic_namespaces(contents, topics, at_least)
    placed = {spaces.make_full_name(spaces.make_flat_name(topic.full_name)): topic for topic in topics}
    refused: list[OmittedResource] = []
    configs = {
        name: dict(_pick_declarable_configs(topic, contents.capabilities, refused)) for name, topic in placed.items()
    }
    shared = share_configs(configs) if _may_share_configs(contents) else SharedConfigs({}, configs)
    namespace_configs = [resource.spec.configs for resource in contents.resources if isinstance(resource, Namespace)]
    layers = [*namespace_configs, *shared.namespaces.values(), *shared.topics.values()]
    draft = _LayoutDraft(
        contents, PolicyExtractor(layers, contents.capabilities, policies or {}), spaces, shared, unsaid=refused
    )
    for name, topic in placed.items():
        _add_topic(draft, name, topic)
    _add_namespaces(draft)
    for resource in contents.resources:
        if not isinstance(resource, Topic | Namespace):
            draft.made[resource.address] = resource
    draft.made.update({policy.address: policy for policy in draft.policies.declared.values()})
    return FactoredLayout(dict(sorted(draft.made.items())), tuple(sorted(draft.unsaid, key=lambda left: left.place)))


def _pick_declarable_configs(
    topic: Topic, capabilities: Capabilities, unsaid: list[OmittedResource]
) -> Iterator[tuple[str, str]]:
    # The catalog is empty for platforms whose keys only a plan can check.
    catalog = CATALOGS.get(capabilities.platform, capabilities.configs)
    for key, value in topic.spec.configs.items():
        if key in TRANSIENT_CONFIGS:
            continue
        try:
            canonicalize_value(key, value)
            why = "`validate` refuses a config of this name" if catalog and is_rejected_key(key, catalog) else None
        except ValueError as error:
            why = explain_refused_value(value, error)
        if why is None:
            yield key, value
        else:
            unsaid.append(OmittedResource(topic.address, UserError(f"configs.{key}: {why}", hint=STAYS)))


def _find_topic_namespaces(contents: ClusterContents, topics: Sequence[Topic], at_least: int) -> FlatNamespaces:
    known = {topic.metadata.namespace for topic in topics}
    known |= {resource.metadata.name for resource in contents.resources if isinstance(resource, Namespace)}
    if contents.separator is None:
        return FlatNamespaces(":", {f"{tier}:": tier for namespace in sorted(known) for tier in list_levels(namespace)})
    names = [topic.full_name.replace(":", contents.separator) for topic in topics]
    return find_flat_namespaces(
        [*names, *contents.taken],
        contents.separator,
        reserved=[binding.name for binding in contents.bindings if binding.is_prefix],
        known=known,
        at_least=at_least,
    )


def _may_share_configs(contents: ClusterContents) -> bool:
    says = any(
        resource.spec.configs or resource.spec.tiering_policy
        for resource in contents.resources
        if isinstance(resource, Namespace)
    )
    return contents.may_share and not contents.capabilities.inherits_configs and not says


def _add_topic(draft: _LayoutDraft, full_name: str, topic: Topic) -> None:
    configs, policy = draft.policies.split_configs(draft.shared.topics[full_name])
    if topic.spec.tiering_policy is not None:
        configs, policy = dict(draft.shared.topics[full_name]), topic.spec.tiering_policy
    namespace, name = split_name(full_name)
    metadata = topic.metadata.model_copy(update={"name": name, "namespace": namespace})
    moved = topic.model_copy(update={"metadata": metadata})
    rules = tuple(rule for rule in topic.spec.acls if _check_expressible(draft, moved.address, rule))
    spec = topic.spec.model_copy(update={"configs": configs, "tiering_policy": policy, "acls": rules})
    draft.made[moved.address] = moved.model_copy(update={"spec": spec})


def _check_expressible(draft: _LayoutDraft, address: Address, rule: TopicAcl) -> bool:
    try:
        TopicAcl.model_validate(rule.model_dump(include=set(TopicAcl.model_fields)))
        message = _explain_host(rule, draft.contents.capabilities)
    except ValidationError as error:
        message = f"a rule of {rule.principal!r} cannot be expressed in a manifest: {_format_reason(error)}"
    if message is not None:
        draft.unsaid.append(OmittedResource(address, UserError(message, hint=STAYS)))
    return message is None


def _add_namespaces(draft: _LayoutDraft) -> None:
    contents = draft.contents
    namespaces = {
        resource.metadata.name: resource for resource in contents.resources if isinstance(resource, Namespace)
    }
    rules = assign_rules(contents.bindings, draft.spaces, contents.capabilities)
    draft.unsaid += [OmittedResource(str(binding), why) for binding, why in rules.unsaid]
    holding = {split_name(name)[0] for name in draft.shared.topics} - {""}
    for name in sorted({*namespaces, *rules.rules, *draft.shared.namespaces, *holding}):
        namespace = namespaces.get(name) or Namespace(metadata=OfNamespace(name=name, cluster=contents.cluster))
        spec = namespace.spec
        layer = {**spec.configs, **draft.shared.namespaces.get(name, {})}
        configs, policy = (layer, spec.tiering_policy) if spec.tiering_policy else draft.policies.split_configs(layer)
        acls = _build_rules(draft, namespace, rules.rules.get(name, ()))
        changed = spec.model_copy(update={"configs": configs, "tiering_policy": policy, "acls": acls})
        draft.made[namespace.address] = namespace.model_copy(update={"spec": changed})


def _build_rules(draft: _LayoutDraft, namespace: Namespace, more: Sequence[NamespaceAcl]) -> tuple[NamespaceAcl, ...]:
    own = tuple(rule for rule in namespace.spec.acls if _check_expressible(draft, namespace.address, rule))
    return merge_acls([*own, *more]) if draft.contents.separator is not None else own


NAMESPACES: Final = "namespaces"
_FILES: Final[Mapping[str, str]] = {
    "cluster": "clusters.yaml",
    "policy": "policies.yaml",
    "topic": "topics.yaml",
    "link": "links.yaml",
}


def format_manifests(resources: Iterable[Resource], inventory: Inventory) -> dict[str, str]:
    """Return manifests by file name: a file per namespace, and one per other kind."""
    documents: dict[str, list[str]] = {}
    names: dict[tuple[str, str], str] = {}
    for resource in sorted(resources, key=lambda resource: build_sort_key(resource.address)):
        name = _choose_file(resource.address, resource, names)
        if name is not None:
            documents.setdefault(name, []).append(format_resource(resource, inventory))
    return {name: "---\n".join(texts) for name, texts in sorted(documents.items())}


def _choose_file(address: Address, resource: Resource, names: dict[tuple[str, str], str]) -> str | None:
    namespace = ""
    if isinstance(resource, Namespace):
        namespace = resource.metadata.name
    elif isinstance(resource, Topic):
        namespace = resource.metadata.namespace
    if not namespace:
        return _FILES.get(kind_of(address))
    place = str(resource.cluster), namespace
    if place not in names:
        names[place] = _choose_free_name(_make_namespace_path(namespace), names.values())
    return names[place]


def _make_namespace_path(namespace: str) -> str:
    tiers = [f"_{tier}" if tier.startswith(".") else tier for tier in namespace.split(":")]
    return "/".join([NAMESPACES, *(f"{tier}_" if "." in tier else tier for tier in tiers[:-1]), tiers[-1]])


def _choose_free_name(stem: str, taken: Iterable[str]) -> str:
    """Names that differ only in case count as taken, because some file systems ignore case."""
    taken_names = {name.lower() for name in taken}
    number, name = 2, f"{stem}.yaml"
    while name.lower() in taken_names:
        name, number = f"{stem}-{number}.yaml", number + 1
    return name


_REPOSITORY: Final = ".git"
_MAX_FILES: Final = {"namespace": "namespaces.yaml", "topic": "topics.yaml", "link": "links.yaml"}


def write_manifests(
    inventory: Inventory, folder: Path, above: Callable[[Address], str], *, is_forced: bool = False
) -> tuple[Path, ...]:
    """Write manifests. `above` returns an address's comment lines; `is_forced` replaces files."""
    texts: dict[str, list[str]] = {}
    for address in sorted(inventory):
        resource = inventory[address].resource
        if isinstance(resource, Topic | Namespace | MirrorLink):
            text = above(address) + format_manifest(address, resource, inventory)
            texts.setdefault(_MAX_FILES[kind_of(address)], []).append(text)
    return write_files(
        {name: "---\n".join(manifests) for name, manifests in texts.items()}, folder, is_forced=is_forced
    )


def write_files(texts: Mapping[str, str], folder: Path, *, is_forced: bool = False) -> tuple[Path, ...]:
    """Write all files below a folder, or none. Manifests refer to the schema."""
    base = folder.resolve()
    parents = (base, *base.parents)
    above = 0 if SCHEMA in texts else next((n for n, parent in enumerate(parents) if (parent / SCHEMA).exists()), None)
    paths = {
        folder / name: text if above is None or name == SCHEMA else add_schema_lines(text, above + name.count("/"))
        for name, text in texts.items()
    }
    try:
        _check_paths_free(folder, paths, is_forced=is_forced)
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode())
    except OSError as error:
        raise UserError(
            f"cannot write into {folder}: {error.strerror or error}", hint="Name a folder that can be written."
        ) from error
    return tuple(paths)


def _check_paths_free(folder: Path, paths: dict[Path, str], *, is_forced: bool) -> None:
    existing = next((path for path in paths if path.exists()), None)
    if existing is not None:
        raise UserError(f"{existing} is there already", hint="Nothing was written. Name another folder.")
    if not is_forced and folder.exists() and any(path.name != _REPOSITORY for path in folder.iterdir()):
        message = f"{folder} is not empty"
        raise UserError(message, hint="Nothing was written. Name another folder, or add files to it with --force.")
