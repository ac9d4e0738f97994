"""JSON of the mirror and link commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconciler.cli.json.base import JsonForm, define_document
from reconciler.cli.json.mounts_json import list_unread
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.mirrors.link_views import LinkList, LinkRow
from reconciler.operations.mirrors.mirror_views import MirrorError, MirrorErrors, MirrorList, MirrorRow, PartitionLag
from reconciler.resources.mirrors import Trouble
from reconciler.runtime.dataclass import dataclass

_TROUBLE: Final = JsonForm(Trouble, ("error_code=code", "error_message=message", "since_ms"))
_MIRROR: Final = (
    "address",
    "seen.cluster",
    "link_name=seen.link",
    "mirror_topic_name=seen.name",
    "seen.source_cluster",
    "source_topic_name=seen.source",
    "mirror_status=seen.status",
    "status_time_ms=seen.since_ms",
    "num_partitions=seen.partitions",
    "max_mirror_lag=max_lag",
    "seen.is_automatic",
)
_LAG: Final = JsonForm(PartitionLag, ("partition", "lag", "last_source_fetch_offset=fetched", "end"))
_DESCRIBED: Final = JsonForm(
    MirrorRow,
    (
        *_MIRROR,
        ("mirror_lags=partitions", _LAG),
        "operation=seen.operation.verb",
        "seen.stopped_by",
        ("seen.trouble", _TROUBLE),
        "legal",
    ),
)
_ERROR: Final = JsonForm(
    MirrorError,
    (
        "error_code=trouble.code",
        "error_message=trouble.message",
        "trouble.since_ms",
        "cluster",
        "link_name=link",
        "mirror_topic_name=mirror",
        "task_name=task",
    ),
)
MIRRORS: Final = define_document(
    "reconciler.mirrors/1", MirrorList, ("mirrors=rows", JsonForm(MirrorRow, _MIRROR)), ("unread", list_unread)
)
MIRROR_DESCRIPTION: Final = define_document(
    "reconciler.mirror-description/1",
    tuple[MirrorRow, ...],
    ("mirrors=.", _DESCRIBED),
    about="Mirrors, as they were named.",
)
MIRROR_ERRORS: Final = define_document(
    "reconciler.mirror-errors/1", MirrorErrors, ("errors", _ERROR), ("unread", list_unread)
)


@dataclass(frozen=True, slots=True)
class LinkTask:
    """A failed task of a link."""

    error_code: str
    error_message: str
    since_ms: int
    task_name: str


def _count_mirrors(row: LinkRow) -> Mapping[MirrorStatus, int]:
    """Number of mirrors in each state."""
    return dict(sorted(row.mirrors.items()))


def _read_spec(row: LinkRow) -> dict[str, Any]:
    """The spec of a MirrorLink, without its mirrors."""
    return row.seen.declared.spec.to_json()


def _list_failed_tasks(row: LinkRow) -> tuple[LinkTask, ...]:
    """Tasks of the link that report an error."""
    tasks = sorted(row.seen.tasks.items())
    return tuple(LinkTask(trouble.code, trouble.message, trouble.since_ms, name) for name, trouble in tasks)


_LINK: Final = (
    "address",
    "cluster",
    "link_name=seen.name",
    "link_id=seen.id",
    "source_cluster=seen.declared.spec.source",
    "seen.source_cluster_id",
    "seen.declared.spec.mode",
    "seen.declared.spec.prefix",
    "link_state=seen.status",
    "seen.declared.spec.paused",
    ("mirrors", _count_mirrors),
    ("seen.trouble", _TROUBLE),
)
LINKS: Final = define_document(
    "reconciler.links/1", LinkList, ("links=rows", JsonForm(LinkRow, _LINK)), ("unread", list_unread)
)
LINK_DESCRIPTION: Final = define_document(
    "reconciler.link-description/1",
    tuple[LinkRow, ...],
    ("links=.", JsonForm(LinkRow, (*_LINK, ("spec", _read_spec), ("tasks", _list_failed_tasks), "legal"))),
    about="Links, as they were named.",
)
