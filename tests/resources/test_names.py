from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.resources.address import (
    address_of,
    build_sort_key,
    check_full_name,
    check_namespace,
    check_plain_name,
    check_topic_name,
    cluster_of,
    full_name_of,
    join_name,
    kind_of,
    list_levels,
    matches_pattern,
    split_name,
)

TIERS = st.text(alphabet="abcXYZ019.-", min_size=1, max_size=8).filter(lambda tier: tier not in {".", ".."})
NAMESPACES = st.lists(TIERS, max_size=4).map(":".join)
TOPICS = st.text(alphabet="abcXYZ019._-", min_size=1, max_size=12).filter(lambda name: name not in {".", ".."})


@given(NAMESPACES, TOPICS)
def test_a_full_name_splits_into_what_it_was_joined_from(namespace: str, name: str) -> None:
    full_name = join_name(namespace, name)
    assert check_full_name(full_name) == full_name
    assert split_name(full_name) == (namespace, name)
    address = address_of("topic", "west", full_name)
    assert (kind_of(address), cluster_of(address), full_name_of(address)) == ("topic", "west", full_name)


@given(NAMESPACES)
def test_tiers_lead_from_the_outermost_to_the_namespace_itself(namespace: str) -> None:
    tiers = list_levels(namespace)
    assert tiers[-1:] == ((namespace,) if namespace else ())
    assert all(below.startswith(f"{above}:") for above, below in pairwise(tiers))


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a:b", "a/b", "ü", "x" * 250, "a\n"])
def test_what_is_no_topic_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a topic name"):
        check_topic_name(name)


def test_a_topic_of_the_default_namespace_has_one_name() -> None:
    """`:orders` would be a second one, with the same folder."""
    with pytest.raises(ValueError, match="it has nothing before"):
        check_full_name(":orders")


@pytest.mark.parametrize("namespace", ["a_b", "a::b", ":a", "a:", "a b", "a/b", ".", "a:..", "x" * 65, "a\n"])
def test_what_is_no_namespace_is_refused(namespace: str) -> None:
    """F-K-004: tiers of letters, digits, dots and dashes only."""
    with pytest.raises(ValueError, match="not a namespace"):
        check_namespace(namespace)


@pytest.mark.parametrize("name", ["", "-a", ".a", "a/b", "a b", "x" * 101, "a\n"])
def test_what_can_name_no_cluster_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        check_plain_name(name)


def test_namespace_and_topic_share_one_longest_length() -> None:
    assert check_full_name("a" * 60 + ":" + "b" * 188)
    with pytest.raises(ValueError, match="longer than 249"):
        check_full_name("a" * 60 + ":" + "b" * 189)


@pytest.mark.parametrize(
    ("pattern", "address", "does"),
    [
        ("*", "topic/west/shop:eu:orders", True),
        ("topic/*/shop:*", "topic/west/shop:eu:orders", True),
        ("*/west/*", "topic/west/shop:eu:orders", True),
        ("topic/west/shop:eu:orders", "topic/west/shop:eu:orders", True),
        ("topic/west/shop", "topic/west/shop:eu:orders", False),
        ("topic/west/shop.eu:*", "topic/west/shop:eu:orders", False),
        ("*orders", "topic/west/shop:eu:orders2", False),
        ("[a-z]*", "topic/west/x", False),
    ],
)
def test_a_star_stands_for_any_characters_and_nothing_else_is_special(pattern: str, address: str, does: bool) -> None:  # noqa: FBT001 - a table
    assert matches_pattern(pattern, address) is does


def test_what_others_lean_on_comes_first() -> None:
    addresses = ["mirror/w/x", "link/w/x", "mounting/w/x", "topic/w/x", "namespace/w/x", "cluster/w", "policy/p"]
    assert sorted(addresses, key=build_sort_key) == addresses[::-1]  # type: ignore[arg-type] # plain texts


def test_a_namespace_leaves_room_for_a_topic() -> None:
    longest = ":".join(["t" * 61] * 3 + ["t" * 61])
    assert len(longest) == 247
    check_full_name(f"{check_namespace(longest)}:x")
    with pytest.raises(ValueError, match="longer than 247 characters: no topic would fit"):
        check_namespace(f"{longest}t")
