"""Emulated Confluent clusters with cluster links between them: shown against the documented contract."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import urllib3
import yaml
from confluent_kafka import Producer

from reconciler.operations.clusters.topic_orders import TrimOptions, trim_topic
from reconciler.operations.export import ExportOptions, export, parse_cluster
from reconciler.operations.mirrors.mirror_views import MirrorRow, list_mirrors
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.providers.confluent import mirrors
from tests.contracts.confluent import describe_connection, is_secured
from tests.contracts.names import own
from tests.operations.redpanda.test_redpanda import ids
from tests.servers.confluent.mirrors import MIRROR
from tests.servers.emulation.faults import ALWAYS
from tests.waiting import until

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.steps.orders import OrderResult
    from tests.servers.confluent.server import Confluent
    from tests.servers.confluentfixtures import Pair

emulated = pytest.mark.emulated("sets or counts what only the emulation has")
pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("confluent")]
WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
spec: {references: {allow: ["env:*"]}}
"""
ALLOWED = Select(allow=("failover:*", "promote:*", "pause:*", "delete:*"))


class Desk:
    """A workspace of the clusters `west` and `east`, into which a link copies topics of `west`."""

    allowed = ALLOWED

    def __init__(self, bench: Bench, pair: Pair, orders: str, **connection: Any) -> None:
        for name in ("west", "orders"):
            (bench.folder / f"manifests/{name}.yaml").unlink()
        bench.write("reconciler.yaml", WORKSPACE)
        self.servers = {"west": pair.source, "east": pair.destination}
        secrets = {
            f"{name.upper()}_{field.upper()}": getattr(server, field)
            for name, server in self.servers.items()
            for field in ("key", "secret")
        }
        self.bench, self.link = bench.with_(environ=secrets), f"{orders}-link"
        for name, server in self.servers.items():
            self.write(name, describe_cluster(name, server, **connection))

    def write(self, file: str, *documents: dict[str, Any]) -> None:
        self.bench.write(f"manifests/{file}.yaml", yaml.safe_dump_all(documents))

    def declare(self, *documents: dict[str, Any]) -> None:
        self.write("all", *documents)

    def apply(self, *documents: dict[str, Any]) -> None:
        """Declare, apply, and see that nothing is left to do."""
        self.declare(*documents)
        applied = self.bench.apply(self.allowed)
        assert applied.verdict is None, applied.result and [each.error for each in applied.result.failed]
        assert ids(self.bench.plan()) == []

    def errors(self, *documents: dict[str, Any]) -> list[str]:
        self.declare(*documents)
        return [f"{each.message}. {each.hint}" for each in self.bench.plan().plan.errors]

    def mirror(self, names: dict[str, str], **spec: Any) -> dict[str, Any]:
        """Return the link with mirrors, as states by name."""
        entries = [{"source": name, "state": state} for name, state in names.items()]
        return document("MirrorLink", self.link, {"source": "west", "mirrorTopics": entries, **spec}, "east")

    def states(self) -> dict[str, str]:
        rows = self.get("east", f"links/{self.link}/mirrors") or {"data": []}
        return {row["mirror_topic_name"]: row["mirror_status"] for row in rows["data"]}

    def get(self, name: str, path: str) -> dict[str, Any] | None:
        """Return what the REST API of a cluster answers; `None` for what does not exist."""
        server = self.servers[name]
        url = f"{server.rest}/kafka/v3/clusters/{server.cluster_id}/{path}"
        answer = urllib3.request("GET", url, headers=urllib3.make_headers(basic_auth=f"{server.key}:{server.secret}"))
        assert answer.status in {200, 404}, answer.data
        return None if answer.status == 404 else dict(answer.json())

    def row(self) -> MirrorRow:
        (row,) = list_mirrors(SiteOptions(invocation=self.bench.invocation, select=Select()), ["east"], self.link).rows
        return row

    def fail(self) -> list[str]:
        """Apply, and return the messages of the actions that failed."""
        result = self.bench.apply(self.allowed).result
        assert result is not None
        return sorted(each.error.message for each in result.failed)


def describe_cluster(name: str, server: Confluent, **connection: Any) -> dict[str, Any]:
    spec = {"provider": "confluent", "confluent": describe_connection(server, name.upper(), **connection)}
    return document("Cluster", name, spec)


def client_settings(server: Confluent) -> dict[str, str]:
    login = {"sasl.mechanisms": "PLAIN", "sasl.username": server.key, "sasl.password": server.secret}
    secured = {"security.protocol": "SASL_SSL", **login} if is_secured(server) else {}
    return {"bootstrap.servers": server.kafka, **secured}


