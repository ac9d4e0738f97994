"""A field of a full manifest that goes away: the next apply settles it, or a refusal names it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from reconciler.cli.main import main
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from tests.cli.full_manifests import CHECKOUT, SYNCED, dotted, fields_in, manifest, unsaid, without, write

if TYPE_CHECKING:
    from tests.cli.conftest import Call
    from tests.cli.full_manifests import Documents, FieldPath

WORKSPACE: Final = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: full}
spec: {state: "file://.state"}
"""
OF_S3: Final = {
    "region": "eu-west-1",
    "endpoint": "http://127.0.0.1:1",
    "forcePathStyle": True,
    "kmsKeyId": "alias/topics",
}
"""A folder has no use for them."""
TIERED: Final = {"remote.write": True, "remote.read": True}
NOT_EMBEDDED: Final = (
    *("Cluster.spec.kafka", "Cluster.spec.redpanda", "Cluster.spec.confluent"),
    *("Cluster.spec.embedded.root.account", "Cluster.spec.objectStorage.account"),
    *("Namespace.spec.encryption", "MirrorLink.spec.keepDiverged"),
)
"""What the platform refuses to have."""


def cluster(name: str, **spec: Any) -> dict[str, Any]:
    settings = spec.pop("settings", {})
    return manifest(
        "Cluster",
        "",
        name,
        provider="embedded",
        embedded={"root": {"url": f"file://.clusters/{name}", **settings}},
        objectStorage={"url": "file://.bucket", **settings},
        **{"properties": {"cloud_storage_enabled": True}, **spec},
    )


BARE: Final[Documents] = {
    "west": cluster("west"),
    "east": cluster("east"),
    "shop": manifest("Namespace", "west", "shop"),
    "eastern shop": manifest("Namespace", "east", "shop"),
    "old": manifest("Topic", "west", "shop:old", partitions=1, configs=TIERED),
    "clicks": manifest("Topic", "west", "shop:clicks", partitions=1, configs=TIERED),
}


