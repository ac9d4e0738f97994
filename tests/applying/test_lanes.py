"""Which lane an action takes, and what its failure leaves open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.applying.engine import MIRRORS_AT_ONCE, choose_lane, is_in_doubt, is_job_lane
from reconciler.errors import RetryableError
from reconciler.lifecycles import BY_PLATFORM, TWO_SIDED_VERBS
from reconciler.planning.actions import RunJob, Transition
from reconciler.providers.protocol import FailedAction
from reconciler.resources.mirror_link import MirrorTopic

NATIVE = {"by": BY_PLATFORM}


def mirror(name: str = "orders") -> MirrorTopic:
    return MirrorTopic(cluster="east", link="dr", source_cluster="west", source=name, name=name)


def asked(verb: str, of: MirrorTopic | None = None) -> Transition:
    of = of or mirror()
    return Transition(
        address=of.address, machine="mirror", verb=verb, from_state="ACTIVE", to_state="STOPPED", after=of
    )


@pytest.mark.parametrize("verb", sorted(TWO_SIDED_VERBS))
def test_what_needs_both_clusters_is_done_by_jobs_and_finds_where_it_stands_by_itself(verb: str) -> None:
    action = asked(verb)
    assert is_job_lane(choose_lane(action))
    assert not is_in_doubt(action, FailedAction(action.id, RetryableError("no answer", hint="Try again.")))


@pytest.mark.parametrize(
    "action",
    [
        *map(asked, ["pause", "resume", "failover"]),
        *(replace(asked(verb), parameters=NATIVE) for verb in sorted(TWO_SIDED_VERBS)),
    ],
    ids=lambda action: f"{action.verb} {action.parameters}",
)
def test_what_one_cluster_does_alone_is_its_own(action: Transition) -> None:
    assert choose_lane(action) == "cluster/east"
    assert is_in_doubt(action, FailedAction(action.id, RetryableError("no answer", hint="Try again.")))


def test_many_mirrors_are_promoted_side_by_side_and_each_after_it_has_caught_up() -> None:
    lanes = set()
    for number in range(50):
        of = mirror(f"orders-{number}")
        waiting = RunJob(
            address=of.address, job="catch-up", source=f"topic/west/{of.name}", sink=f"topic/east/{of.name}"
        )
        assert choose_lane(waiting) == choose_lane(asked("promote", of))
        lanes.add(choose_lane(waiting))
    assert len(lanes) == MIRRORS_AT_ONCE
