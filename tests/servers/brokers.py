"""What tests do with brokers that they share beside using names of their own."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from reconciler.resources.kafka_configs import LEDGER


def emptied(bootstrap: str) -> str:
    """Delete every topic, group and access rule that is not the brokers' own, and return where they are.

    Our ledger goes, too: who owned what before is no matter of the next test.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 100})
    groups = [each.group_id for each in admin.list_consumer_groups().result().valid]
    found = admin.list_topics(timeout=30).topics
    topics = [name for name in found if name == LEDGER or not name.startswith("__")]
    asked = [
        *(admin.delete_consumer_groups(groups).values() if groups else ()),
        *(admin.delete_topics(topics).values() if topics else ()),
        *admin.delete_acls([_EVERY_RULE]).values(),
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


_GONE = {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART}
"""Empty groups end by themselves, also between a listing and a delete."""
_EVERY_RULE = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
