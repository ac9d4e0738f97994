"""Convert imported topics, rules and clusters to resources without namespaces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from reconciler.importers.base import (
    ImportedCluster,
    ImportedLink,
    ImportedMirror,
    ImportedRule,
    ImportedTopic,
    NotImported,
    SourcePlace,
    SourceReading,
    TargetCluster,
    name_secrets,
)
from reconciler.manifests.models import translate_validation_error
from reconciler.manifests.positions import FieldPath, format_path
from reconciler.resources.acls import OPERATIONS, TOPICS, AccessBinding, check_principal
from reconciler.resources.cluster import FLAT_SEPARATOR, Cluster
from reconciler.resources.configs import EMBEDDED_CONFIGS, canonicalize_value, explain_refused_value
from reconciler.resources.kafka_configs import INTERNAL, TRANSIENT_CONFIGS, is_internal
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.redpanda_configs import WIRE_NAMES
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import find_similar_spelling, format_suggestion, list_choices

_GONE: Final = {
    "message.format.version": "Kafka 4.0 removed it: brokers have one format of records",
    "message.downconversion.enable": "Kafka 4.0 removed it: brokers no longer convert messages",
}
_LIVE: Final = frozenset({"mirroring", "paused"})
_NAMES_IN_FILES: Final = {theirs: ours for ours, theirs in WIRE_NAMES.items()}


def index_topics(imported: Iterable[ImportedTopic], lost: list[NotImported]) -> dict[str, ImportedTopic]:
    """Index topics by name; report duplicates in `lost`."""
    topics: dict[str, ImportedTopic] = {}
    for topic in imported:
        first = topics.setdefault(topic.name, topic)
        if first is not topic:
            why = f"a topic of this name is declared already, at {first.place}; this one is left out"
            hint = "" if _is_same_topic(first, topic) else "They differ: keep the correct one."
            lost.append(NotImported(topic.place, _format_subject(topic), "", why, hint))
    return topics


def compose_topic(
    imported: ImportedTopic, target: TargetCluster, acls: list[dict[str, Any]], lost: list[NotImported]
) -> Topic | None:
    """Convert a topic; if manifests cannot declare it, add the reason to `lost` and return `None`."""
    if why := _explain_undeclarable(imported):
        lost.append(NotImported(imported.place, _format_subject(imported), "", *why))
        return None
    several = imported.replication_factor if imported.replication_factor and imported.replication_factor > 0 else None
    content = {
        "metadata": {"name": imported.name, "cluster": target.name, "labels": dict(imported.labels)},
        "spec": {
            "partitions": imported.partitions,
            "replicationFactor": several,
            "configs": dict(_read_configs(imported, target, lost)),
            "acls": acls,
            "protect": imported.is_protected or None,
        },
    }
    try:
        return Topic.model_validate(content)
    except ValidationError as error:
        lost += [
            NotImported(
                imported.place, _format_subject(imported), format_path(complaint.at), complaint.message, complaint.hint
            )
            for complaint in translate_validation_error(error, Topic, content)
        ]
        return None


def _explain_undeclarable(imported: ImportedTopic) -> tuple[str, str] | None:
    if not imported.name:
        return "it has no name", ""
    if is_internal(imported.name):
        return INTERNAL, ""
    if imported.partitions is not None and imported.partitions < 1:
        why = (
            f"{imported.partitions} is not a number of partitions, so it is left out: the broker's default would apply"
        )
        return why, "Add the number and import again, or export the cluster itself."
    if imported.partitions is None:
        why = "the number of partitions is missing, so the topic is left out: the broker's default would apply"
        return why, "Add it there and import again, or export the cluster itself."
    return None


def _read_configs(imported: ImportedTopic, target: TargetCluster, lost: list[NotImported]) -> Iterator[tuple[str, str]]:
    catalog = target.catalog
    for key, setting in sorted(imported.configs.items()):
        name = _NAMES_IN_FILES.get(key, key)
        if setting.value is None:
            continue
        if key in TRANSIENT_CONFIGS:
            why = "throttles a reassignment while it lasts, and is nothing to declare"
            lost.append(NotImported(setting.place, _format_subject(imported), key, why, is_expressible=False))
            continue
        if catalog is not None and name not in catalog:
            lost.append(_build_unknown_config(key, imported, setting.place, target))
            continue
        try:
            yield name, canonicalize_value(name, _to_integer(setting.value), catalog or EMBEDDED_CONFIGS)
        except ValueError as error:
            why = explain_refused_value(str(setting.value), error)
            lost.append(
                NotImported(
                    setting.place,
                    _format_subject(imported),
                    key,
                    why,
                    "Correct it there, or write it into the manifest.",
                )
            )


def _build_unknown_config(key: str, imported: ImportedTopic, place: SourcePlace, target: TargetCluster) -> NotImported:
    catalog = target.catalog or {}
    why = _GONE.get(key, f"{target.provider} has no such config of topics")
    otherwise = f"Known are, for example: {list_choices(catalog)}"
    hint = "" if key in _GONE else format_suggestion(find_similar_spelling(key, catalog), otherwise=otherwise)
    return NotImported(place, _format_subject(imported), key, why, hint, is_expressible=key not in _GONE)


def _to_integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _format_subject(imported: ImportedTopic) -> str:
    return f"topic {imported.name}".strip()


def _is_same_topic(one: ImportedTopic, other: ImportedTopic) -> bool:
    def list_values(topic: ImportedTopic) -> tuple[Any, ...]:
        configs = {key: str(setting.value) for key, setting in topic.configs.items()}
        return topic.partitions, topic.replication_factor, configs, dict(topic.labels)

    return list_values(one) == list_values(other)


@dataclass(slots=True)
class AccessRules:
    """Access rules of a cluster: `acls` by topic name, and all other rules with their source positions."""

    topics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    bindings: dict[AccessBinding, SourcePlace] = field(default_factory=dict)


def split_rules(rules: Iterable[ImportedRule], topics: Collection[str], lost: list[NotImported]) -> AccessRules:
    """Split rules into those of single topics and others; add invalid ones to `lost`."""
    of_topics: dict[str, dict[tuple[str, str, str], set[str]]] = defaultdict(lambda: defaultdict(set))
    permissions = AccessRules()
    for rule in rules:
        if why := _explain_refusal(rule):
            lost.append(NotImported(rule.place, str(rule), "", why))
        elif rule.resource == TOPICS and not rule.is_prefix and rule.name in topics:
            of_topics[rule.name][rule.permission, rule.principal, rule.host].add(rule.operation)
        else:
            permissions.bindings.setdefault(_build_binding(rule), rule.place)
    permissions.topics = {
        name: [_build_rule(*permission) for permission in sorted(who.items())] for name, who in of_topics.items()
    }
    return permissions


def _explain_refusal(rule: ImportedRule) -> str | None:
    legal = OPERATIONS.get(rule.resource)
    if legal is not None and rule.operation not in legal:
        return f"{rule.operation} is nothing that can be done with {rule.resource}"
    try:
        check_principal(rule.principal)
    except ValueError as error:
        return f"{rule.principal!r} is {error}"
    return None


def _build_binding(rule: ImportedRule) -> AccessBinding:
    return AccessBinding(
        resource=rule.resource,
        name=rule.name,
        is_prefix=rule.is_prefix,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission=rule.permission,
    )


def _build_rule(who: tuple[str, str, str], operations: Iterable[str]) -> dict[str, Any]:
    permission, principal, host = who
    return {"permission": permission, "principal": principal, "host": host, "operations": sorted(operations)}


def compose_link(
    imported: ImportedLink,
    mirrors: Iterable[ImportedMirror],
    targets: Mapping[str, TargetCluster],
    lost: list[NotImported],
) -> MirrorLink | None:
    """Convert a link with its legal mirrors, or return `None` if the link is illegal; add the reasons to `lost`."""
    prefix = imported.settings.get("prefix", "")
    legal = [mirror for mirror in mirrors if _has_usual_name(mirror, prefix, lost)]
    while True:
        entries = [{"source": mirror.source, "state": mirror.state} for mirror in legal]
        spec = {"source": targets[imported.source].name, **imported.settings, "mirrorTopics": entries}
        content = {"metadata": {"name": imported.name, "cluster": targets[imported.cluster].name}, "spec": spec}
        try:
            return MirrorLink.model_validate(content)
        except ValidationError as error:
            complaints = list(translate_validation_error(error, MirrorLink, content))
        refused = [_find_mirror(complaint.at, legal) for complaint in complaints]
        for complaint, mirror in zip(complaints, refused, strict=True):
            about, path = (mirror, "") if mirror is not None else (imported, format_path(complaint.at))
            lost.append(NotImported(about.place, about.subject, path, complaint.message, complaint.hint))
        if None in refused:
            if legal:
                lost.append(NotImported(imported.place, imported.subject, "", "its mirrors are left out with it"))
            return None
        legal = [mirror for mirror in legal if mirror not in refused]


def _find_mirror(at: FieldPath, mirrors: Sequence[ImportedMirror]) -> ImportedMirror | None:
    match at:
        case ("spec", "mirrorTopics", int(position), *_):
            return mirrors[position]
        case _:
            return None


def _has_usual_name(mirror: ImportedMirror, prefix: str, lost: list[NotImported]) -> bool:
    if mirror.name in {"", prefix + mirror.source}:
        return True
    why = f"it is named {mirror.name}, and its link makes {prefix + mirror.source} of {mirror.source}"
    lost.append(NotImported(mirror.place, mirror.subject, "", why, "Check the prefix of the link."))
    return False


@dataclass(slots=True)
class ClusterResources:
    """Imported resources of one cluster: topics by name, links with their places, and other access rules."""

    topics: dict[str, Topic] = field(default_factory=dict)
    places: dict[str, SourcePlace] = field(default_factory=dict)
    links: list[tuple[MirrorLink, ImportedLink]] = field(default_factory=list)
    bindings: Mapping[AccessBinding, SourcePlace] = field(default_factory=dict)


@dataclass(slots=True)
class ImportedResources:
    """Result of a conversion: resources by cluster, clusters, and `lost` resources and fields."""

    flat: dict[str, ClusterResources] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    lost: list[NotImported] = field(default_factory=list)


def compose_resources(reading: SourceReading, targets: Mapping[str, TargetCluster]) -> ImportedResources:
    """Convert imported resources; `targets` maps the tool's cluster names to clusters of the workspace."""
    composed = ImportedResources(lost=list(reading.lost))
    for cluster in reading.clusters:
        mark = targets[cluster.name].name if len(reading.clusters) > 1 else ""
        _add_cluster(cluster, targets[cluster.name], mark, composed)
    for target in {target.name: target for target in targets.values()}.values():
        composed.flat[target.name] = _compose_cluster(reading, targets, target, composed.lost)
    for mirror in reading.mirrors:
        if (mirror.cluster, mirror.link) not in reading.links:
            why = f"its link {mirror.link} is not in these files, so its source cluster is unknown"
            composed.lost.append(NotImported(mirror.place, mirror.subject, "", why, "Write the MirrorLink by hand."))
    return composed


