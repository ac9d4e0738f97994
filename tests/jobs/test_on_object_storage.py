"""Copies between clusters in a bucket, by executors that are told how to reach it and ask no environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pytest

from reconciler.jobs.verify import compare_logs
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.settings import StoreSettings
from tests.embedded.samples import NOW, cluster_in, read
from tests.engines import on
from tests.jobs.doubles import TOPIC, fill, in_spark
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster
    from tests.servers.clouds import CloudServer
    from tests.servers.weed import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


SERVERS: Final = ("s3", "gs", "az")
COPIED_BY_THE_SERVER: Final = {"s3": "x-amz-copy-source", "gs": "x-goog-copy-source", "az": "x-ms-copy-source"}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server | CloudServer:
    found: S3Server | CloudServer = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def proxy(server: S3Server | CloudServer) -> Iterator[Proxy]:
    with Proxy(server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def bucket(spark: SparkSession, server: S3Server | CloudServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place that only this process knows how to reach: Spark and its workers were there before the environment."""
    assert spark
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.environ(endpoint=proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    return server.url("jobs")


def copied(spark: SparkSession, west: EmbeddedCluster, east: EmbeddedCluster) -> None:
    fill(west)
    east.create_topic(TOPIC, partitions=3)
    assert in_spark(spark, west.log(TOPIC), east.sink(TOPIC)).records == 240
    for partition in range(3):
        assert read(east.log(TOPIC), partition) == read(west.log(TOPIC), partition)
        assert len(read(east.log(TOPIC), partition)) == 80
    assert compare_logs(on(spark), west.log(TOPIC), east.log(TOPIC)).is_equal


def test_parts_are_copied_within_the_bucket_and_pass_through_nobody(
    spark: SparkSession, bucket: str, proxy: Proxy
) -> None:
    by_the_server = COPIED_BY_THE_SERVER[bucket.partition("://")[0]]
    west = cluster_in(open_store(StoreSettings(f"{bucket}/west")), now_ms=NOW)
    east = cluster_in(open_store(StoreSettings(f"{bucket}/east")), now_ms=NOW + 1)
    copied(spark, west, east)
    parts = [
        one for one in proxy.asked if one.method == "PUT" and re.search(r"/east/topics/.*\.parquet", unquote(one.path))
    ]
    assert parts
    assert all(by_the_server in {name.lower() for name in one.headers} for one in parts)


def test_a_folder_is_copied_into_a_bucket_and_back(spark: SparkSession, bucket: str, tmp_path: Path) -> None:
    folder = cluster_in(DirectoryStore(tmp_path / "west"), now_ms=NOW)
    inside = cluster_in(open_store(StoreSettings(f"{bucket}/east")), now_ms=NOW + 1)
    copied(spark, folder, inside)
    back = cluster_in(DirectoryStore(tmp_path / "back"), now_ms=NOW + 2)
    back.create_topic(TOPIC, partitions=3)
    assert in_spark(spark, inside.log(TOPIC), back.sink(TOPIC)).records == 240
    assert compare_logs(on(spark), folder.log(TOPIC), back.log(TOPIC)).is_equal
