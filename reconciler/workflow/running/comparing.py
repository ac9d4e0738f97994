"""What a job copied, compared with what it copied from: before anything else is done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.jobs.comparison import Comparison
    from reconciler.records.log import TopicLog, TransactionalSink

# Arrow is heavy: a command without data actions never imports it.
# ruff: noqa: PLC0415


def check_equal(name: str, source: TopicLog, copy: TopicLog, *, since: Mapping[int, int] | None = None) -> None:
    """Refuse a copy that differs from its source where it has offsets; that the source went on is no difference.

    Of partitions that were compacted only what was copied is compared, from the offsets `since` on.

    Raises:
        UserError: It differs.
    """
    from reconciler.jobs.verify import verify

    _check(name, verify(None, source, copy, since=since))


def check_renumbered(name: str, logs: tuple[TopicLog, TopicLog], into: TransactionalSink, session: Any) -> None:
    """Refuse a copy (the second log) whose records differ from those of its source (the first), in their order.

    The sink says by its map what of both is the same. All of it is read, in Spark where there is a session.

    Raises:
        UserError: It differs.
    """
    from reconciler.jobs.renumbered import verify_renumbered

    source, copy = logs
    _check(name, verify_renumbered(session, copy, source, into.spans(source.bounds())))


def _check(name: str, found: Comparison) -> None:
    wrong = [part for part in found.partitions if {"records", "digest"} & set(part.differences)]
    if wrong:
        named = ", ".join(str(part.partition) for part in wrong)
        raise UserError(
            f"{name}: the copy differs from its source in partitions {named}",
            hint="Look at where they begin to differ with: reconciler verify. Nothing was deleted. "
            "Old records expire on arrival where the copy keeps them for less time than its source.",
        )
