"""No cluster gets more requests a second than its manifest allows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.confluent.client import RestClient
from reconciler.providers.protocol import Edge
from reconciler.providers.redpanda.client import AdminClient
from reconciler.resources.cluster import Cluster
from reconciler.runtime.threads import run_in_parallel
from tests.servers.kafka import Kafka

PER_SECOND, REQUESTS = 20, 5
LEAST_S = (REQUESTS - 1) / PER_SECOND
EDGE = Edge(Path(), {}, lambda: "", lambda: 0)


@pytest.fixture
def http() -> Iterator[str]:
    """A server that answers every request with an empty JSON object."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def cluster(provider: str, **connection: object) -> Cluster:
    spec = {"provider": provider, provider: {"requestsPerSecond": PER_SECOND, **connection}}
    return Cluster.model_validate({"metadata": {"name": "west"}, "spec": spec})


def test_requests_to_a_rest_api_from_many_threads_are_spaced(http: str) -> None:
    client = RestClient(cluster("confluent", restEndpoint=http, clusterId="lkc-1", type="platform"), EDGE)
    began_s = time.monotonic()
    run_in_parallel(lambda _number: client.ask("topics"), range(REQUESTS), name="rate")
    assert time.monotonic() - began_s >= LEAST_S


def test_requests_to_an_admin_api_are_spaced(http: str) -> None:
    client = AdminClient(cluster("redpanda", bootstrapServers=["127.0.0.1:1"], adminUrls=[http]), EDGE)
    began_s = time.monotonic()
    for _ in range(REQUESTS):
        client.read_uuid()
    assert time.monotonic() - began_s >= LEAST_S


@pytest.mark.thorough
def test_admin_requests_to_brokers_are_spaced(kafka_broker: Kafka) -> None:
    client = KafkaClient.for_cluster(cluster("kafka", bootstrapServers=[kafka_broker.bootstrap()]), EDGE)
    began_s = time.monotonic()
    for _ in range(REQUESTS):
        client.read_topics(["t"])
    assert time.monotonic() - began_s >= LEAST_S
