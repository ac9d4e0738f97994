"""Capabilities of a Redpanda cluster: what its version, its licence and its properties permit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.planning.fields import CONFIGS, canonicalize_field
from reconciler.providers.brokers.faults import SECURITY_DISABLED
from reconciler.resources.acls import OPERATIONS, is_about_writing
from reconciler.resources.inventory import AccessControl, Capabilities
from reconciler.resources.kafka_configs import ConfigKey, ConfigType
from reconciler.resources.redpanda_configs import PROPERTY_OF, REDPANDA_INTERNAL, redpanda_configs

if TYPE_CHECKING:
    from reconciler.providers.brokers.cluster_facts import ClusterFacts
    from reconciler.providers.redpanda.admin_facts import AdminFacts

REDPANDA: Final = Capabilities(
    platform="redpanda",
    namespaces_are_rules=True,
    tiering_words="directions",
    tells_own=False,
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
    look: ClusterFacts, admin: AdminFacts, listed: Mapping[str, str], principal: str | None
) -> Capabilities:
    """Return the limits of a cluster; `listed`: configs of an existing topic, `principal`: see `AccessControl`."""
    bindings, acl_code = look.bindings
    configs = redpanda_configs(listed, admin.version)
    lacks = {"max_replication_factor": f"{len(look.cluster.brokers)} brokers are alive"}
    if (why := admin.explain_missing_tiering()) is not None:
        lacks |= dict.fromkeys(("tiering", "untiering", "mountings"), why)
    if acl_code:
        lacks["acls"] = (
            "no authorizer is configured"
            if acl_code == SECURITY_DISABLED
            else "the principal of reconciler may not see its access rules: it needs DESCRIBE on the cluster"
        )
    return replace(
        REDPANDA,
        tiering="tiering" not in lacks,
        untiering="untiering" not in lacks,
        mountings="mountings" not in lacks,
        acls=not acl_code,
        access=replace(
            REDPANDA.access,
            write_rules=frozenset(entry for entry in bindings if is_about_writing(entry)),
            principal=principal,
            is_open=admin.properties.get("kafka_enable_authorization") is False
            or not admin.properties.get("enable_sasl"),
        ),
        max_replication_factor=len(look.cluster.brokers),
        lacks=lacks,
        configs=configs,
        object_storage=admin.object_storage(),
        defaults=dict(_read_defaults(admin.properties, configs)),
        properties=dict(_read_property_keys(admin.admin.read_property_schema())),
    )


def _read_defaults(properties: Mapping[str, Any], configs: Mapping[str, ConfigKey]) -> Iterator[tuple[str, str]]:
    """Yield the default of each topic config that a cluster property determines; null is unlimited."""
    for key, names in PROPERTY_OF.items():
        name = next((name for name in names if name in properties), None)
        if name is None or key not in configs:
            continue
        value = properties[name]
        if value is None:
            if configs[key].minimum != -1:
                continue
            value = -1
        yield (
            key,
            str(
                canonicalize_field(
                    CONFIGS + key, str(value).lower() if value is True or value is False else str(value), configs
                )
            ),
        )


_TYPES: Final[Mapping[str, ConfigType]] = {"boolean": "boolean", "integer": "integer", "number": "double"}


def _read_property_keys(schema: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ConfigKey]]:
    for name, entry in sorted(schema.items()):
        kind = _TYPES.get(str(entry.get("type")), "string")
        values = tuple(map(str, entry.get("enum_values") or ()))
        if values and kind == "string":
            kind = "enum"
        yield name, ConfigKey(name, kind, values=values, description=str(entry.get("description", "")))
