"""Descriptions of configs and access rules are read whatever brokers say; names by what threads learn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import (
    DeleteAclsResponse,
    DescribeAclsResponse,
    DescribeConfigsResponse,
)
from kafka.protocol.frame import KafkaBytes

from reconciler.providers.brokers.client import parse_bindings, parse_deletions
from reconciler.providers.brokers.connection import VERSION, DescribeAllConfigsRequest
from reconciler.providers.brokers.translate import ConfigState, assign_bindings, build_naming
from reconciler.providers.kafka import KafkaProvider
from reconciler.providers.protocol import Edge
from reconciler.resources.acls import AccessBinding, NamespaceAcl, expand_namespace_rules, parse_rule, to_rule_fields
from reconciler.resources.address import address_of
from reconciler.resources.cluster import Cluster

TEXTS = st.text(max_size=5) | st.text(min_size=120, max_size=300)
SMALL = st.integers(-1, 9)


def row(of: str, **fields: Any) -> st.SearchStrategy[Any]:
    """Return strategies for a structure of the answer, by its name there."""
    return st.builds(getattr(DescribeConfigsResponse, of, None) or nested(of), **fields)


def nested(of: str) -> Any:
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult
    return {"DescribeConfigsResourceResult": entry, "DescribeConfigsSynonym": entry.DescribeConfigsSynonym}[of]


synonyms = row("DescribeConfigsSynonym", name=TEXTS, value=st.none() | TEXTS, source=SMALL)
entries = row(
    "DescribeConfigsResourceResult",
    name=TEXTS,
    value=st.none() | TEXTS,
    read_only=st.booleans(),
    config_source=SMALL,
    is_sensitive=st.booleans(),
    synonyms=st.lists(synonyms, max_size=2),
    config_type=SMALL,
    documentation=st.none() | TEXTS,
)
results = row(
    "DescribeConfigsResult",
    error_code=SMALL,
    error_message=st.none() | TEXTS,
    resource_type=SMALL,
    resource_name=TEXTS,
    configs=st.lists(entries, max_size=4),
)
# Few different ones, many times: most topics of a cluster are alike, or nearly.
answers = st.lists(results, min_size=1, max_size=3).flatmap(lambda some: st.lists(st.sampled_from(some), max_size=8))


def on_the_wire(answer: Any) -> KafkaBytes:
    encoded = answer.encode(version=VERSION)
    came = KafkaBytes(len(encoded))
    came.write(encoded)
    came.seek(0)
    return came


def reader() -> Any:
    request = DescribeAllConfigsRequest([])
    request.API_VERSION = VERSION
    request.with_header()
    return request.header.get_response_class()


@pytest.mark.thorough
@given(answers, st.integers(0, 1_000))
@settings(max_examples=60)
def test_every_answer_is_read_as_the_library_reads_it(some: list[Any], throttled: int) -> None:
    came = on_the_wire(DescribeConfigsResponse(throttle_time_ms=throttled, results=some))
    theirs = DescribeConfigsResponse.decode(bytes(came), version=VERSION)
    ours = reader().decode(came)
    assert ours.throttle_time_ms == theirs.throttle_time_ms
    assert [(each.resource_name, each.error_code, each.error_message, each.configs) for each in ours.results] == [
        (
            each.resource_name,
            each.error_code,
            each.error_message,
            {
                one.name: ConfigState(one.value, one.config_source, one.read_only, one.is_sensitive, one.config_type)
                for one in each.configs
            },
        )
        for each in theirs.results
    ]


def test_what_brokers_of_later_versions_add_is_passed_over() -> None:
    plain = [
        DescribeConfigsResponse.DescribeConfigsResult(
            error_code=0, error_message=None, resource_type=2, resource_name=name, configs=[]
        )
        for name in ("first", "second")
    ]
    sent = bytes(on_the_wire(DescribeConfigsResponse(throttle_time_ms=0, results=plain)))
    tagged = sent.replace(b"first\x01\x00", b"first\x01\x01\x05\x03abc")
    assert tagged != sent
    came = KafkaBytes(len(tagged))
    came.write(tagged)
    came.seek(0)
    assert [each.resource_name for each in reader().decode(came).results] == ["first", "second"]


@given(answers.filter(bool), st.data())
@settings(max_examples=40)
def test_an_answer_that_is_cut_off_is_refused(some: list[Any], data: st.DataObject) -> None:
    whole = bytes(on_the_wire(DescribeConfigsResponse(throttle_time_ms=0, results=some)))
    kept = data.draw(st.integers(0, len(whole) - 2))
    came = KafkaBytes(kept)
    came.write(whole[:kept])
    came.seek(0)
    with pytest.raises(ValueError):  # noqa: PT011 - what the library takes for an answer that it cannot read
        reader().decode(came)


@pytest.fixture
def busy() -> Iterator[None]:
    """Let threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
