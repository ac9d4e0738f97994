"""Which lane an action takes, and what its failure leaves open."""

from __future__ import annotations

import pytest

from reconciler.applying.engine import JOBS, is_in_doubt, lane_of
from reconciler.errors import RetryableError
from reconciler.lifecycles.mirror import TWO_SIDED
from reconciler.planning.actions import Transition
from reconciler.providers.protocol import Failed
from reconciler.resources.mirror_link import MirrorTopic

MIRROR = MirrorTopic(cluster="east", link="dr", source_cluster="west", source="orders", name="orders")


def asked(verb: str) -> Transition:
    return Transition(
        address=MIRROR.address, machine="mirror", verb=verb, from_state="ACTIVE", to_state="STOPPED", after=MIRROR
    )


@pytest.mark.parametrize("verb", sorted(TWO_SIDED))
def test_what_needs_both_clusters_is_done_by_jobs_and_finds_where_it_stands_by_itself(verb: str) -> None:
    action = asked(verb)
    assert lane_of(action) == JOBS
    assert not is_in_doubt(action, Failed(action.id, RetryableError("no answer", hint="Try again.")))


@pytest.mark.parametrize("verb", ["pause", "resume", "failover"])
def test_what_one_cluster_does_alone_is_its_own(verb: str) -> None:
    action = asked(verb)
    assert lane_of(action) == "cluster/east"
    assert is_in_doubt(action, Failed(action.id, RetryableError("no answer", hint="Try again.")))
