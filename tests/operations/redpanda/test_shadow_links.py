"""Shadow links of the emulated Redpanda, from a Kafka cluster: shown against the documented contract."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as Brokers
from confluent_kafka.admin import NewTopic

from reconciler.operations.mirrors.mirror_views import list_mirrors, read_mirror_errors
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.planning.actions import Adopt, Transition
from reconciler.providers.redpanda.client import AdminClient
from reconciler.providers.redpanda.link_options import build_literal_filter
from reconciler.providers.registry import open_provider
from reconciler.resources.mirror_link import MirrorTopic
from tests.contracts.names import own
from tests.operations.redpanda.test_redpanda import Desk, desk_on, document, ids, read_topics
from tests.servers.emulation.faults import LINK
from tests.servers.redpandaexternal import EXTERNAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conftest import Bench

    from tests.servers.redpanda.server import Redpanda

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("redpanda")]
SWITCH = "enable_shadow_linking"


class Pair:
    """A Redpanda cluster `west` that shadows topics of the Kafka cluster `east`, which begin with `prefix`."""

    def __init__(self, desk: Desk, source: str, prefix: str) -> None:
        self.desk, self.source, self.prefix = desk, source, own(prefix)
        self.orders, self.link = f"{self.prefix}-orders", own("from-east")

    def create(self, *names: str, records: int = 0) -> None:
        """Create topics with records at the source."""
        admin, producer = Brokers({"bootstrap.servers": self.source}), Producer({"bootstrap.servers": self.source})
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            future.result()
        for name in names:
            for number in range(records):
                producer.produce(name, value=b"%d" % number, partition=0)
        assert producer.flush(30) == 0

    def declare(self, *documents: dict[str, Any]) -> None:
        self.desk.declare(*documents)
        east = {"provider": "kafka", "kafka": {"bootstrapServers": self.source.split(",")}}
        cluster = {"apiVersion": "reconciler/v1", "kind": "Cluster", "metadata": {"name": "east"}, "spec": east}
        self.desk.bench.write("manifests/east.yaml", yaml.safe_dump(cluster))

    def apply(self, *documents: dict[str, Any]) -> None:
        """Declare, apply, and see that nothing is left to do."""
        self.declare(*documents)
        applied = self.desk.bench.apply(Select(allow=("failover:mirror/west/*", "delete:mirror/west/*")))
        assert applied.verdict is None, applied.result and [each.error for each in applied.result.failed]
        assert ids(self.desk.bench.plan()) == []

    def errors(self, *documents: dict[str, Any]) -> list[str]:
        self.declare(*documents)
        return [f"{each.message}. {each.hint}" for each in self.desk.bench.plan().plan.errors]

    def call(self, method: str, **content: Any) -> Any:
        return self.desk.admin.call_shadow_links(method, content)

    def states(self) -> dict[str, str]:
        (link,) = self.call("ListShadowLinks")["shadowLinks"]
        shadows = link["status"]["shadowTopics"]
        return {each["name"]: each["status"]["state"].removeprefix("SHADOW_TOPIC_STATE_") for each in shadows}

    def wait_for(self, states: dict[str, str]) -> None:
        deadline = time.monotonic() + 30
        while self.states() != states:
            assert time.monotonic() < deadline, self.states()


@pytest.fixture
def pair(bench: Bench, redpanda: Redpanda, kafka_prefix: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    desk = desk_on(bench, redpanda)
    if EXTERNAL is not None:
        yield Pair(desk, EXTERNAL.source, kafka_prefix)
        return
    assert not redpanda.cluster.write({SWITCH: True}, [])
    yield Pair(desk, request.getfixturevalue("kafka_broker").bootstrap(), kafka_prefix)
    redpanda.cluster.write({}, [SWITCH])


def link(names: Sequence[str] = (), state: str = "mirroring", name: str = "from-east", **spec: Any) -> dict[str, Any]:
    entries = [{"source": each, "state": state} for each in names]
    return document("MirrorLink", name, {"source": "east", "mirrorTopics": entries, **spec})


def failover(name: str) -> Transition:
    mirror = MirrorTopic(cluster="west", link="from-east", source_cluster="east", source=name, name=name)
    return Transition(
        address=mirror.address, machine="mirror", verb="failover", from_state="ACTIVE", to_state="STOPPED", after=mirror
    )


def prefixed(pair: Pair) -> dict[str, Any]:
    return {"enabled": True, "filters": [{"name": pair.prefix, "patternType": "prefixed"}]}


def test_a_topic_is_mirrored_with_its_offsets_and_failed_over(pair: Pair) -> None:
    pair.create(pair.orders, records=3)
    pair.apply(link([pair.orders]))
    assert pair.desk.consume(pair.orders, 3) == [(0, b"0"), (1, b"1"), (2, b"2")]
    pair.apply(link([pair.orders], "failed-over"))
    assert pair.states() == {pair.orders: "FAILED_OVER"}


def test_filters_groups_rules_and_start_come_back_as_declared(pair: Pair) -> None:
    pair.create(pair.orders)
    groups = {"enabled": True, "filters": [{"name": "*"}], "interval": "10s"}
    rules = {"enabled": True, "filters": [{"resourceType": "topic", "operation": "delete"}], "interval": "10s"}
    pair.apply(
        link(
            autoCreate=prefixed(pair),
            consumerOffsetSync=groups,
            aclSync=rules,
            startOffset="latest",
            metadataInterval="1m",
        )
    )
    pair.apply(link(autoCreate={**prefixed(pair), "filters": [{"name": "*"}]}, consumerOffsetSync=groups))
    (row,) = pair.call("ListShadowLinks")["shadowLinks"]
    filters = row["configurations"]["topicMetadataSyncOptions"]["autoCreateShadowTopicFilters"]
    assert {
        "patternType": "PATTERN_TYPE_LITERAL",
        "filterType": "FILTER_TYPE_EXCLUDE",
        "name": "__reconciler",
    } in filters
    pair.apply(link([pair.orders]))


def test_a_link_of_another_tool_is_adopted_with_its_failed_over_topics(pair: Pair) -> None:
    clicks = f"{pair.prefix}-clicks"
    pair.create(pair.orders, clicks)
    options = {
        "clientOptions": {"bootstrapServers": pair.source.split(",")},
        "topicMetadataSyncOptions": {
            "autoCreateShadowTopicFilters": [build_literal_filter(name) for name in (pair.orders, clicks)],
            "syncedShadowTopicProperties": ["segment.ms"],
        },
    }
    pair.desk.apply()
    pair.call("CreateShadowLink", shadowLink={"name": pair.link, "configurations": options})
    pair.wait_for({clicks: "ACTIVE", pair.orders: "ACTIVE"})
    pair.call("FailOver", name=pair.link, shadowTopicName=clicks)
    pair.wait_for({clicks: "FAILED_OVER", pair.orders: "ACTIVE"})
    made = link([pair.orders])
    made["spec"]["mirrorTopics"].append({"source": clicks, "state": "failed-over"})
    pair.declare(made)
    planned = pair.desk.bench.plan().plan
    assert planned.errors == ()
    assert {type(action) for action in planned.actions} == {Adopt}
    assert [action.changes for action in planned.actions if isinstance(action, Adopt)] == [()] * len(planned.actions)
    pair.apply(made)


def test_what_is_mirrored_is_deleted_only_by_its_address(pair: Pair) -> None:
    pair.create(pair.orders)
    pair.apply(link([pair.orders]))
    (problem,) = pair.errors()
    assert f"it is no longer declared, but mirror/west/{pair.orders} is not stopped" in problem
    assert pair.desk.bench.apply(Select(allow=("delete:mirror/west/*", "delete:link/west/*"))).verdict is None
    assert pair.call("ListShadowLinks") == {"shadowLinks": []}
    assert pair.orders not in read_topics(pair.desk)


@pytest.mark.emulated("injects a fault")
def test_topics_whose_failover_fails_are_told_and_only_they(pair: Pair) -> None:
    names = [f"{pair.prefix}-{number}" for number in range(20)]
    pair.create(*names)
    pair.apply(link(names))
    failing = {names[3], names[7], names[19]}
    for name in failing:
        pair.desk.server.faults.add("fails", LINK, f"failover/{name}/")
    pair.declare(link(names, "failed-over"))
    result = pair.desk.bench.apply(Select(allow=("failover:mirror/west/*",))).result
    assert result is not None
    assert {each.id for each in result.failed} == {f"failover:mirror/west/{name}" for name in failing}
    assert all("its failover ended in FAULTED" in each.error.message for each in result.failed)
    assert {name for name, state in pair.states().items() if state != "FAILED_OVER"} == failing
    assert ids(pair.desk.bench.plan()) == sorted(f"failover:mirror/west/{name}" for name in failing)


@pytest.mark.emulated("injects a fault")
def test_a_failover_that_was_killed_goes_on_where_it_ended(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{pair.prefix}-{number}" for number in range(6)]
    pair.create(*names)
    pair.apply(link(names))
    calls, call = iter(range(100)), AdminClient.call_shadow_links

    def die(self: AdminClient, method: str, content: Any) -> Any:
        if method == "FailOver" and next(calls) == 3:
            raise KeyboardInterrupt
        return call(self, method, content)

    with monkeypatch.context() as dying:
        dying.setattr(AdminClient, "call_shadow_links", die)
        with pytest.raises(KeyboardInterrupt):
            list(open_provider(pair.desk.cluster, pair.desk.edge).apply([failover(name) for name in names]))
    pair.wait_for({name: "FAILED_OVER" if number < 3 else "ACTIVE" for number, name in enumerate(names)})
    pair.declare(link(names, "failed-over"))
    assert sum(each.startswith("failover:") for each in ids(pair.desk.bench.plan())) == 3
    pair.apply(link(names, "failed-over"))


@pytest.mark.emulated("injects a fault")
def test_a_failover_whose_answers_are_lost_is_done_once(pair: Pair) -> None:
    pair.create(pair.orders)
    pair.apply(link([pair.orders]))
    pair.desk.server.faults.add("lost", "POST", "FailOver")
    pair.apply(link([pair.orders], "failed-over"))


@pytest.mark.emulated("injects a fault")
def test_a_lost_answer_to_the_creation_of_a_link_is_found_out(pair: Pair) -> None:
    pair.create(pair.orders)
    pair.desk.server.faults.add("lost", "POST", "CreateShadowLink")
    pair.apply(link([pair.orders]))


@pytest.mark.emulated("injects a fault")
def test_what_tasks_report_is_shown_and_an_unknown_task_or_state_is_told(pair: Pair) -> None:
    pair.create(pair.orders)
    pair.apply(link([pair.orders]))
    pair.desk.server.faults.add("fails", LINK, "Source Topic Sync", message="no leader", times=1_000)
    reach = SiteOptions(invocation=pair.desk.bench.invocation, select=Select())
    deadline = time.monotonic() + 30
    while not (errors := read_mirror_errors(reach, ["link/west/from-east"]).errors):
        assert time.monotonic() < deadline
    assert [(each.task, each.trouble.code, each.trouble.message) for each in errors] == [
        ("Source Topic Sync", "FAULTED", "no leader (broker 1)")
    ]
    pair.desk.server.faults.clear()
    pair.desk.server.faults.add("state", "POST", "ListShadowLinks", message="SHADOW_TOPIC_STATE_RESTING", times=2)
    (seen,) = list_mirrors(reach, ["west"]).rows
    assert (seen.seen.status, seen.seen.trouble and seen.seen.trouble.code) == ("SOURCE_UNAVAILABLE", "RESTING")


@pytest.mark.emulated("injects a fault")
def test_a_cluster_that_cannot_link_says_why(pair: Pair) -> None:
    pair.create(pair.orders)
    pair.declare(link([pair.orders]))
    pair.desk.server.cluster.license_status = "expired"
    (problem,) = pair.errors(link([pair.orders]))
    assert "cannot mirror topics over a link: its licence is expired" in problem
    pair.desk.server.cluster.write({}, [SWITCH])
    planned = pair.desk.bench.plan().plan
    assert planned.errors == ()
    assert "enable_shadow_linking is not true on it" in " ".join(each.message for each in planned.warnings)
    pair.desk.server.cluster.license_status = "valid"


@pytest.mark.emulated("stops its Admin API")
def test_while_the_admin_api_is_away_a_link_is_neither_made_again_nor_given_to_jobs(pair: Pair) -> None:
    pair.create(pair.orders)
    made = link(autoCreate=prefixed(pair))
    pair.apply(made)
    pair.declare(made)
    text = (manifest := pair.desk.bench.folder / "manifests/all.yaml").read_text()
    for url in pair.desk.server.admin:
        text = text.replace(url, "http://127.0.0.1:1")
    manifest.write_text(text)
    planned = pair.desk.bench.plan(Select(allow=("connect:cluster/west",))).plan
    assert [action.address for action in planned.actions if action.address.startswith(("link/", "mirror/"))] == []
    assert any("cannot mirror topics over a link: cluster west: Admin API" in each.message for each in planned.errors)
