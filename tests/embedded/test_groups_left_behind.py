"""Groups that stay where a topic left: what they have of it is no trouble, and goes with the next commit."""

from __future__ import annotations

from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Kind, Severity
from tests.embedded.mounting.bucket import CLICKS, Bucket


def test_what_a_group_keeps_of_a_topic_that_was_unmounted_is_noted_until_it_commits() -> None:
    bucket = Bucket()
    bucket.filled()
    bucket.west.create_topic("shop:other")
    bucket.west.groups.commit("billing", {(CLICKS, 0): 2})
    bucket.unmounted()
    bucket.west.finish_deletions()
    (found,) = check_cluster(bucket.stores["west"]).findings
    assert (found.kind, found.severity) == (Kind.GROUP_LEFT_OVER, Severity.NOTE)
    bucket.west.groups.commit("billing", {("shop:other", 0): 0})
    assert check_cluster(bucket.stores["west"]).findings == []
