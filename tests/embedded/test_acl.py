"""Who may do what: a table of questions, and what holds for all rules there can be."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.embedded.acl import (
    SUPER_USER,
    Kind,
    Operation,
    Permissions,
    iter_rule_levels,
    to_acl_entries,
    to_namespace_acls,
)
from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.catalog.model import AclEntry, NamespaceEntry, TopicEntry
from reconciler.embedded.catalog.tables import Catalog
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import InvalidNamespaceError, NotAuthorizedError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from reconciler.resources.acls import ACLS, NamespaceAcl, build_rule_path, parse_rule, to_rule_fields
from reconciler.resources.groups import ToEarliest
from reconciler.resources.inventory import read_resource
from reconciler.resources.mirrors import LinkEntry, SourceTopic
from tests.embedded.samples import cluster_in, contents, numbered, values
from tests.embedded.stores import WatchedStore

QUESTIONS = Path(__file__).parent.parent / "cases" / "permissions" / "questions.yaml"
NAMESPACES = ("shop", "shop:eu")
TOPICS = ("orders", "shop:orders", "shop:eu:orders")
_ASK = re.compile(
    r"(?P<who>\S+)( from (?P<host>\S+))? (?P<may>\S+) (?P<kind>topic|group|transactional id|namespace) (?P<name>\S+)"
)


def questions() -> list[Any]:
    return [pytest.param(row, id=row["why"]) for row in yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))]


def rule(text: str) -> AclEntry:
    path, _, operations = text.rpartition(": ")
    (entry,) = to_acl_entries([parse_rule(ACLS + path, [word.strip() for word in operations.split(",")])])
    return entry


def catalog_with(rules: dict[str, tuple[AclEntry, ...]]) -> Catalog:
    return Catalog(
        namespaces={name: NamespaceEntry(acls=rules.get(name, ())) for name in NAMESPACES},
        topics={name: TopicEntry(name, 1, 1, acls=rules.get(f"topic {name}", ())) for name in TOPICS},
    )


@pytest.mark.fact("F-K-018")
@pytest.mark.fact("F-K-019")
@pytest.mark.parametrize("row", questions())
def test_a_question_has_its_answer(row: dict[str, Any]) -> None:
    catalog = catalog_with({place: tuple(map(rule, rules)) for place, rules in row["rules"].items()})
    asked = _ASK.fullmatch(row["ask"])
    assert asked is not None
    who = Permissions.of(asked["who"], asked["host"] or "*")
    operation, kind, name = Operation(asked["may"]), Kind(asked["kind"]), asked["name"]
    verdict = who.find_verdict(catalog, operation, kind, name)
    by = f"rule {verdict.position} of {verdict.level}" if verdict.rule else verdict.level
    assert (verdict.is_allowed, by) == (row["may"], row.get("by"))
    assert who.is_allowed(catalog, operation, kind, name) is row["may"]
    assert SUPER_USER.is_allowed(catalog, operation, kind, name)
    if not row["may"]:
        with pytest.raises(NotAuthorizedError) as refused:
            who.check_allowed(catalog, operation, kind, name)
        assert f"{operation} {kind} {name}: {row['by']}" in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (Kind.TOPIC, "shop:orders", "TopicAuthorizationException"),
        (Kind.GROUP, "shop:checkout", "GroupAuthorizationException"),
        (Kind.TRANSACTIONAL_ID, "shop:pay-1", "TransactionalIdAuthorizationException"),
        (Kind.NAMESPACE, "shop", "TopicAuthorizationException"),
    ],
)
def test_a_refusal_names_rule_place_and_error(kind: Kind, name: str, error: str) -> None:
    denial = rule("deny User:bob from 10.0.0.7 on groups,topics,transactional-ids named *: read, write")
    catalog = catalog_with({"shop": (rule("allow User:bob: all"), denial)})
    with pytest.raises(NotAuthorizedError) as refused:
        Permissions.of("User:bob", "10.0.0.7").check_allowed(catalog, "read", kind, name)
    assert refused.value.message == (
        f"User:bob from 10.0.0.7 may not read {kind} {name}: rule 2 of namespace shop denies it: "
        f"deny User:bob read, write on groups, topics, transactional-ids from 10.0.0.7 ({error})"
    )
    assert "in the acls of namespace shop" in refused.value.hint


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (Kind.TOPIC, "shop:eu:orders", '{principal: "User:bob", operations: [read], names: ["eu:orders"]}'),
        (Kind.GROUP, "shop:eu:g", '{principal: "User:bob", operations: [read], resources: [groups], names: ["eu:g"]}'),
        (
            Kind.TRANSACTIONAL_ID,
            "shop:t",
            '{principal: "User:bob", operations: [read], resources: [transactional-ids], names: ["t"]}',
        ),
    ],
)
def test_what_nothing_allows_comes_with_the_rule_that_would(kind: Kind, name: str, hint: str) -> None:
    closed = catalog_with({"shop": (rule("allow User:a: read"),)})
    who = Permissions.of("User:bob")
    with pytest.raises(NotAuthorizedError) as refused:
        who.check_allowed(closed, "read", kind, name)
    assert refused.value.hint.endswith(hint)
    offered = yaml.safe_load(hint)
    place = name.rpartition(":")[0]
    path = f"allow {offered['principal']} on {','.join(offered.get('resources', ['topics']))}"
    allowing = rule(f"{path}: {', '.join(offered['operations'])}")
    assert who.is_allowed(catalog_with({place: (allowing, rule("allow User:a: read"))}), "read", kind, name)


@pytest.mark.parametrize("principal", ["", "bob", "User:", ":bob", "User:*", "User:a\nb"])
def test_who_is_nobody_cannot_act(principal: str) -> None:
    with pytest.raises(
        UserError, match=re.escape(repr(principal)) if principal != "User:*" else "stands for every principal"
    ):
        Permissions.of(principal)


def test_a_rule_that_says_neither_allow_nor_deny_denies() -> None:
    strange = AclEntry("User:a", "Allow", ("read",))
    catalog = catalog_with({"shop": (strange,)})
    assert not Permissions.of("User:a").is_allowed(catalog, "read", Kind.TOPIC, "shop:orders")


_WHO = st.sampled_from(["User:a", "User:b", "User:*"])
_RULES = st.builds(
    AclEntry,
    _WHO,
    st.sampled_from(["allow", "deny"]),
    st.lists(st.sampled_from(list(Operation)), min_size=1, max_size=3, unique=True).map(
        lambda found: tuple(map(str, sorted(found)))
    ),
    st.sampled_from(["*", "h"]),
    st.sampled_from([("topics",), ("groups",), ("groups", "topics", "transactional-ids")]),
    st.sampled_from([("*",), ("orders",), ("o*",), ("eu:*", "orders")]),
)
_PLACES = (*NAMESPACES, *(f"topic {name}" for name in TOPICS))
_WORLDS = st.dictionaries(st.sampled_from(_PLACES), st.lists(_RULES, max_size=3).map(tuple))
_QUESTIONS = st.tuples(
    st.sampled_from([operation for operation in Operation if operation is not Operation.ALL]),
    st.one_of(
        st.tuples(st.just(Kind.TOPIC), st.sampled_from([*TOPICS, "shop:eu:new"])),
        st.tuples(st.just(Kind.NAMESPACE), st.sampled_from(["shop", "shop:eu", "shop:us", "bank"])),
        st.tuples(
            st.sampled_from([Kind.GROUP, Kind.TRANSACTIONAL_ID]), st.sampled_from(["g", "shop:orders", "shop:eu:g"])
        ),
    ),
)
_ACTORS = st.builds(Permissions, st.sampled_from(["User:a", "User:b"]), st.sampled_from(["*", "h"]))


@given(_WORLDS, st.sampled_from(_PLACES), _RULES, _QUESTIONS, _ACTORS)
def test_another_denial_never_allows_more(
    world: dict[str, tuple[AclEntry, ...]],
    place: str,
    added: AclEntry,
    question: tuple[Operation, tuple[Kind, str]],
    who: Permissions,
) -> None:
    operation, (kind, name) = question
    denial = replace(added, permission="deny")
    more = {**world, place: (*world.get(place, ()), denial)}
    if who.is_allowed(catalog_with(more), operation, kind, name):
        assert who.is_allowed(catalog_with(world), operation, kind, name)


@pytest.mark.fact("F-K-019")
@given(_WORLDS, _WORLDS, _QUESTIONS, _ACTORS)
def test_denied_at_an_outer_tier_stays_denied_whatever_lies_below(
    world: dict[str, tuple[AclEntry, ...]],
    below: dict[str, tuple[AclEntry, ...]],
    question: tuple[Operation, tuple[Kind, str]],
    who: Permissions,
) -> None:
    operation, (kind, name) = question
    catalog = catalog_with({"shop": world.get("shop", ())})
    denied = who.find_verdict(catalog, operation, kind, name)
    if denied.rule is None or denied.is_allowed:
        return
    other = catalog_with({**below, "shop": world.get("shop", ())})
    assert who.find_verdict(other, operation, kind, name) == denied


@given(_WORLDS, _QUESTIONS, _ACTORS)
@settings(max_examples=80)
def test_the_answer_is_the_one_of_the_rule_in_words(
    world: dict[str, tuple[AclEntry, ...]], question: tuple[Operation, tuple[Kind, str]], who: Permissions
) -> None:
    """Said from the other end: any denial denies, else any allowance allows, else only no rule at all does."""
    operation, (kind, name) = question
    catalog = catalog_with(world)
    levels = list(iter_rule_levels(catalog, kind, name))
    alone = [
        (
            entry.permission,
            who.find_verdict(catalog_with_one(entry, level.label), operation, kind, name).rule is not None,
        )
        for level in levels
        for entry in level.rules
    ]
    matching = {permission for permission, is_about in alone if is_about}
    expected = "deny" not in matching and ("allow" in matching or not alone)
    assert who.is_allowed(catalog, operation, kind, name) is expected


def catalog_with_one(entry: AclEntry, label: str) -> Catalog:
    return catalog_with({label.removeprefix("namespace "): (entry,)})


@given(st.lists(_RULES, max_size=5))
def test_rules_survive_being_fields(entries: list[AclEntry]) -> None:
    kept = to_acl_entries([parse_rule(path, operations) for path, operations in _fields(entries).items()])
    assert to_acl_entries(parse_rule(path, operations) for path, operations in _fields(list(kept)).items()) == kept
    assert _fields(list(kept)) == _fields(list(reversed(entries)))


def _fields(entries: list[AclEntry]) -> dict[str, tuple[str, ...]]:
    return to_rule_fields(to_namespace_acls(entries))


@pytest.mark.thorough
@given(
    st.from_regex(r"[A-Za-z]+:[^\n\r\x00-\x1f\x85\u2028\u2029]+", fullmatch=True),
    st.text(min_size=1),
    st.lists(st.from_regex(r"[^*\n]+\*?", fullmatch=True), min_size=1, max_size=3),
)
def test_a_path_is_read_as_the_rule_it_was_written_from(principal: str, host: str, names: list[str]) -> None:
    rule = NamespaceAcl(principal=principal, operations=("read",), host=host, names=tuple(names))
    assert parse_rule(build_rule_path(rule), ("read",)) == rule


# A cluster acting for somebody: every door is held to the rules, and the super user knows of none.


GUIDES = Path(__file__).parents[2] / "docs" / "guides"
RULES, IN_CODE = GUIDES / "permissions.md", GUIDES / "permissions-in-code.md"
ApplyMode = Callable[[EmbeddedCluster], Any]


def rules(*texts: str) -> tuple[AclEntry, ...]:
    pairs = (text.rpartition(": ") for text in texts)
    return to_acl_entries(parse_rule(ACLS + path, operations.split(", ")) for path, _, operations in pairs)


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """A cluster on which everything in `shop` is User:owner's."""
    made = cluster_in(MemoryStore())
    made.create_namespace("shop:eu")
    made.create_namespace("bank")
    for name in ("shop:eu:orders", "shop:eu:other", "public"):
        made.create_topic(name)
        with made.producer() as producer:
            producer.append(name, values("a", "b"))
    made.set_namespace_acls("shop", rules("allow User:owner on groups,topics,transactional-ids: all"))
    return made


