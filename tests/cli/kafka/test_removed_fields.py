"""A field of a full manifest that goes away on Kafka: the next apply settles it, or a refusal names it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.full_manifests import CHECKOUT, SYNCED, dotted, fields_in, manifest, without, write
from tests.cli.kafka.conftest import WORKSPACE

if TYPE_CHECKING:
    from tests.cli.conftest import Call
    from tests.cli.full_manifests import Documents
    from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough


def full_of(kafka: Kafka, prefix: str) -> Documents:
    """Return all that a Kafka cluster without tiered storage has, and links to it."""
    orders = f"{prefix}:orders"
    return {
        "live": manifest(
            "Cluster",
            "",
            "live",
            provider="kafka",
            deletionProtection=False,
            properties={"log.cleaner.backoff.ms": "15001"},
            objectStorage={"url": "file://.bucket"},
            kafka={
                "bootstrapServers": [kafka.bootstrap()],
                "security": {"protocol": "PLAINTEXT", "principal": "User:ANONYMOUS"},
                "namespaceSeparator": ".",
            },
        ),
        "policy": manifest(
            "TieringPolicy", "", "all", retention={"time": "30d", "bytes": "5GiB"}, segmentBytes="128MiB"
        ),
        "namespace": manifest(
            "Namespace",
            "live",
            prefix,
            configs={"min.insync.replicas": 1, "max.message.bytes": 1_000_000},
            tieringPolicy="all",
            acls=[{**CHECKOUT, "resources": ["topics", "groups"], "names": ["pay-*"]}],
            quotas={"topics": 100, "partitions": 2000, "bytes": "1TiB"},
            movedFrom=f"{prefix}-store",
        ),
        "topic": manifest(
            "Topic",
            "live",
            f"{prefix}:sales",
            partitions=2,
            replicationFactor=1,
            configs={"cleanup.policy": "delete", "max.message.bytes": 2_000_000},
            tieringPolicy="all",
            acls=[CHECKOUT],
            movedFrom=f"{prefix}:receipts",
            protect=False,
        ),
        "link": manifest(
            "MirrorLink",
            "live",
            prefix,
            source="west",
            mode="destination",
            prefix="w.",
            paused=True,
            startOffset="latest",
            retryTimeout="10m",
            autoCreate={
                "enabled": True,
                "filters": [{"name": "none-", "patternType": "prefixed", "filterType": "include"}],
            },
            consumerOffsetSync={
                "enabled": True,
                "interval": "10s",
                "filters": [{"name": "pay-", "patternType": "prefixed", "filterType": "include"}],
                "prefixGroups": True,
            },
            topicConfigSync={"interval": "10s", "include": list(SYNCED)},
            protect="acl",
            keepDiverged=True,
            metadataInterval="10m",
            movedFrom=f"from-{prefix}",
            mirrorTopics=[{"source": orders, "state": "paused", "configs": {"segment.bytes": "1GiB"}}],
        ),
        "rules": manifest(
            "MirrorLink",
            "live",
            f"{prefix}-rules",
            source="west",
            aclSync={
                "enabled": True,
                "interval": "10s",
                "filters": [
                    {
                        "resourceType": "topic",
                        "resourceName": orders,
                        "patternType": "literal",
                        "principal": "User:checkout",
                        "host": "10.0.0.7",
                        "operation": "read",
                        "permission": "allow",
                    }
                ],
            },
        ),
    }


def test_every_field_that_goes_away_is_settled_by_one_apply_or_refused_by_its_name(
    typed: Call, kafka_broker: Kafka, kafka_prefix: str
) -> None:
    documents = full_of(kafka_broker, kafka_prefix)
    others: Documents = {
        "west": manifest("Cluster", "", "west", embedded={"root": "file://.clusters/west"}),
        "home": manifest("Namespace", "west", kafka_prefix),
        "orders": manifest("Topic", "west", f"{kafka_prefix}:orders", partitions=1),
    }
    Path("reconciler.yaml").write_text(WORKSPACE)
    write({**others, **documents})
    first = typed("apply", "--yes")
    assert first.code == 0, first.out + first.err
    wrong = []
    for word, path in fields_in(documents):
        write({**others, **without(documents, word, path)})
        applied = typed("apply", "--yes", "--allow", "delete:*")  # It brings the field back that went away before.
        if applied.code == 0:
            planned = typed("plan", "--detailed-exitcode")
            wrong += [(dotted(word, path), applied.out + planned.out + planned.err)] if planned.code else []
        elif applied.code != 1 or str(path[-1]) not in applied.err:
            wrong.append((dotted(word, path), applied.out + applied.err))
    write({**others, "live": {**documents["live"], "spec": {**documents["live"]["spec"], "properties": {}}}})
    gone = typed("apply", "--yes", "--allow", "delete:*", "--allow", "update:cluster/live")
    assert gone.code == 0, gone.err
    assert not wrong, "\n".join(f"{field}: {text}" for field, text in wrong)