def document(kind: str, name: str, spec: dict[str, Any], cluster: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} if cluster is None else {"name": name, "cluster": cluster}
    return {"apiVersion": "reconciler/v1", "kind": kind, "metadata": metadata, "spec": spec}


def topic(name: str, partitions: int = 1, **spec: Any) -> dict[str, Any]:
    return document("Topic", name, {"partitions": partitions, **spec}, "west")


@pytest.fixture
def orders() -> str:
    """Return a topic's name that no other test uses."""
    return own(f"orders-{uuid4().hex[:8]}")


@pytest.fixture
def desk(bench: Bench, confluent: Pair, orders: str) -> Desk:
    return Desk(bench, confluent, orders)


def test_topics_configs_and_rules_are_made_changed_and_deleted(desk: Desk, orders: str) -> None:
    rule = {"principal": "User:sa-1", "operations": ["read", "describe"]}
    desk.apply(topic(orders, 2, configs={"retention.ms": "1d"}, acls=[rule]), topic(f"{orders}-other"))
    desk.apply(topic(orders, 3, configs={"retention.ms": "2d", "cleanup.policy": "compact"}), topic(f"{orders}-other"))
    grown = desk.get("west", f"topics/{orders}")
    assert grown is not None
    assert grown["partitions_count"] == 3
    desk.apply(topic(orders, 3))
    desk.apply()
    assert [desk.get("west", f"topics/{name}") for name in (orders, f"{orders}-other")] == [None, None]


@pytest.mark.fact("F-C-211")
def test_the_replication_factor_of_cloud_is_refused_at_plan(desk: Desk, orders: str) -> None:
    assert desk.errors(topic(orders, replicationFactor=2)) == [
        "replication factor 2 is not one that platform confluent permits: 3. Set spec.replicationFactor to 3."
    ]


@pytest.mark.fact("F-C-201", "F-C-203")
@pytest.mark.parametrize("end", ["promoted", "failed-over"])
def test_a_topic_is_mirrored_paused_resumed_and_ended(desk: Desk, orders: str, end: str) -> None:
    source = topic(orders, 2)
    desk.apply(source, desk.mirror({orders: "mirroring"}))
    producer = Producer(client_settings(desk.servers["west"]))
    producer.produce(orders, b"1")
    assert producer.flush(30) == 0
    for state, status in (("paused", "PAUSED"), ("mirroring", "ACTIVE"), (end, "STOPPED")):
        desk.apply(source, desk.mirror({orders: state}))
        assert desk.states() == {orders: status}


def test_a_trim_names_the_mirror_that_lacks_the_records_and_the_link_never_copies_them(desk: Desk, orders: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    desk.apply(topic(orders), desk.mirror({orders: "paused"}))
    producer = Producer(client_settings(desk.servers["west"]))
    for value in (b"1", b"2", b"3"):
        producer.produce(orders, value)
    assert producer.flush(30) == 0
    address, mirror = f"topic/west/{orders}", f"mirror/east/{orders}"

    def trim(*allow: str) -> OrderResult:
        acting = desk.bench.acting("topic trim")
        return trim_topic(acting, TrimOptions(address, "2"), confirm=lambda _: True, allow=allow)

    (action,) = trim().plan.actions
    assert action.blocked is not None
    assert action.blocked.message.endswith(f"; {mirror} has not copied 2 offsets of them")
    assert trim(f"trim:{address}").verdict is None
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    until(lambda: desk.row().partitions[0].lag == 0, desk.row)


def test_lags_and_positions_are_listed(desk: Desk, orders: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    row = desk.row()
    assert (row.seen.name, row.seen.status.value, [each.lag for each in row.partitions]) == (orders, "ACTIVE", [0])


@emulated
def test_a_verb_whose_answer_was_lost_is_not_sent_again(desk: Desk, orders: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    desk.servers["east"].faults.add("lost", "POST", "mirrors:failover")
    del desk.servers["east"].requests[:]
    desk.apply(topic(orders), desk.mirror({orders: "failed-over"}))
    sent = [path for _, _, path in desk.servers["east"].requests if "mirrors:failover" in path]
    assert len(sent) == 1


@emulated
@pytest.mark.parametrize("state", ["mirroring", "promoted", "failed-over"])
def test_what_was_failed_over_by_hand_is_adopted(desk: Desk, orders: str, state: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    server = desk.servers["east"]
    server.mirrors.stop(server.links.rows[desk.link].mirrors[orders])
    desk.apply(topic(orders), desk.mirror({orders: state}))
    assert desk.states() == {orders: "STOPPED"}


@emulated
def test_what_was_failed_over_by_hand_is_held_while_the_files_still_mirror_it(desk: Desk, orders: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    server = desk.servers["east"]
    server.mirrors.stop(server.links.rows[desk.link].mirrors[orders])
    planned = desk.bench.plan()
    assert (ids(planned), planned.plan.errors) == ([], ())
    assert [held.current for held in planned.plan.held] == ["failed-over"]


def test_options_of_a_link_are_changed_in_place_and_come_back_as_declared(desk: Desk, orders: str) -> None:
    groups = {"enabled": True, "filters": [{"name": "*"}], "interval": "10s"}
    rules = {"enabled": True, "filters": [{"resourceType": "topic", "operation": "read"}]}
    creating = {"enabled": True, "filters": [{"name": f"{orders}-auto", "patternType": "prefixed"}]}
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}, consumerOffsetSync=groups, aclSync=rules))
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}, autoCreate=creating))
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))