def consumed(cluster: EmbeddedCluster, name: str) -> list[bytes | None]:
    return [record.value for record in cluster.consume(name)]


def produced(cluster: EmbeddedCluster, name: str) -> None:
    with cluster.producer() as producer:
        producer.send(name, "c")


def transacted(cluster: EmbeddedCluster, name: str) -> None:
    producer = cluster.producer(name)
    producer.init_transactions()


def sent(cluster: EmbeddedCluster, name: str) -> None:
    producer = cluster.producer("mine")
    producer.init_transactions()
    producer.begin()
    producer.send_offsets("g", {(name, 0): 1})


DOORS: dict[str, tuple[ApplyMode, str, str]] = {
    "topic": (lambda c: c.topic("shop:eu:orders"), "topic shop:eu:orders", "describe"),
    "effective configs": (lambda c: c.effective_configs("shop:eu:orders"), "topic shop:eu:orders", "describe-configs"),
    "source": (lambda c: c.source_topic("shop:eu:orders"), "topic shop:eu:orders", "describe"),
    "create topic": (lambda c: c.create_topic("shop:eu:new"), "topic shop:eu:new", "create"),
    "configs": (
        lambda c: c.alter_topic("shop:eu:orders", {"retention.ms": "1"}),
        "topic shop:eu:orders",
        "alter-configs",
    ),
    "partitions": (lambda c: c.alter_topic("shop:eu:orders", partitions=3), "topic shop:eu:orders", "alter"),
    "topic rules": (lambda c: c.set_topic_acls("shop:eu:orders", ()), "topic shop:eu:orders", "alter"),
    "move away": (lambda c: c.move_topic("shop:eu:orders", "mine"), "topic shop:eu:orders", "delete"),
    "move in": (lambda c: c.move_topic("public", "shop:eu:public"), "topic shop:eu:public", "create"),
    "delete topic": (lambda c: c.delete_topic("shop:eu:orders"), "topic shop:eu:orders", "delete"),
    "read": (lambda c: consumed(c, "shop:eu:orders"), "topic shop:eu:orders", "read"),
    "produce": (lambda c: produced(c, "shop:eu:orders"), "topic shop:eu:orders", "write"),
    "sink": (lambda c: c.sink("shop:eu:orders").read_ends(), "topic shop:eu:orders", "write"),
    "create namespace": (lambda c: c.create_namespace("shop:us"), "namespace shop:us", "create"),
    "namespace configs": (
        lambda c: c.alter_namespace("shop", {"retention.ms": "1"}),
        "namespace shop",
        "alter-configs",
    ),
    "quotas": (lambda c: c.limit_namespace("shop", None), "namespace shop", "alter"),
    "namespace rules": (lambda c: c.set_namespace_acls("shop", ()), "namespace shop", "alter"),
    "delete namespace": (lambda c: c.delete_namespace("shop:eu"), "namespace shop:eu", "delete"),
    "commit": (lambda c: c.groups.commit("shop:g", {("public", 0): 1}), "group shop:g", "read"),
    "fetch": (lambda c: c.groups.fetch("shop:g"), "group shop:g", "read"),
    "describe group": (lambda c: c.groups.describe("shop:g"), "group shop:g", "describe"),
    "delete group": (lambda c: c.groups.delete("shop:g"), "group shop:g", "delete"),
    "offsets in a transaction": (lambda c: sent(c, "shop:eu:orders"), "topic shop:eu:orders", "read"),
    "transaction": (lambda c: transacted(c, "shop:pay"), "transactional id shop:pay", "write"),
}


