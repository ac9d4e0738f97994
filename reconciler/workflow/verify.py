"""`verify`: two topic logs compared per partition by count, ends and digest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, UserError
from reconciler.jobs.verify import verify as compare_logs
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.beginning.topicaddress import provider_of, topic_address
from reconciler.workflow.running.jobs import SparkJobs
from reconciler.workflow.running.moving import progress_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.applying.events import Event
    from reconciler.jobs.comparison import Comparison, PartitionComparison
    from reconciler.jobs.progress import JobProgress
    from reconciler.resources.address import Address
    from reconciler.workflow.beginning.invocation import Invocation, Select

_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of comparing two logs."""

    left: Address
    right: Address
    comparison: Comparison
    verdict: ReconcilerError | None


def verify(
    invocation: Invocation, select: Select, left: str, right: str, *, deep: bool, report: Callable[[Event], None]
) -> Verified:
    """Compare two logs by the digests they keep; with `deep` every record is read anew, in Spark.

    Raises:
        UserError: One of them is not there, or `deep` finds no Java.
    """
    work = open_work(invocation, select)
    ours, theirs = topic_address(left), topic_address(right)
    logs = provider_of(work, ours).log(ours), provider_of(work, theirs).log(theirs)

    def tell(found: JobProgress) -> None:
        report(progress_event(f"verify:{ours}", found))

    with SparkJobs(work.providers, work.spark, invocation.environ) as jobs:
        session = jobs.session().session if deep else None
        comparison = compare_logs(session, *logs, deep=deep, progress=tell)
    return Verified(ours, theirs, comparison, _verdict(ours, theirs, comparison))


def _verdict(left: Address, right: Address, comparison: Comparison) -> ReconcilerError | None:
    if comparison.is_equal:
        return None
    return UserError(
        f"{left} and {right} differ in {described(comparison.differing)}",
        hint="A mirror that is only behind is brought up to date by: reconciler run --once",
    )


def described(differing: tuple[PartitionComparison, ...]) -> str:
    """Return which partitions differ in what, in a few words."""
    named = ", ".join(
        f"partition {partition.partition} ({', '.join(partition.differences)})" for partition in differing[:_NAMED]
    )
    more = len(differing) - _NAMED
    return f"{named} and {more} more" if more > 0 else named
