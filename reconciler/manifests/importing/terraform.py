"""Resources of the Terraform provider Mongey/kafka, whichever file says them: topics, access rules and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.manifests.importing.found import FoundTopic
from reconciler.manifests.importing.rules import SaidRule
from reconciler.manifests.importing.wording import NO_CLIENT_QUOTA, NO_CREDENTIALS

if TYPE_CHECKING:
    from reconciler.manifests.importing.fields import Fields

KINDS: Final = frozenset(
    {"kafka_topic", "kafka_acl", "kafka_quota", "kafka_quota_composite", "kafka_user_scram_credential"}
)
NEEDED: Final = {
    "kafka_topic": ("name", "partitions"),
    "kafka_acl": ("resource_name", "acl_principal", "acl_operation"),
}
"""Without which of its fields a resource says nothing."""


def take_resource(kind: str, fields: Fields, cluster: str, *, is_protected: bool = False) -> None:
    """Take one resource; every field of it that has no place here is said."""
    fields.pass_over("id", "timeouts")
    match kind:
        case "kafka_topic":
            _take_topic(fields, cluster, is_protected=is_protected)
        case "kafka_acl":
            _take_rule(fields, cluster)
        case "kafka_user_scram_credential":
            fields.unsaid("", NO_CREDENTIALS)
            return
        case _:
            fields.unsaid("", NO_CLIENT_QUOTA)
            return
    fields.rest()


def _take_topic(fields: Fields, cluster: str, *, is_protected: bool) -> None:
    topic = FoundTopic(
        name=fields.text("name") or "",
        place=fields.place,
        cluster=cluster,
        partitions=fields.number("partitions"),
        replication_factor=fields.number("replication_factor"),
        configs=fields.said("config"),
        is_protected=is_protected,
    )
    fields.reading.topics.append(topic)


def _take_rule(fields: Fields, cluster: str) -> None:
    SaidRule(
        resource=fields.text("resource_type"),
        name=fields.text("resource_name"),
        pattern=fields.text("resource_pattern_type_filter"),
        principal=fields.text("acl_principal"),
        permission=fields.text("acl_permission_type"),
        host=fields.text("acl_host"),
        operations=fields.texts("acl_operation"),
        cluster=cluster,
    ).add_to(fields)