def door(name: str) -> tuple[ApplyMode, str, str]:
    return DOORS[name]


@pytest.mark.fact("F-K-018", "F-K-019")
@pytest.mark.parametrize("name", DOORS)
def test_nobody_passes_a_door_without_what_it_takes(cluster: EmbeddedCluster, name: str) -> None:
    do, what, operation = door(name)
    before = cluster.catalog.read()
    with pytest.raises(NotAuthorizedError) as refused:
        do(cluster.acting_as("User:eve"))
    assert what in refused.value.message
    # Reading a topic begins with looking at it.
    assert f"may not {'describe' if name == 'read' else operation} " in refused.value.message
    assert cluster.catalog.read() == before


@pytest.mark.parametrize("name", sorted(DOORS.keys() - {"describe group"}))
def test_whom_a_tier_allows_passes_every_door(cluster: EmbeddedCluster, name: str) -> None:
    do, _, _ = door(name)
    do(cluster.acting_as("User:owner"))


@pytest.mark.parametrize("name", sorted(DOORS.keys() - {"describe group"}))
def test_one_operation_opens_one_door(cluster: EmbeddedCluster, name: str) -> None:
    do, _, operation = door(name)
    allowed = f"allow User:eve on groups,topics,transactional-ids: {operation}"
    cluster.set_namespace_acls("shop", rules("allow User:owner: all", allowed))
    do(cluster.acting_as("User:eve"))