@pytest.mark.fact("F-C-206")
def test_pausing_a_link_of_cloud_is_refused_at_plan(desk: Desk, orders: str) -> None:
    (error,) = desk.errors(topic(orders), desk.mirror({orders: "mirroring"}, paused=True))
    assert "Confluent Cloud does not pause links" in error


def test_mirrors_and_their_link_are_deleted(desk: Desk, orders: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    desk.apply(topic(orders), desk.mirror({}))
    assert desk.states() == {}
    desk.apply(topic(orders))
    assert desk.get("east", f"links/{desk.link}") is None


def test_without_brokers_all_but_records_works(bench: Bench, confluent: Pair, orders: str) -> None:
    desk = Desk(bench, confluent, orders, bootstrapServers=None, security=None)
    desk.write("west", describe_cluster("west", confluent.source))  # links read from brokers
    desk.apply(topic(orders, 2), desk.mirror({orders: "mirroring"}))
    desk.apply(topic(orders, 2), desk.mirror({orders: "promoted"}))


@emulated
@pytest.mark.fact("F-C-204")
@pytest.mark.parametrize("first", ["with brokers", "without brokers"])
def test_brokers_are_declared_or_removed_later_and_no_topic_looks_recreated(
    bench: Bench, confluent: Pair, orders: str, first: str
) -> None:
    desk = Desk(bench, confluent, orders)
    server = desk.servers["east"]
    both = {
        "with brokers": describe_cluster("east", server),
        "without brokers": describe_cluster("east", server, bootstrapServers=None, security=None),
    }
    for cluster in (both.pop(first), *both.values()):
        desk.write("east", cluster)
        desk.write("more", document("Topic", f"{orders}-more", {"partitions": 1}, "east"))
        desk.declare(topic(orders), desk.mirror({orders: "mirroring"}))
        assert desk.bench.plan().plan.drift == ()
        desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))


def test_a_success_without_a_body_is_a_success(desk: Desk, orders: str) -> None:
    desk.servers["east"].faults.add("empty", "POST", "/links", times=2, status=200)
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))


@emulated
@pytest.mark.fact("F-C-205")
def test_what_passes_after_the_creation_of_a_link_is_asked_again(desk: Desk, orders: str) -> None:
    desk.servers["east"].settle_seconds = 1.0
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))


@emulated
@pytest.mark.fact("F-C-209")
def test_a_state_that_is_unknown_here_is_told_and_stops_no_plan(desk: Desk, orders: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    desk.servers["east"].mirrors.set_state(desk.link, orders, "NEW_STATE")
    assert ids(desk.bench.plan()) == []
    row = desk.row()
    assert row.seen.trouble is not None
    assert row.seen.trouble.code == "NEW_STATE"


@emulated
@pytest.mark.parametrize(("header", "is_json"), [("Retry-After", False), ("X-RateLimit-Reset", True), ("", False)])
def test_a_limit_of_requests_slows_down_and_loses_nothing(
    desk: Desk, orders: str, header: str, *, is_json: bool
) -> None:
    server = desk.servers["east"]
    server.rate, server.rate_header, server.rate_is_json = 5, header, is_json
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))


@emulated
@pytest.mark.parametrize("header", ["Retry-After", ""])
def test_of_the_requests_that_a_server_lets_through_four_of_five_are_used(desk: Desk, orders: str, header: str) -> None:
    server, rate = desk.servers["west"], 5
    server.rate, server.rate_header = rate, header
    del server.passed[:]
    desk.apply(*(topic(f"{orders}-{number}") for number in range(8 * rate)))
    created = [at for at, method, path in server.passed if method == "POST" and path.endswith("/topics")]
    steady = created[rate:]  # after what was saved up before
    assert (len(steady) - 1) / (steady[-1] - steady[0]) >= 0.8 * rate


