"""JSON of the mirror commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from reconciler.cli.json.base import Document, Part
from reconciler.cli.json.mounts_json import UnreadPart
from reconciler.lifecycles.mirror import LinkStatus, MirrorStatus

if TYPE_CHECKING:
    from reconciler.errors import ReconcilerError
    from reconciler.operations.mirrors.link_commands import LinkAnswer, LinkAnswers, LinkList, LinkRow
    from reconciler.operations.mirrors.mirror_commands import Answer, Answers
    from reconciler.operations.mirrors.mirror_preview import CutPartition
    from reconciler.operations.mirrors.mirror_views import (
        MirrorError,
        MirrorErrors,
        MirrorList,
        MirrorRow,
        PartitionLag,
    )
    from reconciler.resources.mirrors import Trouble


class TroublePart(Part):
    """What is wrong, by its code and in words."""

    error_code: str
    error_message: str
    since_ms: int

    @classmethod
    def of(cls, trouble: Trouble) -> TroublePart:
        """Say it."""
        return cls(error_code=trouble.code, error_message=trouble.message, since_ms=trouble.since_ms)


class MirrorPart(Part):
    """One mirror."""

    address: str
    cluster: str = Field(description="The destination, on which it lives.")
    link_name: str
    mirror_topic_name: str
    source_cluster: str
    source_topic_name: str
    mirror_status: MirrorStatus
    status_time_ms: int = Field(description="When it came into that state; what its link imposes is not counted.")
    num_partitions: int
    max_mirror_lag: int | None = Field(description="Of its slowest partition. Null: not measured, or unknown.")
    automatic: bool = Field(description="Whether the link made it by itself.")

    @classmethod
    def of(cls, row: MirrorRow) -> MirrorPart:
        """Say what is in a list."""
        return cls(**_fields(row))


class MirrorsDocument(Document):
    """Mirrors, by cluster and name."""

    format: Literal["reconciler.mirrors/1"] = "reconciler.mirrors/1"
    mirrors: tuple[MirrorPart, ...]
    unread: tuple[UnreadPart, ...]

    @classmethod
    def of(cls, found: MirrorList) -> MirrorsDocument:
        """Say everything."""
        return cls(mirrors=tuple(map(MirrorPart.of, found.rows)), unread=tuple(_unread(found.lost)))


class MirrorLagPart(Part):
    """One partition of a mirror."""

    partition: int
    lag: int | None = Field(
        description="Source end - mirror end. Null: the source does not say, or is followed no more."
    )
    last_source_fetch_offset: int = Field(description="-1: nothing was ever copied.")
    end: int = Field(description="Next offset of the mirror.")

    @classmethod
    def of(cls, lag: PartitionLag) -> MirrorLagPart:
        """Say where it stands."""
        return cls(partition=lag.partition, lag=lag.lag, last_source_fetch_offset=lag.fetched, end=lag.end)


class MirrorDescriptionPart(MirrorPart):
    """One mirror with its partitions."""

    mirror_lags: tuple[MirrorLagPart, ...]
    operation: str | None = Field(description="The verb under way, where that takes several steps.")
    stopped_by: str | None = Field(description="The verb that stopped it.")
    trouble: TroublePart | None = Field(
        description="Why it cannot fetch, why it failed, or what its transition waits for."
    )
    legal: tuple[str, ...] = Field(description="The verbs that may be asked for in its state.")

    @classmethod
    def whole(cls, row: MirrorRow) -> MirrorDescriptionPart:
        """Say all of it."""
        seen = row.seen
        return cls(
            **_fields(row),
            mirror_lags=tuple(map(MirrorLagPart.of, row.partitions)),
            operation=None if seen.operation is None else seen.operation.verb,
            stopped_by=seen.stopped_by,
            trouble=None if seen.trouble is None else TroublePart.of(seen.trouble),
            legal=row.legal,
        )


class MirrorDescriptionDocument(Document):
    """Mirrors, as they were named."""

    format: Literal["reconciler.mirror-description/1"] = "reconciler.mirror-description/1"
    mirrors: tuple[MirrorDescriptionPart, ...]

    @classmethod
    def of(cls, rows: Iterable[MirrorRow]) -> MirrorDescriptionDocument:
        """Say everything."""
        return cls(mirrors=tuple(map(MirrorDescriptionPart.whole, rows)))


class MirrorErrorPart(TroublePart):
    """What is wrong with a link, with one of its tasks, or with one of its mirrors."""

    cluster: str
    link_name: str
    mirror_topic_name: str | None = Field(description="Null: it is not of one mirror.")
    task_name: str | None = Field(description="Null: it is not of a task.")

    @classmethod
    def whole(cls, error: MirrorError) -> MirrorErrorPart:
        """Say all of it."""
        return cls(
            cluster=error.cluster,
            link_name=error.link,
            mirror_topic_name=error.mirror,
            task_name=error.task,
            **TroublePart.of(error.trouble).model_dump(),
        )


class MirrorErrorsDocument(Document):
    """What is wrong, by cluster and link."""

    format: Literal["reconciler.mirror-errors/1"] = "reconciler.mirror-errors/1"
    errors: tuple[MirrorErrorPart, ...]
    unread: tuple[UnreadPart, ...]

    @classmethod
    def of(cls, found: MirrorErrors) -> MirrorErrorsDocument:
        """Say everything."""
        return cls(errors=tuple(map(MirrorErrorPart.whole, found.errors)), unread=tuple(_unread(found.lost)))


def _fields(row: MirrorRow) -> dict[str, object]:
    seen = row.seen
    return {
        "address": row.address,
        "cluster": seen.cluster,
        "link_name": seen.link,
        "mirror_topic_name": seen.name,
        "source_cluster": seen.source_cluster,
        "source_topic_name": seen.source,
        "mirror_status": seen.status,
        "status_time_ms": seen.since_ms,
        "num_partitions": seen.partitions,
        "max_mirror_lag": row.max_lag,
        "automatic": seen.is_automatic,
    }


def _unread(lost: Mapping[str, ReconcilerError]) -> Iterator[UnreadPart]:
    for name in sorted(lost):
        yield UnreadPart(cluster=name, problem=lost[name].message)


# JSON of the commands that ask something of mirrors.


class TruncatedPart(Part):
    """One partition that a restore cuts."""

    partition_id: int
    offset_truncated_to: int
    messages_truncated: int = Field(description="Offsets from there on, which are lost.")

    @classmethod
    def of(cls, cut: CutPartition) -> TruncatedPart:
        """Say where, and how much."""
        return cls(partition_id=cut.partition, offset_truncated_to=cut.offset, messages_truncated=cut.lost)


class MirrorAnswerPart(Part):
    """What came of one mirror."""

    address: str
    before: MirrorStatus | None = Field(description="Null: it was not there, or not looked at.")
    after: MirrorStatus | None = Field(description="Null: it is not known.")
    error_message: str | None = Field(description="Null: it is done.")
    hint: str | None
    is_left: bool = Field(
        default=False, description="Named by a pattern or a link, and as the verb would leave it: nothing was done."
    )
    lost_records: int | None = Field(
        default=None,
        description="Offsets that a failover or a restore loses; null: none by what it asks, or it cannot be told.",
    )
    lost_seconds: float | None = Field(
        default=None,
        description="By a failover that loses records: how much older the mirror's newest record is than its source's.",
    )
    mirror_lags: tuple[MirrorLagPart, ...] = Field(description="As they were when it was asked.")
    partition_level_truncation_data: tuple[TruncatedPart, ...]

    @classmethod
    def of(cls, answer: Answer) -> MirrorAnswerPart:
        """Say all of it."""
        ready, error = answer.ready, answer.error
        return cls(
            address=answer.named.address,
            before=answer.before,
            after=answer.after,
            error_message=None if error is None else error.message,
            hint=None if error is None else error.hint,
            is_left=answer.is_left,
            lost_records=None if ready is None else ready.lost_records,
            lost_seconds=None if ready is None or ready.lost_ms is None else ready.lost_ms / 1000,
            mirror_lags=() if ready is None else tuple(map(MirrorLagPart.of, ready.lags)),
            partition_level_truncation_data=() if ready is None else tuple(map(TruncatedPart.of, ready.cuts)),
        )


class MirrorAnswersDocument(Document):
    """What came of asking a verb of mirrors, in the order in which they were named."""

    format: Literal["reconciler.mirror-answers/1"] = "reconciler.mirror-answers/1"
    verb: str
    is_rehearsal: bool = Field(default=False, description="Nothing was done: it says what would be.")
    mirrors: tuple[MirrorAnswerPart, ...]

    @classmethod
    def of(cls, answers: Answers) -> MirrorAnswersDocument:
        """Say everything."""
        return cls(
            verb=answers.verb, is_rehearsal=answers.is_rehearsal, mirrors=tuple(map(MirrorAnswerPart.of, answers.each))
        )


# JSON of the link commands.


class LinkPart(Part):
    """One link."""

    address: str
    cluster: str = Field(description="The destination, on which it lives.")
    link_name: str
    link_id: str
    source_cluster: str
    source_cluster_id: str | None = Field(description="Of the cluster it was made to. Null: it has not met it yet.")
    mode: Literal["destination", "source", "bidirectional"]
    prefix: str
    link_state: LinkStatus
    paused: bool = Field(description="What is asked of it; the state says what became of that.")
    mirrors: Mapping[MirrorStatus, int] = Field(description="How many of its mirrors are in which state.")
    trouble: TroublePart | None

    @classmethod
    def of(cls, row: LinkRow) -> LinkPart:
        """Say what is in a list."""
        return cls(**_link_fields(row))


class LinksDocument(Document):
    """Links, by cluster and name."""

    format: Literal["reconciler.links/1"] = "reconciler.links/1"
    links: tuple[LinkPart, ...]
    unread: tuple[UnreadPart, ...]

    @classmethod
    def of(cls, found: LinkList) -> LinksDocument:
        """Say everything."""
        return cls(links=tuple(map(LinkPart.of, found.rows)), unread=tuple(_unread(found.lost)))


class LinkTaskPart(TroublePart):
    """What is wrong with a task of a link."""

    task_name: str


class LinkDescriptionPart(LinkPart):
    """One link with its fields and tasks."""

    spec: dict[str, object] = Field(description="As a MirrorLink has it, without its mirrors.")
    tasks: tuple[LinkTaskPart, ...] = Field(description="Those that something is wrong with.")
    legal: tuple[str, ...] = Field(description="The verbs that may be asked for in its state.")

    @classmethod
    def whole(cls, row: LinkRow) -> LinkDescriptionPart:
        """Say all of it."""
        tasks = (
            LinkTaskPart(task_name=name, **TroublePart.of(trouble).model_dump())
            for name, trouble in sorted(row.seen.tasks.items())
        )
        return cls(
            **_link_fields(row), spec=row.seen.declared.spec.to_json(), tasks=tuple(tasks), legal=tuple(row.legal)
        )


class LinkDescriptionDocument(Document):
    """Links, as they were named."""

    format: Literal["reconciler.link-description/1"] = "reconciler.link-description/1"
    links: tuple[LinkDescriptionPart, ...]

    @classmethod
    def of(cls, rows: Iterable[LinkRow]) -> LinkDescriptionDocument:
        """Say everything."""
        return cls(links=tuple(map(LinkDescriptionPart.whole, rows)))


class LinkAnswerPart(Part):
    """What came of one link."""

    address: str
    before: LinkStatus | None = Field(description="Null: it was not there, or not looked at.")
    after: LinkStatus | None = Field(description="Null: it is not known.")
    error_message: str | None = Field(description="Null: it is done.")
    hint: str | None
    is_left: bool = Field(description="Named by a pattern, and as the verb would leave it: nothing was done.")
    mirrors: Mapping[MirrorStatus, int] = Field(description="How many of its mirrors were in which state.")
    notes: tuple[str, ...] = Field(description="What else there is to know: of the files, its mirrors, its other half.")

    @classmethod
    def of(cls, answer: LinkAnswer) -> LinkAnswerPart:
        """Say all of it."""
        error = answer.error
        return cls(
            address=answer.address,
            before=answer.before,
            after=answer.after,
            error_message=None if error is None else error.message,
            hint=None if error is None else error.hint,
            is_left=answer.is_left,
            mirrors={} if answer.row is None else answer.row.mirrors,
            notes=answer.notes,
        )


class LinkAnswersDocument(Document):
    """What came of asking a verb of links, in the order in which they were named."""

    format: Literal["reconciler.link-answers/1"] = "reconciler.link-answers/1"
    verb: str
    is_rehearsal: bool = Field(description="Nothing was done: it says what would be.")
    links: tuple[LinkAnswerPart, ...]

    @classmethod
    def of(cls, answers: LinkAnswers) -> LinkAnswersDocument:
        """Say everything."""
        return cls(
            verb=answers.verb, is_rehearsal=answers.is_rehearsal, links=tuple(map(LinkAnswerPart.of, answers.each))
        )


def _link_fields(row: LinkRow) -> dict[str, Any]:
    seen, spec = row.seen, row.seen.declared.spec
    return {
        "address": row.address,
        "cluster": row.cluster,
        "link_name": seen.name,
        "link_id": seen.id,
        "source_cluster": spec.source,
        "source_cluster_id": seen.source_cluster_id,
        "mode": spec.mode,
        "prefix": spec.prefix,
        "link_state": seen.status,
        "paused": spec.paused,
        "mirrors": dict(sorted(row.mirrors.items())),
        "trouble": None if seen.trouble is None else TroublePart.of(seen.trouble),
    }
