"""Shadow links of the emulated Redpanda, from a Kafka cluster: shown against the documented contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import AdminClient as Brokers

from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.mirrors_text import format_mirror_details, format_mirrors
from reconciler.cli.text.sections import format_waiting
from reconciler.errors import UserError
from reconciler.operations.clusters.topic_orders import delete_topics
from reconciler.operations.mirrors.link_orders import order_links, parse_link_changes
from reconciler.operations.mirrors.mirror_views import list_mirrors, read_mirror_errors
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.operations.verify import VerifyOptions, verify, verify_link
from reconciler.planning.actions import Adopt, Transition
from reconciler.planning.orders import AlterLinkOrder
from reconciler.providers.redpanda.client import AdminClient
from reconciler.providers.redpanda.link_options import build_literal_filter
from reconciler.providers.registry import open_provider
from reconciler.resources.address import Address
from reconciler.resources.mirror_link import MirrorTopic
from tests.contracts.names import own
from tests.operations.redpanda.test_redpanda import Desk, desk_on, document, ids, read_topics
from tests.operations.test_drift import look
from tests.servers.brokers import list_rules
from tests.servers.emulation.faults import LINK
from tests.servers.redpandaexternal import EXTERNAL
from tests.waiting import until

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

    def mirror(self, *names: str) -> None:
        self.create(*names)
        self.apply(link(names))

    def errors(self, *documents: dict[str, Any]) -> list[str]:
        self.declare(*documents)
        return [f"{each.message}. {each.hint}" for each in self.desk.bench.plan().plan.errors]

    def call(self, method: str, **content: Any) -> Any:
        return self.desk.admin.call_shadow_links(method, content)

    def filters(self) -> list[Any]:
        (row,) = self.call("ListShadowLinks")["shadowLinks"]
        return list(row["configurations"]["topicMetadataSyncOptions"]["autoCreateShadowTopicFilters"])

    def states(self) -> dict[str, str]:
        (link,) = self.call("ListShadowLinks")["shadowLinks"]
        shadows = link["status"]["shadowTopics"]
        return {each["name"]: each["status"]["state"].removeprefix("SHADOW_TOPIC_STATE_") for each in shadows}

    def wait_for(self, states: dict[str, str]) -> None:
        until(lambda: self.states() == states, self.states)


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
    syncs = {"autoCreate": prefixed(pair), "consumerOffsetSync": groups, "aclSync": rules}
    pair.apply(link(**syncs, startOffset="latest", metadataInterval="1m"))
    pair.apply(link(autoCreate={**prefixed(pair), "filters": [{"name": "*"}]}, consumerOffsetSync=groups))
    assert {**build_literal_filter("__reconciler"), "filterType": "FILTER_TYPE_EXCLUDE"} in pair.filters()
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
    pair.mirror(pair.orders)
    (problem,) = pair.errors()
    assert f"it is no longer declared, but mirror/west/{pair.orders} is not stopped" in problem
    assert pair.desk.bench.apply(Select(allow=("delete:mirror/west/*", "delete:link/west/*"))).verdict is None
    assert pair.call("ListShadowLinks") == {"shadowLinks": []}
    assert pair.orders not in read_topics(pair.desk)


@pytest.mark.emulated("injects a fault")
def test_topics_whose_failover_fails_are_told_and_only_they(pair: Pair) -> None:
    names = [f"{pair.prefix}-{number}" for number in range(20)]
    pair.mirror(*names)
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
    again = pair.desk.bench.apply(Select(allow=("failover:mirror/west/*",))).result
    assert again is not None
    errors = [(each.error.message, each.error.hint) for each in again.failed]
    assert len(errors) == len(failing)
    for message, hint in errors:
        assert "Redpanda fails over only topics that are ACTIVE, and it is FAULTED" in message
        assert f"rpk shadow delete {pair.link} --force" in hint


@pytest.mark.emulated("injects a fault")
def test_topics_whose_failover_is_refused_are_the_next_applys_and_nothing_is_left_then(pair: Pair) -> None:
    names = [f"{pair.prefix}-{number}" for number in range(20)]
    pair.mirror(*names)
    pair.desk.server.faults.add("status", "POST", "FailOver", status=500, message="no controller", times=3)
    pair.declare(link(names, "failed-over"))
    result = pair.desk.bench.apply(Select(allow=("failover:mirror/west/*",))).result
    assert result is not None
    refused = {each.id for each in result.failed}
    assert (len(refused), set(ids(pair.desk.bench.plan()))) == (3, refused)
    pair.apply(link(names, "failed-over"))


@pytest.mark.emulated("injects a fault")
def test_a_failover_that_was_killed_goes_on_where_it_ended(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{pair.prefix}-{number}" for number in range(6)]
    pair.mirror(*names)
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
    pair.mirror(pair.orders)
    pair.desk.server.faults.add("lost", "POST", "FailOver")
    pair.apply(link([pair.orders], "failed-over"))


@pytest.mark.emulated("injects a fault")
def test_a_lost_answer_to_the_creation_of_a_link_is_found_out(pair: Pair) -> None:
    pair.create(pair.orders)
    pair.desk.server.faults.add("lost", "POST", "CreateShadowLink")
    pair.apply(link([pair.orders]))


@pytest.mark.emulated("injects a fault")
def test_what_tasks_report_is_shown_and_an_unknown_task_or_state_is_told(pair: Pair) -> None:
    pair.mirror(pair.orders)
    pair.desk.server.faults.add("fails", LINK, "Source Topic Sync", message="no leader", times=1_000)
    reach = SiteOptions(invocation=pair.desk.bench.invocation, select=Select())
    until(lambda: read_mirror_errors(reach, ["link/west/from-east"]).errors)
    errors = read_mirror_errors(reach, ["link/west/from-east"]).errors
    assert [(each.task, each.trouble.code, each.trouble.message) for each in errors] == [
        ("Source Topic Sync", "FAULTED", "no leader (broker 1)")
    ]
    pair.desk.server.faults.clear()
    pair.desk.server.faults.add("state", "POST", "ListShadowLinks", message="SHADOW_TOPIC_STATE_RESTING", times=2)
    listed = list_mirrors(reach, ["west"])
    (seen,) = listed.rows
    assert (seen.seen.status, seen.seen.trouble and seen.seen.trouble.code) == ("SOURCE_UNAVAILABLE", "RESTING")
    for lines in (format_mirrors(listed), format_mirror_details([seen])):
        assert "SOURCE_UNAVAILABLE (RESTING)" in to_plain_text(lines)


@pytest.mark.emulated("delays a failover")
def test_a_failover_in_progress_is_left_to_the_cluster_that_finishes_it(pair: Pair) -> None:
    pair.mirror(pair.orders)
    pair.desk.server.faults.add("slow", LINK, f"failover/{pair.orders}/", seconds=60)
    pair.call("FailOver", name=pair.link, shadowTopicName=pair.orders)
    (waiting,) = pair.desk.bench.plan().plan.waiting
    assert any("Its cluster finishes it" in each.hint for each in look(pair.desk.bench).warnings)
    assert format_waiting(waiting) == "pending_stopped: takes no records until then, its cluster finishes it"
    (seen,) = list_mirrors(SiteOptions(invocation=pair.desk.bench.invocation, select=Select()), ["west"]).rows
    assert "in progress: its cluster finishes it" in to_plain_text(format_mirror_details([seen]))


@pytest.mark.parametrize(
    "field",
    [
        {"protect": "acl"},
        {"paused": True},
        {"prefix": "p."},
        {"retryTimeout": "1m"},
        {"mode": "bidirectional"},
        {"topicConfigSync": {"interval": "1m"}},
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_field_that_shadow_links_do_not_have_is_refused_with_the_reason(pair: Pair, field: dict[str, Any]) -> None:
    pair.desk.apply()
    (problem,) = [each for each in pair.errors(link(**field)) if "cannot have" in each]
    assert any(reason in problem for reason in (" on a link: ", " of mode bidirectional: "))
    assert problem.endswith("Remove the cause, or leave it out: an unsupported field is never ignored.")


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


@pytest.mark.emulated("takes the licence away, and waits for a restart")
@pytest.mark.parametrize("waiting", [False, True], ids=["licence expired", "restart pending"])
def test_a_link_that_exists_is_mirrored_shown_and_failed_over_when_new_ones_are_refused(
    pair: Pair, *, waiting: bool
) -> None:
    pair.mirror(pair.orders)
    server = pair.desk.server
    if waiting:
        server.cluster.write({"cloud_storage_max_connections": 21}, [])
    else:
        server.cluster.license_status = "expired"
    try:
        assert ids(pair.desk.bench.plan()) == []
        assert pair.desk.bench.plan().plan.errors == ()
        (row,) = list_mirrors(SiteOptions(invocation=pair.desk.bench.invocation, select=Select()), ["west"]).rows
        assert row.seen.status == "ACTIVE"
        pair.apply(link([pair.orders], "failed-over"))
    finally:
        server.cluster.license_status = "valid"
        server.cluster.write({}, ["cloud_storage_max_connections"])
        server.restart()


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
    assert any("does not show it. It may exist: cluster west: Admin API" in each.message for each in planned.errors)
    assert planned.drift == ()
    allowed = Select(allow=("connect:cluster/west",))
    reach = SiteOptions(invocation=pair.desk.bench.invocation, select=allowed)
    assert "Admin API" in str(list_mirrors(reach, ["west"]).verdict)


def test_a_link_whose_options_are_not_understood_is_told(pair: Pair) -> None:
    options = {
        "clientOptions": {"bootstrapServers": pair.source.split(",")},
        "securitySyncOptions": {"interval": "0.1s"},
    }
    options["securitySyncOptions"]["aclFilters"] = [
        {
            "resourceFilter": {"resourceType": "ACL_RESOURCE_ANY", "patternType": "ACL_PATTERN_ANY"},
            "accessFilter": {"operation": "ACL_OPERATION_ANY", "permissionType": "ACL_PERMISSION_TYPE_ANY"},
        }
    ]
    pair.desk.apply()
    pair.call("CreateShadowLink", shadowLink={"name": pair.link, "configurations": options})
    with pytest.raises(UserError, match=r"has options that are not understood: .*100 ms is less than the 1s"):
        pair.desk.bench.plan()


def test_a_failed_over_topic_leaves_no_filter_that_would_make_it_again(pair: Pair) -> None:
    pair.mirror(pair.orders)
    assert build_literal_filter(pair.orders) in pair.filters()
    pair.apply(link([pair.orders], "failed-over"))
    assert build_literal_filter(pair.orders) not in pair.filters()


def test_a_failed_over_topic_is_deleted_and_mirrored_again_as_the_plan_says(pair: Pair) -> None:
    pair.mirror(pair.orders)
    pair.apply(link([pair.orders], "failed-over"))
    topic = f"topic/west/{pair.orders}"
    (problem,) = pair.errors(link([pair.orders]))
    assert f"Delete it and mirror again: reconciler topic delete {topic}" in problem
    delete_topics(pair.desk.bench.acting("topic delete"), [topic], confirm=lambda _: True, allow=[f"delete:{topic}"])
    pair.apply(link([pair.orders]))
    assert pair.states() == {pair.orders: "ACTIVE"}


def test_a_mirror_is_compared_with_its_source(pair: Pair) -> None:
    pair.create(pair.orders, records=3)
    pair.apply(link([pair.orders], consumerOffsetSync={"enabled": False}, autoCreate={"enabled": False}))
    pair.desk.consume(pair.orders, 3)
    reach = SiteOptions(invocation=pair.desk.bench.invocation, select=Select())
    options = VerifyOptions(deep=False, report=lambda _: None, stop=pair.desk.bench.stop)
    assert verify_link(reach, Address(f"link/west/{pair.link}"), options).verdict is None
    assert verify(reach, f"mirror/west/{pair.orders}", None, options).verdict is None


def test_a_link_is_altered_by_a_command(pair: Pair) -> None:
    pair.mirror(pair.orders)
    changes = parse_link_changes({"metadataInterval": "10s"}, ())
    order_links(pair.desk.bench.acting(), [f"link/west/{pair.link}"], lambda at, _: AlterLinkOrder(at, changes))
    (row,) = pair.call("ListShadowLinks")["shadowLinks"]
    assert row["configurations"]["topicMetadataSyncOptions"]["interval"] == "10s"
    assert build_literal_filter(pair.orders) in pair.filters()


def commits(consumer: Consumer, place: TopicPartition) -> bool:
    """Commit an offset; false while the group's coordinator still loads."""
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return False
    return True


