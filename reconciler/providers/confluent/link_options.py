"""Configs of cluster links, translated from and to the fields of a MirrorLink (confluent.md, 5)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.providers.brokers.security import build_record_settings, reveal_secrets
from reconciler.resources.cluster import BrokersConnection
from reconciler.resources.kafka_configs import LEDGER
from reconciler.resources.mirror_link import SYNC_MS, TIMESTAMPS
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.planning.actions import Change
    from reconciler.providers.brokers.translate import ClusterNaming
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.mirror_link import MirrorLinkSpec

Json = Mapping[str, Any]
LinkConfigs = Mapping[str, str | None]
"""Values of the configs set on a link; `None` for a secret."""

UNDECLARED: Final = "undeclared"
"""Name of a link's source that no Cluster declares."""
LINK_MODE: Final = "link.mode"
CONNECTION_MODE: Final = "connection.mode"
SERVERS: Final = "bootstrap.servers"
_MODES: Final = {
    "destination": ("DESTINATION", "OUTBOUND"),
    "source": ("DESTINATION", "INBOUND"),
    "bidirectional": ("BIDIRECTIONAL", "OUTBOUND"),
}
"""Link mode and connection mode of the half that has the mirrors."""

_CONFIGS: Final = {
    "paused": "cluster.link.paused",
    "startOffset": "mirror.start.offset.spec",
    "retryTimeout": "cluster.link.retry.timeout.ms",
    "metadataInterval": "metadata.max.age.ms",
    "autoCreate.filters": "auto.create.mirror.topics.filters",
    "autoCreate.enabled": "auto.create.mirror.topics.enable",
    "consumerOffsetSync.filters": "consumer.offset.group.filters",
    "consumerOffsetSync.interval": "consumer.offset.sync.ms",
    "consumerOffsetSync.prefixGroups": "consumer.group.prefix.enable",
    "consumerOffsetSync.enabled": "consumer.offset.sync.enable",
    "aclSync.filters": "acl.filters",
    "aclSync.interval": "acl.sync.ms",
    "aclSync.enabled": "acl.sync.enable",
    "topicConfigSync.interval": "topic.config.sync.ms",
    "topicConfigSync.include": "topic.config.sync.include",
}
"""Config by the field of a MirrorLink that can change. Filters precede the switch that requires them."""
_DEFAULTS: Final[Json] = {
    "paused": False,
    "startOffset": "earliest",
    "retryTimeout": 300_000,
    "metadataInterval": 300_000,
    "consumerOffsetSync.interval": 30_000,
    "consumerOffsetSync.prefixGroups": False,
    "aclSync.interval": SYNC_MS,
}
_TASKS: Final = {"autoCreate": "topicFilters", "consumerOffsetSync": "groupFilters", "aclSync": "aclFilters"}
"""Name of the list of filters in a config, by the field of a task."""
_INCLUDE: Final = "topicConfigSync.include"
_PREFIX: Final = "cluster.link.prefix"
_LOCAL: Final = "local."
_SOURCE_HALF: Final = {LINK_MODE: "SOURCE", CONNECTION_MODE: "OUTBOUND"}
_SWITCHES: Final = frozenset(config for config in _CONFIGS.values() if config.endswith((".enable", ".paused")))
_OWN: Final = [{"name": name, "patternType": "LITERAL", "filterType": "EXCLUDE"} for name in (LEDGER, TIMESTAMPS)]
"""Last filters of every link that creates mirrors."""

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PEMS: Final = {
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""Java's setting by librdkafka's."""
_STORE_TYPES: Final = {"ssl.ca.pem": "ssl.truststore.type", "ssl.certificate.pem": "ssl.keystore.type"}
_LOGIN: Final = ("security.protocol", "sasl.mechanism", "sasl.jaas.config")
_CLIENT: Final = frozenset((SERVERS, *_LOGIN, *_PEMS.values(), *_STORE_TYPES.values()))


def select_set_configs(rows: Iterable[Json]) -> dict[str, str | None]:
    """Return the configs set on a link, without defaults, for rows of `GET /links/{link}/configs`."""
    # Older versions of Confluent Platform write `default`.
    return {row["name"]: row.get("value") for row in rows if not row.get("is_default", row.get("default"))}


@dataclass(frozen=True)
class LinkOptions:
    """Translates the configs of one cluster's links."""

    cluster: str
    naming: ClusterNaming
    edge: Edge

    def build(self, spec: MirrorLinkSpec, source_cluster_id: str | None = None) -> dict[str, Any]:
        """Return the request body that creates a link, with the source's credentials.

        Of a link of mode `source`, it creates the destination's half, which has no credentials.
        `source_cluster_id` is used if the source's Cluster declares no id.
        """
        key = "remote_cluster_id" if spec.mode == "bidirectional" else "source_cluster_id"
        client = {} if spec.mode == "source" else self._build_client(spec.source)
        return {
            key: self._require_id(spec.source, source_cluster_id),
            "configs": _build_rows({**self.build_configs(spec), **client}),
        }

    def build_source_half(self, spec: MirrorLinkSpec) -> dict[str, Any]:
        """Return the request body that creates the source's half of a link of mode `source`, with both logins.

        The half's `source` names the destination, as the other half of a planned link does.
        """
        return {
            "destination_cluster_id": self._require_id(spec.source, None),
            "configs": _build_rows({**_SOURCE_HALF, **self._build_source_client(spec)}),
        }

    def build_configs(self, spec: MirrorLinkSpec) -> dict[str, str]:
        """Return a link's modes, and its configs that differ from their defaults, without credentials."""
        link_mode, connection_mode = _MODES[spec.mode]
        fields: dict[str, Any] = {}
        for field, value in spec.to_json().items():
            if field in _TASKS and value["enabled"]:
                fields |= _flatten(field, {**value, "filters": self._build_filters(field, value["filters"])})
            elif field == "topicConfigSync":
                fields |= _flatten(field, {**value, "include": ",".join(value["include"])})
            else:
                fields[field] = value
        configs = {
            config: str(fields[field]).lower() if config in _SWITCHES else str(fields[field])
            for field, config in _CONFIGS.items()
            if field in fields and fields[field] != _DEFAULTS.get(field)
        }
        prefix = {_PREFIX: spec.prefix} if spec.prefix else {}
        return {LINK_MODE: link_mode, CONNECTION_MODE: connection_mode, **prefix, **configs}

    def to_declared(
        self, configs: LinkConfigs, source_cluster_id: str | None, remote_cluster_id: str | None = None
    ) -> dict[str, Any]:
        """Return a MirrorLink's fields for the configs set on a link. Unset and unknown configs are left out.

        `remote_cluster_id`: of a bidirectional link, or the destination's id of a source's half.

        Raises:
            ValueError: A config has an unknown value.
        """
        values = {name: value for name, value in configs.items() if value}
        source = self._find_source(values, source_cluster_id or remote_cluster_id)
        spec: dict[str, Any] = {"source": source, "mode": _parse_mode(values), "prefix": values.get(_PREFIX, "")}
        for path, config in _CONFIGS.items():
            if config in values:
                field, _, name = path.partition(".")
                value = self._parse_value(path, values[config])
                if name:
                    spec.setdefault(field, {})[name] = value
                else:
                    spec[field] = value
        for field in _TASKS:
            task = {"filters": [], **spec.pop(field, {})}
            # Without filters, ACL sync reports an error. The other tasks do nothing, and are as good as disabled.
            if task.get("enabled") and (task["filters"] or field == "aclSync"):
                spec[field] = task
        if spec.get("topicConfigSync") == {"interval": SYNC_MS}:
            del spec["topicConfigSync"]  # A default: a declared interval is always written with a list of configs.
        return spec

    def change(
        self, current: LinkConfigs, spec_after: MirrorLinkSpec, changes: Sequence[Change]
    ) -> list[dict[str, str]]:
        """Return the alterations of configs whose fields change; others stay. Empty if all are in place."""
        for change in changes:
            if change.path not in _CONFIGS:
                message = f"{change.path} of a cluster link cannot change"
                raise UserError(message, hint="Set it back in the files, and plan again.")
        changed = {change.path for change in changes}
        off = dict.fromkeys(_SWITCHES, "false")
        after = {**off, **self.build_configs(spec_after)}
        wanted = {config: after.get(config) for field, config in _CONFIGS.items() if field in changed}
        return _build_alterations({**off, **current}, wanted)

    def rotate(self, current: LinkConfigs, spec: MirrorLinkSpec) -> list[dict[str, str]]:
        """Return the alterations that give a link the declared addresses and credentials of its clusters."""
        if current.get(LINK_MODE) == "SOURCE":
            client = self._build_source_client(spec)
        elif spec.mode == "source":
            return []
        else:
            client = self._build_client(spec.source)
        unused = [name for name in current if name.removeprefix(_LOCAL) in _CLIENT and name not in client]
        return _build_alterations(current, {**client, **dict.fromkeys(unused)})

    def _build_filters(self, task: str, filters: Iterable[Json]) -> str:
        rows: list[Json]
        if task == "aclSync":
            rows = [build_acl_filter(row, self.naming) for row in filters]
        else:
            rows = [{**row, **{key: row[key].upper() for key in _FILTER_WORDS}} for row in filters]
        if task == "autoCreate":
            rows = [{**row, "name": self.naming.to_physical(row["name"])} for row in rows]
            rows += [row for row in _OWN if row not in rows]
        return json.dumps({_TASKS[task]: rows}, separators=(",", ":"))

    def _parse_filters(self, task: str, text: str) -> list[dict[str, str]]:
        document = json.loads(text)
        rows = document.get(_TASKS[task], []) if isinstance(document, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            message = f"{_CONFIGS[f'{task}.filters']} is no list of filters"
            raise ValueError(message)
        if task == "aclSync":
            return [parse_acl_filter(row, self.naming) for row in rows]
        if task == "consumerOffsetSync":
            return [_parse_filter(row, str(row.get("name"))) for row in rows]
        return [
            _parse_filter(row, _to_full_name(str(row.get("name")), row.get("patternType"), self.naming))
            for row in _drop_own(rows)
        ]

    def _parse_value(self, path: str, value: str) -> object:
        field, _, name = path.partition(".")
        if name == "filters":
            return self._parse_filters(field, value)
        if path == _INCLUDE:
            return [key.strip() for key in value.split(",")]
        if _CONFIGS[path] in _SWITCHES:
            return value.lower() == "true"
        return value if path == "startOffset" else int(value)

    def _find_source(self, values: Mapping[str, str], cluster_id: str | None) -> str:
        """Return the declared cluster with the source's id, else one of unknown id with a common address."""
        others = {name: cluster for name, cluster in sorted(self.edge.clusters.items()) if name != self.cluster}
        servers = {_strip_protocol(server) for server in values.get(SERVERS, "").split(",")}
        known = [name for name, cluster in others.items() if cluster_id and _find_id(cluster) == cluster_id]
        near = [
            name
            for name, cluster in others.items()
            if not (cluster_id and _find_id(cluster))
            and isinstance(cluster.spec.connection, BrokersConnection)
            and servers.intersection(map(_strip_protocol, cluster.spec.connection.bootstrap_servers))
        ]
        return next(iter([*known, *near]), UNDECLARED)

    def _require_id(self, name: str, cluster_id: str | None) -> str:
        cluster = self.edge.clusters.get(name)
        cluster_id = (_find_id(cluster) if cluster is not None else None) or cluster_id
        if cluster_id is None:
            message = f"the id of cluster {name}, which a cluster link needs, is unknown"
            raise UserError(message, hint=f"Set spec.clusterId of cluster {name}.")
        return cluster_id

    def _build_source_client(self, spec: MirrorLinkSpec) -> dict[str, str]:
        local = {f"{_LOCAL}{name}": text for name, text in self._build_client(self.cluster).items() if name != SERVERS}
        return {**self._build_client(spec.source), **local}

    def _build_client(self, name: str) -> dict[str, str]:
        """Return a Java client's settings for a declared cluster, with plaintext secrets."""
        cluster = self.edge.clusters.get(name)
        connection = None if cluster is None else cluster.spec.connection
        if cluster is None or not isinstance(connection, BrokersConnection):
            message = f"cluster {name} has no brokers to which a cluster link could connect"
            raise UserError(message, hint="Name a Cluster of platform kafka, redpanda or confluent.")
        settings = build_record_settings(cluster, self.edge)
        mechanism = settings.get("sasl.mechanism")
        if mechanism is not None and mechanism not in _LOGIN_MODULES:
            message = f"a cluster link cannot log in to cluster {name} by {mechanism}"
            raise UserError(message, hint="Let cluster's security be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
        settings = reveal_secrets(settings)
        client = {
            SERVERS: settings["bootstrap.servers"],
            "security.protocol": settings.get("security.protocol", "PLAINTEXT"),
        }
        if mechanism is not None:
            login = f"username={_quote(settings['sasl.username'])} password={_quote(settings['sasl.password'])}"
            client["sasl.mechanism"] = mechanism
            client["sasl.jaas.config"] = f"{_LOGIN_MODULES[mechanism]} required {login};"
        if "BEGIN PRIVATE KEY" not in (settings.get("ssl.key.pem") or "BEGIN PRIVATE KEY"):
            message = f"the key of cluster {name} is not in PKCS #8, the only form that a cluster link reads"
            raise UserError(message, hint="Convert the key with: openssl pkcs8 -topk8 -nocrypt")
        client |= {store: "PEM" for ours, store in _STORE_TYPES.items() if ours in settings}
        return client | {theirs: settings[ours] for ours, theirs in _PEMS.items() if ours in settings}


_FILTER_WORDS: Final = {"patternType": {"literal", "prefixed"}, "filterType": {"include", "exclude"}}
_ACL_FIELDS: Final = {
    "resourceType": ("resourceFilter", "resourceType"),
    "resourceName": ("resourceFilter", "name"),
    "patternType": ("resourceFilter", "patternType"),
    "principal": ("accessFilter", "principal"),
    "host": ("accessFilter", "host"),
    "operation": ("accessFilter", "operation"),
    "permission": ("accessFilter", "permissionType"),
}
"""Part and name in Confluent's JSON, by the field of an ACL filter."""
_ACL_NAMES: Final = frozenset({"resourceName", "principal", "host"})
"""Fields that match anything if they are absent from Confluent's JSON. The others are words."""


def build_acl_filter(acl_filter: Json, naming: ClusterNaming) -> dict[str, dict[str, str]]:
    """Return Confluent's form of an ACL filter in the form of files."""
    parts: dict[str, dict[str, str]] = {"resourceFilter": {}, "accessFilter": {}}
    for field, (part, name) in _ACL_FIELDS.items():
        value = str(acl_filter[field])
        if field not in _ACL_NAMES:
            parts[part][name] = "ANY" if value == "*" else value.replace("-", "_").upper()
        elif value != "*":
            parts[part][name] = naming.to_physical(value) if field == "resourceName" else value
    return parts


def parse_acl_filter(row: Json, naming: ClusterNaming) -> dict[str, str]:
    """Return an ACL filter in the form of files. Words may be in any case."""
    values = {field: (row.get(part) or {}).get(name) for field, (part, name) in _ACL_FIELDS.items()}
    spec = {
        field: value or "*" if field in _ACL_NAMES else str(value or "any").lower().replace("_", "-")
        for field, value in values.items()
    }
    return {**spec, "resourceName": _to_full_name(spec["resourceName"], spec["patternType"], naming)}


def _to_full_name(name: str, pattern: object, naming: ClusterNaming) -> str:
    if str(pattern).upper() == "PREFIXED":
        return naming.to_full_name(f"{name}x").removesuffix("x")
    return naming.to_full_name(name)


def _flatten(field: str, values: Json) -> dict[str, Any]:
    return {f"{field}.{name}": value for name, value in values.items()}


def _parse_filter(row: Json, name: str) -> dict[str, str]:
    words = {key: str(row.get(key)).lower() for key in _FILTER_WORDS}
    if any(word not in _FILTER_WORDS[key] for key, word in words.items()):
        message = f"a filter of {name!r} is of the unknown type {', '.join(words.values())}"
        raise ValueError(message)
    return {"name": name, **words}


def _drop_own(rows: list[Json]) -> list[Json]:
    """Return the filters without ours, which are the last: the user may exclude the same topics before them."""
    if _OWN[0] not in rows:
        return rows
    at = rows.index(_OWN[0])
    return [*rows[:at], *(row for row in rows[at:] if row not in _OWN)]


def _parse_mode(values: Mapping[str, str]) -> str:
    modes = values.get(LINK_MODE, "DESTINATION"), values.get(CONNECTION_MODE, "OUTBOUND")
    if modes[0] in {"SOURCE", "BIDIRECTIONAL"}:
        return modes[0].lower()
    known = {theirs: ours for ours, theirs in _MODES.items()}
    if modes not in known:
        message = f"a link is of the unknown mode {', '.join(modes)}"
        raise ValueError(message)
    return known[modes]


def _find_id(cluster: Cluster) -> str | None:
    confluent = cluster.spec.confluent
    return (confluent.cluster_id if confluent is not None else None) or cluster.spec.cluster_id


def _strip_protocol(server: str) -> str:
    return server.strip().rpartition("://")[2].lower()


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _build_rows(configs: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in configs.items()]


def _build_alterations(current: LinkConfigs, wanted: LinkConfigs) -> list[dict[str, str]]:
    """Return rows for `configs:alter`. Tasks are disabled before their filters are deleted."""
    rows = [
        {"name": name, "operation": "DELETE"} if value is None else {"name": name, "value": value, "operation": "SET"}
        for name, value in wanted.items()
        if (name in current if value is None else current.get(name) != value)
    ]
    return sorted(rows, key=lambda row: row.get("value") != "false")
