"""Check references, configs, links, mirrors and duplicate clusters across manifests."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from reconciler.objectstore.settings import StoreSettings
from reconciler.resources.address import Address, address_of, cluster_address, cluster_of, list_levels
from reconciler.resources.base import FieldProblem
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import CATALOGS, POLICY_KEYS
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, ConfigKey
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy, TieringPolicySpec
from reconciler.resources.topic import Topic
from reconciler.runtime.text import find_similar_spelling, format_suggestion, list_choices

if TYPE_CHECKING:
    from reconciler.manifests.drafts import DraftCollector
    from reconciler.manifests.files import Findings, Place
    from reconciler.manifests.positions import FieldPath


def check_configs(resource: Topic | Namespace | MirrorLink, collector: DraftCollector, findings: Findings) -> None:
    """Report configs that the platform does not know, or that are set twice."""
    catalog = _find_catalog(resource.cluster, collector)
    for path, configs in _list_configs(resource):
        if catalog is not None and not configs.keys() <= catalog.keys():
            _check_config_keys(configs, path, catalog, (resource.address, collector.places[resource.address]), findings)
    match resource:
        case MirrorLink():
            pass
        case _ if resource.spec.configs:
            _check_equivalent_configs(resource, collector, findings)
            if resource.spec.tiering_policy is not None:
                _check_policy_configs(resource, resource.spec.tiering_policy, collector, findings)
        case _:
            pass


def check_invalid_documents(collector: DraftCollector, findings: Findings) -> None:
    """Report unknown configs of documents that failed validation."""
    for address, (places, keys) in collector.unread.items():
        catalog = _find_catalog(cluster_of(address) or "", collector)
        if catalog is not None:
            _check_config_keys(keys, ("spec", "configs"), catalog, (address, places), findings)


def _find_catalog(cluster: str, collector: DraftCollector) -> Mapping[str, ConfigKey] | None:
    declared = collector.desired.get(cluster_address(cluster))
    if declared is None or not isinstance(declared.resource, Cluster):
        return None
    return CATALOGS.get(declared.resource.spec.provider)


def _list_configs(resource: Topic | Namespace | MirrorLink) -> Iterator[tuple[FieldPath, Mapping[str, str]]]:
    match resource:
        case MirrorLink():
            for position, mirror in enumerate(resource.spec.mirror_topics):
                yield ("spec", "mirrorTopics", position, "configs"), mirror.configs
        case _:
            yield ("spec", "configs"), resource.spec.configs


def is_rejected_key(key: str, catalog: Mapping[str, ConfigKey]) -> bool:
    """Return whether to reject a config. Unknown Kafka configs pass unless they resemble known ones."""
    return key not in catalog and (catalog is not KAFKA_CONFIGS or bool(find_similar_spelling(key, catalog)))


def _check_config_keys(
    keys: Iterable[str],
    path: FieldPath,
    catalog: Mapping[str, ConfigKey],
    document: tuple[Address, tuple[Place, ...]],
    findings: Findings,
) -> None:
    address, places = document
    for key in keys:
        if is_rejected_key(key, catalog):
            hint = format_suggestion(
                find_similar_spelling(key, catalog), otherwise=f"Known are, for example: {list_choices(catalog)}"
            )
            findings.add_complaint(places, FieldProblem("this platform has no such config", hint, (*path, key)))
        elif key not in catalog:
            message = "is not among the configs of Kafka that this version knows"
            hint = "Check its name; `plan` asks the brokers, and refuses one that they do not list"
            cluster = cluster_address(cluster_of(address) or "")
            findings.add_warning(places, FieldProblem(message, hint, (*path, key)), unseen=cluster)


def _check_equivalent_configs(resource: Topic | Namespace, collector: DraftCollector, findings: Findings) -> None:
    configs = resource.spec.configs
    reported: set[str] = set()
    for ours, *theirs in POLICY_KEYS.values():
        for word in theirs if ours in configs else ():
            if word in configs and word not in reported:
                reported.add(word)
                places = collector.places[resource.address]
                line = findings.find_spot(places, ("spec", "configs", ours))[1].line
                message = f"says what {ours} on line {line} says"
                hint = "Keep one of the two: both configs mean the same on different platforms"
                findings.add_complaint(places, FieldProblem(message, hint, ("spec", "configs", word)))


def _check_policy_configs(
    resource: Topic | Namespace, policy: str, collector: DraftCollector, findings: Findings
) -> None:
    declared = collector.desired.get(Address(f"policy/{policy}"))
    if declared is None or not isinstance(declared.resource, TieringPolicy):
        return
    places = collector.places[resource.address]
    reported: set[str] = set()
    for field, keys in POLICY_KEYS.items():
        if not sets_field(declared.resource.spec, field):
            continue
        for key in keys:
            if key in resource.spec.configs and key not in reported:
                reported.add(key)
                line = findings.find_spot(places, ("spec", "tieringPolicy"))[1].line
                message = f"is set twice: here, and by the tieringPolicy {policy} on line {line}"
                hint = "Set it once, here or in the policy; a config set here overrides the policy of a namespace above"
                findings.add_complaint(places, FieldProblem(message, hint, ("spec", "configs", key)))


def sets_field(spec: TieringPolicySpec, field: str) -> bool:
    """Return whether a policy sets a field of `POLICY_KEYS`."""
    value: Any = spec
    for part in field.split("."):
        value = getattr(value, part) if value is not None else None
    # `retain` is the default, and does not count as set.
    return value is not None and (field, value) != ("on_disable", "retain")


_CLUSTER: Final = ("metadata", "cluster")
_NAMESPACE: Final = ("metadata", "namespace")
_POLICY: Final = ("spec", "tieringPolicy")


def check_references(collector: DraftCollector, findings: Findings) -> None:
    """Report undeclared clusters and policies, and wrong configs. Warn about undeclared namespaces."""
    references = _References(collector, findings)
    for address, declared in collector.desired.items():
        places = collector.places[address]
        match declared.resource:
            case Topic() as topic:
                references.check_cluster(topic.cluster, places, _CLUSTER)
                references.note_namespace(topic.cluster, topic.metadata.namespace, places, _NAMESPACE)
                references.check_policy(topic.spec.tiering_policy, places)
                check_configs(topic, collector, findings)
            case Namespace() as namespace:
                references.check_cluster(namespace.cluster, places, _CLUSTER)
                references.check_policy(namespace.spec.tiering_policy, places)
                check_configs(namespace, collector, findings)
            case Mounting() as mounting:
                references.check_cluster(mounting.cluster, places, _CLUSTER)
                references.note_namespace(mounting.cluster, mounting.metadata.namespace, places, _NAMESPACE)
            case MirrorLink() as link:
                references.check_cluster(link.cluster, places, _CLUSTER)
                references.check_cluster(link.spec.source, places, ("spec", "source"))
                check_configs(link, collector, findings)
            case _:
                pass
    check_invalid_documents(collector, findings)
    references.warn_of_undeclared()


class _References:
    def __init__(self, collector: DraftCollector, findings: Findings) -> None:
        self._declared = collector.declared
        self._findings = findings
        self._namespaces = _list_namespaces(collector)
        self._unseen: dict[tuple[str, str], tuple[tuple[Place, ...], FieldPath]] = {}
        self._times: dict[tuple[str, str], int] = {}

    def check_cluster(self, name: str, places: tuple[Place, ...], at: FieldPath) -> None:
        if cluster_address(name) not in self._declared:
            known = self._list_names("cluster/")
            otherwise = f"Declare it with `kind: Cluster`; declared are: {list_choices(known)}"
            hint = format_suggestion(find_similar_spelling(name, known), otherwise=otherwise)
            self._findings.add_complaint(
                places, FieldProblem(f"there is no cluster {name} in this workspace", hint, at)
            )

    def check_policy(self, name: str | None, places: tuple[Place, ...]) -> None:
        if name is not None and Address(f"policy/{name}") not in self._declared:
            known = self._list_names("policy/")
            otherwise = f"Declare it with `kind: TieringPolicy`; declared are: {list_choices(known)}"
            hint = format_suggestion(find_similar_spelling(name, known), otherwise=otherwise)
            self._findings.add_complaint(places, FieldProblem(f"there is no tiering policy {name}", hint, _POLICY))

    def note_namespace(self, cluster: str, name: str, places: tuple[Place, ...], at: FieldPath) -> None:
        if name and (cluster, name) not in self._namespaces:
            self._unseen.setdefault((cluster, name), (places, at))
            self._times[cluster, name] = self._times.get((cluster, name), 0) + 1

    def warn_of_undeclared(self) -> None:
        for (cluster, name), (places, at) in sorted(self._unseen.items()):
            times = self._times[cluster, name]
            use = "is used here" if times == 1 else f"is used here and {times - 1} more times"
            message = f"the namespace {name} of {cluster} {use}, and no manifest declares it"
            hint = (
                "Declare it with `kind: Namespace`, or leave it to the workspace that declares it; "
                "`plan` refuses one that is not on the cluster either"
            )
            self._findings.add_warning(places, FieldProblem(message, hint, at), unseen=f"namespace/{cluster}/{name}")

    def _list_names(self, prefix: str) -> list[str]:
        return [address.removeprefix(prefix) for address in self._declared if address.startswith(prefix)]


def _list_namespaces(collector: DraftCollector) -> set[tuple[str, str]]:
    names: set[tuple[str, str]] = set()
    for address in collector.declared:
        kind, _, rest = address.partition("/")
        if kind == "namespace":
            cluster, _, name = rest.partition("/")
            names |= {(cluster, tier) for tier in list_levels(name)}
    return names


_PREFIX: Final = ("spec", "prefix")
_MODE: Final = ("spec", "mode")
_COPYING: Final = frozenset({"mirroring", "paused"})

_Entry = tuple["MirrorTopic", tuple["Place", ...], "FieldPath"]


def check_links(collector: DraftCollector, findings: Findings) -> None:
    """Report conflicting links, and mirrors that form a circle."""
    links = {
        address: declared.resource
        for address, declared in collector.desired.items()
        if isinstance(declared.resource, MirrorLink)
    }
    _check_prefixes(links, collector, findings)
    _check_halves(links, collector, findings)
    entries: dict[Address, _Entry] = {}
    for address, link in links.items():
        for position, mirror in enumerate(link.mirrors()):
            at: FieldPath = ("spec", "mirrorTopics", position, "source")
            entries.setdefault(mirror.address, (mirror, collector.places[address], at))
    _check_directions(entries, links, findings)


def _check_prefixes(links: Mapping[Address, MirrorLink], collector: DraftCollector, findings: Findings) -> None:
    first: dict[tuple[str, str], Address] = {}
    for address, link in links.items():
        if not link.spec.prefix:
            continue
        other = first.setdefault((link.cluster, link.spec.prefix), address)
        if other != address:
            where = findings.format_location(collector.places[other], _PREFIX)
            message = f"{other} has the prefix {link.spec.prefix!r} already, at {where}"
            hint = "Choose another prefix: each link of a cluster needs its own"
            findings.add_complaint(collector.places[address], FieldProblem(message, hint, _PREFIX))


def _check_halves(links: Mapping[Address, MirrorLink], collector: DraftCollector, findings: Findings) -> None:
    for address, link in links.items():
        half = address_of("link", link.spec.source, link.metadata.name)
        other = links.get(half)
        if other is None or link.spec.mode == "destination":
            continue
        if (other.spec.mode, other.spec.source) != (link.spec.mode, link.cluster):
            where = findings.format_location(collector.places[half], _MODE)
            message = (
                f"its other half {half}, declared at {where}, is {other.spec.mode} from {other.spec.source}, "
                f"and not {link.spec.mode} from {link.cluster}"
            )
            hint = "Both halves of a link have one name and one mode: correct it, or leave it out and it is derived"
            findings.add_complaint(collector.places[address], FieldProblem(message, hint, _MODE))
        elif other.spec.prefix:
            where = findings.format_location(collector.places[half], _PREFIX)
            for position, mirror in enumerate(link.mirrors()):
                if mirror.state == "reversed":
                    message = f"its other half {half} has the prefix {other.spec.prefix!r}, at {where}"
                    at: FieldPath = ("spec", "mirrorTopics", position, "state")
                    hint = "Mirrors change roles over links without prefixes: leave it out, or link the other way"
                    findings.add_complaint(collector.places[address], FieldProblem(message, hint, at))


def _check_directions(
    entries: Mapping[Address, _Entry], links: Mapping[Address, MirrorLink], findings: Findings
) -> None:
    for address, (mirror, places, at) in entries.items():
        above = entries.get(address_of("mirror", mirror.source_cluster, mirror.source))
        if above is None:
            continue
        source = above[0]
        is_back = (source.source_cluster, source.source) == (mirror.cluster, mirror.name)
        two_way = links[address_of("link", mirror.cluster, mirror.link)].spec.mode == "bidirectional"
        if is_back and two_way and source.link == mirror.link and address > source.address:
            where = findings.format_location(above[1], above[2])
            message = f"{source.address} is declared at {where}, and mirrors the topic that this entry creates"
            hint = "A topic has one entry: keep one of the two; state reversed means that the roles are swapped"
            findings.add_complaint(places, FieldProblem(message, hint, at))
        elif circle := _find_circle(mirror, entries):
            message = f"it mirrors itself in a circle: {' → '.join(circle)}"
            findings.add_complaint(
                places, FieldProblem(message, "A topic is mirrored in one direction: remove one of them", at)
            )


def _find_circle(mirror: MirrorTopic, entries: Mapping[Address, _Entry]) -> tuple[str, ...]:
    way = [mirror.address]
    address: MirrorTopic | None = mirror
    while address is not None and address.state in _COPYING:
        above = address_of("mirror", address.source_cluster, address.source)
        if above == mirror.address:
            return (*reversed(way), way[-1]) if mirror.address == max(way) else ()
        if above in way:
            return ()
        way.append(above)
        address = entries[above][0] if above in entries else None
    return ()


_COPYING_ROLES: Final = ("mirroring", "paused")


def check_mirrors(collector: DraftCollector, findings: Findings) -> None:
    """Report mirrors and mounts declared twice, and active mirrors also declared as topics."""
    owners: dict[str, tuple[tuple[Place, ...], FieldPath]] = {}
    for address, declared in collector.desired.items():
        places = collector.places[address]
        match declared.resource:
            case MirrorLink() as link:
                for position, mirror in enumerate(link.mirrors()):
                    at: FieldPath = ("spec", "mirrorTopics", position, "source")
                    _check_owner(f"{mirror.address} is declared", owners, (places, at), findings)
                    _check_topic(mirror, collector, (places, at), findings)
            case Mounting() as mounting if mounting.spec.state == "mounted":
                at = ("spec", "as") if mounting.spec.as_ is not None else ("metadata", "name")
                what = f"a topic {mounting.topic_name} is mounted on {mounting.cluster}"
                _check_owner(what, owners, (places, at), findings)
            case _:
                pass


def _check_owner(
    what: str,
    owners: dict[str, tuple[tuple[Place, ...], FieldPath]],
    written: tuple[tuple[Place, ...], FieldPath],
    findings: Findings,
) -> None:
    first = owners.setdefault(what, written)
    if first is not written:
        message = f"{what} already, at {findings.format_location(*first)}"
        findings.add_complaint(written[0], FieldProblem(message, "Keep one of the two", written[1]))


def _check_topic(
    mirror: MirrorTopic, collector: DraftCollector, written: tuple[tuple[Place, ...], FieldPath], findings: Findings
) -> None:
    topic = address_of("topic", mirror.cluster, mirror.full_name)
    if mirror.state in _COPYING_ROLES and topic in collector.places:
        where = findings.format_location(collector.places[topic], ("metadata", "name"))
        message = f"{topic} is declared at {where}, and a topic that is {mirror.state} is managed by its link"
        hint = "Remove the Topic, or let the entry be failed-over, or promoted where its platform can"
        findings.add_complaint(written[0], FieldProblem(message, hint, written[1]))


def check_shared_connections(collector: DraftCollector, folder: pathlib.Path, findings: Findings) -> None:
    """Report Clusters with the same connection: each would treat the other's resources as foreign."""
    seen: dict[tuple[str, ...], str] = {}
    for address, declared in sorted(collector.desired.items()):
        if isinstance(declared.resource, Cluster):
            first = seen.setdefault(_connection_key(declared.resource, folder), f"{address} ({declared.source})")
            if not first.startswith(f"{address} "):
                name = declared.resource.spec.provider
                complaint = FieldProblem(
                    f"is the same cluster as {first}",
                    "Declare each cluster once, or correct one of the two",
                    ("spec", name),
                )
                findings.add_complaint(collector.places[address], complaint)


def _connection_key(cluster: Cluster, folder: pathlib.Path) -> tuple[str, ...]:
    root = cluster.spec.root
    if root is None:
        return cluster.spec.connection.build_identity()
    return StoreSettings.resolve(root.url, folder=folder).url.rstrip("/"), root.endpoint or ""
