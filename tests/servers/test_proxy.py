"""The proxy does what its faults say, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.servers.proxy import Broken, FailedChore, Lost, Proxy, Repeated, Stripped
from tests.servers.weed import BUCKET, REGION, S3Server, credentials_of

pytestmark = pytest.mark.thorough


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with Proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Any:
    keys = credentials_of("admin")
    return boto3.client(
        "s3",
        endpoint_url=proxy.endpoint,
        region_name=REGION,
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key.text,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


def body_of(server: S3Server, key: str) -> bytes:
    return bytes(server.client().get_object(Bucket=BUCKET, Key=key)["Body"].read())


def test_what_is_not_interfered_with_goes_through(client: Any) -> None:
    client.put_object(Bucket=BUCKET, Key="proxy/a b", Body=b"1" * 100_000)
    assert client.get_object(Bucket=BUCKET, Key="proxy/a b")["Body"].read() == b"1" * 100_000
    assert client.head_object(Bucket=BUCKET, Key="proxy/a b")["ContentLength"] == 100_000


def test_a_lost_answer_is_of_a_write_that_was_made(client: Any, proxy: Proxy, s3_server: S3Server) -> None:
    proxy.on("PUT", Lost(), key="proxy/b")
    with pytest.raises(BotoCoreError):
        client.put_object(Bucket=BUCKET, Key="proxy/b", Body=b"1")
    assert body_of(s3_server, "proxy/b") == b"1"


def test_a_repeated_create_finds_itself(client: Any, proxy: Proxy, s3_server: S3Server) -> None:
    proxy.on("PUT", Repeated(), key="proxy/c")
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket=BUCKET, Key="proxy/c", Body=b"1", IfNoneMatch="*")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert body_of(s3_server, "proxy/c") == b"1"


def test_a_refused_write_is_not_made(client: Any, proxy: Proxy, s3_server: S3Server) -> None:
    proxy.on("PUT", FailedChore(503, "SlowDown"), key="proxy/d")
    with pytest.raises(ClientError, match="SlowDown"):
        client.put_object(Bucket=BUCKET, Key="proxy/d", Body=b"1")
    with pytest.raises(ClientError, match="NoSuchKey"):
        body_of(s3_server, "proxy/d")


def test_a_broken_answer_is_noticed(client: Any, proxy: Proxy) -> None:
    client.put_object(Bucket=BUCKET, Key="proxy/e", Body=b"1" * 1_000)
    proxy.on("GET", Broken(), key="proxy/e")
    with pytest.raises(BotoCoreError):
        client.get_object(Bucket=BUCKET, Key="proxy/e")["Body"].read()


def test_a_stripped_condition_is_no_condition(client: Any, proxy: Proxy, s3_server: S3Server) -> None:
    proxy.on("PUT", Stripped(("if-none-match", "if-match")), key="proxy/f", times=2)
    client.put_object(Bucket=BUCKET, Key="proxy/f", Body=b"1", IfNoneMatch="*")
    client.put_object(Bucket=BUCKET, Key="proxy/f", Body=b"2", IfNoneMatch="*")
    assert body_of(s3_server, "proxy/f") == b"2"