@pytest.mark.parametrize("name", sorted(DOORS.keys() - {"describe group"}))
def test_the_super_user_is_refused_nothing(cluster: EmbeddedCluster, name: str) -> None:
    cluster.set_namespace_acls("shop", rules("deny User:* on groups,topics,transactional-ids: all"))
    do, _, _ = door(name)
    do(cluster.acting_as(None))


@pytest.mark.parametrize(
    "do",
    [
        lambda c: c.create_link("north", LinkEntry("id", "north")),
        lambda c: c.delete_link("north"),
        lambda c: c.create_mirror(
            "copy", MirrorShape(link="north", source="copy", configs={}), SourceTopic(partitions=1)
        ),
        lambda c: c.update_mirror("copy", SourceTopic(partitions=1)),
    ],
)
def test_links_belong_to_the_super_user(cluster: EmbeddedCluster, do: ApplyMode) -> None:
    with pytest.raises(NotAuthorizedError, match="ClusterAuthorizationException"):
        do(cluster.acting_as("User:owner"))


@pytest.mark.fact("F-K-018")
def test_lists_show_what_may_be_described(cluster: EmbeddedCluster) -> None:
    cluster.set_topic_acls("shop:eu:orders", rules("allow User:eve: read"))
    eve = cluster.acting_as("User:eve")
    assert list(eve.topics()) == ["public", "shop:eu:orders"]
    assert eve.namespaces() == ["bank"]
    assert list(cluster.topics()) == ["public", "shop:eu:orders", "shop:eu:other"]
    assert cluster.acting_as("User:owner").namespaces("shop") == ["shop:eu"]


