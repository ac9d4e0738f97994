"""Import the resources of Confluent's Terraform provider.

A state stores each block as a list of one mapping. Blocks named `credentials` are never read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from reconciler.importers.base import (
    NO_TEXT,
    Fields,
    ImportedCluster,
    ImportedLink,
    ImportedMirror,
    SourceReading,
)
from reconciler.lifecycles import Role
from reconciler.resources.acls import fold_case

CLUSTER: Final = "confluent_kafka_cluster"
CLUSTER_DATA: Final = f"data.{CLUSTER}"
KINDS: Final = frozenset(
    {
        CLUSTER,
        CLUSTER_DATA,
        "confluent_cluster_link",
        "confluent_kafka_cluster_config",
        "confluent_kafka_mirror_topic",
    }
)
_PLATFORM: Final = "confluent"
_API_KEY: Final = {"apiKey": "${env:CONFLUENT_KEY}", "apiSecret": "${env:CONFLUENT_SECRET}"}
_KINDS: Final = ("basic", "standard", "enterprise", "dedicated", "freight")
"""Blocks of a cluster, of which the one of its kind is set."""
_CLUSTER_STAYS: Final = "the cluster itself is not managed here; only its addresses are read"
_ROLES: Final[Mapping[str, Role]] = {
    "ACTIVE": "mirroring",
    "LINK_PAUSED": "mirroring",
    "SOURCE_UNAVAILABLE": "mirroring",
    "PAUSED": "paused",
    "PENDING_STOPPED": "promoted",
    "PROMOTED": "promoted",
    "STOPPED": "promoted",
    "FAILED_OVER": "failed-over",
}
_STOPPED: Final = (
    "STOPPED does not say whether it was promoted or failed over; promoted is written, and plans treat both alike"
)
_MODES: Final = {"DESTINATION": "destination", "SOURCE": "source", "BIDIRECTIONAL": "bidirectional"}
_PROPERTIES_STAY: Final = "properties of Confluent clusters are not managed; they stay as they are"
_INBOUND: Final = "which half of a bidirectional link connects is not declared here; the link stays as it is"


def import_resource(kind: str, fields: Fields) -> None:
    """Import a cluster, its config, a link or a mirror."""
    match kind:
        case "confluent_cluster_link":
            _import_link(fields)
        case "confluent_kafka_mirror_topic":
            _import_mirror(fields)
        case "confluent_kafka_cluster_config":
            read_cluster(fields)
            fields.report_inexpressible("config", _PROPERTIES_STAY)
            fields.ignore_keys("config")
        case _:
            _add_cluster(fields.read_text("id") or "", fields)
            if kind == CLUSTER:
                fields.report_inexpressible("", _CLUSTER_STAYS)
            fields.ignore_keys(*fields.content)


def join_clusters(reading: SourceReading) -> None:
    """Join what several resources say of each cluster; drop clusters without a REST endpoint."""
    joined: dict[str, ImportedCluster] = {}
    for cluster in reading.clusters:
        known = joined.get(cluster.name, cluster)
        joined[cluster.name] = replace(
            known,
            bootstrap_servers=known.bootstrap_servers or cluster.bootstrap_servers,
            connection={**cluster.connection, **known.connection},
        )
    reading.clusters = [item for item in joined.values() if "restEndpoint" in item.connection]


def read_cluster(fields: Fields) -> str:
    """Return the id of a resource's cluster, and store its addresses."""
    # Without the block, the cluster is configured in the provider, and only the resource's id names it.
    name = _read_block(fields, "kafka_cluster", "id") or (fields.read_text("id") or "").partition("/")[0]
    fields.ignore_keys("credentials")
    return _add_cluster(name, fields)


def _add_cluster(name: str, at: Fields) -> str:
    endpoint = at.read_text("rest_endpoint") or at.read_text("http_endpoint")
    servers = at.read_text("bootstrap_endpoint")
    kind = next(filter(at.content.get, _KINDS), None)
    at.reading.platforms[name] = _PLATFORM
    at.reading.clusters.append(
        ImportedCluster(
            name=name,
            place=at.place,
            bootstrap_servers=(servers.rpartition("://")[2],) if servers else (),
            connection={
                **({"restEndpoint": endpoint} if endpoint else {}),
                "clusterId": name,
                **({"kind": kind} if kind else {}),
                **_API_KEY,
            },
        )
    )
    return name


def _read_block(fields: Fields, key: str, name: str) -> str | None:
    block = next(fields.iterate_mappings(key), None)
    return block.read_text(name) if block is not None else None


def _read_cluster_block(fields: Fields, key: str) -> str | None:
    for block in fields.iterate_mappings(key):
        if name := block.read_text("id"):
            block.ignore_keys("credentials")
            _add_cluster(name, block)
            block.report_unread()
            return name
    return None


def _import_mirror(fields: Fields) -> None:
    cluster = _read_cluster_block(fields, "kafka_cluster")
    link, source = (
        _read_block(fields, "cluster_link", "link_name"),
        _read_block(fields, "source_kafka_topic", "topic_name"),
    )
    name, status = fields.read_text("mirror_topic_name") or "", fields.read_text("status") or "ACTIVE"
    if cluster is None or link is None or source is None:
        fields.report_lost("", "it does not name its cluster, link and source topic")
        return
    if status == "STOPPED":
        fields.report_inexpressible("status", _STOPPED)
    elif status not in _ROLES:
        fields.report_inexpressible("status", f"{status} is not a role of a mirror; mirroring is written")
    state, place = _ROLES.get(status, "mirroring"), fields.place
    fields.reading.mirrors.append(
        ImportedMirror(
            source=source, name=name, place=place, subject=fields.subject, cluster=cluster, link=link, state=state
        )
    )