def _compose_cluster(
    reading: SourceReading, targets: Mapping[str, TargetCluster], target: TargetCluster, lost: list[NotImported]
) -> ClusterResources:
    topics = (topic for topic in reading.topics if targets[topic.cluster].name == target.name)
    named = index_topics(topics, lost)
    rules = (rule for rule in reading.rules if targets[rule.cluster].name == target.name)
    permissions = split_rules(rules, named, lost)
    flat = ClusterResources(bindings=permissions.bindings)
    for key, link in sorted(reading.links.items()):
        if targets[link.cluster].name == target.name:
            mirrors = (mirror for mirror in reading.mirrors if (mirror.cluster, mirror.link) == key)
            composed = compose_link(link, mirrors, targets, lost)
            flat.links += [(composed, link)] if composed is not None else []
    copies = {mirror.name: mirror for link, _ in flat.links for mirror in link.mirrors() if mirror.state in _LIVE}
    for name, imported in sorted(named.items()):
        acls = permissions.topics.get(name, [])
        if name in copies:
            why = f"it is a mirror of link {copies[name].link}, and its configs follow its source"
            lost.append(NotImported(imported.place, f"topic {name}", "", why, is_expressible=False))
            topic = None
        else:
            topic = compose_topic(imported, target, acls, lost)
        if topic is not None:
            flat.topics[name], flat.places[name] = topic, imported.place
        elif acls:
            lost.append(NotImported(imported.place, f"topic {name}", "", "its access rules are left out with it"))
    return flat


def _add_cluster(imported: ImportedCluster, target: TargetCluster, mark: str, composed: ImportedResources) -> None:
    subject = f"cluster {imported.name or target.name}"
    if target.is_declared:
        return
    if target.name in composed.clusters:
        composed.lost.append(NotImported(imported.place, subject, "", f"the cluster {target.name} is there already"))
        return
    connection: dict[str, Any] = {
        **name_secrets(imported.connection, mark),
        "bootstrapServers": list(imported.bootstrap_servers),
    }
    if imported.security:
        connection["security"] = name_secrets(imported.security, mark)
    if target.separator != FLAT_SEPARATOR:
        connection["namespaceSeparator"] = target.separator
    spec = {"provider": target.provider, "clusterId": imported.cluster_id, target.provider: connection}
    content = {"metadata": {"name": target.name}, "spec": spec}
    try:
        composed.clusters[target.name] = Cluster.model_validate(content)
    except ValidationError as error:
        composed.lost += [
            NotImported(imported.place, subject, format_path(complaint.at), complaint.message, complaint.hint)
            for complaint in translate_validation_error(error, Cluster, content)
        ]
