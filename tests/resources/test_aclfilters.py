from __future__ import annotations

from typing import Any

import pytest

from reconciler.resources.mirror_link import AclFilter
from reconciler.resources.mirrors import AccessRules, filter_rules

RULES = AccessRules(
    topics={"shop:orders": {"acls.allow User:alice": ("read", "write"), "acls.deny User:bob from 10.0.0.7": ("all",)}},
    namespaces={"shop": {"acls.allow User:carol on groups,topics named orders,pay-*": ("read",)}},
)


def taken(**words: Any) -> list[str]:
    """Return what one filter takes, a line for each rule."""
    found = filter_rules([AclFilter.model_validate(words)], RULES)
    places = {**found.topics, **{f"{name}:": rules for name, rules in found.namespaces.items()}}
    return [f"{place} {path[5:]} {','.join(rules[path])}" for place, rules in places.items() for path in sorted(rules)]


ALICE = "shop:orders allow User:alice read,write"
BOB = "shop:orders deny User:bob from 10.0.0.7 all"
CAROL = "shop: allow User:carol on groups,topics named orders,pay-* read"


@pytest.mark.fact("F-C-043")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, [ALICE, BOB, CAROL]),
        ({"resourceType": "TOPIC"}, [ALICE, BOB, "shop: allow User:carol named orders,pay-* read"]),
        ({"resourceType": "group"}, ["shop: allow User:carol on groups named orders,pay-* read"]),
        ({"resourceType": "TRANSACTIONAL_ID"}, []),
        ({"operation": "Write"}, ["shop:orders allow User:alice write"]),
        ({"operation": "all"}, [BOB]),
        ({"permission": "DENY"}, [BOB]),
        ({"host": "10.0.0.7"}, [BOB]),
        ({"principal": "User:alice"}, [ALICE]),
        ({"principal": "user:alice"}, []),
        (
            {"resourceName": "shop:orders"},
            [ALICE, BOB, "shop: allow User:carol on groups,topics named orders read"],
        ),
        ({"resourceName": "shop:pay-", "patternType": "prefixed"}, [CAROL.replace("orders,pay-*", "pay-*")]),
        ({"resourceName": "shop:pay-1", "patternType": "match"}, [CAROL.replace("orders,pay-*", "pay-*")]),
        ({"resourceName": "shop:pay-1"}, []),
        ({"patternType": "literal"}, [ALICE, BOB, CAROL.replace("orders,pay-*", "orders")]),
    ],
)
def test_of_a_rule_is_taken_what_the_filter_is_about(words: dict[str, str], expected: list[str]) -> None:
    assert taken(**words) == expected
