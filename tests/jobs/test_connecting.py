"""A Spark Connect server that is not there is said at once: Spark's own client would try for minutes."""

from __future__ import annotations

import socket

import pytest

from reconciler.errors import UserError
from reconciler.jobs.session import check_ready
from reconciler.resources.workspace import SparkSpec


@pytest.mark.parametrize("url", ["spark://host:7077", "sc://", "sc://host:port", "host:15002"])
def test_a_url_that_is_none_of_spark_connect_is_refused(url: str) -> None:
    with pytest.raises(UserError) as refused:
        check_ready(SparkSpec(remote=url), environ={})
    assert str(refused.value) == f"spec.spark.remote is {url}: not a Spark Connect URL. Write sc://host:15002."


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"sc://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(UserError, match=f"no Spark Connect server answers at {url}: Connection refused"):
        check_ready(SparkSpec(remote=url), environ={})
