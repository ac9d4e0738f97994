"""JSON of `verify`: comparisons of topic logs."""

from __future__ import annotations

from typing import Final

from reconciler.cli.json.base import JsonForm, define_document
from reconciler.jobs.comparison import PartitionComparison, PartitionSide
from reconciler.operations.verify import LinkComparison, NotCompared, TopicComparison


def _format_digest(side: PartitionSide) -> str:
    """Two sums mod 2^128 over all records, hexadecimal."""
    return f"{side.digest.total:032x}{side.digest.weighted:032x}"


def _is_deep(verified: LinkComparison) -> bool:
    """Whether all records were read, instead of stored digests."""
    return any(mirror.comparison.is_deep for mirror in verified.mirrors)


def _list_stopped(verified: LinkComparison) -> tuple[str, ...]:
    """Promoted mirrors, which are not compared."""
    return tuple(stopped.mirror for stopped in verified.stopped)


_SIDE: Final = JsonForm(PartitionSide, ("start", "end", "records", ("digest", _format_digest)))
_PARTITION: Final = JsonForm(
    PartitionComparison,
    ("partition", "is_equal", "differences", "first_difference", "superseded", ("left", _SIDE), ("right", _SIDE)),
)
_PARTITIONS: Final = ("partitions=comparison.partitions", _PARTITION)
_MIRROR: Final = JsonForm(TopicComparison, ("mirror=left", "source=right", "is_equal", _PARTITIONS, "foreign"))
VERIFICATION: Final = define_document(
    "reconciler.verify/1",
    TopicComparison,
    *("left", "right", "is_equal", "comparison.is_deep", _PARTITIONS, "foreign?"),
)
LINK_VERIFICATION: Final = define_document(
    "reconciler.link-verification/1",
    LinkComparison,
    "link",
    "is_equal",
    ("deep", _is_deep),
    ("mirrors", _MIRROR),
    ("failed", JsonForm(NotCompared, ("mirror", "error", "hint=error.hint"))),
    ("stopped", _list_stopped),
)