@pytest.mark.fact("F-K-019")
def test_denied_on_the_namespace_no_rule_of_the_topic_helps(cluster: EmbeddedCluster) -> None:
    cluster.set_namespace_acls("shop", rules("deny User:eve: read"))
    cluster.set_topic_acls("shop:eu:orders", rules("allow User:eve: all"))
    eve = cluster.acting_as("User:eve")
    assert eve.topic("shop:eu:orders").partitions == 1
    with pytest.raises(NotAuthorizedError, match="rule 1 of namespace shop denies it: deny User:eve read"):
        consumed(eve, "shop:eu:orders")


def test_what_may_not_be_described_is_refused_be_it_there_or_not(cluster: EmbeddedCluster) -> None:
    cluster.set_topic_acls("shop:eu:orders", rules("allow User:a: read", "deny User:eve: all"))
    cluster.set_namespace_acls("shop:eu", rules("allow User:a: read"))
    eve = cluster.acting_as("User:eve")
    told = set()
    for name in ("eu:orders", "eu:orderz", "xx:orders"):
        for do in (eve.topic, eve.delete_topic, eve.groups.list_for_topic):
            with pytest.raises(NotAuthorizedError) as refused:
                do(f"shop:{name}")  # type: ignore[operator]  # each takes the name of a topic
            told.add(str(refused.value).replace(name, "it").replace("delete", "describe"))
    (refusal,) = told
    assert refusal == (
        "User:eve may not describe topic shop:it: namespace shop has access rules, and none allows it"
        " (TopicAuthorizationException). Add to the acls of namespace shop:"
        ' {principal: "User:eve", operations: [describe], names: ["it"]}'
    )


def test_a_namespace_that_may_not_be_described_is_refused_be_it_there_or_not(cluster: EmbeddedCluster) -> None:
    cluster.set_namespace_acls("shop:eu", rules("allow User:a: read"))
    told = set()
    for name in ("shop:eu", "shop:zz"):
        with pytest.raises(NotAuthorizedError) as refused:
            cluster.acting_as("User:eve").delete_namespace(name)
        told.add(str(refused.value).replace(name, "it"))
    assert len(told) == 1


