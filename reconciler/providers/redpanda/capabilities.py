"""Capabilities of a Redpanda cluster: what its version, its licence and its properties permit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.planning.fields import CONFIGS, canonicalize_field
from reconciler.providers.brokers.cluster_facts import BY_JOBS
from reconciler.providers.brokers.translate import OWN, ConfigState, Dialect
from reconciler.providers.redpanda.admin_facts import FLOOR
from reconciler.providers.redpanda.properties import format_property
from reconciler.resources.acls import OPERATIONS
from reconciler.resources.configs import STORAGE_MODE
from reconciler.resources.inventory import NATIVE_LINKS, AccessControl, Capabilities, MirrorSupport
from reconciler.resources.kafka_configs import ConfigKey, ConfigType
from reconciler.resources.redpanda_configs import (
    PROPERTY_OF,
    REDPANDA_INTERNAL,
    WIRE_NAMES,
    list_later_configs,
    redpanda_configs,
)

if TYPE_CHECKING:
    from reconciler.providers.brokers.cluster_facts import ClusterFacts
    from reconciler.providers.redpanda.admin_facts import AdminFacts

DIALECT: Final = Dialect(
    "redpanda",
    tells_own=False,
    replication="config",
    records_at_once=None,
    config_names=WIRE_NAMES,
    unreported=frozenset(name for name, key in redpanda_configs((), FLOOR).items() if key.is_unreported),
    fixed_at_creation=frozenset({"remote.read", "remote.write", STORAGE_MODE}),
    has_odd_replicas=True,
    # Brokers that tier topics by default refuse a time for tombstones; without it they stay.
    ledger_configs={"delete.retention.ms": "-1"},
)
SHADOW_LINKS: Final = MirrorSupport(
    roles=frozenset({"mirroring", "failed-over"}),
    features=frozenset({"auto-create", "consumer-offset-sync", "acl-sync", "start-offset", "metadata-interval"}),
    max_links=1,
)
"""Mirrors that the cluster itself copies: neither paused nor promoted, under their sources' names (redpanda.md, R8)."""
_LACKS: Final = {
    "roles": "a shadow link mirrors a topic, or fails it over",
    "prefix": "a shadow link keeps the names of its source",
    "paused": "pausing a task of a shadow link stops that task alone, and records are still copied",
    "mirror-configs": "all configs of a shadow topic follow its source",
    "topic-config-sync": "a shadow link has its own list of configs, which rpk shadow update changes",
    "protect": "brokers refuse producers' records in a shadow topic anyway",
    "retry-timeout": "a shadow link has no such option",
    "bidirectional-mode": "a shadow link has one direction",
}
"""Why shadow links do not support a feature."""
REDPANDA: Final = Capabilities(
    platform=DIALECT.platform,
    namespaces_are_rules=True,
    tiering_words="directions",
    tells_own=DIALECT.tells_own,
    mirrors=BY_JOBS,
    acls=True,
    access=AccessControl(denies_are_final=True, operations=OPERATIONS),
    quotas=True,
    keeps_quotas=False,
    cluster_properties=True,
    internal_topics=REDPANDA_INTERNAL,
    batch=1_000,
)
"""The same in all versions; the rest is read from the cluster."""


def read_capabilities(
    look: ClusterFacts,
    admin: AdminFacts,
    listed: Mapping[str, ConfigState],
    principal: str | None,
    has_job_links: Callable[[], bool],
) -> Capabilities:
    """Return a cluster's limits; `listed`: configs of an existing topic, `principal`: see `AccessControl`."""
    configs = redpanda_configs(listed, admin.version)
    is_open = not admin.outage and (
        admin.properties.get("kafka_enable_authorization") is False or not admin.properties.get("enable_sasl")
    )
    shared = look.add_to(REDPANDA, principal, is_open=is_open)
    least = int(admin.properties.get("minimum_topic_replications") or 1)
    odd = range(least | 1, shared.replication_factors[-1] + 1, 2)
    why = admin.explain_missing_tiering()
    needing = ("cluster_properties",) if admin.outage else ("tiering", "untiering")
    missing = {} if why is None else dict.fromkeys((*needing, "mountings", "recovery"), why)
    mirrors, links_missing = _choose_mirrors(admin, has_job_links)
    later = {} if admin.outage else {CONFIGS + name: why for name, why in list_later_configs(admin.version).items()}
    return replace(
        shared,
        tiering="tiering" not in missing,
        untiering="untiering" not in missing,
        mountings="mountings" not in missing,
        recovery="recovery" not in missing,
        cluster_properties="cluster_properties" not in missing,
        mirrors=mirrors,
        lacks={**shared.lacks, **missing, **links_missing, **later},
        configs=configs,
        replication_factors=odd or shared.replication_factors,
        object_storage=admin.object_storage(),
        defaults={**_select_defaults(listed, configs), **dict(_read_defaults(admin.properties, configs))},
        properties=dict(_read_property_keys({} if admin.outage else admin.admin.read_property_schema())),
    )


def _select_defaults(listed: Mapping[str, ConfigState], configs: Mapping[str, ConfigKey]) -> dict[str, str]:
    return {
        key: str(canonicalize_field(CONFIGS + key, state.value, configs))
        for key, state in listed.items()
        if state.source != OWN and state.value is not None and key not in DIALECT.fixed_at_creation
    }


def _choose_mirrors(admin: AdminFacts, has_job_links: Callable[[], bool]) -> tuple[MirrorSupport, Mapping[str, str]]:
    """Choose jobs while shadow links are switched off, or if the cluster already has links that jobs copy."""
    why = admin.explain_missing_shadow_links()
    may_be_native = why is None or admin.wants_shadow_links or admin.outage is not None
    if not may_be_native or has_job_links():
        return BY_JOBS, {NATIVE_LINKS: why or "it has links that jobs copy"}
    is_native = why is None or admin.has_shadow_links()
    return (SHADOW_LINKS, _LACKS) if is_native else (MirrorSupport(), {"links": str(why)})


def _read_defaults(properties: Mapping[str, Any], configs: Mapping[str, ConfigKey]) -> Iterator[tuple[str, str]]:
    """Yield the defaults that cluster properties determine; null is unlimited."""
    for key, names in PROPERTY_OF.items():
        name = next((name for name in names if name in properties), None)
        if name is None or key not in configs or (properties[name] is None and configs[key].minimum != -1):
            continue
        value = "-1" if properties[name] is None else format_property(properties[name])
        yield key, str(canonicalize_field(CONFIGS + key, value, configs))


_TYPES: Final[Mapping[str, ConfigType]] = {"boolean": "boolean", "integer": "integer", "number": "double"}


def _read_property_keys(schema: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ConfigKey]]:
    for name, entry in sorted(schema.items()):
        kind = _TYPES.get(str(entry.get("type")), "string")
        values = tuple(map(str, entry.get("enum_values") or ()))
        if values and kind == "string":
            kind = "enum"
        aliases = tuple(map(str, entry.get("aliases") or ()))
        description = str(entry.get("description", ""))
        yield name, ConfigKey(name, kind, values=values, description=description, aliases=aliases)
