"""`protect: acl`: whom an access rule lets write to a mirror is denied that, as long as it is a mirror."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)

from reconciler.errors import UserError
from reconciler.planning.actions import Change, Delete, Update
from reconciler.providers.brokers.client import (
    ABSENT,
    UNAUTHORIZED,
    KafkaClient,
    create_bindings,
    delete_bindings,
    read_bindings,
)
from reconciler.providers.brokers.ledger import build_writer_id
from reconciler.providers.brokers.links.link_site import LinkSite
from reconciler.providers.brokers.links.link_states import build_mirror_changes, parse_states
from reconciler.providers.brokers.security import find_principal
from reconciler.providers.brokers.translate import TopicMetadata
from reconciler.resources.acls import AccessBinding, build_denial, build_denial_path
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.topic import Topic
from tests.providers.brokers.links.linked import BROKERS, EAST, PREFIX, Linked, provider_of
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.thorough

US = "User:ANONYMOUS"
ANY = (ResourceType.ANY, None, ACLResourcePatternType.ANY)


class Guarded:
    """A mirror of a link that protects it, and principals that only this test knows."""

    def __init__(self, linked: Linked, prefix: str) -> None:
        self.linked, self.prefix = linked, prefix
        self.made: list[AccessBinding] = []

    def user(self, name: str) -> str:
        return f"User:{name}-{self.prefix}"

    def allow(
        self, name: str, *, on: str | None = None, is_prefix: bool = False, operation: str = "write"
    ) -> AccessBinding:
        who = name if name.startswith("User:") else self.user(name)
        made = AccessBinding("topics", on or self.linked.mirror, is_prefix, who, "*", operation, "allow")
        self.make(made)
        return made

    def make(self, *bindings: AccessBinding) -> None:
        self.made += bindings
        assert not any(code for code, _ in create_bindings(self.linked.site.client, bindings))
        self.linked.wait(lambda: set(bindings) <= self.there())

    def take(self, *bindings: AccessBinding) -> None:
        delete_bindings(self.linked.site.client, bindings)
        self.linked.wait(lambda: not set(bindings) & self.there())

    def there(self) -> set[AccessBinding]:
        return set(read_bindings(self.linked.site.client)[0])

    def denied(self) -> set[str]:
        """Return who is denied writing to the mirror, as the brokers say it."""
        rules = {each for each in self.there() if each.name == self.linked.mirror and each.permission == "deny"}
        assert rules == {build_denial(self.linked.mirror, each.principal) for each in rules}
        return {each.principal for each in rules}

    def settle(self, expected: set[str]) -> None:
        self.linked.wait(lambda: self.denied() == expected)

    def protect(self) -> int:
        return self.linked.other().links.syncs.protect_mirrors(self.linked.link)


@pytest.fixture
def guarded(request: pytest.FixtureRequest, kafka_prefix: str) -> Iterator[Guarded]:
    broker = request.getfixturevalue(getattr(request, "param", "kafka_broker"))
    linked = Linked.of(broker, kafka_prefix, protect="acl")
    linked.make_mirror()
    found = Guarded(linked, kafka_prefix)
    yield found
    left = [each for each in found.there() if each in found.made or each.name.startswith(PREFIX + kafka_prefix)]
    delete_bindings(linked.site.client, left)


@pytest.mark.parametrize("guarded", BROKERS, indirect=True)
def test_whom_rules_let_write_is_denied_it_and_nobody_else(guarded: Guarded) -> None:
    guarded.allow("literal")
    guarded.allow("by-prefix", on=f"{PREFIX}{guarded.prefix}", is_prefix=True)
    guarded.allow("all-topics", on="*", operation="all")
    guarded.allow("reader", operation="read")
    guarded.allow("elsewhere", on=guarded.linked.topic)
    guarded.allow(US)
    expected = {guarded.user(name) for name in ("literal", "by-prefix", "all-topics")}
    assert guarded.protect() == 1
    guarded.settle(expected)
    assert guarded.protect() == 0
    guarded.allow("later", on=PREFIX, is_prefix=True)
    assert guarded.protect() == 1
    guarded.settle({*expected, guarded.user("later")})


def test_who_may_write_no_more_is_denied_it_no_more(guarded: Guarded) -> None:
    rule = guarded.allow("app")
    guarded.protect()
    guarded.settle({guarded.user("app")})
    guarded.take(rule)
    assert guarded.protect() == 1
    guarded.settle(set())


def test_a_rule_that_somebody_took_away_is_made_again(guarded: Guarded) -> None:
    guarded.allow("app")
    guarded.protect()
    guarded.settle({guarded.user("app")})
    guarded.take(build_denial(guarded.linked.mirror, guarded.user("app")))
    assert guarded.protect() == 1
    guarded.settle({guarded.user("app")})


def test_those_rules_are_shown_as_nobody_s(guarded: Guarded) -> None:
    guarded.allow("app")
    guarded.protect()
    guarded.settle({guarded.user("app")})
    seen = guarded.linked.observe()[guarded.linked.address]
    assert isinstance(seen.resource, MirrorTopic)
    assert seen.resource.denied == (guarded.user("app"),)
    assert isinstance(seen.mirror.topic_if_stopped, Topic)
    assert [rule.permission for rule in seen.mirror.topic_if_stopped.spec.acls] == ["allow"]
    assert build_denial(guarded.linked.mirror, guarded.user("app")) not in guarded.linked.east.list_unplaced_rules()
    assert set(guarded.linked.links.syncs.list_access_rules().topics[guarded.linked.mirror]) == {
        f"acls.allow {guarded.user('app')}"
    }


def test_a_denial_of_somebody_else_is_theirs(guarded: Guarded) -> None:
    guarded.allow("app")
    theirs = build_denial(guarded.linked.mirror, guarded.user("app"))
    guarded.make(theirs)
    assert guarded.protect() == 0
    guarded.linked.done(guarded.linked.transition("failover"))
    assert theirs in guarded.there()


@pytest.mark.parametrize("how", ["failover", "warn", "deletion", "link"])
def test_it_is_taken_away_once_the_topic_is_no_protected_mirror_any_more(guarded: Guarded, how: str) -> None:
    linked = guarded.linked
    rule = guarded.allow("app")
    guarded.protect()
    guarded.settle({guarded.user("app")})
    match how:
        case "failover":
            linked.done(linked.transition("failover"))
        case "warn":
            spec = linked.resource.spec.model_copy(update={"protect": "warn"})
            after = linked.resource.model_copy(update={"spec": spec})
            change = Change("protect", "acl", "warn")
            linked.done(Update(address=after.address, before=linked.resource, after=after, changes=(change,)))
            assert guarded.protect() == 1
        case "deletion":
            linked.done(linked.deletion())
        case _:
            linked.site.client.admin.delete_topics([linked.mirror])
            linked.wait(lambda: linked.mirror not in linked.site.read_topics())
            linked.done(Delete(address=linked.resource.address, before=linked.resource))
    guarded.settle(set())
    assert rule in guarded.there()
    assert not any(kept.denied for kept in linked.site.read_states().mirrors.values())


@pytest.mark.parametrize("error", [UNAUTHORIZED, min(ABSENT)], ids=["hidden", "not shown yet"])
def test_it_stays_where_the_broker_that_answers_does_not_show_the_mirror(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    guarded.allow("app")
    guarded.protect()
    guarded.settle({guarded.user("app")})
    mirror, real = guarded.linked.mirror, KafkaClient.read_topics

    def unseen(client: KafkaClient, *given: Any) -> dict[str, TopicMetadata]:
        found = real(client, *given)
        return {name: replace(seen, id="", error=error) if name == mirror else seen for name, seen in found.items()}

    with monkeypatch.context() as patch:
        patch.setattr(KafkaClient, "read_topics", unseen)
        assert guarded.protect() == 0
    assert guarded.denied() == {guarded.user("app")}
    assert [kept.denied for kept in guarded.linked.site.read_states().mirrors.values() if kept.name == mirror] == [
        (guarded.user("app"),)
    ]


def test_a_rule_that_lets_everyone_write_is_named_and_the_link_keeps_its_own_right(guarded: Guarded) -> None:
    guarded.allow("User:*")
    with pytest.raises(UserError, match=r"lets User:\* write to copy-"):
        guarded.protect()
    assert guarded.denied() == set()


def test_a_plan_denies_and_allows_again_and_what_it_did_is_seen(guarded: Guarded) -> None:
    linked, path = guarded.linked, build_denial_path(guarded.user("app"))
    mirror = linked.creation().after
    for before, after, expected in ((None, ("write",), {guarded.user("app")}), (("write",), None, set())):
        changes = (Change(path, before, after),)
        linked.done(Update(address=linked.address, before=mirror, after=mirror, changes=changes))
        guarded.settle(expected)
        seen = linked.observe(linked.address)[linked.address].resource
        assert isinstance(seen, MirrorTopic)
        assert set(seen.denied) == expected


def test_a_new_mirror_is_protected_before_its_topic_is_there(kafka_broker: Kafka, kafka_prefix: str) -> None:
    linked = Linked.of(kafka_broker, kafka_prefix, protect="acl")
    guarded = Guarded(linked, kafka_prefix)
    creation = linked.creation()
    assert isinstance(creation.after, MirrorTopic)
    after = creation.after.model_copy(update={"denied": (guarded.user("app"),)})
    linked.done(replace(creation, after=after))
    guarded.settle({guarded.user("app")})
    linked.done(linked.deletion())
    guarded.settle(set())


def test_a_mirror_whose_topic_was_never_made_leaves_no_rule_behind_its_link(
    kafka_broker: Kafka, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = Linked.of(kafka_broker, kafka_prefix, protect="acl")
    guarded = Guarded(linked, kafka_prefix)
    creation = linked.creation()
    assert isinstance(creation.after, MirrorTopic)
    after = creation.after.model_copy(update={"denied": (guarded.user("app"),)})
    with monkeypatch.context() as dying:
        dying.setattr(LinkSite, "create_topics", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            linked.apply(replace(creation, after=after))
    guarded.settle({guarded.user("app")})
    linked.done(Delete(address=linked.resource.address, before=linked.resource))
    guarded.settle(set())


@pytest.mark.parametrize("is_bound", [False, True])
def test_what_a_killed_process_had_begun_is_finished_or_taken_back(guarded: Guarded, is_bound: bool) -> None:  # noqa: FBT001
    linked, rule = guarded.linked, guarded.allow("app")

    def noted(entries):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        kept = parse_states(entries).mirrors[linked.mirror]
        return build_mirror_changes(linked.mirror, replace(kept, denied=(guarded.user("app"),)))

    linked.site.ledger.change(build_writer_id(linked.link), noted)
    if is_bound:
        guarded.make(build_denial(linked.mirror, guarded.user("app")))
    guarded.protect()
    guarded.settle({guarded.user("app")})
    guarded.take(rule)
    guarded.protect()
    guarded.settle(set())


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        (None, US),
        ({"protocol": "PLAINTEXT"}, US),
        ({"protocol": "SSL", "certFile": "me.pem"}, None),
        ({"protocol": "SSL", "certFile": "me.pem", "principal": "User:CN=me"}, "User:CN=me"),
        (
            {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "bill", "password": "${env:PASSWORD}"},
            "User:bill",
        ),
        (
            {
                "protocol": "SASL_SSL",
                "mechanism": "OAUTHBEARER",
                "tokenEndpointUrl": "https://login.example.com/token",
                "clientId": "bill",
            },
            None,
        ),
    ],
)
def test_as_whom_brokers_know_us_is_told_where_a_field_says_it(
    security: dict[str, str] | None, expected: str | None
) -> None:
    kafka = {"bootstrapServers": ["localhost:9092"], **({"security": security} if security else {})}
    declared = Cluster.model_validate({"metadata": {"name": EAST}, "spec": {"provider": "kafka", "kafka": kafka}})
    assert find_principal(declared) == expected


def test_more_rules_are_made_than_brokers_take_in_one_request(kafka_broker: Kafka, kafka_prefix: str) -> None:
    client, who = provider_of(kafka_broker, EAST)._client, [f"User:{kafka_prefix}-{number}" for number in range(2)]
    rules = [build_denial(f"{kafka_prefix}-{number}", who[number % 2]) for number in range(10_001)]
    try:
        made = create_bindings(client, rules)
        assert len(made) == len(rules)
        assert {code for code, _ in made} == {0}
    finally:  # By principal: a filter for each of them takes brokers minutes.
        for each in who:
            every = ACLFilter(each, None, ACLOperation.ANY, ACLPermissionType.ANY, ResourcePatternFilter(*ANY))
            client.admin.delete_acls([every])
