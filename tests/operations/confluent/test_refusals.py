"""What a plan refuses on Confluent clusters: exit code, address, cause and what to do, before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.cli.main import main
from reconciler.errors import NotAuthorizedError
from reconciler.providers.confluent.client import RestClient
from reconciler.providers.protocol import Edge
from reconciler.resources.cluster import Cluster
from tests.operations.confluent.test_confluent import Desk, describe_cluster, document, topic
from tests.waiting import until

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.confluent.server import Confluent
    from tests.servers.confluentfixtures import Pair

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("confluent")]
ORDERS = "orders-refused"
GROUPS = {"enabled": True, "filters": [{"name": "*"}]}
RULES = {"enabled": True, "filters": [{"resourceType": "any"}]}


class Typed:
    """A desk whose plans are typed as commands."""

    def __init__(
        self, bench: Bench, pair: Pair, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], **more: Any
    ) -> None:
        self.desk, self._capfd = Desk(bench, pair, ORDERS, **more), capfd
        monkeypatch.chdir(bench.folder)
        for name, value in self.desk.bench.invocation.environ.items():
            monkeypatch.setenv(name, value)

    def plan(self, *documents: dict[str, Any]) -> tuple[int, str]:
        """Return the exit code of `plan`, and its text without line breaks."""
        self.desk.declare(*documents)
        self._capfd.readouterr()
        code = main(("plan",))
        shown = self._capfd.readouterr()
        return code, " ".join((shown.out + shown.err).split())


@pytest.fixture
def typed(bench: Bench, confluent: Pair, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Typed:
    return Typed(bench, confluent, monkeypatch, capfd)


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "pausing a link of Cloud": ({}, {"paused": True}, ("link/east/", "does not pause links", "state: paused")),
    "another replication factor than three on Cloud": (
        {"replicationFactor": 2},
        {},
        (f"topic/west/{ORDERS}", "replication factor 2", "Set spec.replicationFactor to 3"),
    ),
    "a prefix of more than twelve characters": ({}, {"prefix": "thirteen-char"}, ("spec.prefix", "up to 12")),
    "a prefix with ACL sync": ({}, {"prefix": "w.", "aclSync": RULES}, ("cannot sync ACLs", "Leave out prefix")),
    "a synced config on a mirror": (
        {},
        {"mirrorTopics": [{"source": ORDERS, "configs": {"retention.ms": "1d"}}]},
        ("mirrorTopics[0].configs", "is synced from the source", "Set it on the source topic"),
    ),
    "offset sync without a filter": (
        {},
        {"consumerOffsetSync": {"enabled": True}},
        ("consumerOffsetSync.filters", "are required", "To take everything"),
    ),
    "ACL sync without a filter": (
        {},
        {"aclSync": {"enabled": True}},
        ("aclSync.filters", "are required", "To take everything"),
    ),
    "a link to itself": ({}, {"source": "east"}, ("to itself", "Name the cluster the records come from")),
    "an include list without what is always synced": (
        {},
        {"topicConfigSync": {"include": ["cleanup.policy", "message.timestamp.type"]}},
        ("topicConfigSync.include", "max.message.bytes", "add them"),
    ),
    "a config that Cloud does not let a mirror have": (
        {},
        {"mirrorTopics": [{"source": ORDERS, "configs": {"compression.type": "lz4"}}]},
        (f"mirror/east/{ORDERS}", "compression.type", "Confluent Cloud Dedicated sets it itself", "Remove it"),
    ),
    "tiered storage on Cloud": (
        {"configs": {"confluent.tier.enable": "true"}},
        {},
        (
            f"topic/west/{ORDERS}",
            "confluent.tier.enable",
            "Confluent Cloud keeps the records of all topics",
            "Remove it",
        ),
    ),
    "Kafka's tiered storage on Cloud": (
        {"configs": {"remote.storage.enable": "true"}},
        {},
        (f"topic/west/{ORDERS}", "remote.storage.enable", "Confluent Cloud keeps the records of all topics"),
    ),
}


@pytest.mark.fact("F-C-206", "F-C-211", "F-C-212")
@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_refused_at_plan_with_its_cause_and_what_to_do(typed: Typed, name: str) -> None:
    source, link, texts = REFUSALS[name]
    code, shown = typed.plan(topic(ORDERS, **source), typed.desk.mirror({ORDERS: "mirroring"}, **link))
    assert (code, [text for text in texts if text not in shown]) == (1, [])


def test_a_mirror_whose_name_is_not_prefix_and_source_cannot_be_declared(typed: Typed) -> None:
    named = {"mirrorTopics": [{"source": ORDERS, "name": "other"}]}
    code, shown = typed.plan(topic(ORDERS), typed.desk.mirror({}, **named))
    assert (code, "spec.mirrorTopics[0].name" in shown) == (1, True), shown


def test_a_link_in_use_by_mirrors_of_others_is_not_deleted(typed: Typed) -> None:
    desk = typed.desk
    auto = {"enabled": True, "filters": [{"name": ORDERS, "patternType": "prefixed"}]}
    desk.apply(topic(ORDERS), desk.mirror({}, autoCreate=auto))
    until(lambda: desk.states() == {ORDERS: "ACTIVE"}, desk.states)
    code, shown = typed.plan(topic(ORDERS))
    assert code == 1
    for text in (f"link/east/{desk.link}", f"mirror/east/{ORDERS}"):
        assert text in shown


LOGINS = {
    "a wrong key": ("401", "apiKey (${env:WEST_KEY}) and apiSecret (${env:WEST_SECRET})"),
    "a key of another cluster": ("403", "apiKey (${env:WEST_KEY}) and apiSecret (${env:WEST_SECRET})"),
}


@pytest.mark.parametrize("login", LOGINS)
def test_a_login_that_is_refused_is_told_once_by_its_reference(typed: Typed, login: str) -> None:
    status, hint = LOGINS[login]
    server = typed.desk.servers["west"]
    del server.keys[server.key]
    if status == "403":
        server.foreign_keys.add(server.key)
    code, shown = typed.plan(topic(ORDERS))
    assert (code, shown.count(f"({status})"), hint in shown) == (1, 1, True)
    assert not [secret for secret in (server.key, server.secret) if secret in shown]


def test_a_refused_login_to_the_source_of_a_failed_over_mirror_is_an_error(typed: Typed) -> None:
    desk, name = typed.desk, "refused-after-failover"
    desk.link = f"{name}-link"
    desk.apply(topic(name), desk.mirror({name: "mirroring"}))
    desk.apply(topic(name), desk.mirror({name: "failed-over"}))
    del desk.servers["west"].keys[desk.servers["west"].key]
    code, shown = typed.plan(topic(name, 2), desk.mirror({name: "failed-over"}))
    assert (code, LOGINS["a wrong key"][1] in shown, "--exclude '*/west/*'" in shown) == (1, True, True), shown


def test_another_cluster_behind_the_endpoint_is_refused_with_both_ids(
    bench: Bench, confluent: Pair, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    typed = Typed(bench, confluent, monkeypatch, capfd, clusterId="lkc-zzzzzz")
    code, shown = typed.plan()
    assert (code, "clusterId is lkc-zzzzzz" in shown, confluent.source.cluster_id in shown) == (1, True, True)


def test_brokers_of_another_cluster_are_refused_with_both_ids(typed: Typed) -> None:
    west, east = (typed.desk.servers[name] for name in ("west", "east"))
    typed.desk.write("west", describe_cluster("west", west, bootstrapServers=[east.kafka]))
    code, shown = typed.plan(topic(ORDERS))
    assert code == 1
    told = f"cluster west: clusterId is {west.cluster_id}, and its brokers are those of {east.cluster_id}"
    assert told in shown, shown


def test_a_kind_that_the_cluster_is_not_is_refused(
    bench: Bench,
    start_confluent: Callable[..., Pair],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    typed = Typed(bench, start_confluent(kind="standard"), monkeypatch, capfd, kind="dedicated")
    code, shown = typed.plan(topic(ORDERS), typed.desk.mirror({ORDERS: "mirroring"}))
    assert code == 1
    for text in ("cluster east: kind is dedicated", "cluster linking is disabled on it", "Correct kind of the Cluster"):
        assert text in shown


def test_a_kind_without_links_is_refused_of_a_cluster_that_has_them(
    bench: Bench, confluent: Pair, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    typed = Typed(bench, confluent, monkeypatch, capfd, kind="standard")
    code, shown = typed.plan(topic(ORDERS), typed.desk.mirror({ORDERS: "mirroring"}))
    assert (code, "cluster east: kind is standard" in shown) == (1, True), shown


def open_by_token(pair: Pair, tmp_path: Path) -> tuple[Confluent, RestClient]:
    server = pair.source
    security = {
        "protocol": "SASL_SSL",
        "mechanism": "OAUTHBEARER",
        "tokenEndpointUrl": server.token_url,
        "clientId": server.key,
        "clientSecret": "${env:SECRET}",
    }
    connection = {"restEndpoint": server.rest, "clusterId": server.cluster_id, "security": security}
    cluster = document("Cluster", "west", {"provider": "confluent", "confluent": connection})
    edge = Edge(folder=tmp_path, environ={"SECRET": server.secret}, new_id=lambda: "id", now_ms=lambda: 0)
    return server, RestClient(Cluster.model_validate(cluster), edge)


def test_a_token_that_has_expired_is_renewed_once(confluent: Pair, tmp_path: Path) -> None:
    server, rest = open_by_token(confluent, tmp_path)
    rest.read()
    assert len(server.tokens) == 1
    server.tokens = dict.fromkeys(server.tokens, 0.0)
    rest.read()
    assert len(server.tokens) == 2


def test_a_token_that_is_refused_again_is_told_once_by_its_field(confluent: Pair, tmp_path: Path) -> None:
    server, rest = open_by_token(confluent, tmp_path)
    rest.read()
    server.tokens.clear()
    server.token_seconds = -1.0
    del server.requests[:]
    with pytest.raises(NotAuthorizedError, match="refuses the login") as error:
        rest.read()
    assert "Check security.clientSecret (${env:SECRET}) of the Cluster" in str(error.value.hint)
    assert len([path for _, _, path in server.requests if "/clusters/" in path]) == 2