def test_who_may_describe_something_is_told_all_that_its_refusal_rests_on(cluster: EmbeddedCluster) -> None:
    cluster.set_topic_acls("shop:eu:orders", rules("allow User:eve: describe"))
    with pytest.raises(
        NotAuthorizedError, match="namespace shop and topic shop:eu:orders have access rules"
    ) as refused:
        cluster.acting_as("User:eve").delete_topic("shop:eu:orders")
    assert "to the acls of topic shop:eu:orders" in refused.value.hint


@pytest.mark.parametrize("topic", [None, "shop:eu:orders", "shop:eu:orderz"])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_reset_is_refused_before_it_is_shown(cluster: EmbeddedCluster, topic: str | None, offset: int) -> None:
    cluster.create_topic("private")
    cluster.set_topic_acls("private", rules("allow User:a: read", "allow User:reader: describe"))
    cluster.groups.commit("g", {("shop:eu:orders", 0): offset, ("private", 0): 0})
    eve, earliest = cluster.acting_as("User:eve"), ToEarliest()
    with pytest.raises(NotAuthorizedError) as refused:
        eve.groups.plan_reset("g", earliest, topic=topic)
    assert "private" not in str(refused.value)
    assert ("orders" in str(refused.value)) == (topic == "shop:eu:orders")
    for group in ("shop:g", "shop:there-is-none"):
        with pytest.raises(NotAuthorizedError, match=f"may not read group {group}:"):
            eve.groups.plan_reset(group, earliest, topic="public")
    cluster.set_namespace_acls("shop", rules("allow User:reader on groups,topics: read"))
    with pytest.raises(NotAuthorizedError, match="may not read topic private"):
        cluster.acting_as("User:reader").groups.plan_reset("g", earliest)