@emulated
def test_a_plan_sends_at_most_12_requests_however_many_topics_and_mirrors_there_are(desk: Desk, orders: str) -> None:
    names = [f"{orders}-{number}" for number in range(30)]
    desk.apply(*map(topic, names), desk.mirror(dict.fromkeys(names, "mirroring")))
    for server in desk.servers.values():
        del server.requests[:]
    assert ids(desk.bench.plan()) == []
    sent = [path for server in desk.servers.values() for _, _, path in server.requests]
    assert len(sent) <= 12, sent


@emulated
def test_a_failover_sends_a_verb_for_100_mirrors_and_reads_all_of_them_at_once(desk: Desk, orders: str) -> None:
    names, server = [f"{orders}-{number:03d}" for number in range(101)], desk.servers["east"]
    desk.apply(*map(topic, names), desk.mirror(dict.fromkeys(names, "mirroring")))
    desk.declare(*map(topic, names), desk.mirror(dict.fromkeys(names, "failed-over")))
    del server.requests[:]
    assert desk.bench.apply(ALLOWED).verdict is None
    sent = [path.partition("?")[0].rpartition("/")[2] for _, _, path in server.requests]
    assert {*desk.states().values()} == {"STOPPED"}
    assert sent.count("mirrors:failover") == 2
    assert not [path for path in sent if path in names], "no mirror is read by itself"


@emulated
def test_a_promotion_that_hangs_tells_what_confluent_reports(
    desk: Desk, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "_STALLED_S", 1.0)
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    why = {"code": "AUTHENTICATION_ERROR", "message": "the login was taken away"}
    fault = desk.servers["east"].faults.add("hangs", MIRROR, f"{orders}/PENDING_STOPPED/", times=ALWAYS, **why)
    desk.declare(topic(orders), desk.mirror({orders: "promoted"}))
    (message,) = desk.fail()
    assert "PENDING_STOPPED: AUTHENTICATION_ERROR: the login was taken away" in message
    fault.end()
    until(lambda: desk.states() == {orders: "STOPPED"}, desk.states)
    desk.apply(topic(orders), desk.mirror({orders: "promoted"}))


def test_secrets_stand_in_no_file_of_the_workspace(desk: Desk, orders: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    texts = [path.read_bytes() for path in desk.bench.folder.rglob("*") if path.is_file()]
    assert texts
    assert not [server for server in desk.servers.values() for text in texts if server.secret.encode() in text]


def test_a_config_that_cloud_sets_itself_is_refused_at_plan(desk: Desk, orders: str) -> None:
    (error,) = desk.errors(topic(orders, configs={"min.cleanable.dirty.ratio": "0.1"}))
    assert "sets it itself" in error


def test_an_export_of_a_live_cluster_is_planned_as_adoptions_only(bench: Bench, confluent: Pair, orders: str) -> None:
    desk = Desk(bench, confluent, orders)
    rule = {"principal": "User:sa-1", "operations": ["read"]}
    groups = {"enabled": True, "filters": [{"name": "*"}]}
    source = topic(orders, 2, configs={"retention.ms": "1d"}, acls=[rule])
    desk.apply(source, desk.mirror({orders: "mirroring"}, consumerOffsetSync=groups))
    desk.declare()
    shutil.rmtree(bench.folder / ".reconciler")
    for name in desk.servers:
        folder = bench.folder / "manifests" / name
        export(desk.bench.invocation, Select(), name, ExportOptions(out=folder))
    took = Select(allow=("adopt:*",))
    planned = desk.bench.plan(took).plan
    assert not planned.errors
    assert {action.verb for action in planned.actions} == {"adopt"}, ids(planned)
    assert desk.bench.apply(took).verdict is None
    assert ids(desk.bench.plan()) == []


@emulated
def test_an_export_by_brokers_says_that_it_has_no_cluster_links(desk: Desk) -> None:
    server = desk.servers["east"]
    bare = parse_cluster("new", [server.kafka], (), None, cwd=desk.bench.folder, out=desk.bench.folder / "new")
    exported = export(desk.bench.invocation, Select(), "new", ExportOptions(out=desk.bench.folder / "new", bare=bare))
    told = [item.error for item in exported.unsaid if item.place == "cluster/new"]
    assert [server.cluster_id in why.message and "provider: confluent" in why.hint for why in told] == [True]
