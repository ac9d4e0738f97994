"""What tests do with brokers that they share beside using names of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from reconciler.resources.kafka_configs import LEDGER


def emptied(bootstrap: str, prefix: str = "", settings: Mapping[str, Any] = {}) -> str:
    """Delete every topic, group and access rule that is not the brokers' own, and return where they are.

    Our ledger goes, too: who owned what before is no matter of the next test. `prefix`: only names that begin with it.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 100, **settings})
    listed = [each.group_id for each in admin.list_consumer_groups().result().valid]
    groups = [name for name in listed if name.startswith(prefix)]
    found = admin.list_topics(timeout=30).topics
    topics = [name for name in found if name == LEDGER or (name.startswith(prefix) and not name.startswith("__"))]
    rules = [_to_filter(rule) for rule in list_rules(admin, prefix)] if prefix else [_EVERY_RULE]
    asked = [
        *(admin.delete_consumer_groups(groups).values() if groups else ()),
        *(admin.delete_topics(topics).values() if topics else ()),
        *(admin.delete_acls(rules).values() if rules else ()),
    ]
    for each in asked:
        try:
            each.result()
        except KafkaException as error:
            if error.args[0].code() not in _GONE:
                raise
    while [name for name in admin.list_topics(timeout=30).topics if name in topics]:
        pass  # Brokers answer before they show it.
    return bootstrap


def list_rules(admin: AdminClient, prefix: str) -> list[AclBinding]:
    """Return the access rules on names that begin with a prefix."""
    return [rule for rule in admin.describe_acls(_EVERY_RULE).result() if rule.name.startswith(prefix)]


def _to_filter(rule: AclBinding) -> AclBindingFilter:
    place = rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host
    return AclBindingFilter(*place, rule.operation, rule.permission_type)


_GONE = {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART}
"""Empty groups end by themselves, also between a listing and a delete."""
_EVERY_RULE = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