def full_of(west_id: str) -> Documents:
    """Return all that an embedded cluster has; the topic `clicks` was unmounted before, and `old` is there."""
    old, clicks = f"shop:old/{west_id}/2", f"shop:clicks/{west_id}/1"
    return {
        "west": cluster(
            "west",
            clusterId=west_id,
            deletionProtection=False,
            properties={"cloud_storage_enabled": True, "log_retention_ms": "7d"},
            tiering={
                "upload": {"maxInterval": "1h"},
                "merge": {"enabled": True, "targetBytes": "128MiB", "minBytes": "64MiB"},
                "manifests": {"spilloverBytes": "64KiB"},
                "cache": {
                    "directory": "/var/cache/topics",
                    "bytes": "20GiB",
                    "percent": 20,
                    "maxObjects": 100_000,
                    "chunkBytes": "16MiB",
                    "eviction": "eager",
                    "trimSizePercent": 70,
                    "trimObjectsPercent": 70,
                },
                "space": {"targetBytes": "100GiB", "targetPercent": 50, "reservationPercent": 25},
            },
            settings=OF_S3,
        ),
        "policy": manifest(
            "TieringPolicy",
            "",
            "all",
            remoteWrite=True,
            remoteRead=True,
            remoteDelete=True,
            retention={"time": "30d", "bytes": "500GiB"},
            localRetention={"time": "6h", "bytes": "10GiB", "strict": False},
            initialLocalRetention={"time": "1h", "bytes": "1GiB"},
            onDisable="retain",
            segmentBytes="128MiB",
        ),
        "shop": manifest(
            "Namespace",
            "west",
            "shop",
            configs={"min.insync.replicas": 1, "max.message.bytes": 1_000_000},
            tieringPolicy="all",
            acls=[{**CHECKOUT, "resources": ["topics", "groups"], "names": ["pay-*"]}],
            quotas={"topics": 100, "partitions": 2000, "bytes": "1TiB"},
            movedFrom="store",
        ),
        "orders": manifest(
            "Topic",
            "west",
            "shop:orders",
            partitions=2,
            replicationFactor=1,
            configs={"cleanup.policy": "delete", "max.message.bytes": 2_000_000},
            tieringPolicy="all",
            acls=[CHECKOUT],
            movedFrom="shop:sales",
            protect=False,
        ),
        "recovered": manifest("Topic", "east", "shop:recovered", partitions=1, recoverFrom=old),
        "replica": manifest("Topic", "east", "shop:replica", readReplicaOf=old, acls=[CHECKOUT]),
        "mounted": manifest(
            "Mounting",
            "west",
            "shop:clicks",
            state="mounted",
            source=clicks,
            **{"as": "clicks-2025", "timeout": "10m", "movedFrom": "shop:views"},
        ),
        "link": manifest(
            "MirrorLink",
            "east",
            "all",
            source="west",
            mode="destination",
            prefix="w.",
            paused=True,
            startOffset="latest",
            retryTimeout="10m",
            autoCreate={
                "enabled": True,
                "filters": [{"name": "shop:eu:", "patternType": "prefixed", "filterType": "exclude"}, {"name": "*"}],
            },
            consumerOffsetSync={
                "enabled": True,
                "interval": "10s",
                "filters": [{"name": "pay-", "patternType": "prefixed", "filterType": "include"}],
                "prefixGroups": True,
            },
            topicConfigSync={"interval": "10s", "include": list(SYNCED)},
            protect="acl",
            metadataInterval="10m",
            movedFrom="from-west",
            mirrorTopics=[{"source": "shop:orders", "state": "paused", "configs": {"segment.bytes": "1GiB"}}],
        ),
        "rules": manifest(
            "MirrorLink",
            "east",
            "rules",
            source="west",
            mode="bidirectional",
            aclSync={
                "enabled": True,
                "interval": "10s",
                "filters": [
                    {
                        "resourceType": "topic",
                        "resourceName": "shop:orders",
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


FIELDS: Final = list(fields_in(full_of("")))
OTHERS: Final = {word: BARE[word] for word in ("east", "eastern shop", "old")}


def said(*arguments: str) -> None:
    assert main(arguments) == 0, arguments


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Documents]:
    """A workspace in which all of it is applied, to be copied, and its manifests."""
    folder, before = tmp_path_factory.mktemp("full"), Path.cwd()
    os.chdir(folder)
    try:
        Path("reconciler.yaml").write_text(WORKSPACE)
        write(BARE)
        said("apply", "--yes")
        unmounted = manifest("Mounting", "west", "shop:clicks", state="unmounted")
        write({**BARE, "clicks": unmounted})
        said("apply", "--yes")
        said("run", "--once")  # writes down what `old` is
        documents = full_of(sample_cluster(folder).cluster_id)
        write({**OTHERS, **documents})
        said("apply", "--yes")
        said("plan", "--detailed-exitcode")
    finally:
        os.chdir(before)
    return folder, documents


def sample_cluster(folder: Path) -> EmbeddedCluster:
    return EmbeddedCluster.open(DirectoryStore(folder / ".clusters/west"), now_ms=lambda: 0, new_id=str)


def test_the_manifests_say_all_that_models_have() -> None:
    assert unsaid(full_of(""), NOT_EMBEDDED) == []


@pytest.mark.parametrize(("word", "path"), [pytest.param(*each, id=dotted(*each)) for each in FIELDS])
def test_a_field_that_goes_away_is_settled_by_one_apply_or_refused_by_its_name(
    full: tuple[Path, Documents], typed: Call, tmp_path: Path, word: str, path: FieldPath
) -> None:
    folder, documents = full
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    write({**OTHERS, **without(documents, word, path)})
    applied = typed("apply", "--yes")
    if applied.code == 0:
        planned = typed("plan", "--detailed-exitcode")
        assert planned.code == 0, applied.out + planned.out + planned.err
    else:
        assert applied.code == 1, applied.out + applied.err
        assert str(path[-1]) in applied.err, applied.err
