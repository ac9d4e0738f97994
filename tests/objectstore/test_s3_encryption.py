"""Every way of writing names the key it is to be encrypted under; the stand-in keeps what the headers said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.s3_store import SINGLE_BYTES
from reconciler.objectstore.settings import StoreSettings

REGION = "eu-central-1"
BUCKET = "topics"
LARGE = bytes(SINGLE_BYTES + 1)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """AWS as moto imitates it, with a bucket; and a client that looks beneath."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    with mock_aws():
        client = boto3.client("s3", region_name=REGION)
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield client


def opened(prefix: str, kms_key_id: str | None = None) -> ObjectStore:
    return open_store(StoreSettings(f"s3://{BUCKET}/{prefix}", region=REGION, kms_key_id=kms_key_id))


def key_of(aws: Any, name: str) -> str | None:
    """Return the key an object is encrypted under, as the store says."""
    found = aws.head_object(Bucket=BUCKET, Key=name)
    if "SSEKMSKeyId" not in found:
        return None
    assert found["ServerSideEncryption"] == "aws:kms"
    key: str = found["SSEKMSKeyId"]
    return key


def write_all(store: ObjectStore, kms_key_id: str | None) -> None:
    """Write an object in every way there is under one key."""
    store.put("put", b"1", kms_key_id=kms_key_id)
    store.put("in-parts", LARGE, kms_key_id=kms_key_id)
    store.copy_in("copied", store, "put", kms_key_id=kms_key_id)


@pytest.mark.parametrize("name", ["put", "in-parts", "copied"])
def test_a_key_of_the_call_is_the_objects_key(name: str, aws: Any) -> None:
    write_all(opened("west"), "alias/shop")
    assert key_of(aws, f"west/{name}") == "alias/shop"


@pytest.mark.parametrize("name", ["put", "in-parts", "copied"])
def test_the_key_of_a_location_is_the_key_of_all_its_objects(name: str, aws: Any) -> None:
    write_all(opened("west", "alias/west"), None)
    assert key_of(aws, f"west/{name}") == "alias/west"


def test_a_key_of_the_call_goes_before_that_of_the_location(aws: Any) -> None:
    write_all(opened("west", "alias/west"), "alias/shop")
    assert {key_of(aws, f"west/{name}") for name in ("put", "in-parts", "copied")} == {"alias/shop"}


def test_registers_are_encrypted_under_the_key_of_the_location(aws: Any) -> None:
    store = opened("west", "alias/west")
    first = store.swap("head", b"1", expected=None)
    store.swap("head", b"2", expected=first)
    assert key_of(aws, "west/head") == "alias/west"


def test_each_prefix_of_a_bucket_has_its_own_key(aws: Any) -> None:
    opened("west", "alias/west").put("a", b"1")
    opened("east", "alias/east").put("a", b"1")
    opened("plain").put("a", b"1")
    assert [key_of(aws, f"{prefix}/a") for prefix in ("west", "east", "plain")] == ["alias/west", "alias/east", None]


def test_a_copy_takes_the_key_of_where_it_goes_not_of_where_it_was(aws: Any) -> None:
    west, east = opened("west", "alias/west"), opened("east", "alias/east")
    west.put("a", b"1")
    east.copy_in("a", west, "a")
    assert key_of(aws, "east/a") == "alias/east"
    assert east.get("a") is not None


def test_without_a_key_the_bucket_decides(aws: Any) -> None:
    write_all(opened("west"), None)
    assert {key_of(aws, f"west/{name}") for name in ("put", "in-parts", "copied")} == {None}


def test_stores_say_that_they_can_encrypt(aws: Any) -> None:
    del aws
    assert opened("west").encrypts
