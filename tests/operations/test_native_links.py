"""Links of a platform that mirrors by itself: planned, applied and failed over without a job."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.operations.clusters.groups import list_groups
from reconciler.operations.clusters.topics import describe_topic, list_topics
from reconciler.operations.drift import drift
from reconciler.operations.metrics import MetricsReader
from reconciler.operations.mirrors.link_views import list_links
from reconciler.operations.mirrors.mirror_views import list_mirrors
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.records.log import OffsetRange
from reconciler.resources.address import Address
from tests.contracts.native import NETWORK, declared_as_native, native_platform
from tests.contracts.providers import inputs
from tests.embedded.samples import rows_of
from tests.operations.stage import MIRROR, ORDERS, SOURCE, TOPIC, give_roles, planned, upkeep, want

if TYPE_CHECKING:
    from conftest import Bench

IDS = itertools.count()
CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: NAME}
spec: SPEC
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: NAME}
"""


@pytest.fixture
def shop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Three records on `west`, and a link that mirrors them to `east`, not applied yet."""
    native_platform(monkeypatch)
    declare(bench, "west", "east")
    bench.write("manifests/orders.yaml", TOPIC)
    assert bench.apply().verdict is None
    produce("a", "b", "c")
    want(bench, "mirroring", "destination")
    return bench


def declare(bench: Bench, *clusters: str) -> None:
    for name in clusters:
        spec = json.dumps(declared_as_native(f"{name}-{next(IDS)}"))
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name).replace("SPEC", spec))
    workspace = (bench.folder / "reconciler.yaml").read_text()
    bench.write("reconciler.yaml", f"{workspace}spec: {{references: {{allow: ['env:KEY', 'env:SECRET']}}}}\n")


def produce(*values: str, partition: int = 0) -> None:
    writer = NETWORK["west"].open_producer(Address(f"topic/west/{ORDERS}"))
    writer.append(inputs(*values, partition=partition))
    writer.flush()


def values() -> list[bytes]:
    log = NETWORK["east"].open_log(Address(f"topic/east/{ORDERS}"))
    return [row["value"] for row in rows_of(log.read(0, OffsetRange(0, log.read_bounds()[0].end)))]


def test_its_mirrors_are_made_and_copied_without_a_job(shop: Bench) -> None:
    assert planned(shop) == ["create:link/east/dr", f"create:{MIRROR}"]
    assert shop.apply().verdict is None
    assert planned(shop) == []
    assert values() == [b"a", b"b", b"c"]
    produce("d")
    done = upkeep(shop, "mirror")
    assert (done.synced, done.jobs) == ((), ())
    assert values()[3:] == [b"d"]


@pytest.mark.parametrize(
    ("role", "verb", "status"),
    [("paused", "pause", "PAUSED"), ("promoted", "promote", "STOPPED"), ("failed-over", "failover", "STOPPED")],
)
def test_a_role_is_one_action_of_its_cluster_that_ends_when_the_state_is_seen(
    shop: Bench, role: str, verb: str, status: str
) -> None:
    assert shop.apply().verdict is None
    produce("d")
    want(shop, role, "destination")
    (action,) = shop.plan().plan.actions
    assert (action.id, action.depends_on) == (f"{verb}:{MIRROR}", ())
    assert shop.apply(Select(allow=("failover:*",))).verdict is None
    assert NETWORK["east"].links.read_mirror(ORDERS).status == status
    assert NETWORK["east"].book.asked == [f"{verb} {ORDERS}"]
    assert values() == [b"a", b"b", b"c", b"d"]
    assert planned(shop) == []


def test_a_mirror_is_failed_over_by_a_command_while_its_source_is_gone(shop: Bench) -> None:
    assert shop.apply().verdict is None
    assert values() == [b"a", b"b", b"c"]
    NETWORK["west"].book.is_down = True
    assert give_roles(shop.acting("mirror failover"), "failover", MIRROR).verdict is None
    assert NETWORK["east"].links.read_mirror(ORDERS).stopped_by == "failover"
    assert values() == [b"a", b"b", b"c"]


def test_a_platform_without_parts_is_planned_applied_and_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    native_platform(monkeypatch, is_bare=True)
    declare(bench, "west")
    bench.write("manifests/orders.yaml", TOPIC)
    assert bench.apply().verdict is None
    assert planned(bench) == []
    reach = SiteOptions(invocation=bench.invocation, select=Select())
    assert describe_topic(reach, SOURCE).groups is None
    assert [shown.address for shown in list_topics(reach, None)] == [SOURCE]
    assert (list_links(reach, ()).rows, list_mirrors(reach, ()).rows) == ((), ())
    assert [each.error for each in MetricsReader(reach).read_clusters()] == [None]
    assert upkeep(bench).jobs == ()
    assert drift(bench.invocation, Select()).findings == ()
    with pytest.raises(UserError, match="a confluent cluster has no consumer groups"):
        list_groups(reach, "west")