def _import_link(fields: Fields) -> None:
    name, mode = fields.read_text("link_name"), _MODES.get((fields.read_text("link_mode") or "DESTINATION").upper())
    is_inbound, is_source_half = fields.read_text("connection_mode") == "INBOUND", mode == "source"
    fields.ignore_keys("cluster_link_id")
    ends = ("local", "remote") if mode == "bidirectional" else ("destination", "source")
    cluster, source = (_read_cluster_block(fields, f"{end}_kafka_cluster") for end in ends)
    if mode == "bidirectional" and is_inbound:
        fields.report_inexpressible("connection_mode", _INBOUND)
    elif is_inbound and mode is not None:
        mode = "source"
    settings = {"mode": mode, **_read_settings(fields)}
    if name is None or mode is None or cluster is None or source is None:
        fields.report_lost("", "it does not have a known mode, a name and both clusters")
        return
    known = fields.reading.links.get((cluster, name))
    if known is not None:
        # A link that its source opens is two resources. The settings of the destination's half take precedence.
        settings = {**settings, **known.settings} if is_source_half else {**known.settings, **settings}
    fields.reading.links[cluster, name] = ImportedLink(
        name=name, place=fields.place, subject=fields.subject, cluster=cluster, source=source, settings=settings
    )


def _read_words(config: Fields, key: str) -> list[str]:
    return [word.strip() for word in (config.read_text(key) or "").split(",") if word.strip()]


_NAME_WORDS: Final = {"name": "name", "patternType": "patternType", "filterType": "filterType"}
_ACL_WORDS: Final = {
    **{word: word for word in ("resourceType", "patternType", "operation", "principal", "host")},
    "name": "resourceName",
    "permissionType": "permission",
}
_FILTER_LISTS: Final = {"topicFilters": _NAME_WORDS, "groupFilters": _NAME_WORDS, "aclFilters": _ACL_WORDS}
_UNFOLDED: Final = frozenset({"name", "resourceName", "principal", "host"})


def _read_filters(config: Fields, key: str) -> list[dict[str, Any]]:
    try:
        content = json.loads(config.read_text(key) or "{}")
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        config.report_lost(key, "is not a JSON object with filters")
        return []
    whole = Fields(content, config.reading, lambda _: config.place, subject=config.subject, path=("config", key))
    filters = [
        _read_filter(entry, words) for name, words in _FILTER_LISTS.items() for entry in whole.iterate_mappings(name)
    ]
    whole.report_unread()
    return filters


def _read_filter(entry: Fields, names: Mapping[str, str]) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for part in (entry, entry.read_mapping("resourceFilter"), entry.read_mapping("accessFilter")):
        for theirs, ours in names.items() if part is not None else ():
            if part is not None and (value := part.read_text(theirs)) is not None:
                words[ours] = value if ours in _UNFOLDED else fold_case(value)
        if part is not None:
            part.report_unread()
    return words


_SETTINGS: Final[Mapping[str, tuple[str, Callable[[Fields, str], Any]]]] = {
    "acl.filters": ("aclSync.filters", _read_filters),
    "acl.sync.enable": ("aclSync.enabled", Fields.read_flag),
    "acl.sync.ms": ("aclSync.interval", Fields.read_number),
    "auto.create.mirror.topics.enable": ("autoCreate.enabled", Fields.read_flag),
    "auto.create.mirror.topics.filters": ("autoCreate.filters", _read_filters),
    "cluster.link.paused": ("paused", Fields.read_flag),
    "cluster.link.prefix": ("prefix", Fields.read_text),
    "cluster.link.retry.timeout.ms": ("retryTimeout", Fields.read_number),
    "consumer.group.prefix.enable": ("consumerOffsetSync.prefixGroups", Fields.read_flag),
    "consumer.offset.group.filters": ("consumerOffsetSync.filters", _read_filters),
    "consumer.offset.sync.enable": ("consumerOffsetSync.enabled", Fields.read_flag),
    "consumer.offset.sync.ms": ("consumerOffsetSync.interval", Fields.read_number),
    "metadata.max.age.ms": ("metadataInterval", Fields.read_number),
    "mirror.start.offset.spec": ("startOffset", Fields.read_text),
    "topic.config.sync.include": ("topicConfigSync.include", _read_words),
    "topic.config.sync.ms": ("topicConfigSync.interval", Fields.read_number),
}
"""Path in the link's `spec` and reader, by key of `config`."""


def _read_settings(fields: Fields) -> dict[str, Any]:
    config = fields.read_mapping("config")
    if config is None:
        return {}
    settings: dict[str, Any] = {}
    for key, (path, read) in _SETTINGS.items():
        section, _, name = path.rpartition(".")
        if (value := read(config, key)) not in (None, []):
            (settings.setdefault(section, {}) if section else settings)[name] = value
    config.report_unread(NO_TEXT, is_expressible=False)
    return settings
