"""Lay out exported resources as a person would: namespaces, shared configs, policies, files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, assert_never

from pydantic import ValidationError

from reconciler.errors import UserError
from reconciler.manifests.edit import laid_out
from reconciler.manifests.references import is_refused_key
from reconciler.objectstore.directory import write_whole
from reconciler.operations.drift_patch import manifest_text, metadata_of, spec_of
from reconciler.planning.resolve.acting_configs import NEEDS_TIERING, compile_policy
from reconciler.planning.resolve.limits import check_hosts
from reconciler.resources.acls import Binding, NamespaceAcl, TopicAcl, can_be_declared, refused_rules
from reconciler.resources.address import (
    MAX_NAMESPACE,
    MAX_TIER,
    Address,
    check_namespace,
    check_topic_name,
    join_name,
    kind_of,
    rank,
    split_name,
    tiers_of,
)
from reconciler.resources.base import NameOnly, OfNamespace, format_duration, format_size
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import CATALOGS, canonical_value, refused_value
from reconciler.resources.kafka_configs import PASSING
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy, TieringPolicySpec
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.resources.inventory import Capabilities, Inventory, Resource


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of which no manifest was written, and why."""

    place: str
    """Its key in object storage, or its address on the cluster."""
    error: UserError


# Resources as the documents that declare them, without what holds anyway.


_DURATIONS: Final = frozenset({"time"})
_SIZES: Final = frozenset({"bytes", "segmentBytes"})
_USUAL: Final[Mapping[str, Any]] = {"deletionProtection": True, "properties": {}}


def document_text(resource: Resource, inventory: Inventory) -> str:
    """Return a resource as its manifest; the mirrors of a link are those that the inventory has of it."""
    match resource:
        case Topic() | Namespace() | MirrorLink():
            metadata: dict[str, Any] = metadata_of(resource.address, resource)
            spec: Mapping[str, Any] = dict(spec_of(resource, inventory))
        case TieringPolicy():
            metadata, spec = {"name": resource.metadata.name}, _policy(resource)
        case Cluster():
            metadata, spec = {"name": resource.metadata.name}, _cluster(resource)
        case Mounting() | MirrorTopic():
            message = f"{resource.address} is declared by others"
            raise ValueError(message)
        case _:
            assert_never(resource)
    labels = dict(resource.metadata.labels)
    return laid_out(
        {
            "apiVersion": "reconciler/v1",
            "kind": resource.kind,
            "metadata": {**metadata, **({"labels": labels} if labels else {})},
            "spec": spec,
        }
    )


def _policy(policy: TieringPolicy) -> dict[str, Any]:
    said = policy.spec.to_json()
    if said.get("onDisable") == "retain":
        del said["onDisable"]
    return {key: _quantity(key, value) for key, value in said.items()}


