"""JSON of `export` and `import`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, cast

from reconciler.cli.json.base import JsonForm, define_document
from reconciler.importers.base import NotImported
from reconciler.operations.export import ExportResult
from reconciler.operations.export_archives import NEVER_KEPT, GroupReturn
from reconciler.operations.export_layout import OmittedResource
from reconciler.operations.imports import ImportResult
from reconciler.resources.inventory import ClusterMetadata, MetadataPart
from reconciler.resources.mount import RecoverableTopic
from reconciler.runtime.dataclass import dataclass

_PartName: TypeAlias = Literal["cluster", "namespaces", "topics", "links", "groups"]


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """A partition's data in object storage."""

    partition: int
    start: int
    end: int
    """The end of the uploaded records; later records are lost."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The source from which a topic is recovered."""

    topic: RecoverableTopic
    older: tuple[str, ...]
    """Locations of earlier topics of the same name."""
    age_ms: int | None
    """The time since the last upload."""


@dataclass(frozen=True, slots=True)
class ExportedResource:
    """A resource for which a manifest was written."""

    address: str
    recovery: Recovery | None
    comes_back_empty: bool = False
    """Whether object storage has the topic's definition but no records."""
    former_id: str | None = None
    """The resource's id on the lost cluster."""


@dataclass(frozen=True, slots=True)
class PartAge:
    """A part of a cluster's metadata in object storage."""

    part: MetadataPart
    age_ms: int
    """The time since the part was written; later changes are lost."""


@dataclass(frozen=True, slots=True)
class ClampedPartition:
    """A committed offset beyond the end of the recovered topic."""

    address: str
    partition: int
    committed: int
    offset: int
    """The offset that the group gets: the end of the uploaded records."""


@dataclass(frozen=True, slots=True)
class StoredMetadata:
    """A cluster's metadata in object storage, apart from segments."""

    cluster: ClusterMetadata
    parts: tuple[PartAge, ...]
    groups: tuple[GroupReturn, ...]
    lost: tuple[str, ...]
    """Metadata that is never stored."""


def _name_source(exported: ExportResult) -> Literal["cluster", "object-storage"]:
    return "object-storage" if exported.is_archived else "cluster"


def _list_exported(exported: ExportResult) -> tuple[ExportedResource, ...]:
    """Resources for which a manifest was written."""
    archives = exported.archives
    return tuple(
        ExportedResource(
            address,
            _build_recovery(exported, archives.recoveries[address], archives.older.get(address, ()))
            if address in archives.recoveries
            else None,
            comes_back_empty=address in archives.empty,
            former_id=archives.inventory[address].incarnation if address in archives.inventory else None,
        )
        for address in exported.addresses
    )


def _build_recovery(exported: ExportResult, topic: RecoverableTopic, older: Sequence[str]) -> Recovery:
    return Recovery(
        topic, tuple(older), None if topic.uploaded_ms is None else _compute_age_ms(exported, topic.uploaded_ms)
    )


def _compute_age_ms(exported: ExportResult, at_ms: int) -> int:
    return max(0, exported.now_ms - at_ms)


def _list_ends(recovery: Recovery) -> tuple[PartitionEnd, ...]:
    """Partitions with uploaded records."""
    return tuple(PartitionEnd(number, *ends) for number, ends in sorted(recovery.topic.ends.items()))


def _build_metadata(exported: ExportResult) -> StoredMetadata | None:
    """Metadata in object storage; null if not requested or not stored."""
    cluster = exported.archives.metadata
    if cluster is None:
        return None
    parts = tuple(PartAge(part, _compute_age_ms(exported, part.written_ms)) for part in cluster.parts)
    return StoredMetadata(cluster, parts, exported.archives.groups, NEVER_KEPT)


def _read_part_name(age: PartAge) -> _PartName:
    """Name of the part; `cluster` holds cluster properties."""
    return cast("_PartName", age.part.name)


def _list_clamped(group: GroupReturn) -> tuple[ClampedPartition, ...]:
    """Partitions that are set back to the end of the uploaded records."""
    return tuple(
        ClampedPartition(address, offset.partition, offset.committed, offset.offset)
        for address, offset in group.clamped
    )


_RECOVERY: Final = JsonForm(
    Recovery,
    (
        "topic.location",
        "topic.partitions",
        "topic.records",
        "topic.bytes",
        ("ends", _list_ends),
        "older",
        "topic.uploaded_ms",
        "age_ms",
    ),
)
_PART: Final = JsonForm(
    PartAge,
    (("name", _read_part_name), "part.entries", "part.bytes", "part.written_ms", "age_ms", "message=part.error"),
)
_LEFT_OUT: Final = JsonForm(OmittedResource, ("place", "message=error", "error.hint"))
EXPORT: Final = define_document(
    "reconciler.export/1",
    ExportResult,
    "cluster",
    ("source", _name_source),
    "files",
    (
        "exported",
        _list_exported,
        JsonForm(ExportedResource, ("address", ("recovery", _RECOVERY), "comes_back_empty?", "former_id?")),
    ),
    ("left_out", _LEFT_OUT),
    ("unsaid", _LEFT_OUT),
    (
        "metadata?",
        _build_metadata,
        JsonForm(
            StoredMetadata,
            (
                "cluster.cluster_id",
                "message=cluster.error",
                ("parts", _PART),
                ("groups", JsonForm(GroupReturn, ("group", "offsets", ("clamped", _list_clamped), "lost", "waiting?"))),
                "lost",
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ImportedResource:
    """A resource for which a manifest was written."""

    address: str
    source: str | None
    """File and line in the other tool's files; null if several declare it."""


def _list_imported(imported: ImportResult) -> tuple[ImportedResource, ...]:
    """Resources for which a manifest was written."""
    places = imported.places
    return tuple(
        ImportedResource(address, str(places[address]) if address in places else None) for address in imported.addresses
    )


_LOST: Final = JsonForm(NotImported, ("place.file", "place.line", "subject", "field", "message=why", "hint"))
IMPORT: Final = define_document(
    "reconciler.import/1",
    ImportResult,
    "tool",
    "path",
    "read",
    "unread",
    "files",
    "clusters",
    ("imported", _list_imported),
    ("left_out", _LOST),
    ("unsaid", _LOST),
)
