"""What a plan says of a resource that it makes, and of a field that it moves: nothing is left out."""

from __future__ import annotations

import pytest

from reconciler.cli.text.action_words import summary
from reconciler.cli.text.amounts import change_text
from reconciler.planning.actions import Change
from reconciler.resources.inventory import RESOURCE


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"quotas": {"topics": 9, "partitions": 90}}, "quotas.topics 9, quotas.partitions 90"),
        ({"quotas": {"bytes": "1GiB"}, "configs": {"retention.ms": "7d"}}, "retention.ms 7d, quotas.bytes 1GiB"),
        ({"encryption": {"kmsKeyId": "key/1"}}, "encrypted under key/1"),
        ({}, ""),
    ],
)
def test_a_namespace_that_is_made_says_its_limits_and_its_key(spec: dict[str, object], said: str) -> None:
    made = RESOURCE.validate_python(
        {"apiVersion": "reconciler/v1", "kind": "Namespace", "metadata": {"name": "n", "cluster": "west"}, "spec": spec}
    )
    assert summary(made) == said


def test_a_quota_of_bytes_has_its_unit() -> None:
    assert change_text(Change("quotas.bytes", None, 1024)) == "quotas.bytes unset → 1KiB"
    assert change_text(Change("quotas.topics", 1024, 2048)) == "quotas.topics 1024 → 2048"
