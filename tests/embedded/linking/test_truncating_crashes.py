"""Dying before and after every write of a cut: readers see the log before or after it, and whoever comes ends it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import CheckFinding, Severity
from reconciler.resources.mirrors import Truncated
from tests.contracts.lossy import LossyStore
from tests.embedded.test_tiered_crashes import Ticking
from tests.embedded.truncated import (
    OPERATION,
    archived,
    both_copied,
    cut,
    faults,
    is_sound,
    joined,
    mirror_more,
    rows,
    truncate,
)
from tests.embedded.upkeeping import append, head_of
from tests.embedded.watched import DiedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.embedded.tiered import Tiered


def soaked(*cuts: int) -> list[Any]:
    """Return cuts that are tried at length only: each is all points at which one can die."""
    return [pytest.param(at, marks=pytest.mark.soak) for at in cuts]


def deaths(it: Tiered, at: int) -> Iterator[Tiered]:
    """Yield the cluster as it is left behind, for every point at which a cut can die."""
    for done in (False, True):
        for point in itertools.count():
            left, tick = both_copied(it), Ticking(point)
            opened = left.opened(tick.watch(left.store, done=done), tick.watch(left.storage, done=done))
            try:
                truncate(opened, {0: at})
            except DiedError:
                yield left
            else:
                assert point > 1
                break


def errors_of(it: Tiered) -> list[CheckFinding]:
    """Return what a check calls broken: what a death leaves behind is none of it."""
    report = check_cluster(it.store, deep=True, storage=it.storage)
    return [finding for finding in report.findings if finding.severity is Severity.ERROR]


def upload_all(it: Tiered) -> None:
    """Upload what there is, also of the open segment."""
    it.clock.now_ms += 5_000
    it.switch_on(segment_max_upload_interval_sec="1")
    upkeep = it.opened().upkeep()
    upkeep.roll()
    assert not upkeep.upload().errors
    assert not it.opened().upkeep().retain().errors


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("at", [7, *soaked(0, 12, 18, 27)])
def test_a_cut_that_died_is_ended_by_the_next_and_counts_the_same(at: int, *, pages: bool) -> None:
    it = archived(pages=pages)
    joined(it)
    before = rows(it)
    seen_whole = seen_cut = 0
    for left in deaths(it, at):
        found = rows(left)
        assert found in (before, before[:at])
        seen_whole, seen_cut = seen_whole + (found == before), seen_cut + (found != before)
        assert not errors_of(left)
        assert cut(left, at) == Truncated(at, 28 - at)
        assert rows(left) == before[:at]
        is_sound(left)
        mirror_more(left, 5)
        assert cut(left, at) == Truncated(at, 28 - at)
        upload_all(left)
        assert rows(left)[:at] == before[:at]
        assert len(rows(left)) == at + 5
        assert left.manifest().records == at + 5
    assert seen_whole
    assert seen_cut


@pytest.mark.fact("F-C-077")
@pytest.mark.parametrize("at", [12, *soaked(7, 18)])
def test_where_a_failover_ends_a_cut_that_died_what_is_uploaded_then_is_what_can_be_read(at: int) -> None:
    it = archived()
    joined(it)
    before = rows(it)
    for left in deaths(it, at):
        left.opened().linking.ask("orders", "failover")
        own = rows(left)
        assert own in (before, before[:at])
        for number in range(3):
            append(left.opened(), (f"own{number}", "new"))
        upload_all(left)
        found = rows(left)
        assert found[: len(own)] == own
        assert [key for _, key, _ in found[len(own) :]] == [b"own0", b"own1", b"own2"]
        head, manifest = head_of(left.opened()), left.manifest()
        assert manifest.end == head.uploaded_to == head.end == len(found)
        assert manifest.records == len(found)
        is_sound(left)
        assert not faults(left)


@pytest.mark.parametrize("at", [7, 18])
def test_a_cut_whose_answers_are_lost_is_done_once(at: int) -> None:
    it = archived()
    joined(it)
    before = rows(it)
    lossy = it.opened(LossyStore(it.store), LossyStore(it.storage))
    assert truncate(lossy, {0: at}, OPERATION) == {0: Truncated(at, 28 - at)}
    assert rows(it) == before[:at]
    is_sound(it)