def test_group_offsets_and_access_rules_follow_their_source(pair: Pair) -> None:
    pair.create(pair.orders, records=3)
    group, allow = f"{pair.prefix}-readers", (AclOperation.READ, AclPermissionType.ALLOW)
    rule = AclBinding(ResourceType.TOPIC, pair.orders, ResourcePatternType.LITERAL, "User:reader", "*", *allow)
    admin = Brokers({"bootstrap.servers": pair.source})
    admin.create_acls([rule])[rule].result()
    consumer = Consumer({"bootstrap.servers": pair.source, "group.id": group, "enable.auto.commit": False})
    until(lambda: commits(consumer, TopicPartition(pair.orders, 0, 2)))
    consumer.close()
    groups = {"enabled": True, "filters": [{"name": pair.prefix, "patternType": "prefixed"}]}
    rules = {"enabled": True, "filters": [{"resourceType": "topic"}]}
    pair.apply(link([pair.orders], consumerOffsetSync=groups, aclSync=rules))
    west = Brokers(pair.desk.settings)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(pair.orders, 0)])
    until(lambda: west.list_consumer_group_offsets([wanted])[group].result().topic_partitions[0].offset == 2)
    until(lambda: list_rules(west, pair.orders))
    (rule,) = list_rules(west, pair.orders)
    assert (rule.principal, rule.operation) == ("User:reader", AclOperation.READ)


