"""Objects of a namespace in a bucket, under its key: what the headers say, as moto keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from reconciler.objectstore.s3_store import S3Store
from reconciler.objectstore.settings import StoreSettings
from reconciler.planning.actions import Change, Create, Update
from reconciler.planning.fields import list_fields
from reconciler.providers.protocol import CompletedAction, Edge, FailedAction, Scope
from reconciler.providers.registry import open_provider
from reconciler.resources.cluster import Cluster
from reconciler.resources.namespace import Namespace
from tests.embedded.samples import NOW, cluster_in, contents, ids

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

REGION, BUCKET = "eu-central-1", "clusters"


class DatedStore(S3Store):
    """A bucket whose answers are dated: those of the stand-in are not."""

    def read_clock_ms(self) -> int:
        return NOW


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    with mock_aws():
        client = boto3.client("s3", region_name=REGION)
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield client


@pytest.fixture
def cluster(aws: Any) -> EmbeddedCluster:
    del aws
    return cluster_in(DatedStore(StoreSettings(f"s3://{BUCKET}/west", region=REGION, kms_key_id="alias/west")))


def keys(aws: Any) -> set[tuple[str, str]]:
    """Return folder and key of every part in the bucket."""
    listed = aws.list_objects_v2(Bucket=BUCKET, Prefix="west/topics/").get("Contents", [])
    names = [item["Key"] for item in listed]
    return {
        (name.removeprefix("west/topics/").rpartition("/")[0], aws.head_object(Bucket=BUCKET, Key=name)["SSEKMSKeyId"])
        for name in names
    }


@pytest.mark.fact("F-K-020")
def test_each_namespace_lies_under_its_key_and_a_move_brings_a_topic_under_another(
    cluster: EmbeddedCluster, aws: Any
) -> None:
    cluster.create_namespace("eu", kms_key_id="alias/eu")
    cluster.create_namespace("us:ny", kms_key_id="alias/ny")
    for name in ("eu:orders", "us:ny:orders", "orders"):
        cluster.create_topic(name)
        for value in "ab":
            with cluster.producer() as producer:
                producer.send(name, value)
    assert keys(aws) == {("eu/orders_0", "alias/eu"), ("us/ny/orders_0", "alias/ny"), ("orders_0", "alias/west")}
    cluster.move_topic("eu:orders", "us:ny:moved")
    assert cluster.finish_rewrites() == 1
    assert keys(aws) == {("us/ny/moved_0", "alias/ny"), ("us/ny/orders_0", "alias/ny"), ("orders_0", "alias/west")}
    assert contents(cluster.log("us:ny:moved")) == [(0, b"a"), (1, b"b")]
    cluster.encrypt_namespace("us:ny", None)
    assert cluster.finish_rewrites() == 2
    assert {key for _, key in keys(aws)} == {"alias/west"}


def test_a_plan_sets_changes_and_removes_the_key_of_a_namespace(aws: Any, tmp_path: Path) -> None:
    del aws
    root = {"url": f"s3://{BUCKET}/east", "region": REGION}
    declared = Cluster.model_validate({"metadata": {"name": "east"}, "spec": {"embedded": {"root": root}}})
    provider = open_provider(declared, Edge(folder=tmp_path, environ={}, new_id=ids(), now_ms=lambda: NOW))
    assert provider.capabilities.encryption
    namespace = Namespace.model_validate(
        {"metadata": {"name": "shop", "cluster": "east"}, "spec": {"encryption": {"kmsKeyId": "alias/a"}}}
    )
    for action in (
        Create(address=declared.address, after=declared),
        Create(address=namespace.address, after=namespace),
    ):
        assert [type(outcome) for outcome in provider.apply([action])] == [CompletedAction]
    for before, after in (("alias/a", "alias/b"), ("alias/b", None), (None, "alias/c")):
        seen = provider.observe(Scope())[namespace.address].resource
        assert list_fields(seen).get("encryption.kmsKeyId") == before
        change = Change("encryption.kmsKeyId", before, after)
        update = Update(address=namespace.address, before=seen, after=namespace, changes=(change,))
        assert [type(outcome) for outcome in provider.apply([update])] == [CompletedAction]
    stale = Update(
        address=namespace.address,
        before=namespace,
        after=namespace,
        changes=(Change("encryption.kmsKeyId", "alias/a", "alias/d"),),
    )
    (outcome,) = provider.apply([stale])
    assert isinstance(outcome, FailedAction)
    assert "encryption.kmsKeyId is 'alias/c' now, not 'alias/a'" in outcome.error.message