def test_no_door_names_what_is_nearly_called_so_and_hidden(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("secret")
    cluster.set_topic_acls("secret", rules("allow User:a: read"))
    eve = cluster.acting_as("User:eve")
    doors: list[Callable[[], Any]] = [
        lambda: eve.groups.plan_reset("g", ToEarliest(), topic="secrets"),
        lambda: eve.groups.commit("g", {("secrets", 0): 1}),
        lambda: eve.groups.delete("g", "secrets"),
        lambda: eve.groups.list_for_topic("secrets"),
        lambda: eve.effective_configs("secrets"),
        lambda: eve.source_topic("secrets"),
        lambda: eve.sink("secrets"),
        lambda: eve.log("secrets"),
        lambda: eve.alter_topic("secrets", {"retention.ms": "1"}),
        lambda: eve.set_topic_acls("secrets", ()),
        lambda: eve.move_topic("secrets", "mine"),
        lambda: produced(eve, "secrets"),
        lambda: eve.consumer(topics=["secrets"]).poll(),
        lambda: sent(eve, "secrets"),
    ]
    for do in doors:
        with pytest.raises(UserError, match="topic secrets does not exist") as refused:
            do()
        assert "Create it first" in refused.value.hint


def test_a_name_nearly_right_is_told_only_to_who_may_know_it(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("secret")
    cluster.set_topic_acls("secret", rules("allow User:a: read"))
    with pytest.raises(UserError, match="Did you mean secret"):
        cluster.acting_as("User:a").topic("secrets")
    with pytest.raises(UserError, match="Create it first"):
        cluster.acting_as("User:eve").topic("secrets")
    with pytest.raises(UserError, match="Did you mean public"):
        cluster.acting_as("User:eve").topic("publick")


def test_permission_on_the_namespace_comes_before_whether_there_is_one(cluster: EmbeddedCluster) -> None:
    with pytest.raises(NotAuthorizedError):
        cluster.acting_as("User:eve").create_topic("shop:nowhere:t")
    with pytest.raises(InvalidNamespaceError):
        cluster.acting_as("User:owner").create_topic("shop:nowhere:t")


def test_a_namespace_goes_only_if_all_in_it_may_go(cluster: EmbeddedCluster) -> None:
    cluster.set_topic_acls("shop:eu:orders", rules("deny User:owner: delete"))
    owner = cluster.acting_as("User:owner")
    with pytest.raises(NotAuthorizedError, match="delete topic shop:eu:orders: rule 1 of topic shop:eu:orders denies"):
        owner.delete_namespace("shop", recursive=True)
    assert cluster.namespaces("shop") == ["shop:eu"]
    cluster.set_topic_acls("shop:eu:orders", ())
    assert owner.delete_namespace("shop", recursive=True)


def test_a_rule_holds_from_its_commit_on_for_logs_that_are_open(cluster: EmbeddedCluster) -> None:
    owner = cluster.acting_as("User:owner")
    log = owner.log("shop:eu:orders")
    assert contents(log) == [(0, b"a"), (1, b"b")]
    cluster.set_topic_acls("shop:eu:orders", rules("deny User:owner: read"))
    assert log.read_bounds()[0].end == 2
    with pytest.raises(NotAuthorizedError):
        contents(log)


def test_a_log_keeps_to_the_rules_of_where_its_topic_has_moved(cluster: EmbeddedCluster) -> None:
    eve = cluster.acting_as("User:eve")
    log = eve.log("public")
    cluster.move_topic("public", "shop:eu:public")
    with pytest.raises(NotAuthorizedError, match="topic shop:eu:public"):
        log.read_bounds()


def test_a_sink_travels_without_the_heads_it_swapped(tmp_path: Path) -> None:
    there = cluster_in(DirectoryStore(tmp_path / "west"))
    there.create_topic("copy")
    sink = there.sink("copy")
    before = len(pickle.dumps(sink))
    sink.publish([sink.stage(0, [numbered(0, 3)], at=None)])
    shipped = pickle.dumps(sink)
    assert len(shipped) == before
    other = pickle.loads(shipped)  # noqa: S301 - as Spark does
    assert other.publish([other.stage(0, [numbered(0, 2)], at=None)]) == {0: OffsetRange(3, 5)}
    assert sink.publish([sink.stage(0, [numbered(0, 1)], at=None)]) == {0: OffsetRange(5, 6)}


def test_logs_and_sinks_take_who_acts_along_to_another_process(tmp_path: Path) -> None:
    there = cluster_in(DirectoryStore(tmp_path / "west"))
    there.create_topic("orders")
    there.create_topic("copy")
    eve = there.acting_as("User:eve", "10.0.0.7")
    shipped = pickle.dumps((eve.log("orders"), eve.sink("copy")))
    log, sink = pickle.loads(shipped)  # noqa: S301 - as Spark does
    assert list(log.read(0, OffsetRange(0, 1))) == []
    assert sink.publish([sink.stage(0, [numbered(0, 3)], at=None)]) == {0: OffsetRange(0, 3)}
    there.set_topic_acls("orders", rules("deny User:* from 10.0.0.7: read"))
    there.set_topic_acls("copy", rules("deny User:* from 10.0.0.7: write"))
    log, sink = pickle.loads(shipped)  # noqa: S301 - as Spark does
    with pytest.raises(NotAuthorizedError, match=r"User:eve from 10\.0\.0\.7 may not read topic orders"):
        list(log.read(0, OffsetRange(0, 1)))
    with pytest.raises(NotAuthorizedError, match=r"User:eve from 10\.0\.0\.7 may not write topic copy"):
        sink.publish([sink.stage(0, [numbered(3, 3)], at=None)])
    assert there.log("copy").read_bounds()[0].end == 3


def test_acting_for_somebody_costs_no_request_more() -> None:
    def calls_of(principal: str | None) -> list[str]:
        store = WatchedStore(MemoryStore())
        made = cluster_in(store)
        made.create_topic("orders")
        made.set_topic_acls("orders", rules("allow User:a: all"))
        store.calls.clear()
        acting = made.acting_as(principal)
        produced(acting, "orders")
        acting.topics()
        consumed(acting, "orders")
        return [f"{call} {key.partition('/')[0]}" for call, key in store.calls]

    assert calls_of("User:a") == calls_of(None)


@pytest.mark.fact("F-K-022")
def test_a_topic_without_a_namespace_has_its_own_rules_and_no_others(cluster: EmbeddedCluster) -> None:
    cluster.set_topic_acls("public", rules("allow User:a: read"))
    assert consumed(cluster.acting_as("User:a"), "public") == [b"a", b"b"]
    with pytest.raises(NotAuthorizedError, match="topic public has access rules"):
        consumed(cluster.acting_as("User:owner"), "public")


@pytest.mark.fact("F-K-023")
def test_rules_lie_with_their_namespace_and_go_with_it(cluster: EmbeddedCluster) -> None:
    cluster.set_namespace_acls("shop:eu", rules("allow User:a: read"))
    cluster.set_namespace_acls("bank", rules("allow User:b: read"))
    kept = cluster.catalog.read().to_json()["tables"]["namespaces"]
    assert [rule["principal"] for rule in kept["shop:eu"]["acls"]] == ["User:a"]
    assert [rule["principal"] for rule in kept["bank"]["acls"]] == ["User:b"]
    cluster.delete_namespace("bank")
    cluster.create_namespace("bank")
    assert cluster.catalog.read().namespaces["bank"].acls == ()


@pytest.mark.fact("F-K-006")
def test_a_topic_takes_its_own_rules_along_when_it_moves(cluster: EmbeddedCluster) -> None:
    cluster.set_topic_acls("public", rules("allow User:a: read"))
    cluster.create_topic("bank:public")
    cluster.move_topic("public", "shop:eu:public")
    assert cluster.topic("shop:eu:public").acls == rules("allow User:a: read")
    assert cluster.topic("bank:public").acls == ()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (AclEntry("bob", "allow", ("read",)), "principal"),
        (AclEntry("User:a", "maybe", ("read",)), "permission"),
        (AclEntry("User:a", "allow", ()), "operations"),
        (AclEntry("User:a", "allow", ("fly",)), "operations"),
        (AclEntry("User:a", "allow", ("read",), ""), "host"),
        (AclEntry("User:a", "allow", ("read",), "*", ("clusters",)), "resources"),
        (AclEntry("User:a", "allow", ("read",), "*", ("topics",), ("a*b",)), "names"),
        (AclEntry("User:a", "allow", ("read",), "*", ("topics",), ()), "names"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(cluster: EmbeddedCluster, entry: AclEntry, said: str) -> None:
    with pytest.raises(UserError, match=f"namespace bank: access rule of .*: {said}"):
        cluster.set_namespace_acls("bank", [entry])
    assert cluster.catalog.read().namespaces["bank"].acls == ()


def test_a_rule_of_a_topic_is_about_that_topic(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UserError, match="an access rule of a topic covers that topic alone"):
        cluster.set_topic_acls("public", [AclEntry("User:a", "allow", ("read",), names=("p*",))])


def test_rules_cannot_lie_where_nothing_is(cluster: EmbeddedCluster) -> None:
    with pytest.raises(InvalidNamespaceError):
        cluster.set_namespace_acls("nowhere", rules("allow User:a: read"))
    with pytest.raises(UserError, match="does not exist"):
        cluster.set_topic_acls("nowhere", rules("allow User:a: read"))


def guide(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_guide_does_what_it_says() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(guide(IN_CODE, "python")[0], str(IN_CODE), "exec"), {})  # noqa: S102 - the page is ours
    assert out.getvalue() == guide(IN_CODE, "text")[-1]


def test_the_guide_refuses_as_it_says() -> None:
    made = cluster_in(MemoryStore())
    made.create_namespace("shop:eu")
    made.create_topic("shop:eu:invoices")
    shop, invoices = (read_resource(row) for row in yaml.safe_load_all(guide(RULES, "yaml")[0]))
    made.set_namespace_acls("shop", to_acl_entries(shop.spec.acls))
    made.set_topic_acls("shop:eu:invoices", to_acl_entries(invoices.spec.acls))
    with pytest.raises(NotAuthorizedError) as refused:
        consumed(made.acting_as("User:checkout"), "shop:eu:invoices")
    said = f"Error: {refused.value.message}\n  hint: {refused.value.hint.removesuffix('.')}\n"
    assert said == guide(IN_CODE, "text")[0]
    assert consumed(made.acting_as("User:audit"), "shop:eu:invoices") == []
