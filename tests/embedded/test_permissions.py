"""Who may do what: a table of questions, and what holds for all rules there can be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.embedded.acl import SUPER_USER, Kind, Operation, Permissions, entries_of, levels_of, namespace_rules
from reconciler.embedded.catalog.model import AclEntry, NamespaceEntry, TopicEntry
from reconciler.embedded.catalog.tables import Catalog
from reconciler.errors import NotAuthorizedError, UserError
from reconciler.resources.acls import ACLS, NamespaceAcl, rule_at, rule_fields, rule_path

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
    (entry,) = entries_of([rule_at(ACLS + path, [word.strip() for word in operations.split(",")])])
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
    verdict = who.verdict(catalog, operation, kind, name)
    by = f"rule {verdict.position} of {verdict.level}" if verdict.rule else verdict.level
    assert (verdict.is_allowed, by) == (row["may"], row.get("by"))
    assert who.may(catalog, operation, kind, name) is row["may"]
    assert SUPER_USER.may(catalog, operation, kind, name)
    if not row["may"]:
        with pytest.raises(NotAuthorizedError) as refused:
            who.check(catalog, operation, kind, name)
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
        Permissions.of("User:bob", "10.0.0.7").check(catalog, "read", kind, name)
    assert refused.value.message == (
        f"User:bob from 10.0.0.7 may not read {kind} {name}: rule 2 of namespace shop denies it: "
        f"deny User:bob read, write on groups, topics, transactional-ids from 10.0.0.7 ({error})"
    )
    assert "in the acls of namespace shop" in refused.value.hint


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (Kind.TOPIC, "shop:eu:orders", '{principal: "User:bob", operations: [read], names: ["eu:orders"]}'),
        (
            Kind.GROUP,
            "shop:eu:g",
            '{principal: "User:bob", operations: [read], resources: [groups], names: ["eu:g"]}',
        ),
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
        who.check(closed, "read", kind, name)
    assert refused.value.hint.endswith(hint)
    offered = yaml.safe_load(hint)
    place = name.rpartition(":")[0]
    path = f"allow {offered['principal']} on {','.join(offered.get('resources', ['topics']))}"
    allowing = rule(f"{path}: {', '.join(offered['operations'])}")
    assert who.may(catalog_with({place: (allowing, rule("allow User:a: read"))}), "read", kind, name)


@pytest.mark.parametrize("principal", ["", "bob", "User:", ":bob", "User:*", "User:a\nb"])
def test_who_is_nobody_cannot_act(principal: str) -> None:
    with pytest.raises(UserError, match=re.escape(repr(principal)) if principal != "User:*" else "is everyone"):
        Permissions.of(principal)


def test_a_rule_that_says_neither_allow_nor_deny_denies() -> None:
    strange = AclEntry("User:a", "Allow", ("read",))
    catalog = catalog_with({"shop": (strange,)})
    assert not Permissions.of("User:a").may(catalog, "read", Kind.TOPIC, "shop:orders")


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
    if who.may(catalog_with(more), operation, kind, name):
        assert who.may(catalog_with(world), operation, kind, name)


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
    denied = who.verdict(catalog, operation, kind, name)
    if denied.rule is None or denied.is_allowed:
        return
    other = catalog_with({**below, "shop": world.get("shop", ())})
    assert who.verdict(other, operation, kind, name) == denied


@given(_WORLDS, _QUESTIONS, _ACTORS)
@settings(max_examples=80)
def test_the_answer_is_the_one_of_the_rule_in_words(
    world: dict[str, tuple[AclEntry, ...]], question: tuple[Operation, tuple[Kind, str]], who: Permissions
) -> None:
    """Said from the other end: any denial denies, else any allowance allows, else only no rule at all does."""
    operation, (kind, name) = question
    catalog = catalog_with(world)
    levels = list(levels_of(catalog, kind, name))
    alone = [
        (entry.permission, who.verdict(catalog_with_one(entry, level.label), operation, kind, name).rule is not None)
        for level in levels
        for entry in level.rules
    ]
    matching = {permission for permission, is_about in alone if is_about}
    expected = "deny" not in matching and ("allow" in matching or not alone)
    assert who.may(catalog, operation, kind, name) is expected


def catalog_with_one(entry: AclEntry, label: str) -> Catalog:
    return catalog_with({label.removeprefix("namespace "): (entry,)})


@given(st.lists(_RULES, max_size=5))
def test_rules_survive_being_fields(entries: list[AclEntry]) -> None:
    kept = entries_of([rule_at(path, operations) for path, operations in _fields(entries).items()])
    assert entries_of(rule_at(path, operations) for path, operations in _fields(list(kept)).items()) == kept
    assert _fields(list(kept)) == _fields(list(reversed(entries)))


def _fields(entries: list[AclEntry]) -> dict[str, tuple[str, ...]]:
    return rule_fields(namespace_rules(entries))


@given(
    st.from_regex(r"[A-Za-z]+:[^\n\r\x00-\x1f\x85\u2028\u2029]+", fullmatch=True),
    st.text(min_size=1),
    st.lists(st.from_regex(r"[^*\n]+\*?", fullmatch=True), min_size=1, max_size=3),
)
def test_a_path_is_read_as_the_rule_it_was_written_from(principal: str, host: str, names: list[str]) -> None:
    rule = NamespaceAcl(principal=principal, operations=("read",), host=host, names=tuple(names))
    assert rule_at(rule_path(rule), ("read",)) == rule