@pytest.mark.emulated("injects a fault")
def test_an_answer_of_another_shape_is_not_that_there_are_no_links(pair: Pair) -> None:
    pair.desk.apply()
    for text in ("[1, 2]", '{"links": []}'):
        pair.desk.server.faults.add("text", "POST", "ListShadowLinks", message=text, times=9)
        with pytest.raises(UserError, match=r"no object of JSON|not understood: 'shadowLinks'"):
            pair.desk.bench.plan()
        pair.desk.server.faults.clear()


@pytest.mark.emulated("switches shadow links off")
def test_shadow_links_stay_on_while_there_is_one_and_a_link_that_cannot_be_shown_is_not_made_again(pair: Pair) -> None:
    pair.create(pair.orders)
    made = link(autoCreate=prefixed(pair))
    pair.apply(made)
    pair.declare(made)
    pair.desk.declare(made, properties={SWITCH: "false"})
    result = pair.desk.bench.apply().result
    assert result is not None
    assert ["stays on, because it has link" in each.error.message for each in result.failed] == [True]
    assert not pair.desk.server.cluster.write({}, [SWITCH])
    pair.declare(made)
    planned = pair.desk.bench.plan().plan
    assert [action.address for action in planned.actions] == []
    assert [str(each.address) for each in planned.errors] == [f"link/west/{pair.link}"]
    assert planned.drift == ()
