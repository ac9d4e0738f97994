"""Capabilities of a Confluent cluster: what its kind permits, and what it reports of new topics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, NotFoundError, UserError
from reconciler.planning.fields import ALL_LINK_FEATURES, CONFIGS, KEEP_DIVERGED, canonicalize_field
from reconciler.providers.brokers.cluster_facts import BY_JOBS
from reconciler.providers.brokers.translate import Dialect
from reconciler.providers.confluent.kafka_over_rest import TIER_NAMES
from reconciler.resources.acls import OPERATIONS
from reconciler.resources.inventory import NATIVE_LINKS, AccessControl, Capabilities, MirrorSupport
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, KAFKA_INTERNAL, build_kafka_catalog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.brokers.cluster_facts import ClusterFacts
    from reconciler.providers.brokers.translate import ConfigState
    from reconciler.providers.confluent.client import RestClient
    from reconciler.providers.confluent.kafka_over_rest import RestKafkaClient
    from reconciler.providers.confluent.kinds import ClusterKind

DIALECT: Final = Dialect(
    "confluent",
    tells_own=True,
    replication="reassignment",
    records_at_once=None,
    config_names=TIER_NAMES,
    # Cloud has segments of 50 MiB at least, and its own ratio for the cleaner.
    ledger_configs={"segment.bytes": str(50 << 20), "min.cleanable.dirty.ratio": None},
)
_FEATURES: Final = ALL_LINK_FEATURES - {KEEP_DIVERGED, "protect"} | {
    "bidirectional-mode",
    "source-mode",
    "force-delete",
}
_CLOUD_REPLICAS: Final = 3
_TIERING: Final = "remote.storage.enable"
_ONLY_PLATFORM: Final = "Confluent Cloud does not pause links: pause its mirrors, with state: paused"
_CONFLUENT: Final = Capabilities(
    platform=DIALECT.platform,
    namespaces_are_rules=True,
    untiering=False,
    tiering_words="kip-405",
    acls=True,
    access=AccessControl(denies_are_final=True, operations=OPERATIONS, is_open=False),
    keeps_quotas=False,
    replication_change=False,
    internal_topics=KAFKA_INTERNAL,
    batch=1_000,
)
"""The same for all kinds and versions."""


def read_capabilities(client: RestKafkaClient, look: ClusterFacts, kind: ClusterKind) -> Capabilities:
    """Return a cluster's limits."""
    _, code = look.bindings
    lacks = {"acls": "this login may not see access rules"} if code else {}
    links, missing = _choose_links(kind)
    if kind.is_cloud:
        lacks["replication_factors"] = "Confluent Cloud sets it itself"
    listed = _read_defaults(client)
    configs = dict(build_kafka_catalog(listed or KAFKA_CONFIGS, "4.0"))
    for ours, theirs in TIER_NAMES.items():
        if ours in listed:
            configs[ours] = replace(configs[ours], default=listed[ours].value, minimum=-1, aliases=(theirs,))
        elif kind.is_cloud:
            configs.pop(ours, None)
            lacks[CONFIGS + theirs] = lacks["tiering"] = (
                "Confluent Cloud keeps the records of all topics in its own tiers"
            )
    brokers = len(look.cluster.brokers) or _CLOUD_REPLICAS
    defaults = {
        key: str(canonicalize_field(CONFIGS + key, state.value, configs))
        for key, state in listed.items()
        if state.value is not None
    }
    fixed = {key: f"{kind.name} sets it itself" for key, state in listed.items() if state.is_read_only}
    return replace(
        _CONFLUENT,
        acls=not code,
        tiering=_TIERING in listed,
        mirrors=links,
        replication_factors=(_CLOUD_REPLICAS,) if kind.is_cloud else range(1, brokers + 1),
        lacks={
            **lacks,
            **missing,
            **{CONFIGS + key: why for key, why in fixed.items()},
            "untiering": "Confluent does not document what becomes of its records in object storage",
            "replication_change": "the REST API has no way to change it",
        },
        configs={key: config for key, config in configs.items() if key not in fixed},
        defaults=defaults,
    )


def check_kind(kind: ClusterKind, rest: RestClient, declared: str | None) -> ClusterKind:
    """Return the kind of a Cloud cluster, with what the cluster says of links; reject a kind that it is not."""
    may_be_destination = rest.may_have_links()
    if may_be_destination is None or may_be_destination is kind.may_be_destination:
        return kind
    if declared is None:
        return kind if may_be_destination else replace(kind, name=f"{kind.name} of this kind", may_be_destination=False)
    what = "can be the destination of links" if may_be_destination else "says that cluster linking is disabled on it"
    message = f"cluster {rest.name}: kind is {declared}, and the cluster {what}"
    raise UserError(message, hint="Correct kind of the Cluster.")


def _choose_links(kind: ClusterKind) -> tuple[MirrorSupport, Mapping[str, str]]:
    if kind.may_be_destination is False:
        return BY_JOBS, {NATIVE_LINKS: f"{kind.name} cannot be the destination of cluster links"}
    features, missing = set(_FEATURES), dict[str, str]()
    if kind.is_cloud:
        features.discard("paused")
        missing["paused"] = _ONLY_PLATFORM
    for field, config in (
        ("retry-timeout", "cluster.link.retry.timeout.ms"),
        ("metadata-interval", "metadata.max.age.ms"),
    ):
        if config in kind.read_only_link_configs:
            features.discard(field)
            missing[field] = f"{config} is read-only on {kind.name}"
    roles = BY_JOBS.roles | {"reversed"} if kind.may_swap_roles else BY_JOBS.roles
    if not kind.may_swap_roles:
        missing["reversed"] = f"{kind.name} cannot swap the roles of mirrors: both clusters must be Dedicated"
    return MirrorSupport(roles=roles, features=frozenset(features)), missing


def _read_defaults(client: RestKafkaClient) -> Mapping[str, ConfigState]:
    try:
        return client.read_default_configs()
    except (NotFoundError, NotAuthorizedError):  # Older versions of Platform do not report them.
        return {}