def _quantity(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {inner: _quantity(inner, item) for inner, item in value.items()}
    if key in _DURATIONS:
        return format_duration(value)
    return format_size(value) if key in _SIZES else value


def _cluster(cluster: Cluster) -> dict[str, Any]:
    """Return how a cluster is reached, and the id that tells it from any other."""
    said = cluster.spec.to_json()
    for key in _USUAL.keys() & said.keys():
        if said[key] == _USUAL[key]:
            del said[key]
    connection = said.get(cluster.spec.provider, {})
    if connection.get("namespaceSeparator") == ".":
        del connection["namespaceSeparator"]
    return said


# Configs that all topics of a namespace set, said once on the namespace. Pure; what each topic gets stays the same.


Configs: TypeAlias = dict[str, str]
Facts: TypeAlias = dict[str, object]
"""Config → value, and all that a topic says of tiering as one: half of it means something else."""

_TIERING: Final = ""
_SOME: Final = 2
"""Topics with which something can be common."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The configs that namespaces and topics set themselves, by full name; the nearest tier wins."""

    namespaces: Mapping[str, Configs]
    topics: Mapping[str, Configs]


def share(topics: Mapping[str, Mapping[str, str]]) -> Shared:
    """Say what topics have in common on the lowest namespace that holds them all.

    A key moves up only where every topic below sets it; the value of most of them goes on the namespace, the others
    keep theirs. Nothing reaches a topic that does not set it.
    """
    facts = {name: _facts(configs) for name, configs in topics.items()}
    tallies = _tallies(facts)
    fullest = _fullest_below(tallies)
    held: dict[str, Facts] = {"": {}}
    own: dict[str, Configs] = {}
    for namespace in sorted(tallies, key=lambda each: (each.count(":"), each)):
        tally, above = tallies[namespace], held[namespace.rpartition(":")[0]]
        is_passed_through = fullest.get(namespace) == tally.topics
        said = {} if is_passed_through else tally.common(above)
        held[namespace] = {**above, **said}
        own[namespace] = _configs(said)
    rest: dict[str, Configs] = {}
    for name, found in facts.items():
        above = held[split_name(name)[0]]
        rest[name] = _configs({key: value for key, value in found.items() if above.get(key) != value})
    return Shared({name: configs for name, configs in own.items() if configs}, rest)


class _Tally:
    """How often each value of each key is set below a namespace."""

    def __init__(self) -> None:
        self.topics = 0
        self._values: defaultdict[str, Counter[object]] = defaultdict(Counter)

    def add(self, facts: Facts) -> None:
        self.topics += 1
        for key, value in facts.items():
            self._values[key][value] += 1

    def common(self, above: Facts) -> Facts:
        """Return what goes on the namespace itself: what all set, and most of them alike, if no tier above says so."""
        if self.topics < _SOME:
            return {}
        found: Facts = {}
        for key, values in self._values.items():
            [(value, most)] = values.most_common(1)
            is_set_by_all = sum(values.values()) == self.topics
            enough = self.topics if key == _TIERING else self.topics // 2 + 1
            if is_set_by_all and most >= enough and above.get(key) != value:
                found[key] = value
        return found


def _tallies(facts: Mapping[str, Facts]) -> dict[str, _Tally]:
    tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
    for name, found in facts.items():
        for tier in tiers_of(split_name(name)[0]):
            tallies[tier].add(found)
    return tallies


def _fullest_below(tallies: Mapping[str, _Tally]) -> dict[str, int]:
    """Return the topics of the largest namespace right below each: where that is all of them, it holds them all."""
    found: dict[str, int] = {}
    for name, tally in tallies.items():
        above = name.rpartition(":")[0]
        found[above] = max(found.get(above, 0), tally.topics)
    return found


def _facts(configs: Mapping[str, str]) -> Facts:
    found: Facts = {key: value for key, value in configs.items() if key not in NEEDS_TIERING}
    tiering = tuple(sorted((key, value) for key, value in configs.items() if key in NEEDS_TIERING))
    return {**found, _TIERING: tiering} if tiering else found


def _configs(facts: Facts) -> Configs:
    found: Configs = {}
    for value in (value for value in facts.values() if isinstance(value, tuple)):
        found.update(value)
    found.update({key: value for key, value in facts.items() if isinstance(value, str)})
    return dict(sorted(found.items()))


# What a document says of tiering, as a policy that several share. Pure.


Words: TypeAlias = tuple[tuple[str, str], ...]
"""The tiering configs of one document, sorted."""

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


class Policies:
    """The policies of a cluster: one for each way that several documents, or one, say tiering."""

    def __init__(
        self,
        layers: Iterable[Mapping[str, str]],
        capabilities: Capabilities,
        taken: Mapping[str, TieringPolicy],
    ) -> None:
        """Name a policy for everything that is said, the most common first, if a policy means exactly that here.

        One that is `taken` is named where it says the same, and not declared again.
        """
        counted = Counter(words for layer in layers if (words := _words(layer)))
        self._names: dict[Words, str] = {}
        self.declared: dict[str, TieringPolicy] = {}
        for words, _count in sorted(counted.items(), key=lambda each: (-each[1], each[0])):
            spec = _spec(dict(words))
            if spec is None or compile_policy(spec, capabilities) != dict(words):
                continue
            known = next((name for name in sorted(taken) if taken[name].spec == spec), None)
            name = known or _free_policy_name(_name(spec), {*taken, *self.declared})
            self._names[words] = name
            if known is None:
                self.declared[name] = TieringPolicy(metadata=NameOnly(name=name), spec=spec)

    def split(self, layer: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
        """Return the configs of a document without what a policy says in their place, and the name of that policy."""
        name = self._names.get(_words(layer))
        if name is None:
            return dict(layer), None
        return {key: value for key, value in layer.items() if key not in NEEDS_TIERING}, name


def _free_policy_name(stem: str, taken: Collection[str]) -> str:
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return name


def _words(layer: Mapping[str, str]) -> Words:
    return tuple(sorted((key, value) for key, value in layer.items() if key in NEEDS_TIERING))


def _spec(words: Mapping[str, str]) -> TieringPolicySpec | None:
    """Return the policy that may mean these configs; whether it does is seen by compiling it."""
    said: dict[str, Any] = dict(_switches(words))
    for key, value in words.items():
        path = _FIELDS.get(key)
        if path is None or value == _TOTAL:
            continue
        within = said
        for part in path[:-1]:
            within = within.setdefault(part, {})
        within[path[-1]] = value == "true" if value in {"true", "false"} else _number(value)
    try:
        return TieringPolicySpec.model_validate(said)
    except ValidationError:
        return None


def _switches(words: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    stored = words.get("remote.storage.enable")
    if stored is not None:
        yield "remoteWrite", stored == "true" and words.get("remote.log.copy.disable") != "true"
        yield "remoteRead", stored == "true"
    if words.get("remote.log.delete.on.disable") == "true":
        yield "onDisable", "delete"


def _number(value: str) -> int | str:
    return int(value) if value.removeprefix("-").isdecimal() else value


def _name(spec: TieringPolicySpec) -> str:
    """Name a policy by what it does: `tiered`, `tiered-local-6h`, `read-only`, `untiered`."""
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


# Namespaces in flat names: which prefixes of a broker's topics are legal as one, and worth being one. Pure.
#
# What is found is the inverse of how names are made: every name, placed in the longest namespace whose prefix it
# carries, gives the same flat name back (PLATFORMS, the physical name is the identity).


AT_LEAST: Final = 3
"""Topics that make a prefix a namespace: two that begin alike are a coincidence."""


@dataclass(frozen=True, slots=True)
class Spaces:
    """The namespaces of a cluster whose names are flat. `prefixes`: what names begin with → the namespace."""

    separator: str
    prefixes: Mapping[str, str]

    def placed(self, name: str) -> tuple[str, str]:
        """Return the longest namespace whose prefix a flat name carries, and what follows it."""
        at = name.rfind(self.separator) if self.prefixes else -1
        while at >= 0:
            namespace = self.prefixes.get(name[: at + 1])
            if namespace is not None:
                return namespace, name[at + 1 :]
            at = name.rfind(self.separator, 0, at)
        return "", name

    def full_name(self, name: str) -> str:
        """Return our name of a topic."""
        return join_name(*self.placed(name))

    def flat(self, full_name: str) -> str:
        """Return what the broker calls it."""
        return full_name.replace(":", self.separator)


def spaces_in(
    names: Iterable[str],
    separator: str,
    *,
    reserved: Iterable[str] = (),
    known: Iterable[str] = (),
    at_least: int = AT_LEAST,
) -> Spaces:
    """Return the namespaces of flat names, the same for any order of them.

    `reserved` are prefixes that access rules are about: each makes a namespace, whatever its topics count, if it is
    legal as one. `known` namespaces are there whether or not. With `at_least` 0 nothing else becomes one.
    """
    counts, spoiled = _counted(names, separator)
    found = {tier for namespace in known for tier in tiers_of(namespace)}
    for prefix in sorted(reserved):
        ends = [end for end, _ in _legal_prefixes(prefix[: prefix.rfind(separator) + 1], separator)]
        if ends and len(ends[-1]) == prefix.rfind(separator) + 1 and spoiled.isdisjoint(ends):
            found.update(_namespace(end, separator) for end in ends)
    for prefix in sorted(counts, key=lambda each: (each.count(separator), each)):
        above = _namespace(prefix, separator).rpartition(":")[0]
        if at_least and counts[prefix] >= at_least and prefix not in spoiled and (not above or above in found):
            found.add(_namespace(prefix, separator))
    return Spaces(separator, {tier.replace(":", separator) + separator: tier for tier in sorted(found)})


def _counted(names: Iterable[str], separator: str) -> tuple[Counter[str], set[str]]:
    """Return how many names carry each prefix that is legal, and the prefixes that would leave a name no name."""
    counts: Counter[str] = Counter()
    spoiled: set[str] = set()
    for name in set(names):
        for prefix, rest in _legal_prefixes(name, separator):
            counts[prefix] += 1
            if not _is_topic_name(rest):
                spoiled.add(prefix)
    return counts, spoiled


def _legal_prefixes(name: str, separator: str) -> Iterator[tuple[str, str]]:
    """Yield the prefixes of a name that may be namespaces, outermost first, with what follows each."""
    start = 0
    while (end := name.find(separator, start)) >= 0 and end <= MAX_NAMESPACE:
        if not _is_tier(name[start:end], separator):
            return  # what is below would lie in it
        yield name[: end + 1], name[end + 1 :]
        start = end + 1


def _is_tier(text: str, separator: str) -> bool:
    """Tell whether a part may be a tier. Under `_` one with a dot may not: `.` and `_` are one to a broker."""
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


def _namespace(prefix: str, separator: str) -> str:
    return prefix[:-1].replace(separator, ":")


# Access rules of brokers as namespaces carry them, as few as say the same, and those that none can carry. Pure.
#
# Rules are merged only where every combination is one of the broker's own: first operations, then kinds of things, then
# names.


_RESOURCES: Final = frozenset({"topics", "groups", "transactional-ids"})
STAYS: Final = "It stays as it is: no plan touches what the files do not say."

Names: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class Granted:
    """The rules of each namespace, and each binding that has no words here, with why."""

    rules: Mapping[str, tuple[NamespaceAcl, ...]]
    unsaid: tuple[tuple[Binding, UserError], ...]


class _Rule(NamedTuple):
    """A rule in the making: all combinations of these."""

    permission: str
    principal: str
    host: str
    resources: Names
    names: Names
    operations: Names


def granted(bindings: Iterable[Binding], spaces: Spaces, capabilities: Capabilities) -> Granted:
    """Give every binding to the longest namespace whose prefix it carries."""
    found: defaultdict[str, list[_Rule]] = defaultdict(list)
    unsaid: list[tuple[Binding, UserError]] = []
    for each in sorted(bindings):
        namespace, name = spaces.placed(each.name)
        name += "*" if each.is_prefix else ""
        rule = _Rule(
            each.permission,
            each.principal,
            each.host,
            frozenset([each.resource]),
            frozenset([name]),
            frozenset([each.operation]),
        )
        why = _why_not(each, spaces, rule, capabilities)
        if why is None:
            found[namespace].append(rule)
        else:
            unsaid.append((each, UserError(why, hint=STAYS)))
    return Granted({namespace: _merged(rules) for namespace, rules in sorted(found.items())}, tuple(unsaid))


def merged_rules(rules: Iterable[NamespaceAcl]) -> tuple[NamespaceAcl, ...]:
    """Return rules as few as say the same, sorted."""
    return _merged(
        _Rule(each.permission, each.principal, each.host, frozenset([kind]), frozenset([name]), frozenset([operation]))
        for each in rules
        for kind in each.resources
        for name in each.names
        for operation in each.operations
    )


def _why_not(each: Binding, spaces: Spaces, rule: _Rule, capabilities: Capabilities) -> str | None:
    """Say why a namespace cannot carry a binding; `None`: it can."""
    if each.resource not in _RESOURCES:
        return f"rules on {each.resource} are about no topic and no namespace"
    namespace, _ = spaces.placed(each.name)
    [name] = rule.names
    if not namespace or not name:
        return _why_in_none(each, spaces.separator)
    if ("*" in name[:-1]) or (name.endswith("*") and not each.is_prefix):
        return f"{name!r} is no name and no beginning of one"
    if each.resource == "topics" and not each.is_prefix and can_be_declared(each):
        return "it is about one topic, which is not there"
    try:
        written = _written(rule)
    except ValidationError as error:
        return f"it cannot be expressed in a manifest: {_reason(error)}"
    operations = capabilities.access.operations
    refused = refused_rules([written], operations) if operations else ()
    return next((what for _, _, what, _ in refused), _unmet(written, capabilities))


def _why_in_none(each: Binding, separator: str) -> str:
    if each.name == "*" and not each.is_prefix:
        return f"a rule for all {each.resource} of a cluster has no place: rules stand at topics and namespaces"
    if each.is_prefix and separator not in each.name:
        return f"the prefix does not end with the separator {separator!r}, so it is no namespace"
    if each.resource != "topics" and not each.is_prefix:
        return f"rules for {each.resource} stand at a namespace, and this name is in none"
    return "it is about no topic that is there, and about no namespace"


def _reason(error: ValidationError) -> str:
    return error.errors()[0]["msg"].removeprefix("Value error, ")


def _unmet(rule: TopicAcl, capabilities: Capabilities) -> str | None:
    """Say why a plan refuses the host of a rule; `None`: it does not."""
    found = check_hosts((rule,)) if capabilities.access.hosts_are_addresses else iter(())
    return next((why for why, _ in found), None)


def _merged(rules: Iterable[_Rule]) -> tuple[NamespaceAcl, ...]:
    found = _joined(rules, lambda rule: rule.operations, lambda rule, them: rule._replace(operations=them))
    found = _joined(found, lambda rule: rule.resources, lambda rule, them: rule._replace(resources=them))
    found = _joined(found, lambda rule: rule.names, lambda rule, them: rule._replace(names=them))
    return tuple(sorted(map(_written, found), key=_order))


def _joined(
    rules: Iterable[_Rule], of: Callable[[_Rule], Names], with_: Callable[[_Rule, Names], _Rule]
) -> list[_Rule]:
    """Make one rule of those that differ in one field alone."""
    alike: defaultdict[_Rule, Names] = defaultdict(frozenset)
    for rule in rules:
        alike[with_(rule, frozenset())] |= of(rule)
    return [with_(rule, values) for rule, values in alike.items()]


def _written(rule: _Rule) -> NamespaceAcl:
    lists = {"resources": rule.resources, "names": rule.names, "operations": rule.operations}
    return NamespaceAcl.model_validate({**rule._asdict(), **{field: sorted(lists[field]) for field in lists}})


def _order(rule: NamespaceAcl) -> tuple[object, ...]:
    return rule.principal, rule.permission, rule.host, rule.names, rule.resources, rule.operations


# What a cluster has, as a person would declare it: namespaces, what topics share, policies. Pure.
#
# The platform is to find nothing changed: every topic keeps its flat name, its effective configs and its rules. What
# cannot be said is told.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContents:
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
    may_share: bool = True
    """Whether configs that all topics of a namespace set may move up to it."""


@dataclass(frozen=True, slots=True)
class Factored:
    """The same, factored; and what has no words here."""

    resources: Mapping[Address, Resource]
    """Sorted by address."""
    unsaid: tuple[LeftOut, ...] = ()


@dataclass(slots=True)
class _Making:
    """A cluster in the making."""

    found: ClusterContents
    policies: Policies
    spaces: Spaces
    shared: Shared
    made: dict[Address, Resource] = field(default_factory=dict)
    unsaid: list[LeftOut] = field(default_factory=list)


def factored(
    found: ClusterContents, *, policies: Mapping[str, TieringPolicy] | None = None, at_least: int = AT_LEAST
) -> Factored:
    """Factor what one cluster has; the same resources in another order give the same.

    `policies` are declared already, by name. A prefix of `at_least` topics becomes a namespace; 0: none does by
    its topics alone.
    """
    topics = sorted((each for each in found.resources if isinstance(each, Topic)), key=lambda each: each.full_name)
    spaces = _spaces(found, topics, at_least)
    placed = {spaces.full_name(spaces.flat(topic.full_name)): topic for topic in topics}
    refused: list[LeftOut] = []
    configs = {name: dict(_declarable(topic, found.capabilities, refused)) for name, topic in placed.items()}
    shared = share(configs) if _may_share(found) else Shared({}, configs)
    given = [each.spec.configs for each in found.resources if isinstance(each, Namespace)]
    layers = [*given, *shared.namespaces.values(), *shared.topics.values()]
    making = _Making(found, Policies(layers, found.capabilities, policies or {}), spaces, shared, unsaid=refused)
    for name, topic in placed.items():
        _add_topic(making, name, topic)
    _add_namespaces(making)
    for each in found.resources:
        if not isinstance(each, Topic | Namespace):
            making.made[each.address] = each
    making.made.update({policy.address: policy for policy in making.policies.declared.values()})
    return Factored(dict(sorted(making.made.items())), tuple(sorted(making.unsaid, key=lambda each: each.place)))


def _declarable(topic: Topic, capabilities: Capabilities, unsaid: list[LeftOut]) -> Iterator[tuple[str, str]]:
    """Yield the configs of a topic that a manifest may declare; append the others to `unsaid`."""
    catalog = CATALOGS.get(capabilities.platform, capabilities.configs)
    for key, value in topic.spec.configs.items():
        if key in PASSING:
            continue
        try:
            canonical_value(key, value)
            why = "`validate` refuses a config of this name" if is_refused_key(key, catalog) else None
        except ValueError as error:
            why = refused_value(value, error)
        if why is None:
            yield key, value
        else:
            unsaid.append(LeftOut(topic.address, UserError(f"configs.{key}: {why}", hint=STAYS)))


def _spaces(found: ClusterContents, topics: Sequence[Topic], at_least: int) -> Spaces:
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


def _may_share(found: ClusterContents) -> bool:
    """Tell whether configs may move up: the platform sees no difference, and no namespace says any yet."""
    says = any(each.spec.configs or each.spec.tiering_policy for each in found.resources if isinstance(each, Namespace))
    return found.may_share and not found.capabilities.inherits_configs and not says


def _add_topic(making: _Making, full_name: str, topic: Topic) -> None:
    configs, policy = making.policies.split(making.shared.topics[full_name])
    if topic.spec.tiering_policy is not None:  # It says its tiering by one already.
        configs, policy = dict(making.shared.topics[full_name]), topic.spec.tiering_policy
    namespace, name = split_name(full_name)
    metadata = topic.metadata.model_copy(update={"name": name, "namespace": namespace})
    moved = topic.model_copy(update={"metadata": metadata})
    rules = tuple(rule for rule in topic.spec.acls if _is_sayable(making, moved.address, rule))
    spec = topic.spec.model_copy(update={"configs": configs, "tiering_policy": policy, "acls": rules})
    making.made[moved.address] = moved.model_copy(update={"spec": spec})


def _is_sayable(making: _Making, address: Address, rule: TopicAcl) -> bool:
    """Tell whether a rule can be read back from a manifest; one that cannot is told."""
    try:
        TopicAcl.model_validate(rule.model_dump(include=set(TopicAcl.model_fields)))
        message = _unmet(rule, making.found.capabilities)
    except ValidationError as error:
        message = f"a rule of {rule.principal!r} cannot be expressed in a manifest: {_reason(error)}"
    if message is not None:
        making.unsaid.append(LeftOut(address, UserError(message, hint=STAYS)))
    return message is None


def _add_namespaces(making: _Making) -> None:
    """Declare the namespaces that hold topics, rules or configs; tiers above them are implied."""
    found = making.found
    given = {each.metadata.name: each for each in found.resources if isinstance(each, Namespace)}
    rules = granted(found.bindings, making.spaces, found.capabilities)
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


# Which file each manifest goes into, as a person would lay them out: one a namespace, one for each other kind.


NAMESPACES: Final = "namespaces"
_FILES: Final[Mapping[str, str]] = {
    "cluster": "clusters.yaml",
    "policy": "policies.yaml",
    "topic": "topics.yaml",
    "link": "links.yaml",
}


def texts_of(resources: Iterable[Resource], inventory: Inventory) -> dict[str, str]:
    """Return the text of each file, by its name: a namespace with its topics, and what is in none by kind."""
    documents: dict[str, list[str]] = {}
    names: dict[tuple[str, str], str] = {}
    for resource in sorted(resources, key=lambda each: rank(each.address)):
        name = _file_of(resource.address, resource, names)
        if name is not None:
            documents.setdefault(name, []).append(document_text(resource, inventory))
    return {name: "---\n".join(found) for name, found in sorted(documents.items())}


def _file_of(address: Address, resource: Resource, names: dict[tuple[str, str], str]) -> str | None:
    namespace = ""
    if isinstance(resource, Namespace):
        namespace = resource.metadata.name
    elif isinstance(resource, Topic):
        namespace = resource.metadata.namespace
    if not namespace:
        return _FILES.get(kind_of(address))
    place = str(resource.cluster), namespace
    if place not in names:
        names[place] = _free(_path(namespace), names.values())
    return names[place]


def _path(namespace: str) -> str:
    """Return where a namespace is written, its tiers as folders.

    What begins with a dot would not be read, and a folder never has the name of a file; no tier has a `_`.
    """
    tiers = [f"_{tier}" if tier.startswith(".") else tier for tier in namespace.split(":")]
    return "/".join([NAMESPACES, *(f"{tier}_" if "." in tier else tier for tier in tiers[:-1]), tiers[-1]])


def _free(stem: str, taken: Iterable[str]) -> str:
    """Return a file name that differs from all others by more than its case: some file systems do not see it."""
    there = {name.lower() for name in taken}
    number, name = 2, f"{stem}.yaml"
    while name.lower() in there:
        name, number = f"{stem}-{number}.yaml", number + 1
    return name


# Manifests into a folder: all of them or none, and nothing that is there is overwritten.


_REPOSITORY: Final = ".git"
"""A folder that holds nothing else is free: `git init` comes first."""
_MAX_FILES: Final = {"namespace": "namespaces.yaml", "topic": "topics.yaml", "link": "links.yaml"}


def written(
    inventory: Inventory, folder: Path, above: Callable[[Address], str], *, is_forced: bool = False
) -> tuple[Path, ...]:
    """Write a manifest of every namespace, topic and link; `above` returns the comment lines that precede one.

    Raises:
        UserError: As `saved`.
    """
    texts: dict[str, list[str]] = {}
    for address in sorted(inventory):
        resource = inventory[address].resource
        if isinstance(resource, Topic | Namespace | MirrorLink):
            text = above(address) + manifest_text(address, resource, inventory)
            texts.setdefault(_MAX_FILES[kind_of(address)], []).append(text)
    return saved({name: "---\n".join(found) for name, found in texts.items()}, folder, is_forced=is_forced)


def saved(texts: Mapping[str, str], folder: Path, *, is_forced: bool = False) -> tuple[Path, ...]:
    """Write files, by their names below a folder: all of them or none.

    Raises:
        UserError: The folder holds something (with `is_forced`: one of the files is there), or cannot be written.
    """
    paths = {folder / name: text for name, text in texts.items()}
    try:
        _check_free(folder, paths, is_forced=is_forced)
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode())
    except OSError as error:
        raise UserError(
            f"cannot write into {folder}: {error.strerror or error}", hint="Name a folder that can be written."
        ) from error
    return tuple(paths)


def _check_free(folder: Path, paths: dict[Path, str], *, is_forced: bool) -> None:
    there = next((path for path in paths if path.exists()), None)
    if there is not None:
        raise UserError(f"{there} is there already", hint="Nothing was written. Name another folder.")
    if not is_forced and folder.exists() and any(path.name != _REPOSITORY for path in folder.iterdir()):
        message = f"{folder} is not empty"
        raise UserError(message, hint="Nothing was written. Name another folder, or write beside it with --force.")
