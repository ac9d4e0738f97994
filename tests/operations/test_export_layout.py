"""What flat names are factored into gives the same names, effective configs and rules back, whatever the order."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.operations.export_layout import ClusterContents, FactoredLayout, factor_layout, find_flat_namespaces
from reconciler.planning.plan import PlanInput
from reconciler.planning.resolve.effective import resolve_desired
from reconciler.providers.brokers.translate import build_naming, expand_topic_rules
from reconciler.providers.kafka import KAFKA
from reconciler.resources.acls import AccessBinding, TopicAcl, expand_namespace_rules
from reconciler.resources.address import Address, check_full_name, check_namespace, full_name_of
from reconciler.resources.base import InNamespace
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.inventory import DeclaredResource
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic, TopicSpec

CAPABILITIES = replace(KAFKA, tiering=True, untiering=True)


def topic(name: str, configs: Mapping[str, str] = {}, acls: Sequence[TopicAcl] = ()) -> Topic:
    return Topic(
        metadata=InNamespace(name=name, cluster="west"),
        spec=TopicSpec(partitions=3, replication_factor=1, configs=dict(configs), acls=tuple(acls)),
    )


def found(topics: Sequence[Topic], bindings: Sequence[AccessBinding] = (), **others: Any) -> ClusterContents:
    given = {"cluster": "west", "capabilities": CAPABILITIES, "separator": ".", **others}
    return ClusterContents(resources=topics, bindings=bindings, **given)


def spaces(*names: str, separator: str = ".", **others: Any) -> list[str]:
    return sorted(find_flat_namespaces(names, separator, **others).prefixes.values())


def planned(made: FactoredLayout, separator: str) -> dict[str, Topic]:
    """Return what planning wants of each topic, by its flat name."""
    desired = {address: DeclaredResource(resource, "x.yaml:1") for address, resource in made.resources.items()}
    told = PlanInput(
        workspace="shop", capabilities={"west": CAPABILITIES}, identities={}, today=date(2026, 1, 1), now_ms=0
    )
    wanted, findings = resolve_desired(desired, told)
    assert findings == []
    return {
        full_name_of(address).replace(":", separator): each.resource
        for address, each in wanted.items()
        if isinstance(each.resource, Topic)
    }


def bound(made: FactoredLayout, separator: str) -> set[AccessBinding]:
    """Return the bindings that the broker is to have."""
    naming = build_naming(separator, made.resources)
    every: set[AccessBinding] = set()
    for resource in made.resources.values():
        if isinstance(resource, Namespace):
            every |= set(expand_namespace_rules(naming.to_prefix(resource.metadata.name), resource.spec.acls))
        if isinstance(resource, Topic):
            every |= set(expand_topic_rules(naming.to_physical(resource.full_name), resource.spec.acls))
    return every


CASES = [
    pytest.param(["shop.a", "shop.b", "shop.c"], ["shop"], id="three topics make a namespace"),
    pytest.param(["shop.a", "shop.b"], [], id="two that begin alike are a coincidence"),
    pytest.param(["shop.eu.a", "shop.eu.b", "shop.us.c"], ["shop"], id="a deeper prefix counts its own topics"),
    pytest.param(["s.eu.a", "s.eu.b", "s.eu.c", "s.d"], ["s", "s:eu"], id="tiers"),
    pytest.param(["orders", "orders.eu", "orders.us", "orders.uk"], ["orders"], id="a topic named as the prefix"),
    pytest.param(["my_app.a", "my_app.b", "my_app.c"], [], id="no tier has an underscore"),
    pytest.param([".a.x", ".a.y", ".a.z"], [], id="a leading separator"),
    pytest.param(["a..x", "a..y", "a..z"], ["a"], id="two separators: the topic begins with one"),
    pytest.param(["a.b", "a.c", "a.d", "a."], [], id="a topic that would be left without a name"),
    pytest.param(["a.b", "a.c", "a.d", "a.."], [], id="a topic that would be left with the name of a folder"),
    pytest.param([f"{'x' * 65}.{n}" for n in "abc"], [], id="a tier that is too long"),
    pytest.param([f"{'x' * 64}.{n}" for n in "abc"], ["x" * 64], id="one that is not"),
    pytest.param([f"{'x.' * 124}{n}" for n in "abc"][:1], [], id="one topic, 249 long"),
]


@pytest.mark.fact("F-K-030")
@pytest.mark.parametrize(("names", "expected"), CASES)
def test_a_prefix_is_a_namespace_only_where_it_is_legal_as_one(names: list[str], expected: list[str]) -> None:
    assert spaces(*names) == expected


def test_a_prefix_that_a_rule_is_about_is_a_namespace_whatever_its_topics_count() -> None:
    assert spaces("shop.a", reserved=["shop."]) == ["shop"]
    assert spaces(reserved=["shop.eu.", "my_app.", "pay"]) == ["shop", "shop:eu"]
    assert spaces("shop.a", "shop.", reserved=["shop."]) == []
    assert spaces("shop.a", reserved=["shop.pay"]) == ["shop"]


def test_other_separators_leave_other_tiers() -> None:
    assert spaces("my-app-a", "my-app-b", "my-app-c", separator="-") == ["my", "my:app"]
    assert spaces("my.app-a", "my.app-b", "my.app-c", separator="-") == ["my.app"]
    assert spaces("my_app_a", "my_app_b", "my_app_c", separator="_") == ["my", "my:app"]
    # `.` and `_` are one to a broker: my.app_ and my_app_ would be one prefix.
    assert spaces("my.app_a", "my.app_b", "my.app_c", separator="_") == []


def test_namespaces_that_are_known_stay() -> None:
    assert spaces("shop.eu.a", known=["shop:eu"]) == ["shop", "shop:eu"]


def test_what_all_topics_share_goes_on_their_namespace_and_the_others_keep_theirs() -> None:
    same = {"retention.ms": "604800000", "min.insync.replicas": "2"}
    made = factor_layout(
        found(
            [
                topic("shop.a", same),
                topic("shop.b", same),
                topic("shop.c", {**same, "retention.ms": "86400000", "cleanup.policy": "compact"}),
                topic("loose", same),
            ]
        )
    )
    shop = made.resources[Address("namespace/west/shop")]
    assert isinstance(shop, Namespace)
    assert shop.spec.configs == {"min.insync.replicas": "2", "retention.ms": "604800000"}
    own = {
        full_name_of(address): each.spec.configs for address, each in made.resources.items() if isinstance(each, Topic)
    }
    assert own == {
        "loose": same,
        "shop:a": {},
        "shop:b": {},
        "shop:c": {"cleanup.policy": "compact", "retention.ms": "86400000"},
    }


def test_a_key_that_one_topic_does_not_set_stays_with_those_that_do() -> None:
    made = factor_layout(
        found([topic("shop.a", {"retention.ms": "1"}), topic("shop.b", {"retention.ms": "1"}), topic("shop.c")])
    )
    assert [each.spec.configs for each in made.resources.values() if isinstance(each, Namespace)] == [{}]


def test_what_lies_in_one_tier_alone_is_said_there() -> None:
    made = factor_layout(found([topic(f"com.acme.{name}", {"retention.ms": "1"}) for name in "abc"]))
    assert next(iter(made.resources)) == "namespace/west/com:acme"
    assert "namespace/west/com" not in made.resources, "a tier that holds nothing itself is implied"


def test_a_nearer_tier_overrides_what_most_others_share() -> None:
    shop = [topic(f"shop.{name}", {"retention.ms": "7"}) for name in "abcd"]
    eu = [topic(f"shop.eu.{name}", {"retention.ms": "3"}) for name in "xyz"]
    made = factor_layout(found([*shop, *eu]))
    said = {full_name_of(address): each.spec.configs for address, each in made.resources.items()}  # type: ignore[union-attr]
    assert {name: configs for name, configs in said.items() if configs} == {
        "shop": {"retention.ms": "7"},
        "shop:eu": {"retention.ms": "3"},
    }


def rule(
    name: str, resource: str = "topics", operation: str = "read", *, is_prefix: bool = True, host: str = "*"
) -> AccessBinding:
    return AccessBinding(resource, name, is_prefix, "User:a", host, operation, "allow")


@pytest.mark.fact("F-K-033")
def test_rules_on_a_prefix_are_its_namespaces_and_are_merged_where_nothing_is_added() -> None:
    bindings = [
        *(rule("shop.", kind, operation) for kind in ("topics", "groups") for operation in ("read", "describe")),
        rule("shop.", operation="write"),
        rule("shop.pay", operation="write"),
        rule("shop.billing", "groups", is_prefix=False),
    ]
    made = factor_layout(found([topic("shop.a")], bindings))
    shop = made.resources[Address("namespace/west/shop")]
    assert isinstance(shop, Namespace)
    said = [(each.resources, each.names, each.operations) for each in shop.spec.acls]
    assert said == [
        (("groups",), ("*",), ("describe", "read")),
        (("topics",), ("*",), ("describe", "read", "write")),
        (("groups",), ("billing",), ("read",)),
        (("topics",), ("pay*",), ("write",)),
    ]
    assert bound(made, ".") == set(bindings)
    assert made.unsaid == ()


@pytest.mark.parametrize(
    ("binding", "why"),
    [
        (
            rule("kafka-cluster", "cluster", is_prefix=False),
            "rules on cluster cannot be declared: rules belong to topics and namespaces",
        ),
        (
            rule("*", is_prefix=False),
            "a rule for all topics of a cluster cannot be declared: rules belong to topics and namespaces",
        ),
        (rule("pay"), "the prefix does not end with the separator '.', so it is not a namespace"),
        (rule("my_app."), "it is for no existing topic or namespace"),
        (rule("shop.*", is_prefix=False), "'*' is neither a name nor a prefix"),
        (rule("shop.a*b"), "'a*b*' is neither a name nor a prefix"),
        (rule("shop.x", is_prefix=False), "it is for a topic that does not exist"),
        (rule("shop.", "groups", operation="write"), "write says nothing of groups"),
        (rule("shop.", is_prefix=False), "it is for no existing topic or namespace"),
        (
            rule("shop.", host="10.0.0.0/8"),
            "the rule for User:a is for host 10.0.0.0/8, and brokers compare addresses: names and ranges are never met",
        ),
    ],
)
def test_a_rule_without_words_is_told_and_never_dropped(binding: AccessBinding, why: str) -> None:
    made = factor_layout(found([topic("shop.a"), topic("shop.b"), topic("shop.c")], [binding]))
    [told] = made.unsaid
    assert told.place == str(binding)
    assert told.error.message == why


def test_a_principal_that_no_manifest_takes_is_told() -> None:
    odd = TopicAcl.model_construct(principal="anna", permission="allow", operations=("read",), host="*")
    made = factor_layout(found([topic("a", acls=[odd])]))
    assert [told.place for told in made.unsaid] == ["topic/west/a"]
    assert "'anna'" in made.unsaid[0].error.message
    assert "Value error" not in made.unsaid[0].error.message


TIERED = {"remote.read": "true", "remote.write": "true", "retention.local.target.ms": "21600000"}


def test_what_topics_say_of_tiering_is_one_policy_where_it_says_exactly_that() -> None:
    tiered = {**TIERED, "remote.log.disable.policy": "retain"}
    words = replace(CAPABILITIES, platform="embedded", tiering_words="directions", configs=EMBEDDED_CONFIGS)
    topics = [topic(name, tiered) for name in ("shop.a", "shop.b", "shop.c", "x")]
    made = factor_layout(found(topics, capabilities=words))
    named = [each.metadata.name for each in made.resources.values() if isinstance(each, TieringPolicy)]
    assert named == ["tiered-local-6h"]
    using = {
        address: each.spec.tiering_policy
        for address, each in made.resources.items()
        if isinstance(each, Topic | Namespace) and each.spec.tiering_policy
    }
    assert using == dict.fromkeys(["namespace/west/shop", "topic/west/x"], "tiered-local-6h")
    assert all(each.spec.configs == {} for each in made.resources.values() if isinstance(each, Topic))


def test_half_of_what_is_said_of_tiering_never_moves_up_alone() -> None:
    made = factor_layout(
        found([topic("shop.a", TIERED), topic("shop.b", TIERED), topic("shop.c", {"remote.write": "true"})])
    )
    shop = made.resources[Address("namespace/west/shop")]
    assert isinstance(shop, Namespace)
    assert (shop.spec.configs, shop.spec.tiering_policy) == ({}, None)


TIERS = st.sampled_from(["shop", "eu", "my_app", "x", "", "a-b", "ORDERS", "9", "pay.v1", "y" * 65])
NAMES = st.builds(
    lambda parts, separator: separator.join(parts)[:249],
    st.lists(TIERS, min_size=1, max_size=4),
    st.sampled_from("._-"),
)
LEGAL = NAMES.filter(lambda name: name not in {"", ".", ".."})
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "retention.ms": st.sampled_from(["86400000", "604800000"]),
        "cleanup.policy": st.sampled_from(["compact", "delete"]),
        "remote.storage.enable": st.sampled_from(["true", "false"]),
        "local.retention.ms": st.sampled_from(["-2", "3600000"]),
        "some.other": st.just("x"),
    },
)
RULES = st.lists(
    st.builds(
        AccessBinding,
        st.sampled_from(["topics", "groups", "transactional-ids", "cluster"]),
        LEGAL | LEGAL.map(lambda name: f"{name}."),
        st.booleans(),
        st.sampled_from(["User:a", "User:b", "nobody"]),
        st.sampled_from(["*", "10.0.0.7"]),
        st.sampled_from(["all", "describe", "read", "write"]),
        st.sampled_from(["allow", "deny"]),
    ),
    max_size=8,
    unique=True,
)


@pytest.mark.thorough
@pytest.mark.fact("F-K-030", "F-K-032")
@settings(max_examples=300, deadline=None)
@given(st.dictionaries(LEGAL, CONFIGS, max_size=12), RULES, st.sampled_from("._-"), st.integers(0, 3), st.randoms())
def test_names_configs_and_rules_come_back_the_same(
    flat: dict[str, dict[str, str]], rules: list[AccessBinding], separator: str, at_least: int, shuffle: random.Random
) -> None:
    stray = [each for each in rules if not (each.resource == "topics" and not each.is_prefix and each.name in flat)]
    topics = [topic(name, configs) for name, configs in flat.items()]
    made = factor_layout(found(topics, stray, separator=separator), at_least=at_least)
    wanted = planned(made, separator)
    assert {name: dict(each.spec.configs) for name, each in wanted.items()} == flat
    unsaid = {each.place for each in made.unsaid}
    assert {each for each in stray if str(each) not in unsaid} == bound(made, separator)
    naming = build_naming(separator, made.resources)
    for address, resource in made.resources.items():
        if isinstance(resource, Namespace):
            check_namespace(resource.metadata.name)
        if isinstance(resource, Topic):
            check_full_name(resource.full_name)
            assert naming.to_full_name(naming.to_physical(resource.full_name)) == full_name_of(address)
    shuffle.shuffle(topics)
    shuffle.shuffle(stray)
    again = factor_layout(found(topics, stray, separator=separator), at_least=at_least)
    assert list(again.resources.items()) == list(made.resources.items())
    assert [each.place for each in again.unsaid] == [each.place for each in made.unsaid]


def test_a_throttle_that_passes_is_nothing_to_declare() -> None:
    throttled = {f"{side}.replication.throttled.replicas": "0:1" for side in ("leader", "follower")}
    made = factor_layout(found([topic("a", {"retention.ms": "1000", **throttled})]))
    assert [each.spec.configs for each in made.resources.values() if isinstance(each, Topic)] == [
        {"retention.ms": "1000"}
    ]
