"""The jobs that clusters do to themselves, one after the other; one that fails does not stop the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted
from reconciler.errors import ReconcilerError
from reconciler.resources.address import cluster_address
from reconciler.workflow.upkeep.outcomes import JobOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from reconciler.applying.events import Event
    from reconciler.providers.keeping import Upkept


def tended(
    cluster: str,
    jobs: Mapping[str, Callable[[], Upkept]],
    names: Iterable[str],
    *,
    now_ms: Callable[[], int],
    report: Callable[[Event], None],
) -> Iterator[JobOutcome]:
    """Do the named jobs of one cluster, those it has, and yield what came of each."""
    for name in names:
        if name in jobs:
            yield _done(name, cluster, jobs[name], now_ms, report)


def _done(
    name: str, cluster: str, do: Callable[[], Upkept], now_ms: Callable[[], int], report: Callable[[Event], None]
) -> JobOutcome:
    event, address, began_ms = f"{name}:{cluster}", cluster_address(cluster), now_ms()
    upkept: Upkept | None = None
    failure: ReconcilerError | None = None
    report(ActionStarted(event, address))
    try:
        upkept = do()
    except ReconcilerError as error:
        failure = error
    outcome = JobOutcome(name, cluster, max(0, now_ms() - began_ms) / 1000, upkept, failure)
    for first in outcome.errors[:1]:
        more = f" ({outcome.failed - 1} more failed)" if outcome.failed > 1 else ""
        report(ActionFailed(event, address, f"{first.message}{more}", first.hint))
    if upkept is not None and not outcome.errors:
        report(ActionDone(event, address, outcome.seconds, upkept.records, upkept.bytes))
    return outcome
