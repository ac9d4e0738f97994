"""A wall clock set back by a day in the middle: people read odd times, and everything else goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, Event, Recovered
from reconciler.errors import IncompleteError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import Stop
from reconciler.operations.steps.workspace import open_work
from reconciler.runtime.threads import ThreadEffects
from reconciler.state.lockfile import read_lockfile
from reconciler.state.snapshots import history

if TYPE_CHECKING:
    from conftest import Bench

DAY = timedelta(days=1)
MORE = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: more, namespace: shop, cluster: west}
spec: {partitions: 1}
"""


def stopped(bench: Bench) -> None:
    """Apply, and ask for the end as soon as something is done."""

    def ask(event: Event) -> None:
        if isinstance(event, ActionDone):
            bench.stop.request()

    assert isinstance(bench.apply(report=ask).verdict, IncompleteError)


def a_day_before(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return the same workspace where every wall clock shows yesterday."""
    day_ms = round(DAY.total_seconds() * 1000)
    now_ms = bench.invocation.now_ms
    monkeypatch.setattr(ThreadEffects, "utc", lambda _: datetime.now(UTC) - DAY)
    return replace(bench.with_(now_ms=lambda: now_ms() - day_ms), events=[], stop=Stop())


@pytest.mark.parametrize("resumes", [False, True])
def test_a_run_is_finished_by_one_that_lives_a_day_before_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, resumes: bool
) -> None:
    stopped(bench)
    state = open_work(bench.invocation, Select()).state
    before = read_lockfile(state)
    assert before is not None
    assert before.lockfile.open_run is not None

    yesterday = a_day_before(bench, monkeypatch)
    assert yesterday.apply(options=ApplyOptions(yes=True, resumes=resumes)).verdict is None
    assert [event.run for event in yesterday.events if isinstance(event, Recovered)] == [before.lockfile.open_run.run]
    assert yesterday.plan().plan.is_empty

    yesterday.write("manifests/more.yaml", MORE)
    assert yesterday.apply().verdict is None
    assert yesterday.plan().plan.is_empty
    after = read_lockfile(state)
    assert after is not None
    assert after.lockfile.open_run is None
    assert after.lockfile.lease.epoch > before.lockfile.lease.epoch
    serials = [row.serial for row in history(state)]
    assert serials == sorted(serials, reverse=True)
    assert after.lockfile.serial == serials[0] > before.lockfile.serial