def test_what_threads_learn_at_once_is_known_afterwards() -> None:
    spec = {"provider": "kafka", "kafka": {"bootstrapServers": ["localhost:1"]}}
    declared = Cluster.model_validate({"metadata": {"name": "live"}, "spec": spec})
    names = [f"n{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as threads:
        for _ in range(300):
            provider, start = KafkaProvider(declared, Edge(Path(), {}, str, int)), Barrier(len(names))

            def learn(name: str, provider: KafkaProvider = provider, start: Barrier = start) -> None:
                start.wait()
                provider.learn_names([address_of("namespace", "live", name)])

            list(threads.map(learn, names))
            assert sorted(provider._naming.prefixes.values()) == names


NAMES = build_naming(".", [address_of("namespace", "west", "pay"), address_of("topic", "west", "pay:orders")])


def binding(resource: str = "groups", name: str = "pay.app", **changed: Any) -> AccessBinding:
    fields = {"is_prefix": False, "principal": "User:a", "host": "*", "operation": "read", "permission": "allow"}
    return AccessBinding(resource, name, **{**fields, **changed})


@pytest.mark.parametrize(
    "strange",
    [
        binding("transactional-ids", operation="two-phase-commit"),
        binding("groups", operation="alter-configs"),
        binding("groups", operation="unknown-16"),
        binding("groups", permission="unknown-4"),
        binding("groups", principal="Role-1:a"),
        binding("groups", principal="User:a\nb"),
        binding("groups", host=""),
        binding("groups", name="pay.a*b"),
        binding("groups", name="pay.a*"),
        binding("groups", name="pay.a\nb", is_prefix=True),
        binding("topics", name="pay.orders", operation="idempotent-write"),
        binding("topics", name="pay.", is_prefix=True, operation="two-phase-commit"),
    ],
    ids=str,
)
def test_a_rule_that_no_file_can_declare_is_shown_and_never_managed(strange: AccessBinding) -> None:
    plain = [binding(), binding("topics", "pay.orders")]
    alone, both = (assign_bindings(some, NAMES, {"pay.orders"}) for some in (plain, [*plain, strange]))
    assert (both.namespaces, both.topics) == (alone.namespaces, alone.topics)
    assert [strange] == [each for each in both.rest if each not in alone.rest]
    (rules,) = both.undeclarable.values()
    assert [each.operations for each in rules] == [(strange.operation,)]


@given(
    st.builds(
        AccessBinding,
        st.sampled_from(["topics", "groups", "transactional-ids", "user", "unknown-8"]),
        st.text("ab*.\n :", max_size=4).map("pay.".__add__),
        st.booleans(),
        st.sampled_from(["User:a", "User:a, b", 'User:"', "Role-1:a", "User:", "", "User:\n"]),
        st.sampled_from(["*", "10.0.0.7", "", "a b"]),
        st.sampled_from(["read", "write", "all", "two-phase-commit", "unknown-16", "cluster-action"]),
        st.sampled_from(["allow", "deny", "unknown-4"]),
    )
)
def test_every_rule_that_is_managed_is_the_one_that_the_broker_has(each: AccessBinding) -> None:
    found = assign_bindings([each], NAMES, {"pay.orders"})
    for rules in found.namespaces.values():
        (rule,) = (parse_rule(path, operations) for path, operations in to_rule_fields(rules).items())
        assert NamespaceAcl.model_validate(rule.to_json()) == rule
        assert list(expand_namespace_rules("pay.", [rule])) == [each]


def test_a_rule_that_brokers_refuse_to_delete_is_refused_though_its_filter_succeeds() -> None:
    result = DeleteAclsResponse.DeleteAclsFilterResult
    matched = [
        result.DeleteAclsMatchingAcl(
            error_code=code,
            error_message="no" if code else None,
            resource_type=2,
            resource_name="a",
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )
        for code in (0, 31)
    ]
    results = [
        result(error_code=0, error_message=None, matching_acls=matched),
        result(error_code=0, error_message=None, matching_acls=matched[:1]),
        result(error_code=42, error_message="what", matching_acls=[]),
    ]
    answer = DeleteAclsResponse(throttle_time_ms=0, filter_results=results)
    read = parse_deletions(DeleteAclsResponse.decode(answer.encode(version=3), version=3))
    assert list(read) == [(31, "no"), (0, ""), (42, "what")]


def test_codes_of_later_brokers_are_read_as_words_of_their_own() -> None:
    resource = DescribeAclsResponse.DescribeAclsResource
    answer = DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        resources=[
            resource(
                resource_type=kind,
                resource_name="pay.orders",
                pattern_type=pattern,
                acls=[resource.AclDescription(principal="User:a", host="*", operation=operation, permission_type=may)],
            )
            for kind, pattern, operation, may in [(8, 3, 3, 3), (2, 5, 3, 3), (2, 3, 16, 3), (2, 3, 3, 4), (2, 4, 3, 3)]
        ],
    )
    read = list(parse_bindings(DescribeAclsResponse.decode(answer.encode(version=3), version=3)))
    assert [str(each) for each in read] == [
        "allow User:a read on unknown-8 pay.orders",
        "allow User:a read on topics by pattern type 5 pay.orders",
        "allow User:a unknown-16 on topics pay.orders",
        "unknown-4 User:a read on topics pay.orders",
        "allow User:a read on topics pay.orders*",
    ]
    assert len(assign_bindings(read, NAMES, {"pay.orders"}).rest) == 4
