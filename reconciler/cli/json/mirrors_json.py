"""JSON of the mirror commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field

from reconciler.cli.json.base import Document, Part
from reconciler.cli.json.mounts_json import UnreadPart, unread_parts
from reconciler.lifecycles import LinkStatus, MirrorStatus

if TYPE_CHECKING:
    from reconciler.operations.mirrors.link_views import LinkList, LinkRow
    from reconciler.operations.mirrors.mirror_views import (
        MirrorError,
        MirrorErrors,
        MirrorList,
        MirrorRow,
    )


class TroublePart(Part):
    """What is wrong, by its code and in words."""

    error_code: str = Field(validation_alias="code")
    error_message: str = Field(validation_alias="message")
    since_ms: int


class MirrorPart(Part):
    """One mirror."""

    address: str
    cluster: str = Field(description="The destination, on which it lives.")
    link_name: str = Field(validation_alias="link")
    mirror_topic_name: str = Field(validation_alias="name")
    source_cluster: str
    source_topic_name: str = Field(validation_alias="source")
    mirror_status: MirrorStatus = Field(validation_alias="status")
    status_time_ms: int = Field(
        validation_alias="since_ms",
        description="When it came into that state. 0: not known, such as when its link was paused.",
    )
    num_partitions: int = Field(validation_alias="partitions")
    max_mirror_lag: int | None = Field(description="Of its slowest partition. Null: not measured, or unknown.")
    automatic: bool = Field(validation_alias="is_automatic", description="Whether the link made it by itself.")

    @classmethod
    def of(cls, row: MirrorRow, **more: Any) -> Self:
        """Say what is in a list, and more."""
        return cls.from_record(row.seen, address=row.address, max_mirror_lag=row.max_lag, **more)


class MirrorsDocument(Document):
    """Mirrors, by cluster and name."""

    format: Literal["reconciler.mirrors/1"] = "reconciler.mirrors/1"
    mirrors: tuple[MirrorPart, ...]
    unread: tuple[UnreadPart, ...]

    @classmethod
    def of(cls, found: MirrorList) -> MirrorsDocument:
        """Say everything."""
        return cls(mirrors=tuple(map(MirrorPart.of, found.rows)), unread=unread_parts(found.lost))


class MirrorLagPart(Part):
    """One partition of a mirror."""

    partition: int
    lag: int | None = Field(
        description="Source end - mirror end. Null: the source does not say, or is followed no more."
    )
    last_source_fetch_offset: int = Field(validation_alias="fetched", description="-1: nothing was ever copied.")
    end: int = Field(description="Next offset of the mirror.")


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
        operation = row.seen.operation
        return cls.of(
            row,
            mirror_lags=row.partitions,
            operation=None if operation is None else operation.verb,
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
        return cls.from_record(
            error.trouble,
            cluster=error.cluster,
            link_name=error.link,
            mirror_topic_name=error.mirror,
            task_name=error.task,
        )


class MirrorErrorsDocument(Document):
    """What is wrong, by cluster and link."""

    format: Literal["reconciler.mirror-errors/1"] = "reconciler.mirror-errors/1"
    errors: tuple[MirrorErrorPart, ...]
    unread: tuple[UnreadPart, ...]

    @classmethod
    def of(cls, found: MirrorErrors) -> MirrorErrorsDocument:
        """Say everything."""
        return cls(errors=tuple(map(MirrorErrorPart.whole, found.errors)), unread=unread_parts(found.lost))


# JSON of the link commands.


class LinkPart(Part):
    """One link."""

    address: str
    cluster: str = Field(description="The destination, on which it lives.")
    link_name: str = Field(validation_alias="name")
    link_id: str = Field(validation_alias="id")
    source_cluster: str
    source_cluster_id: str | None = Field(description="Of the cluster it was made to. Null: it has not met it yet.")
    mode: Literal["destination", "source", "bidirectional"]
    prefix: str
    link_state: LinkStatus = Field(validation_alias="status")
    paused: bool = Field(description="What is asked of it; the state says what became of that.")
    mirrors: Mapping[MirrorStatus, int] = Field(description="How many of its mirrors are in which state.")
    trouble: TroublePart | None

    @classmethod
    def of(cls, row: LinkRow, **more: Any) -> Self:
        """Say what is in a list, and more."""
        spec = row.seen.declared.spec
        return cls.from_record(
            row.seen,
            address=row.address,
            cluster=row.cluster,
            source_cluster=spec.source,
            mode=spec.mode,
            prefix=spec.prefix,
            paused=spec.paused,
            mirrors=dict(sorted(row.mirrors.items())),
            **more,
        )


class LinksDocument(Document):
    """Links, by cluster and name."""

    format: Literal["reconciler.links/1"] = "reconciler.links/1"
    links: tuple[LinkPart, ...]
    unread: tuple[UnreadPart, ...]

    @classmethod
    def of(cls, found: LinkList) -> LinksDocument:
        """Say everything."""
        return cls(links=tuple(map(LinkPart.of, found.rows)), unread=unread_parts(found.lost))


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
        tasks = tuple(
            LinkTaskPart.from_record(trouble, task_name=name) for name, trouble in sorted(row.seen.tasks.items())
        )
        return cls.of(row, spec=row.seen.declared.spec.to_json(), tasks=tasks, legal=row.legal)


class LinkDescriptionDocument(Document):
    """Links, as they were named."""

    format: Literal["reconciler.link-description/1"] = "reconciler.link-description/1"
    links: tuple[LinkDescriptionPart, ...]

    @classmethod
    def of(cls, rows: Iterable[LinkRow]) -> LinkDescriptionDocument:
        """Say everything."""
        return cls(links=tuple(map(LinkDescriptionPart.whole, rows)))
