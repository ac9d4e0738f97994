"""The pass over a link and the round that copies, one after the other as `run` does them: neither undoes the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.operations.mirrors.mirror_rounds import Rounds
from reconciler.operations.steps.mirror_copy import Copier
from tests.embedded.linking.linked import ORDERS, mirrored
from tests.workflow.linksyncs import MINUTE, Refusing, Runner, denied

if TYPE_CHECKING:
    from collections.abc import Iterator


def no_spark() -> None:
    raise AssertionError("so little is copied without Spark")


def passes(run: Runner) -> Iterator[str]:
    """Do both, again and again, and yield what is shown of the mirror."""
    while True:
        run()
        providers = {name: run.provider(name) for name in run.linked.stores}
        Rounds(Copier(providers, no_spark), run.linked.clock).once(["east"])
        yield run.linked.status("east")


@pytest.mark.fact("F-C-070", "F-C-009")
def test_nothing_is_copied_of_what_a_link_may_not_read_and_it_fails_in_the_end() -> None:
    run = Runner(mirrored(mode="destination"))
    shown = passes(run)
    run.linked.west.set_topic_acls(ORDERS, [denied()])
    run.linked.produce("west", "secret")
    before = run.serial()
    assert [next(shown), next(shown), next(shown)] == ["SOURCE_UNAVAILABLE"] * 3
    assert run.serial() == before + 2  # Which cluster it met, and the trouble, once.
    assert len(run.linked.read("east")) == 10
    run.linked.west.set_topic_acls(ORDERS, [])
    assert (next(shown), len(run.linked.read("east"))) == ("ACTIVE", 11)
    run.linked.west.set_topic_acls(ORDERS, [denied()])
    assert next(shown) == "SOURCE_UNAVAILABLE"
    run.later(5 * MINUTE + 1)
    assert next(shown) == "FAILED"
    run.linked.west.set_topic_acls(ORDERS, [])
    run.linked.produce("west", "later")
    assert (next(shown), len(run.linked.read("east"))) == ("FAILED", 11)


@pytest.mark.fact("F-C-070")
def test_a_source_that_is_gone_is_noted_once_by_whoever_finds_it() -> None:
    run = Runner(mirrored(mode="destination"))
    shown = passes(run)
    next(shown)
    run.linked.west.delete_topic(ORDERS)
    before = run.serial()
    assert [next(shown), next(shown), next(shown)] == ["SOURCE_UNAVAILABLE"] * 3
    assert run.serial() == before + 1
    run.later(5 * MINUTE + 1)
    assert next(shown) == "FAILED"


@pytest.mark.fact("F-C-069")
def test_a_source_that_does_not_answer_is_noted_once_however_it_is_put() -> None:
    run = Runner(mirrored(mode="destination"))
    shown = passes(run)
    next(shown)
    run.over["west"] = Refusing()
    before = run.serial()
    assert [next(shown), next(shown), next(shown)] == ["SOURCE_UNAVAILABLE"] * 3
    assert run.serial() == before + 1
    run.over.clear()
    assert next(shown) == "ACTIVE"


@pytest.mark.fact("F-C-070")
def test_a_link_that_is_told_to_wait_for_ever_gives_no_mirror_up() -> None:
    run = Runner(mirrored(mode="destination", retryTimeout="infinite"))
    shown = passes(run)
    next(shown)
    run.linked.west.delete_topic(ORDERS)
    assert [next(shown), next(shown)] == ["SOURCE_UNAVAILABLE"] * 2
    run.later(1_000_000 * MINUTE)
    assert next(shown) == "SOURCE_UNAVAILABLE"
