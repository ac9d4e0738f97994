"""Metadata of a cluster in object storage.

The register `metadata/<cluster id>/metadata.json` references one object each for properties, namespaces, topics, links,
and committed group offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from reconciler.archives.keys import CLUSTER_METADATA, build_metadata_key, parse_metadata_cluster
from reconciler.archives.objects import MALFORMED, damaged_error, get_gzipped
from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.errors import MissingObjectError, UserError
from reconciler.objectstore.base import ObjectStore, check_shape
from reconciler.objectstore.register import Register, RegisterSnapshot
from reconciler.runtime.dataclass import dataclass, field

Json = dict[str, Any]

GROUPS_PART: Final = "groups"
PART_FORMAT: Final = "reconciler.cluster-metadata-part/1"
_FORMAT: Final = "reconciler.cluster-metadata/1"
_SHAPE: Final = {
    "cluster_id": str,
    "serial": int,
    "revision": int,
    "parts": {str: {"key": str, "sha256": str, "bytes": int, "entries": int, "written_ms": int, "mark": str}},
}
_COMMITTED: Final = {"offset": int, "metadata": str, "at_ms": (None, int)}
_GROUPS: Final = {str: {"hint": str, "offsets": {str: {str: _COMMITTED}}}}
_READ_ATTEMPTS: Final = 3
"""Maximum attempts to read, since a writer may replace a part."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Reference to a part of a cluster's metadata."""

    key: str
    sha256: str
    bytes: int
    entries: int
    written_ms: int
    mark: str = ""
    """Change mark of the groups when they were read; empty for other parts."""

    def to_json(self) -> Json:
        """Convert to JSON."""
        return asdict(self)


OffsetsByLocation = dict[str, dict[int, CommittedOffset]]
"""Committed offsets by `build_location_key` of the topic, then by partition."""


@dataclass(frozen=True, slots=True)
class StoredMetadata:
    """Metadata of a cluster in object storage; `lost` has errors of unreadable parts."""

    cluster_id: str
    serial: int
    revision: int
    parts: Mapping[str, StoredPart]
    tables: Mapping[str, Json] = field(default_factory=dict)
    """Content of readable parts, without groups."""
    groups: Mapping[str, OffsetsByLocation] = field(default_factory=dict)
    lost: Mapping[str, UserError] = field(default_factory=dict)

    def read_group_offsets(self, place: str) -> dict[str, dict[int, CommittedOffset]]:
        """Return groups' offsets in the topic with the location key `place`."""
        return {group: offsets[place] for group, offsets in sorted(self.groups.items()) if place in offsets}


def build_location_key(cluster_id: str, revision: int) -> str:
    """Return the key of a topic's location, which does not contain its name."""
    return f"{cluster_id}/{revision}"


def list_stored_clusters(storage: ObjectStore) -> list[str]:
    """Return the ids of clusters with stored metadata; one LIST."""
    ids = {parse_metadata_cluster(listed.key) for listed in storage.list(CLUSTER_METADATA)}
    return sorted(cluster_id for cluster_id in ids if cluster_id is not None)


def read_metadata(storage: ObjectStore, cluster_id: str, shapes: Mapping[str, Any]) -> StoredMetadata | None:
    """Return a cluster's groups and the parts in `shapes` (by name); one GET each, `None` if nothing is stored."""
    register = open_metadata_register(storage, cluster_id)
    for attempt in range(1, _READ_ATTEMPTS + 1):
        held = register.read()
        if held is None:
            return None
        metadata = _read(storage, register, held, shapes)
        if attempt == _READ_ATTEMPTS or not any(
            isinstance(error, MissingObjectError) for error in metadata.lost.values()
        ):
            return metadata
    raise AssertionError


def read_stored_groups(storage: ObjectStore, cluster_id: str) -> tuple[StoredMetadata | None, UserError | None]:
    """Return a cluster's stored metadata (`None` if nothing is stored), and any read error."""
    try:
        metadata = read_metadata(storage, cluster_id, {})
    except UserError as error:
        return None, error
    return metadata, None if metadata is None else metadata.lost.get(GROUPS_PART)


_REST: Final = "The other parts are used. Restore it from a version or copy of the bucket, or write this part by hand."


def open_metadata_register(storage: ObjectStore, cluster_id: str) -> Register:
    """Return the register of a cluster's metadata."""
    return Register(storage, build_metadata_key(cluster_id), format=_FORMAT, shape=_SHAPE)


def parse_parts(held: RegisterSnapshot) -> dict[str, StoredPart]:
    """Return the parts in the register."""
    return {
        name: StoredPart(
            fields["key"],
            fields["sha256"],
            fields["bytes"],
            fields["entries"],
            fields["written_ms"],
            fields.get("mark", ""),
        )
        for name, fields in held.value.get("parts", {}).items()
    }


def read_part(storage: ObjectStore, name: str, part: StoredPart, shapes: Mapping[str, Any]) -> Json:
    """Return a part's content; reject one that does not match its shape."""
    value = get_gzipped(storage, part.key, part.sha256, f"the part {name} of the cluster's metadata")
    if value.get("format") != PART_FORMAT:
        raise damaged_error(storage, part.key, f"its format is {value.get('format')!r}, not {PART_FORMAT!r}")
    content = value["content"]
    check_shape(content, _GROUPS if name == GROUPS_PART else shapes[name])
    result: Json = content
    return result


def _read(
    storage: ObjectStore, register: Register, held: RegisterSnapshot, shapes: Mapping[str, Any]
) -> StoredMetadata:
    parts = parse_parts(held)
    tables: dict[str, Json] = {}
    groups: Mapping[str, OffsetsByLocation] = {}
    lost: dict[str, UserError] = {}
    for name in (*shapes, GROUPS_PART):
        if name not in parts:
            lost[name] = UserError(f"{storage.url}: {register.key} does not contain the part {name}", hint=_REST)
            continue
        try:
            content = read_part(storage, name, parts[name], shapes)
            if name == GROUPS_PART:
                groups = _parse_groups(content)
            else:
                tables[name] = content
        except UserError as error:
            lost[name] = error
        except MALFORMED as error:
            lost[name] = damaged_error(storage, parts[name].key, f"{type(error).__name__}: {error}")
    value = held.value
    return StoredMetadata(value["cluster_id"], value["serial"], value["revision"], parts, tables, groups, lost)


def _parse_groups(content: Json) -> dict[str, OffsetsByLocation]:
    return {
        group: {
            place: {int(number): CommittedOffset.from_json(committed) for number, committed in offsets.items()}
            for place, offsets in stored["offsets"].items()
        }
        for group, stored in content.items()
    }
