"""Options of shadow links, translated from and to the fields of a MirrorLink."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.providers.brokers.security import build_record_settings, reveal_secrets
from reconciler.resources.cluster import BrokersConnection
from reconciler.resources.kafka_configs import LEDGER
from reconciler.resources.mirror_link import NameFilter
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.planning.actions import Change
    from reconciler.providers.brokers.translate import ClusterNaming
    from reconciler.providers.protocol import Edge
    from reconciler.resources.mirror_link import AclFilter, MirrorLinkSpec

Json = Mapping[str, Any]

UNDECLARED: Final = "undeclared"
"""Name of a link's source that no Cluster declares."""
METADATA_MS: Final = 30_000
"""Redpanda's own interval in ms for all tasks of a link."""
_DEFAULT_METADATA_MS: Final = 300_000
_PATTERNS: Final = {"literal": "PATTERN_TYPE_LITERAL", "prefixed": "PATTERN_TYPE_PREFIX"}
_CHOICES: Final = {"FILTER_TYPE_INCLUDE": "include", "FILTER_TYPE_EXCLUDE": "exclude"}
_SECURITY: Final = {"SCRAM-SHA-256": "SCRAM_MECHANISM_SCRAM_SHA_256", "SCRAM-SHA-512": "SCRAM_MECHANISM_SCRAM_SHA_512"}
_OWN: Final = {"patternType": "PATTERN_TYPE_LITERAL", "filterType": "FILTER_TYPE_EXCLUDE", "name": LEDGER}
"""Filter of every link."""
TOPICS: Final = "topicMetadataSyncOptions"
FILTERS: Final = "autoCreateShadowTopicFilters"
_GROUPS: Final = "consumerOffsetSyncOptions"
_RULES: Final = "securitySyncOptions"
_PLACES: Final = {
    "autoCreate": (TOPICS, (FILTERS,)),
    "metadataInterval": (TOPICS, ("interval",)),
    "startOffset": (TOPICS, ("startAtEarliest", "startAtLatest", "startAtTimestamp")),
    "consumerOffsetSync": (_GROUPS, ("interval", "paused", "groupFilters")),
    "aclSync": (_RULES, ("interval", "paused", "aclFilters")),
}
"""Field of a MirrorLink → the group of options that holds it, and their names."""
_ACL_ENUMS: Final = {
    "resource_type": ("resourceType", "ACL_RESOURCE_"),
    "pattern_type": ("patternType", "ACL_PATTERN_"),
    "operation": ("operation", "ACL_OPERATION_"),
    "permission": ("permissionType", "ACL_PERMISSION_TYPE_"),
}
_ACL_WORDS: Final = {"delete": "remove", "transactional_id": "txn_id"}
"""Our words of access rules → Redpanda's."""


def build_literal_filter(name: str) -> dict[str, str]:
    """Return the filter that selects one topic."""
    return {"patternType": "PATTERN_TYPE_LITERAL", "filterType": "FILTER_TYPE_INCLUDE", "name": name}


