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
