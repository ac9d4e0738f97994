"""Which words a property gets that no cluster takes."""

from __future__ import annotations

import pytest

from reconciler.planning.checks.cluster_checks import find_property_problems
from reconciler.planning.situation import WantedResource
from reconciler.resources.cluster import Cluster
from reconciler.resources.kafka_configs import ConfigKey
from tests.planning.short import resource

KNOWN = {name: ConfigKey(name, "string", "") for name in ("cordoned.log.dirs", "log.retention.ms", "log.segment.bytes")}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("log.dirs", "Remove it: what is read-only is set in a broker's own file, and takes a restart."),
        ("broker.id", "Remove it: what is read-only is set in a broker's own file, and takes a restart."),
        ("log.retentoin.ms", "Did you mean log.retention.ms?"),
    ],
)
def test_only_what_is_nearly_the_same_is_taken_for_a_slip(name: str, hint: str) -> None:
    brokers = {"provider": "kafka", "embedded": None, "kafka": {"bootstrapServers": ["b:9092"]}}
    cluster = resource({"cluster": "west", **brokers, "properties": {name: "x"}})
    assert isinstance(cluster, Cluster)
    (finding,) = find_property_problems(WantedResource(cluster, None), cluster, KNOWN)
    assert finding.hint == hint


def test_a_property_is_suggested_for_its_alias() -> None:
    connection = {"bootstrapServers": ["b:9092"], "adminUrls": ["http://b:9644"]}
    brokers = {"provider": "redpanda", "embedded": None, "redpanda": connection}
    cluster = resource({"cluster": "west", **brokers, "properties": {"delete_retention_ms": "1"}})
    assert isinstance(cluster, Cluster)
    known = {"log_retention_ms": ConfigKey("log_retention_ms", "integer", aliases=("delete_retention_ms",))}
    (finding,) = find_property_problems(WantedResource(cluster, None), cluster, known)
    assert finding.message == "properties.delete_retention_ms is not a cluster property that these brokers accept"
    assert finding.hint == "Did you mean log_retention_ms?"