@dataclass(frozen=True)
class LinkOptions:
    """Translates the options of one cluster's links."""

    cluster: str
    naming: ClusterNaming
    mirrors: Collection[str]
    """Full names of this cluster's mirrors declared or recorded one by one."""
    edge: Edge

    def build(self, spec: MirrorLinkSpec) -> dict[str, Any]:
        """Return all options of a new link, with its source's credentials."""
        return {"clientOptions": self._build_client(spec.source), **self.build_syncs(spec)}

    def build_syncs(self, spec: MirrorLinkSpec, *, entries: Sequence[Json] = ()) -> dict[str, dict[str, Any]]:
        """Return what a link syncs; `entries` are filters of single topics."""
        making, groups, rules = spec.auto_create, spec.consumer_offset_sync, spec.acl_sync
        filters = making.filters if making is not None and making.enabled else ()
        names = groups.filters if groups is not None and groups.enabled else ()
        acls = rules.filters if rules is not None and rules.enabled else ()
        is_default = spec.metadata_interval == _DEFAULT_METADATA_MS
        # Tasks are not paused: without a filter they have nothing to do.
        return {
            TOPICS: {
                "interval": "0s" if is_default else _duration(spec.metadata_interval),
                FILTERS: [*entries, *map(self._build_filter, filters), _OWN],
                "startAtLatest" if spec.start_offset == "latest" else "startAtEarliest": {},
            },
            _GROUPS: {
                "interval": _duration(METADATA_MS if groups is None else groups.interval),
                "paused": False,
                "groupFilters": [_build_name_filter(name_filter, name_filter.name) for name_filter in names],
            },
            _RULES: {
                "interval": _duration(METADATA_MS if rules is None else rules.interval),
                "paused": False,
                "aclFilters": [self._build_acl_filter(acl_filter) for acl_filter in acls],
            },
        }

    def to_declared(self, configurations: Json) -> dict[str, Any]:
        """Return a MirrorLink's fields for a link's options.

        Raises:
            ValueError: An option has an unknown value.
        """
        metadata = configurations.get(TOPICS) or {}
        interval_ms = _milliseconds(metadata.get("interval"))
        spec: dict[str, Any] = {
            "source": self._find_source(configurations.get("clientOptions") or {}),
            "startOffset": "latest" if "startAtLatest" in metadata else metadata.get("startAtTimestamp", "earliest"),
            "metadataInterval": interval_ms or _DEFAULT_METADATA_MS,
        }
        entries = self.select_entries(configurations)
        if filters := [row for row in self.read_filters(configurations) if row not in entries and row != _OWN]:
            spec["autoCreate"] = {"enabled": True, "filters": [self._parse_filter(row) for row in filters]}
        groups = configurations.get(_GROUPS) or {}
        if groups.get("groupFilters") and not groups.get("paused"):
            names = [_parse_name_filter(row, row.get("name", "")) for row in groups["groupFilters"]]
            spec["consumerOffsetSync"] = {"enabled": True, "interval": _read_interval_ms(groups), "filters": names}
        rules = configurations.get(_RULES) or {}
        if rules.get("aclFilters") and not rules.get("paused"):
            acls = [self._parse_acl_filter(row) for row in rules["aclFilters"]]
            spec["aclSync"] = {"enabled": True, "interval": _read_interval_ms(rules), "filters": acls}
        return spec

    def read_filters(self, configurations: Json) -> list[Json]:
        """Return the filters of a link's topics."""
        rows = (configurations.get(TOPICS) or {}).get(FILTERS) or ()
        return [{**row, "patternType": _unify_pattern(row.get("patternType"))} for row in rows]

    def select_entries(self, configurations: Json) -> list[Json]:
        """Return the filters that select a single declared mirror."""
        return [
            row
            for row in self.read_filters(configurations)
            if row == build_literal_filter(row.get("name", ""))
            and self.naming.to_full_name(row["name"]) in self.mirrors
        ]

    def change(self, current: Json, wanted: Json, changes: Iterable[Change]) -> dict[str, dict[str, Any]]:
        """Return the groups of options to write: current ones, with changed fields as in `wanted`.

        A group is written whole, because a field mask that names a list appends to it. Unknown options stay.
        """
        groups: dict[str, dict[str, Any]] = {}
        for change in changes:
            field = change.path.partition(".")[0]
            if field not in _PLACES:
                message = f"{field} of a shadow link cannot change"
                raise UserError(message, hint="Set it back in the files, and plan again.")
            group, names = _PLACES[field]
            options = groups.setdefault(group, dict(current.get(group) or {}))
            for name in names:
                options.pop(name, None)
                if name in wanted[group]:
                    options[name] = wanted[group][name]
        return groups

    def read_interval_s(self, configurations: Json) -> float:
        """Return the seconds between a link's searches for topics."""
        metadata = configurations.get(TOPICS) or {}
        return (_milliseconds(metadata.get("effectiveInterval") or metadata.get("interval")) or METADATA_MS) / 1000

    def _find_source(self, client: Json) -> str:
        """Return the declared cluster with the source's id or a common address."""
        servers, cluster_id = {*(client.get("bootstrapServers") or ())}, client.get("sourceClusterId")
        for name, cluster in sorted(self.edge.clusters.items()):
            connection = cluster.spec.connection
            is_known = cluster_id and cluster.spec.cluster_id == cluster_id
            is_near = isinstance(connection, BrokersConnection) and servers.intersection(connection.bootstrap_servers)
            if name != self.cluster and (is_known or is_near):
                return name
        return UNDECLARED

    def _build_client(self, source: str) -> dict[str, Any]:
        cluster = self.edge.clusters.get(source)
        if cluster is None or not isinstance(cluster.spec.connection, BrokersConnection):
            message = f"cluster {source} has no brokers from which a shadow link could copy"
            raise UserError(message, hint="Name a Cluster of platform kafka or redpanda as source.")
        settings = reveal_secrets(build_record_settings(cluster, self.edge))
        client: dict[str, Any] = {"bootstrapServers": settings["bootstrap.servers"].split(",")}
        if cluster.spec.cluster_id:
            client["sourceClusterId"] = cluster.spec.cluster_id
        if str(settings.get("security.protocol", "")).endswith("SSL"):
            files = {"ca": "ca", "cert": "certificate", "key": "key"}
            pems = {ours: settings.get(f"ssl.{theirs}.pem") for ours, theirs in files.items()}
            client["tlsSettings"] = {
                "enabled": True,
                "tlsPemSettings": {name: text for name, text in pems.items() if text},
            }
        mechanism = settings.get("sasl.mechanism")
        login = {"username": settings.get("sasl.username"), "password": settings.get("sasl.password")}
        if mechanism in _SECURITY:
            scram = {**login, "scramMechanism": _SECURITY[mechanism]}
            client["authenticationConfiguration"] = {"scramConfiguration": scram}
        elif mechanism == "PLAIN":
            client["authenticationConfiguration"] = {"plainConfiguration": login}
        elif mechanism is not None:
            message = f"a shadow link cannot log in to cluster {source} by {mechanism}"
            raise UserError(message, hint="Let cluster's security be SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN.")
        return client

    def _build_filter(self, name_filter: NameFilter) -> dict[str, str]:
        return _build_name_filter(name_filter, self.naming.to_physical(name_filter.name))

    def _parse_filter(self, row: Json) -> dict[str, str]:
        name = str(row.get("name", ""))
        is_prefix = row.get("patternType") == _PATTERNS["prefixed"]
        full = self._to_full_prefix(name) if is_prefix else self.naming.to_full_name(name)
        return _parse_name_filter(row, full)

    def _to_full_prefix(self, prefix: str) -> str:
        return self.naming.to_full_name(f"{prefix}x").removesuffix("x")

    def _build_acl_filter(self, acl_filter: AclFilter) -> dict[str, Any]:
        name = "" if acl_filter.resource_name == "*" else self.naming.to_physical(acl_filter.resource_name)
        values = {
            theirs: f"{prefix}{_to_acl_word(getattr(acl_filter, ours))}"
            for ours, (theirs, prefix) in _ACL_ENUMS.items()
        }
        values |= {"principal": _drop_any(acl_filter.principal), "host": _drop_any(acl_filter.host)}
        resource = {"resourceType": values.pop("resourceType"), "patternType": values.pop("patternType"), "name": name}
        return {"resourceFilter": _drop_empty(resource), "accessFilter": _drop_empty(values)}

    def _parse_acl_filter(self, row: Json) -> dict[str, str]:
        values = {**(row.get("resourceFilter") or {}), **(row.get("accessFilter") or {})}
        spec = {
            _to_alias(ours): _from_acl_word(str(values.get(theirs, "")).removeprefix(prefix))
            for ours, (theirs, prefix) in _ACL_ENUMS.items()
        }
        name = values.get("name") or "*"
        is_prefix = str(values.get("patternType", "")).endswith("PREFIXED")
        full = self._to_full_prefix(name) if is_prefix else self.naming.to_full_name(name)
        return {
            **spec,
            "resourceName": full,
            "principal": values.get("principal") or "*",
            "host": values.get("host") or "*",
        }


def _to_acl_word(word: str) -> str:
    unified = word.lower().replace("-", "_")
    return _ACL_WORDS.get(unified, unified).upper()


def _from_acl_word(word: str) -> str:
    ours = {theirs: ours for ours, theirs in _ACL_WORDS.items()}
    return ours.get(word.lower(), word.lower()).replace("_", "-") or "any"


def _to_alias(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _drop_any(value: str) -> str:
    return "" if value == "*" else value


def _drop_empty(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}


def _build_name_filter(name_filter: NameFilter, name: str) -> dict[str, str]:
    return {
        "patternType": _PATTERNS[name_filter.pattern_type],
        "filterType": f"FILTER_TYPE_{name_filter.filter_type.upper()}",
        "name": name,
    }


def _parse_name_filter(row: Json, name: str) -> dict[str, str]:
    patterns = {theirs: ours for ours, theirs in _PATTERNS.items()}
    pattern, choice = _unify_pattern(row.get("patternType")), str(row.get("filterType"))
    if pattern not in patterns or choice not in _CHOICES:
        message = f"a filter of {name!r} is of the unknown type {pattern}, {choice}"
        raise ValueError(message)
    return {"name": name, "patternType": patterns[pattern], "filterType": _CHOICES[choice]}


def _unify_pattern(pattern: object) -> str:
    """Unify the names of the prefix pattern."""
    return _PATTERNS["prefixed"] if str(pattern) == "PATTERN_TYPE_PREFIXED" else str(pattern)


def _duration(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g}s"


def _milliseconds(duration: object) -> int:
    """Return the ms of a duration such as `30s`; 0 if absent."""
    return round(float(str(duration or "0s").removesuffix("s")) * 1000)


def _read_interval_ms(options: Json) -> int:
    return _milliseconds(options.get("interval")) or _milliseconds(options.get("effectiveInterval")) or METADATA_MS
